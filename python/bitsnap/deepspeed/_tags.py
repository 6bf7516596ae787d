"""The files of a tag: what DeepSpeed looks for, each of which says which shard of the run has its state."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bitsnap._references import FOLDER_REFERENCE, FOLDER_REFERENCES, parse_json, plain_path, reference_in, write_durably
from bitsnap._runs import path_checkpoints as paths
from bitsnap.errors import CorruptError, NotFoundError
from bitsnap.store import Store

LATEST = "latest"
# What the file of a state begins with.
_BEGINNING = b'{"bitsnap": '
_LARGEST_FILE = 1 << 12


def write_files(folder: Path, names: Iterable[Iterable[str]]) -> None:
    """Writes the files of a tag, of each rank those of these names. It is complete when the reference follows."""
    for shard, of_rank in enumerate(names):
        for name in of_rank:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            text = f"the state is in the run that {FOLDER_REFERENCE} names"
            content = {"bitsnap": text, "shard": shard, "name": name}
            write_durably(folder / name, json.dumps(content).encode())


def is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGINNING)) == _BEGINNING
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file") from None


def state_of(path: Path, allow_pickle: bool) -> Any:
    """The state of a file of ours."""
    try:
        with path.open("rb") as file:
            content = parse_json(file.read(_LARGEST_FILE))
        shard, name = content["shard"], plain_path(content["name"], path)
        if type(shard) is not int or not 0 <= shard < 1 << 32:
            raise ValueError(f"{shard!r} is no number of a shard")
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"{path} is damaged: {error}") from None
    if not path.absolute().as_posix().endswith(f"/{name}"):
        raise CorruptError(f"{path} is damaged, or renamed: it is the file {name} of its tag")
    folder = path.absolute().parents[name.count("/")]
    place = paths.step_of(reference_in(folder))
    with Store(place.run, read_only=True) as store:
        return store.load(place.step, keys=[(name,)], shard=shard, allow_pickle=allow_pickle)[name]


def files_of(folder: Path) -> list[Path]:
    """The files and links of a tag, without its reference."""
    found = sorted(path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    return [path for path in found if path.name not in FOLDER_REFERENCES]


def latest_of(save_dir: Path) -> str:
    """The tag that the file `latest` names."""
    path = save_dir / LATEST
    try:
        with path.open("rb") as file:
            return plain_path(os.fsdecode(file.read(_LARGEST_FILE).strip()), path)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file; say which tag") from None


# The key of a checkpoint's metadata that has the names of its files: those of each rank.
_FILES = "bitsnap.deepspeed"


def metadata_of(names: Iterable[Iterable[str]]) -> dict[str, str]:
    """What a checkpoint says of the files of its tag, so that write_tag() can write them."""
    return {_FILES: json.dumps([list(each) for each in names])}


def write_tag(store: Store, step: int, folder: Path) -> bool:
    """Writes the files of a tag that is brought back from a copy of the run, and lets `latest` name it.

    Whether the checkpoint says which they are: earlier versions did not.
    """
    text, origin = paths.metadata_of(store, step, _FILES), paths.origin_of(store, step)
    if text is None or origin is None:
        return False
    write_files(folder, ([plain_path(each, store.path) for each in of_rank] for of_rank in parse_json(text)))
    write_durably(folder.parent / LATEST, os.fsencode(Path(origin.reference).parent))
    return True
