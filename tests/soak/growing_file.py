"""Reads a file to which other processes append lines, each line once."""

from __future__ import annotations

from pathlib import Path


class GrowingFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_lines(self) -> list[str]:
        """The whole lines since the last call. There are none while the file does not exist."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._offset += end
        return data[:end].decode().splitlines()
