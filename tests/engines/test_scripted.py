"""The scripted engine: replies, limits, faults, deaths. Run: pytest tests/engines/test_scripted.py"""

import inspect
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from debate_local.core.chat import ChatRequest, Completion, Engine, EngineDead, Message, Sampling, digest
from debate_local.engines.scripted import Faults, Reply, ScriptedEngine, scripted
from tests.fakes import request


def answers(engine: Engine, requests: Sequence[ChatRequest]) -> dict[str, Completion]:
    engine.submit(requests)
    found: dict[str, Completion] = {}
    while len(found) < len(requests):
        found.update(engine.poll(10))
    return found


def answer(engine: Engine, asked: ChatRequest) -> Completion:
    return answers(engine, [asked])[asked.id]


def sums(count: int, **sampling: Any) -> list[ChatRequest]:
    return [
        replace(request(f"What is {n} + 3 * 4?", id=str(n)), sampling=Sampling(seed=n, **sampling))
        for n in range(count)
    ]


def said(text: str) -> ScriptedEngine:
    return ScriptedEngine(lambda asked: text)


# --- the built-in solver


def test_the_solver_is_right_wrong_and_at_a_loss_about_as_often_as_asked() -> None:
    replies = answers(scripted(accuracy=0.6, no_answer=0.1), sums(1000))
    right = sum(f"\\boxed{{{n + 12}}}" in replies[str(n)].text for n in range(1000))
    at_a_loss = sum("boxed" not in reply.text for reply in replies.values())
    assert 550 < right < 650
    assert 70 < at_a_loss < 130


def test_equal_requests_get_equal_replies_and_other_seeds_other_ones() -> None:
    asked = sums(200)
    first, again = answers(scripted(), asked), answers(scripted(), asked[::-1])
    assert first == again
    other = answers(scripted(), [replace(r, sampling=Sampling(seed=r.sampling.seed + 1000)) for r in asked])  # type: ignore[operator]
    assert first != other
    assert first != answers(scripted(seed=1), asked)


def test_a_greedy_reply_does_not_depend_on_the_seed() -> None:
    one, other = sums(1, temperature=0.0)[0], request("What is 0 + 3 * 4?", seed=99, temperature=0.0)
    assert answer(scripted(), one).text == answer(scripted(), other).text


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("What is 3+4*5-2*1?", "21"),
        ("What is (3 + 4) * 5?", "35"),
        ("What is 3 − 4 × 2?", "-5"),
        ("What is -3 + 1? Give the result.", "-2"),
        ("Compute 7 / 2 now.", "3.5"),
        ("On 1 May: what is 12 + 30?", "42"),
    ],
)
def test_the_solver_works_out_sums_by_the_rules_of_precedence(question: str, value: str) -> None:
    assert f"\\boxed{{{value}}}" in answer(scripted(accuracy=1.0, no_answer=0.0), request(question)).text


@pytest.mark.parametrize(
    "question", ["How many eggs?", "What is 1 / 0?", "What is __import__('os') + 1?", "", "9**9**9"]
)
def test_a_question_without_a_sum_gets_some_number_and_runs_no_code(question: str) -> None:
    assert answer(scripted(accuracy=1.0, no_answer=0.0), request(question)).finish_reason == "stop"


# --- a file of replies


def script(folder: Path, rows: Any) -> Engine:
    path = folder / "replies.yaml"
    path.write_text(rows if isinstance(rows, str) else json.dumps(rows), encoding="utf-8")
    return scripted(replies=str(path))


def test_the_first_entry_that_matches_the_last_user_message_answers(tmp_path: Path) -> None:
    engine = script(
        tmp_path,
        """
- match: '17 \\+ 25'
  reply: "It is 42."
- match: (?i)check
  reply: "<think>hm</think>Still 42."
- reply: Anything else.
""",
    )
    talk = (Message("user", "17 + 25?"), Message("assistant", "42"), Message("user", "Check it."))
    assert answer(engine, request("What is 17 + 25?")).text == "It is 42."
    second = answer(engine, replace(request(""), messages=talk))
    assert (second.text, second.reasoning, second.raw) == ("Still 42.", "hm", "<think>hm</think>Still 42.")
    assert answer(engine, request("Hello")).text == "Anything else."


