"""How much of a disk a folder takes: now, and at most while something writes to it."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path


def bytes_in(folder: Path) -> int:
    """A file with several names counts once. Folders and files that are removed meanwhile are passed over."""
    found: dict[int, int] = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                status = Path(path, name).stat()
                found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())


class DiskWatch:
    """Looks at a folder again and again, in a `with` block or between start() and stop(). `most`: the most bytes."""

    def __init__(self, folder: Path, pause_s: float = 0.005) -> None:
        self.most = 0
        self._folder, self._pause_s = folder, pause_s
        self._ended = threading.Event()
        self._watching = threading.Thread(target=self._watch)

    def start(self) -> DiskWatch:
        self._watching.start()
        return self

    def stop(self, *_: object) -> None:
        self._ended.set()
        self._watching.join()

    __enter__, __exit__ = start, stop

    def _watch(self) -> None:
        while not self._ended.wait(self._pause_s):
            self.most = max(self.most, bytes_in(self._folder))
