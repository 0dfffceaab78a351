"""Graded cases of numbers, options and yes or no, and the known faults of reading them: each states the right value."""

from typing import Any

import pytest
from _pytest.mark import MarkDecorator, ParameterSet

from debate_local.tasks.answers.graded import CASE_READERS, CaseError, grade_case, read_case
from tests.tasks.graded_cases import assert_read_as_expected, graded_cases

pytestmark = pytest.mark.slow

TASKS = ("gsm8k", "arithmetic", "mmlu", "aqua", "strategyqa", "yesno")


@pytest.mark.parametrize("case", [case for task in TASKS for case in graded_cases(task)])
def test_a_graded_reply_is_read_and_graded_as_a_careful_person_does(case: dict[str, Any]) -> None:
    assert_read_as_expected(case)


hazard = pytest.mark.hazard
ORGANS = ["Heart", "Lung", "Liver", "Kidney"]
LENGTHS = ["7 m", "12 m", "70 m", "17 m"]
TEN = [f"{number} N" for number in range(10)]
SUMS = ["31", "33", "36", "39", "None of these"]


def fault(
    mark: MarkDecorator, task: str, text: str, gold: Any, answer: str | None, correct: bool, **fields: Any
) -> ParameterSet:
    """One known fault: the reply, its gold, and what must be read and decided."""
    case = {"id": mark.args[0], "task": task, "text": text, "gold": gold, **fields}
    return pytest.param(case, answer, correct, marks=mark, id=f"{mark.args[0]} {text[:40]}")


