"""Types of arguments that several functions have, and paths."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal, SupportsIndex, TypeAlias

from bitsnap._arguments import invalid
from bitsnap.errors import ExistsError

PathLike: TypeAlias = str | os.PathLike[str]
Role: TypeAlias = Literal["weight", "master", "exp_avg", "exp_avg_sq", "other"]
# The masters of weights, by name: a master, or a tuple of it and the element in it where the weight begins.
Masters: TypeAlias = Mapping[str, str | tuple[str, SupportsIndex]]
# Called with (done bytes, total bytes) on any thread; False cancels.
Progress: TypeAlias = Callable[[int, int], object]
# Files or directories that are searched for bases.
Bases: TypeAlias = PathLike | Iterable[PathLike]


def native_path(path: PathLike) -> bytes:
    native = os.fsencode(path)
    if b"\0" in native:
        raise invalid("path", f"must not contain a null character: {native!r}")
    return native


def absolute_path(path: PathLike, name: str) -> Path:
    """Absolute, so that a later change of the working directory has no effect."""
    text = os.fsdecode(path)
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
