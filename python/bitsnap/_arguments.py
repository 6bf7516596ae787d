"""Arguments as the extension takes them: TypeError for what is of another type, InvalidArgumentError for a wrong value.

The message names the argument. To be called before anything is done.
"""

from __future__ import annotations

import math
import operator
from typing import Any, SupportsIndex

from bitsnap.errors import InvalidArgumentError

LARGEST = (1 << 64) - 1


def number_of(value: SupportsIndex, name: str, largest: int = LARGEST) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is an integer, not {value!r}") from None
    if not 0 <= number <= largest:
        # Python prints no numbers of thousands of digits, and people read none of hundreds.
        shown = str(number) if number.bit_length() < 100 else f"a number of {number.bit_length()} bits"
        raise InvalidArgumentError(f"{name} is an integer from 0 to {largest}, not {shown}")
    return number


def positive_of(value: SupportsIndex | None, name: str) -> int | None:
    if value is None:
        return None
    number = number_of(value, name)
    if number == 0:
        raise InvalidArgumentError(f"{name} is an integer from 1 on, not 0")
    return number


def seconds_of(value: Any, name: str) -> float:
    # float() would read strings.
    if isinstance(value, str | bytes | bytearray) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} is a number of seconds, not {value!r}")
    try:
        seconds = float(value)
    except OverflowError:  # of an integer
        seconds = math.inf if value > 0 else -math.inf
    if not seconds >= 0:
        raise InvalidArgumentError(f"{name} is a number of seconds from 0 on, not {value!r}")
    return seconds


def text_of(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is a str, not {value!r}")
    return value


def check_callable(value: Any, name: str) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"{name} is a function or None, not {value!r}")
