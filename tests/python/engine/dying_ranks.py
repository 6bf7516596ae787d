"""Saves and loads of DCP in which one rank dies or raises in a given phase. The functions run in processes of
python.rank_processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from bitsnap.dcp import StorageReader, StorageWriter

dcp: Any = torch.distributed.checkpoint

SHAPE = (601, 500)


@dataclass(frozen=True)
class Failure:
    """One rank dies by SIGKILL, or raises OSError, when it comes to a phase, or some time after."""

    phase: str = ""
    rank: int = 0
    kills: bool = False
    after_s: float = 0.0

    def strike(self, phase: str) -> None:
        if phase != self.phase or dist.get_rank() != self.rank:
            return
        if not self.kills:
            raise OSError(f"planted in {phase}")
        if self.after_s == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Thread(target=self._kill_later, daemon=True).start()

    def _kill_later(self) -> None:
        time.sleep(self.after_s)
        os.kill(os.getpid(), signal.SIGKILL)


class FailingPlanner(DefaultSavePlanner):
    """Fails while a rank plans, and between two of the tensors that it writes."""

    def __init__(self, failure: Failure) -> None:
        super().__init__()
        self._failure = failure

    def create_local_plan(self) -> Any:
        self._failure.strike("local plan")
        return super().create_local_plan()

    def create_global_plan(self, all_plans: Any) -> Any:
        self._failure.strike("global plan")
        return super().create_global_plan(all_plans)

    def resolve_data(self, write_item: Any) -> Any:
        if write_item.index.fqn == "second":
            self._failure.strike("second tensor")
        return super().resolve_data(write_item)


class FailingWriter(StorageWriter):
    def __init__(self, failure: Failure) -> None:
        super().__init__(threads=1)
        self._failure = failure

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        self._failure.strike("staging")
        staged = super().stage(state_dict)
        self._failure.strike("staged")
        return staged

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._failure.strike("setup")
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)

    def write_data(self, plan: Any, planner: Any) -> Any:
        self._failure.strike("write")
        written = super().write_data(plan, planner)
        self._failure.strike("written")
        return written

    def finish(self, metadata: Any, results: Any) -> None:
        self._failure.strike("commit")
        super().finish(metadata, results)
        self._failure.strike("committed")


class FailingReader(StorageReader):
    def __init__(self, path: str, failure: Failure) -> None:
        super().__init__(path, threads=1)
        self._failure = failure

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        self._failure.strike("metadata")
        return super().read_metadata(*args, **kwargs)

    def prepare_local_plan(self, plan: Any) -> Any:
        self._failure.strike("load plan")
        return super().prepare_local_plan(plan)

    def read_data(self, plan: Any, planner: Any) -> Any:
        self._failure.strike("read")
        done = super().read_data(plan, planner)
        self._failure.strike("done")
        return done


def values_of(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(SHAPE, generator=generator) + step / 64


def state_of_rank(step: int | None) -> dict[str, Any]:
    """Two tensors of which each rank has some rows, and a value; without a step, to be filled."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,))
    state: dict[str, Any] = {"step": step}
    for name, factor in (("first", 1), ("second", 2)):
        whole = torch.zeros(SHAPE) if step is None else values_of(step) * factor
        local = whole.chunk(ranks)[rank].clone()
        state[name] = DTensor.from_local(local, mesh, [Shard(0)], shape=whole.shape, stride=whole.stride())
    return state


def save_on_rank(rank: int, run: str, step: int, how: str = "save", failure: Failure = Failure()) -> None:
    state = state_of_rank(step)
    options: dict[str, Any] = {
        "checkpoint_id": f"{run}/{step}",
        "storage_writer": FailingWriter(failure),
        "planner": FailingPlanner(failure),
    }
    if how == "save":
        dcp.save(state, **options)
        return
    process = AsyncCheckpointerType.PROCESS if how.startswith("process") else AsyncCheckpointerType.THREAD
    if how == "process alone":
        options["use_collectives"] = False
    dcp.async_save(state, async_checkpointer_type=process, **options).result()


def load_on_rank(rank: int, run: str, step: int, failure: Failure = Failure()) -> None:
    state = state_of_rank(None)
    # The reader has the id, since checks of an id hide what a reader raises.
    dcp.load(state, storage_reader=FailingReader(f"{run}/{step}", failure))
    expected = state_of_rank(step)
    assert state["step"] == step
    for name in ("first", "second"):
        local, wanted = state[name].to_local(), expected[name].to_local()
        assert torch.equal(local.view(torch.int32), wanted.view(torch.int32)), name
