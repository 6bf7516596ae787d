"""Comparison of states by type and by bits, never by value: NaNs, signed zeros and dtypes count."""

from __future__ import annotations

import argparse
import struct
from collections import deque
from typing import Any

import numpy as np
import torch


def bits(value: Any) -> bytes:
    """The bytes of a tensor, array or numpy scalar in row-major order."""
    if isinstance(value, torch.Tensor):
        # Through numpy: torch's own copies hang in a forked child of a process that has used OpenMP.
        plain = value.detach().cpu().resolve_conj().resolve_neg()
        integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        return plain.view(integers.get(plain.element_size(), plain.dtype)).numpy().tobytes()
    return np.asarray(value).astype(np.asarray(value).dtype.newbyteorder("<")).tobytes()


def assert_same(actual: Any, expected: Any, where: str = "state") -> None:
    """Fails unless both are the same tree of the same types, floats and tensors bit for bit."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(actual, torch.Tensor), where
        assert actual.dtype == expected.dtype, where
        assert actual.shape == expected.shape, where
        assert bits(actual) == bits(expected), where
        return
    assert type(actual) is type(expected), f"{where}: {type(actual)} is not {type(expected)}"
    if isinstance(expected, np.ndarray | np.generic):
        assert actual.dtype == expected.dtype.newbyteorder("="), where
        assert actual.shape == expected.shape, where
        assert bits(actual) == bits(expected), where
    elif isinstance(expected, argparse.Namespace):
        assert_same(vars(actual), vars(expected), where)
    elif isinstance(expected, set | frozenset):
        typed = [sorted((type(item).__qualname__, repr(item)) for item in each) for each in (actual, expected)]
        assert typed[0] == typed[1], where
    elif isinstance(expected, dict):
        assert_same(getattr(actual, "_metadata", None), getattr(expected, "_metadata", None), f"{where}._metadata")
        assert getattr(actual, "default_factory", None) is getattr(expected, "default_factory", None), where
        assert len(actual) == len(expected), where
        for (actual_key, actual_item), (key, item) in zip(actual.items(), expected.items(), strict=True):
            assert_same(actual_key, key, f"a key of {where}")
            assert_same(actual_item, item, f"{where}[{key!r}]")
    elif isinstance(expected, list | tuple | deque):
        assert getattr(actual, "maxlen", None) == getattr(expected, "maxlen", None), where
        assert len(actual) == len(expected), where
        for i, item in enumerate(expected):
            assert_same(actual[i], item, f"{where}[{i}]")
    elif isinstance(expected, float):
        assert struct.pack("<d", actual) == struct.pack("<d", expected), where
    elif isinstance(expected, complex):
        assert_same(actual.real, expected.real, where)
        assert_same(actual.imag, expected.imag, where)
    else:
        assert actual == expected, where


def random_bits(rng: np.random.Generator, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of any bit patterns, NaNs with payloads among them."""
    if dtype == torch.bool:
        return torch.from_numpy(rng.integers(0, 2, shape, np.uint8)).view(torch.bool)
    item = torch.empty((), dtype=dtype).element_size()
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(rng.integers(0, 256, count * item, np.uint8)).view(dtype).reshape(shape)
