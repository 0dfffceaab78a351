"""`debate-local status SWEEP`: how far it is, cell by shard; with --log, what its workers told."""

import json
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from debate_local.commands import terminal
from debate_local.commands.joint_log import drawn_log
from debate_local.commands.progress import clock
from debate_local.sweep.frozen import FrozenPlan, read_frozen
from debate_local.sweep.status import CellStatus, State, SweepStatus, joint_log, status

_MARKS: dict[State, tuple[str, str]] = {
    "done": ("#", "green"),
    "running": (">", "cyan"),
    "stopped": ("s", "yellow"),
    "failed": ("F", "red"),
    "died": ("X", "red"),
    "silent": ("?", "yellow"),
    "missing": (".", "dim"),
}
# More shards than this are counted, not drawn.
_DRAWN = 64
_SECONDS = 2.0


def arguments(parser: ArgumentParser) -> None:
    """The options of `status`."""
    parser.add_argument("sweep", help="a sweep's folder, such as runs/sweeps/1a2b3c4d")
    parser.add_argument("--watch", action="store_true", help="look again every two seconds, until the sweep is done")
    parser.add_argument("--log", action="store_true", help="print what all workers told, in order of time")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def main(options: Namespace) -> int:
    """Print what is there; exit code 1 when a shard failed or died."""
    frozen = read_frozen(Path(options.sweep))
    out = terminal.console()
    if options.log:
        for line in drawn_log(joint_log(frozen), {run.id: run.label for run in frozen.runs}):
            out.print(line, soft_wrap=True)
        return 0
    now = status(frozen)
    if options.json:
        print(json.dumps(now.to_json(), indent=2))
    elif options.watch:
        with Live(drawn(frozen, now), console=out, auto_refresh=False) as live:
            while not now.done and any(shard.state in ("missing", "running") for shard in now.shards):
                time.sleep(_SECONDS)
                now = status(frozen)
                live.update(drawn(frozen, now), refresh=True)
    else:
        out.print(drawn(frozen, now), crop=False)
    return int(any(shard.state in ("failed", "died") for shard in now.shards))


def drawn(frozen: FrozenPlan, now: SweepStatus) -> Group:
    """The sweep as a table: one line a cell, one mark a shard; then what went wrong, and how to go on."""
    table = Table(box=SIMPLE_HEAD, title=f"sweep {now.sweep}", title_justify="left")
    table.add_column("cell", overflow="fold")
    table.add_column("items", justify="right")
    table.add_column("shards" if len(now.shards) > 1 else "")
    for cell in now.cells:
        table.add_row(escape(cell.label), f"{cell.items_done} of {cell.items}", _marks(cell))
    states = Counter(shard.state for shard in now.shards)
    lines = [Text(" ".join(f"{mark} {state}" for state, (mark, _) in _MARKS.items()), style="dim")]
    told = ", ".join(f"{count} {state}" for state, count in states.items())
    pace = f", {now.tokens_per_second:.0f} tokens/s, left {clock(now.seconds_left)}" if states["running"] else ""
    lines.append(Text(f"{now.turns_done} of {now.turns} turns; shards: {told}{pace}"))
    for shard in now.shards:
        if shard.error:
            where = f"shard {shard.number} {shard.state} on {shard.host}"
            lines.append(Text(f"{where}: {shard.error}\n  its log: {shard.log}", style=_MARKS[shard.state][1]))
    root = frozen.how.output
    if not any((root / run.id).exists() for run in frozen.runs) and not (root / "cache").exists():
        lines.append(Text(f"no run of this sweep lies in {root}: look from where it was run, or copy its runs, too"))
    if now.done:
        lines.append(_one_line(f"all done: {terminal.to_type('show', frozen.folder)}"))
    elif not states["running"]:
        lines.append(_one_line(f"to go on: {terminal.to_type('resume', frozen.folder)}"))
    return Group(table, *lines)


def _one_line(text: str) -> Text:
    """A line that is not broken, so that it can be pasted."""
    return Text(text, no_wrap=True, overflow="ignore")


def _marks(cell: CellStatus) -> Text:
    if len(cell.shards) <= _DRAWN:
        text = Text()
        for _, state in sorted(cell.shards.items()):
            mark, style = _MARKS[state]
            text.append(mark, style=style)
        return text
    counts = Counter(cell.shards.values())
    return Text(", ".join(f"{counts[state]} {state}" for state in _MARKS if counts[state]))