FAULTS = [
    fault(hazard("A01"), "gsm8k", "They pack 91 jars, all told.", "91", "91", True),
    fault(hazard("A02"), "gsm8k", "The answer is 38.", "38", "38", True),
    fault(hazard("A03"), "gsm8k", "It costs $27.00", "27", "27", True),
    fault(hazard("A03"), "gsm8k", "The answer is $3,405.50", "3405.5", "3405.5", True),
    fault(hazard("A04"), "gsm8k", "The answer is 61.", "610", "61", False),
    fault(hazard("A05"), "gsm8k", "\\boxed{-8}", "-8", "-8", True),
    fault(hazard("A05"), "gsm8k", "\\boxed{8}", "-8", "8", False),
    fault(hazard("A06"), "gsm8k", "It changes by −9", "-9", "-9", True),
    fault(hazard("A06"), "gsm8k", "Final answer - 21 pears", "21", "21", True),
    fault(hazard("A06"), "gsm8k", "- 21 pears", "21", "21", True),
    fault(hazard("A07"), "gsm8k", "the answer is 64", "64", "64", True),
    fault(hazard("A07"), "gsm8k", "#### 12 is the example.\n5 + 4 = 9\n#### 9", "9", "9", True),
    fault(hazard("A08"), "gsm8k", "The answer is 73000.", "73,000", "73000", True),
    fault(hazard("A09"), "gsm8k", "\\boxed{54 \\text{ coins}}", "54", "54", True),
    fault(hazard("A09"), "gsm8k", "That is 31 m2", "31", "31", True),
    fault(hazard("A10"), "gsm8k", "The final answer is 72. Check: 72 / 8 = 9", "72", "72", True),
    fault(hazard("A12"), "gsm8k", "\\boxed{407}, that is \\boxed{407}", "407", "407", True),
    fault(hazard("A12"), "gsm8k", "\\boxed{11}. I forgot one, no, \\boxed{12}", "12", "12", True),
    fault(hazard("A12"), "gsm8k", "\\boxed{4}, \\boxed{5}, and \\boxed{8}", "8", None, False),
    fault(hazard("A13"), "gsm8k", "\\boxed{}", "0", None, False),
    fault(hazard("A13"), "gsm8k", "My answer is \\boxed{{answer}}.", "0", None, False),
    fault(hazard("A14"), "gsm8k", "\\boxed 9", "9", "9", True),
    fault(hazard("A14"), "gsm8k", "So \\boxed{36", "36", None, False),
    fault(hazard("A15"), "gsm8k", "<think>77?</think> The answer is 26.", "26", "26", True),
    fault(hazard("A15"), "mmlu", "A or B, so B.\n</think>\nC", "C", "C", True, choices=ORGANS),
    fault(hazard("A16"), "gsm8k", "<think>7 times 8, so 56, then", "56", None, False, finish_reason="length"),
    fault(hazard("A16"), "gsm8k", "The total is 56", "56", None, False, finish_reason="length"),
    fault(hazard("A17"), "gsm8k", "The answer is 8.\n\nQuestion: How old is Bo?\nThe answer is 30.", "8", "8", True),
    fault(hazard("A18"), "gsm8k", "Question: Ann has 7 pens and buys 9. How many has she?", "9", None, False),
    fault(hazard("A18"), "mmlu", "A) Heart\nB) Lung\nC) Liver\nD) Kidney", "D", None, False, choices=ORGANS),
    fault(hazard("A19"), "gsm8k", "She owns sixty-three cards.", "63", "63", True),
    fault(hazard("A19"), "gsm8k", "That leaves forty-one (41) cards for 5 friends.", "41", "41", True),
    fault(hazard("A20"), "gsm8k", "The answer is 3/8.", "0.375", "0.375", True),
    fault(hazard("A20"), "gsm8k", "The answer is 33.3", "100/3", "33.3", False),
    fault(hazard("A21"), "gsm8k", "\\boxed{45\\%}", "45", "45", True),
    fault(hazard("A22"), "gsm8k", "The answer is $4.1 \\times 10^{4}$.", "41000", "41000", True),
    fault(hazard("A22"), "gsm8k", "It sells for 2.5 million.", "2500000", "2500000", True),
    fault(hazard("A23"), "gsm8k", "They leave at 6:45.", "6", None, False),
    fault(hazard("A23"), "gsm8k", "They leave at 9:00 PM.", "9", "9", True),
    fault(hazard("A24"), "gsm8k", "It takes 20-24 hours.", "20", None, False),
    fault(hazard("A24"), "gsm8k", "The answer is either 20 or 24.", "24", None, False),
    fault(hazard("A25"), "gsm8k", "答えは９５です。", "95", "95", True),
    fault(hazard("A25"), "mmlu", "答案是B。", "B", "B", True, choices=ORGANS),
    fault(hazard("A25"), "mmlu", "Ответ: С", "C", "C", True, choices=ORGANS),
    fault(hazard("A26"), "gsm8k", "Die Antwort lautet 2.450,5 Meter.", "2450.5", "2450.5", True),
    fault(hazard("A26"), "gsm8k", "The board is 2.450 metres long", "2.45", "2.45", True),
    fault(hazard("A27"), "arithmetic", "The result is **-88**", "-88", "-88", True),
    fault(hazard("A28"), "arithmetic", "the series goes to infinity", "0", None, False),
    fault(hazard("A29"), "mmlu", "The answer is D. Filtering of blood is its task.", "D", "D", True, choices=ORGANS),
    fault(hazard("A30"), "mmlu", "Going with E, as I worked out the force.", "E", "E", True, choices=TEN),
    fault(hazard("A30"), "mmlu", "A pump moves blood, so it is vitamin-free: (A)", "A", "A", True, choices=ORGANS),
    fault(hazard("A31"), "mmlu", "The answer is A. Some people pick D by mistake.", "A", "A", True, choices=ORGANS),
    fault(hazard("A31"), "mmlu", "It is neither A nor D, and C is wrong.", "B", None, False, choices=ORGANS),
    fault(hazard("A32"), "mmlu", "Answer seems to be B", "B", "B", True, choices=ORGANS),
    fault(hazard("A32"), "mmlu", "answer: c", "C", "C", True, choices=ORGANS),
    fault(hazard("A33"), "mmlu", "**D**", "D", "D", True, choices=ORGANS),
    fault(hazard("A33"), "mmlu", "(D)", "D", "D", True, choices=ORGANS),
    fault(hazard("A33"), "mmlu", "Answer: **D**", "D", "D", True, choices=ORGANS),
    fault(hazard("A34"), "mmlu", "\\boxed{\\text{B}}", "B", "B", True, choices=ORGANS),
    fault(hazard("A34"), "mmlu", "So \\boxed{p > q}.\n\nAnswer: B", "B", "B", True, choices=ORGANS),
    fault(hazard("A35"), "mmlu", "the answer is 17 m", "D", "D", True, choices=LENGTHS),
    fault(hazard("A35"), "aqua", "The sum is 36.", "C", "C", True, choices=SUMS),
    fault(hazard("A36"), "mmlu", "ANSWER: Do not know", "D", None, False, choices=ORGANS),
    fault(hazard("A36"), "mmlu", "Error: connection refused", "A", None, False, choices=ORGANS),
    fault(hazard("A36"), "aqua", "None of the above", "E", "E", True, choices=SUMS),
    fault(hazard("A37"), "mmlu", "Answer: F", "A", None, False, choices=ORGANS),
    fault(hazard("A37"), "mmlu", "B or C", "B", None, False, choices=ORGANS),
    fault(hazard("A38"), "strategyqa", "I don't know.", "no", None, False),
    fault(hazard("A38"), "strategyqa", "No. Eyes see light only.", "no", "no", True),
    fault(hazard("A39"), "yesno", "Yes. Nothing about it is uncertain.", "yes", "yes", True),
    fault(hazard("A39"), "yesno", "Uncertain.", "yes", None, False),
    fault(hazard("A44"), "gsm8k", f"The answer is {2**53 + 1}.", str(2**53), str(2**53 + 1), False),
    fault(hazard("A46"), "gsm8k", "The shop sells everything.", "0", None, False),
    fault(hazard("A48"), "aqua", "The total is 34.", "A", None, False, choices=SUMS),
    fault(hazard("D02"), "gsm8k", "I will not answer.", "72", None, False),
    fault(hazard("D04"), "gsm8k", "Agents got 40 and 63. My answer is 38.", "38", "38", True),
    fault(hazard("D05"), "mmlu", "I agree with the other agents.", "A", None, False, choices=ORGANS),
    fault(hazard("D05"), "gsm8k", "I agree with the other 2 agents.", "2", None, False),
    fault(hazard("D06"), "gsm8k", "Could you provide the price?", "5", None, False),
    fault(hazard("D07"), "strategyqa", "Nein.", "no", "no", True),
    fault(hazard("D28"), "mmlu", "Final Solution: b", "B", "B", True, choices=ORGANS),
    fault(hazard("D28"), "mmlu", "None of these", "B", None, False, choices=ORGANS),
    fault(hazard("D28"), "mmlu", "I think C", "C", "C", True, choices=ORGANS),
]


