"""Saves to paths: those of one process, at once or through agents, and those of all ranks, committed together.

An agent of each run compresses and commits what was copied to shared memory. The reference of a path is written when
the state has been copied, and also names the checkpoint that it led to before, until the new one is committed. A
reference that is removed meanwhile stays until then (framework_files.py). While an agent lives, only it can write to
its run. When it has committed a save, it is told which steps have been replaced or removed since, and removes them.

Of all ranks, each writes its shard itself, or copies it for an agent, which writes it while the training goes on. The
reference of the path is written when the checkpoint has been committed (path_checkpoints.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bitsnap._common import Metrics, PathLike, Role
from bitsnap._engine.ranks import Ranks
from bitsnap._engine.steps import Beside, warn_of_earlier
from bitsnap._references import FOLDER_REFERENCES, Saved, StepOfRun, absolute, unlink
from bitsnap._runs import path_checkpoints as paths
from bitsnap._runs.framework_files import finish_removals, postpone_removal
from bitsnap._runs.opened_runs import Options
from bitsnap._states.adam import Adam, AdamValues, StateWithAdam, sources_of
from bitsnap._states.packing import with_metrics
from bitsnap.agents import JobOptions
from bitsnap.checkpointer import Checkpointer, Save
from bitsnap.errors import BitsnapError, BusyError
from bitsnap.store import Store

# An agent of an older version does not remove steps. As many that are not needed any more may be in its run before it
# is stopped to remove them.
_MOST_UNNEEDED = 8
_DEFAULTS = Options()


def save(
    reference: PathLike, step: int, state: Any, options: Options = _DEFAULTS, *, metrics: Metrics | None = None
) -> StepOfRun:
    """Saves a state to a path, without an agent, and removes what it replaces and what has been deleted since.

    Args:
        reference, step: as in path_checkpoints.begin(). The others are those of Store.save().

    Raises:
        ExistsError: the path is a directory.
        and what Store.save() raises. Then the path leads to what it did before.
    """
    run = paths.run_of(reference)
    absolute(reference).parent.mkdir(parents=True, exist_ok=True)
    with options.store(run, keep_last=paths.kept_of(run), prunes=False) as store:
        new = paths.save(store, reference, step, state, metrics=metrics, allow_pickle=options.allow_pickle)
    options.follow(run)
    return StepOfRun(run, new.saved.step)


class PathSaves:
    """The saves of one process to any paths. Only one process may save to the paths of a directory."""

    def __init__(self, options: Options, on_committed: Callable[[], None] | None = None) -> None:
        """`on_committed` is called on another thread when a save was committed; it may remove references."""
        self._options = options
        self._on_committed = on_committed
        self._runs: dict[Path, _Run] = {}

    def save(
        self,
        reference: PathLike,
        step: int,
        state: Any,
        run: Path | None = None,
        *,
        kept: int | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Copies a state. Returns before it is committed; a failure is a warning at the next save to this run.

        `run`: that of the path, if it is not where run_of() says. `kept`: how many checkpoints the framework keeps,
        which it removes itself; None: as many as there are now. `metrics`: as in Store.save().

        Raises:
            BitsnapError: nothing was copied; the path leads to what it did before.
        """
        path, run = absolute(reference), paths.run_of(reference) if run is None else run
        path.parent.mkdir(parents=True, exist_ok=True)
        if run not in self._runs:
            self._options.settle(run)
            paths.tidy(run, self._options.timeout)  # what the last process has left
            # Other ranks do not save, so there is nothing to agree on.
            checkpointer = self._options.checkpointer(run, job=JobOptions(rank=0, world_size=1))
            self._runs[run] = _Run(checkpointer, run, self._on_committed)
        self._runs[run].save(path, step, state, metrics, self._options, kept)
        self._options.follow(run)

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
    def __init__(self, checkpointer: Checkpointer, path: Path, on_committed: Callable[[], None] | None) -> None:
        self._checkpointer = checkpointer
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

    def save(
        self, path: Path, step: int, state: Any, metrics: Metrics | None, options: Options, kept: int | None
    ) -> None:
        with_metrics(None, metrics)  # before anything is removed
        with self._changing:
            save = self._save(path, step, state, metrics, options, kept)
        save.add_done_callback(self._remove_replaced)

    def _save(
        self, path: Path, step: int, state: Any, metrics: Metrics | None, options: Options, kept: int | None
    ) -> Save:
        if self.unneeded >= _MOST_UNNEEDED:
            self.wait(options.timeout)
            self._settle()
            paths.tidy(self._path, options.timeout)  # the save below starts another agent
            self.unneeded = 0
        self._pending = {saved: save for saved, save in self._pending.items() if not save.done()}
        self._settle()
        with Store(self._path, read_only=True) as store:
            pending = [*self._pending, *self._newest]
            new = paths.begin(store, path, step, pending, forgets=False)
            run_id = store.run_id
            self._kept = paths.kept_of(self._path) if kept is None else kept
            self._rotate(store, pending)
        save = self._checkpointer.save(
            new.saved.step, state, metadata=new.metadata, metrics=metrics, allow_pickle=options.allow_pickle
        )
        assert save is not None  # because every step is due
        if save.error is not None:
            raise save.error
        if not save.staged():
            raise BusyError(f"{path}: the state was not copied, because no memory was free")
        paths.refer_to(path, new.run, run_id, (new.saved, *new.earlier))
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
            if must_wait and postpone_removal(self._path, path, next(iter(self._newest))):
                self._awaited.update(self._newest)
                self._settle()
            else:
                unlink(path)
            self.unneeded += 1

    def _settle(self) -> None:
        """Removes the references whose time has come."""
        committed = {saved for saved, save in self._awaited.items() if save.stage == "persisted"}
        if committed:
            finish_removals(self._path, committed.__contains__)
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
            paths.tidy(self._path, timeout)


