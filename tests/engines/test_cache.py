"""The generation cache: sharing, replay, kills, broken files, full disks. Run: pytest tests/engines/test_cache.py

Processes that are killed or compete are real ones, started from the programs below.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from debate_local.core.chat import ChatRequest, Completion, Engine, request_key
from debate_local.engines import parts
from debate_local.engines.cache import CacheBusy, CachedEngine, CacheFull, FactsUse, cache_report, clear_cache
from debate_local.engines.scripted import ScriptedEngine, scripted
from tests.fakes import LateEngine, marked, request

ROOT = Path(__file__).parents[2]


def questions(count: int, first: int = 0) -> list[ChatRequest]:
    return [request(f"question {n}", id=str(n)) for n in range(first, first + count)]


def collect(engine: Engine, count: int) -> dict[str, Completion]:
    found: dict[str, Completion] = {}
    for _ in range(1000):
        for id, completion in engine.poll(0.01):
            assert id not in found
            found[id] = completion
        if len(found) == count:
            return found
    raise AssertionError(f"{len(found)} of {count} came back")


def ask(engine: Engine, requests: Sequence[ChatRequest]) -> dict[str, Completion]:
    engine.submit(requests)
    return collect(engine, len(requests))


def right(requests: Sequence[ChatRequest]) -> dict[str, Completion]:
    return {asked.id: marked(asked) for asked in requests}


def stored(root: Path) -> int:
    return sum(entry.entries for entry in cache_report(root))


def only_folder(root: Path) -> Path:
    (entry,) = cache_report(root)
    return root / entry.identity


def fill(root: Path, requests: Sequence[ChatRequest], owner: str = "me", **options: Any) -> LateEngine:
    """One process's life: ask, and close."""
    inner = LateEngine(marked)
    engine = CachedEngine(inner, root, owner=owner, **options)
    assert ask(engine, requests) == right(requests)
    engine.close()
    return inner


# --- sharing and replay


@pytest.mark.parametrize("mode", ["on", "read", "off"])
def test_equal_requests_are_sent_once_in_every_mode(tmp_path: Path, mode: Any) -> None:
    inner = LateEngine(marked)
    engine = CachedEngine(inner, tmp_path, mode)
    engine.submit([request("same", id="a"), request("same", id="b"), request("other", id="c")])
    engine.submit([request("same", id="d")])
    found = collect(engine, 4)
    assert found["a"] == found["b"] == found["d"] == marked(request("same"))
    assert (engine.sent, engine.shared, engine.hits) == (2, 2, 0)
    # And later, too: what one debate was told, another is told without asking.
    assert ask(engine, [request("same", id="e")])["e"] == found["a"]
    assert (engine.sent, engine.shared, engine.hits, engine.stored) == (2, 2, 1, 2)
    assert engine.generated_tokens == 14
    assert len(inner.requests) == 2
    engine.close()
    assert inner.closed


def test_one_submit_becomes_at_most_one_submit(tmp_path: Path) -> None:
    fill(tmp_path, questions(3))
    inner = LateEngine(marked)
    engine = CachedEngine(inner, tmp_path)
    engine.submit(questions(10))
    engine.submit(questions(3))
    assert [len(batch) for batch in inner.submitted] == [7]
    collect(engine, 10 + 3 - 3)
    engine.close()


def test_a_rerun_is_answered_from_disk_without_the_engine(tmp_path: Path) -> None:
    fill(tmp_path, questions(100))
    inner = fill(tmp_path, questions(100))
    assert inner.requests == []
    assert stored(tmp_path) == 100


def test_the_engine_is_not_polled_when_everything_is_in_the_cache(tmp_path: Path) -> None:
    class Unloaded(LateEngine):
        def poll(self, timeout: float) -> list[tuple[str, Completion]]:
            raise AssertionError("a replay must not load weights")

    fill(tmp_path, questions(5))
    engine = CachedEngine(Unloaded(marked), tmp_path)
    assert ask(engine, questions(5)) == right(questions(5))
    engine.close()


