"""`debate-local models [FOLDER ...]`: the models on this machine, and what each of them can do in a debate.

Looks at the built-in model, in the hub's local cache, in our own cache and in the folders given. Everything is read
from small files beside the weights; no tokenizer is loaded and nothing is fetched, unpacked or changed. A model that
is not whole is a row that says what is missing.
"""

import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from debate_local.core.chat import Sampling
from debate_local.engines.weights import (
    BUILTIN,
    BUILTIN_PACKAGE,
    WeightsMissing,
    builtin,
    cache_folder,
    config_of,
    context_length,
    has_tokenizer,
    resolve,
    weight_bytes,
)

Where = Literal["built-in", "hub cache", "our cache", "folder"]
SystemRole = Literal["allowed", "refused", "dropped"]


@dataclass(frozen=True, slots=True)
class Model:
    """One model on this machine. What could not be found out is None.

    name: what to type after `engine.model=`. revision: what to type after `engine.revision=`, if it is not the hub's
    main one. size_gib: of the weight files. context: in tokens. system_role: `dropped` means that the chat template
    leaves a system message out without a word. reasoning_switches: template arguments that turn thinking on and off.
    generation: the model's own sampling defaults. unpacked: False for a GGUF file, which is unpacked at its first use.
    missing: what it lacks, or why else it cannot be loaded.
    """

    name: str
    where: Where
    path: str | None
    revision: str | None = None
    size_gib: float | None = None
    architecture: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    context: int | None = None
    chat_template: bool | None = None
    system_role: SystemRole | None = None
    roles_alternate: bool | None = None
    reasoning_switches: tuple[str, ...] = ()
    generation: Mapping[str, Any] = field(default_factory=dict)
    unpacked: bool = True
    missing: str | None = None


def arguments(parser: ArgumentParser) -> None:
    """The options of `models`."""
    parser.add_argument(
        "folders", nargs="*", metavar="FOLDER", help="a model's folder, a .gguf file, or a folder that holds some"
    )
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def main(options: Namespace) -> int:
    """Print the list."""
    found = list(models_here([Path(folder).expanduser() for folder in options.folders]))
    if options.json:
        json.dump([asdict(model) for model in found], sys.stdout, indent=2, ensure_ascii=False)
        print()
    else:
        _print(found)
    return 0


# Where models are


def models_here(folders: Sequence[Path] = ()) -> Iterator[Model]:
    """The built-in model, what is in the hub's cache, in our own cache, and in the folders given."""
    yield _builtin_model()
    for hub in hub_models():
        yield _describe(hub.name, "hub cache", hub.folder, hub.revision)
    ours = builtin().unpacked
    for folder in sorted((cache_folder() / "weights").glob("[!.]*")):
        if folder != ours:
            yield _describe(str(folder), "our cache", folder)
    for folder in folders:
        yield from _models_in(folder)


class HubModel(NamedTuple):
    """A model in the hub's local cache at one commit. folder: None when nothing of it is there to load."""

    name: str
    revision: str | None
    folder: Path | None


def hub_models() -> list[HubModel]:
    """What the hub's local cache holds, told from the names of its folders."""
    from huggingface_hub import constants

    found = []
    for repository in sorted(Path(constants.HF_HUB_CACHE).glob("models--*")):
        name = repository.name.removeprefix("models--").replace("--", "/")
        refs = _refs(repository / "refs")
        commits = sorted(repository.glob("snapshots/*"), key=lambda folder: refs.get(folder.name) != "main")
        for folder in commits:
            # A commit that is nobody's main one must be asked for by name.
            revision = refs.get(folder.name, folder.name)
            found.append(HubModel(name, None if revision == "main" else revision, folder))
        if not commits:
            found.append(HubModel(name, None, None))
    return found


def _refs(folder: Path) -> dict[str, str]:
    """Commit -> the branch or tag that names it, the main one before others."""
    files = sorted(folder.rglob("*"), key=lambda file: file.name == "main")
    return {
        file.read_text(errors="replace").strip(): file.relative_to(folder).as_posix()
        for file in files
        if file.is_file()
    }


def _builtin_model() -> Model:
    gguf, unpacked = builtin()
    if unpacked is not None:
        return _describe(BUILTIN, "built-in", unpacked)
    if gguf is None:
        missing = f"the Python package {BUILTIN_PACKAGE}, which carries it, is not installed"
        return Model(BUILTIN, "built-in", None, missing=missing)
    return _packed(BUILTIN, "built-in", gguf)


def _packed(name: str, where: Where, gguf: Path) -> Model:
    """A GGUF file: what it holds is known when it is unpacked."""
    try:
        with gguf.open("rb") as stream:
            fault = None if stream.read(4) == b"GGUF" else "it is no GGUF file"
        return Model(name, where, str(gguf), size_gib=_gib(gguf.stat().st_size), unpacked=False, missing=fault)
    except OSError as error:
        return Model(name, where, str(gguf), unpacked=False, missing=str(error))


