"""The journal of a training that may be killed at any moment: a file beside its checkpoints, a line of JSON a record.

A record `step` has the loss of a step, `saving` comes before the framework's call that saves, and `saved` follows that
call with the hash of each file of the checkpoint, and is synced before the training goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from bench.frameworks.task import Observer
from soak.growing_file import GrowingFile


def hashes_of(checkpoint: Path) -> dict[str, str]:
    """SHA-256 of each file by its path in the folder; that of a single file has the path "."."""
    files = [checkpoint] if checkpoint.is_file() else [path for path in checkpoint.rglob("*") if path.is_file()]
    if not files:
        raise FileNotFoundError(checkpoint)
    return {str(path.relative_to(checkpoint)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


class JournalWriter(Observer):
    def __init__(self, path: Path, pace_s: float) -> None:
        self._path = path
        self._pace_s = pace_s  # the least time between two steps

    def stepped(self, step: int, loss: float) -> None:
        self._write(record="step", step=step, loss=loss)
        time.sleep(self._pace_s)

    def saving(self, step: int) -> None:
        self._write(record="saving", step=step, time=time.monotonic())

    def saved(self, step: int, checkpoint: Path) -> None:
        returned = time.monotonic()
        self._write(record="saved", step=step, time=returned, files=hashes_of(checkpoint))

    def _write(self, **record: Any) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, (json.dumps(record) + "\n").encode())
        if record["record"] == "saved":
            os.fsync(file)
        os.close(file)


class Journal:
    """What a training has written to its journal until the last `read`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = GrowingFile(path)
        self.losses: list[tuple[int, float]] = []
        self.saved: dict[int, dict[str, str]] = {}
        self.saved_again: list[int] = []
        self.saving: tuple[int, float] | None = None  # the save that has begun: its step and its time
        self.saves = 0  # that have begun
        self.durations_s: list[float] = []

    def read(self) -> None:
        for line in self._file.new_lines():
            try:
                self._take(json.loads(line))
            except ValueError:  # cut by a kill
                continue

    def after_kill(self) -> int | None:
        """Ends a line that was cut. Returns the step of the save that was cut, if there is one."""
        with self.path.open("ab") as file:
            file.write(b"\n")  # an empty line is passed over, too
        self.read()
        step = None if self.saving is None else self.saving[0]
        self.saving = None
        return step

    def _take(self, record: dict[str, Any]) -> None:
        step = record["step"]
        if record["record"] == "step":
            self.losses.append((step, record["loss"]))
        elif record["record"] == "saving":
            self.saving = (step, record["time"])
            self.saves += 1
        else:
            if self.saving is not None:
                self.durations_s.append(record["time"] - self.saving[1])
            self.saving = None
            if step in self.saved:
                self.saved_again.append(step)
            self.saved[step] = record["files"]
