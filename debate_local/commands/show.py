"""`debate-local show PATH`: a sweep's table, a run's items, or a debate's transcript as a person reads it."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from debate_local.analysis.debates import Flip, flips
from debate_local.analysis.parts import by_group, trap_rate, without_suspects
from debate_local.analysis.readable import readable, unread_confidences
from debate_local.analysis.rounds import decisions_for, round_by_round, team_answers
from debate_local.analysis.statistics import Estimate
from debate_local.analysis.summary import (
    CellSummary,
    by_task,
    compare,
    equal_cost_control,
    percent,
    points,
    summarise,
    verdict,
)
from debate_local.analysis.verdicts import Verdicts, by_round, consensus, verdicts
from debate_local.commands import terminal
from debate_local.sweep.store import Run, StoreFault, Sweep, load
from debate_local.tasks import quirks


def arguments(parser: ArgumentParser) -> None:
    """The options of `show`."""
    parser.add_argument("path", help="a run folder or a sweep folder")
    parser.add_argument("--item", help="an item's id, or its number from 1: print that debate")
    parser.add_argument("--agent", type=int, help="only this agent's turns, from 1")
    parser.add_argument("--prompts", action="store_true", help="print what each agent was asked, too")
    parser.add_argument("--readable", action="store_true", help="print how many of a run's replies could be read")


def main(options: Namespace) -> int:
    """Print what was asked for. Raises StoreFault for a path that is neither a run nor a sweep."""
    found = load(options.path)
    if isinstance(found, Sweep):
        if options.item is not None or options.agent is not None or options.readable:
            raise StoreFault(f"--item, --agent and --readable need a run; the runs of this sweep: {_names(found)}")
        print_sweep(found)
    elif options.readable:
        _print_readable(found)
    elif options.item is None and options.agent is None:
        _print_items(found)
    else:
        _print_debate(found, "1" if options.item is None else options.item, options.agent, options.prompts)
    return 0


def _names(sweep: Sweep) -> str:
    return ", ".join(str(run.folder) for run in sweep.runs)


def print_sweep(sweep: Sweep, sent: int | None = None) -> None:
    """A table for each task, and the one comparison that matters, by the rule of all reports."""
    console = terminal.console()
    all_summaries = summarise(sweep)
    if not all_summaries:
        console.print(f"no run of {sweep.folder} is finished yet")
        return
    shown = all_summaries[0]
    for part in by_task(sweep):
        summaries = summarise(part)
        if not summaries:
            continue
        console.print(_table(part, summaries))
        for line in _counts(summaries):
            console.print(f"[yellow]{escape(line)}[/]")
        for line in _quirks(part):
            console.print(f"[yellow]{escape(line)}[/]", highlight=False)
        for line in _special(summaries):
            console.print(escape(line), highlight=False)
        if (found := verdict(part)) is not None:
            console.print(Text(found.text, style="bold"))
            for line in found.more:
                console.print(escape(line), highlight=False)
            shown = found.best
    console.print(f"[dim]{_LEGEND}[/]")
    if missing := [cell.run for cell in sweep.cells if not cell.run.done]:
        console.print(f"[yellow]{_unfinished(missing, len(sweep.cells))}[/]")
        console.print(f"to go on: {terminal.to_type('resume', sweep.folder)}", soft_wrap=True, markup=False)
    if any(summary.failed for summary in all_summaries):
        again = terminal.to_type("resume", sweep.folder, "--retry-failed")
        console.print(f"to ask again what the engine failed: {again}", soft_wrap=True, markup=False)
    if sent is not None:
        naive = sum(summary.turns for summary in all_summaries)
        console.print(f"{naive} requests in these cells, {sent} sent to an engine now, the rest shared or cached")
    console.print(f"sweep: {sweep.folder}", soft_wrap=True, markup=False)
    transcript = terminal.to_type("show", shown.cell.run.folder, "--item", 1)
    console.print(f"a transcript: {transcript}", soft_wrap=True, markup=False)


def _unfinished(runs: list[Run], of: int) -> str:
    """How many runs are not whole, and how many of their items are there."""
    stored = [len(run.debates) if run.has_tables else 0 for run in runs]
    items = [int(run.record["items"]) for run in runs]
    few = f"{min(stored)}" if min(stored) == max(stored) else f"{min(stored)} to {max(stored)}"
    return f"{len(runs)} of {of} runs are not finished: {few} of {max(items)} items are stored"


def _table(sweep: Sweep, summaries: list[CellSummary]) -> Table:
    first = summaries[0]
    record = first.cell.run.record
    table = Table(title=f"{record['task']['name']}, {first.score.n} items", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("", justify="right")
    table.add_column("cell", overflow="fold")
    table.add_column("control")
    for heading in (f"{record['metric']['name']} %", "no answer %", "calls", "tokens in", "out", "vs equal calls"):
        table.add_column(heading, justify="right", no_wrap=heading == "vs equal calls")
    numbers = {cell.run.id: str(n) for n, cell in enumerate((c for c in sweep.cells if c.asked), 1)}
    for summary in summaries:
        table.add_row(*_cells(sweep, summary, numbers))
    return table


def _cells(sweep: Sweep, summary: CellSummary, numbers: Mapping[str, str]) -> list[str]:
    control = equal_cost_control(sweep, summary.cell.run)
    difference = compare(summary.cell.run, control.run) if control and control.run.done else None
    is_its_own = control is not None and control is equal_cost_control(sweep, summary.cell.run, ("vote0",))
    return [
        numbers.get(summary.cell.run.id, ""),
        escape(summary.label),
        _roles(summary, numbers),
        escape(points(summary.score)) if summary.score.n else "-",
        f"{100 * summary.no_answer:.1f}",
        f"{summary.calls:.0f}",
        f"{summary.prompt_tokens:.0f}",
        f"{summary.generated_tokens:.0f}",
        "" if difference is None else "is vote0" if is_its_own else _marked(difference),
    ]


_LEGEND = (
    "calls and tokens: mean an item, as if the cell had been run alone; \\[95 % intervals]; *: the interval does not "
    "hold 0"
)


def _marked(difference: Estimate) -> str:
    """A difference with its interval, and a star where that does not hold 0."""
    return escape(points(difference, sign="+")) + (" *" if difference.tells else "")


def _roles(summary: CellSummary, numbers: Mapping[str, str]) -> str:
    """`vote0 of 1, 2; sc_calls of 1`: which control of which cells."""
    of: dict[str, list[str]] = {}
    for control, run in summary.cell.controls:
        of.setdefault(control, []).append(numbers.get(run, "?"))
    return "; ".join(f"{control} of {', '.join(cells)}" for control, cells in of.items())


def _counts(summaries: list[CellSummary]) -> list[str]:
    thinking = [
        f"{summary.label} {percent(summary.reasoning_share)}" for summary in summaries if summary.reasoning_share
    ]
    lines = [f"share of reasoning in tokens out: {'; '.join(thinking)}"] if thinking else []
    ties = {summary.label: summary.ties for summary in summaries if summary.ties}
    if ties:
        lines.append(f"ties, broken by the rule of each decision: {'; '.join(f'{k} {v}' for k, v in ties.items())}")
    for what, name in (
        ("thoughts cut off before any text", "cut_thoughts"),
        ("turns cut off (max_tokens or context)", "truncated"),
        ("turns whose prompt did not fit", "too_long"),
        ("turns that the engine failed", "failed"),
        ("turns without text", "empty"),
        ("debates whose own code failed", "errors"),
    ):
        counts = {summary.label: getattr(summary, name) for summary in summaries if getattr(summary, name)}
        if counts:
            worst = max(counts, key=lambda label: counts[label])
            lines.append(f"{sum(counts.values())} {what}, most in: {worst} ({counts[worst]})")
    return lines


def _quirks(sweep: Sweep) -> list[str]:
    """What the quirks in a table's cells re-enact, one a line."""
    names = dict.fromkeys(name for cell in sweep.cells for name in cell.run.record.get("quirks") or ())
    return [f"with a fault of released code, {name}: {quirks.told(name)}" for name in names]


