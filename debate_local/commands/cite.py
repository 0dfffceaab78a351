"""`debate-local cite PATH`: BibTeX for what stands behind a run or a sweep: toolkit, papers, data, models.

Papers are those that the protocol's own file names by arXiv number, that the data comes from, and that the experiment's
file names. Of every source only what this project knows is printed; what is not known is left out, never filled in.
"""

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debate_local import __version__
from debate_local.sweep import options
from debate_local.sweep.config import config_folder
from debate_local.sweep.store import Run, Sweep, load, load_sweep

TITLE = "debate-local: multi-agent debate on open-weight language models, with honest baselines at equal cost"
AUTHORS = "{The debate-local authors}"


@dataclass(frozen=True, slots=True)
class Paper:
    """What is known of a paper. Empty fields are not known."""

    key: str
    title: str = ""
    author: str = ""
    year: str = ""
    venue: str = ""


# By arXiv number.
PAPERS: Mapping[str, Paper] = {
    "2305.14325": Paper(
        "du2024",
        "Improving Factuality and Reasoning in Language Models through Multiagent Debate",
        "Du and others",
        "2024",
        "ICML",
    ),
    "2305.19118": Paper(
        "liang2024",
        "Encouraging Divergent Thinking in LLMs through Multi-Agent Debate",
        "Liang and others",
        "2024",
        "EMNLP",
    ),
    "2309.13007": Paper(
        "chen2024",
        "ReConcile: Round-Table Conference Improves Reasoning via Consensus among Diverse LLMs",
        "Chen and others",
        "2024",
        "ACL",
    ),
    "2508.17536": Paper("debate_or_vote", "Debate or Vote"),
    "2502.08788": Paper("stop_overvaluing", "Stop Overvaluing MAD"),
    "2311.17371": Paper("going_mad", "Should we be going MAD?"),
    "2605.00914": Paper("cost_of_consensus", "Cost of Consensus"),
    "2509.05396": Paper("talk_not_cheap", "Talk Isn't Always Cheap"),
    "2509.11035": Paper("free_mad", "Free-MAD"),
    "2502.19130": Paper("voting_or_consensus", "Voting or Consensus"),
}


def arguments(parser: ArgumentParser) -> None:
    """The options of `cite`."""
    parser.add_argument("path", help="a run folder or a sweep folder")


def main(options: Namespace) -> int:
    """Print the entries. Raises StoreFault for a path that is neither a run nor a sweep."""
    found = load(options.path)
    sweeps = [found] if isinstance(found, Sweep) else list(_sweeps_with(found))
    runs = list(found.runs) if isinstance(found, Sweep) else [found]
    commands = [sweep.record.get("command") or [] for sweep in sweeps]
    sys.stdout.write("\n\n".join(bibtex([run.record for run in runs], commands)) + "\n")
    return 0


def _sweeps_with(run: Run) -> Iterable[Sweep]:
    """The sweeps beside a run that hold it: their commands name the experiment."""
    for file in sorted(run.folder.absolute().parent.glob("sweeps/*/sweep.json")):
        sweep = load_sweep(file.parent)
        if any(entry.get("run") == run.id for entry in sweep.record["cells"]):
            yield sweep


def bibtex(records: Sequence[Mapping[str, Any]], commands: Sequence[Sequence[str]] = ()) -> list[str]:
    """The entries for these run.json records and the commands that made them, each once, under headings."""
    entries = ["% toolkit", _toolkit(records)]
    papers = _papers(records, commands)
    if papers:
        entries += ["% papers", *(_paper(number) for number in papers)]
    data = _each_once(_data(record) for record in records)
    if data:
        entries += ["% data", *data]
    models = _each_once(_model(facts) for record in records for facts in record.get("models", {}).values())
    if models:
        entries += ["% models", *models]
    return entries


def _each_once(entries: Iterable[str]) -> list[str]:
    return [entry for entry in dict.fromkeys(entries) if entry]


# What is cited


