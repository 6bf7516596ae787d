"""Checks of arguments, which name the argument: TypeError for a wrong type, InvalidArgumentError for a wrong value."""

from __future__ import annotations

import math
import operator
from typing import Any, SupportsFloat, SupportsIndex

from bitsnap.errors import InvalidArgumentError

LARGEST = (1 << 64) - 1
LARGEST_COUNT = (1 << 32) - 1
# Longer waits, some decades, are cut to this one.
_LONGEST_WAIT_MS = 1 << 40


def invalid(name: str, problem: str) -> InvalidArgumentError:
    """The error for an argument of this name."""
    error = InvalidArgumentError(f"{name} {problem}")
    error.field = name
    return error


def number_of(value: SupportsIndex, name: str, largest: int = LARGEST) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if not 0 <= number <= largest:
        # Python refuses to print integers of thousands of digits.
        shown = str(number) if number.bit_length() < 100 else f"a number of {number.bit_length()} bits"
        raise invalid(name, f"must be 0 to {largest}, got {shown}")
    return number


def positive_of(value: SupportsIndex | None, name: str) -> int | None:
    if value is None:
        return None
    number = number_of(value, name)
    if number == 0:
        raise invalid(name, "must be at least 1, got 0")
    return number


def count_of(value: SupportsIndex, name: str) -> int:
    """As number_of(), but not of a bool, which is an integer to Python and a mistake here."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    return number_of(value, name)


def float_of(value: SupportsFloat, name: str) -> float:
    # float() would parse a str.
    if isinstance(value, str | bytes | bytearray | bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise invalid(name, "is too large for a float") from None


def milliseconds_of(value: Any, name: str) -> int:
    """Of an argument in seconds."""
    if isinstance(value, str | bytes | bytearray) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number of seconds, got {value!r}")
    try:
        seconds = float(value)
    except OverflowError:  # an integer
        seconds = math.inf if value > 0 else -math.inf
    if not seconds >= 0:
        raise invalid(name, f"must be a number of seconds that is not negative, got {value!r}")
    return math.ceil(min(seconds * 1000, _LONGEST_WAIT_MS))


def text_of(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got {value!r}")
    return value


def check_callable(value: Any, name: str) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be a function or None, got {value!r}")


def label_of(value: Any, name: str) -> str:
    text = text_of(value, name)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise invalid(name, f"must not have surrogates, which UTF-8 cannot hold, got {text!r}")
    return text


def labels_of(value: Any, name: str) -> list[str]:
    """A list of labels; a str is one."""
    if isinstance(value, str):
        return [label_of(value, name)]
    try:
        labels = list(value)
    except TypeError:
        raise TypeError(f"{name} must be a str or a list of them, got {value!r}") from None
    return [label_of(label, name) for label in labels]
