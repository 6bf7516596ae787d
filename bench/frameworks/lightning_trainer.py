"""The Trainer of Lightning, with ModelCheckpoint."""

from __future__ import annotations

from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from bench.frameworks.small_training import LAST_STEP, SAVE_EVERY, Task, batch_of, new_model, run


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = new_model()
        self.losses: dict[int, float] = {}
        self.save_hyperparameters({"width": 128})

    def training_step(self, batch: Any) -> torch.Tensor:
        step = self.global_step + 1
        loss: torch.Tensor = self.model(batch_of(step))
        self.losses[step] = loss.item()
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters())
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 10)}


def train(task: Task) -> dict[int, float]:
    lightning.seed_everything(0)
    module = Module()
    saver = ModelCheckpoint(task.folder, every_n_train_steps=SAVE_EVERY, save_top_k=-1, filename="{step}")
    trainer = lightning.Trainer(
        accelerator="cpu", max_steps=LAST_STEP, callbacks=[saver], logger=False, enable_progress_bar=False
    )
    batches = torch.utils.data.DataLoader([torch.zeros(1)] * (2 * LAST_STEP))  # type: ignore[arg-type]
    trainer.fit(module, batches, ckpt_path=task.resume)
    return module.losses


if __name__ == "__main__":
    run(train)
