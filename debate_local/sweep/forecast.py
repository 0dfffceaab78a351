"""What a sweep will cost and what would fail, without opening an engine.

Debates are played with placeholders for replies: a placeholder is a name made from the request's key, so equal requests
have equal replies and what is shared is known exactly; what the cache holds already is replayed as it was said.
Tokens are the model's tokenizer's, with a reply's expected or greatest length in each placeholder's stead.
"""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from debate_local.core.chat import ChatRequest, Completion, EngineFailed, Message, request_key
from debate_local.core.scheduler import ask_in_turn
from debate_local.engines.parts import Store

from .config import HowToRun
from .plan import Plan, PlannedEngine, PlannedRun
from .purchases import Bills, Currency, purchases, stored_bills, with_purchases
from .sources import model_sources
from .store import is_done

PLAYED = 40_000  # requests; larger plans are played on fewer items, at least two
_PLACEHOLDER = re.compile(r"⟦[0-9a-f]{16}⟧")
# Bytes on disk, measured on stored sweeps: a completion in the cache and a turn's row, and what a token of the reply
# adds to each (turns are compressed, and the replies in their prompts with them).
_CACHE_BYTES, _CACHE_BYTES_A_TOKEN, _TURN_BYTES, _TURN_BYTES_A_TOKEN = 300, 5, 100, 1


@dataclass(frozen=True, slots=True)
class RunForecast:
    """One run. naive: its requests. new: those that no run before it and no cache answers. Tokens are as if alone.

    estimated: how many samples it has depends on what its debate will have cost; here, on what is expected of that.
    """

    run: str
    label: str
    controls: tuple[tuple[str, str], ...]
    items: int
    done: bool
    naive: int
    new: int
    prompt_tokens: int
    generated_tokens_expected: int
    generated_tokens_at_most: int
    longest_prompt: int
    longest_prompt_at_most: int
    estimated: bool


@dataclass(frozen=True, slots=True)
class Forecast:
    """A whole sweep. naive, cached, new: requests; exact unless `played` items are fewer than all, then scaled up."""

    runs: tuple[RunForecast, ...]
    naive: int
    distinct: int
    cached: int
    new: int
    new_prompt_tokens: int
    new_generated_expected: int
    new_generated_at_most: int
    disk_bytes: int
    disk_free: int
    exact: bool
    reply_tokens: str
    licences: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return asdict(self)


def forecast(plan: Plan, how: HowToRun) -> Forecast:
    """Play all debates of a plan (or, of large plans, those of evenly spaced items) with placeholders."""
    known = with_purchases(plan, purchases(plan, stored_bills(how.output)))
    played = _Played(known, how)
    played.play(known.runs)
    # A debate that is stored has bought already; the others buy by what they are expected to cost.
    whole = with_purchases(plan, purchases(plan, played.expected_bills(stored_bills(how.output))))
    played.take_in(whole)
    played.close()
    return played.result()


@dataclass
class _Totals:
    """Of one run, over the played items."""

    items: int = 0
    naive: int = 0
    new: int = 0
    prompt: float = 0.0
    expected: float = 0.0
    at_most: int = 0
    longest: float = 0.0
    longest_at_most: int = 0


@dataclass(frozen=True, slots=True)
class _Size:
    """A prompt's tokens: those that are known, and replies that stand in it."""

    known: int
    replies: int


