"""`debate-local answers FILE.jsonl`: read and grade anybody's graded cases, and print where the verdicts disagree.

One JSON object a line, in the schema of `tasks/answers/graded.py`. Where the file says what was expected
(expect_answer, alt_answers, expect_correct), that is what verdicts are held against; elsewhere the gold is. Lines go to
--output, else to standard output, and what is for people then goes to standard error.
"""

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from debate_local.commands import terminal
from debate_local.tasks.answers.graded import CaseError, CaseVerdict, grade_case, means

# More disagreements than this are counted, not printed.
_SHOWN = 100
_LONGEST_TEXT = 240


class AnswersFault(ValueError):
    """The file cannot be read, or holds what is no case."""


@dataclass
class _Counts:
    """What became of the cases of one task."""

    cases: int = 0
    answered: int = 0
    correct: int = 0
    disagreements: int = 0


@dataclass
class _Audit:
    """All that is told at the end."""

    expects: bool = False
    tasks: dict[str, _Counts] = field(default_factory=dict)
    shown: list[tuple[Mapping[str, Any], CaseVerdict]] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)


def arguments(parser: ArgumentParser) -> None:
    """The options of `answers`."""
    parser.add_argument(
        "file", help="JSON lines: id, text, task, gold, and choices and finish_reason where there are any"
    )
    parser.add_argument("--output", help="write one line a case here: id, answer, rule, correct")


def main(options: Namespace) -> int:
    """Read, grade and tell. Exit code 1 when a line could not be read. Raises AnswersFault and CaseError."""
    file = Path(options.file)
    audit = _Audit()
    with _writing(options.output, file) as out:
        for number, case in _cases(file, audit):
            try:
                verdict = grade_case(case)
                _count(audit, case, verdict)
            except CaseError as error:
                raise CaseError(f"{file}, line {number}: {error}") from error
            row = {"id": case["id"], "answer": verdict.answer, "rule": verdict.rule, "correct": verdict.correct}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    if not audit.tasks:
        raise AnswersFault(f"{file} holds no case: one JSON object a line is expected, with id, text, task and gold")
    _print(audit, terminal.console() if options.output else Console(stderr=True, width=120))
    if options.output:
        print(f"one line a case: {options.output}")
    return 1 if audit.torn else 0


def _cases(file: Path, audit: _Audit) -> Iterator[tuple[int, dict[str, Any]]]:
    """The cases with the numbers of their lines. Blank lines are skipped, torn ones noted."""
    if not file.is_file():
        raise AnswersFault(f"{file} {'is a folder' if file.is_dir() else 'does not exist'}: give a file of JSON lines")
    # utf-8-sig: files that went through Windows begin with a byte order mark.
    with file.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                case = json.loads(line)
            except (ValueError, RecursionError) as error:
                audit.torn.append(f"line {number} is no JSON ({error}): {line.strip()[:80]!a}")
                continue
            if not isinstance(case, dict):
                raise AnswersFault(f"{file}, line {number}: expected an object, got {line.strip()[:80]!r}")
            yield number, case


@contextmanager
def _writing(path: str | None, read: Path) -> Iterator[TextIO]:
    """Where lines go. A file is written beside and renamed, so that an error leaves no half of it."""
    if path is None:
        yield sys.stdout
        return
    target = Path(path)
    if target.exists() and target.samefile(read):
        raise AnswersFault(f"--output {path} is the file that is read: give another")
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8", errors="surrogateescape") as file:
            yield file
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def _count(audit: _Audit, case: Mapping[str, Any], verdict: CaseVerdict) -> None:
    counts = audit.tasks.setdefault(case["task"], _Counts())
    counts.cases += 1
    counts.answered += verdict.answer is not None
    counts.correct += verdict.correct
    audit.expects |= "expect_answer" in case or "expect_correct" in case
    if _disagrees(case, verdict):
        counts.disagreements += 1
        if len(audit.shown) < _SHOWN:
            audit.shown.append((case, verdict))


def _disagrees(case: Mapping[str, Any], verdict: CaseVerdict) -> bool:
    """Against what was expected: the answer or another that can be defended, and the verdict on it. Else, the gold."""
    if "expect_answer" in case:
        if not means(case, verdict, case["expect_answer"]):
            return not any(means(case, verdict, other) for other in case.get("alt_answers") or ())
        return "expect_correct" in case and verdict.correct != case["expect_correct"]
    return bool(verdict.correct != case.get("expect_correct", True))


def _print(audit: _Audit, out: Console) -> None:
    against = "what was expected" if audit.expects else "the gold"
    for case, verdict in audit.shown:
        out.print(_told(case, verdict))
    total = sum(counts.disagreements for counts in audit.tasks.values())
    if total > len(audit.shown):
        out.print(f"... and {total - len(audit.shown)} more", style="dim")
    table = Table(box=SIMPLE_HEAD, title=f"disagreements with {against}: {total}", title_justify="left")
    for heading in ("task", "cases", "correct", "wrong", "no answer", "disagreements"):
        table.add_column(heading, justify="left" if heading == "task" else "right")
    for task, counts in sorted(audit.tasks.items()):
        wrong = counts.answered - counts.correct
        numbers = (counts.cases, counts.correct, wrong, counts.cases - counts.answered, counts.disagreements)
        table.add_row(Text(task), *(f"{number:,}" for number in numbers))
    out.print(table)
    for line in audit.torn:
        out.print(Text(f"not read: {line}", style="yellow"))


def _told(case: Mapping[str, Any], verdict: CaseVerdict) -> Text:
    """One disagreement: the end of the reply, what was read, and what was expected."""
    text = " ".join(str(case["text"]).split())
    text = text if len(text) <= _LONGEST_TEXT else f"... {text[-_LONGEST_TEXT:]}"
    told = Text(f"{case['task']} {case['id']}", style="bold")
    if case.get("kind"):
        told.append(f" ({case['kind']})", style="dim")
    told.append(f"\n  reply     {text}\n  gold      {case['gold']}", style="not bold")
    told.append(
        f"\n  read      {_word(verdict.answer)}, {'right' if verdict.correct else 'wrong'}", style="red not bold"
    )
    told.append(f" ({verdict.rule})", style="dim")
    if "expect_answer" in case or "expect_correct" in case:
        expected = _word(case["expect_answer"]) if "expect_answer" in case else "?"
        right = "" if "expect_correct" not in case else ", right" if case["expect_correct"] else ", wrong"
        told.append(f"\n  expected  {expected}{right}", style="green not bold")
    if case.get("why"):
        told.append(f"  {case['why']}", style="dim")
    return Text(told.plain.encode("utf-8", "replace").decode(), spans=told.spans, style="")


def _word(answer: Any) -> str:
    return "no answer" if answer is None else str(answer)
