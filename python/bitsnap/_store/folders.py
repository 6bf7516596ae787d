"""The methods of a store for checkpoint folders, as frameworks write them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import SupportsIndex

from bitsnap import _bitsnap
from bitsnap._arguments.checks import LARGEST_COUNT, number_of
from bitsnap._arguments.options import PathLike, Progress
from bitsnap._bitsnap import Checkpoint, Settings
from bitsnap._states.adam import AdamOfState, AdamSources
from bitsnap._store.labels import labels_of
from bitsnap.folder import Folder, open_source
from bitsnap.snapshot import Snapshot


class StoreFolders(ABC):
    """Part of Store, which has the attributes."""

    _native: _bitsnap.Store
    _settings: Settings
    _adam: AdamSources
    _threads: int

    @abstractmethod
    def snapshot(
        self, step: SupportsIndex | None = None, shard: SupportsIndex | None = None, *, partial: bool = False
    ) -> Snapshot: ...

    def add_folder(
        self,
        step: SupportsIndex,
        path: PathLike,
        *,
        labels: str | Iterable[str] = (),
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Checkpoint:
        """Saves a checkpoint folder or file of any framework as the checkpoint of a step.

        The tensors of the files are coded against those of the previous folder. Numbers in names of files that are the
        step, as in ``global_step1000``, may change from step to step. Before the checkpoint becomes part of the store,
        it is read completely, and the folder is checked for changes. Symbolic links are stored as links.

        Args:
            step: above all others, as in save().
            path: the folder or file. It must not change before the function returns.
            labels: as in save().
            threads: 0 for all that the process may use; None for the number of the store.
            progress: called with (done bytes, total bytes), of which the second half is reading; returning False
                cancels.

        Returns:
            the checkpoint, as save() does.

        Raises:
            NotFoundError: there is no such folder or file.
            UnsupportedError: a file is a pipe, a socket or a device.
            InvalidArgumentError: the folder changed while it was being saved, and the store is unchanged. Or an
                argument or the store is wrong, as in save().
            BusyError, IoError, CancelledError: as in save().

        Warns:
            PlainBytesWarning: files look like those of a known format, but bitsnap could not find their tensors.
        """
        number = number_of(step, "step")
        given = labels_of(labels, "labels")
        folder = open_source(path, number, self._settings, stacklevel=2)
        numbers = AdamOfState(self._native.settings, self._adam)
        known = numbers.for_all()
        with numbers.explained(path):
            return self._native.save_folder(
                number, folder, adam=known, labels=given, threads=self._threads_of(threads), progress=progress
            )

    def open_folder(
        self, step: SupportsIndex | None = None, *, framework: str | None = None, partial: bool = False
    ) -> Folder:
        """Opens a checkpoint of add_folder(), to read its files and tensors without writing them.

        Args:
            step: None for the newest.
            framework: as in bitsnap.open_folder().
            partial: as in snapshot().

        Raises:
            NotFoundError: there is no such checkpoint.
            InvalidArgumentError: the checkpoint is of save(), and holds no folder.
            CorruptError, TruncatedError: the checkpoint is damaged.
        """
        return Folder(self.snapshot(step, partial=partial), framework=framework, threads=self._threads)

    def extract_folder(
        self,
        step: SupportsIndex | None,
        path: PathLike,
        *,
        partial: bool = False,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Writes the folder, or the file, of a checkpoint of add_folder() to `path`, byte for byte.

        Args:
            step: None for the newest.
            path, partial, progress: as in Folder.extract().
            threads: 0 for all that the process may use; None for the number of the store.

        Raises:
            NotFoundError: there is no such checkpoint.
            InvalidArgumentError: the checkpoint is of save(), and holds no folder.
            ExistsError: `path` exists.
            CorruptError, TruncatedError: the checkpoint is damaged.
            IoError, CancelledError: as in Folder.extract().
        """
        folder = self.open_folder(step, partial=partial)
        folder.extract(path, partial=partial, threads=self._threads_of(threads), progress=progress)

    def extract_file(
        self,
        step: SupportsIndex | None,
        file: str,
        path: PathLike,
        *,
        overwrite: bool = False,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Writes one file of a checkpoint of add_folder(), without decoding the others.

        Args:
            step: None for the newest.
            file: its path in the folder.
            path, overwrite, progress: as in FolderFile.extract().
            threads: 0 for all that the process may use; None for the number of the store.

        Raises:
            NotFoundError: there is no such checkpoint or file.
            InvalidArgumentError: the checkpoint is of save(), and holds no folder.
            ExistsError, CorruptError, TruncatedError, IoError: as in FolderFile.extract().
        """
        opened = self.open_folder(step)[file]
        opened.extract(path, overwrite=overwrite, threads=self._threads_of(threads), progress=progress)

    def _threads_of(self, threads: int | None) -> int:
        return self._threads if threads is None else number_of(threads, "threads", LARGEST_COUNT)
