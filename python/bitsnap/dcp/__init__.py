"""Checkpoints of torch.distributed.checkpoint (DCP) in a store: compressed, and loaded on any number of ranks.

    import torch.distributed.checkpoint as dcp
    from bitsnap.dcp import StorageReader, StorageWriter

    dcp.save(state, checkpoint_id="run/step-100", storage_writer=StorageWriter())
    dcp.load(state, checkpoint_id="run/step-100", storage_reader=StorageReader())

A checkpoint id is the directory of a store, or its address as in "s3://bucket/run", and a step in it. Loading decodes
only the chunks that a rank needs, however the tensors were divided when they were saved.
Nothing in a checkpoint is unpickled.
With StorageWriter(path, agent=bitsnap.AgentOptions()), an agent compresses asynchronous saves; AgentSaves does the same
with a Checkpointer of yours.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from torch.distributed.checkpoint.storage import StorageReader as TorchStorageReader, WriteResult
from torch.futures import Future

from bitsnap._bitsnap import Settings, is_store
from bitsnap._common import (
    LARGEST_COUNT,
    PathLike,
    checkpoint_id_of,
    is_url,
    local_path,
    make_parent,
    may_pickle,
    native_run,
    number_of,
    object_url,
    positive_of,
    real_home,
)
from bitsnap._engine.ranks import word_of_start
from bitsnap._engine.steps import Beside, warn_of_earlier
from bitsnap._references import writing
from bitsnap._runs.opened_runs import Options
from bitsnap._states.adam import Adams, AdamSources, adam_for_many
from bitsnap._states.packing import with_metrics
from bitsnap.agents import AgentOptions, MemoryOptions
from bitsnap.dcp._agent import (
    AgentRuns,
    AgentSaves as AgentSaves,
    AgentWriter as AgentWriter,
    needed,
    refuse_other_process,
)
from bitsnap.dcp._shards import (
    KEY,
    LocalWriter,
    OpenStep,
    Roles,
    adam_of_shard,
    check_given_names,
    paths_of,
    results_of,
    shard_of,
)
from bitsnap.dcp._shared_reads import SharedReads, plans_with_readers, read_shared
from bitsnap.dcp._staging import StagedCopies
from bitsnap.errors import BusyError, ExistsError, InvalidArgumentError, NotFoundError
from bitsnap.store import Store

# The saves that this process has begun, by their runs, whichever writers make them: as many on all ranks.
_saves_begun: Counter[str] = Counter()


_BESIDE = Beside(
    "the run holds the steps of both, and keep_last removes the earlier ones",
    "dcp.load(state, checkpoint_id=..., storage_reader=bitsnap.dcp.StorageReader()) before the first save",
    "another directory in the checkpoint id",
)


class _Place(NamedTuple):
    """The part of one rank in a save. Sent to the ranks with their plans."""

    shard: int
    shards: int


class StorageWriter(LocalWriter):
    """Saves a checkpoint of DCP as one step of a store, with one shard from each rank.

    For ``dcp.save`` and ``dcp.async_save``, with threads or processes, and any planner. Each rank compresses and writes
    its shard; the checkpoint exists when the coordinator has committed it. If a rank fails, all of them raise, and the
    step does not exist; saving it again is possible. Tensors are coded against the step before.

    What is neither a tensor nor a dict or list of them is stored with its type, without pickle, if bitsnap can store it
    (see bitsnap.save()); otherwise save() fails, and the error names it, unless `allow_pickle` allows a pickle.

    Args:
        path: a checkpoint id for all saves that are given none.
        settings: how states are coded, or the name of a policy, such as "bounded". See bitsnap.Settings.
        adam: Adam's betas, eps and step for first moments, if `settings` rounds them and the state does not have them
            as get_optimizer_state_dict() gives them; or a dict or function of the names in DCP, as `roles`.
        roles: the roles of tensors whose names do not tell, by their names in DCP, or a function of the name that
            returns None for those that it does not know. See bitsnap.save_file(). Names of a dict, here and in `adam`,
            that no rank saves make the save fail; but not without a coordinator (use_collectives=False), where each of
            several ranks knows only what it saves itself.
        keep_last: after each save, keep only the N newest checkpoints of the run, and
        keep_every: those of steps that are multiples of this.
        overwrite: saving the newest step of the run again replaces it: until the new checkpoint is committed, the old
            one exists. False raises ExistsError, before anything is written, if the run has the step or a later one.
        allow_pickle: pickle values that cannot be stored otherwise. StorageReader then needs the same consent.
        timeout: the longest wait for another process that writes to the store, in seconds.
        threads: for compressing; 0 for all that the process may use.
        agent, memory: dcp.async_save with a thread copies the state once, to memory that is shared with an agent, which
            compresses and commits it while the training goes on, also if the training has died. The future ends when
            the checkpoint is durable. See bitsnap.AgentOptions and bitsnap.MemoryOptions. The checkpoint id must be
            the `path` here, because dcp.async_save copies before it names the checkpoint; the planner must be
            DefaultSavePlanner with its default arguments, and steps must rise: `overwrite` has no effect.
        keep_copy: dcp.async_save with a thread copies the state into the memory of the last copy, if that save has
            ended, instead of new memory, which stalls the training longer. False frees the memory after each save.

    A checkpoint id is a path that ends in a step, such as ``run/step-100``, ``run/checkpoint_100`` or ``run/100``. If
    it ends in anything else, it is the directory of the store, and each save gets the next step.
    """

    def __init__(
        self,
        path: PathLike | None = None,
        *,
        settings: Settings | str | None = None,
        adam: Adams | None = None,
        roles: Roles | None = None,
        keep_last: int | None = None,
        keep_every: int | None = None,
        overwrite: bool = True,
        allow_pickle: bool = False,
        timeout: float = 600.0,
        threads: int = 0,
        agent: AgentOptions | None = None,
        memory: MemoryOptions | None = None,
        keep_copy: bool = True,
    ) -> None:
        super().__init__()
        self._path = _checked(path)
        self._options = Options(settings, allow_pickle, agent, memory, timeout, threads)
        self._adam = adam_for_many(adam)
        self._adam_of_save = AdamSources()  # of the present one; the store reads it
        self._roles = roles
        self._keep_last = positive_of(keep_last, "keep_last")
        self._keep_every = positive_of(keep_every, "keep_every")
        self._overwrite = bool(overwrite)
        self._agents: AgentRuns | None = None
        if agent is not None:
            kept = {"keep_last": self._keep_last, "keep_every": self._keep_every}
            self._agents = AgentRuns(self._options, roles, adam=adam, **kept)
        self._copies = StagedCopies(keep=bool(keep_copy))
        self._store: Store | None = None
        self._step: int | None = None
        self._save_id = str(uuid.uuid4())
        self._try = 0  # which save to the run this is, from _saves_begun
        self._is_new = False  # reset() has begun the save, and it is not set up
        self._is_sent = False  # to the process of a save, which does not know what the training has loaded
        self._rank, self._use_collectives = 0, True
        self._replaced = ""  # when the checkpoint that this save replaces was committed; empty: there is none
        self.checkpoint_id: PathLike | None = path
        # Kept with the checkpoint, beside what DCP says of it.
        self.metadata: dict[str, str] = {}
        # Numbers of the training, as in Store.save(): those of the next saves.
        self.metrics: dict[str, float] = {}

    def __getstate__(self) -> dict[str, Any]:
        # For the process of an asynchronous save, which opens the store itself. Nothing says here when it has read the
        # copy of the state, so the next save cannot use the memory of the copy.
        if self._agents is not None:
            refuse_other_process()
        self._copies.clear()
        return {**self.__dict__, "_is_sent": True, "_store": None, "_adam_of_save": AdamSources()}

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Copies the state for an asynchronous save."""
        if self._path is not None:
            self._warn_if_anew(self._path)  # before an agent saves anything
        if self._agents is not None:
            return self._agents.staging(self._path, self._texts()).stage(state_dict)
        return self._copies.stage(state_dict)

    def _texts(self) -> dict[str, str]:
        return dict(with_metrics(self.metadata, self.metrics) or {})

    def close(self) -> None:
        """Frees the memory of the last copy of the state, and closes the store, or leaves the agent, which goes on with
        what it has; the next save opens it again."""
        self._copies.clear()
        if self._agents is not None:
            self._agents.close()
        if self._store is not None:
            self._store.close()
            self._store = None

    def reset(self, checkpoint_id: PathLike | None = None) -> None:
        """Begins a save."""
        self._begin(self._path if checkpoint_id is None else _checked(checkpoint_id), str(uuid.uuid4()))
        self._is_new = True
        if self._agents is not None and (writer := self._agents.begun()) is not None:
            writer.reset(checkpoint_id)

    def storage_meta(self) -> StorageMeta | None:
        """The checkpoint id, and an id of this save."""
        if self._agents is not None:
            self._agents.begun()
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self._save_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Opens the store. `kwargs` may have the rank, and whether the ranks coordinate the save."""
        if not self._is_new:
            self._begin(self._path, self._save_id if self._step is None else str(uuid.uuid4()))
        self._is_new = False
        self._warn_if_anew(needed(self.checkpoint_id))
        if self._agents is not None:
            self._agents.setting_up(self.checkpoint_id, self._texts()).set_up_storage_writer(
                is_coordinator, *args, **kwargs
            )
            return
        self._rank = int(kwargs.get("rank") or 0)
        self._use_collectives = bool(kwargs.get("use_collectives", True))
        run, step = checkpoint_id_of(needed(self.checkpoint_id))
        if self._store is not None and real_home(self._store.path) != real_home(run):
            self._store.close()
            self._store = None
        if self._store is None:
            make_parent(run)
            kept = {"keep_last": self._keep_last, "keep_every": self._keep_every}
            self._store = self._options.store(run, adam=self._adam_of_save, shared=True, **kept)
        newest = self._store.latest()
        # All ranks are here before the first of them writes, so that they see the same newest checkpoint.
        self._step = step if step is not None else 0 if newest is None else newest + 1
        self._replaced = str(self._store.checkpoint(newest).time) if self._step == newest and newest is not None else ""
        if not self._overwrite and newest is not None and self._step <= newest:
            # The first words are DCP's own.
            raise ExistsError(
                f"Checkpoint already exists: {run} has step {newest}, and step {self._step} cannot be saved with "
                "overwrite=False"
            )

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Gives each rank its shard."""
        if self._agents is not None:
            return self._agents.writer.prepare_global_plan(plans)
        if self._use_collectives or _world_size() == 1:
            check_given_names(plans, self._roles, self._adam)
        places = [_Place(rank, len(plans)) for rank in range(len(plans))]
        if not self._use_collectives:
            places = [_Place(self._rank, _world_size())]
        return [dataclasses.replace(plan, storage_data=place) for plan, place in zip(plans, places, strict=True)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Compresses and writes the shard of this rank, or waits until the agent has committed the checkpoint."""
        if self._agents is not None:
            return self._agents.writer.write_data(plan, planner)
        store, step = self._opened()
        place: _Place = plan.storage_data
        shard = shard_of(plan.items, planner, plan.planner_data, self._roles)
        self._adam_of_save.assign(adam_of_shard(self._adam, shard.names, getattr(planner, "state_dict", {})))
        store.save_shard(
            step,
            shard.state,
            shard=place.shard,
            shards=place.shards,
            attempt=self._attempt(),
            roles=shard.roles,
            metrics=self.metrics or None,
            allow_pickle=self._options.allow_pickle,
            replace=bool(self._replaced),
        )
        self._copies.release(shard.tensors)
        if not self._use_collectives:
            store.commit(
                step, place.shards, self._attempt(), metadata=self.metadata or None, replace=bool(self._replaced)
            )
        future: Future[list[WriteResult]] = Future()
        future.set_result(results_of(plan.items, place.shard))
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Commits the checkpoint. Called on the coordinator, after all ranks have written their shards."""
        if self._agents is not None or not self._use_collectives:
            return
        store, step = self._opened()
        shards = {
            result.index.fqn: result.storage_data
            for written in results
            for result in written
            if isinstance(metadata.state_dict_metadata.get(result.index.fqn), dcp_metadata.BytesStorageMetadata)
        }
        described = {"save_id": self._save_id, "values": shards, "paths": paths_of(metadata.planner_data)}
        outcome = store.commit(
            step,
            len(results),
            self._attempt(),
            metadata={**self.metadata, KEY: json.dumps(described)},
            replace=bool(self._replaced),
        )
        if not outcome:
            raise BusyError(f"{store.path}: step {step} cannot be committed: shards {outcome.missing} are missing")

    def _begin(self, checkpoint_id: PathLike | None, save_id: str) -> None:
        """Begins a save: in reset(), or else in set_up_storage_writer(). Anybody may call storage_meta() at any time.

        DCP calls the methods of a writer in this order: reset(), if dcp.save() is given a checkpoint id;
        storage_meta(); set_up_storage_writer(); prepare_local_plan(); prepare_global_plan(), on the coordinator;
        write_data(); and finish(), on the coordinator. Without collectives, each rank is its own coordinator.
        dcp.async_save() calls stage() before, in its own thread, and the others in a thread or process of the save.

        A rank can fail between any two of these calls, and the others then save without it. So the save is counted as
        early as it can be, on all ranks alike.
        """
        self.checkpoint_id = checkpoint_id
        self._save_id = save_id
        self._step = None
        if checkpoint_id is not None:
            run = str(real_home(checkpoint_id_of(checkpoint_id).run))
            _saves_begun[run] += 1
            self._try = _saves_begun[run]

    def _warn_if_anew(self, checkpoint_id: PathLike) -> None:
        if not self._is_sent and not (_is_distributed() and torch.distributed.get_rank()):
            warn_of_earlier(checkpoint_id_of(checkpoint_id).run, _BESIDE)

    def _opened(self) -> tuple[Store, int]:
        if self._store is None or self._step is None:
            raise InvalidArgumentError(
                "StorageWriter: set_up_storage_writer() must be called first, as dcp.save() does"
            )
        return self._store, self._step

    def _attempt(self) -> str:
        """The same word on all ranks of this try.

        Plans may come from a cache, so that no word of this save can be sent with them. If a coordinator commits, after
        all ranks have replaced their shards, the word need only differ from that of the checkpoint that is replaced.
        Without a coordinator, a rank must not commit together with shards of an earlier try.
        """
        parts = [self._replaced]
        if not self._use_collectives:
            parts += [word_of_start() if _is_distributed() else self._save_id, str(self._try)]
        return f"dcp-{hashlib.sha256(':'.join(parts).encode()).hexdigest()[:16]}"


class StorageReader(TorchStorageReader):
    """Loads checkpoints of StorageWriter, for ``dcp.load``, with any planner.

    Each rank reads the boxes of the tensors that it needs, from the shards that hold them. A box that several ranks
    need is read by the first of them, which sends it to the others. Dtypes are converted if the tensors to fill have
    other ones. Values that are no tensors are read from bitsnap's typed tree; nothing of the checkpoint is unpickled.
    (The planners of torch unpickle what this reader has pickled in memory.)

    Args:
        path: a checkpoint id for all loads that are given none. If it names no step, it stands for the newest one.
        allow_pickle: unpickles values that were saved with the same argument, which runs code that the checkpoint
            names: for checkpoints that you trust.
        threads: for decoding; 0 for all that the process may use.
    """

    def __init__(self, path: PathLike | None = None, *, allow_pickle: bool = False, threads: int = 0) -> None:
        super().__init__()
        self._path = _checked(path)
        may_pickle(allow_pickle)  # checks it
        self._allow_pickle = allow_pickle
        self._threads = number_of(threads, "threads", LARGEST_COUNT)
        self.checkpoint_id: PathLike | None = path
        self._opened: OpenStep | None = None
        self._load_id = str(uuid.uuid4())

    def reset(self, checkpoint_id: PathLike | None = None) -> None:
        """Begins a load."""
        self.checkpoint_id = self._path if checkpoint_id is None else _checked(checkpoint_id)
        self._load_id = str(uuid.uuid4())
        self._opened = None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the checkpoint holds. Each load begins with this call."""
        # dcp.load() calls reset() only if it is given a checkpoint id. The store may have a newer checkpoint by now.
        self._opened = None
        metadata = self._checkpoint().metadata()
        assert metadata.storage_meta is not None
        metadata.storage_meta.load_id = self._load_id
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Keeps nothing: read_metadata() has opened the checkpoint."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Leaves the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Lets one rank read what several need."""
        return plans_with_readers(plans)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads everything that the plan names, and what other ranks read for this one."""
        checkpoint = self._checkpoint()
        tensors = [item for item in plan.items if item.type != LoadItemType.BYTE_IO]
        if isinstance(plan.storage_data, SharedReads):
            read_shared(plan.storage_data, tensors, planner, checkpoint.fill_targets)
        else:
            checkpoint.read_tensors(tensors, planner)
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, _pickled(checkpoint.value(item.storage_index.fqn)))
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: PathLike) -> bool:
        """Whether the id leads to a store."""
        is_run = object_url(checkpoint_id) is not None or not is_url(checkpoint_id)
        return is_run and is_store(native_run(checkpoint_id_of(checkpoint_id).run))

    def _checkpoint(self) -> OpenStep:
        if self._opened is None:
            if self.checkpoint_id is None:
                raise InvalidArgumentError(
                    "StorageReader needs a checkpoint id: pass checkpoint_id='run/step-100' to dcp.load(), or a path "
                    "here"
                )
            self._opened = OpenStep(self.checkpoint_id, self._allow_pickle, self._threads)
        return self._opened


def to_torch_save(
    checkpoint_id: PathLike, torch_save_path: PathLike, *, allow_pickle: bool = False, threads: int = 0
) -> None:
    """Writes a checkpoint as one file of torch.save(), as torch's dcp_to_torch_save() does for a folder of DCP.

    The file has the state that was saved, with the same nesting; DTensors have become whole tensors. The whole state
    must fit into memory. Call it in one process.

    Args:
        checkpoint_id: such as "run/step-100"; if it names no step, it stands for the newest one.
        torch_save_path: the file, which is replaced if it exists.
        allow_pickle, threads: as for StorageReader.

    Raises:
        NotFoundError: there is no folder for the file.
        UnsupportedError: a path is a URL.
        And what dcp.load() raises: CheckpointException if the checkpoint does not exist or is damaged.
    """
    target = Path(local_path(torch_save_path))
    if not target.parent.is_dir():
        raise NotFoundError(f"{target}: there is no folder {target.parent}")
    state: dict[str, Any] = {}
    reader = StorageReader(checkpoint_id, allow_pickle=allow_pickle, threads=threads)
    planner = _EmptyStateDictLoadPlanner()  # type: ignore[no-untyped-call]
    _load_state_dict(state, storage_reader=reader, planner=planner, no_dist=True)
    with writing(target) as file:
        torch.save(state, file)


def _checked(checkpoint_id: PathLike | None) -> PathLike | None:
    """The checkpoint id. Raises UnsupportedError if it is the URL of something else than an object store: on the
    calling rank, before DCP begins."""
    if checkpoint_id is not None:
        checkpoint_id_of(checkpoint_id)
    return checkpoint_id


def _pickled(value: Any) -> io.BytesIO:
    content = io.BytesIO()
    torch.save(value, content)
    content.seek(0)
    return content


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _world_size() -> int:
    return torch.distributed.get_world_size() if _is_distributed() else 1
