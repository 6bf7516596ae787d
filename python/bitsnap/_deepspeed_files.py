"""The files of DeepSpeed's tags: each says which shard of the run has its state."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bitsnap import _path_checkpoints as paths
from bitsnap._pickled_values import Opaque
from bitsnap._references import write_durably
from bitsnap.errors import CorruptError, NotFoundError
from bitsnap.state import load
from bitsnap.store import Store

LATEST = "latest"
# What the file of a state begins with.
_BEGINNING = b'{"bitsnap": '
_LARGEST_FILE = 1 << 12


def write_files(new: paths.NewSave, names: Iterable[Iterable[str]]) -> None:
    """Writes the files of a tag, which is complete when the reference follows."""
    folder = new.reference.parent
    for shard, of_rank in enumerate(names):
        for name in of_rank:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            content = {"bitsnap": "the state is in the run that bitsnap.json names", "shard": shard, "name": name}
            write_durably(folder / name, json.dumps(content).encode())


def is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGINNING)) == _BEGINNING
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file") from None


def state_of(path: Path, opaque: Opaque) -> Any:
    """The state of a file of ours."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_LARGEST_FILE))
        shard, name = content["shard"], content["name"]
        if type(shard) is not int or type(name) is not str or shard < 0:
            raise ValueError("a value has the wrong type")
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"{path} is damaged: {error}") from None
    folder = path.parents[name.count("/")]
    place = paths.place_of(folder / paths.FOLDER_REFERENCE)
    with Store(place.run, read_only=True) as store:
        return load(store.snapshot(place.step, shard), keys=[(name,)], opaque=opaque)[name]


def files_of(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != paths.FOLDER_REFERENCE]


def latest_of(save_dir: Path) -> str:
    try:
        return (save_dir / LATEST).read_text().strip()
    except FileNotFoundError:
        raise NotFoundError(f"{save_dir / LATEST}: there is no such file; say which tag") from None
