"""`debate-local cache report|clear`: the size of the generation cache, and a way to empty it."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.table import Table

from debate_local.commands.terminal import console
from debate_local.engines.cache import cache_report, clear_cache


def arguments(parser: ArgumentParser) -> None:
    """The options of `cache`."""
    parser.add_argument("action", choices=["report", "clear"])
    parser.add_argument("--output", default="runs", help="the output root (default: runs)")
    parser.add_argument("--identity", help="only this engine identity (its name in the report, or how that begins)")
    parser.add_argument("--yes", action="store_true", help="clear without it only says what would go")


def main(options: Namespace) -> int:
    """Print the report, or clear."""
    root = Path(options.output) / "cache"
    out = console()
    reports = [entry for entry in cache_report(root) if entry.identity.startswith(options.identity or "")]
    table = Table(title=f"generation cache in {root}", title_justify="left")
    for heading in ("identity", "model", "completions", "parts", "being written", "MiB"):
        table.add_column(heading)
    for report in reports:
        model = str(report.about.get("model", report.about.get("kind", "")))
        counts = (report.entries, report.parts, report.live)
        table.add_row(report.identity, model, *map(str, counts), f"{report.bytes / 2**20:.1f}")
    out.print(table)
    if options.action == "clear":
        if not options.yes:
            out.print("nothing was cleared: add --yes to delete these completions (finished runs keep their tables)")
            return 1
        freed = clear_cache(root, options.identity)
        out.print(f"cleared: {freed / 2**20:.1f} MiB")
    return 0
