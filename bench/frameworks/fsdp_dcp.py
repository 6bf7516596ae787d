"""FSDP2 with torch.distributed.checkpoint, on four processes unless another module starts others."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import fully_shard

from bench.frameworks.small_training import Task, new_model, run_ranks, train_steps

RANKS = 4


def train(task: Task) -> dict[int, float]:
    model = new_model()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    first = 1
    if task.resume is not None:
        state = _state(model, optimizer)
        load(state, checkpoint_id=task.resume)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        first = state["step"] + 1

    def save_step(step: int) -> Path:
        checkpoint = task.folder / f"step-{step}"
        save({**_state(model, optimizer), "step": step}, checkpoint_id=checkpoint)
        return checkpoint

    return train_steps(task, model, optimizer, first, save_step)


def load_all(checkpoint: Path) -> None:
    with tempfile.NamedTemporaryFile() as file:
        dcp_to_torch_save(checkpoint, file.name)


def _state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": 0}


if __name__ == "__main__":
    run_ranks(train, RANKS)