@pytest.mark.parametrize(("case", "answer", "correct"), FAULTS)
def test_a_known_fault_does_not_happen(case: dict[str, Any], answer: str | None, correct: bool) -> None:
    verdict = grade_case(case)
    assert (verdict.answer, verdict.correct) == (answer, correct), verdict


@pytest.mark.hazard("A07")
def test_the_rule_tells_a_stated_answer_from_one_that_was_read_from_prose() -> None:
    assert read_case({"id": 1, "task": "gsm8k", "text": "The answer is 5.", "gold": "5"}).rule == "answer"
    assert read_case({"id": 1, "task": "gsm8k", "text": "She has 5.", "gold": "5"}).rule.startswith("lenient: ")


@pytest.mark.hazard("A21", "D06")
def test_the_rule_names_a_percent_sign_and_a_refusal() -> None:
    assert "percent" in read_case({"id": 1, "task": "gsm8k", "text": "\\boxed{45\\%}", "gold": "45"}).rule
    refused = read_case({"id": 1, "task": "gsm8k", "text": "Could you provide the price?", "gold": "5"})
    assert refused.rule == "a refusal or a question back"


def test_golds_may_be_several_booleans_or_unreadable() -> None:
    assert grade_case({"id": 1, "task": "gsm8k", "text": "7", "gold": ["6", "7.0"]}).correct
    assert grade_case({"id": 1, "task": "strategyqa", "text": "No.", "gold": False}).correct
    assert not grade_case({"id": 1, "task": "gsm8k", "text": "7", "gold": "many"}).correct
    assert not grade_case({"id": 1, "task": "gsm8k", "text": None, "gold": None}).correct


def test_a_case_that_cannot_be_graded_says_what_it_lacks() -> None:
    with pytest.raises(CaseError, match=r"unknown task 'poetry'; the tasks are .*aqua.*"):
        grade_case({"id": "x", "task": "poetry", "text": "7", "gold": "7"})
    with pytest.raises(CaseError, match="case 'x': it lacks text, gold; found id, task"):
        grade_case({"id": "x", "task": "gsm8k"})
    with pytest.raises(CaseError, match="case 'x': task mmlu needs choices"):
        grade_case({"id": "x", "task": "mmlu", "text": "A", "gold": "A"})


def test_every_task_of_the_cases_has_a_reader() -> None:
    assert {*TASKS, "math", "chess_move", "confidence", "judge_json"} <= CASE_READERS.keys()
