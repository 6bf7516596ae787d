"""What is brought back of a run on another machine: checkpoints of its copy, and the paths that lead to them.

A copy is a run, and has nothing beside it: the metadata of a checkpoint names its path, and its state has the files of
its folder. One process brings back, before anything is saved; the others wait for it. The run gets its name last, so
that one that was ended is begun again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bitsnap._common import warn
from bitsnap._references import (
    FOLDER_REFERENCE,
    FOLDER_REFERENCES,
    Saved,
    absolute,
    find_references,
    new_folder,
    plain_path,
    readable_reference,
)
from bitsnap._run_copies import mirroring_of, newest_of
from bitsnap._runs import path_checkpoints as paths
from bitsnap._runs.opened_runs import Options
from bitsnap.errors import BitsnapError, BusyError, ExistsError, InvalidArgumentError, RestoreWarning
from bitsnap.store import Store

_POLL = 0.2  # seconds
# Writes the files of the folder of a checkpoint, but for its reference. Whether the checkpoint has them.
Write = Callable[[Store, int, Path], bool]


def bring_back(
    run: Path,
    options: Options,
    *,
    is_first: bool,
    all_steps: bool = False,
    write: Write | None = None,
    keeps: Callable[[Store, int, Path], bool] = lambda *_: True,
) -> bool:
    """Brings checkpoints of the copy back, with their paths, if there is a copy and the run has no checkpoint.

    Args:
        is_first: whether this process does it; otherwise it waits for the one that does.
        all_steps: all checkpoints, for a framework that keeps few and removes them; otherwise the newest one.
        write: None for a framework whose checkpoints are files.
        keeps: whether the framework has not deleted a step that was saved to a path.

    Returns whether it was so, in all processes.

    Raises:
        ExistsError: something else is where a checkpoint has to be.
        InvalidArgumentError: the run exists without a checkpoint.
        BusyError: the process that does it has not done it within the timeout.
        CorruptError, IoError, ...: the copy is damaged, or cannot be read.
    """
    if options.mirror is None:
        return False
    mirroring = mirroring_of(run, os.fspath(options.mirror))
    newest = mirroring.missing()
    if newest is None:
        return False
    if not is_first:
        _wait(run, options)
        return True
    if os.path.lexists(run):
        raise InvalidArgumentError(
            f"{run} has no checkpoint, and its copy {options.mirror} has step {newest}: expected no run here, to bring "
            f"it back. Delete {run}, or give this run another mirror"
        )
    # Not in the place of the run, which would then look as if it had been brought back.
    made = run.with_name(f".{run.name}-brought-back")
    shutil.rmtree(made, ignore_errors=True)
    made.parent.mkdir(parents=True, exist_ok=True)
    with Store(options.mirror, read_only=True) as copy:
        steps = copy.steps() if all_steps else [newest]
        labels = copy.labels()
    for step in steps:
        mirroring.bring(step, made)
    with Store(made, create=False) as store:
        for label, step in labels.items():
            if step in store:
                store.label(step, label)
        # Of the saves to a path, the last one counts.
        origins = {origin.reference: step for step in steps if (origin := paths.origin_of(store, step))}
        for name, step in origins.items():
            reference = run.parent / plain_path(name, run)
            if keeps(store, step, reference):
                _restore(store, step, run, reference, write)
    made.rename(run)
    mirroring.follow_again()
    return True


def _wait(run: Path, options: Options) -> None:
    end = time.monotonic() + options.timeout
    while newest_of(run) is None:
        if time.monotonic() > end:
            raise BusyError(
                f"{run} is not there after {options.timeout:g} s: expected that the first process brings it back from "
                f"{options.mirror}, to a directory that all processes see"
            )
        time.sleep(_POLL)


def _restore(store: Store, step: int, run: Path, reference: Path, write: Write | None) -> None:
    """Makes the path of a checkpoint lead to it."""
    origin = paths.origin_of(store, step)
    assert origin is not None
    saved = (Saved(step, origin.word),)
    path = reference.parent if reference.name in FOLDER_REFERENCES else reference
    if os.path.lexists(path):
        found = readable_reference(reference)
        if found is not None and (found.run_id, found.saves) == (store.run_id, saved):
            return  # of an attempt that was ended
        raise ExistsError(
            f"{path} exists, and step {step} of the copy of {run} is to be brought back there: expected a directory "
            "without checkpoints"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if path == reference:
        paths.refer_to(reference, run, store.run_id, saved)
    elif write is None:
        raise InvalidArgumentError(
            f"{path}: step {step} of the copy of {run} is a folder, as other frameworks save: expected a file"
        )
    else:
        with new_folder(path) as made:
            if not write(store, step, made):
                warn(
                    f"{path} is brought back without its files: step {step} of {run} was saved without mirror=, and "
                    "has none",
                    RestoreWarning,
                    stacklevel=None,
                )
            paths.refer_to(made / FOLDER_REFERENCE, run, store.run_id, saved)
    # Frameworks take the order of times of change.
    moment = round(store.checkpoint(step).time.timestamp() * 1e9)
    os.utime(path, ns=(moment, moment))


# --- Lightning: its callbacks look for the last checkpoint before anything is loaded, and delete only files they know


def bring_back_for(trainer: Any, options: Options, *, is_first: bool) -> None:
    """Brings checkpoints back from the copy to the directory of the callbacks of a trainer, if they are not there.

    Raises:
        InvalidArgumentError: the callbacks name no directory, or several.
        BitsnapError: what bring_back() raises.
    """
    callbacks = getattr(trainer, "checkpoint_callbacks", [])
    if options.mirror is None or not callbacks:
        return
    folders = {getattr(each, "dirpath", None) for each in callbacks}
    (folder,) = folders if len(folders) == 1 else (None,)
    if folder is None:
        found = ", ".join(sorted(map(repr, folders)))
        raise InvalidArgumentError(
            f"mirror: expected ModelCheckpoint(dirpath=...), the same for all callbacks that save, found {found}: a "
            "copy is that of one directory, and is brought back there"
        )
    run = absolute(folder) / paths.RUN
    keeps_few = any(getattr(each, "save_top_k", 1) != -1 for each in callbacks)
    if bring_back(run, options, is_first=is_first, all_steps=keeps_few, keeps=_keeps) and is_first:
        _link_last(callbacks, run)


def _keeps(store: Store, step: int, reference: Path) -> bool:
    """Whether no callback has deleted the checkpoint, as far as the newest one says.

    A file that is deleted while an agent has not committed the next one leaves the run later.
    """
    own, now = (_known_to_callbacks(store, each) for each in (step, store.latest()))
    return not any(name == reference.name for _, name in own - now)


def _known_to_callbacks(store: Store, step: int | None) -> set[tuple[str, str]]:
    """The names of callbacks and of the files that they know, when a checkpoint was saved."""
    found = set()
    with suppress(BitsnapError):  # a state may need pickle
        states = store.load(step, keys=[("callbacks",)])["callbacks"]
        for name, state in states.items() if isinstance(states, Mapping) else ():
            if isinstance(state, Mapping):
                known = [*(state.get("best_k_models") or {}), *map(state.get, ("best_model_path", "last_model_path"))]
                found |= {(str(name), Path(path).name) for path in known if isinstance(path, str)}
    return found


def _link_last(callbacks: Sequence[Any], run: Path) -> None:
    """Makes the links that ModelCheckpoint(save_last="link") has made: a copy has none."""
    newest = max(find_references(run.parent).references.items(), key=lambda each: each[1].saves[0].step)[0]
    for each in callbacks:
        link = run.parent / f"{getattr(each, 'CHECKPOINT_NAME_LAST', '')}{getattr(each, 'FILE_EXTENSION', '')}"
        if getattr(each, "save_last", None) == "link" and not os.path.lexists(link):
            link.symlink_to(os.path.relpath(newest, run.parent))
