"""Saves of all ranks to the paths of a framework: one shard from each rank, committed together.

Each rank writes its shard itself, or copies it for an agent, which writes it while the training goes on. The reference
of the path is written when the checkpoint has been committed (path_checkpoints.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from bitsnap._arguments import Role
from bitsnap._engine.ranks import Ranks
from bitsnap._engine.saves import Save
from bitsnap._references import FOLDER_REFERENCES, Saved
from bitsnap._runs import path_checkpoints as paths
from bitsnap._runs.options import Options
from bitsnap._runs.path_agents import tidy
from bitsnap._states.adam import Adam, StateWithAdam, sources_of
from bitsnap.checkpointer import Checkpointer
from bitsnap.errors import BusyError
from bitsnap.store import Store

_T = TypeVar("_T")
# Adam's betas, eps and step.
AdamValues: TypeAlias = tuple[tuple[float, float], float, int]


@dataclasses.dataclass
class RankShard:
    """What one rank saves of a checkpoint. Can be sent to another process, which then writes it.

    Attributes:
        masters: of weights, by name: the master, and the element where the weight begins.
        adam: None: the state says what is known of Adam, if anything does.
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

    def __init__(self, options: Options, before: RankSaves | None = None) -> None:
        """`before`: the saves with other options until now; some may not be committed yet. Leaves its agent."""
        self._options = options
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
            tidy(run, self._options.timeout)

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
        if self._is_locked() and run not in self._checkpointers:
            tidy(run, self._options.timeout)  # what the last process has left
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
                paths.refer_to(new, store.run_id)
                # Which checkpoints are kept is not known: whoever trains deletes their paths.
                self._checkpointers[new.run]._rotate(paths.forgotten(store, pending), None)
            else:
                if new.label and store.labels().get(new.label) != new.saved.step:
                    store.label(new.saved.step, new.label)
                paths.finish(store, new, pending)

    def _store(self, run: Path) -> Store:
        return self._options.store(run, shared=True)


def _what(reference: Path) -> str:
    return f"{reference.parent if reference.name in FOLDER_REFERENCES else reference}: the save failed"
