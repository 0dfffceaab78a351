"""Which samples are shown to whom, and which explanations can be used. Run: pytest tests/core/test_samples.py"""

from dataclasses import replace

import pytest

from debate_local.core.samples import Samples, check_samples, shown_to, usable
from tests.fakes import Sums
from tests.protocols.scene import samples_of

ALL = samples_of(["a", "b", "c"])


def shown(agent: int, models: list[str], kind: Samples = "convincing", shots: int | None = 1) -> list[str]:
    return [sample.item for sample in shown_to(agent, models, ALL, kind, shots)]


@pytest.mark.parametrize(
    ("agent", "models", "of"),
    [
        (0, ["a", "b", "c"], "bc"),
        (1, ["a", "b", "c"], "ac"),
        (2, ["a", "b", "c"], "ab"),
        # Agents repeat the cast, and so do their samples.
        (3, ["a", "b", "c"], "bc"),
        # The others of one alone are copies of it; of members with one model the samples are the same.
        (0, ["a"], "a"),
        (2, ["a"], "a"),
        (0, ["a", "a", "b"], "ab"),
        (2, ["a", "a", "b"], "a"),
    ],
)
def test_an_agent_is_shown_samples_of_the_other_members(agent: int, models: list[str], of: str) -> None:
    assert shown(agent, models) == [f"convincing-{model}-2" for model in of]


def test_so_many_of_each_are_shown_of_the_kind_that_is_asked_for() -> None:
    assert shown(0, ["a", "b"], "random", 2) == ["random-b-6", "random-b-7"]
    assert len(shown(0, ["a", "b", "c"], "convincing", None)) == 8


def test_a_question_that_convinced_several_is_shown_once() -> None:
    both = [*ALL, *(replace(one, model="d", item="other") for one in ALL if one.model == "c")]
    assert [sample.model for sample in shown_to(0, ["a", "b", "c", "d"], both, "convincing", 2)] == ["b", "b", "c", "c"]
    check_samples(["a", "b", "c", "d"], both, "convincing", 4)


@pytest.mark.parametrize(
    ("explanation", "fine"),
    [
        ("Count on from 1.", True),
        ("", False),
        (" \n", False),
        # The gold can be read from it; another answer gives nothing away.
        ("Count on: Answer: 3", False),
        ("Answer: 4 would be wrong.", True),
    ],
)
def test_an_explanation_from_which_the_reader_reads_the_gold_is_of_no_use(explanation: str, fine: bool) -> None:
    task = Sums()
    assert usable(replace(task.items()[0], explanation=explanation), task) is fine


@pytest.mark.parametrize(
    ("kind", "shots", "says"),
    [
        ("none", 0, "protocol.shots must be at least 1, or null for all; got 0"),
        ("convincing", 5, "5 convincing samples of each model are to be shown, and of model 'a' there are 4"),
        ("random", 5, "5 random samples"),
    ],
)
def test_too_few_samples_are_refused(kind: Samples, shots: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_samples(["a", "b"], ALL, kind, shots)
    check_samples(["a", "b"], ALL, kind, 4)


def test_a_model_without_samples_is_refused_and_so_are_no_samples_at_all() -> None:
    with pytest.raises(ValueError, match="of model 'd' there are 0"):
        check_samples(["a", "d"], ALL, "convincing", None)
    with pytest.raises(ValueError, match=r"there are none: make such a file with `debate-local convince`"):
        check_samples(["a"], [], "convincing", 4)
    check_samples(["a"], [], "none", None)
