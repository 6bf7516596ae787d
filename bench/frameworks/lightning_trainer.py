"""The Trainer of Lightning, with ModelCheckpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from bench.frameworks.small_training import Task, batch_of, new_model, run


class Module(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, task: Task | None = None) -> None:
        super().__init__()
        self.task = task
        self.model = new_model()
        self.losses: dict[int, float] = {}
        self.save_hyperparameters({"width": 128})

    def training_step(self, batch: Any) -> torch.Tensor:
        step = self.global_step + 1
        loss: torch.Tensor = self.model(batch_of(step))
        self.losses[step] = loss.item()
        if self.task is not None:
            self.task.observer.stepped(step, self.losses[step])
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters())
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 10)}


class Saver(ModelCheckpoint):  # type: ignore[misc]
    """Tells the observer of checkpoints."""

    def __init__(self, task: Task) -> None:
        super().__init__(task.folder, every_n_train_steps=task.save_every, save_top_k=-1, filename="{step}")
        self.task = task

    def _save_checkpoint(self, trainer: lightning.Trainer, filepath: str) -> None:
        self.task.observer.saving(trainer.global_step)
        super()._save_checkpoint(trainer, filepath)
        self.task.observer.saved(trainer.global_step, Path(filepath))


def train(task: Task) -> dict[int, float]:
    lightning.seed_everything(0)
    module = Module(task)
    trainer = lightning.Trainer(
        accelerator="cpu", max_steps=task.last, callbacks=[Saver(task)], logger=False, enable_progress_bar=False
    )
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(2 * task.last, 1)))
    trainer.fit(module, batches, ckpt_path=task.resume)
    return module.losses


def load_all(checkpoint: Path) -> None:
    Module.load_from_checkpoint(checkpoint, map_location="cpu")
    torch.load(checkpoint, weights_only=False)


if __name__ == "__main__":
    run(train)
