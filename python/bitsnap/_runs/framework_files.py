"""The files of a framework's own checkpoint beside a reference, which say whose checkpoint a folder holds.

Frameworks may save over a folder of ours, and we over theirs. Times do not tell which came last: copies change them.
A reference has digests of the framework's files that lay beside it when it was written.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from bitsnap._references import reference_in
from bitsnap.errors import InvalidArgumentError

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
