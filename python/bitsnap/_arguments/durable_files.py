"""Small files that exist completely or not at all, also after a crash: written elsewhere, synced and renamed."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bitsnap.errors import NotFoundError

# A name of its own, not one made of the file's, which may be as long as a name can be.
_TEMPORARY = re.compile(r"\.bitsnap-[0-9a-f]{16}\.tmp")
# No small file takes this long to write, in seconds.
_STALE_SECONDS = 3600.0


def write_durably(path: Path, content: bytes) -> None:
    """Makes or replaces a file. After a crash, it has the old content or the new one."""
    with writing(path) as file:
        file.write(content)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name, and replaces what has it, when the block ends without an error.

    Raises:
        NotFoundError: the folder does not exist.
    """
    try:
        _remove_stale(path.parent)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"{path.parent}: there is no such directory, in which {path.name!r} is to be") from None
    temporary = path.parent / f".bitsnap-{secrets.token_hex(8)}.tmp"
    # Neither through a link, nor into a file or pipe that another process has put there.
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def unlink(path: Path) -> None:
    """Deletes a file, if it exists, also if the machine crashes then."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_temporary(name: str) -> bool:
    """Whether a file of this name is left of a write_durably() that did not end."""
    return _TEMPORARY.fullmatch(name) is not None


def _remove_stale(folder: Path) -> None:
    """Removes what killed processes have left."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if is_temporary(entry.name)]
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            if time.time() - (folder / name).lstat().st_mtime > _STALE_SECONDS:
                (folder / name).unlink()
