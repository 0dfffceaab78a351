"""The doorway: `debate-local COMMAND ...`. It finds the command and turns errors into messages and exit codes.

Exit codes: 0 all well; 1 something is missing or failed; 2 what was asked cannot be; 130 stopped by Ctrl-C.
Nothing heavy is imported before a command is known.
"""

import argparse
import errno
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence

COMMANDS = {
    "run": "run a debate, or with -m a sweep: debate-local run task=gsm8k protocol=debate limit=20",
    "plan": "say what `run` would cost and what would fail, without opening an engine",
    "show": "print a sweep's table, a run's items, or one debate's transcript",
    "status": "say how far a sweep is, shard by shard; --watch, --log",
    "resume": "run what is missing of a sweep, from its frozen plan",
    "work": "run shards of a frozen sweep: what launchers and queues start",
    "rerun": "make a stored run again, from its run.json, and say what differs now",
    "rescore": "read and score a run's stored replies again, by today's rules, and show what changed",
    "decide": "decide a stored run's debates otherwise, by votes without an engine, or by asking through the cache",
    "convince": "find samples that convince each model of a run, on a training split, and write them to a file",
    "answers": "read and grade a file of replies, anybody's, and print where it disagrees",
    "cite": "print BibTeX for a run: toolkit, papers, data and models",
    "cache": "show the size of the generation cache, or clear it",
    "models": "list the models on this machine, with size, context and what their chat templates allow",
    "doctor": "say what this machine has and lacks, and how to mend it",
    "completion": "print a script that completes commands and settings: bash, zsh, fish",
}


_ABOUT_THE_PLACE = {
    *(errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.ENOENT, errno.EEXIST, errno.ENAMETOOLONG),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        # A letter that the terminal's encoding lacks must not end a night's run in its last line.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if threading.current_thread() is threading.main_thread():
        # A batch system says TERM where a person says Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _dispatch(arguments)
    except KeyboardInterrupt:
        _say("stopped. Every completion so far is kept; run the same command again to go on.")
        return 130
    except BrokenPipeError:
        # The reader of our output (head, less) went away.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno == errno.EMFILE:
            _say(f"error: {error}. Raise the limit (ulimit -n 65536) or run fewer cells at once, and run it again.")
        elif error.errno in _ABOUT_THE_PLACE:
            _say(f"error: {error}. What was answered is kept; make room or choose another output=, and run it again.")
        else:
            raise
        return 1
    except Exception as error:
        if not _expected(error) or os.environ.get("DEBATE_LOCAL_TRACE"):
            raise
        _say(f"error: {error}")
        return 2 if isinstance(error, ValueError) else 1


def _expected(error: Exception) -> bool:
    """Errors made for a person to read: ours, by where their class was defined."""
    return any(kind.__module__.startswith("debate_local.") for kind in type(error).__mro__)


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] in (["run"], ["plan"], ["convince"]):
        # What follows is Hydra's grammar, not options of ours.
        composed: int = importlib.import_module(f"debate_local.commands.{arguments[0]}").main(arguments[1:])
        return composed
    options = parser(arguments).parse_args(arguments)
    code: int = options.main(options)
    return code


def parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands but `run` and `plan`; the one that the arguments name has its options."""
    top = argparse.ArgumentParser(
        prog="debate-local", description="Multi-agent debate on open-weight language models, on your own hardware."
    )
    top.add_argument("--version", action="version", version=_version())
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    wanted = arguments[0] if arguments else ""
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text)
        # Only the wanted command's module is imported: `--help` stays fast.
        if name == wanted:
            module = importlib.import_module(f"debate_local.commands.{name}")
            module.arguments(sub)
            sub.set_defaults(main=module.main)
    return top


def _version() -> str:
    from debate_local import __version__

    return f"debate-local {__version__}"


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
