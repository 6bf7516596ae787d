"""FSDP2 with torch.distributed.checkpoint."""

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

from bench.frameworks.small_models import blocks_of, new_model
from bench.frameworks.task import Task, train_steps
from bitsnap.dcp import StorageWriter


def train(task: Task) -> None:
    model = new_model(task.sizes)
    for block in blocks_of(model):
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    first = 1
    if task.resume is not None:
        state = _state(model, optimizer)
        load(state, checkpoint_id=task.resume)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        first = state["step"] + 1
    written: list[Path] = []

    def save_step(step: int) -> Path:
        state = {**_state(model, optimizer), "step": step}
        if task.options is not None:
            checkpoint = task.folder / "run" / f"step-{step}"
            save(state, storage_writer=StorageWriter(checkpoint, keep_last=task.kept, **task.options))
        else:
            checkpoint = task.folder / f"step-{step}"
            save(state, checkpoint_id=checkpoint)
            written.append(checkpoint)
            task.delete_old(written)
        return checkpoint

    train_steps(task, model, optimizer, first, save_step)


def load_all(checkpoint: Path) -> None:
    with tempfile.NamedTemporaryFile() as file:
        dcp_to_torch_save(checkpoint, file.name)


def _state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": 0}
