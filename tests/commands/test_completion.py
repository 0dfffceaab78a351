"""`completion`: what may stand at the cursor, and the scripts that ask for it, called as their shells call them."""

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from huggingface_hub import constants

from debate_local import cli
from debate_local.sweep import options
from debate_local.sweep.compose import compose
from debate_local.sweep.config import PRESET_GROUPS, config_folder

pytestmark = pytest.mark.slow

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(autouse=True)
def a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No models and no files but the test's own."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def offered(capsys: pytest.CaptureFixture[str]) -> "Offered":
    return Offered(capsys)


class Offered:
    """The words that are offered at the end of a line."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, line: str) -> list[str]:
        return [word for word, _ in self.with_texts(line)]

    def with_texts(self, line: str) -> list[tuple[str, str]]:
        assert cli.main(["completion", f"--query=debate-local {line}"]) == 0
        said, errors = self._capsys.readouterr()
        assert errors == ""
        return [(word, about) for word, _, about in (row.partition("\t") for row in said.splitlines())]


# Commands


def test_commands_are_offered_with_what_they_do(offered: Offered) -> None:
    assert dict(offered.with_texts(""))["show"].startswith("print a sweep's table")
    assert {"run", "plan", "show", "cache", "models", "doctor", "completion"} <= set(offered(""))
    assert offered("mod") == ["models"]
    assert offered("--v") == ["--version"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cache ", ["report", "clear"]),
        ("cache cl", ["clear"]),
        ("cache report --i", ["--identity"]),
        ("cache report --identity ", ["/"]),
        ("cache report --yes cl", []),
        ("show --pro", ["--prompts"]),
        ("show runs/x --item 3 --a", ["--agent"]),
        ("show ", ["/"]),
        ("models some/folder ", ["/"]),
        ("completion ", ["bash", "fish", "zsh"]),
        ("completion --", ["--help"]),
        ("nosuch ", []),
    ],
)
def test_a_commands_own_options_and_choices_are_offered(offered: Offered, line: str, words: list[str]) -> None:
    assert offered(line) == words


# Overrides


def test_groups_and_settings_are_offered_after_run_and_plan(offered: Offered) -> None:
    words = set(offered("run "))
    assert words == set(offered("plan -m "))
    assert {f"{group}=" for group in PRESET_GROUPS} <= words
    assert {"task.", "protocol.", "prompt.", "engine.", "sampling.", "seed=", "limit=", "cast=", "cache="} <= words
    assert offered("run lim") == ["limit="]
    assert offered("run +lim") == ["+limit="]


def test_flags_are_those_of_the_command(offered: Offered) -> None:
    assert "--cfg" in offered("run -")
    assert offered("plan --j") == ["--json"]
    assert offered("run --cfg j") == ["job"]


@pytest.mark.parametrize("kind", options.KINDS)
def test_every_name_and_every_preset_is_offered_with_a_line_about_it(offered: Offered, kind: options.Kind) -> None:
    found = dict(offered.with_texts(f"run {kind}="))
    presets = [file.stem for file in (config_folder() / kind).glob("*.yaml")]
    assert found.keys() == {f"{kind}={name}" for name in (*options.names(kind), *presets)}
    assert all(found.values())


@pytest.mark.parametrize("group", ["sampling", "experiment"])
def test_a_group_of_presets_alone_offers_them(offered: Offered, group: str) -> None:
    presets = [file.stem for file in (config_folder() / group).glob("*.yaml")]
    assert set(offered(f"run {group}=")) == {f"{group}={name}" for name in presets}


@pytest.mark.parametrize("kind", options.KINDS)
def test_the_options_offered_are_those_of_the_name_on_the_line(offered: Offered, kind: options.Kind) -> None:
    for name in options.names(kind):
        known = [f"{kind}.{option}=" for option in options.options(kind, name)]
        assert offered(f"run seed=1 {kind}={name} {kind}.") == known


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run protocol=self_consistency protocol.sa", ["protocol.samples="]),
        ("run protocol.iter", []),
        ("run protocol.rou", ["protocol.rounds="]),
        # Of two names, what both have; of two choices, the last.
        ("run -m protocol=debate,single protocol.a", ["protocol.agents="]),
        ("run protocol=debate protocol=single protocol.r", []),
        ("run prompt.ver", ["prompt.verify="]),
        ("run protocol=single prompt.ver", []),
        ("run sampling.top", ["sampling.top_p=", "sampling.top_k="]),
        ("run sampling.see", []),
        # A preset has the options of what it extends; an experiment brings its task and protocol.
        ("run task=arithmetic_du2023 task.operato", ["task.operators="]),
        ("run experiment=demo task.operato", ["task.operators="]),
        # One that extends another brings that one's.
        ("run experiment=chen2024_votes protocol.gr", ["protocol.groups=", "protocol.grouped="]),
        ("convince --output x protocol=reconcile protocol.gr", ["protocol.groups=", "protocol.grouped="]),
        ("run task=nosuch task.", []),
        ("run task=nosuch protocol=nosuch lim", ["limit="]),
        ("run nosuch.", []),
    ],
)
def test_options_follow_what_the_line_chose(offered: Offered, line: str, words: list[str]) -> None:
    assert offered(line) == words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run protocol.order=seq", ["sequential"]),
        ("run -m protocol.order=simultaneous,seq", ["simultaneous,sequential"]),
        ("run -m protocol=debate,sing", ["debate,single"]),
        ("run +schedule=c", ["continuous"]),
        ("run cache=", ["on", "read", "off"]),
        ("run controls=", ["true", "false"]),
        ("run engine=vllm engine.enforce_eager=", ["true", "false", "null"]),
        # Where null would be the only word, a shell would put it in at once.
        ("run limit=", []),
        ("run seed=", []),
        ("run engine=openai engine.extra_fields=o", ["on", "off"]),
        ("run nosuch=", []),
        ("run protocol.nosuch=", []),
    ],
)
def test_values_are_offered_where_they_are_words(offered: Offered, line: str, words: list[str]) -> None:
    key = line.split()[-1].partition("=")[0]
    assert offered(line) == [f"{key}={word}" for word in words]


def test_casts_and_quirks_are_offered_by_name(offered: Offered) -> None:
    assert offered("run cast=") == ["cast=experts", "cast=none", "/"]
    assert offered("run quirks=chen") == ["quirks=chen_random_label"]


def test_a_text_may_be_a_file(offered: Offered) -> None:
    assert offered("run output=") == ["/"]
    assert offered("run task=gsm8k task.path=") == ["/"]


def test_models_on_this_machine_are_offered(offered: Offered, tmp_path: Path) -> None:
    (tmp_path / "hub" / "models--lab--small-1b").mkdir(parents=True)
    assert offered("run engine.model=") == ["engine.model=smollm2-135m-instruct", "engine.model=lab/small-1b", "/"]


@pytest.mark.parametrize("line", ["HF_HUB_OFFLINE=1 debate-local run cache=re", "/some/bin/debate-local run cache=re"])
def test_how_the_program_is_called_does_not_matter(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", f"--query={line}"]) == 0
    assert capsys.readouterr().out == "cache=read\t\n"


@pytest.mark.parametrize("line", ["run 'cache=re", 'run "cache=re', "run cache\\=re", "run 'cast=[{}]' cache=re"])
def test_quotes_are_read_as_a_shell_reads_them(offered: Offered, line: str) -> None:
    assert offered(line) == ["cache=read"]


def test_what_is_offered_is_accepted(offered: Offered) -> None:
    base = ["engine=scripted", "task=arithmetic"]
    lines = [f"run {' '.join(base)} {group}=" for group in ("protocol", "sampling", "prompt")]
    for key in [*offered(f"run {' '.join(base)} engine."), "protocol.topology=", "schedule=", "cache=", "controls="]:
        lines.append(f"run {' '.join(base)} {key}")
    words = [word for line in lines for word in offered(line) if word != "/"]
    assert len(words) > 10
    for word in words:
        assert len(compose([*base, word])[0]) == 1


def test_a_query_imports_neither_hydra_nor_anything_heavy() -> None:
    code = """if True:
        import sys
        from debate_local import cli
        for line in ("", "run ", "run engine=vllm engine.", "run protocol=", "run engine.model="):
            cli.main(["completion", f"--query=debate-local {line}"])
        heavy = {"hydra", "omegaconf", "torch", "vllm", "transformers", "datasets", "polars", "pyarrow", "rich"}
        print(heavy & set(sys.modules))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
    assert done.stderr == ""


