"""Types of arguments that several functions have, and paths."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal, SupportsIndex, TypeAlias

from bitsnap._arguments.checks import invalid
from bitsnap.errors import ExistsError, UnsupportedError

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
