"""`debate-local plan ...`: takes what `run` takes, says what it would cost and what would fail, and opens no engine."""

import json
import sys
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from debate_local.commands.terminal import console
from debate_local.sweep.compose import compose
from debate_local.sweep.forecast import Forecast, forecast
from debate_local.sweep.plan import make_plan


def main(arguments: Sequence[str]) -> int:
    """Print the forecast; `-m` sweeps as in `run`; `--json` prints it as JSON."""
    if {"-h", "--help"} & set(arguments):
        print("usage: debate-local plan [-m] [--json] [OVERRIDE ...]\n\n" + str(__doc__))
        return 0
    overrides = [a for a in arguments if a not in ("-m", "--multirun", "--json")]
    cells, how = compose(overrides, multirun=bool({"-m", "--multirun"} & set(arguments)))
    found = forecast(make_plan(cells), how)
    if "--json" in arguments:
        json.dump(found.to_json(), sys.stdout, indent=2, ensure_ascii=False)
        print()
    else:
        _print(found)
    return 0


def _print(found: Forecast) -> None:
    table = Table(box=SIMPLE_HEAD, title=f"{len(found.runs)} runs", title_justify="left")
    table.add_column("cell", overflow="fold")
    table.add_column("control")
    for heading in ("items", "requests", "new", "tokens in", "tokens out", "at most", "longest prompt"):
        table.add_column(heading, justify="right")
    for run in found.runs:
        table.add_row(
            escape(run.label),
            ", ".join(dict.fromkeys(name for name, _ in run.controls)) + (" (estimate)" if run.estimated else ""),
            str(run.items),
            f"{run.naive:,}",
            "done" if run.done else f"{run.new:,}",
            f"{run.prompt_tokens:,}",
            f"{run.generated_tokens_expected:,}",
            f"{run.generated_tokens_at_most:,}",
            f"{run.longest_prompt:,}",
        )
    out = console()
    out.print(table)
    exact = "" if found.exact else " (scaled up from evenly spaced items)"
    out.print(
        f"requests{exact}: {found.naive:,} if every cell ran alone; {found.distinct:,} distinct; "
        f"{found.cached:,} of them in the cache; {found.new:,} to be sent"
    )
    out.print(
        f"tokens to come: {found.new_prompt_tokens:,} in; {found.new_generated_expected:,} out expected, "
        f"{found.new_generated_at_most:,} at most ({found.reply_tokens})"
    )
    out.print(f"disk: about {found.disk_bytes / 2**20:,.0f} MiB needed, {found.disk_free / 2**30:,.0f} GiB free")
    for licence in found.licences:
        out.print(escape(licence))
    for warning in found.warnings:
        out.print(f"[yellow]warning:[/] {escape(warning)}")
