"""`debate-local cache report|clear`: the size of the generation cache, and a way to empty it."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from debate_local.engines.cache import cache_report, clear_cache


def arguments(parser: ArgumentParser) -> None:
    """The options of `cache`."""
    parser.add_argument("action", choices=["report", "clear"])
    parser.add_argument("--output", default="runs", help="the output root (default: runs)")
    parser.add_argument("--identity", help="only this engine identity (the folder's name in the report)")
    parser.add_argument("--yes", action="store_true", help="clear without it only says what would go")


def main(options: Namespace) -> int:
    """Print the report, or clear."""
    root = Path(options.output) / "cache"
    console = Console()
    reports = [r for r in cache_report(root) if options.identity in (None, r.identity)]
    table = Table(title=f"generation cache in {root}", title_justify="left")
    for heading in ("identity", "model", "completions", "parts", "MiB"):
        table.add_column(heading)
    for report in reports:
        size = f"{report.bytes / 2**20:.1f}"
        table.add_row(report.identity, report.model, str(report.entries), str(report.parts), size)
    console.print(table)
    if options.action == "clear":
        if not options.yes:
            console.print(
                "nothing was cleared: add --yes to delete these completions (finished runs keep their tables)"
            )
            return 1
        clear_cache(root, options.identity)
        console.print("cleared")
    return 0
