"""The decision rules. Run: pytest tests/core/test_voting.py"""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_local.core.transcript import Answer, Decision
from debate_local.core.voting import Vote, agree, decide, each, majority, spelled


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


@pytest.mark.hazard("D14")
def test_answers_of_equal_key_are_one_vote_however_they_are_written() -> None:
    # 18, 18.0 and 20: the reader gives 18 and 18.0 one key.
    answers = [Answer("20", "20", "box"), Answer("18", "18", "box"), Answer("18.0", "18", "last number")]
    decision = majority(answers)
    assert decision.answer == answers[1]
    assert decision.counts == (("18", 2.0), ("20", 1.0))


@pytest.mark.hazard("D27")
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


def cast_votes(*words: str, **confidences: list[float | None]) -> list[Vote]:
    """Votes by round: a word a round, a letter an agent, `-` for a missing answer; confidences in the same order."""
    places = [(agent, round, key) for round, word in enumerate(words) for agent, key in enumerate(word)]
    found = []
    for number, (agent, round, key) in enumerate(places):
        sure = {name: values[number] for name, values in confidences.items()}
        answer = Answer.none("nothing found") if key == "-" else Answer(f"value {key}", key, "stated")
        found.append(Vote(agent, round, answer, **sure))
    return found


@pytest.mark.hazard("D13")
@pytest.mark.parametrize(
    ("rule", "words", "winner", "tied"),
    [
        ("majority", ("abb",), "b", ()),
        ("majority", ("ba",), "b", ("b", "a")),
        ("plurality:earliest", ("ba",), "b", ("b", "a")),
        ("plurality:abstain", ("ba",), None, ("b", "a")),
        ("plurality:abstain", ("bab",), "b", ()),
        ("plurality:seeded", ("bab",), "b", ()),
        # Only the last round counts.
        ("majority", ("aaa", "abb"), "b", ()),
        # Who failed at the end has no vote; nobody falls back to what was said before.
        ("majority", ("aaa", "--b"), "b", ()),
    ],
)
def test_ties_are_recorded_and_broken_by_the_stated_rule(
    rule: str, words: tuple[str, ...], winner: str | None, tied: tuple[str, ...]
) -> None:
    decision = decide(rule, cast_votes(*words))
    assert (decision.answer.key, decision.tied, decision.rule) == (winner, tied, rule)


@pytest.mark.hazard("D13")
def test_a_seeded_tie_depends_on_seed_and_item_and_not_on_the_order_of_agents() -> None:
    def winner(word: str, seed: int, item: str) -> str | None:
        return decide("plurality:seeded", cast_votes(word), seed, item).answer.key

    assert all(winner("abc", seed, "q") == winner("cba", seed, "q") for seed in range(20))
    assert {winner("abc", seed, "q") for seed in range(40)} == {"a", "b", "c"}
    assert {winner("abc", 0, f"q{number}") for number in range(40)} == {"a", "b", "c"}


@pytest.mark.hazard("D18", "D27")
@pytest.mark.parametrize(
    ("rule", "word", "winner", "received"),
    [
        ("unanimity", "aaa", "a", 3),
        ("unanimity", "a", "a", 1),
        ("unanimity", "aab", None, 3),
        # A missing answer blocks unanimity: who could vote is the denominator, always.
        ("unanimity", "aa-", None, 2),
        ("unanimity", "---", None, 0),
        ("threshold:2/3", "aab", "a", 3),
        ("threshold:0.6667", "aab", "a", 3),
        ("threshold:0.67", "aab", None, 3),
        ("threshold:1", "aaa", "a", 3),
        ("threshold:0.6", "aaa--", "a", 3),
        ("threshold:0.61", "aaa--", None, 3),
        ("threshold:0.5", "ab", "a", 2),
    ],
)
def test_a_share_is_of_all_who_could_vote(rule: str, word: str, winner: str | None, received: int) -> None:
    decision = decide(rule, cast_votes(word))
    assert decision.answer.key == winner
    assert (decision.eligible, decision.received) == (len(word), received)


@pytest.mark.hazard("D02", "D03")
@pytest.mark.parametrize("rule", [rule for rule in spelled() if "SHARE" not in rule] + ["threshold:0.1"])
def test_a_missing_answer_never_counts_whatever_the_decision(rule: str) -> None:
    sure: list[float | None] = [1.0, 1.0, 1.0]
    nobody = decide(rule, cast_votes("---", verbal=sure, logprob=sure, answer_logprob=sure))
    assert all(answer.missing for answer in nobody.answers)
    assert (nobody.counts, nobody.tied, nobody.received) == ((), (), 0)
    # B, B and an abstention: B, whoever abstains.
    for word in ("bb-", "b-b", "-bb"):
        decision = decide(rule, cast_votes(word, verbal=sure, logprob=sure, answer_logprob=sure))
        if rule == "none":
            assert sorted(answer.key or "-" for answer in decision.answers) == ["-", "b", "b"]
        else:
            assert decision.answer.key == (None if rule == "unanimity" else "b")


