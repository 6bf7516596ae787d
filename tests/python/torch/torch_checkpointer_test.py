"""bitsnap.torch.TrainingCheckpointer with one process. tests/python/torch/torch_ranks_test.py has several."""

from __future__ import annotations

import random
import subprocess
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict

import bitsnap
import bitsnap.torch
from bitsnap.agents import find_program
from python.engine.checkpointer_jobs import Jobs
from python.same_bits import assert_same


class Loader:
    """A data loader that knows where it is."""

    def __init__(self) -> None:
        self.position = 0

    def batch(self) -> torch.Tensor:
        self.position += 1
        return torch.linspace(-1, 1, 16 * 8).reshape(16, 8) * self.position

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class MasterAdam(torch.optim.Optimizer):
    """Adam with a float32 master, float32 moments and a plain counter of steps, as trainings in bfloat16 have them."""

    def __init__(self, parameters: Iterator[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state.update(
                        step=0,
                        master=parameter.detach().float().clone(),
                        exp_avg=torch.zeros(parameter.shape),
                        exp_avg_sq=torch.zeros(parameter.shape),
                    )
                state["step"] += 1
                gradient = parameter.grad.float()
                state["exp_avg"].lerp_(gradient, 1 - group["betas"][0])
                state["exp_avg_sq"].lerp_(gradient.square(), 1 - group["betas"][1])
                scale = state["exp_avg_sq"].sqrt() + group["eps"]
                state["master"].addcdiv_(state["exp_avg"], scale, value=-group["lr"])
                parameter.copy_(state["master"])


class Job:
    """A small training with all that a checkpoint takes."""

    def __init__(self, jobs: Jobs, dtype: torch.dtype = torch.float32, hidden: int = 64, **options: Any) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(8, hidden), nn.Dropout(0.2), nn.Linear(hidden, 8), nn.BatchNorm1d(8)).to(
            dtype
        )
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        if dtype == torch.bfloat16:
            self.optimizer = MasterAdam(self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=50)
        self.loader, self.seen = Loader(), Loader()
        self.extra: dict[str, Any] = {"best": 1.0, "seen": self.seen}
        self.checkpointer = bitsnap.torch.TrainingCheckpointer(
            jobs.path,
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            dataloader=self.loader,
            extra=self.extra,
            job=bitsnap.JobOptions(name=jobs.job),
            agent=bitsnap.AgentOptions(threads=1, linger=20.0),
            timeout=30,
            **options,
        )

    def train(self, steps: int) -> list[float]:
        losses = []
        for _ in range(steps):
            x = self.loader.batch().to(next(self.model.parameters()).dtype)
            x = x + random.random() + np.random.rand() + torch.rand(())  # noqa: NPY002
            self.optimizer.zero_grad()
            loss = (self.model(x) - x).square().mean()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.seen.position += 10
            self.extra["best"] = min(self.extra["best"], loss.item())
            losses.append(loss.item())
        return losses

    def state(self) -> dict[str, Any]:
        return {
            "model": {name: value.clone() for name, value in self.model.state_dict().items()},
            "optimizer": {
                name: {key: torch.as_tensor(value).clone() for key, value in self.optimizer.state[parameter].items()}
                for name, parameter in self.model.named_parameters()
            },
        }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_training_goes_on_as_if_it_had_not_stopped(jobs: Jobs, dtype: torch.dtype) -> None:
    first = Job(jobs, dtype, every=2)
    assert first.checkpointer.restore() is None
    first.train(4)
    assert first.checkpointer.save(3) is None
    save = first.checkpointer.save(4, metadata={"note": "fourth"})
    assert save is not None
    state = first.state()
    losses = first.train(3)
    first.checkpointer.close()
    for where in ("memory", "store"):
        if where == "store":
            bitsnap.stop_agent(job=jobs.job, timeout=20)
        second = Job(jobs, dtype)
        memory = [parameter.data_ptr() for parameter in second.model.parameters()]
        assert second.checkpointer.latest() == 4
        assert second.checkpointer.restore() == 4
        assert_same(second.state(), state)
        assert memory == [parameter.data_ptr() for parameter in second.model.parameters()]
        assert second.loader.position == 4
        assert second.seen.position == 40
        assert second.train(3) == losses
        second.checkpointer.close()
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert store.snapshot(4).metadata["note"] == "fourth"
        tensors = store.tensors(4)
    assert tensors["model.0.weight"].role == "weight"
    assert tensors["optimizer.state.0.weight.exp_avg"].role == "exp_avg"


def test_saving_before_the_first_step_leaves_the_optimizer_alone(jobs: Jobs) -> None:
    job = Job(jobs)
    job.checkpointer.save(0)
    assert not job.optimizer.state
    weight = job.state()["model"]["0.weight"]
    losses = job.train(2)
    job.checkpointer.close()
    assert job.optimizer.state
    for _ in range(2):
        # Its optimizer state goes again: that step had none.
        again = Job(jobs)
        assert again.checkpointer.restore() == 0
        assert not again.optimizer.state
        assert torch.equal(again.state()["model"]["0.weight"], weight)
        assert again.train(2) == losses
        again.checkpointer.close()
        bitsnap.stop_agent(job=jobs.job, timeout=20)
    converted = jobs.path.with_suffix(".pt")
    subprocess.run([find_program(), "convert", f"{jobs.path}@0", converted], check=True, stdout=subprocess.DEVNULL)
    assert torch.load(converted, weights_only=True)["model"].keys() == job.state()["model"].keys()


def test_adams_numbers_and_masters_are_found(jobs: Jobs) -> None:
    job = Job(jobs, torch.bfloat16, hidden=4096, settings="bounded")
    job.train(3)
    save = job.checkpointer.save(1)
    assert save is not None
    assert save.wait_persisted()
    job.checkpointer.close()
    with bitsnap.Store(jobs.path, read_only=True) as store:
        loaded = store.load()
    state = job.state()
    assert_same(loaded["model"]["0.weight"], state["model"]["0.weight"])
    master = loaded["optimizer"]["state"]["0.weight"]["master"]
    assert not torch.equal(master, state["optimizer"]["0.weight"]["master"])
    assert torch.equal(master.bfloat16(), state["model"]["0.weight"])


def test_names_are_those_of_the_model_without_wrappers(jobs: Jobs) -> None:
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch's own modules
        compiled = torch.compile(model)
    assert isinstance(compiled, nn.Module)
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    with bitsnap.torch.TrainingCheckpointer(
        jobs.path, model=compiled, optimizer=[optimizer], rng=False, job=bitsnap.JobOptions(name=jobs.job)
    ) as checkpointer:
        checkpointer.save(1)
        weight = first.weight.detach().clone()
        first.weight.data.zero_()
        checkpointer.wait()
        assert checkpointer.restore() == 1
        assert torch.equal(second.weight, weight)
    with bitsnap.Store(jobs.path, read_only=True) as store:
        state = store.load()
    model_state, optimizer_state = get_state_dict(compiled, optimizer)
    assert list(state["model"]) == ["0.weight", "1.weight"] == list(model_state)
    assert list(state["optimizer"]["state"]) == list(optimizer_state["state"])
    assert list(state["optimizer"]["state"]) == ["0.weight"]
    assert state["optimizer"]["param_groups"][0]["params"] == ["0.weight"]


def test_what_does_not_fit_is_named(jobs: Jobs) -> None:
    job = Job(jobs)
    job.train(1)
    job.checkpointer.save(1)
    job.checkpointer.close()

    def with_(model: nn.Module, **options: Any) -> bitsnap.torch.TrainingCheckpointer:
        return bitsnap.torch.TrainingCheckpointer(
            jobs.path, model=model, job=bitsnap.JobOptions(name=jobs.job), **options
        )

    narrow = nn.Sequential(nn.Linear(8, 32), nn.Dropout(), nn.Linear(32, 8), nn.BatchNorm1d(8))
    options: dict[str, Any] = {"optimizer": torch.optim.AdamW(narrow.parameters()), "scheduler": job.scheduler}
    with (
        with_(narrow, **options) as checkpointer,
        pytest.raises(
            bitsnap.InvalidArgumentError, match=r"0\.weight' has shape \[32, 8\], the checkpoint has \[64, 8\]"
        ),
    ):
        checkpointer.restore(optional=["scheduler", "dataloader", "extra"])
    without = nn.Sequential(*job.model.children())
    without[3] = nn.BatchNorm1d(8, track_running_stats=False)
    options["optimizer"] = torch.optim.AdamW(without.parameters())
    with (
        with_(without, **options) as checkpointer,
        pytest.raises(bitsnap.InvalidArgumentError, match=r"not in the training: model\.3\.num_batches_tracked"),
    ):
        checkpointer.restore(optional=["scheduler", "dataloader", "extra"])
    other = torch.optim.NAdam(job.model.parameters())
    with with_(job.model, optimizer=other) as checkpointer, pytest.raises(bitsnap.InvalidArgumentError, match="NAdam"):
        checkpointer.restore(optional=["scheduler", "dataloader", "extra"])
    groups = [{"params": list(job.model[0].parameters())}, {"params": list(job.model[2:].parameters())}]
    with (
        with_(job.model, optimizer=torch.optim.AdamW(groups)) as checkpointer,
        pytest.raises(bitsnap.InvalidArgumentError, match="2 groups of parameters, saved 1"),
    ):
        checkpointer.restore(optional=["scheduler", "dataloader", "extra"])
    with (
        with_(job.model, optimizer=torch.optim.AdamW(reversed(list(job.model.parameters())))) as checkpointer,
        pytest.raises(bitsnap.InvalidArgumentError, match="group 0 of the optimizers has other parameters"),
    ):
        checkpointer.restore(optional=["scheduler", "dataloader", "extra"])
    optimizer = torch.optim.AdamW(job.model.parameters())
    with (
        with_(job.model, optimizer=optimizer) as checkpointer,
        pytest.raises(bitsnap.InvalidArgumentError, match="0 schedulers, saved 1"),
    ):
        checkpointer.restore(optional=["dataloader", "extra"])
    with (
        with_(job.model, optimizer=optimizer, scheduler=job.scheduler, extra={"worst": 1}) as checkpointer,
        pytest.raises(bitsnap.InvalidArgumentError, match=r"extra has .*worst.*, the checkpoint .*best"),
    ):
        checkpointer.restore(optional=["dataloader"])
    stranger = torch.optim.SGD([torch.zeros(3, requires_grad=True)], momentum=0.9)
    with (
        with_(job.model, optimizer=stranger) as checkpointer,
        pytest.raises(bitsnap.InvalidArgumentError, match=r"shape \[3\] is not in the model"),
    ):
        checkpointer.save(2)
    with pytest.raises(TypeError, match="scheduler must have state_dict"):
        with_(job.model, scheduler=3)
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module"):
        with_(job.model.parameters())  # type: ignore[arg-type]
    for name in ("a.b", "keys", "_orig_mod"):
        with pytest.raises(bitsnap.InvalidArgumentError, match=rf"model: .*{name}"):
            with_({name: job.model})  # type: ignore[arg-type]


class WithExtraState(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 4)
        self.register_buffer("my_extra_state", torch.zeros(2))
        self.scale = torch.ones(3)

    def get_extra_state(self) -> dict[str, Any]:
        return {"scale": self.scale}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.scale = state["scale"]


def test_extra_states_of_modules_come_back(jobs: Jobs) -> None:
    model = nn.Sequential(WithExtraState())
    layer = model[0]
    assert isinstance(layer, WithExtraState)
    layer.scale = torch.full((3,), 2.0)
    layer.get_buffer("my_extra_state").fill_(5)
    with bitsnap.torch.TrainingCheckpointer(
        jobs.path, model=model, job=bitsnap.JobOptions(name=jobs.job)
    ) as checkpointer:
        checkpointer.save(1)
        checkpointer.wait()
        layer.scale = torch.zeros(3)
        layer.get_buffer("my_extra_state").zero_()
        assert checkpointer.restore() == 1
    assert layer.scale.tolist() == [2, 2, 2]
    assert layer.get_buffer("my_extra_state").tolist() == [5, 5]


def test_parameters_get_their_states_one_by_one(jobs: Jobs) -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizer = torch.optim.Adam(first.parameters())
    model = nn.Sequential(first, second)
    options: dict[str, Any] = {"model": model, "optimizer": optimizer, "job": bitsnap.JobOptions(name=jobs.job)}
    with bitsnap.torch.TrainingCheckpointer(jobs.path, **options) as checkpointer:
        # Layers that come later, also where others were.
        for step, layer in enumerate((second, nn.Linear(4, 4))):
            model[1] = layer
            if step == 1:
                optimizer.param_groups.pop()
            optimizer.add_param_group({"params": list(layer.parameters())})
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            checkpointer.save(step)
        checkpointer.wait()
        moments = [optimizer.state[parameter]["exp_avg"].clone() for parameter in model.parameters()]
        del optimizer.state[next(model[1].parameters())]
        assert checkpointer.restore() == 1
    restored = [optimizer.state[parameter]["exp_avg"] for parameter in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(restored, moments, strict=True))
    with bitsnap.Store(jobs.path, read_only=True) as store:
        groups = store.load(1)["optimizer"]["param_groups"]
    assert [group["params"] for group in groups] == [["0.weight", "0.bias"], ["1.weight", "1.bias"]]


def test_layers_may_be_frozen_and_thawed_at_a_restart(jobs: Jobs) -> None:
    def with_(model: nn.Module, parameters: Any) -> tuple[bitsnap.torch.TrainingCheckpointer, torch.optim.Optimizer]:
        optimizer = torch.optim.Adam(parameters)
        job = bitsnap.JobOptions(name=jobs.job)
        return bitsnap.torch.TrainingCheckpointer(jobs.path, model=model, optimizer=optimizer, job=job), optimizer

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    def layers() -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    model = layers()
    checkpointer, optimizer = with_(model, model.parameters())
    with checkpointer:
        step(model, optimizer)
        checkpointer.save(1)
        checkpointer.wait()
    frozen = layers()
    frozen[0].requires_grad_(False)
    # The optimizer may have the frozen parameters or not.
    for parameters in (frozen.parameters(), frozen[1].parameters()):
        checkpointer, other = with_(frozen, parameters)
        with checkpointer:
            with pytest.warns(bitsnap.RestoreWarning, match=r"not restored: 0\.bias, 0\.weight$"):
                assert checkpointer.restore() == 1
            assert_same(frozen.state_dict(), model.state_dict())
            assert len(other.state) == 2
            restored, saved = (it.get_parameter("1.weight") for it in (frozen, model))
            assert torch.equal(other.state[restored]["exp_avg"], optimizer.state[saved]["exp_avg"])
            step(frozen, other)
    with with_(frozen, frozen[1].parameters())[0] as checkpointer:
        checkpointer.save(2)
        checkpointer.wait()
    thawed = layers()
    checkpointer, other = with_(thawed, thawed.parameters())
    with checkpointer:
        with pytest.warns(bitsnap.RestoreWarning, match=r"begin without state: 0\.bias, 0\.weight$"):
            assert checkpointer.restore() == 2
        assert_same(thawed.state_dict(), frozen.state_dict())
        step(thawed, other)
        # Those that are left out and still trained are an error.
    with (
        with_(thawed, thawed[0].parameters())[0] as checkpointer,
        pytest.raises(bitsnap.InvalidArgumentError, match=r"group 0 .* differing in .*1\.bias"),
    ):
        checkpointer.restore()
