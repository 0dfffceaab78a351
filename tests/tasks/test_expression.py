"""The expression reader: graded replies, meanings, worker processes that come and go, real rows, and fuzz."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_local.tasks.answers import algebra_pool
from debate_local.tasks.answers.algebra_pool import AlgebraFailed, AlgebraPool
from debate_local.tasks.answers.expression import FORMAT, equals_gold, prefetch, read_expression, same_expression
from debate_local.tasks.answers.formula_text import matching
from tests.tasks.data import real_rows
from tests.tasks.graded_cases import assert_read_as_expected, graded_cases

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("case", graded_cases("math"))
def test_a_graded_reply_is_read_as_a_careful_person_reads_it(case: dict[str, Any]) -> None:
    assert_read_as_expected(case)


@pytest.mark.parametrize("case", graded_cases("math"))
def test_the_span_lies_in_the_reply(case: dict[str, Any]) -> None:
    answer = read_expression(case["text"])
    assert (answer.span is None) == answer.missing
    if answer.span is not None:
        assert 0 <= answer.span[0] < answer.span[1] <= len(case["text"])


SAME = [
    pytest.param("\\frac12", "1/2", marks=pytest.mark.hazard("A20"), id="fractions"),
    pytest.param("\\frac{1}{2}", "0.5", marks=pytest.mark.hazard("A20"), id="decimal"),
    pytest.param("11\\frac{1}{2}", "\\frac{23}{2}", marks=pytest.mark.hazard("A20"), id="mixed number"),
    pytest.param("0.\\overline{3}", "\\frac13", id="repeating decimal"),
    pytest.param("35\\%", "35", marks=pytest.mark.hazard("A21"), id="percent sign"),
    pytest.param("90^\\circ", "90", id="degree sign"),
    pytest.param("72 \\text{ dollars}", "72", marks=pytest.mark.hazard("A09"), id="unit in the box"),
    pytest.param("24 m2", "24", marks=pytest.mark.hazard("A09"), id="unit with a power"),
    pytest.param("\\$18.90", "18.9", id="currency"),
    pytest.param("\\{2, 1\\}", "\\{1,2\\}", marks=pytest.mark.hazard("A41"), id="set in another order"),
    pytest.param("3, 5, 7", "7, 3 \\text{ and } 5", id="list in another order"),
    pytest.param("1 \\pm \\sqrt{2}", "1-\\sqrt{2}, 1+\\sqrt{2}", id="two signs"),
    pytest.param("x = 2 \\text{ or } x = -2", "\\pm 2", id="two solutions"),
    pytest.param("\\left(4, \\frac{\\pi}{3}\\right)", "(4,\\frac{\\pi}{3})", id="tuple"),
    pytest.param("1 < x \\le 7", "(1,7]", id="inequality as an interval"),
    pytest.param("x<1 \\text{ or } x>2", "(2,\\infty) \\cup (-\\infty,1)", id="union"),
    pytest.param("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "\\begin{matrix}1&2\\\\3&4\\end{matrix}", id="matrix"),
    pytest.param("x^2+1", "1 + x^2", marks=pytest.mark.hazard("A41"), id="sum in another order"),
    pytest.param("(x-1)(x+1)", "x^{2} - 1", id="factors"),
    pytest.param("\\frac{2}{\\sqrt2}", "\\sqrt{2}", id="radicals"),
    pytest.param("2√3", "\\sqrt{12}", id="signs of Unicode"),
    pytest.param("sqrt(3)/2", "\\frac{\\sqrt3}{2}", id="plain text"),
    pytest.param("\\sin^2 x + \\cos^2 x", "1", id="identity"),
    pytest.param("3+4i", "4i+3", id="complex"),
    pytest.param("f(x) = x^2", "x^2", id="named function"),
    pytest.param("\\text{Even}", "even", marks=pytest.mark.hazard("A34"), id="text macro"),
    pytest.param("\\textbf{(D)}", "D", marks=pytest.mark.hazard("A34"), id="letter in a text macro"),
    pytest.param("\\text{fifty-two}", "52", id="number in words"),
    pytest.param("10,\\!080", "10080", id="thin grouping"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_spellings_of_one_meaning_are_one_vote(one: str, other: str) -> None:
    a, b = read_expression(f"\\boxed{{{one}}}"), read_expression(f"The answer is $\\boxed{{{other}}}$.")
    assert a.key == b.key is not None
    assert same_expression(a, b) and equals_gold(a, other) and equals_gold(b, one)


DIFFERENT = [
    pytest.param("2/3", "0.6667", marks=pytest.mark.hazard("A20"), id="rounded"),
    pytest.param("66.7", "\\frac{200}{3}", marks=pytest.mark.hazard("A20"), id="rounded to a place"),
    pytest.param("\\frac{1}{3}", "\\frac{1}{2}", marks=pytest.mark.hazard("A11"), id="cut at the first brace"),
    pytest.param("0.35", "35", marks=pytest.mark.hazard("A21"), id="percent as a share"),
    pytest.param("(2,3)", "(3,2)", marks=pytest.mark.hazard("A41"), id="tuple in another order"),
    pytest.param("(1,7)", "[1,7)", marks=pytest.mark.hazard("A41"), id="open and closed end"),
    pytest.param("\\{1,2\\}", "\\{1,2,3\\}", id="a smaller set"),
    pytest.param("x^2+1", "y^2+1", id="another variable"),
    pytest.param("9007199254740992", "9007199254740993", marks=pytest.mark.hazard("A44"), id="2^53 and its successor"),
    pytest.param("10^{30}", "10^{30}+1", marks=pytest.mark.hazard("A44"), id="big integers as powers"),
    pytest.param("1.41421356237", "\\sqrt2", id="digits of a root"),
    pytest.param("3", "\\pm 3", id="one of two"),
    pytest.param("\\text{even}", "\\text{odd}", id="other words"),
    pytest.param("42", "52_8", id="the value of a numeral in another base"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_differs_is_not_right(one: str, other: str) -> None:
    a, b = read_expression(f"\\boxed{{{one}}}"), read_expression(f"\\boxed{{{other}}}")
    assert a.key != b.key
    assert not same_expression(a, b) and not equals_gold(a, other) and not equals_gold(b, one)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("50", "50\\%"),
        ("0.5", "50\\%"),
        ("52", "52_8"),
        ("2, 3", "(2,3)"),
        ("x=2, y=3", "(2,3)"),
        ("\\begin{pmatrix} 2 \\\\ 3 \\end{pmatrix}", "(2,3)"),
        ("\\{7\\}", "7"),
        ("a + b = -1", "-1"),
        ("y = 2x + 1", "2x - y + 1 = 0"),
    ],
)
def test_what_goes_without_saying_may_be_left_out(answer: str, gold: str) -> None:
    assert equals_gold(read_expression(f"\\boxed{{{answer}}}"), gold)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("\\boxed{615} ... so \\boxed{615}", "615", marks=pytest.mark.hazard("A12")),
        pytest.param("\\boxed{18}. No, wait, it should be \\boxed{20}.", "20", marks=pytest.mark.hazard("A12")),
        pytest.param("\\boxed{2}, \\boxed{6}, and \\boxed{9}", "2,6,9", marks=pytest.mark.hazard("A12")),
        pytest.param("\\boxed 7", "7", marks=pytest.mark.hazard("A14")),
        pytest.param("\\fbox{7}", "7", marks=pytest.mark.hazard("A14")),
        pytest.param("\\boxed{v_A < v_B}, as computed. Answer: D", "D", marks=pytest.mark.hazard("A34")),
        ("\\boxed{\\text{The answer is } 5}", "5"),
        ("<think>so \\boxed{3}</think>Therefore $x = \\frac{3}{4}.$", "\\frac34"),
        ("The value of $k$ is $-4$.", "-4"),
        ("So we obtain \\[ x^2 + y^2 = 25. \\]", "x^2+y^2=25"),
        ("The pair is (2, -3).", "(2,-3)"),
        ("<answer>3/4</answer>", "0.75"),
        ("$\\frac{3}{4}$", "3/4"),
        ("It costs $5 more than $6, so the total is $11.", "11"),
        ("Agent 1 says \\boxed{5}. I get \\boxed{6}.", "6"),
        ("The answer is $2/3$. No, that is wrong. It should be $3/4$.", "3/4"),
        ("\\boxed{5}\n\nQuestion: What is 2 + 2?\nThe answer is \\boxed{4}.", "5"),
        ("We have\n\\begin{align*}\na &= 2 + 3 \\\\\n  &= 5.\n\\end{align*}", "5"),
    ],
)
def test_the_last_statement_counts_and_boxes_in_one_list_are_one_answer(text: str, value: str) -> None:
    answer = read_expression(text)
    assert equals_gold(answer, value), answer


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("\\boxed{}", "an empty box", marks=pytest.mark.hazard("A13")),
        pytest.param("\\boxed{{answer}}", "no expression", marks=pytest.mark.hazard("A13")),
        pytest.param("Thus \\boxed{\\frac{1}{2", "cut off in a box", marks=pytest.mark.hazard("A14")),
        ("", "empty reply"),
        ("<think>\\boxed{3}", "nothing outside reasoning, question and template tokens"),
        ("The answer is $\\frac{1}{2", "cut off in an expression"),
        ("The answer is 2 or 3.", "several candidates"),
        ("It is either $2$ or $3$.", "several candidates"),
        ("\\boxed{10-12}", "an expression or a range"),
        ("\\boxed{\\text{I cannot determine it}}", "stated, but no answer"),
        ("I cannot solve this.", "a refusal or a question back"),
        ("The answer is $5$. No, that is wrong.", "withdrawn"),
        ("Let me think about it.", "no expression"),
    ],
)
def test_no_answer_says_why(text: str, why: str) -> None:
    answer = read_expression(text)
    assert answer.missing and answer.value is None
    assert answer.rule == why


def test_the_rule_names_what_was_dropped() -> None:
    assert read_expression("\\boxed{35\\%}").rule == "boxed (percent)"
    assert read_expression("Final answer: $90^\\circ$").rule == "final answer (degrees)"
    assert read_expression("\\boxed{5 \\text{ apples}}").rule == "boxed (unit)"


def test_the_asked_form_is_read_first_and_the_request_itself_is_no_answer() -> None:
    assert "\\boxed{}" in FORMAT
    assert read_expression(FORMAT).missing
    assert read_expression("Hence $x = 3$, and so \\boxed{3}.").rule == "boxed"


def test_a_missing_answer_is_no_vote_and_never_right() -> None:
    nothing = read_expression("I do not know.")
    assert not same_expression(nothing, nothing)
    assert not equals_gold(nothing, "") and not equals_gold(nothing, "5")


@pytest.mark.hazard("A43")
def test_reading_and_comparing_work_in_a_thread() -> None:
    said: list[bool] = []

    def read() -> None:
        answer = read_expression("\\boxed{2\\sqrt{3}}")
        said.append(
            equals_gold(answer, "\\sqrt{12}") and same_expression(answer, read_expression("\\boxed{\\sqrt{12}}"))
        )

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert said == [True]


def workers() -> set[int]:
    """The ids of this process's workers."""
    children = psutil.Process().children()
    return {child.pid for child in children if "tasks.answers.algebra" in " ".join(child.cmdline())}


