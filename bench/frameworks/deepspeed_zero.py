"""DeepSpeed's ZeRO on two processes, on the CPU: `--stage 1`, 2 or 3."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from deepspeed.comm.torch import build_shm_op
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

from bench.frameworks.small_training import BATCH, Task, batch_of, new_model, run_ranks

RANKS = 2


def train(task: Task, stage: int = 2) -> dict[int, float]:
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
    for step in range(first, task.last + 1):
        loss = engine(batch_of(step))
        engine.backward(loss)
        engine.step()
        losses[step] = loss.item()
        task.observer.stepped(step, losses[step])
        if step % task.save_every == 0:
            task.observer.saving(step)
            engine.save_checkpoint(str(task.folder), tag=f"global_step{step}")
            task.observer.saved(step, task.folder / f"global_step{step}")
    return losses


def prepare() -> None:
    """Compiles or loads an extension, which a killed process would leave locked."""
    build_shm_op()


def load_all(checkpoint: Path) -> None:
    get_fp32_state_dict_from_zero_checkpoint(str(checkpoint.parent), checkpoint.name)
    for path in checkpoint.glob("*.pt"):
        torch.load(path, weights_only=False)


if __name__ == "__main__":
    at = sys.argv.index("--stage")
    chosen = int(sys.argv[at + 1])
    del sys.argv[at : at + 2]
    run_ranks(functools.partial(train, stage=chosen), RANKS)
