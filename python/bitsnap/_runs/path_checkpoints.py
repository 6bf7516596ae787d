"""Checkpoints that a framework names by paths, and rotates and deletes by path, in one run beside them.

The path gets a reference; its checkpoint is a step of the run, coded against the one before. A save commits the step,
writes the reference, and removes the steps to which no reference leads any more, in this order: whenever the process
ends, each path leads to its old checkpoint or to its new one. Only one process may save to the paths of a directory.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bitsnap._bitsnap import is_store
from bitsnap._common import (
    Metrics,
    PathLike,
    is_label,
    native_path,
    warn,
)
from bitsnap._engine.steps import note_known, wait_for_staged
from bitsnap._references import (
    FOLDER_REFERENCE,
    FOLDER_REFERENCES,
    Reference,
    Saved,
    StepOfRun,
    absolute,
    find_references,
    look_at,
    names_of,
    parse_json,
    readable_reference,
    refer,
    reference_in,
    reference_of,
    unlink,
    warn_of_unknown,
)
from bitsnap._runs.framework_files import digests_of, finish_removals, lost_reference_of
from bitsnap.agents import agent_status, stop_agent
from bitsnap.errors import (
    BitsnapError,
    ExistsError,
    InvalidArgumentError,
    NotFoundError,
    RestoreWarning,
)
from bitsnap.snapshot import Snapshot
from bitsnap.store import Store

# The key of a checkpoint's metadata that says to which path it was saved.
KEY = "bitsnap.path"
RUN = "bitsnap"
# A framework that has more checkpoints than this may keep all.
_FEW = 4
# The longest wait for a save that an agent commits, in seconds.
_LONGEST_WAIT = 600.0


class NewSave(NamedTuple):
    """What a save needs: commit `saved.step` to `run` with `metadata` and `label`, then call finish()."""

    reference: Path
    run: Path
    saved: Saved
    label: str
    metadata: dict[str, str]
    # What the reference leads to now.
    earlier: tuple[Saved, ...]


class _Origin(NamedTuple):
    """To which path a checkpoint was saved, relative to the parent of the run, and in which save."""

    reference: str
    label: str
    word: str


def run_of(reference: PathLike) -> Path:
    """The run of a path: beside the file, or beside the folder that has the reference."""
    path = absolute(reference)
    run = (path.parent.parent if path.name in FOLDER_REFERENCES else path.parent) / RUN
    _check_is_not_the_run(path, run)
    return run


def kept_of(run: Path) -> int | None:
    """How many checkpoints the framework keeps, as far as the references say that are there now; None: many, or all.

    A framework that keeps N has N of them when it saves the next one, and then removes one.
    """
    if not is_store(native_path(run)):
        return None
    found = find_references(run.parent)
    with Store(run, read_only=True) as store:
        kept = len(_steps_of(store, found.references.values()))
    return kept if 0 < kept <= _FEW and not found.unknown else None


def begin(
    store: Store, reference: PathLike, step: int, pending: Collection[Saved] = (), *, forgets: bool = True
) -> NewSave:
    """What to commit for a path. Removes the steps whose paths have been deleted, but never the newest one.

    Args:
        store: the run.
        reference: the path of the checkpoint if it is a file, or that of FOLDER_REFERENCE in its folder.
        step: the framework's. That of the run is the same, or else the next one, because the steps of a store rise:
            a training may save twice at one step, or restart from an older checkpoint.
        pending: saves to the run that are not committed yet.
        forgets: False removes nothing.

    Raises:
        ExistsError: the path is a directory.
    """
    path = absolute(reference)
    _check_is_not_the_run(path, Path(store.path))
    if path.is_dir():
        raise ExistsError(f"{path} is a directory; expected a file, or a path that does not exist")
    if forgets:
        forget(store, pending)
    parent = Path(store.path).parent
    name = os.path.relpath(path, parent)
    label = os.path.relpath(path.parent if path.name in FOLDER_REFERENCES else path, parent)
    label = f"./{label}" if label.isdecimal() else label  # which would be a step
    label = label if is_label(label) else ""
    taken = [*store.steps(), *(save.step for save in pending)]
    saved = Saved(max(step, max(taken, default=-1) + 1), secrets.token_hex(8))
    content = {"reference": name, "label": label, "save": saved.word, "step": step}
    # What earlier versions wrote there is replaced, too.
    current = reference_in(path.parent) if path.name == FOLDER_REFERENCE else path
    found = None if current.is_symlink() else readable_reference(current)
    if label and _is_taken(store, label):
        warn(f"{store.path}: the label {label!r} of another step stays there", stacklevel=None)
        label = ""
    is_known = found is not None and found.run_id == store.run_id
    earlier = tuple(each for each in found.saves if each.step in taken) if found and is_known else ()
    return NewSave(path, Path(store.path), saved, label, {KEY: json.dumps(content)}, earlier)


def _check_is_not_the_run(path: Path, run: Path) -> None:
    if path == run or path.parent == run:
        raise InvalidArgumentError(f"{run} is the run of the checkpoints beside it: give this one another name")


def _is_taken(store: Store, label: str) -> bool:
    """Whether the user has given the label to a step that was not saved to the path of this name."""
    step = store.labels().get(label)
    if step is None:
        return False
    origin = origin_of(store, step)
    return origin is None or origin.label != label


def finish(store: Store, new: NewSave, pending: Collection[Saved] = ()) -> None:
    """Lets the path lead to the step, which is committed, and removes what it led to before.

    `pending`: saves to the run that are not committed yet.
    """
    refer_to(new.reference, new.run, store.run_id, (new.saved,))
    forget(store, pending)


def save(
    store: Store, reference: PathLike, step: int, state: Any, *, metrics: Metrics | None, allow_pickle: bool
) -> NewSave:
    """Saves to a path at once: begin(), Store.save() and finish(), and raises what these raise."""
    new = begin(store, reference, step)
    labels = new.label or ()
    store.save(new.saved.step, state, metadata=new.metadata, metrics=metrics, allow_pickle=allow_pickle, labels=labels)
    finish(store, new)
    return new


def refer_to(reference: Path, run: Path, run_id: str, saves: tuple[Saved, ...]) -> None:
    """Lets a path lead to the first of the saves that is committed."""
    files = digests_of(reference.parent) if reference.name in FOLDER_REFERENCES else None
    refer(reference, run, run_id, saves, files)


def tidy(run: Path, timeout: float) -> None:
    """Stops the agent of a run, which commits what it has, and removes the steps to which no path leads."""
    with suppress(NotFoundError):  # no agent
        stop_agent(run, timeout=timeout)
    if is_store(native_path(run)):
        with Store(run, create=False, timeout=timeout) as store:
            forget(store)
            label(store)


def check_is_not_lost(reference: PathLike) -> None:
    """Checks that a path without a reference had none.

    Raises:
        NotFoundError: a run beside it has a checkpoint that was saved to the path.
    """
    path = absolute(reference)
    for parent in (path.parent, path.parent.parent, path.parent.parent.parent):
        run = parent / RUN
        if not is_store(native_path(run)):
            continue
        with Store(run, read_only=True) as store:
            names = {os.path.relpath(each, Path(store.path).parent) for each in names_of(path)}
            for step in reversed(store.steps()):
                origin = origin_of(store, step)
                if origin is not None and origin.reference in names:
                    raise NotFoundError(
                        f"{path} is not there: it referred to the rest of the checkpoint, which is step {step} of "
                        f"{run}. Bring it back; `bitsnap extract {run}@{step}` also gives what the step holds"
                    )


def remove(path: PathLike, *, timeout: float = 600.0) -> None:
    """Removes the reference, and its step, unless another reference or a label of the user leads to it.

    The last step of the run stays until the next save, because a store has at least one. A link is removed without
    what it leads to. A path that does not exist is no error. `timeout` is that of Store.
    """
    path = absolute(path)
    found = None if path.is_symlink() else readable_reference(path)
    unlink(path)
    if found is None or not is_store(native_path(found.run)):
        return
    kept = kept_of(found.run)
    with Store(found.run, create=False, keep_last=kept, prunes=False, timeout=timeout) as store:
        forget(store, keep_newest=False)


def forget(store: Store, pending: Collection[Saved] = (), *, keep_newest: bool = True) -> None:
    """Removes the steps that were saved to paths and to which no path leads any more, and deletions that had to wait.

    Kept are those with labels that are no such path, those that were not saved to a path, and the newest one, against
    which the next one is coded. With `keep_newest=False`, the newest one stays only if all others go.
    """
    finish_removals(Path(store.path), lambda save: save.step in store and _is_of(store, save), is_last=True)
    gone = forgotten(store, pending)
    if gone and gone[-1] == store.latest() and (keep_newest or len(gone) == len(store)):
        gone.pop()
    if gone:
        store.remove(gone)


def label(store: Store) -> None:
    """Gives the steps that an agent has committed the labels that save() would have given."""
    labelled = set(store.labels().values())
    for step in store.steps():
        origin = None if step in labelled else origin_of(store, step)
        if origin is not None and origin.label and not _is_taken(store, origin.label):
            store.label(step, origin.label)


def forgotten(store: Store, pending: Collection[Saved] = ()) -> list[int]:
    """The steps that were saved to paths and to which no path leads any more, ascending."""
    run, steps = Path(store.path), store.steps()
    found = find_references(run.parent)
    referred = _steps_of(store, found.references.values()) | {save.step for save in pending}
    # What a snapshot says is read only of steps that may go: there may be thousands.
    origins = {step: origin for step in steps if step not in referred and (origin := origin_of(store, step))}
    unknown = next((path for path in found.unknown if _may_lead_to(path, run.parent, origins.values())), None)
    if unknown is not None:
        warn_of_unknown(run, unknown)
        return []
    labels = store.labels()
    gone = []
    for step, origin in origins.items():
        # Which may lie deeper than the files beside the run.
        own = [look_at(path) for path in names_of(run.parent / origin.reference)]
        if any(each.unknown or step in _steps_of(store, each.references.values()) for each in own):
            continue
        if lost := lost_reference_of(run.parent / origin.reference):
            warn_of_unknown(run, lost, step)
            continue
        if all(label == origin.label for label, labelled in labels.items() if labelled == step):
            gone.append(step)
    return gone


def _may_lead_to(path: Path, home: Path, origins: Iterable[_Origin]) -> bool:
    """Whether what cannot be read may be, or hold, a reference to one of the steps, by its name or its place."""
    if path.is_dir() or path.name in FOLDER_REFERENCES:
        return True
    return any(
        Path(origin.reference).suffix == path.suffix or (home / origin.reference).is_relative_to(path)
        for origin in origins
    )


def snapshot_of(reference: PathLike) -> Snapshot:
    """The checkpoint of a path, for reading.

    Raises:
        NotFoundError: there is no reference, no run where it says, or its step is not in the run.
        CorruptError: the reference is damaged.
        UnsupportedError: a newer version wrote it.
    """
    path, found = _target(reference)
    note_known(found.run)
    with open_run(path, found) as store:
        return store.snapshot(_committed(store, path, found))


def step_of(reference: PathLike) -> StepOfRun:
    """Where the checkpoint of a path is stored. Raises as snapshot_of() does."""
    path, found = _target(reference)
    note_known(found.run)
    with open_run(path, found) as store:
        return StepOfRun(found.run, _committed(store, path, found))


def _target(reference: PathLike) -> tuple[Path, Reference]:
    path = absolute(reference)
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    found = reference_of(path)
    real = Path(os.path.realpath(path))
    if real != path and not is_store(native_path(found.run)):  # a link leads to the folder
        return real, reference_of(real)
    return path, found


def _committed(store: Store, path: Path, found: Reference) -> int:
    newest = found.saves[0].step
    error = _waited(found.run, newest) if newest not in store else None
    for save in found.saves:
        if save.step in store:
            origin = origin_of(store, save.step)
            # Damage is for the reader to find.
            if origin is None or not save.word or origin.word == save.word:
                if save.step != newest:
                    warn(
                        f"{path}: the newest save to this path, step {newest} of {found.run}, was not committed; the "
                        f"one before, step {save.step}, is read{'' if error is None else f': {error}'}",
                        RestoreWarning,
                        stacklevel=None,
                    )
                return save.step
    raise NotFoundError(
        f"{path} refers to step {newest} of {found.run}, which is not there: it was removed, or never committed"
        f"{'' if error is None else f': {error}'}"
    )


def _waited(run: Path, step: int) -> BitsnapError | None:
    """Waits for a save that an agent of this machine may have; why it was not committed, if that is known."""
    try:
        agent_status(run)
    except NotFoundError:
        return None
    except BitsnapError:  # such as that of a stopped agent, which may go on
        pass
    try:
        wait_for_staged(run, step, _LONGEST_WAIT)
    except BitsnapError as error:
        return error
    return None


def origin_of(store: Store, step: int) -> _Origin | None:
    """None if the checkpoint was saved by other means, or is damaged."""
    try:
        text = metadata_of(store, step, KEY)
    except BitsnapError:
        return None
    if text is None:
        return None
    try:
        content = parse_json(text)
        return _Origin(str(content["reference"]), str(content["label"]), str(content["save"]))
    except (ValueError, KeyError, TypeError):
        return None


def metadata_of(store: Store, step: int, key: str) -> str | None:
    """A text of a checkpoint that was committed here, or by an agent, which has it in the first shard."""
    return store.checkpoint(step).metadata.get(key) or store.snapshot(step, 0).metadata.get(key)


def _steps_of(store: Store, references: Iterable[Reference]) -> set[int]:
    """The steps to which references lead."""
    steps: set[int] = set()
    committed = set(store.steps())
    for found in references:
        if found.run_id == store.run_id:
            # Those after the first that is committed have been replaced.
            for save in found.saves:
                steps.add(save.step)
                # The step may be that of another save, if this one was not committed.
                if save.step in committed and (len(found.saves) == 1 or _is_of(store, save)):
                    break
    return steps


def _is_of(store: Store, save: Saved) -> bool:
    origin = origin_of(store, save.step)
    return origin is not None and origin.word == save.word


def open_run(path: Path, reference: Reference) -> Store:
    """The run that a reference leads to, for reading.

    Raises:
        NotFoundError: there is no run where it says, or another one.
    """
    run, run_id = reference.run, reference.run_id
    if not is_store(native_path(run)):
        raise NotFoundError(
            f"{path}: the run is not there: expected a store at {run}. Copy or move a checkpoint together with its run"
        )
    store = Store(run, read_only=True)
    if store.run_id != run_id:
        found = store.run_id
        store.close()
        raise NotFoundError(f"{path} refers to the run {run_id}, but {run} is the run {found}")
    return store
