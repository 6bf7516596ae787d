"""States of torch's optimizers that are one step apart: what the step explains is stored as next to nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import bitsnap

Optimizer = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Optimizer] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, foreach=False),
    "adamw foreach": lambda p: torch.optim.AdamW(p, lr=1e-4, betas=(0.9, 0.999), foreach=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=3e-4, betas=(0.9, 0.98), eps=1e-6, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, betas=(0.8, 0.99), foreach=False),
    "adam with decay": lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.01, foreach=False),
}


def model() -> torch.nn.Sequential:
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(256, 512, bias=False), torch.nn.GELU(), torch.nn.Linear(512, 64, bias=False)
    )


def train(network: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        inputs = torch.randn(16, 256)
        loss = (network(inputs) - inputs[:, :64].tanh()).square().mean()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()


def state_of(network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"model": network.state_dict(), "optimizer": optimizer.state_dict()}


def stored_ratio(snapshot: bitsnap.Snapshot, part: str) -> float:
    tensors = [tensor for tensor in snapshot.tensors() if part in tensor.name]
    return sum(tensor.size_bytes for tensor in tensors) / sum(tensor.stored_bytes for tensor in tensors)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_of_adam_is_stored_as_its_first_moment(name: str, tmp_path: Path) -> None:
    network = model()
    optimizer = OPTIMIZERS[name](list(network.parameters()))
    train(network, optimizer, 5)
    bitsnap.save(tmp_path / "5.bsnap", state_of(network, optimizer))
    train(network, optimizer, 1)
    state = state_of(network, optimizer)
    bitsnap.save(tmp_path / "6.bsnap", state, base=tmp_path / "5.bsnap")
    loaded = bitsnap.load(tmp_path / "6.bsnap")
    for key, tensor in state["model"].items():
        assert torch.equal(loaded["model"][key], tensor)
    for number, moments in state["optimizer"]["state"].items():
        for key, tensor in moments.items():
            assert torch.equal(loaded["optimizer"]["state"][number][key], tensor)
