"""`status SWEEP --log`: what all workers told, as a person reads it in the morning."""

import json
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from debate_local.cli import main
from debate_local.commands.joint_log import drawn_log
from debate_local.engines.memory import GIB
from debate_local.engines.pool import Switch
from debate_local.sweep.store import load_sweep
from tests.sweep.test_shards import frozen, work

DAY = time.mktime((2026, 12, 1, 0, 0, 0, 0, 0, -1))
LABELS = {"r1": "debate agents=3", "r2": "single"}


def worker(number: int, more: int = 0) -> str:
    return f"0123abcd-{number:04d}{f'+{more}' if more else ''}-20261201-000000-node7-{100 + number}"


def drawn(*events: dict[str, Any]) -> list[str]:
    """The lines of events, which come a second apart and from shard 3 unless they say otherwise."""
    timed = [{"time": DAY + n, "worker": worker(3), **event} for n, event in enumerate(events)]
    return [text.plain for text in drawn_log(timed, LABELS)]


END = {"event": "end", "problems": [], "sent": 1, "stopped": ""}


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            {"event": "start", "runs": 60, "todo": 12, "debates": 480, "turns": 3840, "sweep": "s", "command": ["x"]},
            "begins: 12 of 60 runs to do, 480 debates, at most 3,840 turns",
        ),
        (
            {"event": "start", "runs": 1, "todo": 0, "debates": 0, "turns": 0},
            "begins: nothing is left to do of 1 run",
        ),
        ({"event": "loading", "engine": "vllm"}, "engine vllm is loading"),
        ({"event": "loading", "engine": "vllm", "models": ["a", "b"]}, "engine vllm (a, b) is loading"),
        ({"event": "warning", "text": "the [red] context is short"}, "warning: the [red] context is short"),
        ({"event": "restart", "engine": "vllm", "reason": "CUDA"}, "engine vllm died and is started again: CUDA"),
        (
            {"event": "switch", "engine": "vllm", **asdict(Switch(("a",), ("b",), 2 * GIB, 9 * GIB))},
            "engine vllm: a closed; free memory 2.0 GiB -> 9.0 GiB; loading b ...",
        ),
        (
            {"event": "mixed", "engine": "vllm", "completions": 7, "facts": {"vllm": "0.31"}},
            "a mix: 7 completions were made with {'vllm': '0.31'}; floating-point results may differ between versions "
            "and machines",
        ),
        (
            {"event": "run_end", "run": "r1", "debates": 16, "errors": 2},
            "stored 16 debates of 1 cell (2 failed): debate agents=3",
        ),
        (
            {"event": "stopped", "engine": "vllm", "reason": "stop.at: the first 5 of 9 items were debated"},
            "engine vllm begins no more debates: stop.at: the first 5 of 9 items were debated",
        ),
        (
            {
                "event": "engine",
                "name": "vllm",
                "turns": 3840,
                "sent": 1200,
                "hits": 40,
                "shared": 2600,
                "failed": 1,
                "generated_tokens": 360_000,
                "seconds": 3600,
                "facts": {"versions": {}},
            },
            "engine vllm is closed after 1:00:00: 3,840 turns came back, 1,200 were sent, 2,640 shared or cached, "
            "1 request failed; 360,000 tokens generated, 100 a second",
        ),
        (END, "ends: done"),
        ({**END, "stopped": "stop.at"}, "ends before all is done: stop.at"),
        ({**END, "problems": ["engine vllm: dead", "run r2: 1 failed"]}, "ends with problems: engine vllm: dead; run"),
    ],
    ids=lambda value: value["event"] if isinstance(value, dict) else None,
)
def test_each_event_is_a_sentence_with_its_time_and_its_worker(event: dict[str, Any], said: str) -> None:
    day, line, *_ = drawn(event, END)
    assert day == "Tuesday 2026-12-01"
    assert line.startswith(f"00:00:00  shard 3  {said}")


def test_workers_are_called_as_a_person_calls_them() -> None:
    events = [{**END, "worker": name} for name in (worker(12), worker(0, more=2), "20261201-000000-node7-5")]
    _, *lines = drawn(*events)
    assert [re.split(r"\s{2,}", line)[1] for line in lines] == ["shard 12", "shards 0 +2", "sweep"]


def test_a_trace_is_indented_below_its_event_and_a_new_day_has_a_line() -> None:
    trace = "Traceback\n  File x\nValueError: no"
    lines = drawn({"event": "warning", "text": "broken", "trace": trace}, {**END, "time": DAY + 86_400})
    assert lines[1].endswith("warning: broken\n    Traceback\n      File x\n    ValueError: no")
    assert [line for line in lines if "2026" in line] == ["Tuesday 2026-12-01", "Wednesday 2026-12-02"]


def test_what_several_workers_warn_of_in_the_same_words_stands_there_once() -> None:
    same = [{"event": "warning", "text": "long prompts", "worker": worker(n)} for n in range(3)]
    lines = drawn(*same, {"event": "warning", "text": "another"}, *({**END, "worker": worker(n)} for n in range(4)))
    told = [line for line in lines if "long prompts" in line]
    assert len(told) == 1 and told[0].endswith("shard 0  warning: long prompts (so shard 1, shard 2)")
    many = drawn(*[{"event": "warning", "text": "long prompts", "worker": worker(n)} for n in range(9)])
    assert many[1].endswith("(so 8 others)")


def test_cells_that_are_stored_one_after_the_other_are_one_line() -> None:
    ends = [{"event": "run_end", "run": run, "debates": 2, "errors": 0} for run in ("r1", "r2", "r3", "r4", "r5")]
    lines = drawn(*ends, END)
    assert lines[1:] == [
        "00:00:04  shard 3  stored 10 debates of 5 cells: debate agents=3; single; r3, and 2 more",
        "00:00:05  shard 3  ends: done",
    ]


def test_a_worker_that_was_killed_is_named_at_the_end() -> None:
    lines = drawn({"event": "loading", "engine": "vllm"}, {**END, "worker": worker(4)})
    assert lines[-1].startswith("--:--:--  shard 3  the one that began at 00:00:00 has not ended")


def test_the_joint_log_of_real_shards_is_in_order_and_tells_of_a_failure_with_its_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = frozen(tmp_path, 2, "engine.dead_after=9", "max_restarts=0")
    assert (work(plan, "1/2"), work(plan, "0/2")) != (0, 0)
    capsys.readouterr()
    assert main(["status", str(plan.folder), "--log"]) == 0
    told = capsys.readouterr().out
    times = re.findall(r"^(\d\d:\d\d:\d\d)  (shard \d)", told, re.MULTILINE)
    assert [moment for moment, _ in times] == sorted(moment for moment, _ in times)
    assert times[0][1] == "shard 1" and times[-1][1] == "shard 0"
    assert "    Traceback (most recent call last):" in told and "ends with problems: engine scripted" in told
    assert "'event'" not in told and "facts" not in told
    kinds = {json.loads(line)["event"] for log in plan.folder.glob("logs/events*") for line in log.open()}
    assert {"start", "engine", "end"} <= kinds and not any(run.done for run in load_sweep(plan.folder).runs)
