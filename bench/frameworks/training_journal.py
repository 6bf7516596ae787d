"""The journal of a training that may be killed at any moment: a file beside its checkpoints, a line of JSON a record.

A record `step` has the loss of a step, `saving` comes before the framework's call that saves, and `saved` follows that
call with the hash of each file of the checkpoint. Rank 0 writes them. A `saved` record is synced before the training
goes on.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch

from bench.frameworks.small_training import Observer
from bench.watched_run import hashes_of


class JournalObserver(Observer):
    def __init__(self, journal: Path, pace_s: float) -> None:
        self._journal = journal
        self._pace_s = pace_s  # the least time between two steps

    def stepped(self, step: int, loss: float) -> None:
        self._write(record="step", step=step, loss=loss)
        time.sleep(self._pace_s)

    def saving(self, step: int) -> None:
        self._write(record="saving", step=step, time=time.monotonic())

    def saved(self, step: int, checkpoint: Path) -> None:
        returned = time.monotonic()
        if torch.distributed.is_initialized():
            torch.distributed.barrier()  # the other ranks' calls have returned, too
        self._write(sync=True, record="saved", step=step, time=returned, files=hashes_of(checkpoint))

    def _write(self, sync: bool = False, **record: Any) -> None:
        if torch.distributed.is_initialized() and torch.distributed.get_rank() != 0:
            return
        file = os.open(self._journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, (json.dumps(record) + "\n").encode())
        if sync:
            os.fsync(file)
        os.close(file)
