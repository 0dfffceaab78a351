"""The generation cache: the record of what was said, between the scheduler and an engine.

Rule 1: completions are committed before anybody sees them, so a replay sees what the first run saw.
Rule 2: a request is known by its content (`request_key`): equal requests are sent once, whoever asks, and whoever asks
while it is under way waits for the same completion.
Rule 3: a failed completion is handed to all who wait for it and is never stored.
Knows nothing of debates, and of files only what `parts` offers.
"""

import contextlib
import json
import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from debate_local.core.chat import ChatRequest, Completion, Engine, digest, request_key
from debate_local.engines.around import Around
from debate_local.engines.parts import CacheFull, Store, count, is_locked, live_parts, sealed_parts, writing

__all__ = ["CacheBusy", "CacheEntry", "CacheFull", "CachedEngine", "FactsUse", "cache_report", "clear_cache"]

Mode = Literal["on", "read", "off"]


class CacheBusy(RuntimeError):
    """Somebody is writing to a cache that should be cleared."""


class FactsUse(NamedTuple):
    """How many of the completions handed out were made under these facts (versions, speed settings)."""

    facts: Mapping[str, Any]
    completions: int


@dataclass(slots=True)
class _Flight:
    """A request that the engine is working on under `id`, and all who wait for its completion."""

    id: str
    key: bytes
    store: Store
    waiters: list[str]


class CachedEngine(Around):
    """An engine that answers from the cache what it can, and sends the rest to `engine`, each request once.

    root: the folder of the cache; each engine identity has a folder of its own in it. mode `on`: read and written;
    `read`: read, nothing on disk is changed; `off`: nothing on disk is read or written. In every mode equal requests of
    this process are sent once. owner: a name that the next attempt at the same work will give again, so that it can
    adopt what this one leaves unsealed. facts: JSON values stored beside what is made now.

    Counters, in requests: hits (answered from the store), shared (joined to one under way), sent (to the engine),
    failed (of those sent), stored; generated_tokens counts those of completions that the engine made now.
    first_failure: why the first of the failed ones did.
    Raises CacheFull from `submit` and `poll` when nothing can be written any more.
    """

    def __init__(
        self,
        engine: Engine,
        root: Path | None,
        mode: Mode = "on",
        owner: str = "",
        *,
        facts: Mapping[str, Any] | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"unknown cache mode {mode!r}; the modes are: {', '.join(get_args(Mode))}")
        if mode != "off" and root is None:
            raise ValueError(f"cache mode {mode!r} needs a folder; without one use mode 'off'")
        super().__init__(engine)
        self._mode, self._owner = mode, owner
        self._root = None if mode == "off" else root
        self._facts = json.dumps(dict(facts or {}), sort_keys=True, ensure_ascii=False)
        self._warn = on_warning or logging.getLogger(__name__).warning
        self._stores: dict[str, tuple[str, Store]] = {}
        self._flights: dict[bytes, _Flight] = {}
        self._sent: dict[str, _Flight] = {}
        self._waits_for: dict[str, _Flight] = {}
        self._ready: dict[str, Completion] = {}
        self._uses: Counter[str] = Counter()
        self.hits = self.shared = self.sent = self.failed = self.stored = self.generated_tokens = 0
        self.first_failure = ""

    def submit(self, requests: Sequence[ChatRequest]) -> None:
        """Answer from the store or join what is under way; the rest goes to the engine in one call."""
        new: dict[str, tuple[Store, dict[bytes, list[ChatRequest]]]] = {}
        for request in requests:
            if (known := self._store(request.model)) is None:
                models = ", ".join(self.identity)
                self._ready[request.id] = Completion.failure(f"no model {request.model!r}; this engine's: {models}")
                continue
            name, store = known
            try:
                key = bytes.fromhex(request_key(request, name))
            except (TypeError, ValueError) as error:
                # Template arguments or a schema that are no JSON values.
                self._ready[request.id] = Completion.failure(f"the request cannot be written as JSON: {error}")
                continue
            if flight := self._flights.get(key):
                self._join([request], flight)
                self.shared += 1
            else:
                # By identity, not by model: two names of one model ask the same.
                new.setdefault(name, (store, {}))[1].setdefault(key, []).append(request)
        if to_send := [request for store, wanted in new.values() for request in self._look_up(store, wanted)]:
            self._engine.submit(to_send)

    def poll(self, timeout: float) -> list[tuple[str, Completion]]:
        """What the store answered, at once; what the engine answered, when it is committed."""
        landed: list[tuple[_Flight, Completion]] = []
        if self._sent:
            # The engine goes on while a replay is read, but nobody waits for it when there are answers already.
            for id, completion in self._engine.poll(0.0 if self._ready else timeout):
                if flight := self._sent.pop(id, None):
                    del self._flights[flight.key]
                    landed.append((flight, _valid(completion)))
        self._commit(landed)
        finished = list(self._ready.items())
        self._ready.clear()
        for flight, completion in landed:
            for waiter in flight.waiters:
                del self._waits_for[waiter]
                finished.append((waiter, completion))
        return finished

    def cancel(self, ids: Sequence[str]) -> None:
        """Forget requests; the engine is told of those that nobody waits for any more."""
        alone: list[str] = []
        for id in ids:
            self._ready.pop(id, None)
            if flight := self._waits_for.pop(id, None):
                flight.waiters.remove(id)
                if not flight.waiters and flight.id in self._sent:
                    del self._sent[flight.id], self._flights[flight.key]
                    alone.append(flight.id)
        if alone:
            self._engine.cancel(alone)

    def close(self) -> None:
        """Seal what was written and close the engine; works at any time, more than once."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._engine.close)
            for _, store in self._stores.values():
                stack.callback(store.close)
            self._stores = {}

    def mixed_facts(self) -> list[FactsUse]:
        """The facts behind the completions handed out, most used first; empty when all were made under the same."""
        uses = [FactsUse(json.loads(facts), completions) for facts, completions in self._uses.most_common()]
        return uses if len(uses) > 1 else []

    def _store(self, model: str) -> tuple[str, Store] | None:
        """The digest of a model's identity and the store that belongs to it, opened when first needed."""
        if model not in self._stores:
            identities = self.identity
            if model not in identities:
                return None
            name = digest(dict(identities[model]))
            same = (store for known, store in self._stores.values() if known == name)
            self._stores[model] = (name, next(same, None) or self._open(name, identities[model]))
        return self._stores[model]

    def _open(self, name: str, identity: Mapping[str, Any]) -> Store:
        folder = None if self._root is None else self._root / name
        store = Store(folder, self._owner, self._facts, self._warn, write=self._mode == "on")
        if folder is not None and self._mode == "on":
            _describe(folder, identity)
        return store

    def _look_up(self, store: Store, wanted: Mapping[bytes, list[ChatRequest]]) -> list[ChatRequest]:
        """Take what is stored; for every other key one request to send, which all of its askers wait for."""
        found = store.find(list(wanted))
        to_send = []
        for key, group in wanted.items():
            if stored := found.get(key):
                self._ready.update((request.id, stored.completion) for request in group)
                self._uses[stored.facts] += len(group)
                self.hits += len(group)
                continue
            self.sent += 1
            # An id of our own: when a request is cancelled and asked again, a late reply must not pass for the new one.
            flight = _Flight(f"{group[0].id}#{self.sent}", key, store, [])
            self._flights[key] = self._sent[flight.id] = flight
            self._join(group, flight)
            self.shared += len(group) - 1
            to_send.append(replace(group[0], id=flight.id))
        return to_send

    def _join(self, requests: Sequence[ChatRequest], flight: _Flight) -> None:
        for request in requests:
            flight.waiters.append(request.id)
            self._waits_for[request.id] = flight

    def _commit(self, landed: Sequence[tuple[_Flight, Completion]]) -> None:
        """Store what did not fail, one transaction a store."""
        rows: dict[int, list[tuple[bytes, Completion]]] = {}
        stores: dict[int, Store] = {}
        for flight, completion in landed:
            if completion.failed:
                self.failed += 1
                self.first_failure = self.first_failure or str(completion.error)
            else:
                stores[id(flight.store)] = flight.store
                rows.setdefault(id(flight.store), []).append((flight.key, completion))
                self._uses[self._facts] += len(flight.waiters)
                self.generated_tokens += completion.generated_tokens
        for number, store in stores.items():
            self.stored += store.add(rows[number])


