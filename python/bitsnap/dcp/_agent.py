"""Saves of torch.distributed.checkpoint (DCP) through an agent: copied to shared memory, compressed by the agent.

A writer saves one step, because DCP asks for the copy before it names the checkpoint, and the engine needs the step for
the copy. The ranks also agree before the copy on what each of them saves: the lowest rank saves what several have. The
plans that DCP makes afterwards, in a thread, write nothing.
"""

from __future__ import annotations

import hashlib
import os
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn, SupportsIndex

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future
from torch.utils import _pytree as pytree

from bitsnap._common import Home, PathLike, brief, checkpoint_id_of, make_parent, may_pickle, number_of, real_home
from bitsnap._runs.opened_runs import Options
from bitsnap._states.adam import StateWithAdam
from bitsnap.checkpointer import Checkpointer, Save
from bitsnap.dcp._shards import LocalWriter, Roles, adam_of_shard, check_given_names, results_of, shard_of
from bitsnap.dcp._staging import OtherValueError, layout_of
from bitsnap.errors import BitsnapError, InvalidArgumentError


class _RankEntries(NamedTuple):
    """The entries of a state in this rank, by DCP's plan."""

    layout: list[Any] | None = None  # of the state; None: unknown
    items: Sequence[WriteItem] = ()
    keys: Sequence[str] = ()


