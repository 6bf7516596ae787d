"""The folders that Megatron-LM names, each with a reference to one step of a run that lies beside them.

A reference is the file bitsnap-reference.json. It is written when the step has been committed, and before Megatron
writes metadata.json, so a folder with both of them is a complete checkpoint. Only one process may call what changes
files.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

from bitsnap._arguments.naming import checkpoint_id_of
from bitsnap._arguments.options import PathLike, native_path
from bitsnap._arguments.references import (
    FOLDER_REFERENCE,
    FOLDER_REFERENCES,
    Saved,
    StepOfRun,
    absolute,
    find_references,
    refer as write_reference,
    reference_in,
    reference_of,
    warn_of_unknown,
)
from bitsnap._bitsnap import is_store
from bitsnap._runs.framework_files import digests_of, undecided
from bitsnap._runs.opening import open_run
from bitsnap.agents import stop_agent
from bitsnap.errors import BitsnapError, BusyError, NotFoundError
from bitsnap.store import Store

# The key of a commit's metadata, and of the state of each shard, that has what is no tensor.
KEY = "megatron.dist_checkpointing"

CONFIG = "metadata.json"  # Megatron's, the last file of a checkpoint
# Of torch_dist.
STOCK_INDEX = ".metadata"
STOCK_COMMON = "common.pt"
_STOCK = re.compile(r"\.metadata|common\.pt|__0_0\.distcp")
_RUN = "bitsnap"
# How long an agent may hold the store, before it is stopped.
_AGENT_SECONDS = 2.0


# What this process saves through agents, which may commit it long before the folder refers to it.
pending: set[StepOfRun] = set()


class NewPlace(NamedTuple):
    """Where a checkpoint will be stored, and when the one that it replaces was committed; empty: there is none."""

    run: Path
    step: int
    replaced: str


def is_ours(folder: PathLike) -> bool:
    """Whether the folder refers to a run, and torch_dist has not saved another checkpoint over it since.

    Raises:
        InvalidArgumentError: it cannot be told which of the two was saved last.
        CorruptError, UnsupportedError: the reference cannot be read.
    """
    reference = _reference_at(folder)
    if not reference.is_file():
        if _has_lost_its_reference(reference.parent):
            parent, step = checkpoint_id_of(folder)
            for run in _runs(parent).values():
                with Store(run, read_only=True) as store:
                    if step in store.steps():
                        raise NotFoundError(
                            f"{reference} is not there: it referred to the checkpoint, perhaps to step {step} of {run}"
                        )
        return False
    if not (reference.parent / STOCK_INDEX).is_file():
        return True
    recorded = reference_of(reference).files or {}
    digests = digests_of(reference.parent, _STOCK)
    changed = [name for name, digest in digests.items() if recorded.get(name) != digest]
    if changed and STOCK_INDEX not in changed:
        raise undecided(reference.parent, changed)
    return not changed


def place_of(folder: PathLike) -> StepOfRun:
    """What the reference of a folder leads to.

    Raises:
        NotFoundError: there is no reference, or no run where it says.
        CorruptError: the reference is damaged.
        UnsupportedError: a newer version wrote it.
    """
    path = _reference_at(folder)
    reference = reference_of(path)
    with open_run(path, reference):
        return StepOfRun(reference.run, reference.saves[0].step)


def _is_of_megatron(store: Store, step: int) -> bool:
    try:
        return KEY in store.checkpoint(step).metadata or KEY in store.snapshot(step, 0).metadata
    except BitsnapError:
        return False  # nobody knows whose it is


def _may_be_checkpoint(path: Path) -> bool:
    return path.name in FOLDER_REFERENCES or path.is_dir() or checkpoint_id_of(path).step is not None


def _has_lost_its_reference(folder: Path) -> bool:
    """Whether a folder is complete, but refers to no run, and has no checkpoint of torch_dist."""
    files = (folder / CONFIG, reference_in(folder), folder / STOCK_INDEX)
    return [path.is_file() for path in files] == [True, False, False]


def _reference_at(folder: PathLike) -> Path:
    return reference_in(absolute(folder))


def refer(folder: PathLike, place: StepOfRun) -> None:
    """Writes the reference of a folder, and removes what torch_dist had saved there before."""
    path = Path(folder) / FOLDER_REFERENCE
    with Store(place.run, read_only=True) as store:
        run_id = store.run_id
    saves, stock = (Saved(place.step, ""),), digests_of(path.parent, _STOCK)
    write_reference(path, place.run, run_id, saves, stock)
    for stale in (*map(path.parent.joinpath, stock), *path.parent.glob("*.distcp")):
        stale.unlink(missing_ok=True)
    if stock:  # equal files that come later are those of another save
        write_reference(path, place.run, run_id, saves, {})


def new_place(folder: PathLike) -> NewPlace:
    """Where to save the checkpoint of a folder. Removes steps from the runs whose folders have been deleted.

    The step is the iteration in the folder's name, and the run lies beside the folder. A folder with another name has
    a run of its own inside. An iteration that is below the newest of the run, as after a restart from an older
    checkpoint, begins another run, because the newer checkpoints stay.
    """
    parent, step = checkpoint_id_of(folder)
    if step is None:
        run = Path(parent) / _RUN
        return NewPlace(run, 0, _committed(run, 0))
    _prune(parent, step)
    runs = _runs(parent)
    number = max(runs, default=1)
    run = _run_at(parent, number)
    newest = _newest(run) if number in runs else None
    if newest is not None and step < newest:
        return NewPlace(_run_at(parent, number + 1), step, "")
    return NewPlace(run, step, _committed(run, step))


def _prune(parent: Path, saved: int) -> None:
    """Removes the steps to which no complete folder refers. Steps with labels stay, and those that are saved now."""
    if not parent.is_dir():
        return
    found = find_references(parent)
    lost = next((path for path in parent.iterdir() if _has_lost_its_reference(path)), None)
    unknown = next((path for path in found.unknown if _may_be_checkpoint(path)), lost)
    complete = [each for path, each in found.references.items() if (path.parent / CONFIG).is_file()]
    for run in _runs(parent).values():
        with Store(run, shared=True, create=False, timeout=_AGENT_SECONDS) as store:
            referred = (save.step for each in complete if each.run_id == store.run_id for save in each.saves)
            waiting = (place.step for place in pending if place.run == run)
            kept = {saved, *store.labels().values(), *waiting, *referred}
            steps = store.steps()
            # Steps that others have saved to the run are not ours to remove.
            gone = [step for step in steps if step not in kept and _is_of_megatron(store, step)]
            if gone and unknown is not None:
                warn_of_unknown(run, unknown)
                return
            if gone and len(gone) < len(steps):
                _remove(store, gone)
        if gone and len(gone) == len(steps):
            shutil.rmtree(run)


def _remove(store: Store, steps: list[int]) -> None:
    try:
        store.remove(steps)
    except BusyError:
        # The agent of a single rank holds the store alone. It commits what it has, and the next save starts another.
        stop_agent(store.path)
        store.remove(steps)


def _runs(parent: Path) -> dict[int, Path]:
    """The runs beside the folders, by their numbers."""
    found = {}
    if parent.is_dir():
        for path in parent.glob(f"{_RUN}*"):
            number = path.name.removeprefix(_RUN).removeprefix("-") or "1"
            if number.isdecimal() and path == _run_at(parent, int(number)) and is_store(native_path(path)):
                found[int(number)] = path
    return found


def _run_at(parent: Path, number: int) -> Path:
    return parent / (_RUN if number == 1 else f"{_RUN}-{number}")


def _newest(run: Path) -> int | None:
    with Store(run, read_only=True) as store:
        return store.latest()


def _committed(run: Path, step: int) -> str:
    if not is_store(native_path(run)):
        return ""
    with Store(run, read_only=True) as store:
        return str(store.checkpoint(step).time) if step in store else ""
