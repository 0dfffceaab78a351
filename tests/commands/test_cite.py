"""`debate-local cite`: BibTeX of toolkit, papers, data and models, and nothing that is not known."""

import re
from pathlib import Path

import pytest
import yaml

import debate_local
from debate_local.cli import main
from debate_local.commands.cite import AUTHORS, PAPERS, TITLE, bibtex
from debate_local.sweep.config import Choice
from debate_local.sweep.sources import model_sources
from tests.tasks.data import jsonl

ROOT = Path(__file__).parents[2]
GSM8K = [{"question": f"{n} + 1?", "answer": f"#### {n + 1}"} for n in range(3)]


def cited(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["cite", str(path)]) == 0
    return capsys.readouterr().out


def entries(text: str) -> dict[str, dict[str, str]]:
    """Key -> fields of each entry, by a strict reading of BibTeX's plainest form."""
    found = {}
    for kind, key, body in re.findall(r"@(\w+)\{([\w-]+),\n((?:  \w+ = \{.*\},\n)*)\}", text):
        found[key] = {"kind": kind, **dict(re.findall(r"  (\w+) = \{(.*)\},\n", body))}
    assert text.count("@") == len(found)
    return found


def test_a_run_cites_toolkit_protocol_and_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = jsonl(tmp_path / "test.jsonl", GSM8K)
    output = f"output={tmp_path / 'runs'}"
    sweep = debate_local.run(["task=gsm8k", f"task.path={path}", "engine=scripted", "controls=false", output])
    found = entries(cited(sweep.runs[0].folder, capsys))
    assert found["debate_local"]["kind"] == "software" and found["debate_local"]["version"] == debate_local.__version__
    assert found["du2024"]["eprint"] == "2305.14325"
    assert found["data_gsm8k"]["title"] == "{GSM8K}"
    assert found["data_gsm8k"]["howpublished"] == "GitHub repository openai/grade-school-math"
    assert found["data_gsm8k"]["note"].startswith("licence: MIT, rows ")
    assert not any(key.startswith("model") for key in found)


def test_a_sweep_cites_each_source_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = jsonl(tmp_path / "test.jsonl", GSM8K)
    more = ["engine=scripted", "protocol.rounds=1,2", f"output={tmp_path / 'runs'}"]
    sweep = debate_local.run(["task=gsm8k", f"task.path={path}", *more], multirun=True)
    assert len(sweep.runs) > 2
    assert set(entries(cited(sweep.folder, capsys))) == {"debate_local", "du2024", "data_gsm8k"}


def test_a_preset_of_a_paper_is_cited_although_the_protocol_is_anothers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = jsonl(tmp_path / "test.jsonl", GSM8K)
    more = ["engine=scripted", "protocol=self_consistency", f"output={tmp_path / 'runs'}"]
    assert main(["run", "task=gsm8k_chen2024", f"task.path={path}", *more]) == 0
    (folder,) = (tmp_path / "runs" / "sweeps").iterdir()
    assert "chen2024" in entries(cited(folder, capsys))
    # The run alone finds the sweep that lies beside it.
    (run,) = (path for path in (tmp_path / "runs").iterdir() if (path / "run.json").exists())
    assert "chen2024" in entries(cited(run, capsys))


def test_data_of_ones_own_is_named_and_gets_no_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = jsonl(tmp_path / "own.jsonl", [{"question": "1 + 1?", "target": 2}])
    output = f"output={tmp_path / 'runs'}"
    sweep = debate_local.run(["task=jsonl", f"task.path={path}", "engine=scripted", "controls=false", output])
    text = cited(sweep.folder, capsys)
    assert re.search(r"% .*own\.jsonl: your own file, with its own licence", text)
    assert not any(key.startswith("data") for key in entries(text))


def test_generated_data_cites_the_paper_that_it_follows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["task=arithmetic", "task.items=2", "engine=scripted", "protocol=single", "controls=false"]
    sweep = debate_local.run([*base, f"output={tmp_path / 'runs'}"])
    assert set(entries(cited(sweep.folder, capsys))) == {"debate_local", "du2024"}


def record(**more: object) -> dict[str, object]:
    return {"protocol": {"name": "single"}, "task": {"name": "gsm8k"}, "source": {}, **more}


