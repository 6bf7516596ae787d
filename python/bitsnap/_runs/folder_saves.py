"""Saves to the folders of the checkpoints of a training, at once or through an agent, and the small files in them.

A state has "model" and "optimizer", which may be missing, and "files": what torch would have saved in the small files
of the folder, by their names. If the run has a copy, a state also has the other files of the folder (FOLDER), so that
the copy has all of a checkpoint. One process calls what saves.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bitsnap._bitsnap import is_store
from bitsnap._common import Device, Metrics, PathLike, local_path, native_path, warn
from bitsnap._references import (
    FOLDER_REFERENCE,
    FOLDER_REFERENCES,
    absolute,
    new_folder,
    plain_name,
    reference_in,
    reference_of,
    write_durably,
)
from bitsnap._runs import path_checkpoints as paths
from bitsnap._runs.framework_files import (
    STUB,
    carried_files,
    has_states,
    has_stubs,
    is_saved_over,
    is_stub,
    remove_states,
    write_carried,
)
from bitsnap._runs.opened_runs import Options
from bitsnap._runs.path_saves import PathSaves
from bitsnap.errors import BackgroundSaveWarning, BitsnapError, CorruptError, NotFoundError, RestoreWarning
from bitsnap.snapshot import Snapshot
from bitsnap.state import load as load_state
from bitsnap.store import Store

# Held while a checkpoint is saved to a folder and while older folders are deleted. Not reentrant: a save that is
# committed before it returns deletes none itself.
rotating = threading.Lock()
# The key of a state that has the other files of its folder.
FOLDER = "folder"


class FolderSaves:
    """The saves of one training to the folders of a directory, and their run."""

    def __init__(self, options: Options, rotate: Callable[[], None] | None = None) -> None:
        """`rotate` deletes the folders that the framework does not keep; None: that is for others to do.

        It is called on another thread, with `rotating` held, when an agent has committed a save: the checkpoint before
        had to stay until then.
        """
        self._options = options
        self._rotate = rotate
        self._agents = PathSaves(options, self._rotate_committed)  # which has none without `agent`
        self._references: dict[Path, Path] = {}  # of the folders, with their runs
        self._kept: int | None = None

    @property
    def runs(self) -> set[Path]:
        """Those that were saved to."""
        return set(self._references.values())

    def save(
        self,
        folder: PathLike,
        step: int,
        state: Mapping[str, Any],
        run: Path | None = None,
        *,
        kept: int | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Saves the checkpoint of a folder to a run, which lies beside it if none is given.

        `kept`: how many checkpoints the framework keeps, which it removes itself. None: all. `metrics`: as in
        Store.save().

        Raises what Store.save() raises.
        """
        reference = absolute(folder) / FOLDER_REFERENCE
        run = paths.run_of(reference) if run is None else run
        reference.parent.mkdir(parents=True, exist_ok=True)
        if self._options.mirror is not None:
            state = {**state, FOLDER: carried_files(reference.parent, has_model="model" in state)}
        if self._options.agent is not None:
            self.forget_deleted()
            self._agents.save(reference, step, state, run, kept=kept, metrics=metrics)
        else:
            self._kept = kept
            with self._store(run) as store:
                pickles = self._options.allow_pickle
                paths.save(store, reference, step, state, metrics=metrics, allow_pickle=pickles)
            remove_states(reference.parent)  # through an agent, they stay: the save may fail yet
            self._options.follow(run)
        self._references[reference] = run

    def _rotate_committed(self) -> None:
        if not rotating.acquire(blocking=False):
            return  # whoever holds it deletes them
        try:
            if self._rotate is not None:
                self._rotate()
            self.forget_deleted()
        finally:
            rotating.release()

    def forget_deleted(self) -> None:
        """Removes from the runs what the framework has deleted. An agent removes it when it has committed a save."""
        if self._options.agent is not None:
            for deleted in [path for path in self._references if not path.exists()]:
                self._agents.remove(deleted, self._references.pop(deleted))
            return
        for run in self.runs:
            with self._store(run) as store:
                paths.forget(store)

    def _store(self, run: Path) -> Store:
        return self._options.store(run, keep_last=self._kept, prunes=False)

    def wait(self) -> bool:
        """Waits until agents have committed all saves; whether the newest was."""
        return self._agents.wait()

    def uncommitted(self) -> int:
        """How many saves came after the newest committed one."""
        return self._agents.uncommitted()

    def leave(self) -> None:
        """Leaves the agents, which go on with what they have."""
        self._agents.leave()

    def close(self) -> None:
        """Waits, stops the agents, and removes from the runs what has been deleted since the last save.

        If a save has failed, a BackgroundSaveWarning says so: its folder is no checkpoint.
        """
        try:
            self._agents.close()
        except BitsnapError as error:
            warn(f"a checkpoint was not saved: {error}", BackgroundSaveWarning, stacklevel=3)
        for run in self.runs:
            if is_store(native_path(run)):
                with Store(run, create=False, timeout=self._options.timeout, threads=self._options.threads) as store:
                    paths.forget(store, keep_newest=False)
        self._references.clear()


def run_in(folder: PathLike) -> Path:
    """The run of the checkpoints whose folders lie in this one."""
    return Path(folder).absolute() / paths.RUN


def is_ours(folder: PathLike) -> bool:
    """Whether the folder has a reference to a run, and the framework has not saved another checkpoint over it since.

    Raises:
        InvalidArgumentError: it cannot be told which of the two was saved last.
        NotFoundError: the reference is gone, and the folder has no state of the framework's.
        CorruptError, UnsupportedError: the reference cannot be read.
    """
    reference = reference_in(absolute(folder))
    if not reference.is_file():
        if has_stubs(reference.parent):
            raise NotFoundError(
                f"{reference} is not there: it named the run and the step that hold the rest of this checkpoint"
            )
        if reference.parent.is_dir() and not has_states(reference.parent):
            paths.check_is_not_lost(reference)
        return False
    return not is_saved_over(reference.parent, reference_of(reference).files)


