"""Every experiment file states its command at its head, and that command runs.

Tasks that come from a hub have their rows in tests/sweep/rows/, a file a task, of our own making in the task's columns;
so have samples.
"""

import itertools
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from debate_local.cli import main, parser
from debate_local.commands.convince import asking_of
from debate_local.sweep.compose import compose
from debate_local.sweep.config import Cell, config_folder
from debate_local.sweep.plan import Plan, make_plan
from debate_local.sweep.store import Sweep, load

pytestmark = pytest.mark.slow

FILES = sorted((config_folder() / "experiment").glob("*.yaml"))
ROWS = Path(__file__).parent / "rows"


def commands(file: Path, verb: str = "run") -> list[list[str]]:
    """The commands in the comment that a file begins with, as words; a backslash goes on in the next line."""
    head = [line.removeprefix("#").strip() for line in file.read_text().split("\n\n")[0].splitlines() if line[0] == "#"]
    lines = "\n".join(head).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.startswith(f"debate-local {verb} ")]


def here(words: list[str]) -> tuple[list[str], bool]:
    """The overrides of a command, and whether it is a sweep: on the scripted engine, with rows of this folder.

    A model of a pool is a script of its own; what else a machine of another kind needs is left out.
    """
    program, verb, *rest = words
    assert (program, verb) == ("debate-local", "run")
    pool = [word.partition("=")[0] for word in rest if word.startswith("engine.models.")]
    kept = [word for word in rest if word != "-m" and not word.startswith(("engine.", "hydra"))]
    models = dict.fromkeys(".".join(name.split(".")[:3]) for name in pool)
    scripts = [f"{model}.seed={number}" for number, model in enumerate(models, 1)]
    # Last, so that it is what counts.
    kept += [f"convincing={ROWS / word.removeprefix('convincing=')}" for word in kept if word.startswith("convincing=")]
    return [*kept, "engine=scripted", *scripts, f"data={ROWS}", "limit=2"], "-m" in rest


def planned(words: list[str]) -> Plan:
    cells, _ = compose(*here(words))
    return make_plan(cells)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_commands_of_an_experiment_run(file: Path, tmp_path: Path) -> None:
    assert commands(file)
    for number, words in enumerate(commands(file)):
        overrides, sweeps = here(words)
        assert overrides[0] == f"experiment={file.stem}"
        output = tmp_path / str(number)
        assert main(["run", *(["-m"] if sweeps else []), *overrides, f"output={output}"]) == 0
        (folder,) = output.glob("sweeps/*")
        sweep = load(folder)
        assert isinstance(sweep, Sweep)
        assert all(run.done for run in sweep.runs) and len({run.id for run in sweep.runs}) == len(sweep.runs)
        labels = [cell.run.label for cell in sweep.cells if cell.asked]
        assert len(set(labels)) == len(labels), "what is asked for is told apart by its label"


SAMPLED = [(file.stem, words) for file in FILES for words in commands(file, "convince")]


@pytest.mark.parametrize(
    ("name", "words"), SAMPLED, ids=[f"{name}-{number}" for number, (name, _) in enumerate(SAMPLED)]
)
def test_the_samples_of_an_experiment_are_asked_for_as_it_says(name: str, words: list[str]) -> None:
    options = parser(words[1:]).parse_args(words[1:])
    assert options.overrides[0] == f"experiment={name}"
    # Rows of another split, so those of tests/sweep/rows/ will not do.
    cells, _ = compose([*options.overrides, "engine=scripted"])
    asking = asking_of(cells[0])
    assert (asking.protocol.name, asking.protocol.options["agents"]) == ("explained", 3)
    assert asking.task.options["split"] == "train" and (asking.limit or 9999) >= 500
    # What it writes is what a later command names.
    assert any(
        f"convincing={options.output}" in later for later in commands(config_folder() / "experiment" / f"{name}.yaml")
    )


def test_no_two_experiments_are_the_same_plan() -> None:
    plans = {file.stem: [planned(words) for words in commands(file)] for file in FILES}
    for of in (lambda plan: plan.id, lambda plan: frozenset(run.id for run in plan.runs if run.asked)):
        found = {name: {of(plan) for plan in some} for name, some in plans.items()}
        twice = [(a, b) for a, b in itertools.combinations(found, 2) if found[a] & found[b]]
        assert not twice


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("du2023", {("arithmetic", 3, 2, True, False), ("gsm8k", 3, 2, True, True), ("mmlu", 3, 2, True, False)}),
        ("du2023_code", {("arithmetic", 2, 3, True, False)}),
        ("du2023_agents", {("arithmetic", agents, 2, True, False) for agents in range(1, 7)}),
        ("du2023_rounds", {("arithmetic", 3, rounds, True, False) for rounds in range(1, 7)}),
        ("du2023_prompts", {("gsm8k", 3, 4, True, True)}),
        ("du2023_cot", {("gsm8k", 3, 2, False, True), ("gsm8k", 3, 2, True, True)}),
        ("du2023_summaries", {("gsm8k", 5, 2, True, True), ("gsm8k", 6, 2, True, True)}),
        ("du2023_personas", {("mmlu", 3, 2, True, False)}),
        ("du2023_mixed", {("gsm8k", 2, 2, True, True)}),
    ],
)
def test_the_experiments_after_du_et_al_have_the_settings_of_the_paper(
    name: str, points: set[tuple[object, ...]]
) -> None:
    ((*words,),) = commands(config_folder() / "experiment" / f"{name}.yaml")
    cells, _ = compose([word for word in here(words)[0] if word != "limit=2"], multirun=True)
    options = [(cell.task.name, cell.protocol.options) for cell in cells]
    assert {(task, o["agents"], o["rounds"], o["cot"], o["restate"]) for task, o in options} == points
    assert {cell.cast[0].sampling.temperature for cell in cells} == {1.0}
    items = {cell.limit or cell.task.options["items"] for cell in cells}
    assert items == ({20} if name == "du2023_mixed" else {100})


