"""The Trainer of Transformers, with a small GPT-2."""

from __future__ import annotations

from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from bench.frameworks.small_training import BATCH, LAST_STEP, LENGTH, SAVE_EVERY, WIDTH, WORDS, Task, batch_of, run


class Sentences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return BATCH * (LAST_STEP // 2)  # two epochs

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = batch_of(1 + index // BATCH)[index % BATCH]
        return {"input_ids": tokens, "labels": tokens}


class Recorder(Trainer):
    """Keeps all digits of the losses."""

    losses: dict[int, float]

    def training_step(self, *arguments: Any, **options: Any) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(*arguments, **options)
        self.losses[self.state.global_step + 1] = loss.item()
        return loss


def train(task: Task) -> dict[int, float]:
    set_seed(0)
    config = GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=WIDTH, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    options = TrainingArguments(
        output_dir=str(task.folder),
        max_steps=LAST_STEP,
        save_strategy="steps",
        save_steps=SAVE_EVERY,
        logging_steps=1,
        per_device_train_batch_size=BATCH,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )
    trainer = Recorder(model=GPT2LMHeadModel(config), args=options, train_dataset=Sentences())
    trainer.losses = {}
    trainer.train(resume_from_checkpoint=None if task.resume is None else str(task.resume))
    return trainer.losses


if __name__ == "__main__":
    run(train)
