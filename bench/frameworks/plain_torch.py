"""torch.save() of a dict."""

from __future__ import annotations

import torch

from bench.frameworks.small_training import LAST_STEP, SAVE_EVERY, Task, batch_of, new_model, run


def train(task: Task) -> dict[int, float]:
    model = new_model()
    optimizer = torch.optim.AdamW(model.parameters())
    first = 1
    if task.resume is not None:
        state = torch.load(task.resume, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"] + 1
    losses = {}
    for step in range(first, LAST_STEP + 1):
        optimizer.zero_grad()
        loss = model(batch_of(step))
        loss.backward()
        optimizer.step()
        losses[step] = loss.item()
        if step % SAVE_EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, task.folder / f"step_{step}.pt")
    return losses


if __name__ == "__main__":
    run(train)
