"""Nothing that a back end says reaches the terminal: it goes to the engine's log.

Knows this process's output and the log of transformers, which keeps a stream of its own.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

NO_LOG = Path(os.devnull)


def log_file(path: str | None) -> Path:
    """The log at a path, its folder made; NO_LOG without one."""
    if path is None:
        return NO_LOG
    file = Path(path).resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


@contextlib.contextmanager
def said_to(log: Path) -> Iterator[None]:
    """Prints, progress bars, warnings and transformers' log of this process go to a file."""
    logger = logging.getLogger("transformers")
    before = logger.handlers[:]
    with log.open("a", buffering=1) as stream, contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        try:
            logger.handlers[:] = [logging.StreamHandler(stream)]
            yield
        finally:
            logger.handlers[:] = before
