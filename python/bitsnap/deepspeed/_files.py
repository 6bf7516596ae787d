"""The files of DeepSpeed's tags, each of which says which shard of the run has its state, and the calls of a
DeepSpeedEngine around them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import partial, wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

from deepspeed.runtime import engine as _engine

from bitsnap._common import parse_json
from bitsnap._references import FOLDER_REFERENCE, FOLDER_REFERENCES, plain_path, reference_in, write_durably
from bitsnap._runs import path_checkpoints as paths
from bitsnap._runs.framework_objects import Replacing
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
        return load(store.snapshot(place.step, shard), keys=[(name,)], allow_pickle=allow_pickle)[name]


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
        raise NotFoundError(f"{save_dir / LATEST}: there is no such file; say which tag") from None


def wrap_calls(engine: Any, ours: Any, replaced: Replacing) -> None:
    """Wraps both. While another checkpoint engine than `ours` is used, they do what they did before."""
    save, load = engine.save_checkpoint, engine.load_checkpoint

    @wraps(save)
    def save_checkpoint(*args: Any, **kwargs: Any) -> Any:
        result = save(*args, **kwargs)
        if engine.checkpoint_engine is ours:
            ours.stage()
        return result

    @wraps(load)
    def load_checkpoint(load_dir: Any, tag: Any = None, *args: Any, **kwargs: Any) -> Any:
        if engine.checkpoint_engine is not ours:
            return load(load_dir, tag, *args, **kwargs)
        # With ZeRO 3 and load_optimizer_states=False, the engine calls this without the tag.
        with patch.object(_engine, "get_fp32_state_dict_from_zero_checkpoint", partial(ours.fp32_weights, tag)):
            return load(load_dir, tag, *args, **kwargs)

    replaced.replace(engine, "save_checkpoint", save_checkpoint)
    replaced.replace(engine, "load_checkpoint", load_checkpoint)
