"""References: small JSON files that stand for a checkpoint of a run, where a framework names checkpoints by paths.

A reference names the run by a relative path and by its id, so that both may move together, but not the wrong run be
read. Only one process may write to a reference.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from bitsnap._arguments.durable_files import is_temporary, unlink, write_durably
from bitsnap._arguments.options import PathLike, local_path, native_path
from bitsnap._base.text import parse_json
from bitsnap._bitsnap import is_store
from bitsnap.errors import CorruptError, NotFoundError, RetentionWarning, UnsupportedError

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
        warnings.warn(what, RetentionWarning, stacklevel=5)


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
