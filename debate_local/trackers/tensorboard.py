"""TensorBoard: event files in `<output>/trackers/tensorboard`, a folder a start and a folder a finished run.

To look at them: `tensorboard --logdir <output>/trackers/tensorboard`. HPARAMS holds the runs' settings and results,
SCALARS the progress of each start, TEXT its command and cells. Nothing is sent anywhere.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from debate_local.trackers.tracker import Start, Told, Tracker


def tensorboard(start: Start, folder: Path) -> Tracker:
    """Event files below a folder."""
    return EventFiles(start, folder / "tensorboard" / start.sweep)


class EventFiles:
    """A tracker (trackers.tracker.Tracker) that writes event files."""

    def __init__(self, start: Start, folder: Path) -> None:
        self._folder = folder
        self._started = start.time
        self._file = _EventFile(folder / "starts" / start.name)
        self._file.text("start", json.dumps(dict(start.settings), indent=2, ensure_ascii=False), start.time)

    @property
    def destination(self) -> str:
        return str(self._folder.absolute())

    def progress(self, seconds: int, numbers: Mapping[str, float]) -> None:
        self._file.scalars("progress", numbers, seconds, self._started + seconds)

    def finished(self, run: Told) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        file = _EventFile(self._folder / "runs" / run.id)
        file.add(hparams_pb({**run.settings, "label": run.label}, trial_id=run.id), 0, time.time())
        file.scalars("results", run.numbers, 0, time.time())
        file.close()

    def close(self, failed: bool) -> None:
        self._file.close()


class _EventFile:
    """One event file in a folder of its own, flushed after every write."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(folder))
        self.close = self._writer.close

    def add(self, summary: Any, step: int, when: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.add_event(Event(wall_time=when, step=step, summary=summary))
        self._writer.flush()

    def scalars(self, above: str, numbers: Mapping[str, float], step: int, when: float) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=f"{above}/{name}", simple_value=value) for name, value in numbers.items()]
        self.add(Summary(value=values), step, when)

    def text(self, tag: str, text: str, when: float) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.plugins.text.metadata import create_summary_metadata

        # Indented, so that Markdown leaves it as it is.
        code = "\n".join(f"    {line}" for line in text.splitlines())
        tensor = TensorProto(dtype="DT_STRING", string_val=[code.encode()])
        metadata = create_summary_metadata(tag, "")
        self.add(Summary(value=[Summary.Value(tag=tag, metadata=metadata, tensor=tensor)]), 0, when)
