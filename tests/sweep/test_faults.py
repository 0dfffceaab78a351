"""What one cell, row or reply does wrong ends there: the rest of the night goes on. Each test was once a fault."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import debate_local
from debate_local.analysis.summary import verdict
from debate_local.cli import main
from debate_local.sweep.options import OptionFault
from debate_local.sweep.sharing import beside
from debate_local.sweep.store import StoreFault
from tests.sweep.test_run import BASE, assert_equal_tables, run, sent

pytestmark = pytest.mark.slow

TASK = """
from debate_local.core.task import Metric, grade_answers
from debate_local.core.transcript import Answer, Item



class Task:
    name, votable, answer_format = "{name}", True, "Say it."
    metric = Metric("error rate", higher_is_better=False) if "{mode}" == "lower" else Metric("accuracy")

    def __init__(self, shots): self.shots = shots
    def items(self): return [Item({id}, f"What is {{n}}+1?", str(n + 1)) for n in range(4)]
    def ask(self, item): return "For example, 1+1 is 2. " * self.shots + f"{{item.question}} {{self.answer_format}}"
    def same(self, a, b): return a.key == b.key
    def grade(self, transcript, item): return grade_answers(transcript, item, self.score)

    def read(self, text, item):
        return Answer({key}, {key}, "all")

    def score(self, answer, item):
        {score}


def {name}(shots: int = 0):
    return Task(shots)
"""


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Make a task module of the user's own; `mode` says what is wrong with it."""
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def make(mode: str, **parts: str) -> str:
        package = f"lab_{mode}"
        given = {
            "id": "str(n)",
            "key": "str(len(text))",
            "score": "return 1.0",
            "name": f"own_{mode}",
            "mode": mode,
        } | parts
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()
        (folder / package / f"{given['name']}.py").write_text(TASK.format(**given))
        return f"task={package}.{given['name']}"

    return make


def test_cells_that_differ_in_what_is_asked_are_runs_of_their_own(task, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    sweep = debate_local.run(
        ["engine=scripted", task("shots"), "task.shots=0,2", "controls=false", f"output={tmp_path}"], multirun=True
    )
    assert len({cell.run.id for cell in sweep.cells}) == 2


@pytest.mark.parametrize(
    ("mode", "parts"),
    [
        ("raises", {"score": "raise KeyError('a bug')"}),
        ("nan", {"score": "return float('nan')"}),
        ("keys", {"key": "len(text)"}),
    ],
)
def test_a_task_whose_code_fails_ends_its_own_cells_only(  # type: ignore[no-untyped-def]
    mode: str, parts: dict[str, str], task, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = ["engine=scripted", f"{task(mode, **parts)},arithmetic", "limit=2", "controls=false"]
    assert main(["run", "-m", *overrides, f"output={tmp_path / 'runs'}"]) == 1
    told = capsys.readouterr()
    assert "2 debates failed" in told.err and "Traceback" not in told.err
    assert [path.parent.name.split("-")[0] for path in (tmp_path / "runs").glob("*/done")] == ["arithmetic"]


@pytest.mark.hazard("C21")
@pytest.mark.parametrize(
    ("mode", "id", "says"), [("ids", "n", "its id must be a text"), ("same", "'one'", "one item id twice")]
)
def test_items_that_cannot_be_stored_are_refused_before_anything_runs(  # type: ignore[no-untyped-def]
    mode: str, id: str, says: str, task, tmp_path: Path
) -> None:
    with pytest.raises(OptionFault, match=says):
        debate_local.run(["engine=scripted", task(mode, id=id), f"output={tmp_path}"])


def test_lower_is_better_is_told_the_right_way_round(task, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    # The shorter the reply, the lower the error: a debate's later replies are as short as the first ones.
    name = task("lower", score="return float(answer.key != item.target)")
    sweep = debate_local.run(["engine=scripted", name, f"output={tmp_path}"])
    found = verdict(sweep)
    assert found is not None
    d = found.difference
    assert not d.tells or ("better" in found.text) == (d.value < 0)


@pytest.mark.hazard("A47")
def test_a_run_whose_every_request_failed_is_not_done_and_is_mended_by_running_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", *BASE, "limit=3", "controls=false", f"output={tmp_path}"]
    assert main([*command, "engine.fail=1"]) == 1
    assert "the engine failed all 18 requests" in capsys.readouterr().err
    assert main(command) == 0
    assert list(tmp_path.glob("*/done"))


def test_tables_are_equal_between_schedules_when_requests_fail(tmp_path: Path) -> None:
    faults = ["limit=12", "engine.fail=0.2", "engine.too_long=0.1", "protocol.agents=2,3"]
    assert_equal_tables(run(tmp_path / "a", *faults), run(tmp_path / "b", *faults, "schedule=continuous", "max_live=2"))


def test_a_cell_without_an_exchange_is_never_the_best_debate(tmp_path: Path) -> None:
    sweep = run(tmp_path, "limit=10", "protocol.agents=1,3", "protocol.topology=full,none")
    found = verdict(sweep)
    assert found is not None and found.best.label == "debate agents=3 rounds=2"


def test_a_cell_that_was_asked_for_and_is_a_control_too_keeps_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "-m", *BASE, "limit=3", f"output={tmp_path}", "protocol.topology=full,none"]) == 0
    shown = capsys.readouterr().out
    assert "?" not in shown and "reflect of 1" in shown
    assert shown.count("\n  2 ") == 1


def test_tasks_are_told_apart_in_tables_and_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = ["engine=scripted", "task=arithmetic,arithmetic_du2023_text", "limit=3,5", f"output={tmp_path}"]
    assert main(["run", "-m", *overrides, "controls=false"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("arithmetic, 3 items") == 2 and shown.count("arithmetic, 5 items") == 2


def test_two_starts_of_one_sweep_at_once_are_one_run(tmp_path: Path) -> None:
    slow = [*BASE, "limit=6", "controls=false", f"output={tmp_path}", "engine.latency=0.3"]
    first = subprocess.Popen([sys.executable, "-m", "debate_local.cli", "run", *slow], stdout=subprocess.DEVNULL)
    while not list(tmp_path.glob("sweeps/*/logs/*.jsonl")):
        assert first.poll() is None
        time.sleep(0.01)
    with pytest.raises(StoreFault, match=f"being run already, by process {first.pid}"):
        debate_local.run(slow)
    assert first.wait(timeout=60) == 0
    assert sent(debate_local.run(slow)) == 0


def test_many_cells_do_not_need_many_open_files(tmp_path: Path) -> None:
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128)); "
        "from debate_local.cli import main; sys.exit(main())"
    )
    overrides = [*BASE, "limit=2", "controls=false", f"output={tmp_path}", "seed=range(0,100)"]
    done = subprocess.run([sys.executable, "-c", limited, "run", "-m", *overrides], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("*/done"))) == 100


