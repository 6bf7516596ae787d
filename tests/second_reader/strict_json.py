"""JSON as docs/spec/snapshot.md requires it (UTF-8, RFC 8259, no repeated keys), and typed access to its values.

A number without fraction and exponent is an `int`, any other a `float`: the typed tree tells them apart.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn, TypeVar

from second_reader.reader_errors import Corrupt, Unsupported, require

T = TypeVar("T")
MAX_U64 = 2**64 - 1
MAX_NESTING = 512


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    require(len(members) == len(pairs), "a JSON object repeats a key")
    return members


def _finite(text: str) -> float:
    value = float(text)
    require(math.isfinite(value), f"number {text[:40]} is out of the range of a double")
    return value


def _no_constant(text: str) -> NoReturn:
    raise Corrupt(f"{text} is not JSON")


def parse(data: bytes, where: str) -> Any:
    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"{where}: not JSON: {error}") from error
    _check_items(value, where)
    return value


def _check_items(value: Any, where: str) -> None:
    """Rejects lone surrogates in strings, and arrays and objects that nest too deep."""
    pending = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        require(depth <= MAX_NESTING or not isinstance(item, list | dict), f"{where}: nested too deep")
        if isinstance(item, str):
            require(not any("\ud800" <= c <= "\udfff" for c in item), f"{where}: a string holds a lone surrogate")
        elif isinstance(item, list):
            pending += [(inner, depth + 1) for inner in item]
        elif isinstance(item, dict):
            pending += [(inner, depth + 1) for inner in (*item.keys(), *item.values())]


def check_type(value: Any, kind: type[T], where: str) -> T:
    """`value`, if its type is exactly `kind`: a boolean is not an integer."""
    require(type(value) is kind, f"{where}: expected {kind.__name__}, found {type(value).__name__}")
    return value  # type: ignore[no-any-return]


def count(value: Any, where: str, limit: int = MAX_U64) -> int:
    number = check_type(value, int, where)
    require(0 <= number <= limit, f"{where}: {number} is outside 0 to {limit}")
    return number


def counts(value: Any, where: str, limit: int = MAX_U64) -> list[int]:
    return [count(item, where, limit) for item in check_type(value, list, where)]


def members(value: Any, where: str, required: set[str], optional: set[str], *, closed: bool) -> dict[str, Any]:
    """The object `value`. An unknown key needs a newer reader in a closed object, and is ignored in others."""
    found = check_type(value, dict, where)
    missing = required - found.keys()
    require(not missing, f"{where}: {sorted(missing)} missing")
    unknown = found.keys() - required - optional
    if closed and unknown:
        raise Unsupported(f"{where}: unknown keys {sorted(unknown)}")
    return found