_SIGNS = ("config.json", "adapter_config.json", "tokenizer.json", "*.safetensors", "*.bin")
_NO_MODEL = "neither it nor a folder in it has a config.json"


def _models_in(given: Path) -> Iterator[Model]:
    """A folder that is a model; else the models that are in it, one level down or as a hub cache keeps them."""
    if given.is_file():
        yield _packed(str(given), "folder", given)
        return
    if not given.is_dir():
        yield Model(str(given), "folder", str(given), missing="there is no such folder")
        return
    if any(next(given.glob(sign), None) for sign in _SIGNS):
        yield _describe(str(given), "folder", given)
        return
    inside = [*given.glob("*"), *given.glob("models--*/snapshots/*")]
    models = sorted(p for p in inside if p.suffix == ".gguf" or any(next(p.glob(sign), None) for sign in _SIGNS))
    for path in models:
        yield _packed(str(path), "folder", path) if path.is_file() else _describe(str(path), "folder", path)
    if not models:
        yield Model(str(given), "folder", str(given), missing=_NO_MODEL)


# What is known of a model's folder


def _describe(name: str, where: Where, folder: Path | None, revision: str | None = None) -> Model:
    """The facts of a folder. Each part is read on its own, so that a broken file costs what it says and no more."""
    if folder is None:
        return Model(name, where, None, revision, missing="no file of it is here: its download was not finished")
    facts: dict[str, Any] = {}
    faults = []
    for part, read in _PARTS.items():
        try:
            facts |= read(folder)
        except WeightsMissing as error:
            # Without the ways to get some, which would be told for every row.
            faults.append(str(error).partition("\n")[0].rpartition(": ")[2])
        except _Fault as error:
            faults.append(str(error))
        except Exception as error:
            # A file that was written by anybody may hold anything.
            faults.append(f"{part} cannot be read ({type(error).__name__}: {error})")
    return Model(name, where, str(folder), revision, **facts, missing="; ".join(faults) or None)


class _Fault(ValueError):
    """What a folder lacks, in words for its row."""


def _weight_facts(folder: Path) -> dict[str, Any]:
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        base = _read(folder / "adapter_config.json").get("base_model_name_or_path") or "a model it does not name"
        raise _Fault(f"it is an adapter of {base}, not a model: load that, and give this as engine.adapters")
    # As a whole path: a relative one could be the built-in model's name.
    resolve(str(folder.absolute()), tokenizer=False)
    for file in sorted(folder.glob("*.safetensors")):
        _check_whole(file)
    return {"size_gib": _gib(weight_bytes(folder))}


# The format's own limit, in bytes.
_LONGEST_HEADER = 100_000_000


def _check_whole(file: Path) -> None:
    """Raise _Fault for a weight file that is shorter than its own header says, or is no such file at all."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= min(size - 8, _LONGEST_HEADER):
            raise _Fault(f"{file.name} is cut off or holds no weights ({size} bytes; perhaps a pointer to a file)")
        header = json.loads(stream.read(length))
    end = max((tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"), default=0)
    if 8 + length + end > size:
        raise _Fault(f"{file.name} is cut off: {size} bytes of {8 + length + end}")


def _config_facts(folder: Path) -> dict[str, Any]:
    if not (folder / "config.json").is_file():
        return {}
    config = config_of(folder)
    named = [*(config.get("architectures") or []), config.get("model_type")]
    dtype = config.get("dtype") or config.get("torch_dtype")
    return {
        "architecture": None if named[0] is None else str(named[0]),
        "dtype": None if dtype is None else str(dtype),
        "quantization": (config.get("quantization_config") or {}).get("quant_method"),
        "context": context_length(folder),
    }


_DEFAULTS = {f.name for f in fields(Sampling)} | {"do_sample", "max_new_tokens"}


def _generation_facts(folder: Path) -> dict[str, Any]:
    file = folder / "generation_config.json"
    values = _read(file) if file.is_file() else {}
    return {"generation": {name: value for name, value in values.items() if name in _DEFAULTS and value is not None}}


def _read(file: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises _Fault when it holds something else, ValueError when it is no JSON."""
    values = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise _Fault(f"{file.name} holds no JSON object")
    return values


def _gib(size: int) -> float:
    return round(size / 2**30, 3)


# What a chat template allows

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
# The template arguments by which families of models turn thinking on and off, or set how much of it there is.
_SWITCHES = ("enable_thinking", "thinking", "thinking_budget", "reasoning_effort", "reasoning")


