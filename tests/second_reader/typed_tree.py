"""docs/spec/typed_tree.md: the JSON of a typed tree as Python values.

A `TensorRef` stands for a tensor and refers to an entry of `tensors`. A `Typed` stands for a typed value.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from second_reader.reader_errors import require
from second_reader.strict_json import check_type, count

MAX_DEPTH = 128
MAX_PLAIN_INT = 2**53 - 1
_TENSOR_KINDS = ("tensor", "array", "scalar")
_DIGITS_AT_ONCE = 4000  # Python refuses to convert much longer ones


@dataclass(frozen=True)
class TensorRef:
    kind: str  # "tensor", "array" or "scalar"
    index: int


@dataclass(frozen=True)
class Typed:
    name: str
    content: Any


def parse_tree(value: Any, shapes: list[list[int]]) -> Any:
    """`shapes` are those of `tensors`: a reference must name one, and a scalar one of shape []."""
    return _parse(value, shapes, 1)


def _parse(value: Any, shapes: list[list[int]], depth: int) -> Any:
    require(depth <= MAX_DEPTH, f"tree: more than {MAX_DEPTH} values deep")
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int):
        require(abs(value) <= MAX_PLAIN_INT, f"tree: {value} is too large for a plain number")
        return value
    if isinstance(value, list):
        return [_parse(item, shapes, depth + 1) for item in value]
    require(len(value) == 1, f"tree: an object has the keys {sorted(value)[:4]}, not one")
    [(kind, inner)] = value.items()
    if kind == "tuple":
        return tuple(_parse(item, shapes, depth + 1) for item in check_type(inner, list, "tree: tuple"))
    if kind == "dict":
        return _parse_dict(inner, shapes, depth)
    if kind == "typed":
        require(len(check_type(inner, list, "tree: typed")) == 2, "tree: a typed value is not a name and a content")
        name = check_type(inner[0], str, "tree: name of a type")
        require(re.fullmatch(r"[A-Za-z0-9_.]{1,64}", name) is not None, f"tree: {name[:40]!r} is not a type name")
        return Typed(name, _parse(inner[1], shapes, depth + 1))
    if kind in _TENSOR_KINDS:
        index = count(inner, f"tree: {kind}")
        require(index < len(shapes), f"tree: {kind} {index} of {len(shapes)} tensors")
        require(kind != "scalar" or shapes[index] == [], f"tree: scalar {index} has shape {shapes[index]}")
        return TensorRef(kind, index)
    require(kind in _LEAVES, f"tree: unknown kind {kind!r}")
    return _LEAVES[kind](inner)


def _parse_dict(pairs: Any, shapes: list[list[int]], depth: int) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    seen = set()
    for pair in check_type(pairs, list, "tree: dict"):
        require(len(check_type(pair, list, "tree: dict entry")) == 2, "tree: a dict entry is not a pair")
        key = _parse(pair[0], shapes, depth + 1)
        identity = _identity(key)
        require(identity not in seen, f"tree: key {key!r} appears twice")
        seen.add(identity)
        result[key] = _parse(pair[1], shapes, depth + 1)
    return result


def _identity(key: Any) -> tuple[Any, ...]:
    """Equal for equal keys: the key's type and bits."""
    if isinstance(key, tuple):
        return ("tuple", *map(_identity, key))
    if isinstance(key, Typed):
        return ("typed", key.name, _identity(key.content))
    require(key is None or isinstance(key, bool | str | int | float | bytes), f"tree: {key!r} cannot be a key")
    return (type(key).__name__, struct.pack("<d", key) if isinstance(key, float) else key)


def _parse_int(text: Any) -> int:
    digits = re.fullmatch(r"(-?)([1-9][0-9]*)", check_type(text, str, "tree: int"), re.ASCII)
    require(digits is not None, f"tree: {text[:40]!r} is not a decimal integer")
    assert digits is not None
    value = 0
    for start in range(0, len(digits[2]), _DIGITS_AT_ONCE):
        piece = digits[2][start : start + _DIGITS_AT_ONCE]
        value = value * 10 ** len(piece) + int(piece)
    require(value > MAX_PLAIN_INT, f"tree: {text!r} is small enough for a plain number")
    return -value if digits[1] else value


def _parse_f64(text: Any) -> float:
    digits = check_type(text, str, "tree: f64")
    require(re.fullmatch(r"[0-9a-f]{16}", digits) is not None, f"tree: {digits[:40]!r} is not 16 hexadecimal digits")
    value: float = struct.unpack(">d", bytes.fromhex(digits))[0]
    require(not math.isfinite(value), f"tree: {digits} is a finite double")
    return value


def _parse_complex(parts: Any) -> complex:
    require(len(check_type(parts, list, "tree: complex")) == 2, "tree: a complex number is not two doubles")
    re_im = []
    for part in parts:
        if isinstance(part, dict):
            require(part.keys() == {"f64"}, "tree: a part of a complex number is not a double")
            re_im.append(_parse_f64(part["f64"]))
        else:
            re_im.append(check_type(part, float, "tree: part of a complex number"))
    return complex(*re_im)


def _parse_bytes(text: Any) -> bytes:
    try:
        value = base64.b64decode(check_type(text, str, "tree: bytes").encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        value = None
    require(value is not None and base64.b64encode(value).decode() == text, "tree: not padded base64")
    assert value is not None
    return value


_LEAVES: dict[str, Callable[[Any], Any]] = {
    "int": _parse_int,
    "f64": _parse_f64,
    "complex": _parse_complex,
    "bytes": _parse_bytes,
}
