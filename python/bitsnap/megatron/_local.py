"""Megatron-LM's local checkpoints, in the memory of bitsnap's agent instead of files that torch pickles.

The interface is that of LocalCheckpointManager of nvidia-resiliency-ext, which Megatron-LM uses with
``--non-persistent-ckpt-type local``.
"""

from __future__ import annotations

import dataclasses
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bitsnap._common import LARGEST_COUNT, PathLike, local_path
from bitsnap._engine.ranks import Ranks
from bitsnap._states.program_values import register_value
from bitsnap.agents import AgentOptions, MemoryOptions
from bitsnap.checkpointer import Checkpointer, Save
from bitsnap.errors import NotFoundError, UnsupportedError
from bitsnap.megatron import _versions as versions

_RUN = "bitsnap"
_DEVICE = "orig_device"  # Megatron's name for where a tensor was that is on the CPU now


class LocalCheckpointManager:
    """Keeps the newest state of each rank in shared memory on its machine, at the cost of one copy.

    The agent that holds the states outlives the trainers: after a crash of any of them, the job starts again on the
    same machines and continues with the newest iteration that every rank has. The states are lost with the machine, or
    with its agent; global checkpoints are for that. Nothing is written to the disk but the description of the run, and
    nothing is pickled. All methods must be called by all ranks.

    Example:
        manager = bitsnap.megatron.LocalCheckpointManager("/local/checkpoints")
        context = {"local_checkpoint_manager": manager}     # use() does this for --non-persistent-ckpt-type local

    Args:
        root_local_ckpt_dir: a directory on this machine. It is made if it does not exist.
        session_id: a name for the job, if several use the directory.
        repl_strategy: must be None, because states are not copied to other machines.
        allow_pickle: as for use().
        memory, agent: as for bitsnap.Checkpointer. By default, the agent waits ten minutes for the next trainers.
        timeout: the longest wait of any call, in seconds.

    Raises:
        ImportError: megatron-core or nvidia-resiliency-ext is not installed.
        UnsupportedError: there is a `repl_strategy`, or the directory is a URL.
        BitsnapError: what bitsnap.Checkpointer raises, at the first call of a method.
    """

    def __init__(
        self,
        root_local_ckpt_dir: PathLike,
        session_id: str = "",
        repl_strategy: Any = None,
        *,
        allow_pickle: bool = False,
        memory: MemoryOptions | None = None,
        agent: AgentOptions | None = None,
        timeout: float = 600.0,
    ) -> None:
        if repl_strategy is not None:
            raise UnsupportedError(
                "bitsnap keeps local checkpoints on the machine that made them: leave --replication out, and save "
                "global checkpoints for the loss of a machine"
            )
        register_classes()
        local_path(root_local_ckpt_dir)  # checks it
        self.root_local_ckpt_dir = root_local_ckpt_dir
        self.session_id = session_id
        self.repl_strategy = None
        self.latest_iteration = -1
        self._allow_pickle = allow_pickle
        self._memory, self._timeout = memory, timeout
        self._agent = AgentOptions(linger=600.0) if agent is None else agent
        self._checkpointer: Checkpointer | None = None

    @property
    def local_ckpt_dir(self) -> Path:
        """The directory of the session."""
        return Path(os.fspath(self.root_local_ckpt_dir)) / self.session_id

    @property
    def rank(self) -> int:
        return torch.distributed.get_rank()

    def find_latest(self) -> int:
        """The newest iteration that every rank has in memory; -1 if there is none."""
        steps = self._opened()._restoring.common_steps()
        self.latest_iteration = max(steps, default=-1)
        return self.latest_iteration

    def load(self) -> tuple[Any, tuple[int, int, str]]:
        """The state that this rank saved at the iteration that find_latest() gave, and its id.

        Raises:
            NotFoundError: find_latest() was not called, or has found nothing.
            CorruptError: the state is damaged.
        """
        if self.latest_iteration == -1:
            raise NotFoundError(f"{self.local_ckpt_dir}: find_latest() has found no local checkpoint to load")
        restored = self._opened().restore(self.latest_iteration, allow_pickle=self._allow_pickle, fallback=False)
        assert restored is not None  # because the step is given
        state = restored.state
        state.restore_tensor_device(non_blocking=False)
        return state, (restored.step, self.rank, self.session_id)

    def save(self, state_dict: Any, iteration: int, is_async: bool = False) -> Any:
        """Copies the state to the memory of the agent, which keeps the two newest states of each rank. If a rank
        cannot save, the iteration before is still complete.

        Args:
            state_dict: such as MCoreTensorAwareStateDict.from_state_dict() returns.
            iteration: above that of the last save.
            is_async: return a request for Megatron's queue, which then calls what checks the save on all ranks. The
                state is in memory already, and may change.

        Returns:
            the request, or None.

        Raises:
            InvalidArgumentError: a value of the state cannot be stored; the message names its place.
            BitsnapError: what else Checkpointer.save() raises, or has as its error, on this rank or another. An
                asynchronous save raises all of them when Megatron's queue checks it, also what the agent could not
                compress until then.
        """
        self.latest_iteration = -1
        saved: Save | None = None
        error: Exception | None = None
        try:
            saved = self._opened().save(iteration, state_dict, allow_pickle=self._allow_pickle)
        except Exception as failure:
            error = failure

        def check() -> None:
            # The agent may have failed since the state was copied, for example because its memory was too small.
            found = saved.error if saved is not None else error
            Ranks().on_all(lambda: _raised(found), f"the local checkpoint of iteration {iteration} failed")

        if is_async:
            return versions.core().async_request("mcore")(None, (), [check])
        check()
        return None

    def close(self) -> None:
        """Leaves the agent, which keeps the states."""
        if self._checkpointer is not None:
            self._checkpointer.close()

    def _opened(self) -> Checkpointer:
        if self._checkpointer is None:
            self.local_ckpt_dir.mkdir(parents=True, exist_ok=True)
            self._checkpointer = Checkpointer(
                self.local_ckpt_dir / _RUN,
                every=LARGEST_COUNT,  # none of them is compressed and written
                every_memory=1,
                memory=self._memory,
                agent=self._agent,
                timeout=self._timeout,
            )
        return self._checkpointer


def register_classes() -> None:
    """Lets a state hold the classes in which Megatron wraps states, tensors and values.

    Raises:
        ImportError: nvidia-resiliency-ext is not installed, with which Megatron makes such states.
    """
    core = versions.core()
    for kind in (core.sharded_tensor, core.sharded_object, versions.tensor_aware_state_dict()):
        register_value(f"megatron.{kind.__name__}", kind, _fields_of, partial(_made_of, kind))


def _fields_of(value: Any) -> dict[str, Any]:
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    part = fields.get("flattened_range")
    if isinstance(part, slice):
        fields["flattened_range"] = (part.start, part.stop)
    if isinstance(fields.get("data"), torch.Tensor):
        fields[_DEVICE] = fields["data"].device.type
    return fields


def _made_of(kind: Any, fields: dict[str, Any]) -> Any:
    device = fields.pop(_DEVICE, "cpu")
    part = fields.get("flattened_range")
    if part is not None:
        fields["flattened_range"] = slice(*part)
    made = kind(**fields)
    if device != "cpu":
        made.orig_device = device  # to which restore_tensor_device() moves the tensor
    return made


def _raised(error: Exception | None) -> None:
    if error is not None:
        raise error