_T = TypeVar("_T")


@dataclasses.dataclass
class RankShard:
    """What one rank saves of a checkpoint. Can be sent to another process, which then writes it.

    Attributes:
        masters: of weights, by name: the master, and the element where the weight begins.
        adam: all values; None: the state says what is known of Adam, if anything does.
    """

    new: paths.NewSave
    rank: int
    ranks: int
    options: Options
    state: dict[str, Any]
    roles: dict[str, Role] = dataclasses.field(default_factory=dict)
    masters: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)
    adam: AdamValues | None = None

    def write(self) -> None:
        self.new.run.parent.mkdir(parents=True, exist_ok=True)
        with self.options.store(self.new.run, shared=True, adam=self._adam()) as store:
            store.save_shard(
                self.new.saved.step,
                self.state,
                shard=self.rank,
                shards=self.ranks,
                attempt=self.new.saved.word,
                roles=self.roles,
                masters=self.masters,
                allow_pickle=self.options.allow_pickle,
            )

    def stage(self, checkpointer: Checkpointer, metadata: Mapping[str, str]) -> Save:
        """Copies the shard for the agent of the checkpointer."""
        save = checkpointer.save(
            self.new.saved.step,
            StateWithAdam(self.state, sources_of(self._adam())),
            roles=self.roles,
            masters=self.masters,
            metadata={**metadata, **self.new.metadata},
            allow_pickle=self.options.allow_pickle,
        )
        assert save is not None  # because every step is due
        if save.error is not None:
            raise save.error
        return save

    def _adam(self) -> Adam | None:
        if self.adam is None:
            return None
        betas, eps, step = self.adam
        assert step is not None
        return Adam(betas=betas, eps=eps, step=lambda: step)


class Pending(NamedTuple):
    """A save whose state an agent has."""

    new: paths.NewSave
    save: Save  # of this rank


