"""torch.save() of a dict."""

from __future__ import annotations

from pathlib import Path

import torch

from bench.frameworks.small_training import Task, new_model, run, train_steps


def train(task: Task) -> dict[int, float]:
    model = new_model()
    optimizer = torch.optim.AdamW(model.parameters())
    first = 1
    if task.resume is not None:
        state = torch.load(task.resume, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1

    def save_step(step: int) -> Path:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        checkpoint = task.folder / f"step_{step}.pt"
        torch.save(state, checkpoint)
        return checkpoint

    return train_steps(task, model, optimizer, first, save_step)


if __name__ == "__main__":
    run(train)
