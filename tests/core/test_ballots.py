"""Ballots as models write them. Run: pytest tests/core/test_ballots.py"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debate_local.core.ballots import approvals, borda, candidates, read_ballot
from debate_local.core.chat import ChatRequest, Completion, Sampling
from debate_local.core.transcript import Answer, Item, Turn


@pytest.mark.hazard("D26")
@pytest.mark.parametrize(
    ("text", "cue", "ballot"),
    [
        ("Choice: B", "choice", ("B",)),
        ("I compare A and C.\n**Choice:** reply B.", "choice", ("B",)),
        ("choice = b", "choice", ("B",)),
        ("Choice: A\nOn reflection:\nChoice: C", "choice", ("C",)),
        ("Choice: B (its steps are right)", "choice", ("B",)),
        ("Choice: B because a step of A is wrong", "choice", ("B",)),
        ("The concrete choice is hard. B is a good one.", "choice", None),
        ("Ranking: C > A > B", "ranking", ("C", "A", "B")),
        ("- **Ranking: C, A and B**", "ranking", ("C", "A", "B")),
        ("Ranking: C > A (best to worst)", "ranking", ("C", "A")),
        ("Approve: A, C", "approve", ("A", "C")),
        ("Approve: none", "approve", ()),
        # What was not there, what stands twice, and what says nothing make the ballot invalid.
        ("Choice: D", "choice", None),
        ("Ranking: A > B > E", "ranking", None),
        ("Ranking: A > A > B", "ranking", None),
        ("Choice: both A or B", "choice", None),
        ("Approve:", "approve", None),
        ("", "choice", None),
    ],
)
def test_a_ballot_is_the_last_line_with_the_cue_and_nothing_is_repaired(
    text: str, cue: str, ballot: tuple[str, ...] | None
) -> None:
    assert read_ballot(text, cue, ["A", "B", "C"]) == ballot


@pytest.mark.hazard("D26")
def test_numbers_count_from_one_and_0_is_no_ballot() -> None:
    labels = ["1", "2", "3"]
    assert read_ballot("Choice: 3", "choice", labels) == ("3",)
    assert read_ballot("Choice: 1.", "choice", labels) == ("1",)
    assert read_ballot("Choice: 0", "choice", labels) is None
    assert read_ballot("Choice: 4", "choice", labels) is None


@given(st.text(), st.sampled_from(["choice", "approve", "ranking"]))
def test_no_text_breaks_the_reader_and_only_labels_come_out(text: str, cue: str) -> None:
    for written in (text, f"{cue}: {text}"):
        ballot = read_ballot(written, cue, ["A", "B"])
        assert ballot is None or set(ballot) <= {"A", "B"}


def test_points_of_a_ranking_and_of_approvals() -> None:
    # B: 2 + 1 + 2, A: 1 + 0 + 0 (the last ballot leaves it out), C: 0 + 2 + 1.
    assert borda([("B", "A", "C"), ("C", "B", "A"), ("B", "C")], ["A", "B", "C"]) == {"A": 1.0, "B": 5.0, "C": 3.0}
    assert approvals([("A",), (), ("A", "B")], ["A", "B", "C"]) == {"A": 2.0, "B": 1.0, "C": 0.0}


def said(agent: int, text: str, key: str | None) -> Turn:
    answer = Answer.none("nothing") if key is None else Answer(key, key, "stated")
    return Turn(agent, 0, ChatRequest("", "default", (), Sampling()), Completion(text), answer)


def test_candidates_are_the_replies_or_the_first_of_each_answer() -> None:
    turns = [said(0, "so 7", "7"), said(1, "hm", None), said(2, "", None), said(3, "yes 7", "7"), said(4, "no, 8", "8")]
    item = Item("q", "?", "7")
    assert [(c.label, c.turn.agent) for c in candidates(item, turns, distinct=False)] == [
        ("A", 0), ("B", 1), ("C", 3), ("D", 4)
    ]  # fmt: skip
    assert [(c.label, c.turn.agent) for c in candidates(item, turns, distinct=True)] == [("A", 0), ("B", 4)]
    # Where answers are letters, labels are numbers.
    of_choices = candidates(Item("q", "?", "A", choices=("x", "y")), turns, distinct=True)
    assert [candidate.label for candidate in of_choices] == ["1", "2"]
    many = candidates(item, [said(agent, "text", str(agent)) for agent in range(30)], distinct=True)
    assert [many[0].label, many[-1].label] == ["1", "30"]