def test_several_replies_are_chosen_by_the_seed(tmp_path: Path) -> None:
    engine = script(tmp_path, [{"reply": ["a", "b", "c"]}])
    asked = [request("?", id=str(seed), seed=seed) for seed in range(6)]
    assert [reply.text for _, reply in sorted(answers(engine, asked).items())] == ["a", "b", "c"] * 2
    assert answer(engine, request("?", seed=2, temperature=0.0)).text == "a"


def test_no_match_is_a_failed_completion_that_names_the_message(tmp_path: Path) -> None:
    completion = answer(script(tmp_path, [{"match": "x", "reply": "y"}]), request("hello"))
    assert completion.failed
    assert completion.error is not None
    assert "'hello'" in completion.error and "replies.yaml" in completion.error


def test_an_entry_may_fail_be_too_long_or_cut_off_and_give_logprobs(tmp_path: Path) -> None:
    engine = script(
        tmp_path,
        [
            {"match": "one", "finish_reason": "error", "error": "out of memory"},
            {"match": "two", "finish_reason": "too_long"},
            {"match": "three", "reply": "cut", "finish_reason": "length", "logprobs": [["cut", -0.5]]},
        ],
    )
    failed = answer(engine, request("one"))
    assert failed.failed and "out of memory" in str(failed.error)
    assert answer(engine, request("two")).finish_reason == "too_long"
    cut = answer(engine, replace(request("three"), logprobs=True))
    assert (cut.finish_reason, cut.logprobs) == ("length", (("cut", -0.5),))
    assert answer(engine, request("three")).logprobs is None


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("", "a script is a list of entries"),
        ("reply: hello", "a script is a list of entries"),
        ("- hello", r"entry 1: expected fields \(match, reply, .*found 'hello'"),
        ("- reply: a\n- replay: b", r"entry 2: unknown field replay; the fields are: match, reply"),
        # Hazard C26: YAML reads a bare no as False.
        ("- reply: no", "entry 1: reply must be text or a list of texts, found False; put it in quotes"),
        ("- reply: 42", "found 42; put it in quotes"),
        ("- reply: []", "entry 1: reply must be text"),
        ("- match: a", "entry 1: reply must be text"),
        ("- match: '('\n  reply: a", "entry 1: match must be a regular expression"),
        ("- reply: a\n  finish_reason: ended", "'ended' must be one of stop, length, too_long, error"),
        ("- reply: a\n  logprobs: [1]", "entry 1: .*logprobs"),
    ],
)
def test_a_file_that_is_no_script_is_refused_with_place_and_reason(tmp_path: Path, rows: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        script(tmp_path, rows)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(OSError, match=r"nowhere/replies\.yaml"):
        scripted(replies="nowhere/replies.yaml")


# --- what every engine must do


def test_a_reply_is_cut_at_max_tokens_and_says_so() -> None:
    cut = answer(said("one two  three\nfour"), request("?", max_tokens=3))
    assert (cut.text, cut.finish_reason, cut.clipped, cut.generated_tokens) == ("one two  three", "length", False, 3)
    whole = answer(said("one two  three\nfour"), request("?", max_tokens=4))
    assert (whole.text, whole.finish_reason, whole.generated_tokens) == ("one two  three\nfour", "stop", 4)


def test_a_reply_cut_by_the_context_is_clipped_and_a_prompt_that_fills_it_is_too_long() -> None:
    engine = ScriptedEngine(lambda asked: "one two three", context_length=4)
    clipped = answer(engine, request("two words"))
    assert (clipped.text, clipped.finish_reason, clipped.clipped) == ("one two", "length", True)
    by_max_tokens = answer(engine, request("two words", max_tokens=1))
    assert (by_max_tokens.text, by_max_tokens.finish_reason, by_max_tokens.clipped) == ("one", "length", False)
    fits = answer(engine, request("word"))
    assert (fits.text, fits.finish_reason, fits.clipped) == ("one two three", "stop", False)
    too_long = answer(engine, request("now four words here"))
    assert (too_long.text, too_long.finish_reason, too_long.failed) == ("", "too_long", False)
    assert "4 words" in str(too_long.error)


def test_stop_strings_end_a_reply_and_are_not_part_of_it() -> None:
    asked = replace(request("?"), sampling=Sampling(stop=("\n\n", "Question")))
    stopped = answer(said("The answer is 5.\n\nQuestion: next"), asked)
    assert (stopped.text, stopped.finish_reason, stopped.generated_tokens) == ("The answer is 5.", "stop", 4)
    assert stopped.stop_reason == "\n\n"


def test_a_prefill_begins_the_text_and_is_not_generated() -> None:
    completion = answer(said("it is 5."), replace(request("?"), prefill="Well, "))
    assert (completion.text, completion.raw, completion.generated_tokens) == ("Well, it is 5.", "it is 5.", 3)


def test_logprobs_come_when_asked_for_one_a_word_and_join_to_the_reply() -> None:
    completion = answer(said("It is 5."), replace(request("?"), logprobs=True))
    assert completion.logprobs is not None
    assert "".join(piece for piece, _ in completion.logprobs) == "It is 5."
    assert len(completion.logprobs) == completion.generated_tokens
    assert all(number <= 0 for _, number in completion.logprobs)


def test_tokens_are_words() -> None:
    completion = answer(said("It is 5."), request("What is  2 + 3?"))
    assert (completion.prompt_tokens, completion.generated_tokens) == (5, 3)
    assert said("").count_tokens([Message("user", "a b"), Message("assistant", "c")]) == 3


def test_an_unknown_model_is_a_failed_completion() -> None:
    completion = answer(said("hi"), request("?", model="other"))
    assert completion.failed
    assert "'other'" in str(completion.error)


def test_a_function_may_return_a_text_a_reply_or_a_completion_and_what_it_raises_fails_one_request() -> None:
    def function(asked: ChatRequest) -> str | Reply | Completion:
        match asked.messages[0].content:
            case "text":
                return "hi"
            case "reply":
                return Reply("hi", "length")
            case "completion":
                return Completion("hi", prompt_tokens=77)
        raise KeyError("what?")

    asked = [request(kind, id=kind) for kind in ("text", "reply", "completion", "fault")]
    found = answers(ScriptedEngine(function), asked)
    assert found["text"].text == "hi"
    assert found["reply"].finish_reason == "length"
    assert found["completion"] == Completion("hi", prompt_tokens=77)
    assert found["fault"].failed and "the script raised KeyError: 'what?'" in str(found["fault"].error)


def test_cancelled_requests_do_not_come_back_and_an_id_may_be_used_again() -> None:
    for latency in (0.0, 1e-9):
        engine = ScriptedEngine(lambda asked: asked.messages[0].content, latency=latency)
        engine.submit([request(f"old {n}", id=str(n)) for n in range(40)])
        engine.cancel([str(n) for n in range(0, 40, 2)] + ["unknown"])
        engine.submit([request(f"new {n}", id=str(n)) for n in range(0, 40, 4)])
        found = [(id, completion.text) for _ in range(10) for id, completion in engine.poll(0)]
        expected = [(str(n), f"old {n}") for n in range(1, 40, 2)] + [(str(n), f"new {n}") for n in range(0, 40, 4)]
        assert sorted(found) == sorted(expected)


# --- latency, faults, death


def test_latency_changes_the_order_and_nothing_else() -> None:
    asked = sums(100)
    slow = answers(scripted(latency=0.002), asked)
    assert slow == answers(scripted(), asked)
    assert list(slow) != [r.id for r in asked]


def test_a_poll_brings_everything_that_is_due() -> None:
    engine = scripted(latency=1e-9)
    engine.submit(sums(100))
    assert len(engine.poll(1) + engine.poll(0)) == 100


def test_a_poll_without_anything_due_returns_nothing_at_its_timeout() -> None:
    engine = scripted(latency=60.0)
    engine.submit(sums(1))
    assert engine.poll(0.0) == []
    assert scripted(latency=1.0).poll(0.0) == []


FAULTY = {"fail": 0.1, "too_long": 0.2, "cut_off": 0.1, "empty": 0.2}


def outcome(completion: Completion) -> str:
    if completion.finish_reason == "stop":
        return "fine" if completion.raw else "empty"
    return completion.finish_reason


def test_faults_come_in_the_shares_asked_for_and_are_the_same_every_time() -> None:
    asked = sums(2000)
    found = answers(scripted(**FAULTY), asked)  # type: ignore[arg-type]
    counts = Counter(outcome(completion) for completion in found.values())
    # What does not fail (9 in 10) is too long, cut off or empty in the shares of the rest.
    for kind, share in {"error": 0.1, "too_long": 0.18, "length": 0.09, "empty": 0.18, "fine": 0.45}.items():
        assert abs(counts[kind] / 2000 - share) < 0.04, (kind, counts)
    assert found == answers(scripted(**FAULTY, latency=0.0001), asked[::-1])  # type: ignore[arg-type]


def test_a_request_that_failed_may_succeed_on_an_engine_of_the_same_identity_that_does_not_fail() -> None:
    faulty, healthy = scripted(fail=0.5, empty=0.1), scripted(empty=0.1)
    assert faulty.identity == healthy.identity
    before, after = answers(faulty, sums(100)), answers(healthy, sums(100))
    assert any(completion.failed for completion in before.values())
    assert all(after[id] == completion for id, completion in before.items() if not completion.failed)
    assert not any(completion.failed for completion in after.values())


def test_it_dies_after_so_many_completions_and_stays_dead() -> None:
    engine = scripted(dead_after=3)
    engine.submit(sums(5))
    assert len(engine.poll(0)) == 3
    for _ in range(2):
        with pytest.raises(EngineDead, match="died after 3 completions"):
            engine.poll(0)
    with pytest.raises(EngineDead):
        engine.submit(sums(1))
    engine.close()


def test_it_dies_on_time_when_replies_are_late() -> None:
    engine = scripted(dead_after=3, latency=1e-9)
    engine.submit(sums(1000))
    found: list[Any] = []
    with pytest.raises(EngineDead):
        while True:
            found += engine.poll(1)
    assert len(found) == 3


# --- identity and options


def test_the_identity_knows_what_changes_replies_and_not_what_changes_time(tmp_path: Path) -> None:
    def identity(**options: Any) -> str:
        return digest(scripted(**options).identity["default"])

    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text("- reply: a")
    other.write_text("- reply: b")
    distinct: list[dict[str, Any]] = [
        {},
        {"seed": 1},
        {"accuracy": 0.5},
        {"no_answer": 0.2},
        {"context_length": 100},
        {"too_long": 0.1},
        {"cut_off": 0.1},
        {"empty": 0.1},
        {"replies": str(one)},
        {"replies": str(other)},
    ]
    assert len({identity(**options) for options in distinct}) == len(distinct)
    assert identity(latency=1.0, dead_after=5, fail=0.3) == identity()
    one.rename(tmp_path / "moved.yaml")
    assert identity(replies=str(tmp_path / "moved.yaml")) == digest(
        {**scripted(replies=str(other)).identity["default"], "replies": digest([{"reply": "a"}])}
    )
    assert ScriptedEngine(str, name="a").identity != ScriptedEngine(str, name="b").identity


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"accuracy": 1.5}, "accuracy must be a share between 0 and 1, got 1.5"),
        ({"accuracy": 0.9, "no_answer": 0.2}, r"accuracy \+ no_answer must not exceed 1 together, got 1.1"),
        ({"fail": -0.1}, "fail must be a share between 0 and 1, got -0.1"),
        ({"too_long": 0.6, "empty": 0.6}, r"too_long \+ cut_off \+ empty must not exceed 1 together, got 1.2"),
        ({"latency": -1.0}, "latency must be at least 0 seconds, got -1.0"),
        ({"dead_after": -1}, "dead_after must be at least 0 completions, got -1"),
        ({"context_length": 0}, "context_length must be at least 1 word, got 0"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name_and_value(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        scripted(**options)


def test_every_option_has_a_json_default() -> None:
    for parameter in inspect.signature(scripted).parameters.values():
        json.dumps(parameter.default)


def test_faults_of_the_python_engine_are_those_of_the_config() -> None:
    engine = ScriptedEngine(lambda asked: "word " * 10, faults=Faults(cut_off=1.0))
    assert answer(engine, request("?")).generated_tokens == 5
