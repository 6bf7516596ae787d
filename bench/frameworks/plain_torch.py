"""torch.save() of a dict; or with bitsnap a Store, and with an agent a Checkpointer."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch

import bitsnap
from bench.frameworks.small_models import new_model
from bench.frameworks.task import Task, train_steps


def train(task: Task) -> None:
    model = new_model(task.sizes)
    optimizer = torch.optim.AdamW(model.parameters())
    first = 1
    if task.resume is not None:
        state = torch.load(task.resume, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1
    written: list[Path] = []
    with contextlib.ExitStack() as stack:
        writer: Any = None
        if task.options is not None:
            kind = bitsnap.Checkpointer if "agent" in task.options else bitsnap.Store
            writer = stack.enter_context(kind(task.folder / "bitsnap", keep_last=task.kept, **task.options))

        def save(step: int) -> Path:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            checkpoint = task.folder / f"step_{step}.pt"
            if writer is not None:
                writer.save(step, state)
            else:
                torch.save(state, checkpoint)
                written.append(checkpoint)
                task.delete_old(written)
            return checkpoint

        train_steps(task, model, optimizer, first, save)
