"""Opens the run to which a reference leads."""

from __future__ import annotations

from pathlib import Path

from bitsnap._arguments import native_path
from bitsnap._bitsnap import is_store
from bitsnap._references import Reference
from bitsnap.errors import NotFoundError
from bitsnap.store import Store


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