def test_every_field_of_a_completion_survives_and_text_that_no_file_can_hold_is_mended(tmp_path: Path) -> None:
    whole = Completion(
        text="half a pair \ud800, zero \x00, quote ' and ünïcödé １２８",
        reasoning="<think>",
        raw="raw",
        finish_reason="length",
        prompt_tokens=3,
        generated_tokens=4,
        cached_prompt_tokens=2,
        logprobs=(("\ud800", -0.1), ("b", float("-inf"))),
        clipped=True,
        neutralised=2,
        notes=("system merged",),
    )
    for _ in range(2):
        engine = CachedEngine(LateEngine(lambda asked: whole), tmp_path)
        assert ask(engine, [request("odd \ud800")])["0"] == replace(whole, text=whole.text.replace("\ud800", "?"))
        engine.close()
    assert engine.hits == 1


@pytest.mark.hazard("C22")
def test_failed_completions_reach_all_who_wait_and_are_never_stored(tmp_path: Path) -> None:
    failing = True

    def answer(asked: ChatRequest) -> Completion:
        return Completion.failure("out of memory") if failing else marked(asked)

    engine = CachedEngine(LateEngine(answer), tmp_path)
    found = ask(engine, [request("same", id="a"), request("same", id="b")])
    assert all(completion.error == "out of memory" for completion in found.values())
    assert engine.stored == 0
    failing = False
    assert ask(engine, [request("same", id="c")])["c"] == marked(request("same"))
    assert (engine.sent, engine.hits, engine.stored) == (2, 0, 1)
    engine.close()


def test_a_too_long_prompt_is_an_answer_and_is_stored(tmp_path: Path) -> None:
    engine = CachedEngine(LateEngine(lambda asked: Completion.failure("9000 tokens", "too_long")), tmp_path)
    ask(engine, questions(1))
    engine.close()
    assert stored(tmp_path) == 1


def test_a_greedy_request_of_three_agents_is_sent_once(tmp_path: Path) -> None:
    inner = LateEngine(marked)
    engine = CachedEngine(inner, None, "off")
    ask(engine, [request("same", id=str(agent), seed=agent, temperature=0.0) for agent in range(3)])
    assert len(inner.requests) == 1


def test_models_of_other_identity_do_not_share_and_those_of_one_do(tmp_path: Path) -> None:
    def answer(asked: ChatRequest) -> Completion:
        return Completion(asked.model)

    inner = LateEngine(answer)
    inner.identity = {"a": {"kind": "x"}, "b": {"kind": "y"}, "twin of a": {"kind": "x"}}
    engine = CachedEngine(inner, tmp_path)
    asked = [request("?", id=model, model=model) for model in ("a", "b", "twin of a", "unknown")]
    found = ask(engine, asked)
    assert found["a"] == found["twin of a"] != found["b"]
    assert found["unknown"].failed
    assert "'unknown'; this engine's: a, b, twin of a" in str(found["unknown"].error)
    engine.close()
    assert [entry.about for entry in cache_report(tmp_path)].count({"kind": "x"}) == 1
    assert len(cache_report(tmp_path)) == 2


def test_nobody_sees_a_completion_before_it_is_committed(tmp_path: Path) -> None:
    engine = CachedEngine(LateEngine(marked), tmp_path / "cache", owner="me")
    engine.submit(questions(50))
    seen: list[str] = []
    while len(seen) < 50:
        seen += [id for id, _ in engine.poll(0)]
        # What a kill would leave behind now. Another process copies: closing the file here would drop its lock.
        snapshot = tmp_path / f"killed-{len(seen)}"
        subprocess.run(["cp", "-r", str(tmp_path / "cache"), str(snapshot)], check=True)
        after_kill = fill(snapshot, [request(f"question {id}", id=id) for id in seen], owner="me")
        assert after_kill.requests == []
        shutil.rmtree(snapshot)
    engine.close()


# --- cancelling


def test_the_engine_is_told_only_when_nobody_waits_any_more(tmp_path: Path) -> None:
    inner = LateEngine(marked)
    engine = CachedEngine(inner, tmp_path)
    engine.submit([request("same", id="a"), request("same", id="b"), request("other", id="c")])
    engine.cancel(["a", "c", "unknown"])
    assert [id.split("#")[0] for id in inner.cancelled] == ["c"]
    assert collect(engine, 1) == {"b": marked(request("same"))}
    engine.cancel(["b"])
    engine.close()


