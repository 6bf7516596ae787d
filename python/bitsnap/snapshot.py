"""Open snapshots, and functions for snapshot files that load nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bitsnap._bitsnap import (
    BaseReference,
    LossReport,
    Snapshot as NativeSnapshot,
    Store as NativeStore,
    StoreOptions,
    WholeState,
    is_store,
    resolve_branch,
    snapshot_id as native_snapshot_id,
)
from bitsnap._common import (
    LARGEST,
    Bases,
    PathLike,
    Progress,
    alike,
    brief,
    is_url,
    local_path,
    native_bases,
    native_path,
    native_run,
    native_target,
    object_url,
    warn,
)
from bitsnap._explained import check_format, check_is_free, check_named, explained_damage
from bitsnap._references import reference_at
from bitsnap.errors import BitsnapError, DamageWarning, ExistsError, InvalidArgumentError, NotFoundError

# Messages list this many damaged places, and count the others.
_LISTED_DAMAGE = 20


class Snapshot:
    """An open snapshot file. Immutable; any number of threads may use it at once.

    Opening reads and checks the index and no tensor. Functions that take the path of a snapshot or of a base also take
    an open snapshot, and then do not open the file again.

    Args:
        path: the file.
        bases: files or directories that are searched for the bases of the snapshot, besides its directory.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: it is a directory, a reference, or a file of another format. Store.snapshot() opens a
            checkpoint of a store.
        UnsupportedError, TruncatedError, CorruptError: it is not a snapshot that this version can read.
    """

    def __init__(self, path: PathLike, *, bases: Bases = ()) -> None:
        native, others = native_path(path), native_bases(bases)
        _check_no_store(native)
        try:
            self._native = NativeSnapshot.open(native, others)
            return
        except BitsnapError as error:
            failure = error
        _check_no_reference(path)
        check_named(path)
        check_format(path)
        raise failure

    @classmethod
    def from_bytes(cls, data: bytes, *, base: PathLike | Snapshot | None = None) -> Snapshot:
        """Opens the bytes of a snapshot in memory, as dumps() returns them.

        Args:
            data: the bytes, which are not copied.
            base: the snapshot that they were made against, if there was one.

        Raises:
            UnsupportedError, TruncatedError, CorruptError: they are not a snapshot that this version can read.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data must be the bytes of a snapshot, got {brief(data)}")
        return cls._of(NativeSnapshot.of_bytes(bytes(data), None if base is None else native_snapshot(base)))

    @classmethod
    def _of(cls, native: NativeSnapshot) -> Snapshot:
        snapshot = cls.__new__(cls)
        snapshot._native = native
        return snapshot

    @property
    def path(self) -> Path:
        """The path it was opened by."""
        return Path(os.fsdecode(self._native.path))

    @property
    def id(self) -> str:
        """The id of the content, 32 hexadecimal digits; the same for every coding."""
        return self._native.id

    @property
    def metadata(self) -> dict[str, str]:
        """The strings that were saved with the state."""
        return self._native.metadata

    @property
    def bases(self) -> list[BaseReference]:
        """The snapshots that reading this one needs."""
        return self._native.bases

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return self._native.file_bytes

    def damaged_tensors(self, *, threads: int = 0) -> dict[str, BitsnapError]:
        """The tensors that cannot be read, by name, with the first error in each. Decodes every tensor."""
        infos = self._native.tensors
        return {infos[each.tensor].name: each.error for each in self._native.damaged_tensors(threads, None)}

    def __repr__(self) -> str:
        return f"Snapshot({str(self.path)!r}, id={self.id!r})"


def native_snapshot(path: PathLike | Snapshot, bases: Bases = ()) -> NativeSnapshot:
    """The extension's object for a path or an open snapshot."""
    if isinstance(path, Snapshot):
        return path._native
    named = named_step(path)
    if named is None:
        return Snapshot(path, bases=bases)._native
    store, step = named
    if step is not None and (shards := store.checkpoint(step).shards) > 1:
        raise InvalidArgumentError(
            f"{os.fsdecode(path)}: has {shards} shards; use snapshot({step}, shard=...) of "
            f"bitsnap.Store({os.fsdecode(store.path)!r}, read_only=True)"
        )
    return store.snapshot(step, 0, False)


