"""The states of a small training run, step by step, as a store gets them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bitsnap
from python.same_bits import random_bits


class Run:
    """Weights, masters and moments that move a little at each step, beside what never changes and what is no tensor."""

    def __init__(self, seed: int = 0, rows: int = 100) -> None:
        self._rng = np.random.default_rng(seed)
        self.step = 0
        self._master = torch.from_numpy(self._rng.standard_normal((rows, 200), np.float32))
        self._moments = (torch.zeros_like(self._master), torch.zeros_like(self._master))
        self._frozen = random_bits(self._rng, torch.bfloat16, (rows, 100))
        self._small = {f"norm{i}": random_bits(self._rng, torch.float32, (i + 1,)) for i in range(5)}

    def advance(self, steps: int = 1) -> dict[str, Any]:
        """Trains on and returns state(). Tensors are changed in place, as an optimizer does."""
        for _ in range(steps):
            gradient = torch.from_numpy(self._rng.standard_normal(tuple(self._master.shape), np.float32))
            self._moments[0].mul_(0.9).add_(gradient, alpha=0.1)
            self._moments[1].mul_(0.95).add_(gradient.square(), alpha=0.05)
            self._master.sub_(self._moments[0], alpha=1e-3)
            self.step += 1
        return self.state()

    def state(self) -> dict[str, Any]:
        weight = self._master.bfloat16()
        return {
            "model": {"wte": weight, "head": weight, "frozen": self._frozen, **self._small},
            "master": {"wte": self._master},
            "optimizer": {
                "state": {0: {"exp_avg": self._moments[0], "exp_avg_sq": self._moments[1], "step": self.step}}
            },
            "rng": self._rng.bit_generator.state,
            "history": [(i, i * 0.1) for i in range(self.step)],
            "nothing": None,
        }


def frozen(state: Any) -> Any:
    """A copy that later steps do not change."""
    return copy.deepcopy(state)


def state_of(step: int, rank: int = 0, moving: int | None = None) -> dict[str, Any]:
    """The state of one process at a step, the same wherever it is asked for; `moving` is a tensor of that number."""
    rng = np.random.default_rng(rank)
    names = [f"rank{rank}", *([] if moving is None else [f"expert{moving}"])]
    state: dict[str, Any] = {"step": step, "rank": rank}
    for name in names:
        values = np.random.default_rng(len(name) + (moving or rank)).standard_normal(50_000, np.float32)
        values[rng.integers(0, 50_000, 500)] += step
        values[step] = step
        state[name] = torch.from_numpy(values)
    return state


def files_of(store: Path) -> dict[str, bytes]:
    """All snapshot files and commit records, by path."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in sorted((store / "checkpoints").rglob("*"))
        if path.is_file()
    }


def filled(path: Path, count: int = 4, **options: Any) -> list[Any]:
    """Makes a store of steps 10, 20 and so on; the states."""
    run = Run()
    states = []
    with bitsnap.Store(path, **options) as store:
        for _ in range(count):
            states.append(frozen(run.advance(10)))
            store.save(run.step, states[-1])
    return states
