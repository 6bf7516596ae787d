"""Checkpoint folders for tests: what frameworks write, and what is in a folder."""

from __future__ import annotations

import json
import os
import random
import stat
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file

import bitsnap


class Listed(NamedTuple):
    """Something in a folder. Two names of the same file have the same `first`."""

    path: str
    mode: int
    modified_ns: int
    target: str
    first: str
    content: bytes


def listing(folder: Path) -> list[Listed]:
    """Everything in a folder: bytes, permissions, times, links, and which names are the same file."""
    first: dict[tuple[int, int], str] = {}
    found = []
    for path in [folder, *sorted(folder.rglob("*"))]:
        name = str(path.relative_to(folder))
        status = path.lstat()
        kind = stat.S_IFMT(status.st_mode)
        target = os.fsdecode(path.readlink()) if kind == stat.S_IFLNK else ""
        same = first.setdefault((status.st_dev, status.st_ino), name)
        content = path.read_bytes() if kind == stat.S_IFREG else b""
        found.append(Listed(name, status.st_mode, status.st_mtime_ns, target, same, content))
    return found


def assert_comes_back(store: bitsnap.Store, step: int, folder: Path, out: Path) -> bitsnap.Folder:
    """Extracts a checkpoint and reads every file of it: all are as in the folder that was saved."""
    store.extract_folder(step, out)
    assert listing(out) == listing(folder)
    opened = store.open_folder(step)
    assert set(opened) == {str(path.relative_to(folder)) for path in folder.rglob("*") if _is_file(path)}
    for path, file in opened.items():
        assert file.read() == (folder / path).read_bytes()
    return opened


def _is_file(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)


def add_quietly(store: bitsnap.Store, step: int, folder: Path) -> list[str]:
    """Saves a folder; returns the messages of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store.add_folder(step, folder)
    assert {each.category for each in caught} <= {bitsnap.PlainBytesWarning}
    return [str(each.message) for each in caught]


class SmallTraining:
    """A module that AdamW trains on noise, which writes checkpoints as Transformers' Trainer does."""

    def __init__(self, width: int = 256, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 10)
        self.width = width
        self.log: list[dict[str, float]] = []

    def train(self, steps: int) -> None:
        for _ in range(steps):
            x = torch.randn(16, self.width)
            loss = (self.model(x) - x.roll(1, -1)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.log.append({"loss": loss.item(), "learning_rate": float(self.scheduler.get_last_lr()[0])})

    @property
    def step(self) -> int:
        return len(self.log)

    def rng_state(self) -> dict[str, Any]:
        return {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}  # noqa: NPY002

    def state(self) -> dict[str, Any]:
        """What the folder holds, as bitsnap.save() takes it."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "rng": self.rng_state(),
            "trainer": self.trainer_state(),
        }

    def trainer_state(self) -> dict[str, Any]:
        return {"global_step": self.step, "log_history": self.log}

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        save_file(self.model.state_dict(), folder / "model.safetensors", {"format": "pt"})
        torch.save(self.optimizer.state_dict(), folder / "optimizer.pt")
        torch.save(self.scheduler.state_dict(), folder / "scheduler.pt")
        torch.save(self.rng_state(), folder / "rng_state.pth")
        (folder / "trainer_state.json").write_text(json.dumps(self.trainer_state(), indent=2) + "\n")
