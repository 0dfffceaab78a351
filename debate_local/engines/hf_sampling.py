"""Which token comes next: one row of logits a reply, each with its own sampling, seed and history.

Rule 1: a row's choice is a function of its own logits, sampling, history and generator; never of its neighbours.
Rule 2: drawing is taking the largest score after adding Gumbel noise, from a generator of the row's own on the CPU, so
that neither batch nor device decide which noise a row gets. Greedy rows get none.
The order of the steps is vLLM's: log-probabilities, penalties, temperature, min-p, top-k, top-p, choice.
Knows tensors; refuses to know models and texts.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from debate_local.core.chat import Sampling


def stated(sampling: Sampling, defaults: Mapping[str, Any]) -> Sampling:
    """The sampling with each None replaced by the model's own default, or by "no effect" where it has none.

    defaults: a generation_config.json. Raises ValueError for a default that cannot be.
    """
    neutral = Sampling()
    missing = [name for name in _FIELDS if getattr(sampling, name) is None]
    filled: dict[str, Any] = {name: getattr(neutral, name) for name in missing}
    filled |= {name: defaults[name] for name in missing if defaults.get(name) is not None}
    return replace(sampling, **filled)


_FIELDS = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")


class Choice(NamedTuple):
    """A chosen token. logprob: natural, of the unmodified distribution, None when not asked for.

    broken: the logits are not numbers, so that nothing was chosen.
    """

    token: int
    logprob: float | None = None
    broken: bool = False


class Chooser:
    """How one reply chooses its tokens, and what it has said so far.

    sampling: as `stated` returns it. prompt: token ids, which the repetition penalty counts as said. logprobs: wanted.
    """

    def __init__(self, sampling: Sampling, prompt: Sequence[int], logprobs: bool = False) -> None:
        import torch

        self.temperature = _number(sampling.temperature)
        self.top_p, self.min_p = _number(sampling.top_p), _number(sampling.min_p)
        self.top_k = int(_number(sampling.top_k))
        # With one token to keep there is nothing to draw; ties, which 16-bit logits have, must not be drawn either.
        self.greedy = self.temperature < _GREEDY_BELOW or self.top_k == 1
        self.logprobs = logprobs
        self._presence = _number(sampling.presence_penalty)
        self._frequency = _number(sampling.frequency_penalty)
        self._repetition = _number(sampling.repetition_penalty)
        self._prompt = set(prompt) if self._repetition != 1.0 else set()
        self._said: Counter[int] = Counter()
        self._generator = torch.Generator()
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(sampling.seed)

    @property
    def penalised(self) -> bool:
        """True when some penalty changes the scores."""
        return bool(self._presence or self._frequency) or self._repetition != 1.0

    def said(self, token: int) -> None:
        """Remember a token of the reply."""
        self._said[token] += 1

    def penalise(self, scores: Any) -> None:
        """Change one row of scores by what was said: repetition counts the prompt too, the others the reply alone."""
        import torch

        def tensor(values: Sequence[float], dtype: Any = None) -> Any:
            return torch.tensor(values, dtype=dtype, device=scores.device)

        if self._repetition != 1.0:
            known = tensor(sorted(self._prompt | self._said.keys()), torch.long)
            old = scores[known]
            scores[known] = torch.where(old > 0, old / self._repetition, old * self._repetition)
        if self._said:
            counts = tensor(list(self._said.values()), scores.dtype)
            scores[tensor(list(self._said), torch.long)] -= self._frequency * counts + self._presence

    def draw_noise(self, row: Any) -> None:
        """Fill a row on the CPU with Gumbel noise."""
        # Uniform numbers may be 0, whose noise would be minus infinity and hide the row's only token.
        row.uniform_(generator=self._generator).clamp_(min=_TINY).log_().neg_().log_().neg_()


_GREEDY_BELOW = 1e-5  # as in vLLM
_TINY = 1e-38


def _number(value: float | None) -> float:
    if value is None:
        raise ValueError("a sampling value is left open; see `stated`")
    return value


def choose(logits: Any, choosers: Sequence[Chooser]) -> list[Choice]:
    """The next token of every row. logits: float32, [rows, vocabulary]; changed in place."""
    asked = [place for place, chooser in enumerate(choosers) if chooser.logprobs]
    plain = logits[asked].log_softmax(dim=-1) if asked else None
    for row, chooser in zip(logits, choosers, strict=True):
        if chooser.penalised:
            chooser.penalise(row)
    if drawing := [place for place, chooser in enumerate(choosers) if not chooser.greedy]:
        logits[drawing] = _drawn(logits[drawing], [choosers[place] for place in drawing])
    best = logits.max(dim=-1)
    broken = best.values.isnan().tolist()
    logprobs: dict[int, float] = {}
    if plain is not None:
        logprobs = dict(zip(asked, plain.gather(-1, best.indices[asked, None])[:, 0].tolist(), strict=True))
    for token, chooser in zip(best.indices.tolist(), choosers, strict=True):
        chooser.said(token)
    return [Choice(token, logprobs.get(place), broken[place]) for place, token in enumerate(best.indices.tolist())]


def _drawn(scores: Any, choosers: Sequence[Chooser]) -> Any:
    """Scores whose largest entry is a draw from each row's narrowed distribution."""
    import torch

    def column(values: Sequence[float]) -> Any:
        return torch.tensor(values, dtype=scores.dtype, device=scores.device)[:, None]

    scores /= column([chooser.temperature for chooser in choosers])
    if any(chooser.min_p for chooser in choosers):
        least = column([math.log(chooser.min_p) if chooser.min_p else -math.inf for chooser in choosers])
        scores.masked_fill_(scores < scores.amax(dim=-1, keepdim=True) + least, -math.inf)
    vocabulary = scores.shape[-1]
    if some := [place for place, chooser in enumerate(choosers) if 0 < chooser.top_k < vocabulary]:
        part = scores[some]
        scores[some] = part.masked_fill(part < _top_k_floor(part, [choosers[place].top_k for place in some]), -math.inf)
    if some := [place for place, chooser in enumerate(choosers) if chooser.top_p < 1]:
        part = scores[some]
        floor = _top_p_floor(part, column([choosers[place].top_p for place in some]))
        scores[some] = part.masked_fill(part < floor, -math.inf)
    noise = torch.empty(scores.shape, dtype=torch.float32)
    for row, chooser in zip(noise, choosers, strict=True):
        chooser.draw_noise(row)
    return scores + noise.to(scores.device)


def _top_k_floor(scores: Any, top_k: Sequence[int]) -> Any:
    """The least score that each row keeps; equal scores are kept or dropped together."""
    import torch

    best = scores.topk(max(top_k), dim=-1).values
    return best.gather(-1, torch.tensor(top_k, device=scores.device)[:, None] - 1)


# Sorting the whole vocabulary takes as long as a small model's step, and the nucleus is rarely larger than this.
_NUCLEUS = 1024


def _top_p_floor(scores: Any, top_p: Any) -> Any:
    """The least score of each row's nucleus: the fewest tokens that together have the probability top_p."""
    total = scores.logsumexp(dim=-1, keepdim=True)
    vocabulary = scores.shape[-1]
    for size in (min(_NUCLEUS, vocabulary), vocabulary):
        best = scores.topk(size, dim=-1).values
        reached = (best - total).exp().cumsum(dim=-1) >= top_p
        if bool(reached[:, -1].all()):
            break
    # The token that reaches top_p is the last one kept. Rounding may leave the whole vocabulary a little below.
    last = (~reached).sum(dim=-1, keepdim=True).clamp(max=best.shape[-1] - 1)
    return best.gather(-1, last)
