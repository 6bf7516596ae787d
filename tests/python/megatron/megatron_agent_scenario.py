"""Saves of a Megatron-core GPT through an agent, local and global, on 4 ranks that are killed and start again: a
script, for megatron_agent_test.py.

Usage: python -m python.megatron.megatron_agent_scenario FOLDER
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from python.megatron.megatron_gpt import Training, new_folder, run_ranks  # isort: skip

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue
from megatron.core.dist_checkpointing.tensor_aware_state_dict import MCoreTensorAwareStateDict

import bitsnap
import bitsnap.megatron
from bitsnap.errors import BitsnapError

RANKS = 4
KIND = "dp_reshardable"


class Unknown:
    """A value that no state can hold."""


def report(path: Path, name: str, value: Any) -> None:
    """One result of all ranks."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    if dist.get_rank() == 0:
        with (path / "results").open("a") as file:
            file.write(json.dumps([name, found]) + "\n")


def manager_of(path: Path) -> Any:
    """The manager, as Megatron-LM makes it."""
    bitsnap.megatron.use(agent=bitsnap.AgentOptions(linger=30))
    from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import LocalCheckpointManager

    return LocalCheckpointManager(path / "local", repl_strategy=None)


def options(algorithm: str) -> dict[str, Any]:
    return {"algo": algorithm, "parallelization_group": parallel_state.get_data_parallel_group()}


def begin(path: Path) -> None:
    """Saves each iteration locally, in both ways of Megatron, and two globally; dies before the last is complete."""
    manager, training = manager_of(path), Training(tp=2, pp=1)
    report(path, "nothing", manager.find_latest())
    queue, distribution = AsyncCallsQueue(), None
    for iteration in (1, 2, 3):
        training.train(1)
        state, distribution = MCoreTensorAwareStateDict.from_state_dict(
            training.sharded(KIND), cached_metadata=distribution, **options("fully_parallel")
        )
        request = manager.save(state, iteration, is_async=iteration > 1)
        if request is not None:
            request.add_finalize_fn(lambda iteration=iteration: report(path, "finalized", iteration))
            queue.schedule_async_request(request)
            queue.maybe_finalize_async_calls(blocking=True)
        if iteration > 1:
            folder = save_global(queue, training, path)
            report(path, "early", (folder / "metadata.json").exists())
        if iteration == 2:
            torch.save(training.tensors(), path / f"second-{dist.get_rank()}")
            queue.maybe_finalize_async_calls(blocking=True)
    torch.save(training.tensors(), path / f"saved-{dist.get_rank()}")
    report(path, "losses", training.train(2))
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def go_on(path: Path) -> None:
    """Continues where begin() died; then one rank cannot save iteration 6, and all die."""
    manager, training = manager_of(path), Training(tp=2, pp=1, seed=3)
    report(path, "latest", manager.find_latest())
    resume(manager, training, "fully_parallel")
    saved = torch.load(path / f"saved-{dist.get_rank()}")
    report(path, "same", same(training.tensors(), saved))
    report(path, "losses", training.train(2))
    report(path, "third", (path / "global" / "iter_0000003" / "metadata.json").exists())
    earlier = Training(tp=2, pp=1, seed=5)
    earlier.resume(path / "global" / "iter_0000002", KIND)
    report(path, "same globally", same(earlier.tensors(), torch.load(path / f"second-{dist.get_rank()}")))
    queue = AsyncCallsQueue()
    save_global(queue, training, path)
    torch.save(training.tensors(), path / f"fifth-{dist.get_rank()}")
    state, _ = MCoreTensorAwareStateDict.from_state_dict(training.sharded(KIND), **options("atomic"))
    manager.save(state, training.done)
    report(path, "newer", manager.find_latest())
    value = Unknown() if dist.get_rank() == 2 else 2
    bad, _ = MCoreTensorAwareStateDict.from_state_dict({"value": value}, **options("atomic"))
    try:
        manager.save(bad, training.done + 1)
    except BitsnapError as error:
        report(path, "refused", str(error))
    bitsnap.wait_committed(path / "global" / "bitsnap", 5, timeout=60)
    training.train(1)
    save_global(queue, training, path)  # before the folder of iteration 5 refers to its step
    queue.maybe_finalize_async_calls(blocking=True)
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def go_on_without(path: Path) -> None:
    """Continues after iteration 5, which all ranks had."""
    manager, training = manager_of(path), Training(tp=2, pp=1, seed=4)
    report(path, "common", manager.find_latest())
    resume(manager, training, "atomic")
    report(path, "done", training.done)
    other = Training(tp=2, pp=1, seed=6)
    other.resume(path / "global" / "iter_0000005", KIND)
    report(path, "same globally", same(other.tensors(), torch.load(path / f"fifth-{dist.get_rank()}")))
    with bitsnap.Store(path / "global" / "bitsnap", read_only=True) as store:
        report(path, "steps", store.steps())
    manager.close()


def same(found: dict[str, torch.Tensor], saved: dict[str, torch.Tensor]) -> bool:
    return found.keys() == saved.keys() and all(torch.equal(found[name], saved[name]) for name in saved)


def save_global(queue: AsyncCallsQueue, training: Training, path: Path) -> Path:
    folder = new_folder(path / "global", training.done)
    queue.schedule_async_request(dist_checkpointing.save(training.sharded(KIND), str(folder), async_sharded_save=True))
    return folder


def resume(manager: Any, training: Training, algorithm: str) -> None:
    state, _ = manager.load()
    training.train(1)  # makes the states of Adam, which are then filled
    loaded = state.to_state_dict(training.sharded(KIND, loading=True), **options(algorithm))
    training.model[0].module.load_state_dict(loaded["model"])
    training.optimizer.load_state_dict(loaded["optimizer"])
    training.done = loaded["iteration"]


def main() -> None:
    path = Path(sys.argv[1])
    for life in (begin, go_on):
        try:
            run_ranks(RANKS, life, path)
        except SystemExit as error:
            with (path / "results").open("a") as file:
                file.write(json.dumps([f"end of {life.__name__}", str(error)]) + "\n")
    run_ranks(RANKS, go_on_without, path)


if __name__ == "__main__":
    main()
