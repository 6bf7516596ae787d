"""Names that a checkpoint gives to files: each is checked here before it becomes a part of a path."""

from __future__ import annotations

import os

from bitsnap._arguments.options import PathLike
from bitsnap.errors import CorruptError

_LONGEST_NAME = 255  # bytes, of Linux's file systems


def plain_name(name: object, path: PathLike) -> str:
    """The name, which is that of a file in a folder and leads nowhere else.

    Args:
        name: what the checkpoint says.
        path: of the checkpoint, for the error.

    Raises:
        CorruptError: it is no such name.
    """
    if not isinstance(name, str) or name in ("", ".", "..") or {"/", "\0"} & set(name) or _is_no_file_name(name):
        raise CorruptError(f"{os.fspath(path)}: expected the name of a file in the checkpoint's folder, found {name!r}")
    return name


def _is_no_file_name(name: str) -> bool:
    try:
        return len(os.fsencode(name)) > _LONGEST_NAME
    except UnicodeEncodeError:  # a name that no file can have
        return True


def plain_path(name: object, path: PathLike) -> str:
    """A relative path of such names with `/` between them. Raises as plain_name() does."""
    parts = name.split("/") if isinstance(name, str) else [name]
    return "/".join(plain_name(part, path) for part in parts)
