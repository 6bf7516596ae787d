"""Checkpoints of a training in PyTorch that take two lines: saved without stopping it, and resumed in place.

    import bitsnap.torch

    checkpointer = bitsnap.torch.Checkpointer("run", model=model, optimizer=optimizer, every=100, keep_last=5)
    start = checkpointer.restore() or 0
    for step in range(start + 1, steps + 1):
        train()
        checkpointer.save(step)

On one device, with DistributedDataParallel, and with DTensors: FSDP2, tensor parallel and meshes of several dimensions.
A checkpoint of some number of processes is restored by any other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path as FilePath
from types import TracebackType
from typing import Any, SupportsIndex, TypeVar, cast

import torch

from bitsnap import checkpointer as _engine
from bitsnap._arguments import number_of
from bitsnap._engine_saves import Save
from bitsnap._options import PathLike
from bitsnap._parts import Part, send_to_replicas
from bitsnap._pickled_values import Opaque, may_pickle
from bitsnap._places import Path
from bitsnap._training import Training
from bitsnap._training_tensors import PartReading, is_divided_like, name_of, names_in, stateless_parameters
from bitsnap.errors import BitsnapError, RestoreWarning
from bitsnap.store import Store

T = TypeVar("T")


class Checkpointer:
    """Saves and restores the model, the optimizers and what else belongs to a training.

    Stands on bitsnap.Checkpointer, which copies the state to memory shared with an agent, and returns; the agent
    compresses and stores it. Tensors are restored in place, bit for bit: parameters, buffers and optimizer states keep
    their memory and their dtypes.

    Each process saves what it holds. Replicas are saved once: of DTensors, and of the parameters that
    DistributedDataParallel keeps equal with their optimizer states; at a restore, the first replica sends them to the
    others. Other tensors of a process are its own.

    The state in the store is a dict of "model" and "optimizer", with the names and the structure of
    torch.distributed.checkpoint.state_dict, "training" with the schedulers and `extra`, and "rank" with what is of this
    process alone. bitsnap finds masters and Adam's numbers in it.

    Args:
        path: the directory of the store. Its parent must exist.
        model: the module, also one that is wrapped by DistributedDataParallel, fully_shard() or torch.compile().
        optimizer: the optimizer, or several in a list. All of their parameters must be parameters of the model.
        scheduler: the learning rate scheduler, or several in a list.
        dataloader: an object with state_dict() and load_state_dict(), such as torchdata's StatefulDataLoader; each
            process saves its own.
        rng: save the states of the random generators of Python, NumPy and PyTorch, of each process.
        extra: a dict of names to other values. A restore calls load_state_dict() of those that have it, and replaces
            the others in the dict.
        opaque: "pickle" pickles values that cannot be stored otherwise, and unpickles them; see bitsnap.save().
        **options: all other arguments of bitsnap.Checkpointer: every, keep_last, settings, ...

    Raises:
        UnsupportedError: the model holds a FullyShardedDataParallel.
        InvalidArgumentError, TypeError: an argument has a wrong value or type.
        And what bitsnap.Checkpointer() raises.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
        scheduler: Any = None,
        dataloader: Any = None,
        rng: bool = True,
        extra: MutableMapping[str, Any] | None = None,
        opaque: Opaque = "refuse",
        **options: Any,
    ) -> None:
        may_pickle(opaque)  # checks it
        self._opaque: Opaque = opaque
        self._training = Training(model, optimizer, scheduler, dataloader, rng, extra)
        self._engine = _engine.Checkpointer(path, **options)
        self._ranks = self._engine._ranks
        self._training.shares_replicas = self._ranks.agree

    @property
    def engine(self) -> _engine.Checkpointer:
        """What copies and stores the states, with its own methods: wait(), agent_status(), ..."""
        return self._engine

    @property
    def path(self) -> FilePath:
        """The directory of the store, absolute and without symbolic links."""
        return self._engine.path

    def __repr__(self) -> str:
        return f"bitsnap.torch.{self._engine!r}"

    def save(self, step: SupportsIndex, *, metadata: Mapping[str, str] | None = None) -> Save | None:
        """Copies the state of the training after `step` and returns; then the training may go on.

        All processes call it with the same steps. Nothing is sent between them.

        Args:
            step: above all others.
            metadata: strings that belong to the checkpoint.

        Returns:
            a handle that says what becomes of the save; None immediately if this step is not due.

        Raises:
            InvalidArgumentError: a value cannot be stored; the message names its place.
            And what bitsnap.Checkpointer.save() raises.
        """
        return self._engine.save(step, lambda: self._training.saved().state, metadata=metadata, opaque=self._opaque)

    def reserve(self) -> None:
        """Allocates the memory for the saves, so that the first one is as fast as all others.

        Optimizers that have taken no step have no state yet: call it after the first step.
        """
        self._engine.reserve(lambda: self._training.saved().state, opaque=self._opaque)

    def steps(self) -> list[int]:
        """The steps that can be restored, ascending."""
        return self._engine.steps()

    def latest(self) -> int | None:
        """The newest step that can be restored; None if there is none."""
        return self._engine.latest()

    def restore(self, step: SupportsIndex | None = None) -> int | None:
        """Restores the training in place: from the agent's memory if the step is there, otherwise from the store.

        All processes must call it. If another number of processes saved the step, or tensors were divided otherwise,
        each process reads its parts from the store, whatever shards hold them; then dataloaders keep their states, and
        processes that had no random state keep theirs, with a RestoreWarning.

        Args:
            step: None for the newest that every process has.

        Returns:
            the step; None if nothing was saved yet.

        Raises:
            InvalidArgumentError: the model, an optimizer or something else does not fit the checkpoint. The message
                names the tensor or value.
            NotFoundError: there is no such step, or it lacks a tensor.
            And what bitsnap.Checkpointer.restore() raises. Tensors may have been filled.
        """
        wanted = None if step is None else number_of(step, "step")
        known = self._ranks.gather(self._engine.steps())
        common = set(known[0]).intersection(*known[1:])
        newest = max(common, default=None) if wanted is None else wanted
        if newest is None:
            return None
        self._training.make_optimizer_state()
        state, parts = self._training.saved()
        if self._is_divided_otherwise(newest, parts):
            return self._restore_parts(newest, parts)
        return self._restore_alike(wanted, state, parts)

    def _restore_alike(self, wanted: int | None, state: dict[str, Any], parts: dict[Path, Part]) -> int | None:
        """Restores the state that this process saved."""
        into = {key: state[key] for key in ("model", "optimizer")}
        restored = self._engine.restore(wanted, into=into, keys=list(into), strict=False, opaque=self._opaque)
        if restored is None:
            return None
        saved = restored.state
        ours = {name_of(place): part.is_saved for place, part in parts.items()}
        stateless = self._together(
            lambda: stateless_parameters(ours, set(names_in(saved)), self._training, saved["optimizer"])
        )
        self._training.forget_state(set().union(*self._ranks.gather(stateless)))
        self._training.take_tensors(saved)
        send_to_replicas(list(parts.values()))
        values = self._engine.restore(restored.step, keys=["training", "rank"], opaque=self._opaque)
        assert values is not None
        self._training.take_values(values.state["training"], values.state["rank"])
        return restored.step

    def wait(self, timeout: float | None = None) -> None:
        """As bitsnap.Checkpointer.wait()."""
        self._engine.wait(timeout)

    def close(self, timeout: float | None = None) -> None:
        """As bitsnap.Checkpointer.close()."""
        self._engine.close(timeout)

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._engine.__exit__(kind, error, traceback)

    def _store(self) -> Store:
        return Store(self.path, read_only=True, create=False)

    def _is_divided_otherwise(self, step: int, parts: Mapping[Path, Part]) -> bool:
        """Whether the store has the step, and another division of the tensors than that of one of the processes."""

        def look() -> bool:
            try:
                store = self._store()
                if step not in store.steps():
                    return False  # it is in memory, which serves the same division only
                if store.checkpoint(step).shards != self._ranks.world_size:
                    return True
                return not is_divided_like(store.snapshot(step, self._ranks.rank), parts)
            except BitsnapError:
                return False  # memory may serve it, or another step

        return any(self._ranks.gather(self._together(look)))

    def _restore_parts(self, step: int, parts: Mapping[Path, Part]) -> int:
        """Reads the parts of this process from all shards."""
        prepared = self._together(lambda: PartReading(self._store(), step, self._ranks.rank, parts, self._opaque))
        # Processes may hold different tensors, as in a pipeline.
        nowhere = set.intersection(*self._ranks.gather(prepared.found - prepared.ours.keys()))
        found = (prepared.found & prepared.ours.keys()) | nowhere
        groups = prepared.values["optimizer"]
        prepared.stateless = self._together(lambda: stateless_parameters(prepared.ours, found, self._training, groups))
        self._together(lambda: self._take_parts(prepared))
        kept = self._training.kept_by(self._ranks.rank, prepared.shards, self._ranks.world_size)
        if kept:
            warnings.warn(
                f"step {step} was saved by {prepared.shards} processes and is restored by {self._ranks.world_size}: "
                f"{kept} not restored",
                RestoreWarning,
                stacklevel=3,
            )
        return step

    def _take_parts(self, reading: PartReading) -> None:
        values = reading.values
        reading.fill()
        self._training.forget_state(reading.stateless)
        self._training.take_tensors(
            {"model": values.get("model", {}), "optimizer": {"state": {}} | values["optimizer"]}
        )
        rank = values["rank"] if self._ranks.rank < reading.shards else None
        if rank is not None and reading.shards != self._ranks.world_size:
            rank = {**rank, "dataloader": None}
        self._training.take_values(values["training"], rank)

    def _together(self, work: Callable[[], T]) -> T:
        """Does something on all processes, and fails on all if it fails on any."""
        done, failure = self._ranks.together(work)
        if failure is not None:
            raise failure.error
        return cast("T", done)