def test_hits_can_be_cancelled_too(tmp_path: Path) -> None:
    fill(tmp_path, questions(2))
    engine = CachedEngine(LateEngine(marked), tmp_path)
    engine.submit(questions(2))
    engine.cancel(["0"])
    assert [id for id, _ in engine.poll(0)] == ["1"]
    engine.close()


def test_a_late_reply_to_a_cancelled_request_is_not_taken_for_another_of_the_same_id(tmp_path: Path) -> None:
    class Deaf(LateEngine):
        """Answers cancelled requests all the same, one a poll, oldest first."""

        def cancel(self, ids: Sequence[str]) -> None:
            pass

        def poll(self, timeout: float) -> list[tuple[str, Completion]]:
            return [(asked.id, marked(asked)) for _, asked in [self._waiting.pop(0)]]

    engine = CachedEngine(Deaf(marked), None, "off")
    engine.submit([request("old", id="0/0")])
    engine.cancel(["0/0"])
    engine.submit([request("new", id="0/0")])
    assert engine.poll(0) == []
    assert engine.poll(0) == [("0/0", marked(request("new")))]


# --- modes


def test_read_uses_what_is_stored_and_changes_nothing_on_disk(tmp_path: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in tmp_path.rglob("*") if path.is_file()
        }

    fill(tmp_path, questions(5))
    (only_folder(tmp_path) / "part-00000009-deadbeef.sqlite").write_bytes(b"garbage" * 1000)
    before = state()
    engine = CachedEngine(LateEngine(marked), tmp_path, "read")
    assert ask(engine, questions(8)) == right(questions(8))
    assert (engine.hits, engine.sent) == (5, 3)
    engine.close()
    assert state() == before


def test_read_needs_no_folder_and_makes_none(tmp_path: Path) -> None:
    engine = CachedEngine(LateEngine(marked), tmp_path / "nothing", "read")
    assert ask(engine, questions(2)) == right(questions(2))
    engine.close()
    assert not (tmp_path / "nothing").exists()


def test_off_touches_nothing_on_disk(tmp_path: Path) -> None:
    fill(tmp_path, questions(5))
    shutil.copytree(tmp_path, tmp_path.with_name("copy"))
    engine = CachedEngine(LateEngine(marked), tmp_path, "off")
    ask(engine, questions(5))
    assert (engine.hits, engine.sent) == (0, 5)
    engine.close()
    assert stored(tmp_path) == 5


def test_a_mode_that_does_not_exist_or_has_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown cache mode 'maybe'; the modes are: on, read, off"):
        CachedEngine(LateEngine(marked), tmp_path, "maybe")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cache mode 'on' needs a folder"):
        CachedEngine(LateEngine(marked), None)


# --- what people are told


def test_a_mix_of_versions_is_reported_and_one_alone_is_not(tmp_path: Path) -> None:
    fill(tmp_path, questions(3), facts={"vllm": "0.11"})
    engine = CachedEngine(LateEngine(marked), tmp_path, facts={"vllm": "0.32"})
    ask(engine, questions(3))
    assert engine.mixed_facts() == []
    ask(engine, questions(2, first=3))
    assert engine.mixed_facts() == [FactsUse({"vllm": "0.11"}, 3), FactsUse({"vllm": "0.32"}, 2)]
    engine.close()


def test_the_report_counts_completions_bytes_and_parts_of_each_identity(tmp_path: Path) -> None:
    assert cache_report(tmp_path / "nowhere") == []
    fill(tmp_path, questions(3))
    fill(tmp_path, questions(5))
    (entry,) = cache_report(tmp_path)
    assert (entry.about, entry.entries, entry.parts, entry.live) == ({"kind": "late"}, 5, 2, 0)
    assert entry.bytes == sum(path.stat().st_size for path in (tmp_path / entry.identity).iterdir())


