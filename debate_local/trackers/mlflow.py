"""MLflow: a run a start, and a run a finished run of the sweep, in one experiment.

By default a file store in `<output>/trackers/mlruns`; MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME hold. To look at
it: `MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri <output>/trackers/mlruns`. Knows only MLflow.
"""

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from debate_local.trackers.tracker import Start, Told, Tracker, Value


def mlflow(start: Start, folder: Path) -> Tracker:
    """Runs on the server that MLFLOW_TRACKING_URI names, or below a folder."""
    return MlflowRuns(start, folder)


class MlflowRuns:
    """A tracker (trackers.tracker.Tracker) that makes MLflow runs."""

    def __init__(self, start: Start, folder: Path) -> None:
        # Newer versions refuse a file store without it. A database on a shared file system would not bear many workers.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        self._uri = os.environ.get("MLFLOW_TRACKING_URI") or (folder / "mlruns").absolute().as_uri()
        self._client = MlflowClient(tracking_uri=self._uri)
        self._name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "debate-local")
        with _one_at_a_time(folder):
            found = self._client.get_experiment_by_name(self._name)
            self._experiment = found.experiment_id if found else self._client.create_experiment(self._name)
        self._sweep = start.sweep
        self._id = self._begin(start.name, "progress", start.settings, start.time)

    def _begin(self, name: str, kind: str, settings: Mapping[str, Value], when: float) -> str:
        from mlflow.entities import Param

        tags = {"sweep": self._sweep, "kind": kind}
        run = self._client.create_run(self._experiment, int(when * 1000), tags=tags, run_name=name)
        id: str = run.info.run_id
        self._client.log_batch(id, params=[Param(name, str(value)) for name, value in settings.items()])
        return id

    @property
    def destination(self) -> str:
        return f"{self._uri} {self._name}"

    def progress(self, seconds: int, numbers: Mapping[str, float]) -> None:
        self._log(self._id, numbers, seconds)

    def _log(self, id: str, numbers: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._client.log_batch(id, metrics=[Metric(name, value, now, step) for name, value in numbers.items()])

    def finished(self, run: Told) -> None:
        id = self._begin(run.label, "result", {**run.settings, "run": run.id}, time.time())
        self._log(id, run.numbers, 0)
        self._client.set_terminated(id, "FINISHED")

    def close(self, failed: bool) -> None:
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[Any]:
    """Workers that start together would each make the experiment; where there is no flock, they may."""
    with (folder / ".mlflow-lock").open("a") as file:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