def _special(summaries: list[CellSummary]) -> list[str]:
    """What only some cells have: golds that are doubted, tempting wrong answers, judges."""
    sound = {s.label: without_suspects(s.cell.run) for s in summaries}
    told = [f"{label} {percent(score.value)} of {score.n}" for label, score in sound.items() if score is not None]
    lines = [f"without the items whose gold is doubted: {'; '.join(told)}"] if told else []
    traps = []
    for summary in summaries:
        if rates := trap_rate(summary.cell.run):
            rounds = ", ".join(f"round {round} {percent(rate.value)}" for round, rate in rates.items())
            traps.append(f"{summary.label}: {rounds}")
    lines += [f"gave the tempting wrong answer: {'; '.join(traps)}"] if traps else []
    unsaid = {summary.label: unread_confidences(summary.cell.run) for summary in summaries}
    told = [f"{label} {percent(share)}" for label, share in unsaid.items() if share]
    # Such votes have no weight where confidences decide.
    lines += [f"replies in which no confidence could be read: {'; '.join(told)}"] if told else []
    return lines + [f"judge of {s.label}: {ruled.text}" for s in summaries if (ruled := verdicts(s.cell.run))]


def _print_groups(run: Run) -> None:
    """The score by subject or subset, where the task has some."""
    if not (groups := by_group(run)):
        return
    table = Table(box=SIMPLE_HEAD, title="by group", title_justify="left")
    for heading in ("group", "items", f"{run.record['metric']['name']} %"):
        table.add_column(heading, justify="left" if heading == "group" else "right")
    for name, score in groups.items():
        table.add_row(_plain(name), str(score.n), escape(points(score)))
    terminal.console().print(table)


