"""Checkpoint folders and files of any framework, stored as they are: they come back byte for byte.

bitsnap finds the tensors in safetensors files, torch's files, distributed checkpoints of torch (DCP), npy and npz, and
codes them as tensors. Every other byte is stored, too. Nothing in the files is executed.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from bitsnap._bitsnap import (
    Checkpoint,
    CommitOptions,
    FileTensor,
    Folder as NativeFolder,
    FolderEntry,
    FolderState,
    Settings,
    Store as NativeStore,
)
from bitsnap._common import (
    LARGEST_COUNT,
    Bases,
    PathLike,
    Progress,
    alike,
    labels_of,
    loaded_torch,
    native_path,
    native_target,
    number_of,
    warn,
    warn_of_idle_rules,
)
from bitsnap._states.adam import AdamOfState, AdamSources
from bitsnap._tensors.arrays import Framework, framework_name
from bitsnap._tensors.reading import read_tensor
from bitsnap.errors import ExistsError, NotFoundError, PlainBytesWarning
from bitsnap.snapshot import Snapshot, native_snapshot, warn_of_damage

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# torch.load and numpy.load read many small pieces, and a chunk is decoded for each read.
_BUFFER_BYTES = 1 << 20
# Longer lists of files are cut in warnings.
_LISTED_NOTES = 20


class FolderFile(Mapping[str, Any]):
    """A file of a folder that a snapshot holds: its tensors by name, and its bytes.

    Getting a tensor decodes this tensor alone. It is a torch tensor or a numpy array, as open_folder() was told.

    Example:
        folder = bitsnap.open_folder("checkpoint.bsnap")
        weight = folder["model.safetensors"]["lm_head.weight"]
        state = torch.load(folder["optimizer.pt"].open(), weights_only=True)
    """

    def __init__(self, folder: Folder, index: int) -> None:
        self._folder = folder
        self._index = index
        self._tensors: dict[str, FileTensor] | None = None

    @property
    def entry(self) -> FolderEntry:
        """Path, size, times and format of the file."""
        return self._folder._native[self._index]

    @property
    def path(self) -> str:
        """The path in the folder."""
        return self.entry.path

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.entry.size

    def tensors(self) -> dict[str, FileTensor]:
        """Dtypes, shapes and strides of all tensors, by name. Decodes nothing."""
        if self._tensors is None:
            # A view comes after the piece of the file that has its name.
            self._tensors = {each.name: each for each in self._folder._native.tensors(self._index)}
        return dict(self._tensors)

    def __len__(self) -> int:
        return len(self.tensors())

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors())

    def __contains__(self, name: object) -> bool:
        return name in self.tensors()

    def __getitem__(self, name: str) -> Any:
        """One tensor. Raises NotFoundError if there is none of that name, UnsupportedError for an unknown dtype."""
        tensor = self.tensors().get(name)
        where = f"{self._folder._where(self.path)}: "
        if tensor is None:
            raise NotFoundError(f"{where}there is no tensor {name!r}{alike(name, list(self))}")
        framework = self._folder._framework or ("np" if loaded_torch() is None else "pt")
        snapshot = self._folder.snapshot._native
        return read_tensor(snapshot, tensor, f"{where}tensor {name!r}", framework, self._folder._threads)

    # The tensors of two files are not compared, as Mapping would do.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def read(self, offset: int = 0, size: int | None = None) -> bytes:
        """Bytes of the file from `offset` on, up to the end of the file; `size` limits their number.

        Raises:
            CorruptError, TruncatedError: the snapshot is damaged.
        """
        begin = number_of(offset, "offset")
        left = max(self.size - begin, 0)
        memory = bytearray(left if size is None else min(number_of(size, "size"), left))
        self._read_into(begin, memory)
        return bytes(memory)

    def _read_into(self, offset: int, memory: WriteableBuffer) -> None:
        array = np.frombuffer(memoryview(memory), np.uint8)
        if array.size > 0:
            address = int(array.__array_interface__["data"][0])
            self._folder._native.read(self._index, offset, address, array.size, self._folder._threads)

    def open(self) -> io.BufferedReader:
        """The file as a binary file object to read and seek in, for torch.load(), numpy.load() or json.load().

        Decodes what is read, with a buffer of 1 MiB. Nothing is written to the disk.
        """
        return io.BufferedReader(_StoredBytes(self), _BUFFER_BYTES)

    def extract(
        self, path: PathLike, *, overwrite: bool = False, threads: int | None = None, progress: Progress | None = None
    ) -> None:
        """Writes the file, with its permissions and time, atomically.

        Args:
            path: the file to write.
            overwrite: replace the file if it exists.
            threads: as in Folder.extract().
            progress: called with (done bytes, total bytes); returning False cancels.

        Raises:
            ExistsError: the file exists and `overwrite` is False.
            CorruptError, TruncatedError: the snapshot is damaged.
            IoError: the file could not be written.
        """
        self._folder._native.extract_file(
            self._index,
            native_target(path, overwrite),
            overwrite=overwrite,
            threads=self._folder._threads if threads is None else number_of(threads, "threads", LARGEST_COUNT),
            progress=progress,
        )

    def __repr__(self) -> str:
        return f"FolderFile({self.path!r}, {self.size} bytes, {len(self)} tensors)"


class _StoredBytes(io.RawIOBase):
    """The bytes of a file of a snapshot. Not thread-safe, as no file object with a position is."""

    def __init__(self, file: FolderFile) -> None:
        self._file = file
        self._size = file.size
        self._at = 0
        self.name = file.path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}
        if whence not in starts:
            raise ValueError(f"whence must be 0, 1 or 2, got {whence}")
        at = starts[whence] + offset
        if at < 0:
            raise ValueError(f"cannot seek to {at}, before the beginning of the file")
        self._at = at
        return at

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self.closed:
            raise ValueError("the file is closed")
        memory = memoryview(buffer).cast("B")
        count = min(len(memory), max(self._size - self._at, 0))
        self._file._read_into(self._at, memory[:count])
        self._at += count
        return count


class Folder(Mapping[str, FolderFile]):
    """The folder, or file, that a snapshot holds: its files by path, hard links included.

    Immutable; any number of threads may use it at once. It stays readable if the checkpoint is pruned.

    The only file of a snapshot of one file has the path ''.
    """

    def __init__(self, snapshot: Snapshot, *, framework: str | None = None, threads: int = 0) -> None:
        self._framework: Framework | None = None if framework is None else framework_name(framework)
        self._threads = number_of(threads, "threads", LARGEST_COUNT)
        self._snapshot = snapshot
        self._native = NativeFolder.open(snapshot._native)
        self._entries = [self._native[i] for i in range(len(self._native))]
        self._files = {each.path: i for i, each in enumerate(self._entries) if each.kind in ("file", "hardlink")}

    @property
    def name(self) -> str:
        """The name that the folder or file had when it was saved, such as "checkpoint-1000"."""
        return self._native.name

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that holds the folder."""
        return self._snapshot

    @property
    def entries(self) -> list[FolderEntry]:
        """All files, directories and links by path; the first one is the folder itself, or the only file."""
        return list(self._entries)

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __contains__(self, path: object) -> bool:
        return path in self._files

    def __getitem__(self, path: str) -> FolderFile:
        """One file. Raises NotFoundError if there is no file of that path."""
        index = self._files.get(path)
        if index is None:
            raise NotFoundError(f"{self._where('')}: there is no file {path!r}{alike(path, list(self._files))}")
        return FolderFile(self, index)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def extract(
        self,
        path: PathLike,
        *,
        partial: bool = False,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Writes the folder, or the only file, to `path`, which appears complete or not at all.

        Bytes, permissions, times and links are those of the folder that was saved. Symbolic links are written as they
        are, wherever they lead; nothing is written through one.

        Args:
            path: the folder to make; it must not exist.
            partial: write the files of which every byte can be read, and warn of the others. The first pass decodes
                everything to find them.
            threads: 0 for all that the process may use; None for the number that the folder was opened with.
            progress: called with (done bytes, total bytes), with `partial` once more from the start; returning False
                cancels.

        Raises:
            ExistsError: `path` exists.
            CorruptError, TruncatedError: the snapshot is damaged; with `partial`, no file of it can be read.
            IoError: the folder could not be written.
            CancelledError: `progress` returned False.

        Warns:
            DamageWarning: with `partial`, files are left out.
        """
        target = native_path(path)
        if os.path.lexists(target):
            raise ExistsError(f"{os.fspath(path)!r} exists; extract to another path")
        count = self._threads if threads is None else number_of(threads, "threads", LARGEST_COUNT)
        damaged = {each.entry: each.error for each in self._native.damaged_files(count, progress)} if partial else {}
        if damaged:
            if len(damaged) == len(self._files):
                raise next(iter(damaged.values()))
            warn_of_damage({self._entries[i].path: error for i, error in damaged.items()}, stacklevel=2)
        self._native.extract(target, left_out=list(damaged), threads=count, progress=progress)

    def _where(self, path: str) -> str:
        return os.fsdecode(self._snapshot._native.path) + (f", file {path!r}" if path else "")

    def __repr__(self) -> str:
        return f"Folder({self.name!r}, {len(self)} files)"


def open_folder(
    path: PathLike | Snapshot, *, framework: str | None = None, bases: Bases = (), threads: int = 0
) -> Folder:
    """Opens the folder, or file, that a snapshot holds, to read its files and tensors without writing them.

    Reads the index and no tensor. Store.open_folder() opens a checkpoint of a store.

    Args:
        path: the snapshot, from save_folder() or ``bitsnap compress``, or an open snapshot.
        framework: "pt" for torch tensors, "np" for numpy arrays; None for torch tensors if the program has imported
            torch, and numpy arrays otherwise.
        bases: files or directories that are searched for the bases of the snapshot, besides its directory.
        threads: 0 for all that the process may use.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: the snapshot holds a state, which load() loads, and no folder.
        UnsupportedError, TruncatedError, CorruptError: it is not a snapshot that this version can read.
    """
    snapshot = path if isinstance(path, Snapshot) else Snapshot._of(native_snapshot(path, bases))
    return Folder(snapshot, framework=framework, threads=threads)


def open_source(path: PathLike, step: int | None, settings: Settings, stacklevel: int) -> FolderState:
    """A folder to save. Warns of files that are stored as plain bytes, and of loss rules that match no tensor."""
    folder = FolderState.open(native_path(path), step)
    notes = folder.notes
    if notes:
        count = "1 file looks" if len(notes) == 1 else f"{len(notes)} files look"
        lines = [
            f"{os.fspath(path)}: {count} like a known format, but bitsnap could not find the tensors and stores plain "
            "bytes, which takes more space:",
            *notes[:_LISTED_NOTES],
        ]
        if len(notes) > _LISTED_NOTES:
            lines.append(f"and {len(notes) - _LISTED_NOTES} more")
        warn(PlainBytesWarning("\n  ".join(lines)), stacklevel=stacklevel + 1)
    if settings.loss:
        warn_of_idle_rules(settings, folder.tensors, stacklevel=stacklevel + 1)
    return folder


class StoreFolders(ABC):
    """Part of Store, which has the attributes."""

    _native: NativeStore
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
            commit = CommitOptions(labels=given)
            return self._native.save_folder(
                number, folder, known, commit, threads=self._threads_of(threads), progress=progress
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
