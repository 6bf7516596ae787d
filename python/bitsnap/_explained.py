"""What errors add that a caller can act on: what is at a path, what saved it, and what to do about damage."""

from __future__ import annotations

import difflib
import inspect
import itertools
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bitsnap._bitsnap import Store as NativeStore, StoreOptions, is_store, resolve_branch
from bitsnap._common import PathLike, alike, native_path
from bitsnap.errors import BitsnapError, CorruptError, ExistsError, InvalidArgumentError, NotFoundError, TruncatedError


def check_named(path: PathLike) -> None:
    """Explains a path at which nothing is and that may be meant as RUN:BRANCH or RUN@STEP, and a directory."""
    text = os.fsdecode(path)
    if Path(text).is_dir():
        raise InvalidArgumentError(
            f"{text}: is a directory, not a snapshot, and no run; `bitsnap inspect` shows the tensors of a checkpoint "
            "folder, and `bitsnap add RUN --step N IN` stores it in a run"
        )
    if os.path.lexists(text):
        return
    resolve_branch(native_path(text))  # says which branches there are
    at = max(text.rfind("@"), text.rfind(":"))
    if at > 0 and "/" not in text[at:]:
        options = StoreOptions()
        options.access = "read"
        store = NativeStore.open(native_path(text[:at]), options)  # says what is there instead of a run
        path = os.fsdecode(store.path)
        raise InvalidArgumentError(
            f"{text}: names a checkpoint of the run {path}, and is no file; bitsnap.load({text!r}) loads its state, "
            f"and snapshot(STEP) of bitsnap.Store({path!r}, read_only=True) opens it"
        )
    _check_alike(Path(text))


def _check_alike(path: Path) -> None:
    """Names the runs and snapshots beside a path at which nothing is, if they have similar names."""
    similar: list[Path] = []
    with suppress(OSError):
        names = [each.name for each in itertools.islice(path.parent.iterdir(), 1000)]
        similar = [path.with_name(name) for name in difflib.get_close_matches(path.name, names)]
    runs = [f"{each}@latest" for each in similar if is_store(native_path(each))]
    meant = runs + [str(each) for each in similar if _is_snapshot(each)]
    hint = f"; did you mean {' or '.join(map(repr, meant))}?" if meant else ""
    raise NotFoundError(f"{path}: there is no such file or run{hint}")


# How files of other formats begin: the first bytes, what they are, and how they are read.
_OTHER_FORMATS = (
    (re.compile(rb"PK\x03\x04.{26}[^/]{1,80}/data\.pkl", re.DOTALL), "a file of torch.save()", "torch.load()"),
    (
        re.compile(rb"PK\x03\x04"),
        "a ZIP archive, as torch.save() and numpy.savez() write it",
        "torch.load() or numpy.load()",
    ),
    (re.compile(rb"\x80[\x02-\x05]"), "a pickle, as older versions of torch.save() write it", "torch.load()"),
    (re.compile(rb"\x93NUMPY"), "a file of numpy.save()", "numpy.load()"),
    (re.compile(rb".{6}\0\0\{", re.DOTALL), "a safetensors file", "safetensors"),
)


_BEGINNING = b"\x89BSNAP\r\n"


def _beginning_of(path: PathLike) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(128)
    except OSError:
        return b""


def _is_snapshot(path: PathLike) -> bool:
    return _beginning_of(path).startswith(_BEGINNING)


def check_is_free(path: PathLike) -> None:
    """Says of another file what it is, before anybody is told how to replace it."""
    if not os.path.lexists(native_path(path)) or _is_snapshot(path):
        return
    beginning = _beginning_of(path)
    kinds = [what for pattern, what, _ in _OTHER_FORMATS if pattern.match(beginning)]
    what = f"is {kinds[0]}, and no snapshot" if kinds else "is no snapshot of bitsnap"
    other = os.fspath(Path(path).with_suffix(".bsnap"))
    another = repr(other) if not os.path.lexists(other) else "to another file"
    raise ExistsError(
        f"{os.fspath(path)!r} exists and {what}: save to {another} instead. overwrite=True would delete what is there"
    )


def check_format(path: PathLike) -> None:
    beginning = _beginning_of(path)
    for pattern, what, reader in _OTHER_FORMATS:
        if pattern.match(beginning):
            raise InvalidArgumentError(
                f"{os.fspath(path)}: is {what}, not a snapshot; {reader} reads it, and `bitsnap convert IN OUT.bsnap` "
                "writes it as a snapshot"
            )


@contextmanager
def explained_damage(
    store: Callable[[], tuple[NativeStore, int | None] | None], load: Callable[[int], str] | None, partial: bool
) -> Iterator[None]:
    """Lets an error of damage say what to do.

    Args:
        store: the run and the step that is read, None for the newest, if it is one of a run. Asked after an error only.
        load: the call that reads another step, if there is one to try.
        partial: whether that call can read what is left of this one.
    """
    try:
        yield
    except (CorruptError, TruncatedError) as error:
        with suppress(BitsnapError):
            found = store()
            if found is not None and error.args and "`bitsnap verify" not in str(error.args[0]):
                error.args = (f"{error.args[0]}{_after_damage(*found, load, partial)}", *error.args[1:])
        raise


def _after_damage(store: NativeStore, step: int | None, load: Callable[[int], str] | None, partial: bool) -> str:
    steps = store.steps()
    step = store.latest() if step is None else step
    run = shlex.quote(os.fsdecode(store.path))
    text = f". `bitsnap verify {run}` lists all damage, and `bitsnap repair {run}` mends what can be mended"
    earlier = [each for each in steps if step is not None and each < step]
    if load is None or step is None:
        return text
    if earlier:
        text += f"; {load(earlier[-1])} reads the checkpoint before"
    if partial:
        text += f"; {load(step)[:-1]}, partial=True) reads what is left of this one"
    return text


def check_options(options: Mapping[str, Any], called: str, *takers: Callable[..., Any]) -> None:
    """Raises TypeError for arguments without a place in the functions that take them, with similar names."""
    known = [name for taker in takers for name in inspect.signature(taker).parameters]
    for name in options:
        if name not in known:
            raise TypeError(f"{called}() has no argument {name!r}{alike(name, known)}")


def saved_by(names: Collection[object]) -> str:
    """Who saves states with these names, and what reads them."""
    if "torch.distributed.checkpoint" in names:
        return "bitsnap.dcp, whose StorageReader reads it"
    if {"model", "optimizer", "training", "rank"} <= set(names):
        return "bitsnap.torch.TrainingCheckpointer, whose restore() reads it"
    if "pytorch-lightning_version" in names:
        return "bitsnap.lightning, whose load() reads it"
    if {"files", "objects"} <= set(names):
        return "bitsnap.accelerate, whose load_state() reads it"
    if {"files", "optimizer"} <= set(names):
        return "bitsnap.transformers, whose trainers resume from it"
    return "bitsnap.Store or bitsnap.Checkpointer, whose load() and restore() read it"