def _template_facts(folder: Path) -> dict[str, Any]:
    """The facts that the tokenizer's files tell. Raises _Fault for a folder without a tokenizer."""
    if not has_tokenizer(folder):
        raise _Fault("there is no tokenizer (tokenizer.json, tokenizer.model, vocab.json, ...)")
    settings = _read(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    template = _template(folder, settings)
    if template is None:
        # Mistral's own tokenizer renders conversations itself.
        return {"chat_template": (folder / "tekken.json").is_file()}
    tokens = {name: _content(settings.get(name)) for name in _SPECIAL}
    return {"chat_template": True, **_probed(template, tokens)}


def _template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The chat template's text: from a file of its own, else from the tokenizer's settings."""
    if (folder / "chat_template.jinja").is_file():
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    found = settings.get("chat_template")
    if found is None and (folder / "chat_template.json").is_file():
        found = _read(folder / "chat_template.json").get("chat_template")
    if isinstance(found, list):
        # Several by name: `default` is what a plain conversation gets.
        found = {str(entry.get("name")): entry.get("template") for entry in found}.get("default")
    return found if isinstance(found, str) else None


def _content(token: Any) -> str:
    """A special token's text, written plainly or as a mapping."""
    text = token.get("content") if isinstance(token, Mapping) else token
    return text if isinstance(text, str) else ""


# They mark the model's own words for training, are no plain jinja, and change nothing here.
_TRAINING_MARKS = re.compile(r"\{%[-+]?\s*(?:end)?generation\s*[-+]?%\}")


def _probed(template: str, tokens: Mapping[str, str]) -> dict[str, Any]:
    """What a template does with a system message and with two turns of one role; nothing when it cannot be rendered."""
    from jinja2 import TemplateError, meta

    environment = _environment()
    template = _TRAINING_MARKS.sub("", template)
    try:
        render: Callable[..., str] = environment.from_string(template).render
        named = meta.find_undeclared_variables(environment.parse(template))
    except TemplateError:
        # It needs more than plain jinja: only its tokenizer can tell.
        return {}
    facts: dict[str, Any] = {"reasoning_switches": tuple(name for name in _SWITCHES if name in named)}

    def said(*turns: tuple[str, str]) -> str | None:
        messages = [{"role": role, "content": content} for role, content in turns]
        try:
            return render(messages=messages, add_generation_prompt=True, **tokens)
        except Exception:
            # A template refuses by any error: its own, or one of what it did to the messages.
            return None

    if said(("user", "hello")) is None:
        return facts
    system = said(("system", "xylophone"), ("user", "hello"))
    facts["system_role"] = "refused" if system is None else "allowed" if "xylophone" in system else "dropped"
    facts["roles_alternate"] = said(("user", "hello"), ("user", "hello")) is None
    return facts


@cache
def _environment() -> Any:
    """Jinja as chat templates expect it, in a sandbox: a template comes with the weights and is not ours."""
    from datetime import datetime

    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, **options: Any) -> str:
        return json.dumps(value, **{"ensure_ascii": False, **options})

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": lambda pattern: datetime.now().strftime(pattern),
    }
    return environment


_PARTS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "the weights": _weight_facts,
    "config.json": _config_facts,
    "the tokenizer's settings": _template_facts,
    "generation_config.json": _generation_facts,
}

# The table


def _print(models: Sequence[Model]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from debate_local.commands.terminal import console

    table = Table(box=SIMPLE_HEAD, title="models on this machine", title_justify="left")
    table.add_column("engine.model=", overflow="fold")
    table.add_column("where")
    table.add_column("GiB", justify="right")
    table.add_column("architecture", overflow="fold")
    table.add_column("dtype")
    table.add_column("context", justify="right")
    table.add_column("in a debate", ratio=1)
    for model in models:
        name = model.name + (f"\nengine.revision={model.revision}" if model.revision else "")
        table.add_row(
            escape(name),
            model.where,
            "" if model.size_gib is None else f"{model.size_gib:.2f}",
            escape(model.architecture or ""),
            escape(", ".join(filter(None, (model.dtype, model.quantization)))),
            "" if model.context is None else f"{model.context:,}",
            "\n".join(_remarks(model)),
        )
    console().print(table)


def _remarks(model: Model) -> Iterator[str]:
    """What a person who plans a debate must know, in markup."""
    from rich.markup import escape

    if model.missing:
        yield f"[red]cannot be loaded:[/] {escape(model.missing)}"
    if not model.unpacked:
        yield "a GGUF file: unpacked at its first use; the rest is known then"
    if model.chat_template is False:
        yield "no chat template: give one with engine.chat_template="
    if model.chat_template:
        yield _SYSTEM_REMARKS[model.system_role]
    if model.roles_alternate:
        yield "roles must alternate: neighbours of one role are merged"
    if model.reasoning_switches:
        yield f"thinking: {', '.join(model.reasoning_switches)} in template_args"
    if model.generation:
        yield "its defaults: " + escape(", ".join(f"{name} {value}" for name, value in model.generation.items()))


_SYSTEM_REMARKS: Mapping[SystemRole | None, str] = {
    "allowed": "takes system messages (personas)",
    "refused": "refuses system messages: personas are merged into the first user turn",
    "dropped": "leaves system messages out: personas are merged into the first user turn",
    None: "what its chat template allows is unknown",
}
