"""DeepSpeed's ZeRO on two processes, on the CPU: `--stage 1`, 2 or 3."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch

from bench.frameworks.small_training import BATCH, LAST_STEP, SAVE_EVERY, Task, batch_of, new_model, run_ranks

RANKS = 2


def train(task: Task, stage: int) -> dict[int, float]:
    model = new_model()
    options: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": BATCH,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": True},
    }
    optimizer = torch.optim.AdamW(model.parameters())
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=options, dist_init_required=False)
    first = 1
    if task.resume is not None:
        # The folder of a step lies beside the file that names the newest one.
        engine.load_checkpoint(str(task.resume.parent), tag=task.resume.name)
        first = engine.global_steps + 1
    losses = {}
    for step in range(first, LAST_STEP + 1):
        loss = engine(batch_of(step))
        engine.backward(loss)
        engine.step()
        losses[step] = loss.item()
        if step % SAVE_EVERY == 0:
            engine.save_checkpoint(str(task.folder), tag=f"global_step{step}")
    return losses


if __name__ == "__main__":
    at = sys.argv.index("--stage")
    chosen = int(sys.argv[at + 1])
    del sys.argv[at : at + 2]
    run_ranks(functools.partial(train, stage=chosen), RANKS)