@pytest.mark.hazard("A43")
def test_an_expression_that_takes_for_ever_ends_its_worker_and_is_compared_as_text() -> None:
    read_expression("\\boxed{\\sqrt{101}}")
    before = workers()
    endless = read_expression("\\boxed{9^{9^{9^{8}}}}")
    assert endless.value == "9^{9^{9^{8}}}" and not endless.missing
    assert equals_gold(endless, "9^{9^{9^{8}}}")
    assert before - workers()
    assert read_expression("\\boxed{\\sqrt{12}}").key == read_expression("\\boxed{2\\sqrt{3}}").key


def test_algebra_begun_beforehand_gives_the_same_answer() -> None:
    replies = [f"\\boxed{{\\sqrt{{{n}}} + {n}}}" for n in range(2, 30)]
    for reply in replies:
        prefetch(reply)
    prefetch("no expression here")
    assert len({read_expression(reply).key for reply in replies}) == len(replies)
    assert read_expression("\\boxed{\\sqrt{8}+8}").key == read_expression("\\boxed{2(\\sqrt2+4)}").key


def test_an_awaited_expression_goes_before_those_that_nobody_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    all_begun = threading.Event()

    def do(worker: object, asked: tuple[str, ...]) -> str:
        all_begun.wait()
        order.append(asked[1])
        return asked[1]

    monkeypatch.setattr(algebra_pool._Worker, "do", do)
    pool = AlgebraPool(workers=1)
    for n in range(20):
        pool.begin(("simplified", str(n)))
    threading.Timer(0.2, all_begun.set).start()
    assert pool.ask(("simplified", "19")) == "19"
    # The one that was under way, perhaps, and then the awaited one.
    assert "19" in order[:2]
    pool.close()