def _valid(completion: Completion) -> Completion:
    """The completion with valid Unicode: a server's JSON may hold lone surrogates, which no file can."""
    changed = {
        name: text.encode("utf-8", "replace").decode()
        for name in ("text", "reasoning", "raw", "error")
        if (text := getattr(completion, name)) and not text.isascii() and _SURROGATE.search(text)
    }
    return replace(completion, **changed) if changed else completion


_SURROGATE = re.compile("[\ud800-\udfff]")


class CacheEntry(NamedTuple):
    """The cache of one engine identity: completions and bytes of its sealed parts; live: parts not sealed yet."""

    identity: str
    about: Mapping[str, Any]
    entries: int
    bytes: int
    parts: int
    live: int


def cache_report(root: Path) -> list[CacheEntry]:
    """What a cache folder holds, one entry an engine identity; nothing is changed."""
    return [_report(folder) for folder in _identities(root)]


def clear_cache(root: Path, identity: str | None = None) -> int:
    """Delete the completions of one identity (or the only one that begins so), or all; returns the bytes freed.

    Raises CacheBusy while somebody is writing to one of them, and ValueError for an unknown identity; then nothing is
    deleted.
    """
    folders = _identities(root)
    if identity is not None:
        known = [folder.name for folder in folders]
        folders = [folder for folder in folders if folder.name.startswith(identity)]
        if len(folders) != 1 or not identity:
            raise ValueError(f"{len(folders)} caches begin with {identity!r}; there are: {', '.join(known) or 'none'}")
    for folder in folders:
        for live in live_parts(folder):
            if is_locked(live):
                raise CacheBusy(f"{live} is being written to (host and process are in its name); end that run first")
    freed = sum(_report(folder).bytes for folder in folders)
    for folder in folders:
        shutil.rmtree(folder)
    return freed


def _identities(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if path.is_dir() and _DIGEST.fullmatch(path.name))


_DIGEST = re.compile(r"[0-9a-f]{32}")


def _report(folder: Path) -> CacheEntry:
    sealed = sealed_parts(folder)
    return CacheEntry(
        identity=folder.name,
        about=_about(folder),
        entries=sum(count(part) for part in sealed),
        bytes=sum(path.stat().st_size for path in folder.iterdir() if path.is_file()),
        parts=len(sealed),
        live=len(live_parts(folder)),
    )


def _about(folder: Path) -> Mapping[str, Any]:
    try:
        about = json.loads((folder / "identity.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return about if isinstance(about, dict) else {}


def _describe(folder: Path, identity: Mapping[str, Any]) -> None:
    """Leave a note of whose completions these are, for people; nothing is looked up by it."""
    path = folder / "identity.json"
    if not path.exists():
        beside = folder / f"identity-{os.getpid()}.tmp"
        with writing(folder):
            beside.write_text(json.dumps(dict(identity), indent=2, ensure_ascii=False), encoding="utf-8")
            beside.replace(path)
