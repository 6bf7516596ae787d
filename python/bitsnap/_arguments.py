"""Arguments of functions: their types, and checks that name the argument.

A check raises TypeError for a wrong type and InvalidArgumentError for a wrong value.
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, SupportsFloat, SupportsIndex, TypeAlias

from bitsnap.errors import ExistsError, InvalidArgumentError, UnsupportedError

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


PathLike: TypeAlias = str | os.PathLike[str]
Role: TypeAlias = Literal["weight", "master", "exp_avg", "exp_avg_sq", "other"]
# The masters of weights, by name: a master, or a tuple of it and the element in it where the weight begins.
Masters: TypeAlias = Mapping[str, str | tuple[str, SupportsIndex]]
# Called with (done bytes, total bytes) on any thread; False cancels.
Progress: TypeAlias = Callable[[int, int], object]
# Files or directories that are searched for bases.
Bases: TypeAlias = PathLike | Iterable[PathLike]

# Of pathlib, "s3://bucket" has one slash. Other names that end in a colon may be those of local directories.
_SCHEMES = (
    "abfss?|adl|az|azure|cos|dbfs|file|ftps?|gcs|gs|hdfs|hf|https?|memory|msc|obs|oci|oss|s3[an]?|sftp|smb|ssh|tos|"
    "viewfs|wasbs?|webdav|webhdfs"
)
_URL = re.compile(rf"[a-z][a-z0-9+.-]*://|(?:{_SCHEMES}):/", re.IGNORECASE)


def is_url(path: PathLike) -> bool:
    return _URL.match(os.fsdecode(path)) is not None


def local_path(path: PathLike) -> str:
    """The path as text. What takes a path calls this before it makes the path absolute, which would hide a URL.

    Raises:
        UnsupportedError: it is a URL.
    """
    text = os.fsdecode(path)
    if is_url(text):
        raise UnsupportedError(
            f"{text}: bitsnap saves to local files only, and this is a URL; pass the path of a folder, such as one "
            "where a bucket is mounted"
        )
    return text


def native_path(path: PathLike) -> bytes:
    native = os.fsencode(local_path(path))
    if b"\0" in native:
        raise invalid("path", f"must not contain a null character: {native!r}")
    return native


def absolute_path(path: PathLike, name: str) -> Path:
    """Absolute, so that a later change of the working directory has no effect."""
    text = local_path(path)
    if not text:
        raise invalid(name, "must not be empty")
    return Path(text).absolute()


def native_target(path: PathLike, overwrite: bool) -> bytes:
    """A path to write to, refused before anything is read if it exists and must not be replaced."""
    native = native_path(path)
    if not overwrite and os.path.lexists(native):
        raise ExistsError(f"{os.fspath(path)!r} exists; overwrite=True replaces it")
    return native


def native_bases(bases: Bases) -> list[bytes]:
    if isinstance(bases, str | os.PathLike):
        return [native_path(bases)]
    return [native_path(base) for base in bases]


def same_file(a: PathLike, b: PathLike) -> bool:
    try:
        return Path(a).samefile(b)
    except OSError:
        return False


# Words of frameworks before the number of a step; "100" alone is a step, too. A number behind any other word may be
# that of something else, as in the name of a temporary directory.
_STEP = re.compile(
    r"(?:(?:global_?step|step|iteration|iter|checkpoint|ckpt|epoch)[-_=]?)?(?P<step>[0-9]{1,20})", re.IGNORECASE
)


class CheckpointId(NamedTuple):
    """The directory of a store, and a step in it; None: the path names no step."""

    run: Path
    step: int | None


def checkpoint_id_of(path: PathLike) -> CheckpointId:
    """The run and the step that a path names. Raises UnsupportedError if it is a URL."""
    whole = Path(os.path.abspath(local_path(path)))  # noqa: PTH100  resolve() would follow links
    found = _STEP.fullmatch(whole.name)
    if found is None:
        return CheckpointId(whole, None)
    return CheckpointId(whole.parent, int(found["step"]))


def may_pickle(allow_pickle: bool) -> bool:
    """Checks the argument, because a mistaken value must not allow a pickle."""
    if not isinstance(allow_pickle, bool):
        raise TypeError(f"allow_pickle must be True or False, got {allow_pickle!r}")
    return allow_pickle
