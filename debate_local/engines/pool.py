"""Several models behind one engine: each request goes to the model that it names.

Knows engines by what all of them have, and by what those may have that take much memory: `footprint` (memory.py), and
`takes_turns`, `can_sleep` and `sleep` where one can give its device's memory back until its next `submit`. Refuses to
know what the models are and where their options come from.

Rule 1: a model's identity is its own: what it said alone and what it says in a pool is one record.
Rule 2: engines are open together where they fit, else one at a time. One is put to sleep, or closed where it cannot
sleep, only when nothing is outstanding or waiting at any open one, and then the one that most requests wait for is
opened. So there is one switch a wave of requests and not one a debate.
Rule 3: what was closed has ended, and its memory is back, before the next one loads. What sleeps keeps a little, and is
closed when that is too much.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from debate_local.core.chat import ChatRequest, Completion, Engine, EngineDead, EngineFailed, Limits, Message
from debate_local.engines.memory import GIB, Footprint

Share = Literal["auto", "yes", "no"]


@dataclass(frozen=True, slots=True)
class Switch:
    """An engine is about to be opened. closed, slept: the models whose engines made room for it by being closed or put
    to sleep; none when it is the first, or is opened beside others. opened: its models; woken: it had been asleep.
    free_before, free_after: bytes free on its device before that, and now; None where that is not known.
    """

    closed: tuple[str, ...]
    opened: tuple[str, ...]
    free_before: int | None
    free_after: int | None
    slept: tuple[str, ...] = ()
    woken: bool = False

    @property
    def plain(self) -> bool:
        """True when an engine is loaded and no other had to make room."""
        return not (self.closed or self.slept or self.woken)


class Pool:
    """An engine (core.chat.Engine) made of others. One thread at a time may use it.

    makers: a model's name -> what makes its engine; names with the same maker are one engine, loaded once. The models
    of an engine (its adapters) are called NAME.MODEL, its "default" NAME.
    share: `yes` keeps all engines open together, `no` one at a time, `auto` as many as fit by their footprints; what
    has no footprint always fits. memory_wait: seconds to wait for the memory of a closed engine, at most.
    on_switch is told of every opening. log_path: what noisy engines say goes beside it, into a file for each.
    Raises EngineFailed when share=yes and they do not fit, else what the engines raise, with the model's name.
    """

    def __init__(
        self, makers: Mapping[str, Callable[[], Engine]], share: Share = "auto", *, memory_wait: float = 30.0
    ) -> None:
        if share not in get_args(Share):
            raise ValueError(f"unknown share {share!r}; it is one of: {', '.join(get_args(Share))}")
        if not makers:
            raise ValueError("a pool needs at least one model")
        if wrong := [name for name in makers if not name or "." in name]:
            raise ValueError(f"a model's name may not be empty and may hold no dot, got {wrong[0]!r}")
        self._share, self._memory_wait = share, memory_wait
        self._members = _members(makers, share)
        self._routes = {
            name if own == "default" else f"{name}.{own}": _Route(member, own)
            for name in makers
            for member in self._members
            if name in member.names
            for own in member.engine.limits.models
        }
        self._where: dict[str, _Member] = {}
        self._ready: list[tuple[str, Completion]] = []
        self._end: EngineFailed | None = None
        # Those that were found too large to stand beside what is open; asked again when that changes.
        self._too_large: set[_Member] = set()
        # Those that do not fit beside others that are asleep.
        self._too_large_for_sleepers: set[_Member] = set()
        self.switches = 0
        self.on_switch: Callable[[Switch], None] | None = None
        self.log_path: str | None = None

    @cached_property
    def identity(self) -> Mapping[str, Mapping[str, Any]]:
        """Each model's own, as if there were no pool."""
        return {name: route.member.engine.identity[route.model] for name, route in self._routes.items()}

    @property
    def limits(self) -> Limits:
        """The smallest context, and the abilities that all have."""
        each = [member.engine.limits for member in self._members]
        lengths = [one.context_length for one in each if one.context_length is not None]
        abilities = {name: all(getattr(one, name) for one in each) for name in _ABILITIES}
        return Limits(min(lengths, default=None), tuple(self._routes), **abilities)

    @property
    def facts(self) -> Mapping[str, Any]:
        """For run.json and logs: how many switches there were, and each engine's facts."""
        each = {", ".join(member.names): member.facts() for member in self._members}
        speeds = {name: facts.get("speed", {}) for name, facts in each.items()}
        first = next(iter(speeds.values()))
        # Equal settings look like those of a model that runs alone: a cache that holds both is no mixture.
        same = all(speed == first for speed in speeds.values())
        return {"engine": "pool", "switches": self.switches, "speed": first if same else speeds, "models": each}

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """The most that any of the models makes of these messages."""
        return max(member.engine.count_tokens(messages) for member in self._members)

    # Requests

    def submit(self, requests: Sequence[ChatRequest]) -> None:
        """Hand requests to engines that are open; the others wait for `poll`, which opens engines."""
        self._require_alive()
        for request in requests:
            if (route := self._routes.get(request.model)) is None:
                failure = f"this pool has no model {request.model!r}; its models: {', '.join(self._routes)}"
                self._ready.append((request.id, Completion.failure(failure)))
                continue
            self._where[request.id] = route.member
            route.member.waiting[request.id] = replace(request, model=route.model)
        for member in self._members:
            if member.open:
                self._hand_over(member)

    def poll(self, timeout: float) -> list[tuple[str, Completion]]:
        """Whatever has finished, waiting at most `timeout` seconds, beside the time that closing and loading takes."""
        self._require_alive()
        done, self._ready = self._ready, []
        if done:
            return done
        self._open_what_is_waited_for()
        busy = [member for member in self._members if member.outstanding]
        deadline = time.monotonic() + timeout
        while busy:
            for member in busy:
                left = 0.0 if done else max(0.0, deadline - time.monotonic())
                try:
                    done += self._collect(member, left if len(busy) == 1 else min(left, _TURN))
                except EngineFailed:
                    # What the others have said by now is not lost: the end is told at the next call.
                    if not done:
                        raise
                    return done
            if done or len(busy) == 1 or time.monotonic() >= deadline:
                break
        return done

    def cancel(self, ids: Sequence[str]) -> None:
        """Forget requests; unknown ids are ignored."""
        gone = set(ids)
        self._ready = [(id, completion) for id, completion in self._ready if id not in gone]
        for id in gone:
            if member := self._where.pop(id, None):
                member.waiting.pop(id, None)
        for member in self._members:
            if running := member.outstanding & gone:
                member.outstanding -= running
                member.engine.cancel([id for id in ids if id in running])

    def close(self) -> None:
        """Close all engines. What is outstanding is lost. Twice is fine."""
        self._end = self._end or EngineDead("this pool is closed; make a new one")
        self._where.clear()
        self._ready.clear()
        with contextlib.ExitStack() as stack:
            for member in self._members:
                member.waiting.clear()
                member.outstanding.clear()
                member.open = member.asleep = False
                stack.callback(member.engine.close)

    def _require_alive(self) -> None:
        if self._end is not None:
            raise type(self._end)(str(self._end))

    def _hand_over(self, member: "_Member") -> None:
        """Submit what waits for an engine; the first time this loads it."""
        if member.waiting:
            waiting, member.waiting = member.waiting, {}
            member.outstanding |= waiting.keys()
            with self._blaming(member):
                member.engine.submit(list(waiting.values()))

    def _collect(self, member: "_Member", timeout: float) -> list[tuple[str, Completion]]:
        with self._blaming(member):
            finished = member.engine.poll(timeout)
        # A completion that comes after its request was cancelled is nobody's.
        finished = [(id, completion) for id, completion in finished if id in member.outstanding]
        for id, _ in finished:
            member.outstanding.remove(id)
            del self._where[id]
        return finished

    @contextlib.contextmanager
    def _blaming(self, member: "_Member") -> Iterator[None]:
        """An engine's end is the pool's, told with the model's name."""
        try:
            yield
        except EngineFailed as error:
            kind = EngineDead if isinstance(error, EngineDead) else EngineFailed
            self._end = kind(f"model {', '.join(member.names)}: {error}")
            raise self._end from error

    # Which engines are open

    def _open_what_is_waited_for(self) -> None:
        """Open engines that requests wait for: beside what is open where they fit, in its place when it has no work."""
        while waiting := [member for member in self._members if member.waiting]:
            # All that waits for an open engine is handed over at once: these are closed.
            most = max(waiting, key=lambda member: len(member.waiting))
            standing = [member for member in self._members if member.open]
            if not standing or self._fits_beside(most, standing):
                self._open(most)
            elif any(member.outstanding for member in standing):
                return
            else:
                self._switch(most, standing)

    def _open(
        self,
        member: "_Member",
        closed: Sequence["_Member"] = (),
        slept: Sequence["_Member"] = (),
        free_before: int | None = None,
    ) -> None:
        if self._share == "yes" and not any(other.open for other in self._members):
            self._require_room_for_all()
        footprint = member.footprint()
        member.held = footprint
        self._too_large.clear()
        if self.on_switch is not None:
            free = None if footprint is None else footprint.free
            self.on_switch(Switch(_names(closed), member.names, free_before, free, _names(slept), member.asleep))
        if self.log_path is not None:
            member.log_to(Path(self.log_path))
        member.open, member.asleep = True, False
        self._hand_over(member)

    def _switch(self, member: "_Member", standing: Sequence["_Member"]) -> None:
        """Put what has no work left to sleep, or close it and wait for its memory; open another."""
        footprint = member.footprint()
        slept: list[_Member] = []
        closed: list[_Member] = []
        for other in standing:
            sleeps = member not in self._too_large_for_sleepers and other.fall_asleep()
            (slept if sleeps else closed).append(other)
        self._close(closed, member)
        sleepers = [other for other in self._members if other.asleep and other is not member]
        if sleepers and not _fits(member.footprint()):
            self._too_large_for_sleepers.add(member)
            self._close(sleepers, member)
            closed, slept = [*closed, *sleepers], []
        self.switches += 1
        self._open(member, closed, slept, None if footprint is None else footprint.free)

    def _close(self, members: Sequence["_Member"], successor: "_Member") -> None:
        """Close engines; when there are any, wait for the memory that their successor needs."""
        for member in members:
            member.close_and_renew()
        if members:
            self._await_memory(successor)

    def _await_memory(self, member: "_Member") -> None:
        """Wait until an engine fits, or no more memory comes back; one that does not fit says itself what it lacks."""
        began = risen = time.monotonic()
        most = 0
        while (now := time.monotonic()) < min(began + self._memory_wait, risen + _STILL):
            footprint = member.footprint()
            if footprint is None or footprint.free is None or _fits(footprint):
                return
            if footprint.free > most + footprint.needed // 100:
                most, risen = footprint.free, now
            time.sleep(_PAUSE)

    def _fits_beside(self, member: "_Member", standing: Sequence["_Member"]) -> bool:
        if self._share != "auto":
            return self._share == "yes"
        if member in self._too_large:
            return False
        footprint = member.footprint()
        held = [other.held for other in standing if other.held is not None]
        if footprint is None or _room(footprint, held) >= footprint.needed:
            return True
        self._too_large.add(member)
        return False

    def _require_room_for_all(self) -> None:
        """Raise EngineFailed before anything is loaded, when share=yes and the engines do not fit together."""
        found = {", ".join(member.names): member.footprint() for member in self._members}
        known = {name: footprint for name, footprint in found.items() if footprint is not None}
        for device in dict.fromkeys(footprint.device for footprint in known.values()):
            here = {name: footprint for name, footprint in known.items() if footprint.device == device}
            free = next(iter(here.values())).free
            if free is not None and sum(footprint.needed for footprint in here.values()) > free:
                self._end = EngineFailed(_do_not_fit(device, here, free))
                raise self._end


