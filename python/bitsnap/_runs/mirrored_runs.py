"""What is brought back of a run on another machine: checkpoints of its copy, and the paths that lead to them.

A copy is a run, and has nothing beside it: the metadata of a checkpoint names its path, and its state has the files of
its folder. One process brings back, before anything is saved; the others wait for it. The run gets its name last, so
that one that was ended is begun again.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from bitsnap._common import warn
from bitsnap._mirrors import mirroring_of, newest_of
from bitsnap._references import (
    FOLDER_REFERENCE,
    FOLDER_REFERENCES,
    Saved,
    plain_path,
    readable_reference,
    refer,
)
from bitsnap._runs import path_checkpoints as paths
from bitsnap._runs.folder_saves import new_folder, write_folder
from bitsnap._runs.framework_files import digests_of
from bitsnap._runs.options import Options
from bitsnap.errors import BusyError, ExistsError, InvalidArgumentError, RestoreWarning
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
    write: Write = write_folder,
    keeps: Callable[[Store, int, Path], bool] = lambda *_: True,
) -> bool:
    """Brings checkpoints of the copy back, with their paths, if there is a copy and the run has no checkpoint.

    Args:
        is_first: whether this process does it; otherwise it waits for the one that does.
        all_steps: all checkpoints, for a framework that keeps few and removes them; otherwise the newest one.
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


def _restore(store: Store, step: int, run: Path, reference: Path, write: Write) -> None:
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
        refer(reference, run, store.run_id, saved)
    else:
        with new_folder(path) as made:
            if not write(store, step, made):
                warn(
                    f"{path} is brought back without its files: step {step} of {run} was saved without mirror=, and "
                    "has none",
                    RestoreWarning,
                    stacklevel=None,
                )
            refer(made / FOLDER_REFERENCE, run, store.run_id, saved, digests_of(made))
    # Frameworks take the order of times of change.
    moment = round(store.checkpoint(step).time.timestamp() * 1e9)
    os.utime(path, ns=(moment, moment))