def native_state(path: PathLike | Snapshot, bases: Bases = ()) -> NativeSnapshot | WholeState:
    """Likewise, but of a checkpoint of several shards all of them."""
    if isinstance(path, Snapshot):
        return path._native
    named = named_step(path)
    if named is None:
        return Snapshot(path, bases=bases)._native
    store, step = named
    if step is None or store.checkpoint(step).shards == 1:
        return store.snapshot(step, 0, False)
    which = f"load({step}, shard=...) of bitsnap.Store({os.fsdecode(store.path)!r}, read_only=True)"
    return whole_state(store, step, f"{os.fsdecode(path)}: its shards", f"load one of them with {which}")


def whole_state(store: NativeStore, step: int, what: str, instead: str) -> WholeState:
    """All shards of a checkpoint. If they are no state together, the error begins and ends with the texts."""
    whole = store.whole_state(step)
    if not whole.has_tree and whole.left_out:
        raise InvalidArgumentError(f"{what} cannot be put together ({whole.left_out[0]}): {instead}")
    return whole


def explained_load(path: PathLike | Snapshot, function: str, partial: bool) -> AbstractContextManager[None]:
    """Lets an error of damage say what to do, if the path names a checkpoint of a run."""

    def call(step: int) -> str:
        run = os.fsdecode(path).rpartition("@")[0]  # type: ignore[arg-type]  # a name of a checkpoint
        return f"bitsnap.{function}({f'{run}@{step}'!r})"

    return explained_damage(lambda: None if isinstance(path, Snapshot) else named_step(path), call, not partial)


def named_step(path: PathLike) -> tuple[NativeStore, int | None] | None:
    """The checkpoint RUN@STEP, RUN@LABEL, RUN@latest or RUN@-2; RUN may be RUN:BRANCH. None: the path is no such name.

    None as the step: the run is empty.
    """
    url = object_url(path)
    text = url or os.fsdecode(path)
    at = text.rfind("@")
    if url is not None and at < 0:
        raise InvalidArgumentError(f"{url}: is the address of a run: expected a step or a label, as in {url}@latest")
    if at <= 0 or (url is None and (is_url(path) or os.path.lexists(native_path(path)))):
        return None
    if at + 1 == len(text):
        raise InvalidArgumentError(f"{text}: expected a step or a label after the @, as in {text}1000 or {text}latest")
    colon = text.rfind(":", 0, at)
    if colon > 0:
        resolve_branch(native_run(text[: text.find("@", colon)]))  # says which branches there are
    # Both the path of a run and a label may contain an "@".
    while at > 0 and not is_store(native_run(text[:at])):
        at = text.rfind("@", 0, at)
    if at <= 0 and url is None:
        return None
    at = at if at > 0 else text.rfind("@")  # of an address: opening it says what is wrong
    options = StoreOptions()
    options.access = "read"
    store, name = NativeStore.open(native_run(text[:at]), options), text[at + 1 :]
    if _is_number(name) and not _is_step(name):
        raise NotFoundError(f"{brief(text)}: there is no such step; a step has at most {len(str(LARGEST))} digits")
    step: int | None = int(name) if _is_number(name) else dict(store.labels()).get(name)
    if step is None and name.startswith("-") and _is_number(name[1:]):
        steps, back = store.steps(), int(name[1:]) if _is_step(name[1:]) else LARGEST
        if not 1 <= back <= len(steps):
            raise NotFoundError(f"{brief(text)}: the run has {len(steps)} checkpoints")
        step = steps[-back]
    if step is None:
        step = store.latest() if name == "latest" else store.find(name)
    return store, step


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_step(digits: str) -> bool:
    """Of digits; Python does not convert thousands of them."""
    return len(digits.lstrip("0")) <= len(str(LARGEST)) and int(digits.lstrip("0") or "0") <= LARGEST


def snapshot_id(path: PathLike) -> str:
    """The id of a snapshot, 32 hexadecimal digits. Reads only the end of the file."""
    native = native_path(path)
    _check_no_store(native)
    return native_snapshot_id(native)


