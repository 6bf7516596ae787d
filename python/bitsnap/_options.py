"""What the functions of the package share: paths, bases, progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, SupportsIndex, TypeAlias, cast

from bitsnap._arguments import number_of, text_of
from bitsnap.errors import ExistsError, InvalidArgumentError

PathLike: TypeAlias = str | os.PathLike[str]
PolicyName: TypeAlias = Literal["lossless", "bounded", "lmc", "bitsnap", "raw"]
Objective: TypeAlias = Literal["ratio", "balanced", "speed"]
Role: TypeAlias = Literal["weight", "master", "exp_avg", "exp_avg_sq", "other"]
# Weights to their masters, by name: a master, or a tuple of it and the element in it where the weight begins.
Masters: TypeAlias = Mapping[str, str | tuple[str, SupportsIndex]]
# Called now and then with (done bytes, total bytes), on any thread; what is not False lets the work go on.
Progress: TypeAlias = Callable[[int, int], object]
# Where the bases of a file are looked for: files or directories.
Bases: TypeAlias = PathLike | Iterable[PathLike]


def given_settings(**settings: object) -> dict[str, Any]:
    """Those that are given, as the extension takes them."""
    given: dict[str, Any] = {}
    for name, value in settings.items():
        if value is None or (name == "codec" and value == ""):
            continue
        if isinstance(value, str) or name in ("policy", "objective", "base", "codec"):
            given[name] = text_of(value, name)
        elif name == "loss":
            given[name] = list(cast("Iterable[str]", value))
        else:
            given[name] = number_of(cast("SupportsIndex", value), name)
    return given


def native_path(path: PathLike) -> bytes:
    native = os.fsencode(path)
    if b"\0" in native:
        raise InvalidArgumentError(f"a path cannot hold a null character: {native!r}")
    return native


def absolute_path(path: PathLike, what: str) -> Path:
    """Absolute now, whatever the process changes its working directory to later."""
    text = os.fsdecode(path)
    if not text:
        raise InvalidArgumentError(f"the path of {what} is empty")
    return Path(text).absolute()


def native_target(path: PathLike, overwrite: bool) -> bytes:
    """A path to write to. Refuses early what would be refused when the file is made, as the error that Python has."""
    native = native_path(path)
    if not overwrite and os.path.lexists(native):
        raise ExistsError(f"{os.fspath(path)!r} exists already, and overwrite=False was given")
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
