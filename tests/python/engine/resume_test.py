"""Schedulers, samplers, generators and versioned modules resume from a loaded state as if uninterrupted.

Each test compares the loaded state with the saved one by type and by bits, and then the resumed trajectory with the
uninterrupted one.
"""

from __future__ import annotations

import inspect
import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler

import bitsnap
from python.same_bits import assert_same


def half_every_third(epoch: int) -> float:
    return 0.5 ** (epoch // 3)


class Decay:
    """A callable whose state LambdaLR keeps, unlike that of a function."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, epoch: int) -> float:
        return self.rate**epoch


def sequential(optimizer: torch.optim.Optimizer) -> lr_scheduler.SequentialLR:
    warm = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    return lr_scheduler.SequentialLR(optimizer, [warm, lr_scheduler.MultiStepLR(optimizer, [1, 4, 4], 0.5)], [3])


def chained(optimizer: torch.optim.Optimizer) -> lr_scheduler.ChainedScheduler:
    return lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(optimizer, 0.3, total_iters=4), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    )


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "LambdaLR": lambda optimizer: lr_scheduler.LambdaLR(optimizer, half_every_third),
    "MultiplicativeLR": lambda optimizer: lr_scheduler.MultiplicativeLR(optimizer, half_every_third),
    "StepLR": lambda optimizer: lr_scheduler.StepLR(optimizer, 3, 0.5),
    "MultiStepLR": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2, 5, 5], 0.5),
    "ConstantLR": lambda optimizer: lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=6),
    "LinearLR": lambda optimizer: lr_scheduler.LinearLR(optimizer, 0.1, total_iters=7),
    "ExponentialLR": lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.8),
    "SequentialLR": sequential,
    "CosineAnnealingLR": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 6),
    "ChainedScheduler": chained,
    "ReduceLROnPlateau": lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, cooldown=1),
    "CyclicLR": lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, 3, mode="exp_range", gamma=0.9),
    "CosineAnnealingWarmRestarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, 2),
    "OneCycleLR": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=20),
    "PolynomialLR": lambda optimizer: lr_scheduler.PolynomialLR(optimizer, 12, 2.0),
}
MORE_SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "LambdaLR of a callable": lambda optimizer: lr_scheduler.LambdaLR(optimizer, Decay(0.7)),
    "CyclicLR of a function": lambda optimizer: lr_scheduler.CyclicLR(
        optimizer, 0.01, 0.1, scale_fn=lambda cycle: 0.5**cycle
    ),
}


def test_every_scheduler_of_torch_is_tested() -> None:
    base = lr_scheduler.LRScheduler
    found = {
        name
        for name, kind in vars(lr_scheduler).items()
        if inspect.isclass(kind) and issubclass(kind, base) and kind is not base and not name.startswith("_")
    }
    assert found == set(SCHEDULERS)


class Scheduled:
    def __init__(self, make: Callable[[torch.optim.Optimizer], Any]) -> None:
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 10))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.1, momentum=0.9)
        self.scheduler = make(self.optimizer)

    def run(self, steps: int) -> list[tuple[float, bytes]]:
        trajectory = []
        for step in range(steps):
            self.optimizer.zero_grad()
            loss = self.weight.square().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            if isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau):
                self.scheduler.step(1.0 if step % 2 else 2.0)
            else:
                self.scheduler.step()
            trajectory.append((self.optimizer.param_groups[0]["lr"], self.weight.detach().numpy().tobytes()))
        return trajectory

    def state(self) -> dict[str, Any]:
        return {
            "weight": self.weight.detach(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
        }


@pytest.mark.filterwarnings("ignore::UserWarning:torch.optim.lr_scheduler")
@pytest.mark.parametrize("name", [*SCHEDULERS, *MORE_SCHEDULERS])
def test_a_scheduler_resumes(tmp_path: Path, name: str) -> None:
    make = (SCHEDULERS | MORE_SCHEDULERS)[name]
    training = Scheduled(make)
    training.run(4)
    bitsnap.save(tmp_path / "a.bsnap", training.state())
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    assert_same(loaded, training.state())

    resumed = Scheduled(make)
    with torch.no_grad():
        resumed.weight.copy_(loaded["weight"])
    resumed.optimizer.load_state_dict(loaded["optimizer"])
    resumed.scheduler.load_state_dict(loaded["scheduler"])
    assert resumed.run(9) == training.run(9)


def test_the_milestones_within_a_sequential_scheduler_stay_a_counter(tmp_path: Path) -> None:
    training = Scheduled(sequential)
    bitsnap.save(tmp_path / "a.bsnap", training.state())
    loaded = bitsnap.load(tmp_path / "a.bsnap", keys="scheduler")["scheduler"]
    assert type(loaded["_schedulers"][1]["milestones"]) is Counter
    assert loaded["_schedulers"][1]["milestones"] == Counter({4: 2, 1: 1})


def test_a_scheduler_that_keeps_a_function_in_its_state_is_refused_by_its_place(tmp_path: Path) -> None:
    training = Scheduled(lambda optimizer: lr_scheduler.LambdaLR(optimizer, half_every_third))
    state = training.state()
    state["scheduler"]["lr_lambdas"] = [half_every_third]
    with pytest.raises(
        bitsnap.InvalidArgumentError, match=r"^state\['scheduler'\]\['lr_lambdas'\]\[0\] is of type func"
    ):
        bitsnap.save(tmp_path / "a.bsnap", state)


def batches(loader: Iterator[Any], count: int) -> list[bytes]:
    return [next(loader)[0].numpy().tobytes() for _ in range(count)]


@pytest.mark.parametrize("sampler", ["random", "weighted", "shuffled"])
def test_a_data_loader_resumes_within_an_epoch(tmp_path: Path, sampler: str) -> None:
    data = TensorDataset(torch.arange(40))

    def loader(generator: torch.Generator) -> Iterator[Any]:
        if sampler == "random":
            return iter(DataLoader(data, 4, sampler=RandomSampler(data, generator=generator)))
        if sampler == "weighted":
            weights = WeightedRandomSampler(torch.arange(1.0, 41.0).tolist(), 40, generator=generator)
            return iter(DataLoader(data, 4, sampler=weights))
        return iter(DataLoader(data, 4, shuffle=True, generator=generator))

    generator = torch.Generator().manual_seed(5)
    state: dict[str, Any] = {"epoch": 3, "batch": 4, "seen": {1, 2, 3}, "generator": generator.get_state()}
    running = loader(generator)
    batches(running, state["batch"])
    bitsnap.save(tmp_path / "a.bsnap", state)
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    assert_same(loaded, state)

    again = torch.Generator()
    again.set_state(loaded["generator"])
    resumed = loader(again)
    batches(resumed, loaded["batch"])
    assert batches(resumed, 6) == batches(running, 6)
    assert again.get_state().numpy().tobytes() == generator.get_state().numpy().tobytes()


def test_all_generators_resume(tmp_path: Path) -> None:
    own, numbers = torch.Generator().manual_seed(3), np.random.default_rng(4)
    own_python = random.Random(5)
    torch.rand(3, generator=own)
    state = {
        "default": torch.get_rng_state(),
        "own": own.get_state(),
        "numpy": numbers.bit_generator.state,
        "python": own_python.getstate(),
    }
    bitsnap.save(tmp_path / "a.bsnap", state)
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    assert_same(loaded, state)
    expected = (torch.rand(4), torch.rand(4, generator=own), numbers.standard_normal(4), own_python.random())
    torch.set_rng_state(loaded["default"])
    own.set_state(loaded["own"])
    numbers.bit_generator.state = loaded["numpy"]
    own_python.setstate(loaded["python"])
    assert_same(
        (torch.rand(4), torch.rand(4, generator=own), numbers.standard_normal(4), own_python.random()), expected
    )


class Versioned(torch.nn.Module):
    """Counts in thousands since its version 2."""

    _version = 2

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(1.0))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any) -> None:
        if local_metadata.get("version", None) is None:
            state_dict[f"{prefix}count"] = state_dict[f"{prefix}count"] * 1000
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


def test_modules_of_a_later_version_do_not_convert_their_state_again(tmp_path: Path) -> None:
    model = torch.nn.Sequential(Versioned(), torch.nn.BatchNorm1d(2))
    bitsnap.save(tmp_path / "a.bsnap", model.state_dict())
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    assert type(loaded) is OrderedDict
    assert_same(loaded, model.state_dict())
    resumed = torch.nn.Sequential(Versioned(), torch.nn.BatchNorm1d(2))
    resumed.load_state_dict(loaded)
    assert float(resumed.state_dict()["0.count"]) == 1.0
    resumed.load_state_dict(dict(loaded))  # what a state without versions leads to
    assert float(resumed.state_dict()["0.count"]) == 1000.0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantization_aware_training_resumes(tmp_path: Path) -> None:
    from torch.ao.quantization import FakeQuantize, HistogramObserver, MovingAverageMinMaxObserver

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fake = FakeQuantize(MovingAverageMinMaxObserver, 0, 255)  # type: ignore[no-untyped-call]
            self.observer = HistogramObserver(bins=64)
            self.linear = torch.nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.linear(self.fake(self.observer(x)))
            return hidden

    def run(model: Model, steps: range) -> list[bytes]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        outputs = []
        for step in steps:
            optimizer.zero_grad()
            output = model(torch.randn(16, 8, generator=torch.Generator().manual_seed(step)))
            output.square().mean().backward()
            optimizer.step()
            outputs.append(output.detach().numpy().tobytes())
        return outputs

    model = Model()
    run(model, range(3))
    state = {"model": model.state_dict(), "average": AveragedModel(model.linear).state_dict()}
    bitsnap.save(tmp_path / "a.bsnap", state)
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    assert_same(loaded, state)
    assert len(loaded["model"]._metadata) == len(list(model.named_modules()))
    resumed = Model()
    resumed.load_state_dict(loaded["model"])
    assert run(resumed, range(3, 8)) == run(model, range(3, 8))
