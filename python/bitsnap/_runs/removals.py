"""References that a framework has deleted while the checkpoint that takes their place was not committed yet.

If agent and training die together, that checkpoint is lost. So the reference stays until it is committed, and a file of
the run lists it for the next training, because the framework does not delete it a second time (docs/spec/reference.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bitsnap._base import parse_json
from bitsnap._references import Saved, is_valid, plain_path, reference_of, unlink, write_durably
from bitsnap.errors import CorruptError, NotFoundError, UnsupportedError

_FILE = "removals.json"
_VERSION = 0


class _Removal(NamedTuple):
    name: str  # the path of the reference, relative to the parent of the run
    save: Saved  # what it leads to
    until: Saved


def postpone(run: Path, path: Path, until: Saved) -> bool:
    """Notes that a reference goes when `until` is committed, and with it those that were to go with its own save.

    Returns False if the path is a link, has no readable reference, or does not lie beside the run.
    """
    saved = _saved_at(path)
    name = os.path.relpath(path, run.parent)
    if saved is None or not _is_plain(name):
        return False
    waiting = [each._replace(until=until) if each.until == saved else each for each in _read(run)]
    _write(run, [*(each for each in waiting if each.name != name), _Removal(name, saved, until)])
    return True


def finish(run: Path, is_committed: Callable[[Saved], bool], *, is_last: bool = False) -> None:
    """Removes the references whose time has come, unless their paths have got another one since.

    `is_last`: what is not committed now will never be, and those references stay for good.
    """
    waiting = _read(run)
    ended = [each for each in waiting if is_committed(each.until)]
    for each in ended:
        path = run.parent / each.name
        if _saved_at(path) == each.save:
            unlink(path)
    if is_last:
        unlink(run / _FILE)
    elif ended:
        _write(run, [each for each in waiting if each not in ended])


def _saved_at(path: Path) -> Saved | None:
    try:
        return None if path.is_symlink() else reference_of(path).saves[0]
    except (OSError, NotFoundError, CorruptError, UnsupportedError):
        return None


def _read(run: Path) -> list[_Removal]:
    """Of a damaged file nothing: then the references stay."""
    try:
        content = parse_json((run / _FILE).read_bytes())
        listed = content["removals"] if content["version"] == _VERSION else []
        found = [_Removal(each["path"], Saved(*each["save"]), Saved(*each["until"])) for each in listed]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [each for each in found if _is_plain(each.name) and is_valid(each.save) and is_valid(each.until)]


def _is_plain(name: object) -> bool:
    try:
        return plain_path(name, _FILE) == name
    except CorruptError:
        return False


def _write(run: Path, removals: list[_Removal]) -> None:
    content = {
        "version": _VERSION,
        "removals": [{"path": each.name, "save": each.save, "until": each.until} for each in removals],
    }
    write_durably(run / _FILE, json.dumps(content).encode())