def test_an_unfinished_run_of_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    sweep = run(tmp_path, "limit=2", "controls=false")
    folder = sweep.runs[0].folder
    (folder / "done").unlink()
    (folder / "run.json").write_text('{"schema_version": 99}')
    with pytest.raises(StoreFault, match="schema version 99"):
        run(tmp_path, "limit=2", "controls=false")
    assert json.loads((folder / "run.json").read_text()) == {"schema_version": 99}


@pytest.mark.parametrize("name", ["debates.parquet", "turns.parquet", "run.json"])
@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_a_done_run_that_lost_a_file_is_made_again_from_the_cache(tmp_path: Path, name: str, damage: str) -> None:
    whole = run(tmp_path / "whole", "limit=3", "controls=false")
    hurt = run(tmp_path / "hurt", "limit=3", "controls=false")
    path = hurt.runs[0].folder / name
    path.unlink() if damage == "missing" else os.truncate(path, 0)
    again = run(tmp_path / "hurt", "limit=3", "controls=false")
    assert sent(again) == 0
    assert_equal_tables(whole, again)


def test_left_overs_of_a_killed_attempt_are_swept_away(tmp_path: Path) -> None:
    first = run(tmp_path, "limit=2", "controls=false")
    folder = first.runs[0].folder
    (folder / "done").unlink()
    # Numbers of processes go round; none is as large as this.
    left = beside(folder / "turns.parquet").name.replace(f".{os.getpid()}.", ".2147483646.")
    (folder / left).write_text("half")
    run(tmp_path, "limit=2", "controls=false")
    assert sorted(path.name for path in folder.iterdir()) == ["debates.parquet", "done", "run.json", "turns.parquet"]


def test_a_reply_with_control_characters_does_not_colour_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "replies.yaml"
    script.write_text('- reply: "\\e[31mred\\e[0m The answer is 7."\n')
    sweep = run(tmp_path, "limit=1", "controls=false", f"engine.replies={script}")
    assert main(["show", str(sweep.runs[0].folder), "--item", "1", "--prompts"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_labels_tell_cells_apart_that_vary_in_several_seeds(tmp_path: Path) -> None:
    sweep = run(tmp_path, "limit=1", "controls=false", "task.seed=0,1", "seed=0,1", "engine.seed=0,1")
    assert len({run.label for run in sweep.runs}) == 8
