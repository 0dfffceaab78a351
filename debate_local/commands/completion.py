"""`debate-local completion bash|zsh|fish`: a script that makes the shell complete commands and Hydra overrides.

The scripts know how their shell inserts a word and nothing else. At each TAB they call
`debate-local completion --query=LINE`, LINE being what stands before the cursor, and offer what it prints: a whole word
a line, behind a tab what it is about. A lone `/` means that a file's name may stand there. Hydra is not imported:
names, options and defaults come from signatures and from the defaults lists in conf/.
"""

import importlib
import itertools
import re
import shlex
import types
import typing
from argparse import SUPPRESS, Action, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import reduce
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from debate_local import cli
from debate_local.core.chat import Sampling
from debate_local.core.protocol import facts_of
from debate_local.sweep import options as known
from debate_local.sweep.config import PRESET_GROUPS, HowToRun, Schema, config_folder
from debate_local.sweep.options import Option, OptionFault, as_kind, type_name
from debate_local.sweep.presets import chosen
from debate_local.tasks import quirks


class Candidate(NamedTuple):
    """A whole word that may stand at the cursor, and what it is about."""

    word: str
    about: str = ""


FILES = Candidate("/", "any file")
_WHERE_TO_PUT_IT = """\
bash, in ~/.bashrc:                  eval "$(debate-local completion bash)"
zsh, in ~/.zshrc:                    eval "$(debate-local completion zsh)"
fish, in ~/.config/fish/config.fish: debate-local completion fish | source"""


def arguments(parser: ArgumentParser) -> None:
    """The options of `completion`."""
    parser.description = "Print a script that makes a shell complete debate-local's commands and settings."
    parser.epilog = _WHERE_TO_PUT_IT
    parser.formatter_class = RawDescriptionHelpFormatter
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("shell", nargs="?", choices=sorted(_SCRIPTS))
    # For the scripts: the line up to the cursor, and the part of its last word that the shell puts a candidate for.
    what.add_argument("--query", help=SUPPRESS)
    parser.add_argument("--replaces", help=SUPPRESS)


def main(options: Namespace) -> int:
    """Print the script; or, for the script, what may stand at the cursor."""
    if options.shell:
        print(_SCRIPTS[options.shell], end="")
        return 0
    try:
        found = candidates(options.query)
    except Exception:
        # A task that cannot be imported, a broken preset: a TAB is no place for an error.
        return 0
    cut = _kept_by_the_shell(_words(options.query)[-1], options.replaces)
    for word, about in found:
        print(f"{word if word == FILES.word else word[cut:]}\t{about}")
    return 0


def _kept_by_the_shell(word: str, replaces: str | None) -> int:
    """How much of the word at the cursor stays: bash ends a word at `=` and `:`, and replaces what is behind."""
    return len(word) - len(replaces) if replaces is not None and word.endswith(replaces) else 0


def candidates(line: str) -> list[Candidate]:
    """What may stand at the end of a line such as `debate-local run protocol=`."""
    *before, word = _words(line)
    # Settings of the environment may stand before the program's name.
    before = list(itertools.dropwhile(lambda w: re.match(r"\w+=", w), before))
    command = before[1] if len(before) > 1 else None
    if command is None:
        found: Iterable[Candidate] = _commands(word)
    elif command in _FLAGS:
        found = _overrides(command, before[2:], word)
    elif command in cli.COMMANDS:
        found = _arguments(command, before[2:], word)
    else:
        found = ()
    return [candidate for candidate in found if candidate is FILES or candidate.word.startswith(word)]


def _words(line: str) -> list[str]:
    """The words of a line as a shell reads them; the last stands at the cursor, perhaps empty or in an open quote."""
    for closing in ("", "'", '"'):
        try:
            # The mark keeps an empty last word, and a backslash before the cursor.
            *before, last = shlex.split(f"{line}.{closing}")
        except ValueError:
            continue
        return [*before, last[:-1]]
    return line.split(" ")


# Commands and their own options


def _commands(word: str) -> Iterator[Candidate]:
    yield from itertools.starmap(Candidate, cli.COMMANDS.items())
    if word.startswith("-"):
        yield from (Candidate("--help"), Candidate("--version"))