def test_a_model_has_its_licence_where_it_is_known_and_is_no_guess_where_it_is_not() -> None:
    known = {"model": "org/a_b", "revision": "abc", "licence": "Apache-2.0"}
    unknown = {"model": "/models/my_net", "revision": None, "licence": None, "adapter": "/adapters/x"}
    found = entries("\n".join(bibtex([record(models={"a": known, "b": unknown})])))
    assert found["model_org_a_b"] == {
        "kind": "misc",
        "title": "{org/a\\_b}",
        "note": "licence: Apache-2.0, revision abc",
    }
    assert found["model_models_my_net"]["note"] == "licence: see its model card, with the adapter /adapters/x"


def test_the_commit_of_the_hub_is_part_of_the_data_s_entry() -> None:
    source = {"data": "X & Y", "repository": "a/b_c", "hub": "o/d", "commit": "f" * 40, "licence": ""}
    found = entries("\n".join(bibtex([record(source=source, rows_hash="12")])))["data_gsm8k"]
    assert found["title"] == "{X \\& Y}" and found["howpublished"] == "GitHub repository a/b\\_c"
    assert found["note"] == f"licence: not stated, o/d on the hub, commit {'f' * 40}, rows 12"


def test_only_what_is_known_of_a_paper_is_printed() -> None:
    found = entries("\n".join(bibtex([record(source={"papers": ["2508.17536", "9999.12345"]})])))
    assert found["debate_or_vote"] == {
        "kind": "misc",
        "title": "{Debate or Vote}",
        "eprint": "2508.17536",
        "archiveprefix": "arXiv",
    }
    assert found["arxiv_9999_12345"] == {"kind": "misc", "eprint": "9999.12345", "archiveprefix": "arXiv"}
    assert len({paper.key for paper in PAPERS.values()}) == len(PAPERS)


def test_a_protocol_that_is_gone_leaves_the_rest() -> None:
    assert "debate_local" in entries("\n".join(bibtex([record(protocol={"name": "gone_by_now"})])))


def test_the_toolkits_entry_is_that_of_its_citation_file() -> None:
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cff["title"] == TITLE
    assert [f"{{{author['name']}}}" for author in cff["authors"]] == [AUTHORS]


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cite", str(tmp_path)]) == 2
    assert "is no run folder" in capsys.readouterr().err


# Licences of models


def test_a_models_licence_is_what_its_card_states(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("---\nlicense: mit\ntags: [x]\n---\n# A model\n")
    engine = Choice("vllm", {"model": str(tmp_path), "models": {}})
    assert model_sources(engine, {"default": {"kind": "vllm"}}) == {
        "default": {"model": str(tmp_path), "revision": None, "licence": "mit"}
    }


@pytest.mark.parametrize(
    "card", [None, "# A model\nlicense: mit", "---\nlicense: [\n---\n", "---\nlicense: mit\n", "---\n---\n"]
)
def test_no_licence_is_made_up(tmp_path: Path, card: str | None) -> None:
    if card is not None:
        (tmp_path / "README.md").write_text(card)
    found = model_sources(Choice("hf", {"model": str(tmp_path), "models": {}}), {"default": {"kind": "hf"}})
    assert found["default"]["licence"] is None


def test_every_model_of_a_pool_and_its_adapters_are_told_apart(tmp_path: Path) -> None:
    pool = {"a": {"model": "smollm2-135m-instruct"}, "b": {"model": "org/name", "adapters": {"x": "/adapters/x"}}}
    identity = {
        "a": {"kind": "vllm", "weights": {}},
        "b": {"kind": "vllm", "model": "org/name", "revision": "abc"},
        "b.x": {"kind": "vllm", "model": "org/name", "revision": "abc", "adapter": {}},
    }
    found = model_sources(Choice("vllm", {"model": "unused", "models": pool}), identity)
    assert found["a"] == {"model": "smollm2-135m-instruct", "revision": None, "licence": "Apache-2.0"}
    assert found["b"] == {"model": "org/name", "revision": "abc", "licence": None}
    assert found["b.x"]["adapter"] == "/adapters/x"


def test_an_engine_without_a_model_has_none() -> None:
    assert model_sources(Choice("scripted", {}), {"default": {"kind": "scripted"}}) == {}