def test_clearing_one_identity_leaves_the_others_and_an_unknown_one_is_named(tmp_path: Path) -> None:
    for kind in ("x", "y"):
        inner = LateEngine(marked)
        inner.identity = {"default": {"kind": kind}}
        engine = CachedEngine(inner, tmp_path)
        ask(engine, questions(2))
        engine.close()
    one, other = cache_report(tmp_path)
    with pytest.raises(ValueError, match=f"0 caches begin with 'zzz'; there are: {one.identity}, {other.identity}"):
        clear_cache(tmp_path, "zzz")
    assert clear_cache(tmp_path, one.identity[:8]) == one.bytes
    assert cache_report(tmp_path) == [other]
    assert clear_cache(tmp_path) == other.bytes
    assert cache_report(tmp_path) == []


def test_clearing_refuses_while_somebody_writes(tmp_path: Path) -> None:
    engine = CachedEngine(LateEngine(marked), tmp_path)
    ask(engine, questions(2))
    with pytest.raises(CacheBusy, match=rf"-{os.getpid()}-.*\.live is being written to"):
        clear_cache(tmp_path)
    assert ask(engine, questions(4)) == right(questions(4))
    engine.close()
    assert clear_cache(tmp_path) > 0


def test_a_part_without_rows_leaves_no_file(tmp_path: Path) -> None:
    engine = CachedEngine(LateEngine(lambda asked: Completion.failure("no")), tmp_path)
    ask(engine, questions(3))
    engine.close()
    assert [entry.parts for entry in cache_report(tmp_path)] == [0]
    assert not list(tmp_path.rglob("*.live"))


def test_closing_twice_and_before_anything_was_asked_is_fine(tmp_path: Path) -> None:
    engine = CachedEngine(LateEngine(marked), tmp_path)
    engine.close()
    engine.close()
    assert list(tmp_path.iterdir()) == []


# --- kills

WRITER = """
import sys
from pathlib import Path
from debate_local.engines.cache import CachedEngine
from tests.engines.test_cache import ask, questions
from tests.fakes import LateEngine, marked

root, owner, first, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
engine = CachedEngine(LateEngine(marked), root, owner=owner)
ask(engine, questions(count, first))
print("committed", flush=True)
sys.stdin.read()
engine.close()
print("closed", flush=True)
"""


