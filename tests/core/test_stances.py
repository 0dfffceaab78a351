"""Whether an agent agrees with each group. Run: pytest tests/core/test_stances.py"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debate_local.core.stances import read_stances, with_answers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Group 1: agree\nGroup 2: disagree", ("agree", "disagree")),
        ("**Group 1:** I agree.\n- group 2 - I do not agree", ("agree", "disagree")),
        ("__Group 1__: Agreed\n> GROUP 2 = strongly disagree, the sum is off", ("agree", "disagree")),
        ("Group 1: I don't fully agree\nGroup 2: I can’t agree", ("disagree", "disagree")),
        # Both, neither, or nothing about a group.
        ("Group 1: agree or disagree?\nGroup 2: perhaps", ("", "")),
        ("Group 1: agree", ("agree", "")),
        ("I agree with group 1.", ("", "")),
        # Two lines that differ are no stance; two alike are one.
        ("Group 1: agree\nGroup 2: agree\nGroup 1: disagree\nGroup 2: agree", ("", "agree")),
        # Groups that there are not.
        ("Group 3: agree\nGroup 0: agree\nGroup 12: disagree", ("", "")),
        ("Gruppe 1: stimme zu", ("", "")),
        ("", ("", "")),
    ],
)
def test_a_stance_is_a_line_of_its_own_that_says_one_thing(text: str, words: tuple[str, ...]) -> None:
    assert read_stances(text, 2).words == words


def test_spans_are_the_lines_that_were_read_and_no_others() -> None:
    text = "Group 1: agree\nThe answer is 3.\nGroup 2: the answer 4\nGroup 2: disagree"
    spans = read_stances(text, 2).spans
    assert [text[start:end] for start, end in spans] == ["Group 1: agree", "Group 2: disagree"]


def test_groups_are_told_by_their_answers_to_those_whose_groups_are_others() -> None:
    said = "Group 1: agree\n**Group 2:** disagree. group 1 counts, Group 3 is none, regroup 1 and groups 2 stay."
    told = with_answers(said, ["yes", "no"])
    assert told == (
        "the answer yes: agree\n**the answer no:** disagree. the answer yes counts, Group 3 is none, regroup 1 and "
        "groups 2 stay."
    )
    assert with_answers(said, []) == said
    # An answer is put in as it is.
    assert with_answers("Group 1: agree", [r"\frac{1}{2}"]) == r"the answer \frac{1}{2}: agree"


@given(text=st.text(st.sampled_from("Group 12:agredis*_-\n ")), groups=st.integers(0, 4))
def test_there_is_one_word_for_each_group_whatever_is_said(text: str, groups: int) -> None:
    stances = read_stances(text, groups)
    assert len(stances.words) == groups and set(stances.words) <= {"agree", "disagree", ""}
    assert all(0 <= start < end <= len(text) for start, end in stances.spans)