def print_rounds(run: Run, rules: Sequence[str]) -> None:
    """Round by round, the team's score by several decisions and each agent's own; nothing where there is one round."""
    rounds = round_by_round(run, rules)
    if len(rounds) < 2:
        return
    title = f"by round: {run.record['metric']['name']} %; a debate that has ended keeps its answers"
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left")
    agents = [f"agent {number}" for number, _ in enumerate(rounds[0].by_agent, start=1)]
    for heading in ("round", "debates %", "all agree %", *rules, *agents):
        table.add_column(heading, justify="right")
    for one in rounds:
        shares = (one.spoke, one.agreed, *(one.scores[rule] for rule in rules), *one.by_agent)
        table.add_row(str(one.round), *(f"{100 * share:.1f}" for share in shares))
    terminal.console().print(table)


def _print_items(run: Run) -> None:
    console = terminal.console()
    console.print(f"[bold]{escape(run.label)}[/]  {run.folder}", soft_wrap=True)
    table = Table()
    for heading in ("", "item", "question", "target", "answer", "score", "flips"):
        table.add_column(heading)
    turns = run.turns.partition_by("item_id", as_dict=True, maintain_order=True)
    for number, row in enumerate(run.debates.iter_rows(named=True), 1):
        of_item = turns.get((row["item_id"],))
        changed = [f for f in flips(of_item.to_dicts()) if f] if of_item is not None else []
        question = " ".join(row["question"].split())
        table.add_row(
            str(number),
            _plain(row["item_id"]),
            _plain(question if len(question) <= 60 else question[:57] + "..."),
            _plain(row["target"]),
            _answer_word(row),
            "-" if row["score"] is None else f"{row['score']:.2g}",
            ", ".join(changed),
        )
    console.print(table)
    _print_groups(run)
    if (ruled := verdicts(run)) is not None:
        _print_judge(run, ruled)
    elif run.record.get("votable", True):
        print_rounds(run, decisions_for(run))
    debate = terminal.to_type("show", run.folder, "--item", 1)
    console.print(f"one debate: {debate}", soft_wrap=True, markup=False)
    read = terminal.to_type("show", run.folder, "--readable")
    console.print(f"what could be read of replies: {read}", soft_wrap=True, markup=False)


