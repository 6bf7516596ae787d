"""The files of a framework beside a reference, which say whose checkpoint a folder holds, and references that it has
deleted.

Frameworks may save over a folder of ours, and we over theirs. Times do not tell which came last: copies change them.
A reference has digests of the framework's files that lay beside it when it was written.

A framework may delete a reference while the checkpoint that takes its place is not committed yet. If agent and training
die together, that checkpoint is lost. So the reference stays until it is committed, and a file of the run lists it for
the next training, because the framework does not delete it a second time (docs/spec/reference.md).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bitsnap._references import (
    FOLDER_REFERENCES,
    Saved,
    is_temporary,
    is_valid,
    parse_json,
    plain_path,
    readable_reference,
    reference_in,
    unlink,
    write_durably,
)
from bitsnap.errors import CorruptError, InvalidArgumentError

# What Transformers and Accelerate write without bitsnap: optimizers and schedulers, and models.
_STATES = re.compile(r"(optimizer|scheduler)(_[0-9]+)?\.(pt|bin)")
_MODELS = re.compile(r"(model|pytorch_model|adapter_model)([_.-].*)?\.(safetensors|bin)")
_EITHER = re.compile(f"{_STATES.pattern}|{_MODELS.pattern}")
# What Megatron-LM and Transformers write into a folder after its reference.
_LAST = ("metadata.json", "trainer_state.json")
# Larger files are hashed in part: the first bytes of every piece, and the last ones of the file.
_WHOLE_BYTES = 64 << 20
_PIECE_BYTES = 1 << 16
_HASHED_BYTES = 1 << 12
# A stub stands for a file that a framework would miss without a word: a pickle that names what does not exist, so that
# torch.load() fails and says this.
STUB = b"cbitsnap.transformers.use(trainer)\nloads this checkpoint. Without it, the optimizer would start anew\n."


def is_stub(path: Path) -> bool:
    if not path.is_file():  # to open a pipe would wait for its other end
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(STUB) + 1) == STUB
    except OSError:
        return False


def digests_of(folder: Path) -> dict[str, str]:
    """Digests of the framework's files in a folder, by their names."""
    return {path.name: _digest(path) for path in _files(folder, _EITHER)}


def is_saved_over(folder: Path, recorded: Mapping[str, str] | None) -> bool:
    """Whether a framework has saved its own checkpoint over the folder since its reference was written.

    Args:
        recorded: what digests_of() was then; None if the reference does not say.

    Raises:
        InvalidArgumentError: it cannot be told.
    """
    # What lies there is compared, and not what has gone: files are deleted to save space.
    digests = digests_of(folder)
    if recorded is None:
        states = [name for name in digests if _STATES.fullmatch(name)]
        if states:
            raise _undecided(folder, states)
        return False  # the model lies beside the reference in either case
    changed = [name for name, digest in digests.items() if recorded.get(name) != digest]
    has_new_model = any(_MODELS.fullmatch(name) for name in changed)
    has_model = any(_MODELS.fullmatch(name) for name in digests)
    if any(_STATES.fullmatch(name) for name in changed) and (has_new_model or not has_model):
        return True
    if changed:
        raise _undecided(folder, changed)
    return False


def _undecided(folder: Path, changed: Iterable[str]) -> InvalidArgumentError:
    """The error of a folder that may have files of two different steps."""
    return InvalidArgumentError(
        f"{folder}: {', '.join(sorted(changed))} may have changed after bitsnap saved the checkpoint, and the rest did "
        f"not, so they may be of two different steps. Move {reference_in(folder).name} away to load the framework's "
        "files alone, or these files to load what bitsnap saved"
    )


def has_states(folder: Path) -> bool:
    """Whether the framework's own optimizer or scheduler is in the folder."""
    return bool(_files(folder, _STATES))


def has_stubs(folder: Path) -> bool:
    return folder.is_dir() and any(_STATES.fullmatch(path.name) and is_stub(path) for path in folder.iterdir())


def is_complete(folder: Path) -> bool:
    """Whether a folder has what a framework writes after the reference, and no checkpoint of the framework's own.

    False of a framework that writes nothing.
    """
    return any((folder / name).is_file() for name in _LAST) and not has_states(folder) and not _is_torch_dist(folder)


def _is_torch_dist(folder: Path) -> bool:
    return (folder / ".metadata").is_file()


def carried_files(folder: Path, *, has_model: bool) -> dict[str, Any]:
    """What a checkpoint holds of its folder if the run has a copy: the bytes of the files, as arrays, by their paths.

    Without those that follow from the checkpoint: the reference and, if it `has_model`, those of the model.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        is_left_out = name in FOLDER_REFERENCES or is_temporary(path.name) or (has_model and _MODELS.fullmatch(name))
        is_state = _STATES.fullmatch(name) and not is_stub(path)  # which the checkpoint takes the place of
        if path.is_file() and not is_left_out and not is_state:
            found[name] = np.fromfile(path, np.uint8)
    return found


def write_carried(files: Mapping[str, Any], folder: Path, checkpoint: Path) -> None:
    """Writes what carried_files() returned. Raises CorruptError if the `checkpoint` names a file outside the folder."""
    for name, content in files.items():
        path = folder / plain_path(name, checkpoint)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(np.asarray(content, np.uint8).tobytes())


def remove_states(folder: Path) -> None:
    """Deletes the framework's own optimizers and schedulers, but for stubs."""
    for path in _files(folder, _STATES):
        path.unlink(missing_ok=True)


def _files(folder: Path, names: re.Pattern[str]) -> list[Path]:
    paths = sorted(path for path in folder.iterdir() if names.fullmatch(path.name)) if folder.is_dir() else []
    return [path for path in paths if path.is_file() and not is_stub(path)]


def _digest(path: Path) -> str:
    """Of a file's size and bytes: of a sixteenth of them, spread evenly, if there are more than 64 MiB."""
    found = hashlib.blake2b(digest_size=16)
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        found.update(size.to_bytes(8, "little"))
        if size <= _WHOLE_BYTES:
            found.update(file.readall())
        else:
            for place in range(0, size, _PIECE_BYTES):
                found.update(os.pread(descriptor, _HASHED_BYTES, place))
            found.update(os.pread(descriptor, _HASHED_BYTES, size - _HASHED_BYTES))
    return found.hexdigest()


def lost_reference_of(reference: Path) -> Path | None:
    """The folder of a checkpoint that is still there, but without its reference, which somebody may bring back."""
    folder = reference.parent
    if reference.name in FOLDER_REFERENCES and is_complete(folder) and not os.path.lexists(reference_in(folder)):
        return folder
    return None


_FILE = "removals.json"
_VERSION = 0


class _Removal(NamedTuple):
    name: str  # the path of the reference, relative to the parent of the run
    save: Saved  # what it leads to
    until: Saved


def postpone_removal(run: Path, path: Path, until: Saved) -> bool:
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


def finish_removals(run: Path, is_committed: Callable[[Saved], bool], *, is_last: bool = False) -> None:
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
        found = None if path.is_symlink() else readable_reference(path)
    except OSError:
        return None
    return None if found is None else found.saves[0]


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