_ABILITIES = ("seed", "logprobs", "prefill", "schema", "priority")
# Seconds that one of several open engines is waited for before the next one's turn; some do their work only then.
_TURN = 0.05
# Seconds between two looks at the memory, and for which it must not have risen to be thought of as all back.
_PAUSE, _STILL = 0.2, 5.0


class _Member:
    """One engine of the pool and what it is asked. held: its footprint as it was when it was opened.

    takes_turns: other engines may want its device's memory in between.
    """

    def __init__(self, names: tuple[str, ...], make: Callable[[], Engine], takes_turns: bool) -> None:
        self.names, self._make, self._takes_turns = names, make, takes_turns
        self.engine = self._made()
        self.open = self.asleep = False
        self.held: Footprint | None = None
        self.waiting: dict[str, ChatRequest] = {}
        self.outstanding: set[str] = set()
        self._last_facts: Mapping[str, Any] | None = None

    def _made(self) -> Engine:
        engine = self._make()
        if hasattr(engine, "takes_turns"):
            engine.takes_turns = self._takes_turns
        return engine

    def footprint(self) -> Footprint | None:
        """What the engine says that it takes, None when it says nothing."""
        found: Footprint | None = getattr(self.engine, "footprint", None)
        return found

    def facts(self) -> Mapping[str, Any]:
        """The engine's facts; of one that was closed the last ones."""
        if self._last_facts is not None and not self.open:
            return self._last_facts
        facts: Mapping[str, Any] = getattr(self.engine, "facts", {})
        return facts

    def log_to(self, path: Path) -> None:
        if hasattr(self.engine, "log_path"):
            self.engine.log_path = str(path.with_stem(f"{path.stem}-{self.names[0]}"))

    def fall_asleep(self) -> bool:
        """Put the engine to sleep, if it can."""
        if not getattr(self.engine, "can_sleep", False):
            return False
        facts = self.facts()
        try:
            self.engine.sleep()  # type: ignore[attr-defined]
        except EngineDead:
            # It has no work: nothing is lost.
            return False
        self._last_facts, self.held = facts, None
        self.open, self.asleep = False, True
        return True

    def close_and_renew(self) -> None:
        """Close the engine; a new one, not loaded, answers for it what can be known without its weights."""
        self._last_facts = self.facts()
        # It has no work: if it dies at its end, nothing is lost.
        with contextlib.suppress(EngineDead):
            self.engine.close()
        self.open = self.asleep = False
        self.held = None
        self.engine = self._made()