def _print_judge(run: Run, ruled: Verdicts) -> None:
    """What the judge did, and who was right when, where one rules after rounds."""
    table = Table(box=SIMPLE_HEAD, title="by round", title_justify="left")
    scores, agreed = by_round(run), consensus(run)
    for heading in ("round", *(f"{who}, {run.record['metric']['name']} %" for who in scores), "all agree %"):
        table.add_column(heading, justify="right")
    for round, share in agreed.items():
        cells = [escape(points(scores[who][round])) if round in scores[who] else "-" for who in scores]
        table.add_row(str(round), *cells, f"{100 * share:.1f}")
    out = terminal.console()
    out.print(table)
    out.print(f"judge: {ruled.text}", soft_wrap=True, markup=False, highlight=False)


def _print_readable(run: Run) -> None:
    """How many replies hold a readable answer, confidence, stance and JSON."""
    table = Table(box=SIMPLE_HEAD, title=f"{run.label}: replies that could be read", title_justify="left")
    rows = readable(run)
    # What nobody was asked for takes no room.
    shares = [share for share in ("answers", "confidences", "stances", "json") if rows[share].count()]
    for heading in ("who", "model", "round", "prompt, tokens up to", "replies", *(f"{share} %" for share in shares)):
        table.add_column(heading, justify="left" if heading in ("who", "model") else "right")
    for row in rows.iter_rows(named=True):
        who = f"{row['role']} ({row['step']})" if row["step"] else row["role"]
        read = ["-" if row[share] is None else f"{100 * row[share]:.1f}" for share in shares]
        table.add_row(who, row["model"], str(row["round"]), f"{row['prompt']:,}", str(row["replies"]), *read)
    terminal.console().print(table)


def _answer_word(row: Mapping[str, Any]) -> str:
    if row["error"]:
        return f"failed: {_plain(row['error'])}"
    if row["rule"] in ("each", "none"):
        return f"{row['received']} of {row['eligible']} answered"
    return _plain(row["answer"]) if row["answer"] is not None else "no answer"


def _print_debate(run: Run, wanted: str, agent: int | None, prompts: bool) -> None:
    debate = _find(run, wanted)
    turns = run.turns.filter(run.turns["item_id"] == debate["item_id"]).to_dicts()
    agents = sorted({turn["agent"] + 1 for turn in turns})
    if agent is not None and agent not in agents:
        raise StoreFault(f"there is no agent {agent} in this debate; its agents: {', '.join(map(str, agents))}")
    console = terminal.console()
    console.print(f"[bold]{escape(run.label)}[/]  item {_plain(debate['item_id'])}")
    console.print(_text(debate["question"]))
    console.print(f"target: [bold]{_plain(debate['target'])}[/]")
    alone = all(not turn["heard"] for turn in turns if turn["round"] == 0)
    last_round = None
    for turn, changed in zip(turns, flips(turns), strict=True):
        if agent is not None and turn["agent"] + 1 != agent:
            continue
        if turn["round"] != last_round:
            if last_round is not None and agent is None:
                _print_team(console, run, turns, last_round)
            last_round = turn["round"]
            console.rule(
                f"round {last_round}" + (" (independent answers)" if alone and last_round == 0 else ""), align="left"
            )
        _print_turn(console, turn, changed, prompts)
    if last_round and agent is None:
        _print_team(console, run, turns, last_round)
    console.rule("decision", align="left")
    _print_decision(console, debate)


def _print_team(console: Console, run: Run, turns: Sequence[Mapping[str, Any]], round: int) -> None:
    """What the team would answer if it ended after this round, by several decisions, where it goes by confidences."""
    rules = decisions_for(run) if run.record.get("votable", True) else []
    if len(rules) > 1:
        answers = team_answers([turn for turn in turns if turn["round"] <= round], rules, int(run.record["seed"]))
        told = "; ".join(f"{rule}: {answer or 'no answer'}" for rule, answer in answers.items())
        console.print(_text(f"the team after round {round}: {told}", style="bold"))


