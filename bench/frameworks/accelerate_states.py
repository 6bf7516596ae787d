"""save_state() and load_state() of Accelerate, which names the folders itself if it deletes old ones."""

from __future__ import annotations

from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed

import bitsnap.accelerate
from bench.frameworks.small_models import new_model
from bench.frameworks.task import Task


def train(task: Task) -> None:
    set_seed(0)
    rotates = task.kept is not None
    project = ProjectConfiguration(str(task.folder), automatic_checkpoint_naming=rotates, total_limit=task.kept)
    accelerator = Accelerator(cpu=True, project_config=project)
    if task.options is not None:
        bitsnap.accelerate.use(accelerator, **task.options)
    model = new_model(task.sizes)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    first = 1
    if task.resume is not None:
        task.observer.loading()
        accelerator.load_state(str(task.resume))
        task.observer.loaded()
        first = int(task.resume.name.rsplit("_", 1)[1]) + 1
    for step in range(first, task.last + 1):
        tokens = task.batch_of(step)
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        task.observer.stepped(step, loss.item())
        if step % task.save_every == 0:
            task.observer.saving(step)
            checkpoint = accelerator.save_state(None if rotates else str(task.folder / f"step_{step}"))
            task.saved(step, Path(checkpoint))
    accelerator.end_training()