def snapshot_of(folder: PathLike) -> Snapshot:
    """The checkpoint of a folder, for reading. Raises as path_checkpoints.snapshot_of() does."""
    return paths.snapshot_of(reference_in(absolute(folder)))


def load(
    checkpoint: PathLike, *, map_location: Device | None = None, allow_pickle: bool = False, threads: int = 0
) -> dict[str, Any]:
    """What the run holds of the checkpoint of a folder.

    Args:
        checkpoint: the folder.
        map_location: the device of the tensors; None: the CPU.
        allow_pickle: as in Options.
        threads: for decoding; 0 for all that the process may use.

    Returns:
        a dict with "optimizer", with the states of parameters by their names, "files", what the framework would have
        saved in small files, by their names, and "model" if the run has it. Several of a kind have numbers. If the run
        has a copy, also "folder": the bytes of the other files of the folder, by their paths.

    Raises:
        NotFoundError: there is no checkpoint of bitsnap, or no run where it says.
        CorruptError, ...: the checkpoint is damaged.
    """
    found: dict[str, Any] = load_state(
        snapshot_of(checkpoint), map_location=map_location, allow_pickle=allow_pickle, threads=threads
    )
    return found


def newest_complete(folders: Sequence[Path], incomplete_because: Callable[[Path], str]) -> Path | None:
    """The last of the folders with a complete checkpoint; None if there are no folders.

    A RestoreWarning names those that are skipped. `incomplete_because`: why a folder is incomplete by what the
    framework writes; empty if it is not.

    Raises:
        NotFoundError: no checkpoint is complete.
    """
    reasons: list[str] = []
    for folder in reversed(folders):
        reason = incomplete_because(folder)
        if not reason:
            try:
                if is_ours(folder):
                    snapshot_of(folder)
            except BitsnapError as error:
                reason = str(error)
        if not reason:
            for each in reasons:
                warn(f"{each}; resuming from {folder}", RestoreWarning, stacklevel=4)
            return folder
        reasons.append(f"{folder} is no complete checkpoint: {reason}")
    if reasons:
        raise NotFoundError("; ".join(reasons))
    return None


def part_of(snapshot: Snapshot, key: str, allow_pickle: bool) -> Any:
    """A part of a state; None if the state has no such part."""
    try:
        return load_state(snapshot, keys=[(key,)], allow_pickle=allow_pickle)[key]
    except NotFoundError as error:
        if error.field != "keys":
            raise
        return None


def write_folder(store: Store, step: int, folder: Path) -> bool:
    """Writes the other files of the folder of a checkpoint. Whether it has them."""
    snapshot = store.snapshot(step)
    files = part_of(snapshot, FOLDER, allow_pickle=False)
    write_carried(files or {}, folder, snapshot.path)
    return files is not None


def staged(write: Callable[[str], object]) -> dict[str, Any]:
    """What a framework's function saves with torch in a folder, by the names of the files."""
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        # This process has just written them.
        return {path.name: torch.load(path, weights_only=False) for path in Path(folder).iterdir()}


def write_files(files: Mapping[str, Any], folder: PathLike, expected: re.Pattern[str], checkpoint: PathLike) -> None:
    """Writes what staged() returned, for a framework's function that reads it.

    Args:
        expected: the names of the files that the framework itself writes.
        checkpoint: where the files come from, for errors.

    Raises:
        CorruptError: the checkpoint names another file. Then nothing is written.
    """
    for name in files:
        if expected.fullmatch(plain_name(name, checkpoint)) is None:
            raise CorruptError(f"{os.fspath(checkpoint)}: it has a file {name!r}, which the framework does not write")
    for name, value in files.items():
        torch.save(value, free(Path(folder) / name))


def write_stubs(folder: Path, names: Iterable[str]) -> None:
    """Writes files that stand for those that the framework would miss without a word, where there are none."""
    for path in (folder / name for name in names):
        if not path.exists():
            write_durably(path, STUB)


@contextmanager
def exported(
    checkpoint: PathLike, target: PathLike, expected: re.Pattern[str], allow_pickle: bool
) -> Iterator[tuple[Path, Callable[[str], Any]]]:
    """A new folder with the files of a checkpoint, and part_of() its state, for what else the framework writes.

    Raises as snapshot_of(), new_folder() and write_files() do.
    """
    source, folder = Path(local_path(checkpoint)), Path(local_path(target))
    part = partial(part_of, snapshot_of(source), allow_pickle=allow_pickle)
    with new_folder(folder) as made:
        copy_others(source, made)
        write_files(part("files") or {}, made, expected, source)
        yield made, part


def free(path: Path) -> Path:
    """The path, after what was copied there is gone: a link would be written through."""
    path.unlink(missing_ok=True)
    return path


def copy_others(source: Path, target: Path) -> None:
    """Copies all but the reference of a checkpoint's folder. Links stay links; what is no file is left out, and so is
    `target`, which may lie in the folder."""

    def others(folder: str, names: list[str]) -> list[str]:
        paths = {name: Path(folder) / name for name in names}
        return [
            name
            for name, path in paths.items()
            if name in FOLDER_REFERENCES
            or is_stub(path)
            or not (path.is_symlink() or path.is_file() or path.is_dir())
            or (path.is_dir() and path.samefile(target))
        ]

    shutil.copytree(source, target, symlinks=True, ignore=others, dirs_exist_ok=True)
