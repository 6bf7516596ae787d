"""Records of a state that do not depend on its storage: one SHA-256 per value, and sizes by role.

The trainer writes the record of its state before each checkpoint; after loading, the record is computed again and
compared. It covers dtype, shape and bytes of tensors, the types of containers, the order and types of keys, and all
bits of numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ROLES = ("weight", "master", "exp_avg", "exp_avg_sq", "other")

Record = dict[str, str]


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every node of a nested state with its path, containers before their items."""
    yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from walk(item, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from walk(item, f"{path}/{index}")


def tensor_bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return memoryview(flat.numpy().data)


def _digest(value: Any) -> str:
    if isinstance(value, Tensor):
        digest = hashlib.sha256(f"{value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(tensor_bytes(value))
        return "tensor " + digest.hexdigest()
    if isinstance(value, dict):
        described = repr(list(value))
    elif isinstance(value, list | tuple):
        described = str(len(value))
    elif isinstance(value, float):
        described = value.hex()
    else:
        described = repr(value)
    return f"{type(value).__name__} " + hashlib.sha256(described.encode()).hexdigest()


def record_of(state: Any) -> Record:
    return {path: _digest(value) for path, value in walk(state)}


def tensor_count(record: Record) -> int:
    return sum(entry.startswith("tensor ") for entry in record.values())


def differences(expected: Record, found: Record) -> list[str]:
    """The paths of different values, in the order of `expected`, then the paths that only `found` has."""
    paths = [path for path, digest in expected.items() if found.get(path) != digest]
    return paths + [path for path in found if path not in expected]


def write_record(record: Record, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(record, indent=0))
    partial.replace(path)


def read_record(path: Path) -> Record:
    record: Record = json.loads(path.read_text())
    return record


def role_of(path: str) -> str:
    """The role of the value at a path of `Trainer.state()`."""
    parts = path.split("/")
    if parts[1:2] == ["model"]:
        return "weight"
    if parts[1:2] == ["master"]:
        return "master"
    return parts[-1] if parts[-1] in ("exp_avg", "exp_avg_sq") else "other"


def _plain_size(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, str | bytes):
        return len(value)
    if value is None or isinstance(value, bool):
        return 1
    return 8 if isinstance(value, int | float) else 0


def raw_bytes_by_role(state: Any) -> dict[str, int]:
    """Bytes in memory. Tied tensors count once, a number 8 bytes, and a character 1 byte."""
    sizes = dict.fromkeys(ROLES, 0)
    seen: set[tuple[int, torch.dtype, tuple[int, ...]]] = set()
    for path, value in walk(state):
        if isinstance(value, Tensor) and value.numel() > 0:
            place = (value.data_ptr(), value.dtype, tuple(value.shape))
            if place in seen:
                continue
            seen.add(place)
        sizes[role_of(path)] += _plain_size(value)
    return sizes