class RankSaves:
    """The saves of a training of any number of ranks.

    All ranks make it, and call its methods in the same order. An error of one rank is raised on all of them, with its
    class.
    """

    def __init__(self, options: Options, before: RankSaves | None = None, told: Beside | None = None) -> None:
        """`before`: the saves with other options until now; some may not be committed yet. Leaves its agent. `told`: of
        a training that begins anew; None: this is none."""
        self._options, self._told = options, told
        self.ranks = Ranks()
        self._checkpointers: dict[Path, Checkpointer] = {}  # by the runs
        self._pending: list[Pending] = []
        self._begun: list[paths.NewSave] = []  # which another process writes, until they are committed
        if before is not None:
            before.leave()
            self._pending, self._begun = before._pending, before._begun

    def begin(self, reference: Path, step: int, run: Path | None = None) -> paths.NewSave:
        """Where to save the checkpoint of a path: see path_checkpoints.begin().

        `run` is that of the path, if it is not where path_checkpoints.run_of() says.
        """
        new = self.from_first(lambda: self._begin(reference, step, run), reference)
        self._begun.append(new)
        return new

    def shard(self, new: paths.NewSave, state: dict[str, Any], **more: Any) -> RankShard:
        """The shard of this rank, with what else a RankShard has."""
        return RankShard(new, self.ranks.rank, self.ranks.world_size, self._options, state, **more)

    def write(self, shard: RankShard) -> None:
        """Writes the shard of each rank."""
        if self._is_locked() and shard.new.run in self._checkpointers:
            self._leave(shard.new.run)  # its agent holds the run alone
        try:
            self.on_all(shard.write, shard.new.reference)
        except BaseException:
            self._end(shard.new)
            raise

    def commit(
        self,
        new: paths.NewSave,
        metadata: Mapping[str, str] | None = None,
        complete: Callable[[], object] = lambda: None,
    ) -> None:
        """Makes a checkpoint of the shards that all ranks have written, and lets the path lead to it.

        `complete` is called on rank 0 between the two: it writes what else the checkpoint consists of.
        """
        self._end(new)
        self.from_first(lambda: self._commit(new, metadata or {}, complete), new.reference)

    def stage(self, shard: RankShard, metadata: Mapping[str, str] | None = None) -> Pending:
        """Copies the shard of each rank for the agent, which commits it."""
        self._end(shard.new)
        save = self.on_all(lambda: self._stage(shard, metadata or {}), shard.new.reference)
        pending = Pending(shard.new, save)
        self._pending.append(pending)
        return pending

    def finish(self, pending: Pending, complete: Callable[[], object] = lambda: None) -> None:
        """Waits until the agent has committed the save, and lets the path lead to it. `complete`: see commit()."""
        try:
            self.on_all(lambda: pending.save.result(self._options.timeout), pending.new.reference)
        except BaseException:
            if pending.save.done():  # otherwise its step is taken: the agent may commit it yet
                self.forget(pending)
            raise
        self.forget(pending)
        self.refer(pending.new, complete)

    def finish_alone(self, pending: Pending, complete: Callable[[], object]) -> bool:
        """Likewise, when the ranks cannot talk to each other any more. Whether this rank has done it: the first one
        does."""
        self.forget(pending)
        if self.ranks.rank == 0:
            pending.save.result(self._options.timeout)
            self._refer(pending.new, complete)
        return self.ranks.rank == 0

    def refer(self, new: paths.NewSave, complete: Callable[[], object] = lambda: None) -> None:
        """Lets the path lead to a step that others have committed."""
        self._end(new)
        self.from_first(lambda: self._refer(new, complete), new.reference)

    def forget(self, pending: Pending) -> None:
        """Leaves a save that has failed."""
        self._pending[:] = [each for each in self._pending if each is not pending]

    def _end(self, new: paths.NewSave) -> None:
        self._begun[:] = [each for each in self._begun if each is not new]

    def leave(self) -> None:
        """Leaves the agent, which goes on with what it has."""
        for run in list(self._checkpointers):
            self._leave(run)

    def _leave(self, run: Path) -> None:
        self._checkpointers.pop(run)._leave()
        if self._is_locked():
            paths.tidy(run, self._options.timeout)

    def told(self, call: Callable[[], _T], tell: Callable[[_T], Any], reference: Path) -> tuple[_T, list[Any]]:
        """See Ranks.told()."""
        return self.ranks.told(call, tell, _what(reference))

    def on_all(self, call: Callable[[], _T], reference: Path) -> _T:
        """See Ranks.on_all()."""
        return self.ranks.on_all(call, _what(reference))

    def from_first(self, call: Callable[[], _T], reference: Path) -> _T:
        """See Ranks.from_first()."""
        return self.ranks.from_first(call, _what(reference))

    def _is_locked(self) -> bool:
        """Whether an agent may hold the run alone, so that only it can write: that of a single rank does."""
        return self._options.agent is not None and self.ranks.world_size == 1

    def _uncommitted(self, run: Path) -> list[Saved]:
        return [new.saved for new in (*self._begun, *(each.new for each in self._pending)) if new.run == run]

    def _begin(self, reference: Path, step: int, run: Path | None) -> paths.NewSave:
        run = paths.run_of(reference) if run is None else run
        reference.parent.mkdir(parents=True, exist_ok=True)
        run.parent.mkdir(parents=True, exist_ok=True)
        if self._told is not None:
            warn_of_earlier(run, self._told)
        self._options.settle(run)
        if self._is_locked() and run not in self._checkpointers:
            paths.tidy(run, self._options.timeout)  # what the last process has left
        with self._store(run) as store:
            return paths.begin(store, reference, step, self._uncommitted(run), forgets=not self._is_locked())

    def _commit(self, new: paths.NewSave, metadata: Mapping[str, str], complete: Callable[[], object]) -> None:
        with self._store(new.run) as store:
            step, shards = new.saved.step, self.ranks.world_size
            metadata = {**metadata, **new.metadata}
            outcome = store.commit(step, shards, new.saved.word, metadata=metadata, labels=new.label or ())
            if not outcome:
                raise BusyError(f"{new.run}: step {step} cannot be committed: shards {outcome.missing} are missing")
        self._refer(new, complete)

    def _stage(self, shard: RankShard, metadata: Mapping[str, str]) -> Save:
        run = shard.new.run
        for other in [each for each in self._checkpointers if each != run and not self._uncommitted(each)]:
            self._leave(other)
        if run not in self._checkpointers:
            self._checkpointers[run] = self._options.checkpointer(run)
        return shard.stage(self._checkpointers[run], metadata)

    def _refer(self, new: paths.NewSave, complete: Callable[[], object]) -> None:
        with self._store(new.run) as store:
            complete()
            pending = self._uncommitted(new.run)
            if self._is_locked() and new.run in self._checkpointers:
                paths.refer_to(new.reference, new.run, store.run_id, (new.saved,))
                # Which checkpoints are kept is not known: whoever trains deletes their paths.
                self._checkpointers[new.run]._rotate(paths.forgotten(store, pending), None)
            else:
                if new.label and store.labels().get(new.label) != new.saved.step:
                    store.label(new.saved.step, new.label)
                paths.finish(store, new, pending)
        self._options.follow(new.run)

    def _store(self, run: Path) -> Store:
        return self._options.store(run, shared=True)


def _what(reference: Path) -> str:
    return f"{reference.parent if reference.name in FOLDER_REFERENCES else reference}: the save failed"
