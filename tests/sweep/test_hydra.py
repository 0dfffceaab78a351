"""Hydra's and YAML's traps: what is typed is what is run, on every launcher, from whatever folder, now and later."""

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.compose import compose
from debate_local.sweep.config import Cell, Choice
from debate_local.sweep.labels import slug
from debate_local.sweep.options import OptionFault
from debate_local.sweep.store import Sweep, load_sweep
from tests.sweep.test_run import assert_equal_tables, tables

pytestmark = pytest.mark.slow

BASE = ["engine=scripted", "task=arithmetic", "limit=3", "controls=false"]
# All that has a meaning to Hydra, to a shell, to YAML or to a glob.
ODD = "They said: \"one, two/three\" @home, über 100 % [of] {it} = 'yes' | no & $HOME `x` * ? ~ # ½ 日本"
FOLDER = 'a night, [1] @home\'s "ü" = ½ & $x*?'
PROMPT = ODD + " {{ peers[0].text }}"


def quoted(text: str) -> str:
    """A text as a value on the command line: in Hydra's quotes."""
    return "'" + text.replace("'", "\\'") + "'"


def sweep_of(output: Path) -> Sweep:
    (folder,) = (output / "sweeps").iterdir()
    return load_sweep(folder)


def typed(told: str, before: str) -> list[str]:
    """The words of a command that was printed after these words, as a shell would take them when it is pasted."""
    (line,) = (line for line in told.splitlines() if line.strip().startswith(before))
    program, *words = shlex.split(line.strip().removeprefix(before))
    assert program == "debate-local"
    return words


def assert_asked_in_these_words(sweep: Sweep) -> None:
    for run in sweep.runs:
        assert run.record["templates"]["debate"] == PROMPT
        later = run.turns.filter(run.turns["round"] == 1)
        assert (
            len(later) and later["prompt"].str.contains(json.dumps(ODD, ensure_ascii=False)[1:-1], literal=True).all()
        )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    overrides = [*BASE, "protocol.agents=2,3", f"prompt.debate={quoted(PROMPT)}"]
    return debate_local.run([*overrides, f"output={tmp_path_factory.mktemp('whole')}"], multirun=True)


def odd(output: Path, *more: str) -> list[str]:
    given = ["protocol.agents=2,3", f"prompt.debate={quoted(PROMPT)}", f"output={quoted(str(output))}"]
    return ["run", "-m", *BASE, *given, *more]


# What is typed is what is run


