"""Describes states as JSON, exact to the bit, for the expectations of golden snapshots.

A tensor is described by dtype, shape and a digest of its bytes, so that descriptions are small and easy to make.
"""

from __future__ import annotations

import argparse
import enum
import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from pathlib import PurePath
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

    Anything else, such as a reference to a tensor, is passed to `describe_other`.
    """
    if isinstance(value, np.generic | np.ndarray):
        kind = "scalar" if isinstance(value, np.generic) else "array"
        return describe_tensor(kind, _NAMES[value.dtype.name], list(value.shape), value.tobytes())
    typed = _typed_parts(value)
    if typed is not None:
        return {"typed": [typed[0], describe(typed[1], describe_other)]}
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
    if type(value) in (list, tuple):
        return {type(value).__name__: [describe(item, describe_other) for item in value]}
    if type(value) is dict:
        return {"dict": [[describe(part, describe_other) for part in item] for item in value.items()]}
    return (describe_other or _describe_torch)(value)


def _typed_parts(value: Any) -> tuple[str, Any] | None:
    """Name and content of a typed value, as docs/spec/typed_tree.md has them; written without bitsnap's own table."""
    if isinstance(value, OrderedDict):
        content: Any = dict(value)
        metadata = getattr(value, "_metadata", None)
        return "collections.OrderedDict", content if metadata is None else (content, metadata)
    if isinstance(value, defaultdict):
        return "collections.defaultdict", (value.default_factory and value.default_factory.__name__, dict(value))
    if isinstance(value, Counter):
        return "collections.Counter", dict(value)
    if isinstance(value, argparse.Namespace):
        return "argparse.Namespace", vars(value)
    if isinstance(value, enum.Enum):
        return "enum", (type(value).__module__, type(value).__qualname__, value.name)
    if isinstance(value, set | frozenset):
        # Right for strings and small numbers of one kind: their JSON texts are in the order of their repr.
        return type(value).__name__, tuple(sorted(value, key=repr))
    if isinstance(value, PurePath):
        return f"pathlib.{type(value).__name__}", str(value)
    if isinstance(value, datetime | time):
        date_parts = (value.year, value.month, value.day) if isinstance(value, datetime) else ()
        zone = None if value.tzinfo is None else _zone_parts(value.tzinfo)
        clock = (value.hour, value.minute, value.second, value.microsecond, value.fold, zone)
        return f"datetime.{type(value).__name__}", date_parts + clock
    if isinstance(value, date):
        return "datetime.date", (value.year, value.month, value.day)
    if isinstance(value, timedelta):
        return "datetime.timedelta", (value.days, value.seconds, value.microseconds)
    if isinstance(value, timezone):
        return "datetime.timezone", _zone_parts(value)
    name = f"{type(value).__module__}.{type(value).__name__}"
    if name == "torch.Size":
        return name, tuple(value)
    if name in ("torch.dtype", "torch.device"):
        return name, str(value).removeprefix("torch.")
    return None


def _zone_parts(zone: tzinfo) -> tuple[Any, ...]:
    offset = zone.utcoffset(None)
    assert offset is not None
    name = zone.tzname(None)
    named = () if name == timezone(offset).tzname(None) else (name,)
    return (offset.days, offset.seconds, offset.microseconds, *named)


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
