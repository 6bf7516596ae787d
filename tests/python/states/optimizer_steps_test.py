"""States of torch's optimizers that are one step apart: what the step explains is stored as next to nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import bitsnap
from cli.command_line import run

Optimizer = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Optimizer] = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, foreach=False),
    "adamw foreach": lambda p: torch.optim.AdamW(p, lr=1e-4, betas=(0.9, 0.999), foreach=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=3e-4, betas=(0.9, 0.98), eps=1e-6, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, betas=(0.8, 0.99), foreach=False),
    "adam with decay": lambda p: torch.optim.Adam(p, lr=1e-3, weight_decay=0.01, foreach=False),
    "adam with amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-3, amsgrad=True, foreach=False),
    "radam": lambda p: torch.optim.RAdam(p, lr=1e-3, betas=(0.9, 0.95), foreach=False),
    "sgd with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=False),
}

# They round in different places.
IMPLEMENTATIONS: dict[str, Optimizer] = {
    "default": lambda p: torch.optim.AdamW(p, lr=1e-4),
    "foreach": lambda p: torch.optim.AdamW(p, lr=1e-4, foreach=True),
    "loop": lambda p: torch.optim.AdamW(p, lr=1e-4, foreach=False),
    "fused": lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True),
}


def model() -> torch.nn.Sequential:
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(256, 512, bias=False), torch.nn.GELU(), torch.nn.Linear(512, 64, bias=False)
    )


def train(
    network: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int, dtype: torch.dtype = torch.float32
) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        inputs = torch.randn(16, 256, dtype=dtype)
        loss = (network(inputs) - inputs[:, :64].tanh()).square().mean()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()


def state_of(network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"model": network.state_dict(), "optimizer": optimizer.state_dict()}


def codecs_of(path: Path) -> dict[str, str]:
    """By the names of the tensors that have chunks of their own."""
    printed = json.loads(run("inspect", path, "--json").stdout)
    return {tensor["name"]: tensor["codec"] for tensor in printed["tensors"] if "codec" in tensor}


def saved_step(name: str, folder: Path) -> tuple[dict[str, Any], Path]:
    """A state and its file, coded against the state one step earlier."""
    folder.mkdir(exist_ok=True)
    network = model()
    optimizer = OPTIMIZERS[name](list(network.parameters()))
    train(network, optimizer, 5)
    bitsnap.save(folder / "5.bsnap", state_of(network, optimizer))
    train(network, optimizer, 1)
    state = state_of(network, optimizer)
    bitsnap.save(folder / "6.bsnap", state, base=folder / "5.bsnap")
    return state, folder / "6.bsnap"


def assert_equal_states(found: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_equal_states(found[key], value)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal_states(one, other)
    else:
        assert found == expected


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_a_step_made_is_found_and_given_back(name: str, tmp_path: Path) -> None:
    state, path = saved_step(name, tmp_path)
    assert_equal_states(bitsnap.load(path), state)
    codecs = codecs_of(path)
    for tensor, codec in codecs.items():
        made = tensor.endswith(".exp_avg_sq") or tensor.startswith("model.")
        assert ("optimizer_step" in codec) == made, f"{tensor}: {codec}"
    assert any(tensor.startswith("model.") for tensor in codecs)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_step_wholly_in_bf16_is_found_and_given_back(implementation: str, tmp_path: Path) -> None:
    network = model().to(torch.bfloat16)
    optimizer = IMPLEMENTATIONS[implementation](list(network.parameters()))
    train(network, optimizer, 5, torch.bfloat16)
    bitsnap.save(tmp_path / "5.bsnap", state_of(network, optimizer))
    train(network, optimizer, 1, torch.bfloat16)
    state = state_of(network, optimizer)
    bitsnap.save(tmp_path / "6.bsnap", state, base=tmp_path / "5.bsnap", settings=bitsnap.Settings(objective="ratio"))
    assert_equal_states(bitsnap.load(tmp_path / "6.bsnap"), state)
    for tensor, codec in codecs_of(tmp_path / "6.bsnap").items():
        made = tensor.endswith(".exp_avg_sq") or tensor.startswith("model.")
        assert ("optimizer_step" in codec) == made, f"{tensor}: {codec}"


def test_a_step_is_given_back_where_subnormal_numbers_are_flushed(tmp_path: Path) -> None:
    state, path = saved_step("adamw", tmp_path)
    written = path.read_bytes()
    assert torch.set_flush_denormal(True)
    try:
        assert_equal_states(bitsnap.load(path), state)
        again, path = saved_step("adamw", tmp_path / "again")
    finally:
        torch.set_flush_denormal(False)
    assert_equal_states(again, state)
    assert path.read_bytes() == written
