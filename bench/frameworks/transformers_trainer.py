"""The Trainer of Transformers, with a GPT-2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import GPT2LMHeadModel, Trainer, TrainerState, TrainingArguments, set_seed

import bitsnap.transformers
from bench.frameworks.small_models import Gpt2, new_model
from bench.frameworks.task import Task


class Sentences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __init__(self, task: Task) -> None:
        self._task, self._batch = task, len(task.batch_of(1))

    def __len__(self) -> int:
        return self._batch * max(self._task.last // 2, 1)  # two epochs

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = self._task.batch_of(1 + index // self._batch)[index % self._batch]
        return {"input_ids": tokens, "labels": tokens}


class Observed(Trainer):  # type: ignore[misc]
    """Tells the observer of losses, with all digits, and of checkpoints."""

    task: Task

    def training_step(self, *arguments: Any, **options: Any) -> torch.Tensor:
        self.task.observer.loaded()
        loss: torch.Tensor = super().training_step(*arguments, **options)
        self.task.observer.stepped(self.state.global_step + 1, loss.item())
        return loss

    def _save_checkpoint(self, *arguments: Any, **options: Any) -> None:
        step = self.state.global_step
        self.task.observer.saving(step)
        super()._save_checkpoint(*arguments, **options)
        self.task.saved(step, self.task.folder / f"checkpoint-{step}")


def train(task: Task) -> None:
    set_seed(0)
    options = TrainingArguments(
        output_dir=str(task.folder),
        max_steps=task.last,
        save_strategy="steps",
        save_steps=task.save_every,
        save_total_limit=task.kept,
        logging_steps=1,
        per_device_train_batch_size=len(task.batch_of(1)),
        learning_rate=1e-3,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )
    trainer = Observed(model=new_model(task.sizes or Gpt2()), args=options, train_dataset=Sentences(task))
    trainer.task = task
    if task.options is not None:
        bitsnap.transformers.use(trainer, **task.options)
    task.observer.loading()
    trainer.train(resume_from_checkpoint=None if task.resume is None else str(task.resume))


def load_all(checkpoint: Path) -> None:
    GPT2LMHeadModel.from_pretrained(checkpoint)
    TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        torch.load(checkpoint / name, weights_only=False)
