"""What a training is asked for, who observes it, and how it is run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from bench.frameworks.small_models import Gpt2, sentences
from bench.ranks import on_ranks

LAST_STEP = 20
SAVE_EVERY = 5


class Observer:
    """What a training calls on its first rank. This one ignores everything."""

    def loading(self) -> None:
        """A checkpoint is about to be loaded."""

    def loaded(self) -> None:
        """It is, and the first step begins. With Transformers and Lightning, this is called before each step."""

    def stepped(self, step: int, loss: float) -> None:
        pass

    def saving(self, step: int) -> None:
        pass

    def saved(self, step: int, checkpoint: Path) -> None:
        """The framework's call has returned on all ranks, and the framework or the loop has deleted old checkpoints."""

    def results(self) -> Any:
        """What run() returns, as JSON has it."""


class Losses(Observer):
    def __init__(self) -> None:
        self._losses: dict[int, float] = {}

    def stepped(self, step: int, loss: float) -> None:
        self._losses[step] = loss

    def results(self) -> dict[int, float]:
        return self._losses


class Task(NamedTuple):
    folder: Path  # where checkpoints are written
    resume: Path | None = None  # a checkpoint
    last: int = LAST_STEP
    save_every: int = SAVE_EVERY
    kept: int | None = None  # the newest checkpoints that stay
    options: dict[str, Any] | None = None  # of bitsnap's integration; None: the framework's own checkpoints
    sizes: Gpt2 | None = None  # of the model; None: the SmallModel
    batch_of: Callable[[int], torch.Tensor] = sentences  # the tokens of a step
    observer: Observer = Observer()

    def saved(self, step: int, checkpoint: Path) -> None:
        """To be called by each rank."""
        if dist.is_initialized():
            dist.barrier()
        self.observer.saved(step, checkpoint)

    def delete_old(self, checkpoints: list[Path]) -> None:
        """Deletes all but the newest that stay, for frameworks that do not. To be called by each rank."""
        if dist.is_initialized():
            dist.barrier()
        while self.kept is not None and len(checkpoints) > self.kept:
            old = checkpoints.pop(0)
            if not dist.is_initialized() or dist.get_rank() == 0:
                shutil.rmtree(old) if old.is_dir() else old.unlink()


Train = Callable[[Task], None]


def train_steps(
    task: Task, model: Any, optimizer: torch.optim.Optimizer, first: int, save: Callable[[int], Path]
) -> None:
    """Trains from step `first` to the last one. `save` writes the checkpoint of a step."""
    for step in range(first, task.last + 1):
        tokens = task.batch_of(step)
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        task.observer.stepped(step, loss.item())
        if step % task.save_every == 0:
            task.observer.saving(step)
            task.saved(step, save(step))


def run(train: Train, task: Task, ranks: int, log: Path) -> Any:
    """Trains on forked ranks (bench.ranks) and returns the results of the observer on the first one."""

    def work() -> Any:
        is_first = not dist.is_initialized() or dist.get_rank() == 0
        train(task if is_first else task._replace(observer=Observer()))
        return task.observer.results()

    return on_ranks(ranks, work, log)
