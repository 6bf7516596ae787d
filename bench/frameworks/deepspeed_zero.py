"""DeepSpeed's ZeRO on the CPU, with bfloat16 weights and float32 masters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from deepspeed.comm.torch import build_shm_op
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

import bitsnap.deepspeed
from bench.frameworks.small_models import new_model
from bench.frameworks.task import Task


def train(task: Task, stage: int = 2) -> None:
    model = new_model(task.sizes)
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": len(task.batch_of(1)),
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": True},
    }
    optimizer = torch.optim.AdamW(model.parameters())
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings, dist_init_required=False)
    if task.options is not None:
        bitsnap.deepspeed.use(engine, **task.options)
    first = 1
    if task.resume is not None:
        task.observer.loading()
        # The folder of a step lies beside the file that names the newest one.
        engine.load_checkpoint(str(task.resume.parent), tag=task.resume.name)
        task.observer.loaded()
        first = engine.global_steps + 1
    written: list[Path] = []
    for step in range(first, task.last + 1):
        tokens = task.batch_of(step)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        task.observer.stepped(step, loss.item())
        if step % task.save_every == 0:
            task.observer.saving(step)
            written.append(task.folder / f"global_step{step}")
            engine.save_checkpoint(str(task.folder), tag=written[-1].name)
            task.delete_old(written)
            task.saved(step, written[-1])
    engine.destroy()


def prepare() -> None:
    """Compiles or loads an extension, which a killed process would leave locked."""
    build_shm_op()


def load_all(checkpoint: Path) -> None:
    get_fp32_state_dict_from_zero_checkpoint(str(checkpoint.parent), checkpoint.name)
    for path in checkpoint.glob("*.pt"):
        torch.load(path, weights_only=False)
