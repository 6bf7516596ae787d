"""Trainings in one process or several, whose tensors are divided by DDP, FSDP2, HSDP or tensor parallel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import bitsnap
import bitsnap.torch

# Weights larger than what each process saves itself, and not divisible by the number of processes.
WIDTH, HIDDEN = 66, 1200


class Net(nn.Module):
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        result: torch.Tensor = self.down(torch.relu(self.up(x)))
        return result.clone()


Divide = Callable[[nn.Module], nn.Module]


def alone(model: nn.Module) -> nn.Module:
    return model


def ddp(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model)


def sharded(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    fully_shard(model, mesh=mesh)
    return model


def fsdp(model: nn.Module) -> nn.Module:
    return sharded(model, init_device_mesh("cpu", (dist.get_world_size(),)))


def hsdp(model: nn.Module) -> nn.Module:
    return sharded(model, init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))


def tp(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def fsdp_and_tp(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return sharded(model, mesh["dp"])


class Run:
    """A training on this rank, and its checkpointer."""

    def __init__(self, path: Path, divide: Divide, job: str, **options: Any) -> None:
        torch.manual_seed(1)
        self.model = divide(Net())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        # An average of some weights, divided as they are.
        named = ((clean(name), parameter) for name, parameter in self.model.named_parameters())
        average = {name: parameter.detach().clone() for name, parameter in named if name.startswith("down")}
        self.extra: dict[str, Any] = {"seen": 0, "average": [average, {"decay": 0.5}]}
        torch.manual_seed(100 + (dist.get_rank() if dist.is_initialized() else 0))
        self.checkpointer = bitsnap.torch.TrainingCheckpointer(
            path,
            model=self.model,
            optimizer=self.optimizer,
            extra=self.extra,
            job=bitsnap.JobOptions(name=job),
            agent=bitsnap.AgentOptions(threads=1, linger=20.0),
            timeout=60,
            **options,
        )

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            x = torch.linspace(-1, 1, 8 * WIDTH).reshape(8, WIDTH)
            (self.model(x) - x).square().mean().backward()
            self.optimizer.step()
            self.extra["seen"] += 1
            average, options = self.extra["average"]
            for name, parameter in self.model.named_parameters():
                if clean(name) in average:
                    average[clean(name)].lerp_(parameter.detach(), options["decay"])

    def whole(self) -> dict[str, torch.Tensor]:
        """All tensors with their elements of all ranks."""
        tensors: dict[str, torch.Tensor] = {}
        for name, parameter in self.model.named_parameters():
            slots = self.optimizer.state[parameter]
            for key, value in {"": parameter, **slots}.items():
                tensors[f"{clean(name)}:{key}"] = full(value)
        tensors.update((f"average of {name}", full(value)) for name, value in self.extra["average"][0].items())
        return tensors


def clean(name: str) -> str:
    return name.removeprefix("module.")


def full(tensor: torch.Tensor) -> torch.Tensor:
    local = tensor.detach()
    return (local.full_tensor() if isinstance(local, DTensor) else local).clone()


def local(tensor: torch.Tensor) -> torch.Tensor:
    assert isinstance(tensor, DTensor)
    part: torch.Tensor = tensor.to_local()
    return part.detach()


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def end_agent(job: str) -> None:
    """When all ranks are here, ends the agent of their job; its saves have been stored then."""
    dist.barrier()
    if dist.get_rank() == 0:
        bitsnap.stop_agent(job=job, timeout=30)
    dist.barrier()