class AgentSaves:
    """Makes writers for dcp.async_save that copy the state into the shared memory of a Checkpointer's agent.

    dcp.async_save returns after this one copy. The agent compresses the state and commits the checkpoint when it has
    the parts of all ranks, also if the training has died. The future of dcp.async_save ends when the checkpoint is
    durable, and raises the error if the save failed. StorageReader and to_torch_save() read the checkpoints.

    Settings, `adam`, `keep_last`, memory and timeout are those of the Checkpointer. Several ranks must be those of
    torch.distributed; all of them must create their AgentSaves, which makes a gloo group of its own.

    Example:
        with bitsnap.Checkpointer("run", keep_last=5) as checkpointer:
            saves = AgentSaves(checkpointer)
            for step in range(start, steps):
                train()
                future = dcp.async_save(state, storage_writer=saves.writer(step))

    Args:
        checkpointer: of this rank. It must not be closed before the futures have ended.
        roles, allow_pickle: as for StorageWriter.

    Raises:
        InvalidArgumentError: `checkpointer` has several ranks that are not those of torch.distributed.
        TypeError: `checkpointer` is no Checkpointer.
    """

    def __init__(self, checkpointer: Checkpointer, *, roles: Roles | None = None, allow_pickle: bool = False) -> None:
        if not isinstance(checkpointer, Checkpointer):
            raise TypeError(f"checkpointer must be a bitsnap.Checkpointer, got {brief(checkpointer)}")
        may_pickle(allow_pickle)  # checks it
        self._checkpointer = checkpointer
        self._roles = roles
        self._allow_pickle = allow_pickle
        self._owners = _Owners(checkpointer)
        self._planned = _RankEntries()
        self._newest = -1  # step of a writer

    def writer(self, step: SupportsIndex | None = None) -> AgentWriter:
        """The writer for one save, of this step, which must be above those that the store has; None: the next one.

        Raises:
            InvalidArgumentError: the Checkpointer does not store this step, because of its `every`.
        """
        every = self._checkpointer._schedule.every
        number = self._next(every) if step is None else number_of(step, "step")
        self._newest = max(self._newest, number)
        if number % every != 0:
            raise InvalidArgumentError(
                f"{self._checkpointer.path}: step {number} is not stored, because the Checkpointer has every={every}"
            )
        return AgentWriter(self, number)

    def _next(self, every: int) -> int:
        """The same on all ranks, which must all call it."""

        def newest() -> int:
            saves = self._checkpointer._saves  # also of what an agent holds and has not committed
            return max((each.step for each in saves.native.steps(saves.timeout_ms)), default=-1)

        found = self._newest if self._newest >= 0 else self._owners.from_first(newest)
        return (found // every + 1) * every

    def _stage(self, step: int, state: dict[str, Any], metadata: dict[str, str]) -> Save:
        """Copies what this rank saves of a state. All ranks must call it."""
        planner, planned = DefaultSavePlanner(), _RankEntries()
        try:
            planner.set_up_planner(state)
            planned = self._planned_for(state, planner)
        finally:
            self._owners.agree(planned.keys)
        own = [item for item, key in zip(planned.items, planned.keys, strict=True) if self._owners.is_own(key)]
        return self._save(step, own, planner, planner.mappings, metadata)

    def _planned_for(self, state: dict[str, Any], planner: DefaultSavePlanner) -> _RankEntries:
        """The entries of a state, which are those of the last one if it had the same layout: DCP takes long to find the
        parts of many DTensors."""
        layout = None
        with torch.no_grad(), suppress(OtherValueError):
            layout = layout_of(state)[0]
        if layout is None or layout != self._planned.layout:
            items = planner.create_local_plan().items
            self._planned = _RankEntries(layout, items, [_key_of(item) for item in items])
        return self._planned

    def _save(
        self, step: int, items: Iterable[WriteItem], planner: SavePlanner, planner_data: Any, metadata: dict[str, str]
    ) -> Save:
        with torch.no_grad():
            shard = shard_of(items, planner, planner_data, self._roles)
        adam = adam_of_shard(self._checkpointer._adam, shard.names, getattr(planner, "state_dict", {}))
        saved = self._checkpointer.save(
            step,
            StateWithAdam(shard.state, adam),
            roles=shard.roles,
            metadata=metadata,
            allow_pickle=self._allow_pickle,
        )
        assert saved is not None  # because the step is due
        return saved


class AgentWriter(LocalWriter):
    """Saves one step through an agent: for one dcp.async_save with a thread, or one dcp.save. AgentSaves makes it."""

    def __init__(self, saves: AgentSaves, step: int) -> None:
        super().__init__()
        self._saves, self._step = saves, step
        self._save_id = str(uuid.uuid4())
        self._save: Save | None = None  # None: nothing was copied yet
        self._error: Exception | None = None  # of the copy
        self._is_used = self.is_set_up = False
        self.stager = 0  # the thread that called stage()
        self.metadata: dict[str, str] = {}
        self.checkpoint_id: PathLike | None = f"{saves._checkpointer.path}/step-{step}"

    def __reduce__(self) -> NoReturn:
        refuse_other_process()

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Copies what this rank saves. Returns the state for the plans of DCP, which read no elements.

        Errors are raised when DCP begins the save, on all ranks: without a rank that raises here, the others would wait
        for it.
        """
        if self._is_used:
            raise self._used_twice()
        self._is_used = True
        self.stager = threading.get_ident()
        try:
            self._save = self._saves._stage(self._step, state_dict, self.metadata)
        except Exception as error:
            self._error = error
        # The training may change the dicts meanwhile.
        return _StagedState(pytree.tree_map(lambda leaf: leaf, state_dict))

    def close(self) -> None:
        """Nothing is left to free: the memory is that of the Checkpointer."""

    def reset(self, checkpoint_id: PathLike | None = None) -> None:
        """Refuses a checkpoint id that is not that of this writer, because the step has been copied already."""
        if checkpoint_id is None:
            return
        run, step = checkpoint_id_of(checkpoint_id)
        path = self._saves._checkpointer.path
        if real_home(run) != path or step not in (None, self._step):
            raise InvalidArgumentError(
                f"{os.fspath(checkpoint_id)!r} is not the checkpoint of this writer, which saves step {self._step} of "
                f"{path} and has copied the state for it: leave checkpoint_id out, or make the writer for that step"
            )

    def storage_meta(self) -> StorageMeta | None:
        """The checkpoint id, and an id of this save."""
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self._save_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Raises what went wrong with the copy. `kwargs` may say whether the ranks coordinate the save."""
        if self.is_set_up:
            raise self._used_twice()
        self._is_used = self.is_set_up = True
        self._use_collectives = bool(kwargs.get("use_collectives", True))
        if self._error is not None:
            raise self._error
        if self._save is not None and self._save.done():
            self._save.result()

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Leaves the plans as they are."""
        ranks = self._saves._checkpointer.world_size
        if self._use_collectives and len(plans) != ranks:
            raise InvalidArgumentError(
                f"{self._saves._checkpointer.path}: {len(plans)} ranks save step {self._step}, but the Checkpointer "
                f"has {ranks} (JobOptions(rank=..., world_size=...)), so that the checkpoint would never be complete"
            )
        if self._use_collectives or ranks == 1:
            check_given_names(plans, self._saves._roles, self._saves._checkpointer._adam)
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Waits until the checkpoint is durable. Without a copy, as in dcp.save(), copies the state first."""
        if self._save is None:
            self._save = self._saves._save(self._step, plan.items, planner, plan.planner_data, self.metadata)
        else:
            self._check(plan, planner)
            self._save._wait("persisted", None, is_urgent=False)
        self._save.result()
        future: Future[list[WriteResult]] = Future()
        future.set_result(results_of(plan.items, self._saves._checkpointer.rank))
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Does nothing: the agent has committed the checkpoint. Each shard holds what DCP says of it."""

    def _check(self, plan: SavePlan, planner: SavePlanner) -> None:
        where = f"{self._saves._checkpointer.path}: step {self._step}"
        if type(planner) is not DefaultSavePlanner:
            raise InvalidArgumentError(
                f"{where} was copied as DefaultSavePlanner plans it, before dcp.async_save used the planner "
                f"{type(planner).__name__}: use dcp.save or a StorageWriter with this planner"
            )
        missing = [item.index.fqn for item in plan.items if not self._saves._owners.knows(_key_of(item))]
        if missing:
            raise InvalidArgumentError(
                f"{where}: the plan has entries that were not copied, such as {missing[0]!r}: use DefaultSavePlanner "
                "with its default arguments, or a StorageWriter"
            )

    def _used_twice(self) -> InvalidArgumentError:
        return InvalidArgumentError(f"the writer of step {self._step} was used already: each save needs its own writer")


class AgentRuns:
    """What a StorageWriter with an agent does: for each of its saves an AgentWriter, one after another.

    Writers of one process share the Checkpointer of a run, as long as their options are equal.
    """

    def __init__(self, options: Options, roles: Roles | None, **of_checkpointer: Any) -> None:
        self._options, self._roles, self._more = options, roles, of_checkpointer
        # Their states have been copied, and DCP has not begun their saves, which it does in this order.
        self._staged: deque[AgentWriter] = deque()
        self._of_thread = threading.local()  # DCP makes each save in one thread

    def staging(self, checkpoint_id: PathLike | None, metadata: dict[str, str]) -> AgentWriter:
        """The writer for another save, which dcp.async_save begins."""
        writer = self._writer(checkpoint_id, metadata)
        self._staged.append(writer)
        return writer

    def begun(self) -> AgentWriter | None:
        """The writer that has copied the state that DCP saves in this thread; None in dcp.save.

        The first call of DCP in the thread of the save takes the writer, so that it is gone if the save fails early.
        """
        writer: AgentWriter | None = getattr(self._of_thread, "writer", None)
        if writer is not None and not writer.is_set_up:
            return writer
        if not self._staged or self._staged[0].stager == threading.get_ident():
            return None
        self._of_thread.writer = self._staged.popleft()
        return self.writer

    def setting_up(self, checkpoint_id: PathLike | None, metadata: dict[str, str]) -> AgentWriter:
        """The writer that has copied the state, or, in dcp.save, another one."""
        self._of_thread.writer = self.begun() or self._writer(checkpoint_id, metadata)
        return self.writer

    @property
    def writer(self) -> AgentWriter:
        """That of the present save."""
        writer: AgentWriter = self._of_thread.writer  # set_up_storage_writer() comes first
        return writer

    def _writer(self, checkpoint_id: PathLike | None, metadata: dict[str, str]) -> AgentWriter:
        run, step = checkpoint_id_of(needed(checkpoint_id))
        writer = self._saves(run).writer(step)
        writer.metadata = metadata
        return writer

    def close(self) -> None:
        """Leaves the agents, which go on with what they have."""
        for path in [path for path, (owner, _) in _open.items() if owner == self._key()]:
            _leave(path)

    def _key(self) -> Any:
        return self._options, self._more  # roles are the writer's own

    def _saves(self, run: Home) -> AgentSaves:
        path = real_home(run)
        found = _open.get(path)
        if found is None or found[0] != self._key() or found[1]._checkpointer._saves.is_let_go:
            if found is not None:
                _leave(path)
            make_parent(path)
            checkpointer = self._options.checkpointer(path, **self._more)
            saves = AgentSaves(checkpointer, roles=self._roles, allow_pickle=self._options.allow_pickle)
            found = _open[path] = (self._key(), saves)
        return found[1]


def _leave(path: Home) -> None:
    """Leaves the agent of a run when the saves of this process are done, whose futures wait for it."""
    checkpointer = _open.pop(path)[1]._checkpointer
    with suppress(BitsnapError):  # the futures raise it
        checkpointer.wait()
    checkpointer._leave()


# The runs to which StorageWriters of this process save through agents, with their options.
_open: dict[Home, tuple[Any, AgentSaves]] = {}


class _StagedState(dict[str, Any]):
    """A state whose elements were copied."""

    def __reduce__(self) -> NoReturn:
        refuse_other_process()


def needed(checkpoint_id: PathLike | None) -> PathLike:
    if checkpoint_id is None:
        raise InvalidArgumentError(
            "StorageWriter needs a checkpoint id: pass checkpoint_id='run/step-100' to dcp.save(), or a path here"
        )
    return checkpoint_id


def refuse_other_process() -> NoReturn:
    raise InvalidArgumentError(
        "a save through an agent does not go through a process of DCP, because the agent is one: use dcp.async_save "
        "with AsyncCheckpointerType.THREAD"
    )


class _Owners:
    """What each rank saves of the entries that several of them have.

    The ranks agree in a process group of their own: DCP may use the others at the same time, in a thread. In all saves
    but those after a change of the entries, they exchange one word each.
    """

    def __init__(self, checkpointer: Checkpointer) -> None:
        ranks = checkpointer._ranks
        if ranks.world_size > 1 and not ranks.agree:
            raise InvalidArgumentError(
                f"{checkpointer.path}: rank {ranks.rank} of {ranks.world_size} is not that of torch.distributed, "
                "through which DCP coordinates the ranks: initialize it before the Checkpointer, without "
                "JobOptions(rank=...)"
            )
        self._ranks = ranks.apart(checkpointer._saves.timeout_ms)
        self._words = b""  # of all ranks
        self._lower: frozenset[str] = frozenset()  # what lower ranks have
        self._all: frozenset[str] = frozenset()

    def agree(self, keys: Sequence[str]) -> None:
        """Says what this rank has. All ranks must call it."""
        words = self._ranks.gather_words(hashlib.sha256("\0".join(keys).encode()).digest())
        if words == self._words:
            return
        every = [frozenset(each) for each in self._ranks.gather(keys)]
        self._lower = frozenset().union(*every[: self._ranks.rank])
        self._all = frozenset().union(*every)
        self._words = words

    def from_first(self, call: Callable[[], int]) -> int:
        return self._ranks.from_first(call, "the next step is not known")

    def is_own(self, key: str) -> bool:
        return key not in self._lower

    def knows(self, key: str) -> bool:
        return key in self._all


def _key_of(item: WriteItem) -> str:
    """The name of an entry, and the position of the part."""
    offset = item.index.offset
    return item.index.fqn if offset is None else f"{item.index.fqn}/{tuple(offset)}"