def _arguments(command: str, before: Sequence[str], word: str) -> Iterator[Candidate]:
    """What a command's parser takes next."""
    parser = ArgumentParser()
    importlib.import_module(f"debate_local.commands.{command}").arguments(parser)
    by_name = {name: action for action in parser._actions for name in action.option_strings}
    positional = [action for action in parser._actions if not action.option_strings and action.help is not SUPPRESS]
    awaited: Action | None = None
    for given in before:
        if awaited is not None:
            awaited = None
        elif given in by_name:
            awaited = by_name[given] if by_name[given].nargs != 0 else None
        elif positional and positional[0].nargs not in ("*", "+"):
            positional = positional[1:]
    if word.startswith("-") and awaited is None:
        shown = {name: action for name, action in by_name.items() if action.help is not SUPPRESS}
        yield from (Candidate(name, action.help or "") for name, action in shown.items())
        return
    takes = awaited or next(iter(positional), None)
    if takes is not None and takes.choices:
        yield from (Candidate(str(choice)) for choice in takes.choices)
    elif takes is not None:
        yield FILES


# Hydra overrides

# The commands that take overrides, and their flags.
_FLAGS: Mapping[str, Sequence[str]] = {
    "run": ("-m", "--multirun", "--cfg", "--resolve", "--help"),
    "plan": ("-m", "--multirun", "--json", "--help"),
    "convince": ("--output", "--shots", "--help"),
}


def _overrides(command: str, before: Sequence[str], word: str) -> Iterator[Candidate]:
    if before and before[-1] == "--cfg":
        yield from (Candidate("job", "our settings"), Candidate("hydra"), Candidate("all"))
    elif word.startswith("-"):
        yield from map(Candidate, _FLAGS[command])
    elif "=" in word:
        yield from _values(before, word)
    else:
        key = word.lstrip("+")
        for candidate in _keys(before, key):
            yield candidate._replace(word=word.removesuffix(key) + candidate.word)


def _keys(before: Sequence[str], key: str) -> Iterator[Candidate]:
    """Groups and settings; behind a dot, the options of what the line has chosen."""
    head, dot, _ = key.partition(".")
    if dot:
        for option in _options(head, before).values():
            yield Candidate(f"{head}.{option.name}=", _about(option))
        return
    for group in PRESET_GROUPS:
        now = ", ".join(chosen(group, before))
        yield Candidate(f"{group}=", f"now {now}" if now else "a preset")
        if _options(group, before):
            yield Candidate(f"{group}.", "one of its options")
    for option in _settings().values():
        yield Candidate(f"{option.name}=", _about(option))


def _about(option: Option) -> str:
    default = yaml.safe_dump(option.default, default_flow_style=True, width=1000).partition("\n")[0]
    return f"{type_name(option.type)}; default {default}"


def _values(before: Sequence[str], word: str) -> Iterator[Candidate]:
    """What may stand behind `key=`, or behind the last comma of a sweep."""
    key, _, typed = word.partition("=")
    earlier = typed.split(",")[:-1]
    start = "".join([key, "=", *(f"{value}," for value in earlier)])
    for value, about in _values_of(key.lstrip("+"), before):
        if value == FILES.word:
            yield FILES
        elif value not in earlier:
            yield Candidate(start + value, about)


def _values_of(key: str, before: Sequence[str]) -> Iterator[Candidate]:
    if key in PRESET_GROUPS:
        yield from _names(key)
        return
    if key == "cast":
        yield from (*_files("casts"), FILES)
    if key == "quirks":
        yield from (Candidate(name, quirks.told(name)) for name in quirks.QUIRKS)
    head, _, name = key.partition(".")
    option = _options(head, before).get(name) if name else _settings().get(key)
    if option is None:
        return
    if key == "engine.model":
        yield from _models()
    values = list(_words_of(option.type))
    if not set(values) - {"null", FILES.word}:
        # A shell puts in at once what is offered alone: `limit=` would become `limit=null`.
        values = [value for value in values if value != "null"]
    for value in values:
        yield FILES if value == FILES.word else Candidate(value)


def _words_of(wanted: Any) -> Iterator[str]:
    """The values of a type, as far as they are words; a text may be a file's name."""
    if typing.get_origin(wanted) is Literal:
        yield from map(str, typing.get_args(wanted))
    elif typing.get_origin(wanted) in (typing.Union, types.UnionType):
        for alternative in typing.get_args(wanted):
            yield from _words_of(alternative)
    elif wanted is bool:
        yield from ("true", "false")
    elif wanted is type(None):
        yield "null"
    elif wanted is str:
        yield FILES.word


def _names(group: str) -> Iterator[Candidate]:
    """What a group can be: the names of our functions, then the presets, each with its first line of text."""
    kind = as_kind(group)
    for name in known.names(kind) if kind else ():
        module = importlib.import_module(known.load(kind, name).__module__)
        yield Candidate(name, _first_line(module.__doc__ or ""))
    if group == "prompt":
        yield Candidate("default", "each protocol's own wording")
    yield from _files(group)


