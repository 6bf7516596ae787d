"""States as JSON, exact to the bit: what the expectations of golden snapshots are made of.

Tensors stand with dtype, shape and a digest of their bytes, so that a description is small and any reader can make one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import xxhash

_NAMES = {
    "bool": "BOOL",
    **{f"{kind}{bits}": f"{kind[0].upper()}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)},
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "float4_e2m1fn_x2": "F4",
    "complex32": "C32",
    "complex64": "C64",
    "complex128": "C128",
}


def digest(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


def describe_tensor(kind: str, dtype: str, shape: list[int], data: bytes) -> dict[str, Any]:
    return {kind: {"dtype": dtype, "shape": shape, "bytes": len(data), "xxh3_128": digest(data)}}


def describe(value: Any, describe_other: Callable[[Any], Any] | None = None) -> Any:
    """A state as Python holds it: containers and plain values, tensors of torch, arrays and scalars of numpy.

    What is none of these, such as a reference to a tensor, is left to `describe_other`.
    """
    if isinstance(value, np.generic | np.ndarray):
        kind = "scalar" if isinstance(value, np.generic) else "array"
        return describe_tensor(kind, _NAMES[value.dtype.name], list(value.shape), value.tobytes())
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return {"int": hex(value)}
    if isinstance(value, float):
        return {"float": _bits(value)}
    if isinstance(value, complex):
        return {"complex": [_bits(value.real), _bits(value.imag)]}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [describe(item, describe_other) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[describe(key), describe(item, describe_other)] for key, item in value.items()]}
    return (describe_other or _describe_torch)(value)


def _describe_torch(value: Any) -> Any:
    import torch

    assert isinstance(value, torch.Tensor), type(value)
    name = _NAMES[str(value.dtype).removeprefix("torch.")]
    shape = list(value.shape)
    if name == "F4" and shape:
        shape[-1] *= 2  # torch counts bytes, files count elements
    flat = value.detach().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return describe_tensor("tensor", name, shape, data)


def _bits(value: float) -> str:
    return struct.pack(">d", value).hex()
