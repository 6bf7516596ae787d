"""The Trainer of Lightning, with ModelCheckpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import bitsnap.lightning
from bench.frameworks.small_models import Gpt2, new_model
from bench.frameworks.task import Task


class Module(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, sizes: Gpt2 | None = None) -> None:
        super().__init__()
        self.task = Task(Path())
        self.model = new_model(sizes)
        self.save_hyperparameters({"width": 128})

    def training_step(self, batch: Any) -> torch.Tensor:
        step = self.global_step + 1
        self.task.observer.loaded()
        tokens = self.task.batch_of(step)
        loss: torch.Tensor = self.model(input_ids=tokens, labels=tokens).loss
        self.task.observer.stepped(step, loss.item())
        self.log("at", float(step))  # by which the newest checkpoints are kept
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters())
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1000)}


class Saver(ModelCheckpoint):  # type: ignore[misc]
    """Tells the observer of checkpoints, when old ones are deleted."""

    def __init__(self, task: Task, save_last: bool) -> None:
        super().__init__(
            task.folder,
            filename="{step}",
            every_n_train_steps=task.save_every,
            monitor=None if task.kept is None else "at",
            mode="max",
            save_top_k=-1 if task.kept is None else task.kept,
            save_last=save_last,
        )
        self.task = task

    def on_train_batch_end(self, trainer: lightning.Trainer, *given: Any, **more: Any) -> None:
        step = trainer.global_step
        saves = step % self.task.save_every == 0
        if saves:
            self.task.observer.saving(step)
        super().on_train_batch_end(trainer, *given, **more)
        if saves:
            self.task.saved(step, self.task.folder / f"step={step}.ckpt")


def train(task: Task, save_last: bool = False) -> None:
    lightning.seed_everything(0)
    module = Module(task.sizes)
    module.task = task
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=task.last,
        callbacks=[Saver(task, save_last)],
        plugins=[] if task.options is None else [bitsnap.lightning.CheckpointIO(**task.options)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(2 * task.last, 1)))
    task.observer.loading()
    trainer.fit(module, batches, ckpt_path=task.resume)


def load_all(checkpoint: Path) -> None:
    Module.load_from_checkpoint(checkpoint, map_location="cpu")
    torch.load(checkpoint, weights_only=False)