def test_a_worker_that_cannot_start_is_told_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algebra_pool, "_PROGRAM", "raise SystemExit('no math-verify on this machine')")
    pool = AlgebraPool(workers=1)
    with pytest.raises(AlgebraFailed, match="no math-verify on this machine"):
        pool.ask(("simplified", "\\sqrt{2}"))
    pool.close()


PARENT = """
import sys, time
from debate_local.tasks.answers.expression import read_expression, prefetch
for n in range(2, 6):
    prefetch(f"\\\\boxed{{\\\\sqrt{{{n}}}}}")
assert read_expression("\\\\boxed{\\\\sqrt{2}}").key
import psutil
print(*[child.pid for child in psutil.Process().children()], flush=True)
{then}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("then", "killed"), [("time.sleep(600)", True), ("sys.exit(3)", False)])
def test_workers_end_with_their_parent_however_it_ends(then: str, killed: bool) -> None:
    code = PARENT.replace("{then}", then)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        if killed:
            os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    assert pids
    for _ in range(300):
        if not any(psutil.pid_exists(pid) for pid in pids):
            break
        time.sleep(0.1)
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_a_child_that_forks_off_has_workers_of_its_own() -> None:
    read_expression("\\boxed{\\sqrt{103}}")
    child = os.fork()
    if child == 0:
        right = equals_gold(read_expression("\\boxed{\\sqrt{20}}"), "2\\sqrt{5}")
        # Without the parent's test run.
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert equals_gold(read_expression("\\boxed{\\sqrt{28}}"), "2\\sqrt{7}")


FRAGMENTS = [
    "the answer is ", "Answer: ", "\\boxed{", "}", "{", "\\frac{1}{2}", "\\frac", "12", "1,234", " ", "\n\n", "?", ".",
    ",", "=", "-", "*", "/", "^", "$", "$$", "\\[", "\\]", "\\(", "%", "and ", "or ", "wait ", "no, ", "x", "y",
    "agent 1 ", "so ", "not ", "Question: ", "<think>", "</think>", "\\text{", "\\pm", "\\{", "\\}", "(", ")", "[", "]",
    "\\le ", "\\cup ", "\\infty", "\\begin{pmatrix}", "\\end{pmatrix}", "&", "\\\\", "\\sqrt", "π", "½", "√", "°",
    "_8", "a" * 30, "1" * 400, "9^9^9", "5/0", "İ", "\x00", "\ud800", "²", "\\begin{align}", "\\end{align}", "[asy]",
]  # fmt: skip


def check_invariants(text: str, question: str = "") -> None:
    """What holds for any reply at all."""
    answer = read_expression(text, question)
    assert answer.rule
    assert (answer.key is None) == (answer.value is None) == (answer.span is None)
    if answer.span is not None:
        assert 0 <= answer.span[0] <= answer.span[1] <= len(text)
    assert read_expression(text, question) == answer
    equals_gold(answer, text[:50])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join), st.sampled_from(["", "What is $x + 1$?"]))
def test_no_mixture_of_marks_breaks_the_reader(text: str, question: str) -> None:
    check_invariants(text, question)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=120))
def test_no_text_breaks_the_reader(text: str) -> None:
    check_invariants(text)
    check_invariants(f"\\boxed{{{text}}}")


@given(st.integers(0, 10**9), st.integers(1, 10**6), st.sampled_from(["", "-"]))
def test_a_fraction_is_exact_however_it_is_written(top: int, bottom: int, sign: str) -> None:
    for written in (f"\\frac{{{top}}}{{{bottom}}}", f"\\dfrac{{{top}}}{{{bottom}}}", f"{top}/{bottom}"):
        answer = read_expression(f"\\boxed{{{sign}{written}}}")
        assert Fraction(str(answer.key)) == Fraction(int(f"{sign}{top}"), bottom)


@pytest.mark.parametrize("unit", ["\\boxed{", "\\boxed{1}, ", "$x$, ", "$", "\\[", "(", "x = 1 or ", "\\frac{"])
def test_a_megabyte_of_one_mark_is_read_to_the_end(unit: str) -> None:
    check_invariants(unit * (1_000_000 // len(unit)))


def unboxed(text: str) -> str:
    """The text with what its boxes hold in their place."""
    while (start := text.find("\\boxed{")) >= 0:
        close = matching(text, start + len("\\boxed"))
        assert close is not None
        text = text[:start] + text[start + len("\\boxed{") : close] + text[close + 1 :]
    return text


def test_the_solutions_of_math500_are_read_right_with_and_without_their_box() -> None:
    rows = real_rows("math500_test")
    wrong = missing = 0
    for row in rows:
        boxed = read_expression(row["solution"], row["problem"])
        assert boxed.rule.startswith("boxed") and equals_gold(boxed, row["answer"]), (row["answer"], boxed)
        prose = read_expression(unboxed(row["solution"]), row["problem"])
        missing += prose.missing
        wrong += not prose.missing and not equals_gold(prose, row["answer"])
    # Where nothing is stated, a reader may find no answer; it must hardly ever find another one.
    assert wrong <= len(rows) // 40
    assert missing <= len(rows) // 40


def test_no_gold_of_math500_is_right_for_another_but_for_units_bases_and_names() -> None:
    golds = sorted({row["answer"] for row in real_rows("math500_test")})
    bare = {gold: re.sub(r"\^\\circ|_\d+|x=", "", gold) for gold in golds}
    for gold in golds:
        answer = read_expression(f"\\boxed{{{gold}}}")
        right = {other for other in golds if equals_gold(answer, other)}
        assert gold in right and {bare[other] for other in right} == {bare[gold]}
