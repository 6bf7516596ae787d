"""Branches of a run: the methods of a store, and the branch that a training asks for."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import SupportsIndex

from bitsnap._bitsnap import Branch, Store as NativeStore
from bitsnap._common import Home, Progress, alike, label_of, number_of, opened_store, text_of
from bitsnap.errors import InvalidArgumentError, NotFoundError

_MOST_NAMED = 10


class StoreBranches:
    """Part of Store, which has the attributes."""

    _native: NativeStore
    _threads: int

    def branch(
        self,
        name: str,
        step: SupportsIndex | None = None,
        *,
        later: bool = False,
        progress: Progress | None = None,
    ) -> Branch:
        """Makes a branch: a second line of this run that begins with one of its checkpoints.

        A branch is a store of its own, ``bitsnap.Store("run:NAME")``. Its files are hard links to those of this store
        as long as they are the same, and neither store notices what is removed from the other. A branch of a branch
        lies beside it. Any handle can make one, also one that is read_only.

        Args:
            name: at most 200 bytes in UTF-8, without control characters and ``/ \\ @ :``. It begins with neither a dot
                nor a dash, is no number and has not spaces alone.
            step: None for the newest.
            later: the branch gets all checkpoints after the step, too.
            progress: called with (done bytes, total bytes) of checkpoints that are coded again, because they were coded
                against later ones; returning False cancels.

        Raises:
            NotFoundError: there is no checkpoint of that step.
            InvalidArgumentError: there is such a branch, or the name is none; or the checkpoint is kept as damaged.
            CorruptError, TruncatedError: a file of the checkpoint is damaged.
            BusyError: another process makes or removes a branch.
        """
        number = self._native.latest() if step is None else number_of(step, "step")
        if number is None:
            raise NotFoundError(f"{os.fsdecode(self._native.path)}: has no checkpoint to begin a branch with")
        return self._native.make_branch(
            label_of(name, "name"), number, with_later=bool(later), threads=self._threads, progress=progress
        )

    def branches(self) -> list[Branch]:
        """The branches of this run, or of the run that this store is a branch of, by name."""
        return self._native.branches()

    def remove_branch(self, name: str) -> None:
        """Removes a branch of this run with all its checkpoints. Branches that were made from it stay.

        Raises:
            NotFoundError: there is no such branch.
            BusyError: a process writes to it.
            InvalidArgumentError: its directory holds files that are not bitsnap's; they have to be moved before.
        """
        self._native.remove_branch(label_of(name, "name"))


def branch_for(run: Home, name: str, step: int | None) -> Home:
    """The directory of a branch of a run. With a step, the branch is made if it does not exist.

    Args:
        run: the run, or the branch from which the new one is made.
        name: of the branch.
        step: the checkpoint with which it begins; None: it must exist.

    Raises:
        NotFoundError: there is no such run, branch or step.
        InvalidArgumentError: the branch has another origin.
    """
    store = opened_store(run)
    path = os.fsdecode(store.path)
    for is_last in (False, True):
        branches = {each.name: each for each in store.branches()}
        found = branches.get(name)
        if found is not None:
            _check_origin(found, next((each.name for each in branches.values() if each.path == path), ""), step, path)
            return Path(found.path)
        if step is None:
            others = f"; its branches: {', '.join(map(repr, list(branches)[:_MOST_NAMED]))}" if branches else ""
            command = f"bitsnap branch {shlex.quote(path)}@STEP {shlex.quote(name)}"
            raise NotFoundError(
                f"{path}: has no branch {name!r}{others}{alike(name, list(branches))} (branch_from=STEP makes it, "
                f"and so does `{command}`)"
            )
        try:
            return Path(store.make_branch(name, step, with_later=False, threads=0, progress=None).path)
        except InvalidArgumentError:
            # Another process may have made it since.
            if is_last or name not in (each.name for each in store.branches()):
                raise
    raise AssertionError("the loop returns or raises")


def _check_origin(branch: Branch, parent: str, step: int | None, path: str) -> None:
    if step is None or (branch.origin is not None and (branch.origin.branch, branch.origin.step) == (parent, step)):
        return
    origin = "an unknown step" if branch.origin is None else f"step {branch.origin.step} of "
    if branch.origin is not None:
        origin += repr(branch.origin.branch) if branch.origin.branch else "the run"
    raise InvalidArgumentError(
        f"{path}: the branch {branch.name!r} was made from {origin}, not from step {step}; leave out branch_from to "
        "continue it, or choose another name"
    )


def branch_of_job(
    store: Home, branch: str | None, branch_from: SupportsIndex | None, begin: Callable[[Callable[[], Home]], Home]
) -> Home:
    """The directory that a job saves to; `begin` has one of its processes make the branch."""
    if branch is None:
        if branch_from is not None:
            raise InvalidArgumentError("branch_from needs the name of the branch: branch")
        return store
    first = None if branch_from is None else number_of(branch_from, "branch_from")
    return begin(partial(branch_for, store, text_of(branch, "branch"), first))
