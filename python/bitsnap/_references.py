"""References: small files of a framework's folder that lead to checkpoints of a run.

Also how small files are written, so that they exist completely or not at all after a crash, and how the names of files
that a checkpoint gives are checked before they become a part of a path.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from bitsnap._bitsnap import is_store
from bitsnap._common import PathLike, local_path, native_path, warn
from bitsnap.errors import CorruptError, ExistsError, NotFoundError, RetentionWarning, UnsupportedError

# A name of its own, not one made of the file's, which may be as long as a name can be.
_TEMPORARY = re.compile(r"\.bitsnap-[0-9a-f]{16}\.tmp")
# No small file takes this long to write, in seconds.
_STALE_SECONDS = 3600.0


def parse_json(text: str | bytes) -> Any:
    """What a text says that may come from anywhere. Raises ValueError, also if it nests deeper than Python can read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


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


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder that gets its name when the block ends without an error.

    Raises:
        ExistsError: it exists.
        NotFoundError: its parent does not.
    """
    if os.path.lexists(folder):
        raise ExistsError(f"{folder} exists: give the path of a folder to make")
    if not folder.absolute().parent.is_dir():
        raise NotFoundError(f"{folder.absolute().parent}: there is no such directory; make it, or name another folder")
    made = folder.absolute().with_name(f".bitsnap-{secrets.token_hex(8)}")
    made.mkdir()
    try:
        yield made
        made.rename(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


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


# The reference in the folder of a checkpoint, if the checkpoint is a folder.
FOLDER_REFERENCE = "bitsnap-reference.json"
# The names under which it is read: the first one that is there counts. The second one was written by earlier versions;
# it is also that of the record of a run.
FOLDER_REFERENCES = (FOLDER_REFERENCE, "bitsnap.json")
_VERSION = 0
_LARGEST_REFERENCE = 1 << 16
_BEGINNING = b'{"version": '
# How every reference begins, also if an editor has saved it again. Files of others begin with a version, too.
_REFERENCE_BEGINNING = re.compile(rb'(\xef\xbb\xbf)?\s*\{\s*"version"\s*:\s*\d+\s*,\s*"run"\s*:\s*"')
_LONGEST_BEGINNING = 256
_RUN_RECORD = b'{"store":'  # of a store
_warned: set[tuple[Path, Path]] = set()


class StepOfRun(NamedTuple):
    """Where a checkpoint is stored."""

    run: Path
    step: int


class Saved(NamedTuple):
    """One save: its step, and a random word that its metadata has, too, because a step can be removed and saved again.

    The word is empty if the framework cannot save a step of a run twice.
    """

    step: int
    word: str


class Reference(NamedTuple):
    """What a reference says: the run, and the saves to read, of which the first that is committed counts.

    `files`: digests of the framework's files that lay beside the reference when it was written, by their names; None if
    the reference does not say.
    """

    run: Path
    run_id: str
    saves: tuple[Saved, ...]
    files: Mapping[str, str] | None = None


def absolute(path: PathLike) -> Path:
    return Path(os.path.abspath(local_path(path)))  # noqa: PTH100  resolve() would follow links


def reference_in(folder: Path) -> Path:
    """The reference of a folder: the one that is read, or, if there is none, where it would be."""
    paths = [folder / name for name in FOLDER_REFERENCES]
    return next((path for path in paths if os.path.lexists(path)), paths[0])


def names_of(reference: Path) -> tuple[Path, ...]:
    """The paths at which a reference may be: two if it is that of a folder."""
    if reference.name not in FOLDER_REFERENCES:
        return (reference,)
    return tuple(reference.with_name(name) for name in FOLDER_REFERENCES)


def refer(path: Path, run: Path, run_id: str, saves: tuple[Saved, ...], files: Mapping[str, str] | None = None) -> None:
    """Writes a reference. After a crash, it is the old one or the new one.

    That of a folder takes the place of one with the name of earlier versions.
    """
    content: dict[str, object] = {
        "version": _VERSION,
        "run": os.path.relpath(absolute(run), absolute(path.parent)),
        "run_id": run_id,
        "step": saves[0].step,
    }
    if saves[0].word:
        content["save"] = saves[0].word
        content["earlier"] = saves[1:]
    if files is not None:
        content["files"] = files
    write_durably(path, json.dumps(content).encode())
    for other in names_of(path):
        with contextlib.suppress(OSError):  # a file that cannot be read may be anything
            if other != path and may_be_reference(other):
                unlink(other)


def may_be_reference(path: Path) -> bool:
    """Whether a file begins as a reference does. False if there is none, or something else, such as a pipe.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with _opened(path) as file:
            start = file.read(_LONGEST_BEGINNING)
        return start.startswith(_BEGINNING) or _REFERENCE_BEGINNING.match(start) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False


def _opened(path: Path) -> BinaryIO:
    if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe would wait for its other end
        raise FileNotFoundError
    return path.open("rb")


class Found(NamedTuple):
    """References by their paths, and what may be or hold one and cannot be read, so that it may lead to any step."""

    references: dict[Path, Reference]
    unknown: tuple[Path, ...] = ()


# Folders below that of the run are searched this deep: checkpoints may have been copied or moved.
_DEEPEST = 4
# A search begins anew if something that was there has gone, as when it is moved: it may be where the search has been.
_MOST_SEARCHES = 3


