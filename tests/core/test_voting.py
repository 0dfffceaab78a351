"""The decision rules. Run: pytest tests/core/test_voting.py"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_local.core.transcript import Answer, Decision
from debate_local.core.voting import each, majority


def votes(*keys: str | None) -> list[Answer]:
    return [Answer.none("nothing found") if key is None else Answer(f"value {key}", key, "stated") for key in keys]


@pytest.mark.parametrize(
    ("keys", "winner", "tied"),
    [
        (["7", "9", "9"], "9", ()),
        # Du et al.'s code: 1-1-1 gives agent 0; a tie goes to the answer of the earliest agent.
        (["1", "2", "3"], "1", ("1", "2", "3")),
        (["3", "2", "1"], "3", ("3", "2", "1")),
        (["a", "b", "b", "a"], "a", ("a", "b")),
        (["c", "b", "b", "a", "a"], "b", ("b", "a")),
        # A missing answer is never a vote, however many are missing.
        ([None, None, "5"], "5", ()),
        ([None, "2", "1", "1"], "1", ()),
        ([None, "2", None, "1"], "2", ("2", "1")),
        (["5"], "5", ()),
        # "None", "0" and "" are answers like others; only a missing one is missing.
        (["None", "None", "5"], "None", ()),
        (["0", "0", "5"], "0", ()),
        (["", "", "5"], "", ()),
    ],
)
def test_the_most_frequent_answer_wins_and_ties_go_to_the_earliest_agent(
    keys: list[str | None], winner: str, tied: tuple[str, ...]
) -> None:
    decision = majority(votes(*keys))
    assert decision.answer.key == winner
    assert decision.tied == tied


@pytest.mark.parametrize("keys", [[], [None], [None, None, None]])
def test_without_any_answer_the_decision_is_no_answer(keys: list[str | None]) -> None:
    decision = majority(votes(*keys))
    assert decision.answer.missing
    assert (decision.counts, decision.tied, decision.eligible, decision.received) == ((), (), len(keys), 0)


def test_answers_of_equal_key_are_one_vote_however_they_are_written() -> None:
    # Hazard D14: 18, 18.0 and 20: the reader gives 18 and 18.0 one key.
    answers = [Answer("20", "20", "box"), Answer("18", "18", "box"), Answer("18.0", "18", "last number")]
    decision = majority(answers)
    assert decision.answer == answers[1]
    assert decision.counts == (("18", 2.0), ("20", 1.0))


def test_who_could_vote_and_who_did_are_both_kept() -> None:
    decision = majority(votes("1", None, "2", None, "2"))
    assert (decision.eligible, decision.received) == (5, 3)
    assert decision.counts == (("2", 2.0), ("1", 1.0))


@given(st.lists(st.none() | st.sampled_from("abcd"), max_size=9))
@settings(deadline=None)
def test_the_winner_has_the_top_count_and_nobody_with_that_count_spoke_earlier(keys: list[str | None]) -> None:
    decision = majority(votes(*keys))
    given_keys = [key for key in keys if key is not None]
    if not given_keys:
        assert decision.answer.missing
        return
    top = max(given_keys.count(key) for key in given_keys)
    assert decision.answer.key == next(key for key in given_keys if given_keys.count(key) == top)
    assert sum(number for _, number in decision.counts) == decision.received == len(given_keys)
    at_the_top = {key for key in given_keys if given_keys.count(key) == top}
    assert set(decision.tied) == (at_the_top if len(at_the_top) > 1 else set())


def test_each_decides_nothing_and_keeps_every_answer_missing_ones_too() -> None:
    answers = votes("1", None, "2")
    decision = each(answers)
    assert decision == Decision("each", tuple(answers), eligible=3, received=2)
    assert decision.answer.missing


def test_each_over_one_agent_has_that_agents_answer() -> None:
    assert each(votes("1")).answer.key == "1"
