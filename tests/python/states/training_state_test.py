"""States of real training go in whole, and training goes on from them as if nothing had happened."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from python.same_bits import assert_same

Make = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
    "AdamW amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, nesterov=True),
    "SGD plain": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
    "groups": lambda parameters: torch.optim.AdamW(two_groups(parameters), lr=0.01),
}


def two_groups(parameters: list[torch.nn.Parameter]) -> list[dict[str, Any]]:
    return [{"params": parameters[:1], "lr": torch.tensor(0.02)}, {"params": parameters[1:], "betas": (0.8, 0.95)}]


class Training:
    """A small model with dropout, so that a step depends on the state of the generators too."""

    def __init__(self, make: Make, dtype: torch.dtype) -> None:
        self.model = torch.nn.Sequential(
            torch.nn.Linear(16, 64),
            torch.nn.Dropout(0.3),
            torch.nn.GELU(),
            torch.nn.Linear(64, 4),
            torch.nn.LayerNorm(4),
        ).to(dtype)
        self.optimizer = make(list(self.model.parameters()))
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [2, 5], 0.5)
        self.dtype = dtype
        self.step = 0

    def run(self, steps: int) -> list[bytes]:
        losses = []
        for _ in range(steps):
            batch = torch.randn(8, 16).to(self.dtype) * (1 + random.random()) + float(np.random.rand())  # noqa: NPY002
            self.optimizer.zero_grad()
            loss = self.model(batch).float().square().mean()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
            losses.append(loss.detach().numpy().tobytes())
        return losses

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "step": self.step,
            "rng": {
                "torch": torch.get_rng_state(),
                "numpy": np.random.get_state(),  # noqa: NPY002
                "python": random.getstate(),
            },
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.step = state["step"]
        torch.set_rng_state(state["rng"]["torch"])
        np.random.set_state(state["rng"]["numpy"])  # noqa: NPY002
        random.setstate(state["rng"]["python"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_goes_on_as_if_uninterrupted(tmp_path: Path, optimizer: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    training = Training(OPTIMIZERS[optimizer], dtype)
    training.run(3)
    bitsnap.save(tmp_path / "3.bsnap", training.state())
    training.run(1)
    bitsnap.save(tmp_path / "4.bsnap", training.state(), base=tmp_path / "3.bsnap")
    losses = training.run(4)

    torch.manual_seed(2)
    resumed = Training(OPTIMIZERS[optimizer], dtype)
    resumed.restore(bitsnap.load(tmp_path / "4.bsnap"))
    assert resumed.run(4) == losses
    assert_same(resumed.state(), training.state())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_state_dicts_come_back_with_all_their_types(tmp_path: Path, optimizer: str) -> None:
    training = Training(OPTIMIZERS[optimizer], torch.float32)
    training.run(2)
    state = training.state()
    bitsnap.save(tmp_path / "a.bsnap", state)
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_states_of_numpy_generators_go_in_whole(tmp_path: Path, kind: str) -> None:
    generator = np.random.Generator(getattr(np.random, kind)(7))
    generator.standard_normal(3)
    generator.integers(0, 10, 1, np.uint32)
    bitsnap.save(tmp_path / "a.bsnap", {"state": generator.bit_generator.state})
    expected = generator.standard_normal(100)
    other = np.random.Generator(getattr(np.random, kind)(8))
    other.bit_generator.state = bitsnap.load(tmp_path / "a.bsnap")["state"]
    assert other.standard_normal(100).tobytes() == expected.tobytes()


def test_moments_restored_in_place_keep_the_precision_that_load_state_dict_would_cast_away(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.randn(50).bfloat16())
    optimizer = torch.optim.AdamW([weight])
    optimizer.state[weight] = {
        "step": torch.tensor(3.0),
        "exp_avg": torch.randn(50, dtype=torch.float32),
        "exp_avg_sq": torch.rand(50, dtype=torch.float32),
    }
    saved = optimizer.state_dict()
    bitsnap.save(tmp_path / "a.bsnap", {"optimizer": saved})
    expected = {"optimizer": {**saved, "state": {0: {k: v.clone() for k, v in saved["state"][0].items()}}}}
    for moment in optimizer.state[weight].values():
        moment.zero_()
    loaded = bitsnap.load(tmp_path / "a.bsnap", into={"optimizer": optimizer.state_dict()})
    assert_same(loaded, expected)
    assert loaded["optimizer"]["state"][0]["exp_avg"] is optimizer.state[weight]["exp_avg"]
    assert optimizer.state[weight]["exp_avg"].dtype == torch.float32