def find_references(folder: Path) -> Found:
    """The references in a folder and in those below, but not in runs. Links to folders are followed."""
    found, vanished = _search(folder)
    for _ in range(_MOST_SEARCHES - 1):
        if vanished is not None:
            found, vanished = _search(folder)
    return found if vanished is None else Found(found.references, (*found.unknown, vanished))


def _search(folder: Path) -> tuple[Found, Path | None]:
    found: dict[Path, Reference] = {}
    unknown: list[Path] = []
    vanished: Path | None = None
    seen: set[tuple[int, int]] = set()
    folders = [(folder, 0)]
    while folders:
        parent, depth = folders.pop()
        try:
            info = parent.stat()
            if (info.st_dev, info.st_ino) in seen:
                continue
            seen.add((info.st_dev, info.st_ino))
            with os.scandir(parent) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except FileNotFoundError:
            vanished = parent
            continue
        except OSError:
            unknown.append(parent)
            continue
        for entry in entries:
            path = parent / entry.name
            if _is_folder(entry):
                if depth < _DEEPEST and not is_store(native_path(path)):
                    folders.append((path, depth + 1))
            elif entry.is_symlink() or _has_size_of_reference(entry) or entry.name in FOLDER_REFERENCES:
                each = look_at(path, home=folder)
                found |= each.references
                unknown += each.unknown
                if not each.references and not os.path.lexists(path):
                    vanished = path
    return Found(found, tuple(unknown)), vanished


def _has_size_of_reference(entry: os.DirEntry[str]) -> bool:
    try:
        return len(_BEGINNING) <= entry.stat().st_size <= _LARGEST_REFERENCE
    except OSError:
        return True


def look_at(path: Path, *, home: Path | None = None) -> Found:
    """What a file is: a reference, one that cannot be read, or neither.

    Args:
        home: a link that leads nowhere within this folder leads to what was deleted; one that leads out of it may lead
            to a disk that is away. None: the path is that of a reference, which a crash may have emptied or cut.
    """
    if is_temporary(path.name):
        return Found({})
    try:
        with _opened(path) as file:
            start = file.read(_LONGEST_BEGINNING)
        if _REFERENCE_BEGINNING.match(start):
            return Found({path: reference_of(path)})
        if path.name in FOLDER_REFERENCES:
            return Found({}, () if start.startswith(_RUN_RECORD) else (path,))
        is_lost = home is None and (_BEGINNING.startswith(start.strip(b"\0")) or start.startswith(_BEGINNING))
        return Found({}, (path,) if is_lost else ())
    except (FileNotFoundError, NotADirectoryError, NotFoundError):
        return Found({}, (path,) if _leads_away(path, home) else ())
    except (CorruptError, UnsupportedError):
        return Found({}, (path,))
    except OSError as error:
        return Found({}, () if error.errno == errno.ELOOP else (path,))


def _leads_away(path: Path, home: Path | None) -> bool:
    """Whether a path is a link to nothing, out of the folder `home`."""
    try:
        if not path.is_symlink() or path.exists():
            return False
        return home is None or not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(home))
    except OSError:  # it has been replaced or deleted meanwhile
        return True


def warn_of_unknown(run: Path, unknown: Path, step: int | None = None) -> None:
    """Says once why nothing is removed from a run; or why a step is not, whose folder has lost its reference."""
    if (run, unknown) not in _warned:
        _warned.add((run, unknown))
        what = (
            f"{unknown} cannot be read or followed, and may refer to any checkpoint of {run}: none is removed until "
            "this is mended, or it is deleted"
            if step is None
            else f"{unknown} has lost its reference to step {step} of {run}, which stays until the folder is deleted"
        )
        warn(what, RetentionWarning, stacklevel=5)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def reference_of(path: Path) -> Reference:
    """What the file says.

    Raises:
        NotFoundError: there is no such file.
        CorruptError: it is damaged, or no reference.
        UnsupportedError: a newer version wrote it.
    """
    try:
        with _opened(path) as file:
            content = parse_json(file.read(_LARGEST_REFERENCE))
        version, run_id = content["version"], content["run_id"]
        run = Path(os.path.normpath(path.parent / content["run"]))
        earlier = [Saved(*each) for each in content.get("earlier", ())]
        saves = (Saved(content["step"], content.get("save", "")), *earlier)
        files = None if content.get("files") is None else dict(content["files"])
        are_digests = all(isinstance(each, str) for each in (files or {}).values())
        if (type(version), type(run_id)) != (int, str) or not all(map(is_valid, saves)) or not are_digests:
            raise ValueError("a value has the wrong type")
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file, so this is no checkpoint of bitsnap") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(f"{path}: the reference to a run is damaged: {error}") from None
    if version > _VERSION:
        raise UnsupportedError(f"{path} has version {version}; this version of bitsnap reads version {_VERSION}")
    return Reference(run, run_id, saves, files)


def reference_at(path: PathLike) -> Reference | None:
    """The reference that is the file, or that the folder has; None if there is none that can be read."""
    given = absolute(path)
    try:
        found = reference_in(given) if given.is_dir() else given
        return reference_of(found) if may_be_reference(found) else None
    except (OSError, NotFoundError, CorruptError, UnsupportedError):
        return None


def is_valid(save: Saved) -> bool:
    """Whether what was read has the types of a save."""
    return type(save.step) is int and save.step >= 0 and type(save.word) is str


def readable_reference(path: Path) -> Reference | None:
    """None if there is no readable reference."""
    try:
        return reference_of(path) if may_be_reference(path) else None
    except (NotFoundError, CorruptError, UnsupportedError):
        return None