def test_the_round_table_has_the_settings_of_the_paper() -> None:
    for words in commands(config_folder() / "experiment" / "chen2024.yaml"):
        cells, _ = compose([word for word in here(words)[0] if word != "limit=2"], multirun=True)
        assert [cell.seed for cell in cells] == [0, 1, 2]
        for cell in cells:
            chosen = cell.protocol.options
            assert (cell.protocol.name, chosen["agents"], chosen["rounds"]) == ("reconcile", 3, 4)
            assert (chosen["samples"], chosen["confidence"], chosen["groups"]) == ("convincing", "verbal", None)
            assert [member.model for member in cell.cast] == ["a", "b", "c"]
            assert {member.sampling.temperature for member in cell.cast} == {0.7} and cell.limit == 100


@pytest.mark.parametrize(
    ("name", "varied", "values"),
    [
        ("liang2024", lambda cell: None, {None}),
        ("liang2024_levels", lambda cell: cell.protocol.options["level"], {0, 1, 2, 3}),
        (
            "liang2024_break",
            lambda cell: (cell.protocol.options["adaptive_break"], cell.protocol.options["rounds"]),
            {(stops, limit) for stops in (True, False) for limit in range(1, 6)},
        ),
        ("liang2024_debaters", lambda cell: cell.protocol.options["agents"], {2, 3, 4}),
        (
            "liang2024_judge",
            lambda cell: ("".join(agent.model for agent in cell.cast), cell.judge.model),
            {("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")},
        ),
        (
            "liang2024_judge_bias",
            lambda cell: ("".join(agent.model for agent in cell.cast), cell.judge.model),
            {(cast, judge) for cast in ("ab", "ba", "a", "b") for judge in "ab"},
        ),
    ],
)
def test_the_experiments_after_liang_et_al_vary_one_thing_of_the_papers_setting(
    name: str, varied: Callable[[Cell], object], values: set[object]
) -> None:
    ((*words,),) = commands(config_folder() / "experiment" / f"{name}.yaml")
    cells, _ = compose([word for word in here(words)[0] if word != "limit=2"], multirun=True)
    assert {varied(cell) for cell in cells} == values and len(cells) == len(values)
    base = {"agents": 2, "rounds": 3, "level": 2, "adaptive_break": True, "extract_from": "record"}
    for cell in cells:
        assert (cell.task.name, cell.protocol.name, cell.limit) == ("ciar", "mad", None)
        assert {agent.sampling.temperature for agent in cell.cast} == {0.0}
        assert sum(cell.protocol.options[key] != value for key, value in base.items()) <= (2 if "break" in name else 1)


def test_personas_are_asked_the_same_questions_as_no_personas(tmp_path: Path) -> None:
    ((*words,),) = commands(config_folder() / "experiment" / "du2023_personas.yaml")
    none, experts = (run for run in planned(words).runs if run.asked)
    assert none.task.rows == experts.task.rows
    assert [agent.persona for agent in none.setting.cast] == [""]
    assert len({agent.persona for agent in experts.setting.cast} - {""}) == 3
    assert experts.label == "debate agents=3 rounds=2 cot=True cast=scientist+physician+historian"


def test_levels_of_agreement_differ_in_the_debate_prompt_only() -> None:
    ((*words,),) = commands(config_folder() / "experiment" / "agreement.yaml")
    runs = [run for run in planned(words).runs if run.asked]
    first = {next(run.debate(run.task.items[0]))[0].messages for run in runs}
    assert len(first) == 1 and len({run.setting.templates["debate"] for run in runs}) == len(runs) == 6
    assert runs[1].label == "debate agents=3 rounds=3 prompt=agreement_0"


def test_agents_x_rounds_is_eighteen_cells_and_their_controls_of_one_task(tmp_path: Path) -> None:
    ((_, *command),) = commands(config_folder() / "experiment" / "agents_x_rounds.yaml")
    assert main([*command, "engine=scripted", "limit=1", f"output={tmp_path}"]) == 0
    (folder,) = tmp_path.glob("sweeps/*")
    sweep = load(folder)
    assert isinstance(sweep, Sweep)
    asked = [cell.run.record for cell in sweep.cells if cell.asked]
    points = {
        (r["protocol"]["agents"], r["protocol"]["rounds"], r["cast"][0]["sampling"]["temperature"]) for r in asked
    }
    assert points == {(a, r, t) for a in (1, 3, 5) for r in (1, 2, 4) for t in (0.3, 1.0)} and len(asked) == 18
    assert len({run.record["rows_hash"] for run in sweep.runs}) == 1
