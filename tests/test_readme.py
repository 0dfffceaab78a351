"""Every command of the README is parsed, and what needs neither network nor model is run."""

import argparse
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from debate_local import cli
from debate_local.sweep.compose import compose

CHECKOUT = Path(__file__).parents[1]
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


COMMANDS = [
    words
    for block in blocks("bash")
    for line in block.replace("\\\n", " ").splitlines()
    if (words := shlex.split(line, comments=True))
]


SAMPLES = """\
{"samples_of": {"task": "strategyqa"}}
{"kind": "random", "model": "a", "item": "1", "question": "Is it?", "answer": "yes", "explanation": "So it is."}
"""


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_of_the_readme_is_one_that_exists(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # What `convince` writes, another command of the README reads.
    (tmp_path / "samples.jsonl").write_text(SAMPLES)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:.*## ", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    elif words[0] == "pip":
        (extra,) = re.findall(r"\.\[(\w+)\]", words[-1])
        assert extra in tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    elif words[:2] in (["debate-local", "run"], ["debate-local", "plan"]):
        cells, _ = compose([word for word in words[2:] if word not in ("-m", "--json")], multirun="-m" in words)
        assert cells
    elif words[0] == "sbatch" or words[0].startswith("launch/"):
        (script,) = [word for word in words if word.startswith("launch/")]
        assert (CHECKOUT / script).is_file()
        compose([word for word in words if "=" in word and not word.startswith("--")], multirun=True)
    else:
        assert words[0] == "debate-local"
        options = cli.parser(words[1:]).parse_args(words[1:])
        assert isinstance(options, argparse.Namespace) and options.command == words[1]


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.strip().splitlines()[0])
def test_the_python_of_the_readme_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


def test_the_readme_shows_the_two_commands() -> None:
    assert ["make", "demo"] in COMMANDS and ["make", "test"] in COMMANDS