class _Played:
    def __init__(self, plan: Plan, how: HowToRun) -> None:
        self._plan, self._how = plan, how
        self._totals = {run.id: _Totals() for run in plan.runs}
        self._estimated: set[str] = set()
        self._stores = _Stores(how)
        self._counters = {run.engine.group: _Tokens(run.engine) for run in plan.runs}
        self._positions = self._played_positions()
        self._answers: dict[int, dict[str, Completion]] = {position: {} for position in self._positions}
        self._cached = self._distinct = 0
        self._new: list[tuple[_Size, ChatRequest, _Tokens]] = []
        self._overflows: Counter[tuple[str, int]] = Counter()

    @property
    def _todo(self) -> list[PlannedRun]:
        return [run for run in self._plan.runs if not is_done(self._how.output / run.id)]

    @property
    def _exact(self) -> bool:
        return len(self._positions) == self._longest

    @property
    def _longest(self) -> int:
        return max(len(run.task.items) for run in self._plan.runs)

    def _played_positions(self) -> Sequence[int]:
        room = max(2, PLAYED // sum(run.calls for run in self._plan.runs))
        if self._longest <= room:
            return range(self._longest)
        return sorted({i * self._longest // room for i in range(room)})

    def play(self, runs: Sequence[PlannedRun]) -> None:
        """Play these runs, item by item over all of them."""
        for position in self._positions:
            for run in runs:
                if position < len(run.task.items):
                    self._play_one(run, position)

    def expected_bills(self, stored: Bills) -> Bills:
        """The bills of stored runs, and for others what they are expected to be."""

        def bill(run: PlannedRun, currency: Currency) -> float | None:
            totals = self._totals[run.id]
            if currency == "calls":
                return totals.naive / max(1, totals.items)
            expected = totals.expected + (totals.prompt if currency == "all" else 0)
            return stored(run, currency) or expected / max(1, totals.items)

        return bill

    def take_in(self, plan: Plan) -> None:
        """Play what the plan has beyond what was played: runs that are estimates."""
        more = [run for run in plan.runs if run.id not in self._totals]
        self._plan = plan
        self._estimated = {run.id for run in more}
        self._totals |= {run.id: _Totals() for run in more}
        self.play(more)

    def close(self) -> None:
        """Let go of the caches."""
        self._stores.close()

    def _play_one(self, run: PlannedRun, position: int) -> None:
        totals, tokens, answers = self._totals[run.id], self._counters[run.engine.group], self._answers[position]
        totals.items += 1

        def answer(requests: Sequence[ChatRequest]) -> list[Completion]:
            keys = [request_key(request, run.engine.identities[request.model]) for request in requests]
            stored = self._stores.find(run, requests, [key for key in keys if key not in answers])
            replies = []
            for key, request in zip(keys, requests, strict=True):
                size = tokens.size(request)
                fresh = key not in answers
                if fresh:
                    self._distinct += 1
                    self._cached += key in stored
                    answers[key] = stored.get(key) or Completion(f"⟦{key[:16]}⟧", generated_tokens=-1)
                    if key not in stored:
                        totals.new += 1
                        self._new.append((size, request, tokens))
                tokens.saw(answers[key])
                self._count(totals, request, size, answers[key], tokens)
                replies.append(answers[key])
            return replies

        ask_in_turn(run.debate(run.task.items[position]), answer)

    def _count(self, totals: _Totals, request: ChatRequest, size: _Size, done: Completion, tokens: "_Tokens") -> None:
        known = done.generated_tokens >= 0
        expected = tokens.expected(request)
        most = request.sampling.max_tokens
        totals.naive += 1
        totals.prompt += size.known + size.replies * expected
        totals.expected += done.generated_tokens if known else expected
        totals.at_most += done.generated_tokens if known else most
        totals.longest = max(totals.longest, size.known + size.replies * expected)
        totals.longest_at_most = max(totals.longest_at_most, size.known + size.replies * most)
        if tokens.context is not None and size.known + size.replies * expected + most > tokens.context:
            self._overflows[tokens.name, -request.priority] += 1

    def result(self) -> Forecast:
        scale = {run.id: len(run.task.items) / max(1, self._totals[run.id].items) for run in self._plan.runs}
        whole = max(scale.values(), default=1.0)
        runs = tuple(self._run(run, scale[run.id]) for run in self._plan.runs)
        todo = {run.id for run in self._todo}
        new = sum(one.new for one in runs if one.run in todo)
        expected = sum(tokens.expected(request) for _, request, tokens in self._new)
        at_most = sum(request.sampling.max_tokens for _, request, _ in self._new)
        prompt = sum(size.known + size.replies * tokens.expected(request) for size, request, tokens in self._new)
        naive = sum(one.naive for one in runs)
        said = sum(one.generated_tokens_expected for one in runs if one.run in todo)
        disk = new * _CACHE_BYTES + expected * whole * _CACHE_BYTES_A_TOKEN
        disk += sum(one.naive for one in runs if one.run in todo) * _TURN_BYTES + said * _TURN_BYTES_A_TOKEN
        return Forecast(
            runs=runs,
            naive=naive,
            distinct=round(self._distinct * whole),
            cached=round(self._cached * whole),
            new=new,
            new_prompt_tokens=round(prompt * whole),
            new_generated_expected=round(expected * whole),
            new_generated_at_most=round(at_most * whole),
            disk_bytes=round(disk),
            disk_free=_free(self._how.output),
            exact=self._exact,
            reply_tokens="; ".join(dict.fromkeys(tokens.basis for tokens in self._counters.values())),
            licences=tuple(_licences(self._plan)),
            warnings=tuple(self._warnings(round(disk))),
        )

    def _run(self, run: PlannedRun, scale: float) -> RunForecast:
        totals = self._totals[run.id]
        done = is_done(self._how.output / run.id)
        return RunForecast(
            run=run.id,
            label=run.label,
            controls=tuple(run.controls),
            items=len(run.task.items),
            done=done,
            naive=round(totals.naive * scale),
            new=0 if done else round(totals.new * scale),
            prompt_tokens=round(totals.prompt * scale),
            generated_tokens_expected=round(totals.expected * scale),
            generated_tokens_at_most=round(totals.at_most * scale),
            longest_prompt=round(totals.longest),
            longest_prompt_at_most=totals.longest_at_most,
            estimated=run.id in self._estimated,
        )

    def _warnings(self, disk: int) -> list[str]:
        found = list(self._plan.notes)
        for name in sorted({name for name, _ in self._overflows}):
            rounds = sorted(round for one, round in self._overflows if one == name)
            count = sum(self._overflows[name, round] for round in rounds)
            found.append(
                f"engine {name}: from round {rounds[0]} on, {count} of the played requests need more than the context "
                "with expected replies: they will be cut short or be too long. Lower sampling.max_tokens, agents or "
                "rounds"
            )
        found += self._small_caches()
        if disk > _free(self._how.output):
            found.append(f"about {disk / 2**20:.0f} MiB are needed in {self._how.output}, and fewer are free")
        return found

    def _small_caches(self) -> list[str]:
        """A wave is one round of all live debates; what does not fit the KV cache at once waits, or is begun again."""
        found = []
        for group in dict.fromkeys(run.engine.group for run in self._todo):
            runs = [run for run in self._todo if run.engine.group == group]
            try:
                holds = getattr(runs[0].engine.engine, "kv_tokens", None)
            except EngineFailed as error:
                found.append(f"engine {runs[0].engine.choice.name} would not start now: {error}")
                continue
            live = min(self._how.max_live, sum(len(run.task.items) for run in runs))
            wants = round(live * max(self._wave(run) for run in runs))
            if holds is not None and wants > holds:
                found.append(
                    f"engine {runs[0].engine.choice.name}: a round of {live} live debates wants up to {wants:,} tokens "
                    f"of KV cache, which holds about {holds:,}: requests will wait for each other. A larger "
                    "engine.kv_cache_gib is faster; a lower max_live saves pre-emptions"
                )
        return found

    def _wave(self, run: PlannedRun) -> float:
        """Tokens that a round of one debate holds at once: every agent's longest prompt."""
        agents = run.facts.agents(**run.cell.protocol.options) if run.facts.agents else 1
        return agents * self._totals[run.id].longest


def _licences(plan: Plan) -> list[str]:
    """The licences of data and models, as far as they are known."""
    data = {run.cell.task.name: dict(getattr(run.task.task, "source", {})).get("licence") for run in plan.runs}
    models = {
        one["model"]: one["licence"]
        for run in plan.runs
        for one in model_sources(run.cell.engine, run.engine.engine.identity).values()
    }
    told = [f"data of {name}: licence {licence}" for name, licence in data.items() if licence]
    return told + [f"model {name}: licence {licence}" for name, licence in models.items() if licence]


class _Stores:
    """The caches of the plan's engine identities, read only."""

    def __init__(self, how: HowToRun) -> None:
        self._root = None if how.cache == "off" else how.output / "cache"
        self._open: dict[str, Store] = {}

    def find(self, run: PlannedRun, requests: Sequence[ChatRequest], keys: Sequence[str]) -> dict[str, Completion]:
        """What the cache holds of these keys."""
        if self._root is None or not keys or not self._root.is_dir():
            return {}
        found: dict[str, Completion] = {}
        for identity in {run.engine.identities[request.model] for request in requests}:
            if identity not in self._open:
                self._open[identity] = Store(self._root / identity, "plan", "{}", lambda text: None, write=False)
            stored = self._open[identity].find([bytes.fromhex(key) for key in keys])
            found |= {key.hex(): one.completion for key, one in stored.items()}
        return found

    def close(self) -> None:
        for store in self._open.values():
            store.close()


class _Tokens:
    """Counts prompts with an engine's tokenizer, and knows how long replies are."""

    def __init__(self, planned: PlannedEngine) -> None:
        self.name = planned.choice.name
        self.context = planned.engine.limits.context_length
        self._count = cache(lambda text: planned.engine.count_tokens([Message("user", text)]))
        self._frame, self._next_frame = _frames(planned.engine.count_tokens)
        self._replies = self._generated = 0

    def size(self, request: ChatRequest) -> _Size:
        """The length of a request's prompt: its messages' tokens and the frames that the template puts around them."""
        known, replies = self._frame - self._next_frame, 0
        for message in request.messages:
            text, placeholders = _PLACEHOLDER.subn("", message.content)
            replies += placeholders
            known += self._count(text) - self._frame + self._next_frame
        return _Size(known, replies)

    def saw(self, completion: Completion) -> None:
        """Learn from a reply that the cache holds."""
        if completion.generated_tokens > 0:
            self._replies += 1
            self._generated += completion.generated_tokens

    def expected(self, request: ChatRequest) -> float:
        """Tokens of a reply: the mean of the cached ones, or half of max_tokens when there is none."""
        most = request.sampling.max_tokens
        return min(most, self._generated / self._replies) if self._replies else most / 2

    @property
    def basis(self) -> str:
        """Where the expected length of a reply comes from."""
        if self._replies:
            mean = self._generated / self._replies
            return f"a reply of {self.name}: {mean:.0f} tokens, the mean of {self._replies} cached"
        return f"a reply of {self.name}: half of max_tokens, for want of any cached one"


def _frames(count: Callable[[Sequence[Message]], int]) -> tuple[int, int]:
    """Tokens that a template adds to a conversation of one message, and to each further message."""
    one = Message("user", "x")
    alone, three = count([one]), count([one, Message("assistant", "x"), one])
    frame = count([Message("user", "")])
    return frame, max(0, (three - alone) // 2 - (alone - frame))


def _free(folder: Path) -> int:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free