@pytest.mark.hazard("C03")
def test_commas_quotes_and_letters_of_all_kinds_arrive_in_one_process(
    undisturbed: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(odd(tmp_path / FOLDER)) == 0
    sweep = sweep_of(tmp_path / FOLDER)
    assert_asked_in_these_words(sweep)
    assert_equal_tables(undisturbed, sweep)
    assert main(typed(capsys.readouterr().out, "a transcript: ")) == 0
    assert ODD.split(",")[0] not in capsys.readouterr().out, "prompts are shown when asked for"
    for command in ("status", "show", "resume"):
        assert main([command, str(sweep.folder)]) == 0
    assert typed(capsys.readouterr().out, "all done: ") == ["show", str(sweep.folder)]


@pytest.mark.hazard("C03")
def test_they_arrive_in_shards_that_somebody_else_runs(
    undisturbed: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(odd(tmp_path / FOLDER, "hydra/launcher=freeze", "hydra.launcher.shards=2")) == 0
    command, folder, option, shard = typed(capsys.readouterr().out.replace("(I from 0)", ""), "a worker: ")
    for number in "01":
        assert main([command, folder, option, shard.replace("I", number)]) == 0
    assert_asked_in_these_words(load_sweep(Path(folder)))
    assert_equal_tables(undisturbed, load_sweep(Path(folder)))


@pytest.mark.slow
@pytest.mark.hazard("C03")
def test_they_arrive_at_workers_of_this_machine(
    undisturbed: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local = ["hydra/launcher=local", "hydra.launcher.shards=2", "hydra.launcher.workers=2"]
    assert main(odd(tmp_path / FOLDER, *local)) == 0, capsys.readouterr().err
    assert_asked_in_these_words(sweep_of(tmp_path / FOLDER))
    assert_equal_tables(undisturbed, sweep_of(tmp_path / FOLDER))


@pytest.mark.parametrize("name", ["C:night", "s3:x", "file:x", "[1]", "-night"])
def test_a_folder_beside_us_may_be_called_like_an_address_a_pattern_or_an_option(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = debate_local.run([*BASE, f"output={quoted(name)}"])
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert len(sweep.runs[0].turns) == 3 * 6


def test_a_home_folder_is_the_persons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    debate_local.run([*BASE, "output='~/runs'"])
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@pytest.mark.hazard("C03")
@pytest.mark.parametrize("override", ["prompt.debate=a: {b", "prompt.debate='a", "output=~/runs"])
def test_what_hydra_cannot_read_is_answered_with_how_it_is_quoted(
    override: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *BASE, override]) == 2
    assert "two kinds of quotes: 'prompt.debate=\"Others say: ...\"'" in capsys.readouterr().err


def test_a_letter_that_the_terminal_lacks_does_not_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "terminal").open("w", encoding="latin-1") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        assert main(["run", *BASE, f"output={quoted(str(tmp_path / '日本'))}"]) == 0
    assert "\\u65e5\\u672c" in (tmp_path / "terminal").read_text(encoding="latin-1")


# A cell of a sweep is what it is alone


@pytest.mark.hazard("C02")
@pytest.mark.parametrize(
    ("sweep", "alone"),
    [
        (["limit='5','6'"], [["limit='5'"], ["limit='6'"]]),
        (["seed=1,'2'"], [["seed=1"], ["seed='2'"]]),
        (["controls=yes,no"], [["controls=yes"], ["controls=no"]]),
        (["shuffle=null,'7'"], [["shuffle=null"], ["shuffle='7'"]]),
        (["+cast.0.persona=a,b"], [["+cast.0.persona=a"], ["+cast.0.persona=b"]]),
        (["sampling.stop=['a,b'],[c]"], [["sampling.stop=['a,b']"], ["sampling.stop=[c]"]]),
        (["protocol.agents=1,2", "++protocol.agents=5"], [["protocol.agents=5"]] * 2),
        (["protocol.agents=1,2", "protocol={agents:5}"], [["protocol.agents=5"]] * 2),
        (["++protocol.agents=5", "protocol.agents=1,2"], [["protocol.agents=1"], ["protocol.agents=2"]]),
        (["limit=3,4", "offset=${limit}"], [["limit=3", "offset=3"], ["limit=4", "offset=4"]]),
        (["sampling=greedy,default", "sampling.top_p=0.5"], [["sampling=greedy", "sampling.top_p=0.5"],
                                                             ["sampling=default", "sampling.top_p=0.5"]]),
    ],
)  # fmt: skip
def test_a_cell_of_a_sweep_is_what_its_own_overrides_compose(sweep: list[str], alone: list[list[str]]) -> None:
    cells, _ = compose(["engine=scripted", *sweep], multirun=True)
    assert cells == [compose(["engine=scripted", *one])[0][0] for one in alone]


@pytest.mark.hazard("C02")
@pytest.mark.parametrize("order", ["seed=1,2", "seed=2,1"])
def test_runs_of_one_process_are_what_they_are_in_processes_of_their_own(order: str, tmp_path: Path) -> None:
    more = ["task.distinct=true", "engine.fail=0.1", "shuffle=3"]
    both = tables(debate_local.run([*BASE, *more, order, f"output={tmp_path / 'both'}"], multirun=True))
    for seed in (1, 2):
        alone = tables(debate_local.run([*BASE, *more, f"seed={seed}", f"output={tmp_path / str(seed)}"]))
        ((name, frames),) = alone.items()
        assert all(one.equals(other) for one, other in zip(frames, both[name], strict=True))


# Names


@pytest.mark.hazard("C04")
def test_a_run_folder_is_a_short_plain_word_whatever_is_swept() -> None:
    (cell,), _ = compose(["engine=scripted", "seed=12345"])
    names = set()
    for model in ("org/a", "org/b", "a, b", "ü" * 300):
        for task in ("lab.tasks.mine", "lab." + "very_" * 60 + "long"):
            member = replace(cell.cast[0], model=model, persona=model)
            names.add(slug(_changed(cell, task=Choice(task, {}), cast=(member,)), "0123abcd"))
    assert len(names) == 2, "models and personas tell runs apart by the hash"
    for name in names:
        assert len(name) <= 100 and name.replace("-", "").replace(".", "").isalnum() and name.isascii()


def _changed(cell: Cell, **instead: object) -> Cell:
    return replace(cell, **instead)  # type: ignore[arg-type]


@pytest.mark.hazard("C04")
def test_models_with_slashes_are_runs_beside_each_other(tmp_path: Path) -> None:
    members = "cast=[{persona: 'org/a, b=c'}],[{persona: 'org/a, b=d'}]"
    sweep = debate_local.run([*BASE, members, f"output={tmp_path}"], multirun=True)
    assert len({run.folder for run in sweep.runs}) == 2
    assert {run.folder.parent for run in sweep.runs} == {tmp_path}


@pytest.mark.hazard("C05")
def test_names_do_not_depend_on_who_launches(tmp_path: Path) -> None:
    swept = [*BASE, "protocol.agents=2,3"]
    assert main(["run", "-m", *swept, f"output={tmp_path / 'fused'}"]) == 0
    frozen = ["hydra/launcher=freeze", "hydra.launcher.shards=3"]
    assert main(["run", "-m", *swept, *frozen, f"output={tmp_path / 'frozen'}"]) == 0
    by_python = debate_local.run([*swept, f"output={tmp_path / 'python'}"], multirun=True)
    one, other = sweep_of(tmp_path / "fused"), next((tmp_path / "frozen" / "sweeps").iterdir())
    assert one.folder.name == other.name == by_python.folder.name
    planned = [run["id"] for run in json.loads((other / "plan.json").read_text())["runs"]]
    assert [run.id for run in one.runs] == planned == [run.id for run in by_python.runs]


# Folders


@pytest.mark.hazard("C06")
def test_a_sweep_goes_on_from_any_folder_with_paths_as_they_were_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here, elsewhere):
        folder.mkdir()
    (here / "rows.jsonl").write_text(
        '{"id": "1", "question": "1+1?", "target": 2}\n{"id": "2", "question": "1+2?", "target": 3}\n'
    )
    (here / "replies.yaml").write_text("- reply: The answer is 2.\n")
    monkeypatch.chdir(here)
    rows = ["engine=scripted", "engine.replies=replies.yaml", "task=jsonl", "task.path=rows.jsonl", "controls=false"]
    assert main(["run", "-m", *rows, "hydra/launcher=freeze", "hydra.launcher.shards=2"]) == 0
    monkeypatch.chdir(elsewhere)
    (sweep,) = (here / "runs" / "sweeps").iterdir()
    assert main(["work", f"../here/runs/sweeps/{sweep.name}", "--shard", "0/2"]) == 0, capsys.readouterr().err
    assert main(["resume", f"../here/runs/sweeps/{sweep.name}"]) == 0, capsys.readouterr().err
    assert Path.cwd() == elsewhere and not list(elsewhere.iterdir())
    assert all(run.done for run in load_sweep(sweep).runs)


@pytest.mark.parametrize("how", ["from within", "by a link", "by its name"])
def test_a_sweeps_folder_may_be_named_in_any_way(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = debate_local.run([*BASE, f"output={tmp_path / 'runs'}"])
    (tmp_path / "latest").symlink_to(sweep.folder)
    folder, name = {
        "from within": (sweep.folder, "."),
        "by a link": (tmp_path, "latest"),
        "by its name": (sweep.folder.parent, sweep.folder.name),
    }[how]
    monkeypatch.chdir(folder)
    assert main(["status", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"]
    assert main(["show", name]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert main(["resume", name]) == 0
    assert "0 sent to an engine now" in capsys.readouterr().out


# Later, and elsewhere


@pytest.mark.hazard("C08")
def test_what_interpolates_is_resolved_when_the_sweep_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEBATE_WORD", "Gentlemen")
    swept = [
        "output='${hydra:runtime.cwd}/${oc.env:DEBATE_WORD}'",
        "prompt.debate='${oc.env:DEBATE_WORD}: {{ peers[0].text }}'",
    ]
    assert main(["run", "-m", *BASE, *swept, "seed=0,1", "hydra/launcher=freeze"]) == 0
    monkeypatch.delenv("DEBATE_WORD")
    (folder,) = (tmp_path / "Gentlemen" / "sweeps").iterdir()
    assert "${" not in (folder / "plan.json").read_text().replace(json.dumps(swept[0])[1:-1], "").replace(
        json.dumps(swept[1])[1:-1], ""
    ), "but for the command, as it was typed"
    assert main(["work", str(folder)]) == 0
    for run in load_sweep(folder).runs:
        assert run.record["templates"]["debate"] == "Gentlemen: {{ peers[0].text }}"


# YAML's and JSON's ideas of numbers and truth


@pytest.mark.hazard("C26")
def test_words_stay_words() -> None:
    for word in ("no", "off", "y", "NA", "None", "0012", "'true'", "'1e10'", "'null'"):
        (cell,), _ = compose(["engine=scripted", f"prompt.debate={word}"])
        assert cell.templates["debate"] == word.strip("'")


@pytest.mark.hazard("C26")
@pytest.mark.parametrize("value", ["1e10", "12345678", "true"])
def test_a_number_where_a_text_belongs_is_never_taken_for_it(value: str) -> None:
    with pytest.raises(OptionFault, match=r"""needs two kinds of quotes: "task\.revision='\.\.\.'\""""):
        compose(["engine=scripted", "task=gsm8k", f"task.revision={value}"])
    (cell,), _ = compose(["engine=scripted", "task=gsm8k", f"task.revision='{value}'"])
    assert cell.task.options["revision"] == value


@pytest.mark.hazard("C26")
def test_a_file_of_settings_that_yaml_misreads_is_refused_and_quotes_mend_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "experiment").mkdir()
    preset = tmp_path / "experiment" / "mine.yaml"
    command = ["run", "--config-dir", str(tmp_path), *BASE, "experiment=mine", f"output={tmp_path / 'runs'}"]
    preset.write_text("# @package _global_\nprompt:\n  debate: no\n")
    assert main(command) == 2
    assert "prompt.debate must be a text, got False" in capsys.readouterr().err
    preset.write_text("# @package _global_\nprompt:\n  debate: 'no'\n")
    assert main(command) == 0
    assert sweep_of(tmp_path / "runs").runs[0].record["templates"]["debate"] == "no"


@pytest.mark.hazard("C27")
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_refused_as_one(value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *BASE, f"engine.latency={value}", f"output={tmp_path}"]) == 2
    assert "engine.latency must be a number" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.hazard("C27")
def test_every_file_of_a_sweep_can_be_read_by_strict_readers(tmp_path: Path) -> None:
    debate_local.run([*BASE, "engine.no_answer=1", "engine.accuracy=0", f"output={tmp_path}"])

    def strict(text: str) -> None:
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))

    files = [Path(folder) / name for folder, _, names in os.walk(tmp_path) for name in names]
    for path in files:
        if path.suffix == ".json":
            strict(path.read_text(encoding="utf-8"))
        elif path.suffix == ".jsonl":
            for line in path.read_text(encoding="utf-8").splitlines():
                strict(line)
    assert {path.name for path in files} >= {"run.json", "plan.json", "sweep.json", "identity.json"}