# The scripts


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`debate-local` on the PATH, running this Python; a home folder without anybody's settings."""
    file = tmp_path / "bin" / "debate-local"
    file.parent.mkdir()
    file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m debate_local.cli "$@"\n')
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{file.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(cli.__file__).parents[1]))
    return file


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_every_script_asks_the_query_and_is_sound(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(shell, capsys)
    assert " completion --query=" in text
    assert re.search(r"^\s*(complete|compdef) .*debate-local", text, re.MULTILINE)
    if program := shutil.which(shell):
        (tmp_path / "script").write_text(text)
        subprocess.run([program, "-n", str(tmp_path / "script")], check=True)


def test_another_shell_is_refused_with_those_that_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["completion", "tcsh"])
    assert caught.value.code == 2
    assert "bash" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["completion"])
    assert "--query" not in capsys.readouterr().err


def bash_words(line: str) -> list[str]:
    """A line's words as bash's completion sees them: `=` and `:` are words of their own."""
    words = re.findall(r"[=:]+|[^\s=:]+", line)
    return words if not line[-1].isspace() else [*words, ""]


def bash_replies(line: str, text: str, bash: str, breaks: bool = True) -> list[str]:
    """COMPREPLY for a line with the cursor at its end, from bash's variables and arguments."""
    words = bash_words(line) if breaks else line.split(" ")
    typed = "" if re.fullmatch("[=:]+", words[-1]) else words[-1]
    code = f"""{text}
        COMP_WORDS=({" ".join(map(shlex.quote, words))}); COMP_CWORD={len(words) - 1}
        COMP_LINE={shlex.quote(line)}; COMP_POINT={len(line)}
        _debate_local debate-local {shlex.quote(typed)} {shlex.quote(words[-2])}
        (( ${{#COMPREPLY[@]}} == 0 )) || printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run([bash, "--norc", "--noprofile", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture
def bash() -> str:
    found = shutil.which("bash")
    if found is None:
        pytest.skip("bash is not installed")
    return found


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("debate-local ru", ["run"]),
        ("debate-local run protocol=self_c", ["self_consistency"]),
        ("debate-local run protocol=self_consistency protocol.sa", ["protocol.samples="]),
        ("debate-local plan -m protocol.order=simultaneous,seq", ["simultaneous,sequential"]),
        ("debate-local plan schedule=", ["rounds", "continuous"]),
        ("debate-local run -", ["-m", "--multirun", "--cfg", "--resolve", "--help"]),
        ("debate-local run output=", []),
    ],
)
def test_bash_is_given_what_stands_behind_its_word_break(
    program: Path, bash: str, capsys: pytest.CaptureFixture[str], line: str, replies: list[str]
) -> None:
    assert bash_replies(line, script("bash", capsys), bash) == replies


def test_bash_without_the_word_break_is_given_whole_words(
    program: Path, bash: str, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = bash_replies("debate-local run cache=re", script("bash", capsys), bash, breaks=False)
    assert replies == ["cache=read"]


LINES = [
    ("debate-local ru", "debate-local run "),
    ("debate-local run protocol=self_c", "debate-local run protocol=self_consistency "),
    ("debate-local run protocol=single protocol.ag", "debate-local run protocol=single protocol.agents="),
    ("debate-local run -m protocol.peers=full,no", "debate-local run -m protocol.peers=full,none "),
    ("debate-local run 'protocol=self_c", "debate-local run 'protocol=self_consistency' "),
    ("debate-local run output=a\\ fi", "debate-local run output=a\\ file.txt "),
    ("cd . && bin/debate-local run +schedule=co", "cd . && bin/debate-local run +schedule=continuous "),
    ("debate-local show some_", "debate-local show some_runs/"),
]
SHOWS_ITS_LINE = {
    "bash": ["--norc", "--noprofile", "-i", """bind -x '"\\C-t": printf "LINE<%s>\\n" "$READLINE_LINE"'"""],
    "zsh": ["-f", "-i", """show() { print -r -- "LINE<$BUFFER>" }; zle -N show; bindkey '^T' show"""],
}


@pytest.mark.parametrize("shell", SHOWS_ITS_LINE)
def test_a_tab_in_a_real_shell_completes_the_line(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "a file.txt").touch()
    (tmp_path / "some_runs").mkdir()
    (tmp_path / "script").write_text(script(shell, capsys))
    *flags, show = SHOWS_ITS_LINE[shell]
    found = list(typed([shell, *flags], f". ./script; {show}; echo READY", [line for line, _ in LINES]))
    assert found == [completed for _, completed in LINES]


def typed(command: Sequence[str], setup: str, lines: Sequence[str]) -> Iterator[str]:
    """What becomes of lines that are typed into a shell on a terminal, each followed by a TAB."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "dumb"
        os.execvp(command[0], command)
    try:
        os.write(terminal, f"{setup}\n".encode())
        _until(terminal, r"\nREADY\r")
        for line in lines:
            os.write(terminal, f"{line}\t".encode())
            # The shell reads on when it has completed; the key ^T prints its line, ^U empties it.
            os.write(terminal, b"\x14")
            yield _until(terminal, r"LINE<(.*?)>\r")[1]
            os.write(terminal, b"\x15")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def _until(terminal: int, pattern: str) -> re.Match[str]:
    said = ""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            said += os.read(terminal, 65536).decode(errors="replace")
            if found := re.search(pattern, said):
                return found
    raise AssertionError(f"nothing like {pattern!r} in {said!r}")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("debate-local run protocol=self_c", ["protocol=self_consistency"]),
        ("debate-local run protocol=self_consistency protocol.sa", ["protocol.samples="]),
        ("cd .; bin/debate-local plan schedule=", ["schedule=continuous", "schedule=rounds"]),
        ("debate-local run output=some", ["output=some_runs/"]),
    ],
)
def test_fish_offers_whole_words(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, words: list[str]
) -> None:
    (tmp_path / "some_runs").mkdir()
    (tmp_path / "script").write_text(script("fish", capsys))
    code = f"source ./script; complete -C {shlex.quote(line)}"
    done = subprocess.run(["fish", "--no-config", "-c", code], capture_output=True, text=True, check=True)
    assert [row.partition("\t")[0] for row in done.stdout.splitlines()] == words