@pytest.fixture
def start() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts a process that commits completions and then waits for the end of its input to close its cache."""
    started: list[subprocess.Popen[str]] = []

    def begin(root: Path, owner: str, first: int, count: int) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root), owner, str(first), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "committed\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def end(process: "subprocess.Popen[str]") -> None:
    assert process.communicate()[0] == "closed\n"


def test_after_kill_9_the_next_attempt_adopts_what_was_committed(tmp_path: Path, start: Any) -> None:
    kill(start(tmp_path, "shard-1", 0, 20))
    assert len(list(tmp_path.rglob("*.live"))) == 1
    inner = fill(tmp_path, questions(25), owner="shard-1")
    assert len(inner.requests) == 5
    assert not list(tmp_path.rglob("*.live*"))
    assert stored(tmp_path) == 25


def test_a_dead_process_of_this_host_is_adopted_whoever_it_was(tmp_path: Path, start: Any) -> None:
    kill(start(tmp_path, "somebody else", 0, 20))
    assert fill(tmp_path, questions(20), owner="me").requests == []


def test_a_dead_writers_part_that_somebody_is_sealing_is_waited_for(tmp_path: Path, start: Any) -> None:
    kill(start(tmp_path, "shard-1", 0, 20))
    (live,) = tmp_path.rglob("*.live")
    sealing = parts._connect(live, "mode=rw")
    sealing.execute("PRAGMA locking_mode=EXCLUSIVE")
    sealing.execute("BEGIN EXCLUSIVE")
    with ThreadPoolExecutor(1) as pool:
        # One who starts at the same moment; the same attempt again, or any other of this host.
        started = pool.submit(fill, tmp_path, questions(20), owner="shard-1")
        time.sleep(0.3)
        sealing.close()
        assert started.result(timeout=60).requests == []
    assert stored(tmp_path) == 20


def test_a_part_from_another_host_is_adopted_by_its_owner_only(tmp_path: Path, start: Any) -> None:
    kill(start(tmp_path, "shard-1", 0, 20))
    (live,) = tmp_path.rglob("*.live")
    moved = live.with_name(live.name.replace(parts._host(), "node-17.cluster"))
    live.rename(moved)
    live.with_name(f"{live.name}-wal").rename(f"{moved}-wal")
    assert len(fill(tmp_path, questions(5), owner="shard-2").requests) == 5
    assert moved.exists()
    assert fill(tmp_path, questions(20), owner="shard-1").requests == []
    assert not moved.exists()


def test_a_part_that_somebody_alive_is_writing_is_left_alone(tmp_path: Path, start: Any) -> None:
    # The same owner: a second start of the same command.
    writer = start(tmp_path, "shard-1", 0, 20)
    (live,) = tmp_path.rglob("*.live")
    assert len(fill(tmp_path, questions(20), owner="shard-1").requests) == 20
    assert live.exists()
    with pytest.raises(CacheBusy, match=str(writer.pid)):
        clear_cache(tmp_path)
    end(writer)
    assert stored(tmp_path) == 40
    # Both hold every key; the one sealed first answers.
    assert fill(tmp_path, questions(20), owner="shard-1").requests == []


@pytest.mark.hazard("C23")
def test_a_part_is_one_writers_and_needs_no_shared_memory_such_as_network_file_systems_lack(
    tmp_path: Path, start: Any
) -> None:
    writers = [start(tmp_path, f"shard-{n}", 100 * n, 30) for n in range(2)]
    names = [path.name for path in only_folder(tmp_path).iterdir()]
    for writer in writers:
        mine = sorted(name.partition(".live")[2] for name in names if f"-{writer.pid}-" in name)
        assert mine == ["", "-wal"], "a log of its own, and no -shm file"
    for writer in writers:
        end(writer)
    assert sorted(path.suffix for path in only_folder(tmp_path).iterdir()) == [".json", ".sqlite", ".sqlite"]


@pytest.mark.hazard("C23")
def test_two_writers_at_once_keep_both_their_work(tmp_path: Path, start: Any) -> None:
    writers = [start(tmp_path, f"shard-{n}", 100 * n, 30) for n in range(2)]
    for writer in writers:
        end(writer)
    inner = fill(tmp_path, [*questions(30), *questions(30, first=100)])
    assert inner.requests == []


def test_many_kills_in_a_row_lose_nothing_and_are_compacted(tmp_path: Path, start: Any) -> None:
    for attempt in range(4):
        kill(start(tmp_path, "shard-1", 0, 10 * (attempt + 1)))
    assert fill(tmp_path, questions(40), owner="shard-1").requests == []
    assert stored(tmp_path) == 40


KILLED_WHILE_WRITING = """
import sys
from pathlib import Path
from debate_local.engines.cache import CachedEngine
from tests.engines.test_cache import questions
from tests.fakes import LateEngine, marked

engine = CachedEngine(LateEngine(marked, slowest=3), Path(sys.argv[1]), owner="me")
for first in range(0, 10**6, 50):
    engine.submit(questions(50, first))
    waiting = 50
    while waiting:
        finished = engine.poll(0)
        waiting -= len(finished)
        for id, _ in finished:
            sys.stdout.write(id + "\\n")
    sys.stdout.flush()
