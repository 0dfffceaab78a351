"""Where commands print, and how they tell a person what to type."""

import shlex

from rich.console import Console


def console() -> Console:
    """Standard output; a file or a pipe gets 120 columns, because 80 would break every line of a table."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=120)


def to_type(*words: object) -> str:
    """A command of ours that can be pasted: a path with spaces or quotes in it is quoted."""
    return shlex.join(["debate-local", *map(str, words)])
