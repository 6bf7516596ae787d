"""The Trainer of Transformers, with a small GPT-2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerState, TrainingArguments, set_seed

from bench.frameworks.small_training import BATCH, LENGTH, WIDTH, WORDS, Task, batch_of, run


class Sentences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __init__(self, task: Task) -> None:
        self._length = BATCH * (task.last // 2)  # two epochs

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = batch_of(1 + index // BATCH)[index % BATCH]
        return {"input_ids": tokens, "labels": tokens}


class Recorder(Trainer):  # type: ignore[misc]
    """Keeps all digits of the losses, and tells the observer of them and of checkpoints."""

    losses: dict[int, float]
    task: Task

    def training_step(self, *arguments: Any, **options: Any) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(*arguments, **options)
        step = self.state.global_step + 1
        self.losses[step] = loss.item()
        self.task.observer.stepped(step, self.losses[step])
        return loss

    def _save_checkpoint(self, *arguments: Any, **options: Any) -> None:
        step = self.state.global_step
        self.task.observer.saving(step)
        super()._save_checkpoint(*arguments, **options)
        self.task.observer.saved(step, self.task.folder / f"checkpoint-{step}")


def train(task: Task) -> dict[int, float]:
    set_seed(0)
    config = GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=WIDTH, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    options = TrainingArguments(
        output_dir=str(task.folder),
        max_steps=task.last,
        save_strategy="steps",
        save_steps=task.save_every,
        logging_steps=1,
        per_device_train_batch_size=BATCH,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )
    trainer = Recorder(model=GPT2LMHeadModel(config), args=options, train_dataset=Sentences(task))
    trainer.losses, trainer.task = {}, task
    trainer.train(resume_from_checkpoint=None if task.resume is None else str(task.resume))
    return trainer.losses


def load_all(checkpoint: Path) -> None:
    GPT2LMHeadModel.from_pretrained(checkpoint)
    TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        torch.load(checkpoint / name, weights_only=False)


if __name__ == "__main__":
    run(train)