def _find(run: Run, wanted: str) -> dict[str, Any]:
    rows = run.debates
    by_id = rows.filter(rows["item_id"] == wanted)
    if len(by_id):
        return by_id.row(0, named=True)
    if wanted.isdecimal() and 1 <= int(wanted) <= len(rows):
        return rows.row(int(wanted) - 1, named=True)
    some = ", ".join(rows["item_id"].head(5).to_list())
    raise StoreFault(
        f"there is no item {wanted!r} in {run.folder}; it has {len(rows)} (1 to {len(rows)}), such as: {some}"
    )


def _print_turn(console: Console, turn: Mapping[str, Any], changed: Flip, prompts: bool) -> None:
    heard = ", ".join(f"agent {int(a) + 1} (round {r})" for a, r in (h.split(".") for h in turn["heard"]))
    # A judge is nobody of the cast.
    who = f"agent {turn['agent'] + 1}" if turn["agent"] >= 0 else "helper"
    marks = [word for word in (turn["role"] if turn["role"] != "debater" else "", turn["step"]) if word]
    marks += [f"the {turn['side']} side"] if turn.get("side") else []
    head = who + (f" [{', '.join(dict.fromkeys(marks))}]" if marks else "")
    console.print(Text(head, style="bold cyan"), Text(f"  heard: {heard or 'nobody'}", style="dim"))
    if prompts:
        if turn["history"]:
            console.print(f"[dim]({turn['history']} earlier messages of its own conversation, then:)[/]")
        for message in json.loads(turn["prompt"]):
            console.print(_text(f"{message['role']}: {message['content']}", style="dim"))
    if turn["reasoning"]:
        console.print(_text(f"(reasoning, not shown to others) {turn['reasoning']}", style="italic dim"))
    text = _text(turn["text"])
    if turn["answer_start"] is not None:
        text.stylize("reverse", turn["answer_start"], turn["answer_end"])
    console.print(text if turn["text"] else _text(_silence(turn), style="yellow"))
    console.print(_verdict_line(turn, changed))


# What a model or a row says must not move the cursor or colour the terminal: one mark for each control character.
_CONTROL = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def _text(text: str, style: str = "") -> Text:
    return Text(text.translate(_CONTROL), style=style)


def _plain(text: str) -> str:
    return escape(text.translate(_CONTROL))


def _silence(turn: Mapping[str, Any]) -> str:
    return f"(no text: {turn['finish_reason']}{': ' + turn['error'] if turn['error'] else ''})"


def _verdict_line(turn: Mapping[str, Any], changed: Flip) -> Text:
    if turn["answer"] is None:
        line = Text(f"=> no answer ({turn['answer_rule']})", style="yellow")
    else:
        word = "right" if turn["score"] == 1.0 else "wrong" if turn["score"] == 0.0 else f"score {turn['score']:.2g}"
        line = _text(
            f"=> {turn['answer']} ({turn['answer_rule']}): {word}", style="green" if word == "right" else "red"
        )
    if changed:
        line.append(f"  flip: {changed}", style="magenta")
    if turn.get("confidence") is not None:
        line.append(f"  confidence {turn['confidence']:g}", style="dim")
    for key, word in json.loads(turn.get("stances") or "[]"):
        line.append(f"  {key.translate(_CONTROL)}: {word or 'no stance'}", style="dim")
    if turn["finish_reason"] == "length":
        line.append("  cut off by the context" if turn["clipped"] else "  cut off by max_tokens", style="yellow")
    for note in turn["notes"] or []:
        line.append(f"  [{note}]", style="dim")
    return line


def _print_decision(console: Console, debate: Mapping[str, Any]) -> None:
    if debate["error"]:
        console.print(Text(f"the debate's own code failed: {debate['error']}", style="red"))
        return
    votes = ", ".join(f"{key}: {count:g}" for key, count in json.loads(debate["counts"]).items())
    console.print(f"{debate['rule']}: {escape(_answer_word(debate))}" + (f"   votes: {escape(votes)}" if votes else ""))
    side = f" for the {debate['side']} side" if debate.get("side") else ""
    console.print(f"{debate['received']} of {debate['eligible']} answered{side}; score {debate['score']:.2g}")
    if debate["tied"]:
        console.print(f"a tie between {escape(', '.join(debate['tied']))}: it goes to the earliest agent")
