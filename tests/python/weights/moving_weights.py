"""Versions of weights for tests: what an update changes, and what the bytes of all tensors are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from python.same_bits import bits, random_bits

DTYPES = [
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float32,
    torch.float64,
    torch.int64,
    torch.int8,
    torch.bool,
    torch.complex64,
]


def changed(rng: np.random.Generator, tensor: torch.Tensor, share: float = 0.02) -> torch.Tensor:
    """A copy with the lowest bit of some elements flipped, of one at least."""
    elements = np.frombuffer(bits(tensor), f"<u{tensor.element_size()}").copy()
    places = rng.choice(elements.size, max(1, int(elements.size * share)), replace=False)
    elements[places] ^= 1
    return torch.from_numpy(elements.view(np.uint8)).view(tensor.dtype).reshape(tensor.shape)


def all_dtypes(rng: np.random.Generator, shape: tuple[int, ...] = (70, 300)) -> dict[str, torch.Tensor]:
    return {str(dtype): random_bits(rng, dtype, shape) for dtype in DTYPES}


def updated(rng: np.random.Generator, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A copy of the weights in which each tensor has changed."""
    return {name: changed(rng, tensor) for name, tensor in weights.items()}


def copy_of(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in weights.items()}


def versions(count: int, seed: int = 1) -> list[dict[str, torch.Tensor]]:
    """Weights of several slabs and dtypes, and what updates make of them."""
    rng = np.random.default_rng(seed)
    found = [
        {
            "embed": random_bits(rng, torch.bfloat16, (500, 700)),
            "norm": random_bits(rng, torch.float32, (300,)),
            "frozen": random_bits(rng, torch.bfloat16, (50, 60)),
            "head": random_bits(rng, torch.bfloat16, (200, 300)),
        }
    ]
    for _ in range(count - 1):
        last = found[-1]
        found.append(updated(rng, last) | {"frozen": last["frozen"].clone()})
    return found


def all_bits(weights: Mapping[str, Any] | torch.nn.Module) -> dict[str, bytes]:
    named = weights.state_dict() if isinstance(weights, torch.nn.Module) else weights
    return {name: bits(value) for name, value in named.items()}


def wrong_base(weights: Any, patch: bytes, **options: Any) -> str:
    """The message with which the patch is refused as one for other weights; nothing has changed."""
    before = all_bits(weights)
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.apply_patch(weights, patch, **options)
    assert caught.value.code == "wrong_base"
    assert all_bits(weights) == before
    return str(caught.value)