"""


@pytest.mark.hazard("C24")
@pytest.mark.parametrize("delay", [0.02, 0.1, 0.25])
def test_whatever_was_handed_out_before_a_kill_is_stored(tmp_path: Path, delay: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    seen = [process.stdout.readline()]
    time.sleep(delay)
    process.kill()
    seen += process.communicate()[0].splitlines(keepends=True)
    handed_out = [int(line) for line in seen if line.endswith("\n")]
    assert len(handed_out) >= 50
    inner = fill(tmp_path, [request(f"question {n}", id=str(n)) for n in handed_out])
    assert inner.requests == []


def test_a_part_that_was_killed_at_birth_is_removed(tmp_path: Path, start: Any) -> None:
    kill(start(tmp_path, "me", 0, 5))
    (live,) = tmp_path.rglob("*.live")
    live.with_name(f"{live.name}-wal").unlink()
    live.write_bytes(b"")
    assert len(fill(tmp_path, questions(5), owner="me", on_warning=pytest.fail).requests) == 5
    assert stored(tmp_path) == 5
    assert (cache_report(tmp_path)[0].parts, cache_report(tmp_path)[0].live) == (1, 0)


def test_kills_within_sealing_leave_a_part_that_is_adopted(tmp_path: Path) -> None:
    # Sealing dies after the log is folded in and before the rename: the file is whole and still called live.
    class Killed(BaseException):
        pass

    def dies(path: Path) -> None:
        raise Killed

    engine = CachedEngine(LateEngine(marked), tmp_path, owner="me")
    ask(engine, questions(5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "_sync", dies)
        with pytest.raises(Killed):
            engine.close()
    assert len(list(tmp_path.rglob("*.live"))) == 1
    assert fill(tmp_path, questions(5), owner="me").requests == []


# --- compaction


def test_more_than_sixteen_parts_become_one_that_answers_as_they_did(tmp_path: Path) -> None:
    for n in range(17):
        fill(tmp_path, questions(3, first=3 * n), facts={"life": n})
    assert cache_report(tmp_path)[0].parts == 17
    engine = CachedEngine(LateEngine(marked), tmp_path)
    assert ask(engine, questions(51)) == right(questions(51))
    assert engine.sent == 0
    assert len(engine.mixed_facts()) == 17
    engine.close()
    (entry,) = cache_report(tmp_path)
    assert (entry.parts, entry.entries) == (1, 51)


def two_lives(root: Path) -> None:
    """Two parts that hold other completions under the same keys, as two processes started together would write."""
    engines = [
        CachedEngine(LateEngine(lambda asked, life=life: Completion(f"life {life}")), root, owner=str(life))  # type: ignore[misc]
        for life in range(2)
    ]
    for engine in engines:
        ask(engine, questions(4))
    for engine in engines:
        engine.close()


def test_of_two_completions_for_one_key_the_one_sealed_first_answers_before_and_after_compaction(
    tmp_path: Path,
) -> None:
    two_lives(tmp_path)
    for _ in range(2):
        engine = CachedEngine(LateEngine(marked), tmp_path, "read")
        assert {completion.text for completion in ask(engine, questions(4)).values()} == {"life 0"}
        engine.close()
        parts.compact(only_folder(tmp_path), pytest.fail)
    assert (stored(tmp_path), cache_report(tmp_path)[0].parts) == (4, 1)


def test_readers_go_on_while_their_parts_are_merged(tmp_path: Path) -> None:
    for n in range(3):
        fill(tmp_path, questions(5, first=5 * n))
    reader = CachedEngine(LateEngine(marked), tmp_path, "read")
    assert ask(reader, questions(1)) == right(questions(1))
    parts.compact(only_folder(tmp_path), pytest.fail)
    assert ask(reader, questions(14, first=1)) == right(questions(14, first=1))
    assert reader.sent == 0
    reader.close()


def test_a_reader_whose_parts_went_stale_finds_their_rows_in_the_merged_one(tmp_path: Path) -> None:
    # On a network file system a file that another host has removed can no longer be read.
    for n in range(2):
        fill(tmp_path, questions(300, first=300 * n))
    folder = only_folder(tmp_path)
    reader = CachedEngine(LateEngine(marked), tmp_path, "read", on_warning=pytest.fail)
    assert ask(reader, questions(1)) == right(questions(1))
    for path in parts.sealed_parts(folder):
        (tmp_path / path.name).hardlink_to(path)
    parts.compact(folder, pytest.fail)
    for path in tmp_path.glob("*.sqlite"):
        path.write_bytes(b"")
    assert ask(reader, questions(599, first=1)) == right(questions(599, first=1))
    assert reader.sent == 0
    reader.close()


def test_a_part_sealed_after_a_compaction_comes_after_it(tmp_path: Path) -> None:
    late = CachedEngine(LateEngine(lambda asked: Completion("late")), tmp_path, owner="late")
    ask(late, questions(1))
    for n in range(3):
        fill(tmp_path, questions(1, first=n), owner=str(n))
    parts.compact(only_folder(tmp_path), pytest.fail)
    late.close()
    engine = CachedEngine(LateEngine(marked), tmp_path, "read")
    assert ask(engine, questions(1)) == right(questions(1))
    engine.close()


@pytest.mark.parametrize("step", ["_merge", "_sync"])
def test_a_compaction_killed_half_way_loses_nothing_and_is_cleaned_up(tmp_path: Path, step: str) -> None:
    class Killed(BaseException):
        pass

    for n in range(3):
        fill(tmp_path, questions(5, first=5 * n))
    folder = only_folder(tmp_path)
    real, calls = getattr(parts, step), list[Any]()

    def dies_the_second_time(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 2:
            raise Killed
        real(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, step, dies_the_second_time)
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: None)
        with pytest.raises(Killed):
            parts.compact(folder, pytest.fail)
    assert fill(tmp_path, questions(15)).requests == []
    parts.compact(folder, pytest.fail)
    assert [path.name for path in folder.glob("merge-*")] == []
    assert (stored(tmp_path), cache_report(tmp_path)[0].parts) == (15, 1)


def test_one_process_at_a_time_compacts(tmp_path: Path) -> None:
    for n in range(3):
        fill(tmp_path, questions(1, first=n))
    folder = only_folder(tmp_path)
    with parts._alone(folder / "compact.lock") as alone:
        assert alone
        parts.compact(folder, pytest.fail)
    assert cache_report(tmp_path)[0].parts == 3


def test_a_disk_without_room_for_both_is_not_filled_by_a_compaction(tmp_path: Path) -> None:
    for n in range(3):
        fill(tmp_path, questions(1, first=n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 1000, 1000))  # type: ignore[attr-defined]
        parts.compact(only_folder(tmp_path), pytest.fail)
    assert cache_report(tmp_path)[0].parts == 3


# --- broken files


def sealed(root: Path) -> list[Path]:
    return parts.sealed_parts(only_folder(root))


def overwrite(path: Path, at: int, with_bytes: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(with_bytes)


def break_body(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE completions SET body = x'7B22'")
    db.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"this is no database " * 500),
        lambda path: path.write_bytes(b""),
        lambda path: overwrite(path, 0, b"\0" * 100),
        lambda path: overwrite(path, 4096, os.urandom(path.stat().st_size - 4096)),
        lambda path: os.truncate(path, path.stat().st_size // 2),
        break_body,
    ],
    ids=["not a database", "empty", "no header", "rubbish pages", "cut in half", "rubbish rows"],
)
def test_a_broken_part_is_set_aside_with_a_warning_and_the_others_answer(
    tmp_path: Path, damage: Callable[[Path], Any]
) -> None:
    fill(tmp_path, questions(200))
    fill(tmp_path, questions(200, first=200))
    broken = sealed(tmp_path)[0]
    damage(broken)
    warnings: list[str] = []
    inner = LateEngine(marked)
    engine = CachedEngine(inner, tmp_path, on_warning=warnings.append)
    assert ask(engine, questions(400)) == right(questions(400))
    engine.close()
    assert len(inner.requests) == 200
    assert len(warnings) == 1
    assert str(broken) in warnings[0] and "set aside as" in warnings[0] and "asked again" in warnings[0]
    assert not broken.exists()
    assert broken.with_name(f"{broken.name}.corrupt").exists()
    assert fill(tmp_path, questions(400), on_warning=pytest.fail).requests == []


def test_a_broken_live_part_is_set_aside_too(tmp_path: Path, start: Any) -> None:
    kill(start(tmp_path, "me", 0, 5))
    (live,) = tmp_path.rglob("*.live")
    overwrite(live, 0, b"rubbish " * 1024)
    live.with_name(f"{live.name}-wal").write_bytes(b"rubbish " * 1024)
    warnings: list[str] = []
    assert len(fill(tmp_path, questions(5), owner="me", on_warning=warnings.append).requests) == 5
    assert len(warnings) == 1 and str(live) in warnings[0]
    assert live.with_name(f"{live.name}.corrupt").exists()


@pytest.mark.hazard("C19")
def test_a_torn_log_keeps_the_transactions_before_the_tear(tmp_path: Path, start: Any) -> None:
    kill(start(tmp_path, "me", 0, 40))
    (log,) = tmp_path.rglob("*.live-wal")
    os.truncate(log, log.stat().st_size - 1000)
    inner = fill(tmp_path, questions(40), owner="me", on_warning=pytest.fail)
    assert 0 < len(inner.requests) < 40


def test_a_part_of_a_newer_format_is_not_used_and_not_touched(tmp_path: Path) -> None:
    fill(tmp_path, questions(3))
    (part,) = sealed(tmp_path)
    with sqlite3.connect(part) as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    warnings: list[str] = []
    assert len(fill(tmp_path, questions(3), on_warning=warnings.append).requests) == 3
    assert len(warnings) == 1 and "format 99 is newer" in warnings[0]
    assert part.exists()


def test_a_broken_part_does_not_stop_a_compaction_for_good(tmp_path: Path) -> None:
    for n in range(17):
        fill(tmp_path, questions(3, first=3 * n))
    sealed(tmp_path)[5].write_bytes(b"rubbish " * 1000)
    warnings: list[str] = []
    inner = fill(tmp_path, questions(51), on_warning=warnings.append)
    assert len(inner.requests) == 3
    assert len(warnings) == 1
    assert fill(tmp_path, questions(51)).requests == []
    assert stored(tmp_path) == 51


# --- a full disk

FULL = """
import resource, sys
from pathlib import Path
from debate_local.core.chat import Completion
from debate_local.engines.cache import CachedEngine, CacheFull
from tests.engines.test_cache import ask, questions
from tests.fakes import LateEngine, marked

limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
engine = CachedEngine(LateEngine(marked), Path(sys.argv[1]), owner="me", on_warning=print)
handed_out = 0
try:
    for first in range(0, 100_000, 100):
        handed_out += len(ask(engine, questions(100, first)))
except CacheFull as error:
    print(error)
    engine.close()
    print(handed_out)
"""


@pytest.mark.parametrize("limit", [1_000, 20_000, 200_000, 2_000_000])
def test_a_full_disk_is_one_named_error_and_nothing_committed_is_lost(tmp_path: Path, limit: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), str(limit)], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert done.returncode == 0, done.stderr
    *_, error, handed_out = [line for line in done.stdout.splitlines() if "could not be sealed" not in line]
    assert str(tmp_path) in error and "make room" in error and "cache=off" in error
    count = int(handed_out)
    assert count > 0 or limit < 100_000
    assert fill(tmp_path, questions(count), owner="me").requests == []


def test_cache_full_says_which_file_system_and_keeps_the_cause(tmp_path: Path) -> None:
    error = CacheFull(tmp_path, sqlite3.OperationalError("database or disk is full"))
    assert str(tmp_path) in str(error) and "database or disk is full" in str(error)


# --- keys


def test_the_key_in_the_file_is_the_requests_key(tmp_path: Path) -> None:
    fill(tmp_path, questions(1))
    (part,) = sealed(tmp_path)
    db = sqlite3.connect(part)
    ((key,),) = db.execute("SELECT key FROM completions").fetchall()
    db.close()
    assert key.hex() == request_key(questions(1)[0], only_folder(tmp_path).name)


def test_a_scripted_engine_that_failed_is_asked_again_without_its_faults(tmp_path: Path) -> None:
    asked = [request(f"What is {n} + 1?", id=str(n)) for n in range(50)]
    engine = CachedEngine(scripted(fail=0.4), tmp_path)
    failed = sum(completion.failed for completion in ask(engine, asked).values())
    engine.close()
    again = CachedEngine(scripted(), tmp_path)
    assert not any(completion.failed for completion in ask(again, asked).values())
    assert again.sent == failed > 0
    again.close()


def test_a_hit_does_not_wait_for_a_slow_engine(tmp_path: Path) -> None:
    def engine() -> CachedEngine:
        return CachedEngine(ScriptedEngine(marked, latency=1e6), tmp_path)

    first = CachedEngine(ScriptedEngine(marked), tmp_path)
    ask(first, questions(1))
    first.close()
    second = engine()
    second.submit(questions(2))
    # A timeout of an hour: the test would not end if a hit waited for the engine.
    assert [id for id, _ in second.poll(3600)] == ["0"]
    second.close()


def test_a_request_that_is_no_json_fails_alone(tmp_path: Path) -> None:
    engine = CachedEngine(LateEngine(marked), tmp_path)
    odd = replace(request("odd", id="odd"), template_args={"when": {1, 2}})
    found = ask(engine, [odd, request("plain", id="plain")])
    assert found["odd"].failed and "JSON" in str(found["odd"].error)
    assert not found["plain"].failed
    engine.close()
