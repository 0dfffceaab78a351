"""Engines that end in the middle of a night, and engines that follow one another."""

import json
from pathlib import Path
from typing import Any

import pytest

import debate_local
from debate_local.cli import main
from debate_local.engines.cache import cache_report
from tests.engines.fake_vllm import FakeVllm, Said
from tests.engines.tiny import save_tiny
from tests.sweep.test_run import sent

pytestmark = pytest.mark.slow

# The first engine answers 20 requests and dies; the next ones die at once, until somebody mends them.
DOOMED = """
from pathlib import Path
from debate_local.engines.scripted import scripted

HERE = Path(__file__).parent
made = 0

def doomed():
    global made
    made += 1
    if (HERE / "mended").exists():
        return scripted()
    return scripted(dead_after=20 if made == 1 else 0)
"""


def events(output: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for log in output.glob("sweeps/*/logs/*.jsonl") for line in log.read_text().splitlines()]
    return [event for event in found if event["event"] == kind]


@pytest.mark.hazard("B13")
def test_an_engine_that_does_not_come_back_loses_nothing_is_given_up_and_ends_with_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = tmp_path / "night_lab"
    lab.mkdir()
    (lab / "__init__.py").touch()
    (lab / "doomed.py").write_text(DOOMED)
    monkeypatch.syspath_prepend(str(tmp_path))
    output = tmp_path / "runs"
    command = ["run", "engine=night_lab.doomed", "task=arithmetic", "limit=10", "controls=false", f"output={output}"]
    assert main([*command, "max_restarts=1"]) == 1
    assert "died" in capsys.readouterr().err
    assert len(events(output, "restart")) == 1
    assert not list(output.glob("*/done"))
    # What was answered is on disk, and is not asked again.
    assert sum(part.entries for part in cache_report(output / "cache")) == 20
    (lab / "mended").touch()
    assert main(command) == 0
    # 3 agents and 2 rounds.
    assert events(output, "end")[-1]["sent"] + 20 == 10 * 3 * 2


@pytest.mark.hazard("B14")
def test_cells_are_grouped_by_model_and_a_model_has_ended_before_the_next_one_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [str(save_tiny(tmp_path / name, top_k=top_k)) for name, top_k in (("one", 1), ("two", 2))]
    fake = FakeVllm(answer=lambda params: Said("The answer is 7."), context=4096).install(monkeypatch)
    monkeypatch.setenv("DEBATE_LOCAL_CACHE", str(tmp_path / "cache"))
    # The model varies slowest here, and fastest there.
    for order in (["engine.model", "protocol.rounds"], ["protocol.rounds", "engine.model"]):
        values = {"engine.model": ",".join(models), "protocol.rounds": "1,2"}
        fixed = ["engine=vllm", "engine.kv_cache_gib=0.1", "engine.max_model_len=4096", "sampling.max_tokens=64"]
        sweep = debate_local.run(
            [*fixed, "task=arithmetic", "limit=2", *(f"{name}={values[name]}" for name in order),
             f"output={tmp_path / order[0]}"],
            multirun=True,
        )  # fmt: skip
        assert all(run.done for run in sweep.runs) and sent(sweep) > 0
        assert fake.events == ["start", "end", "start", "end"]
        fake.events.clear()