def _toolkit(records: Sequence[Mapping[str, Any]]) -> str:
    commits = dict.fromkeys(str(record["commit"]) for record in records if record.get("commit"))
    version = next((record["versions"]["debate-local"] for record in records if "versions" in record), __version__)
    note = ", ".join(f"commit {commit}" for commit in commits)
    fields = {"title": f"{{{TITLE}}}", "author": AUTHORS, "version": version, "note": note}
    return _entry("software", "debate_local", fields)


_ARXIV = re.compile(r"\b\d{4}\.\d{5}\b")


def _papers(records: Sequence[Mapping[str, Any]], commands: Sequence[Sequence[str]]) -> list[str]:
    """arXiv numbers, in the order in which they are met."""
    texts = [_about_protocol(str(record["protocol"]["name"])) for record in records]
    texts += [" ".join(record.get("source", {}).get("papers", ())) for record in records]
    texts += [_about_experiment(command) for command in commands]
    return list(dict.fromkeys(number for text in texts for number in _ARXIV.findall(text)))


def _about_protocol(name: str) -> str:
    """What the protocol's file says at its top; nothing when it is gone by now."""
    try:
        module = options.load("protocol", name).__module__
    except options.OptionFault:
        return ""
    return sys.modules[module].__doc__ or ""


def _about_experiment(command: Sequence[str]) -> str:
    """The text of the preset files that a command names: experiment=NAME, task=NAME."""
    texts = []
    for word in command:
        group, _, names = word.lstrip("+").partition("=")
        if group in ("experiment", "task"):
            files = [config_folder() / group / f"{name}.yaml" for name in names.split(",")]
            texts += [file.read_text(encoding="utf-8") for file in files if _is_plain(file) and file.is_file()]
    return "\n".join(texts)


def _is_plain(file: Path) -> bool:
    return ".." not in file.parts


def _paper(number: str) -> str:
    paper = PAPERS.get(number, Paper(f"arxiv_{number.replace('.', '_')}"))
    kind = "inproceedings" if paper.venue else "misc"
    title = f"{{{_tex(paper.title)}}}" if paper.title else ""
    fields = {"title": title, "author": paper.author, "booktitle": paper.venue, "year": paper.year}
    return _entry(kind, paper.key, {**fields, "eprint": number, "archiveprefix": "arXiv"})


def _data(record: Mapping[str, Any]) -> str:
    source = record.get("source", {})
    if not source.get("data"):
        return f"% {_tex(str(source['path']))}: your own file, with its own licence" if "path" in source else ""
    from_hub = f"{source['hub']} on the hub" if source.get("hub") else ""
    commit = f"commit {source['commit']}" if source.get("commit") else ""
    licence = source.get("licence") or "not stated"
    told = [f"licence: {licence}", from_hub, commit, f"rows {record['rows_hash']}" if record.get("rows_hash") else ""]
    return _entry(
        "misc",
        f"data_{record['task']['name']}",
        {
            "title": f"{{{_tex(source['data'])}}}",
            "howpublished": f"GitHub repository {_tex(source['repository'])}" if source.get("repository") else "",
            "note": _tex(", ".join(filter(None, told))),
        },
    )


def _model(facts: Mapping[str, Any]) -> str:
    name = str(facts["model"])
    licence = f"licence: {facts['licence']}" if facts.get("licence") else "licence: see its model card"
    revision = f"revision {facts['revision']}" if facts.get("revision") else ""
    adapter = f"with the adapter {facts['adapter']}" if facts.get("adapter") else ""
    return _entry(
        "misc",
        f"model_{re.sub(r'[^A-Za-z0-9]+', '_', name).strip('_')}",
        {"title": f"{{{_tex(name)}}}", "note": _tex(", ".join(filter(None, (licence, revision, adapter))))},
    )


# BibTeX

_SPECIAL = re.compile(r"[&%$#_{}]")


def _tex(text: str) -> str:
    """Text with the characters marked that mean something to TeX."""
    return _SPECIAL.sub(lambda found: "\\" + found.group(), text.replace("\\", "/").replace("~", "\\string~"))


def _entry(kind: str, key: str, fields: Mapping[str, str]) -> str:
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])
