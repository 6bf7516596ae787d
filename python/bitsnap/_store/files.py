"""The method of a store for the small files of its checkpoints, and the check of those that a checkpoint is to get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsIndex, TypeAlias

from bitsnap import _bitsnap
from bitsnap._arguments.checks import number_of
from bitsnap._store.labels import label_of

Files: TypeAlias = Mapping[str, bytes | bytearray | memoryview]


def files_of(files: Any) -> list[tuple[str, bytes]]:
    """Checked, as the extension takes it."""
    if files is None:
        return []
    if not isinstance(files, Mapping):
        raise TypeError(f"files must be a dict of str to bytes, got {files!r}")
    checked = []
    for name, content in files.items():
        if not isinstance(content, bytes | bytearray | memoryview):
            raise TypeError(f"files[{name!r}] must be bytes, got {content!r}")
        checked.append((label_of(name, "the name of a file"), bytes(content)))
    return checked


class StoreFiles:
    """Part of Store, which has the attribute."""

    _native: _bitsnap.Store

    def files(self, step: SupportsIndex) -> dict[str, bytes]:
        """The small files that save() or commit() was given with the checkpoint, by name; empty if there are none.

        Example:
            config = json.loads(store.files(1000)["config.json"])

        Raises:
            NotFoundError: there is no checkpoint of that step; the message names the nearest steps.
            CorruptError, TruncatedError: the files are damaged. The state can be loaded nevertheless.
        """
        return self._native.files(number_of(step, "step"))