def _files(group: str) -> Iterator[Candidate]:
    """The files of a folder of conf/, each with its first line of text."""
    folder = config_folder() / group
    for file in sorted(folder.rglob("*.yaml")):
        comments = [line.lstrip("# ") for line in file.read_text(encoding="utf-8").splitlines() if line[:2] == "# "]
        about = next((line for line in comments if not line.startswith("@")), "")
        yield Candidate(file.relative_to(folder).with_suffix("").as_posix(), about)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _models() -> Iterator[Candidate]:
    from debate_local.commands.models import hub_models
    from debate_local.engines.weights import BUILTIN

    yield Candidate(BUILTIN, "built in")
    for name in dict.fromkeys(model.name for model in hub_models()):
        yield Candidate(name, "in the hub's cache")


# What there is to set


def _settings() -> dict[str, Option]:
    """The settings at the top, with the words that those have which are checked later."""
    hints = {**typing.get_type_hints(Schema), **typing.get_type_hints(HowToRun)}
    found = {}
    for field in fields(Schema):
        if field.name not in PRESET_GROUPS:
            default = field.default if field.default_factory is MISSING else field.default_factory()
            # A path is written as a text.
            wanted = str if hints[field.name] is Path else hints[field.name]
            found[field.name] = Option(field.name, default, wanted)
    return found


def _options(group: str, before: Sequence[str]) -> Mapping[str, Option]:
    """The options that may stand behind `group.`: those that all names have which the line chose for it."""
    if group == "sampling":
        hints = typing.get_type_hints(Sampling)
        return {f.name: Option(f.name, f.default, hints[f.name]) for f in fields(Sampling) if f.name != "seed"}
    kind = as_kind("protocol" if group == "prompt" else group)
    if kind is None:
        return {}
    try:
        if group == "prompt":
            texts = [facts_of(known.load(kind, name)).templates for name in chosen(kind, before)]
            return {name: Option(name, None, str | None) for templates in texts for name in templates}
        each = [known.options(kind, name) for name in chosen(kind, before)]
    except OptionFault:
        # A name on the line that is none: `run` will say so; the other words are completed all the same.
        return {}
    return reduce(lambda some, more: {name: some[name] for name in some if name in more}, each) if each else {}


# The scripts

_BASH = r"""# eval "$(debate-local completion bash)"
_debate_local() {
    local program=${COMP_WORDS[0]/#\~/$HOME} typed=${2-${COMP_WORDS[COMP_CWORD]}} line word
    [[ $program == */* ]] || program=debate-local
    # What bash calls a word may be the = before the cursor.
    [[ $typed == [=:] ]] && typed=
    COMPREPLY=()
    while IFS= read -r line; do
        word=${line%%$'\t'*}
        if [[ $word == / ]]; then
            compopt -o default 2>/dev/null
        elif [[ -n $word ]]; then
            COMPREPLY+=("$word")
            [[ $word == *[=.] ]] && compopt -o nospace 2>/dev/null
        fi
    done <<< "$("$program" completion --query="${COMP_LINE:0:COMP_POINT}" --replaces="$typed" 2>/dev/null)"
}
complete -F _debate_local debate-local
"""

_ZSH = r"""#compdef debate-local
# eval "$(debate-local completion zsh)"
_debate_local() {
    local program=${words[1]/#\~/$HOME} line word about files=0
    local -a final final_shown open open_shown
    [[ $program == */* ]] || program=debate-local
    for line in ${(f)"$($program completion --query="${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)"}; do
        word=${line%%$'\t'*} about=${line#*$'\t'}
        if [[ $word == / ]]; then
            files=1
        elif [[ $word == *[=.] ]]; then
            open+=("$word") open_shown+=("$word${about:+  -- $about}")
        else
            final+=("$word") final_shown+=("$word${about:+  -- $about}")
        fi
    done
    compadd -Q -l -S '' -d open_shown -a open
    compadd -Q -l -d final_shown -a final
    if (( files )); then
        compset -P '*='
        _files
    fi
}
if [[ $funcstack[1] == _debate_local ]]; then
    _debate_local "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
    compdef _debate_local debate-local
fi
"""

_FISH = r"""# debate-local completion fish | source
function __debate_local
    set -l program (commandline -opc)[1]
    set program (string replace -r '^~' $HOME -- $program)
    string match -q '*/*' -- $program; or set program debate-local
    set -l token (commandline -ct)
    for line in ($program completion --query=(commandline -cp | string collect) 2>/dev/null)
        if string match -qr '^/\t' -- $line
            set -l start (string replace -r '[^=]*$' '' -- $token)
            for path in (__fish_complete_path (string replace -r '^.*=' '' -- $token))
                echo $start$path
            end
        else
            echo $line
        end
    end
end
complete -c debate-local -f -a '(__debate_local)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
