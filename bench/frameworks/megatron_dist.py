"""Megatron-Core's distributed checkpoints (dist_checkpointing) of two processes or more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor

from bench.frameworks.small_models import new_model
from bench.frameworks.task import Task, train_steps


def train(task: Task) -> None:
    if not torch.cuda.is_available():
        # Megatron calls these also for tensors on the CPU.
        torch.cuda.synchronize = lambda *_: None
        torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment, return-value]
    parallel_state.initialize_model_parallel(create_gloo_process_groups=True)
    model = new_model(task.sizes)
    optimizer = torch.optim.AdamW(model.parameters())
    first = 1
    if task.resume is not None:
        _fill_moments(model, optimizer)
        loaded = dist_checkpointing.load(_sharded(model, optimizer, 0), str(task.resume))
        with torch.no_grad():
            for name, tensors in _tensors(model, optimizer).items():
                tensors.copy_(loaded[name])
        first = loaded["step"] + 1
        for slots in optimizer.state.values():
            slots["step"].fill_(first - 1)

    def save_step(step: int) -> Path:
        folder = task.folder / f"iter_{step:07d}"
        if torch.distributed.get_rank() == 0:
            folder.mkdir()
        torch.distributed.barrier()
        dist_checkpointing.save(_sharded(model, optimizer, step), str(folder))
        return folder

    train_steps(task, model, optimizer, first, save_step)


def _fill_moments(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()


def _tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        tensors[f"model.{name}"] = parameter.data
        for slot in ("exp_avg", "exp_avg_sq"):
            tensors[f"optimizer.{slot}.{name}"] = optimizer.state[parameter][slot]
    return tensors


def _sharded(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> dict[str, Any]:
    """Every rank has all tensors; each is written by one of them."""
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    sharded: dict[str, Any] = {
        name: ShardedTensor.from_rank_offsets(name, tensor, replica_id=(rank + index) % ranks)
        for index, (name, tensor) in enumerate(_tensors(model, optimizer).items())
    }
    sharded["rng"] = ShardedObject("rng", torch.get_rng_state(), (1,), (0,), replica_id=rank)
    sharded["step"] = step
    return sharded
