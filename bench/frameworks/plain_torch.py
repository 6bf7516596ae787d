"""torch.save() of a dict."""

from __future__ import annotations

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

    def save_step(step: int) -> None:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, task.folder / f"step_{step}.pt")

    return train_steps(model, optimizer, first, save_step)


if __name__ == "__main__":
    run(train)
