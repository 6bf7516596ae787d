"""save_state() and load_state() of Accelerate."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

from bench.frameworks.small_training import LAST_STEP, SAVE_EVERY, Task, batch_of, new_model, run


def train(task: Task) -> dict[int, float]:
    set_seed(0)
    accelerator = Accelerator(cpu=True)
    model = new_model()
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    first = 1
    if task.resume is not None:
        accelerator.load_state(str(task.resume))
        first = int(task.resume.name.rsplit("_", 1)[1]) + 1
    losses = {}
    for step in range(first, LAST_STEP + 1):
        optimizer.zero_grad()
        loss = model(batch_of(step))
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        losses[step] = loss.item()
        if step % SAVE_EVERY == 0:
            accelerator.save_state(str(task.folder / f"step_{step}"))
    return losses


if __name__ == "__main__":
    run(train)
