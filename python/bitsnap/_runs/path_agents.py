"""Saves to paths through agents: one copy to shared memory; the agent of each run compresses and commits it.

The reference of a path is written when the state has been copied, and also names the checkpoint that it led to
before, until the new one is committed. A reference that is removed meanwhile stays until then (removals.py). While an
agent lives, only it can write to its run. When it has committed a save, it is told which steps have been replaced or
removed since, and removes them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bitsnap._arguments import PathLike, native_path
from bitsnap._bitsnap import is_store
from bitsnap._engine.saves import Save
from bitsnap._references import Saved, absolute, refer, unlink
from bitsnap._runs import path_checkpoints as paths, removals as removals
from bitsnap._runs.options import Options
from bitsnap.agents import JobOptions, stop_agent
from bitsnap.checkpointer import Checkpointer
from bitsnap.errors import BitsnapError, BusyError, NotFoundError
from bitsnap.store import Store

# An agent of an older version does not remove steps. As many that are not needed any more may be in its run before it
# is stopped to remove them.
_MOST_UNNEEDED = 8


class PathSaves:
    """The saves of one process to any paths. Only one process may save to the paths of a directory."""

    def __init__(self, options: Options, on_committed: Callable[[], None] | None = None) -> None:
        """`on_committed` is called on another thread when a save was committed; it may remove references."""
        self._options = options
        self._on_committed = on_committed
        self._runs: dict[Path, _Run] = {}

    def _checkpointer(self, run: Path) -> Checkpointer:
        # Other ranks do not save, so there is nothing to agree on.
        return self._options.checkpointer(run, job=JobOptions(rank=0, world_size=1))

    def save(
        self, reference: PathLike, step: int, state: Any, run: Path | None = None, *, kept: int | None = None
    ) -> None:
        """Copies a state. Returns before it is committed; a failure is a warning at the next save to this run.

        `run`: that of the path, if it is not where run_of() says. `kept`: how many checkpoints the framework keeps,
        which it removes itself; None: as many as there are now.

        Raises:
            BitsnapError: nothing was copied; the path leads to what it did before.
        """
        path, run = absolute(reference), paths.run_of(reference) if run is None else run
        path.parent.mkdir(parents=True, exist_ok=True)
        if run not in self._runs:
            tidy(run, self._options.timeout)  # what the last process has left
            self._runs[run] = _Run(self._checkpointer, run, self._on_committed)
        self._runs[run].save(path, step, state, self._options.allow_pickle, self._options.timeout, kept)

    def wait(self) -> bool:
        """Waits until no save makes further progress. Failures are warnings at the next save.

        Returns whether the newest save of each run was committed.
        """
        for run in self._runs.values():
            run.wait(self._options.timeout)
        return self.uncommitted() == 0

    def uncommitted(self) -> int:
        """The most saves of a run that came after its newest committed one: they are pending, or have failed."""
        return max((run.uncommitted() for run in self._runs.values()), default=0)

    def leave(self) -> None:
        """Leaves the agents, which go on with what they have."""
        for run in self._runs.values():
            run.leave()
        self._runs.clear()

    def remove(self, path: PathLike, run_path: Path | None = None) -> bool:
        """Removes a reference; its step follows later. False if no run of this process has it.

        While the newest save is not committed, the reference stays: a crash may lose what an agent has.
        """
        run = self._runs.get(paths.run_of(path) if run_path is None else run_path)
        if run is not None:
            run.remove(absolute(path))
        return run is not None

    def close(self) -> None:
        """Waits for all saves, stops the agents, and removes what is not needed any more.

        Raises:
            BitsnapError: the last error of a save, after all runs were closed.
        """
        runs, self._runs = self._runs, {}
        with contextlib.ExitStack() as stack:
            for run in runs.values():
                stack.callback(run.close, self._options.timeout)


class _Run:
    def __init__(
        self, make: Callable[[Path], Checkpointer], path: Path, on_committed: Callable[[], None] | None
    ) -> None:
        self._checkpointer = make(path)
        self._path = path
        self._on_committed = on_committed
        self._kept: int | None = None
        # Guards the members below: when a save is committed, another thread removes what it takes the place of.
        self._changing = threading.RLock()
        self._pending: dict[Saved, Save] = {}
        self._newer: list[Save] = []  # than the newest that was committed
        self._awaited: dict[Saved, Save] = {}  # for which references that were removed wait
        self._newest: dict[Saved, Save] = {}  # one, also if it failed: who waits for a step means one save
        self.unneeded = 0

    def save(self, path: Path, step: int, state: Any, allow_pickle: bool, timeout: float, kept: int | None) -> None:
        with self._changing:
            save = self._save(path, step, state, allow_pickle, timeout, kept)
        save.add_done_callback(self._remove_replaced)

    def _save(self, path: Path, step: int, state: Any, allow_pickle: bool, timeout: float, kept: int | None) -> Save:
        if self.unneeded >= _MOST_UNNEEDED:
            self.wait(timeout)
            self._settle()
            tidy(self._path, timeout)  # the save below starts another agent
            self.unneeded = 0
        self._pending = {saved: save for saved, save in self._pending.items() if not save.done()}
        self._settle()
        with Store(self._path, read_only=True) as store:
            pending = [*self._pending, *self._newest]
            new = paths.begin(store, path, step, pending, forgets=False)
            run_id = store.run_id
            self._kept = paths.kept_of(self._path) if kept is None else kept
            self._rotate(store, pending)
        save = self._checkpointer.save(new.saved.step, state, metadata=new.metadata, allow_pickle=allow_pickle)
        assert save is not None  # because every step is due
        if save.error is not None:
            raise save.error
        if not save.staged():
            raise BusyError(f"{path}: the state was not copied, because no memory was free")
        refer(path, new.run, run_id, (new.saved, *new.earlier), paths.files_beside(path))
        self._pending[new.saved] = save
        self._newer.append(save)
        self._newest = {new.saved: save}
        self.unneeded += len(new.earlier) > 0
        return save

    def _rotate(self, store: Store, pending: list[Saved]) -> None:
        if self._checkpointer._rotate(paths.forgotten(store, pending), self._kept):
            self.unneeded = 0

    def _remove_replaced(self, save: Save) -> None:
        if save.stage != "persisted":
            return
        if self._on_committed is not None:
            self._on_committed()
        with self._changing:
            self._settle()
            with Store(self._path, read_only=True) as store:
                self._rotate(store, [*self._pending, *self._newest])

    def wait(self, timeout: float) -> None:
        for save in self._pending.values():
            with contextlib.suppress(BitsnapError):  # a warning of the next save has it
                save.wait_persisted(timeout)

    def uncommitted(self) -> int:
        with self._changing:
            return self._uncommitted()

    def _uncommitted(self) -> int:
        for index in reversed(range(len(self._newer))):
            if self._newer[index].stage == "persisted":
                del self._newer[: index + 1]
                break
        return len(self._newer)

    def remove(self, path: Path) -> None:
        with self._changing:
            must_wait = self._uncommitted() > 0 or self._awaited  # one of which may wait for the save of this path
            if must_wait and removals.postpone(self._path, path, next(iter(self._newest))):
                self._awaited.update(self._newest)
                self._settle()
            else:
                unlink(path)
            self.unneeded += 1

    def _settle(self) -> None:
        """Removes the references whose time has come."""
        committed = {saved for saved, save in self._awaited.items() if save.stage == "persisted"}
        if committed:
            removals.finish(self._path, committed.__contains__)
            self._awaited = {saved: save for saved, save in self._awaited.items() if saved not in committed}

    def leave(self) -> None:
        self._checkpointer._leave()

    def close(self, timeout: float) -> None:
        try:
            self.wait(timeout)
            with self._changing:
                self._settle()
            self._checkpointer.close()
        finally:
            tidy(self._path, timeout)


def tidy(run: Path, timeout: float) -> None:
    """Stops the agent of a run, which commits what it has, and removes the steps to which no path leads."""
    with contextlib.suppress(NotFoundError):  # no agent
        stop_agent(run, timeout=timeout)
    if is_store(native_path(run)):
        with Store(run, create=False, timeout=timeout) as store:
            paths.forget(store)
            paths.label(store)
