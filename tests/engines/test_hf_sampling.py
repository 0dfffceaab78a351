"""Choosing tokens: on logits made by hand, against distributions worked out here in plain Python. No model."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from debate_local.core.chat import Sampling
from debate_local.engines.hf_sampling import Choice, Chooser, choose, stated

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")

LOGITS = [2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -4.0]
DRAWS = 12_000


def distribution(
    logits: Sequence[float], temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0, min_p: float = 0.0
) -> list[float]:
    """What the words mean: temperature, then min-p, then top-k, then the nucleus of what is left."""

    def shares(weights: list[float]) -> list[float]:
        return [weight / sum(weights) for weight in weights]

    probabilities = shares([math.exp(logit / temperature) for logit in logits])
    best = max(probabilities)
    probabilities = shares([p if p >= min_p * best else 0.0 for p in probabilities])
    order = sorted(range(len(logits)), key=lambda token: -probabilities[token])
    kept = order[: top_k or len(order)]
    probabilities = shares([p if token in kept else 0.0 for token, p in enumerate(probabilities)])
    nucleus: set[int] = set()
    for token in order:
        if sum(probabilities[one] for one in nucleus) < top_p:
            nucleus.add(token)
    return shares([p if token in nucleus else 0.0 for token, p in enumerate(probabilities)])


def chooser(said: Sequence[int] = (), prompt: Sequence[int] = (), logprobs: bool = False, **fields: Any) -> Chooser:
    made = Chooser(Sampling(**fields), prompt, logprobs)
    for token in said:
        made.said(token)
    return made


def chosen(rows: Sequence[Sequence[float]], choosers: Sequence[Chooser]) -> list[Choice]:
    return choose(torch.tensor(rows, dtype=torch.float32), choosers)


def agrees(tokens: Sequence[int], expected: Sequence[float]) -> bool:
    """No token that cannot be, and the others about as often as they should be (chi-square)."""
    counts = Counter(tokens)
    possible = [token for token, share in enumerate(expected) if share]
    if set(counts) - set(possible):
        return False
    if len(possible) == 1:
        return True
    found = [counts[token] for token in possible]
    return bool(chisquare(found, [expected[token] * len(tokens) for token in possible]).pvalue > 1e-3)


NARROWINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"top_p": 0.6},
    {"top_p": 1e-6},
    {"top_k": 3},
    {"top_k": 1},
    {"top_k": 50},
    {"min_p": 0.3},
    {"min_p": 1.0},
    {"temperature": 2.0, "top_k": 5, "top_p": 0.8},
    {"temperature": 0.7, "min_p": 0.1, "top_p": 0.9, "top_k": 4},
]


@pytest.mark.parametrize("fields", NARROWINGS, ids=str)
def test_many_seeds_draw_from_the_right_distribution(fields: dict[str, Any]) -> None:
    choosers = [chooser(seed=seed, **fields) for seed in range(DRAWS)]
    tokens = [choice.token for choice in chosen([LOGITS] * DRAWS, choosers)]
    assert agrees(tokens, distribution(LOGITS, **fields))


def test_the_steps_of_one_seed_draw_from_the_right_distribution() -> None:
    one = chooser(seed=7)
    assert agrees([chosen([LOGITS], [one])[0].token for _ in range(DRAWS)], distribution(LOGITS))


def test_the_comparison_would_notice_a_wrong_distribution() -> None:
    tokens = [c.token for c in chosen([LOGITS] * DRAWS, [chooser(seed=seed) for seed in range(DRAWS)])]
    assert not agrees(tokens, distribution(LOGITS, temperature=1.2))
    assert not agrees(tokens, distribution(LOGITS, top_k=7))


def test_a_nucleus_larger_than_the_usual_is_whole() -> None:
    # 3,000 tokens, each a little less likely than the one before: half the probability is more than 1,024 tokens.
    logits = [-token / 20_000 for token in range(3000)]
    expected = distribution(logits, top_p=0.5)
    size = sum(share > 0 for share in expected)
    tokens = [c.token for c in chosen([logits] * 500, [chooser(seed=seed, top_p=0.5) for seed in range(500)])]
    assert 1024 < size < 3000
    assert 1100 < max(tokens) < size


SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_p=st.sampled_from([0.3, 0.9, 1.0]),
    top_k=st.sampled_from([-1, 0, 1, 3, 100]),
    min_p=st.sampled_from([0.0, 0.2]),
    presence_penalty=st.sampled_from([0.0, 1.0]),
    frequency_penalty=st.sampled_from([0.0, -0.5]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    seed=st.integers(0, 2**31 - 1),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SAMPLINGS, st.booleans()), min_size=1, max_size=8))
def test_a_row_chooses_the_same_alone_and_among_others(kinds: list[tuple[Sampling, bool]]) -> None:
    generator = torch.Generator().manual_seed(len(kinds))
    logits = torch.randn(len(kinds), 40, generator=generator) * 3

    def choosers() -> list[Chooser]:
        return [Chooser(sampling, [1, 2], logprobs) for sampling, logprobs in kinds]

    together = choosers()
    alone = choosers()
    for _ in range(3):
        in_batch = choose(logits.clone(), together)
        by_itself = [choose(logits[n : n + 1].clone(), [one])[0] for n, one in enumerate(alone)]
        assert [choice.token for choice in in_batch] == [choice.token for choice in by_itself]
        assert [choice.logprob for choice in in_batch] == pytest.approx([choice.logprob for choice in by_itself])


def test_greedy_rows_take_the_first_of_the_best_and_draw_nothing() -> None:
    ties = [0.0, 5.0, 5.0, 1.0]
    rows = [chooser(temperature=0.0), chooser(top_k=1, temperature=9.0), chooser(temperature=1e-9, seed=3)]
    assert [choice.token for choice in chosen([ties] * 3, rows)] == [1, 1, 1]


def test_rows_without_a_seed_differ() -> None:
    flat = [0.0] * 1000
    assert len({choice.token for choice in chosen([flat] * 20, [chooser() for _ in range(20)])}) > 10


def test_logprobs_are_of_the_unmodified_distribution_and_only_where_asked_for() -> None:
    rows = [
        chooser(logprobs=True, temperature=0.1, top_k=2, repetition_penalty=2.0, said=[0], seed=1),
        chooser(seed=2),
        chooser(logprobs=True, temperature=0.0),
    ]
    first, second, third = chosen([LOGITS] * 3, rows)
    plain = distribution(LOGITS)
    assert first.logprob == pytest.approx(math.log(plain[first.token]), abs=1e-5)
    assert second.logprob is None
    assert third.logprob == pytest.approx(math.log(plain[0]), abs=1e-5)


def greedy_after(**fields: Any) -> int:
    return chosen([[3.0, 2.0, 1.0, -1.0]], [chooser(temperature=0.0, **fields)])[0].token


def test_the_repetition_penalty_counts_the_prompt_and_the_others_do_not() -> None:
    assert greedy_after(prompt=[0], repetition_penalty=2.0) == 1
    assert greedy_after(prompt=[0, 1], repetition_penalty=4.0) == 2
    assert greedy_after(prompt=[0], presence_penalty=2.0, frequency_penalty=2.0) == 0
    assert greedy_after(said=[0], presence_penalty=1.5) == 1
    # A negative score becomes smaller, not larger.
    below = chosen([[-1.0, -1.5]], [chooser(temperature=0.0, prompt=[0], repetition_penalty=2.0)])
    assert below[0].token == 1


def test_the_frequency_penalty_grows_with_each_repetition_and_the_presence_penalty_does_not() -> None:
    assert greedy_after(said=[0], frequency_penalty=0.4) == 0
    assert greedy_after(said=[0, 0, 0], frequency_penalty=0.4) == 1
    assert greedy_after(said=[0, 0, 0], presence_penalty=0.4) == 0


def test_a_row_that_is_not_numbers_is_broken_and_its_neighbours_are_not() -> None:
    broken = [math.nan, *LOGITS[1:]]
    found = chosen([LOGITS, broken, broken], [chooser(seed=1), chooser(seed=1, top_p=0.5), chooser(temperature=0.0)])
    assert [choice.broken for choice in found] == [False, True, True]


def test_what_is_left_open_is_the_models_default_or_none_at_all() -> None:
    left = Sampling(temperature=None, top_k=None, top_p=0.9, repetition_penalty=None, max_tokens=7, seed=3)
    full = stated(left, {"temperature": 0.6, "top_k": 20, "top_p": 0.1, "repetition_penalty": None, "eos_token_id": 2})
    assert full == Sampling(temperature=0.6, top_k=20, top_p=0.9, repetition_penalty=1.0, max_tokens=7, seed=3)
    with pytest.raises(ValueError, match="top_p"):
        stated(Sampling(top_p=None), {"top_p": 7})
    with pytest.raises(ValueError, match="left open"):
        Chooser(left, [])
