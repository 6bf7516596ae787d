"""What the trainings have in common: their model, their data, and the arguments of their programs.

A program trains from the beginning, or from a checkpoint, to the last step, and writes the loss of each step as JSON.
The data of a step depend on its number alone, so a training that goes on from a checkpoint has the same losses.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.multiprocessing.spawn import start_processes
from torch.nn.functional import cross_entropy

LAST_STEP = 20
SAVE_EVERY = 5
WORDS = 2000
WIDTH = 128
BATCH, LENGTH = 8, 32


class Observer:
    """What a training, or each rank of it, calls while it trains. This one ignores everything."""

    def stepped(self, step: int, loss: float) -> None:
        pass

    def saving(self, step: int) -> None:
        pass

    def saved(self, step: int, checkpoint: Path) -> None:
        pass


class Task(NamedTuple):
    folder: Path  # where checkpoints are written
    resume: Path | None  # a checkpoint
    losses: Path  # JSON to write: losses by step
    last: int = LAST_STEP
    save_every: int = SAVE_EVERY
    observer: Observer = Observer()


def batch_of(step: int) -> torch.Tensor:
    """Tokens that can be learnt: each is the one before it, multiplied, with some noise."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(WORDS, (BATCH, 1), generator=generator)
    rows = [tokens]
    for _ in range(LENGTH - 1):
        noise = torch.randint(3, (BATCH, 1), generator=generator)
        rows.append((rows[-1] * 7 + noise) % WORDS)
    return torch.cat(rows, 1)


class SmallModel(nn.Module):
    """An embedding, two blocks and a head: about 0.8 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The loss of predicting each token from the one before it."""
        x = self.embedding(tokens[:, :-1])
        for block in self.blocks:
            x = x + block(x)
        return cross_entropy(self.head(x).flatten(0, 1), tokens[:, 1:].flatten())


def new_model() -> SmallModel:
    torch.manual_seed(0)
    return SmallModel()


def train_steps(
    task: Task, model: nn.Module, optimizer: torch.optim.Optimizer, first: int, save: Callable[[int], Path]
) -> dict[int, float]:
    """Trains from step `first` to the last one. `save` writes the checkpoint of a step. Returns the losses."""
    losses = {}
    for step in range(first, task.last + 1):
        optimizer.zero_grad()
        loss = model(batch_of(step))
        loss.backward()
        optimizer.step()
        losses[step] = loss.item()
        task.observer.stepped(step, losses[step])
        if step % task.save_every == 0:
            task.observer.saving(step)
            task.observer.saved(step, save(step))
    return losses


def run(train: Callable[[Task], dict[int, float]]) -> None:
    """A program of one process."""
    task = _task()
    torch.set_num_threads(1)
    _write(task, train(task))


def run_ranks(train: Callable[[Task], dict[int, float]], ranks: int) -> None:
    """A program of several processes with torch.distributed. All ranks return the same losses."""
    start_ranks(train, _task(), ranks, "spawn")


def start_ranks(train: Callable[[Task], dict[int, float]], task: Task, ranks: int, start_method: str) -> None:
    with tempfile.TemporaryDirectory() as meeting:
        start_processes(_rank, (train, task, ranks, meeting), nprocs=ranks, start_method=start_method)  # type: ignore[no-untyped-call]


def _rank(rank: int, train: Callable[[Task], dict[int, float]], task: Task, ranks: int, meeting: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}/store", rank=rank, world_size=ranks)
    losses = train(task)
    if rank == 0:
        _write(task, losses)
    torch.distributed.barrier()
    # Threads of a framework that still run may abort a process that ends in the usual way.
    sys.stdout.flush()
    os._exit(0)


def _task() -> Task:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--losses", type=Path, required=True)
    arguments = parser.parse_args()
    return Task(arguments.folder, arguments.resume, arguments.losses)


def _write(task: Task, losses: dict[int, float]) -> None:
    task.losses.write_text(json.dumps(losses))
