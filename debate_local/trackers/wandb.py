"""Weights & Biases: a run a start, and a run a finished run of the sweep, all in one group.

It never asks for a login: without a key, or where the server cannot be reached, all is kept in
`<output>/trackers/wandb`, and `wandb sync` sends it later. wandb's own variables hold (WANDB_PROJECT, WANDB_ENTITY,
WANDB_MODE, WANDB_BASE_URL). Knows only wandb.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from debate_local.trackers.tracker import Start, Told, Tracker

# A server that has not answered by then is not waited for.
_CONNECT_SECONDS = 15


def wandb(start: Start, folder: Path) -> Tracker:
    """Runs on the server that wandb is set up for, or below a folder."""
    return WandbRuns(start, folder)


class WandbRuns:
    """A tracker (trackers.tracker.Tracker) that makes wandb runs."""

    def __init__(self, start: Start, folder: Path) -> None:
        # Reports of wandb's own crashes would be sent over the network.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._wandb, self._folder, self._sweep = wandb, folder, start.sweep
        self._project = os.environ.get("WANDB_PROJECT", "debate-local")
        self._mode: Any = os.environ.get("WANDB_MODE")
        named = {"name": start.name, "job_type": "progress", "config": dict(start.settings)}
        try:
            self._run = self._begin(named)
        except wandb.Error as error:
            kept = folder / "wandb"
            print(
                f"note: wandb sends nothing ({' '.join(str(error).split())}). All is kept in {kept}; to send it later: "
                f"wandb login, then wandb sync {kept / 'offline-run-*'}"
            )
            self._mode = "offline"
            self._run = self._begin(named)

    def _begin(self, given: Mapping[str, Any]) -> Any:
        settings = self._wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, init_timeout=_CONNECT_SECONDS
        )
        place: dict[str, Any] = {"project": self._project, "group": f"sweep {self._sweep}", "dir": str(self._folder)}
        return self._wandb.init(**place, mode=self._mode, settings=settings, reinit="create_new", **given)

    @property
    def destination(self) -> str:
        where = [os.environ.get("WANDB_BASE_URL", ""), os.environ.get("WANDB_ENTITY", ""), self._project]
        return "/".join([*where, str(self._folder.absolute()) if self._mode == "offline" else ""])

    def progress(self, seconds: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=seconds)

    def finished(self, run: Told) -> None:
        settings = {**run.settings, "run": run.id}
        one = self._begin({"name": run.label, "job_type": "result", "config": settings})
        one.summary.update(dict(run.numbers))
        one.finish()

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))
