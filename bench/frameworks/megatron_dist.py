"""Megatron-Core's distributed optimizer and checkpoints (dist_checkpointing), with a GPT on the CPU."""

from __future__ import annotations

import sys

import torch

from bench.corpus_runs import PROJECT
from bench.frameworks.small_models import LENGTH, WIDTH, WORDS
from bench.frameworks.task import Task

sys.path.insert(0, str(PROJECT / "tests"))

from python.megatron.megatron_gpt import Training, _OnCpu, new_folder  # isort: skip
from megatron.core import dist_checkpointing  # isort: skip


def train(task: Task) -> None:
    class Learning(Training):
        def batch(self) -> torch.Tensor:
            tokens = task.batch_of(self.done + 1)
            return torch.cat((tokens, tokens[:, :1]), dim=1)

    with _OnCpu():
        training = Learning(1, 1, hidden=WIDTH, words=WORDS, length=LENGTH)
        if task.resume is not None:
            training.resume(task.resume)
        for step in range(training.done + 1, task.last + 1):
            task.observer.stepped(step, training.train(1)[0])
            if step % task.save_every == 0:
                task.observer.saving(step)
                folder = new_folder(task.folder, step)
                dist_checkpointing.save(training.sharded(), str(folder))
                task.saved(step, folder)
