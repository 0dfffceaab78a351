"""Where commands print."""

from rich.console import Console


def console() -> Console:
    """Standard output; a file or a pipe gets 120 columns, because 80 would break every line of a table."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=120)