class _Route(NamedTuple):
    """Where requests for a model go: the engine, and the engine's own name for it."""

    member: _Member
    model: str


def _members(makers: Mapping[str, Callable[[], Engine]], share: Share) -> list[_Member]:
    distinct: list[Callable[[], Engine]] = []
    for make in makers.values():
        if make not in distinct:
            distinct.append(make)
    turns = share != "yes" and len(distinct) > 1
    return [_Member(tuple(name for name, its in makers.items() if its == make), make, turns) for make in distinct]


def _names(members: Sequence[_Member]) -> tuple[str, ...]:
    return tuple(name for member in members for name in member.names)


def _fits(footprint: Footprint | None) -> bool:
    """False also where it cannot be told whether it fits."""
    return footprint is None or (footprint.free is not None and footprint.needed <= footprint.free)


def _room(footprint: Footprint, held: Sequence[Footprint]) -> int:
    """Bytes on an engine's device beside others that are open there, which need not have touched all of theirs yet."""
    if footprint.free is None:
        return 0
    here = [other for other in held if other.device == footprint.device]
    first = max((other.free or 0 for other in here), default=footprint.free)
    return min(footprint.free, first - sum(other.needed for other in here))


def _do_not_fit(device: str, needs: Mapping[str, Footprint], free: int) -> str:
    each = ", ".join(f"{name} {footprint.needed / GIB:.1f} GiB" for name, footprint in needs.items())
    options = " or ".join(dict.fromkeys(footprint.lower for footprint in needs.values() if footprint.lower))
    lower = f", or lower {options}" if options else ""
    return (
        f"the models do not fit together on {device}, as engine.share=yes asks: {each} are needed,"
        f" {free / GIB:.1f} GiB are free; engine.share=auto or no opens one at a time{lower}"
    )