@pytest.mark.parametrize(
    ("rule", "word", "sure", "winner", "counts"),
    [
        ("weighted:verbal", "aab", [0.2, 0.2, 0.9], "b", (("b", 0.9), ("a", 0.4))),
        # 0.7 + 0.7 against 0.9: 0.3 + 0.3 against 0.8.
        ("weighted:verbal", "aab", [0.7, 0.7, 0.9], "a", (("a", 1.4), ("b", 0.9))),
        ("weighted:rescaled", "aab", [0.7, 0.7, 0.9], "b", (("b", 0.8), ("a", 0.6))),
        # 0.1 + 0.2 is 0.3.
        ("weighted:verbal", "aab", [0.1, 0.2, 0.3], "a", (("a", 0.3), ("b", 0.3))),
        # 0 is a confidence; a missing one is no weight.
        ("weighted:verbal", "ab", [0.0, None], "a", (("a", 0.0),)),
        ("weighted:verbal", "ab", [None, None], None, ()),
        ("most_confident:verbal", "aab", [0.2, 0.8, 0.7], "a", (("a", 0.8), ("b", 0.7))),
        ("most_confident:verbal", "aab", [0.2, 0.3, 0.7], "b", (("b", 0.7), ("a", 0.3))),
        ("most_confident:verbal", "a-b", [0.2, 1.0, 0.1], "a", (("a", 0.2), ("b", 0.1))),
    ],
)
def test_confidence_weighs_votes(
    rule: str, word: str, sure: list[float | None], winner: str | None, counts: tuple[tuple[str, float], ...]
) -> None:
    decision = decide(rule, cast_votes(word, verbal=sure))
    assert decision.answer.key == winner
    assert decision.counts == counts


def test_log_probabilities_weigh_as_probabilities() -> None:
    votes = cast_votes("aab", logprob=[-3.0, -3.0, -0.1], answer_logprob=[-0.1, -0.2, -0.1])
    assert decide("weighted:logprob", votes).answer.key == "b"
    assert decide("weighted:answer_logprob", votes).answer.key == "a"
    assert decide("most_confident:logprob", votes).answer.key == "b"


def test_agreement_is_the_share_of_what_the_others_said_over_all_rounds() -> None:
    # b, c and c in round 0, then a tie of a and b; only b was said before, by another.
    votes = cast_votes("cbc", "ab-")
    assert decide("majority", votes).answer.key == "a"
    assert decide("weighted:agreement", cast_votes("bcc", "ab-")).counts == (("b", 0.25), ("a", 0.0))
    assert decide("weighted:agreement", cast_votes("a")).answer.missing


@pytest.mark.parametrize(
    ("rule", "words", "winner"),
    [
        ("trajectory", ("aab", "abb", "bbb"), "b"),
        ("trajectory:all", ("aaa", "aab", "bbb"), "a"),
        ("trajectory:later", ("aaa", "aab", "bbb"), "b"),
        ("trajectory:earlier", ("aab", "bba", "bbb"), "b"),
        ("trajectory:earlier", ("aaa", "bbb", "bbb"), "a"),
    ],
)
def test_a_trajectory_counts_all_rounds_and_weighs_them(rule: str, words: tuple[str, ...], winner: str) -> None:
    decision = decide(rule, cast_votes(*words))
    assert decision.answer.key == winner
    assert decision.eligible == 9


def test_none_keeps_every_agents_last_answer() -> None:
    decision = decide("none", cast_votes("abc", "a-c"))
    assert [answer.key for answer in decision.answers] == ["a", None, "c"]
    assert (decision.rule, decision.eligible, decision.received) == ("none", 3, 2)


@pytest.mark.parametrize(
    "rule",
    ["", "majorty", "majority:x", "majority:", "plurality", "plurality:random", "threshold", "threshold:",
     "threshold:0", "threshold:2", "threshold:1/0", "threshold:SHARE", "threshold:half", "weighted",
     "weighted:agrement", "most_confident:rescaled", "trajectory:", "unanimity:1"],
)  # fmt: skip
def test_a_decision_that_is_none_is_refused_with_those_that_are(rule: str) -> None:
    with pytest.raises(ValueError, match="decision"):
        decide(rule, cast_votes("ab"))


@given(st.data())
@settings(deadline=None)
def test_the_order_in_which_votes_are_given_does_not_matter(data: st.DataObject) -> None:
    words = data.draw(st.lists(st.text("abc-", min_size=3, max_size=3), min_size=1, max_size=3))
    size = 3 * len(words)
    sure = [
        data.draw(st.lists(st.none() | st.sampled_from([0.0, 0.5, 0.9]), min_size=size, max_size=size)) for _ in "abc"
    ]
    votes = cast_votes(*words, verbal=sure[0], logprob=sure[1], answer_logprob=sure[2])
    rule = data.draw(st.sampled_from([rule for rule in spelled() if "SHARE" not in rule] + ["threshold:0.5"]))
    shuffled = data.draw(st.permutations(votes))
    assert decide(rule, shuffled, 1, "q") == decide(rule, votes, 1, "q")
    decision = decide(rule, votes)
    assert decision.received <= decision.eligible
    # What wins was said by somebody.
    said = {vote.answer.key for vote in votes}
    assert all(answer.missing or answer.key in said for answer in decision.answers)


@pytest.mark.hazard("D18")
@pytest.mark.parametrize(
    ("keys", "share", "enough"),
    [
        (["a", "a", "a"], Fraction(1), True),
        (["a", "a", None], Fraction(1), False),
        ([None, None, None], Fraction(1), False),
        ([], Fraction(1), False),
        (["a", "a", "b"], Fraction(2, 3), True),
        (["a", "a", None], Fraction(2, 3), True),
        (["a", None, None], Fraction(1, 2), False),
    ],
)
def test_agreement_counts_those_without_an_answer_among_all(
    keys: list[str | None], share: Fraction, enough: bool
) -> None:
    assert agree(votes(*keys), share) == enough