def _check_no_store(native: bytes) -> None:
    if is_store(native):
        path = os.fsdecode(native)
        raise InvalidArgumentError(
            f"{path}: is the directory of a store, not a snapshot; {path + '@latest'!r} names its newest checkpoint, "
            f"and load() or snapshot() of bitsnap.Store({path!r}, read_only=True) read any"
        )


def _check_no_reference(path: PathLike) -> None:
    found = reference_at(path)
    if found is not None:
        step, run = found.saves[0].step, str(found.run)
        raise InvalidArgumentError(
            f"{os.fspath(path)}: refers to step {step} of the run {run}, and is no snapshot; use load({step}) or "
            f"snapshot({step}) of bitsnap.Store({run!r}, read_only=True)"
        )


_OTHER_SUFFIXES = {
    ".pt": "torch.load()",
    ".pth": "torch.load()",
    ".ckpt": "torch.load()",
    ".bin": "torch.load()",
    ".safetensors": "safetensors",
    ".npz": "numpy.load()",
    ".npy": "numpy.load()",
}


def snapshot_target(path: PathLike, overwrite: bool, stacklevel: int) -> bytes:
    """A path to write a snapshot to. Warns of a name that other programs take for a file of theirs."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be the path of the file to write, got {brief(path)}; are the arguments swapped?")
    if Path(path).is_dir():
        kind = InvalidArgumentError if overwrite else ExistsError
        raise kind(
            f"{os.fspath(path)}: is a directory, expected the path of a file to write; save(step, state) of "
            "bitsnap.Store(path) saves to a run"
        )
    if not overwrite:
        check_is_free(path)
    if not (above := Path(local_path(path)).absolute().parent).exists():
        raise NotFoundError(f"{os.fspath(path)}: the directory {above} does not exist; make it first")
    native = native_target(path, overwrite)
    suffix = Path(path).suffix
    if suffix in _OTHER_SUFFIXES:
        warn(
            f"{os.fspath(path)}: becomes a snapshot, which bitsnap reads and {_OTHER_SUFFIXES[suffix]} does not. Name "
            f"it *.bsnap; to write a {suffix} file, use `bitsnap convert`",
            stacklevel=stacklevel + 1,
        )
    return native


@dataclass(frozen=True)
class TensorSummary:
    """One tensor of a snapshot. Sizes are in bytes."""

    name: str
    dtype: str  # as safetensors names it: "BF16"
    shape: tuple[int, ...]
    role: str
    raw_bytes: int
    stored_bytes: int | None  # None: an alias, an empty tensor, or a small tensor in the pool
    alias_of: str | None  # the tensor that has the bytes
    codecs: dict[str, int]  # chunks coded by each codec
    chunks_with_base: int
    depth: int  # the largest number of links that decoding one of its chunks follows
    reason: str  # why these codecs were chosen
    quantizer: LossReport | None  # what it lost before it was stored; None: every bit was kept

    @property
    def ratio(self) -> float | None:
        """Raw size over stored size."""
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else None


@dataclass(frozen=True)
class Inspection:
    """The content of a snapshot file. Sizes are in bytes."""

    path: Path
    id: str
    writer: str
    policy: str
    objective: str | None  # of "lossless" and "bounded"
    bases: list[BaseReference]
    metadata: dict[str, str]
    tensors: list[TensorSummary]
    raw_bytes: int  # of all tensors; tied tensors count once
    file_bytes: int
    pool_raw_bytes: int  # of the pool, which holds the small tensors
    pool_stored_bytes: int

    @property
    def ratio(self) -> float:
        """Raw size over the size of the file."""
        return self.raw_bytes / self.file_bytes


def inspect(path: PathLike | Snapshot) -> Inspection:
    """Lists the tensors of a snapshot: roles, codecs, sizes, and what they lost before they were stored.

    Reads the index and no tensor, and needs no base.
    """
    native = native_snapshot(path)
    infos = [native.tensors[i] for i in range(len(native.tensors))]
    streams = native.streams()
    by_tensor = {stream.tensor: stream for stream in streams if stream.tensor is not None}
    pool = next((stream for stream in streams if stream.tensor is None), None)
    tensors = []
    for i, info in enumerate(infos):
        stream = by_tensor.get(i)
        holder = stream if info.alias_of is None else by_tensor.get(info.alias_of)
        tensors.append(
            TensorSummary(
                name=info.name,
                dtype=info.dtype,
                shape=info.shape,
                role=info.role,
                raw_bytes=info.size_bytes,
                stored_bytes=stream.stored_bytes if stream else None,
                alias_of=None if info.alias_of is None else infos[info.alias_of].name,
                codecs=stream.codecs if stream else {},
                chunks_with_base=stream.chunks_with_base if stream else 0,
                depth=stream.depth if stream else 0,
                reason=stream.reason if stream else "",
                quantizer=holder.quantizer if holder else None,
            )
        )
    return Inspection(
        path=Path(os.fsdecode(native.path)),
        id=native.id,
        writer=native.writer,
        policy=native.policy,
        objective=native.objective or None,
        bases=native.bases,
        metadata=native.metadata,
        tensors=tensors,
        raw_bytes=sum(info.size_bytes for info in infos if info.alias_of is None),
        file_bytes=native.file_bytes,
        pool_raw_bytes=pool.raw_bytes if pool else 0,
        pool_stored_bytes=pool.stored_bytes if pool else 0,
    )


def verify(
    path: PathLike | Snapshot,
    *,
    bases: Bases = (),
    decode: bool = True,
    threads: int = 0,
    progress: Progress | None = None,
) -> None:
    """Reads every byte of a snapshot and checks it against its hashes.

    Args:
        path: the file.
        bases: files or directories that are searched for its bases, besides its directory.
        decode: decode every chunk, too, which needs the bases. False finds all damage to this file, but not to them.
        threads: 0 for all that the process may use.
        progress: called with (done bytes, total bytes); returning False cancels.

    Raises:
        CorruptError, TruncatedError, ...: the class of the first damage. The message lists all damage.
    """
    native = native_snapshot(path, bases)
    damage = native.verify(decode, threads, progress)
    if damage:
        places = [f"{each.where}: {each.error}" for each in damage]
        raise type(damage[0].error)(describe_damage(os.fsdecode(native.path), places))


def describe_damage(path: str, places: list[str]) -> str:
    """One message for all the damage of a file or a store."""
    lines = [f"{path}: damaged in {len(places)} place{'s' if len(places) > 1 else ''}"]
    lines += [f"  {place}" for place in places[:_LISTED_DAMAGE]]
    if len(places) > _LISTED_DAMAGE:
        lines.append(f"  and {len(places) - _LISTED_DAMAGE} more")
    return "\n".join(lines)


def damaged_tensors(
    native: NativeSnapshot, threads: int = 0, progress: Progress | None = None
) -> dict[int, BitsnapError]:
    """The tensors that cannot be read, by number. Decodes every tensor."""
    return {each.tensor: each.error for each in native.damaged_tensors(threads, progress)}


def warn_of_damage(damaged: Mapping[str, BitsnapError], stacklevel: int) -> None:
    """Warns once of all that is left out, with the errors by name or place."""
    lines = [f"{len(damaged)} damaged, and left out:"]
    lines += [f"{name}: {error}" for name, error in list(damaged.items())[:_LISTED_DAMAGE]]
    if len(damaged) > _LISTED_DAMAGE:
        lines.append(f"and {len(damaged) - _LISTED_DAMAGE} more")
    warn(DamageWarning("\n  ".join(lines), dict(damaged)), stacklevel=stacklevel + 1)


def names_of(native: NativeSnapshot | WholeState) -> list[str]:
    """The names of the tensors, in order."""
    infos = native.tensors
    return [infos[i].name for i in range(len(infos))]


def find_tensor(native: NativeSnapshot, name: str) -> int:
    """The index of a tensor. Raises NotFoundError, with similar names, if there is none."""
    index = native.find(name)
    if index is None:
        raise NotFoundError(f"{os.fsdecode(native.path)}: there is no tensor {name!r}{alike(name, names_of(native))}")
    return index
