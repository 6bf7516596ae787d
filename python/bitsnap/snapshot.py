"""Open snapshots, and what can be asked of a snapshot file without loading it."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

from bitsnap import _bitsnap
from bitsnap._adam import AdamOfState
from bitsnap._loss_reports import LossReport, quantizer_of
from bitsnap._options import (
    Bases,
    Objective,
    PathLike,
    PolicyName,
    Progress,
    given_settings,
    native_bases,
    native_path,
    native_target,
    same_file,
)
from bitsnap.errors import InvalidArgumentError, NotFoundError, class_of_kind
from bitsnap.policy import Policy, policy_of

# Damage beyond this many places is counted, not listed.
_LISTED_DAMAGE = 20


class Snapshot:
    """An open snapshot file: immutable, and usable by any number of threads at once.

    Opening reads and checks the index and no tensor. Wherever a function takes the path of a snapshot to read, or of a
    base, it takes one of these too, which saves opening the file again.

    Args:
        path: the file.
        bases: files or directories in which the snapshots that this one was coded against are looked for, beside the
            directory of the file itself.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: it is a directory. Of the checkpoints of a run, Store.snapshot() opens one.
        UnsupportedError, TruncatedError, CorruptError: it is not a snapshot that this version can read.
    """

    def __init__(self, path: PathLike, *, bases: Bases = ()) -> None:
        native = native_path(path)
        _check_no_store(native)
        self._native = _bitsnap.Snapshot.open(native, native_bases(bases))

    @classmethod
    def _of(cls, native: _bitsnap.Snapshot) -> Snapshot:
        snapshot = cls.__new__(cls)
        snapshot._native = native
        return snapshot

    @property
    def path(self) -> Path:
        """The path it was opened by."""
        return Path(os.fsdecode(self._native.path))

    @property
    def id(self) -> str:
        """32 hexadecimal digits over what the snapshot holds, whatever way it is coded in."""
        return self._native.id

    @property
    def metadata(self) -> dict[str, str]:
        """The strings that were given when it was saved."""
        return self._native.metadata

    @property
    def bases(self) -> list[tuple[str, str]]:
        """(id, file name when this was written) of each snapshot that reading this one needs."""
        return self._native.bases

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return self._native.file_bytes

    def __repr__(self) -> str:
        return f"Snapshot({str(self.path)!r}, id={self.id!r})"


def native_snapshot(path: PathLike | Snapshot, bases: Bases = ()) -> _bitsnap.Snapshot:
    """The extension's object for a path or an open snapshot."""
    if isinstance(path, Snapshot):
        return path._native
    return Snapshot(path, bases=bases)._native


def native_base(
    base: PathLike | Snapshot | None, bases: Bases, path: PathLike, overwrite: bool
) -> _bitsnap.Snapshot | None:
    """The base to code a file at `path` against. That its bases are not replaced is seen to where files are written."""
    if base is None:
        return None
    base_path = base.path if isinstance(base, Snapshot) else base
    if overwrite and same_file(base_path, path):
        raise InvalidArgumentError(
            f"{os.fspath(path)!r} is its own base: what it is coded against would be replaced by it; "
            "save to another file, or without a base"
        )
    return native_snapshot(base, bases)


def snapshot_id(path: PathLike) -> str:
    """The id of a snapshot, 32 hexadecimal digits, from the end of the file, without reading the rest."""
    native = native_path(path)
    _check_no_store(native)
    return _bitsnap.peek_snapshot_id(native)


def _check_no_store(native: bytes) -> None:
    if _bitsnap.is_store(native):
        path = os.fsdecode(native)
        raise InvalidArgumentError(
            f"{path}: is the directory of a run, not a snapshot: bitsnap.Store({path!r}, read_only=True) opens it, and "
            "has load() and snapshot()"
        )


@dataclass(frozen=True)
class TensorSummary:
    """One tensor of a snapshot and what it costs. Sizes are in bytes."""

    name: str
    dtype: str  # as safetensors names it: "BF16"
    shape: tuple[int, ...]
    role: str
    raw_bytes: int
    stored_bytes: int | None  # None: an alias, an empty tensor, or one in the pool that small tensors share
    alias_of: str | None  # the tensor whose bytes these are
    codecs: dict[str, int]  # chunks coded by each codec
    chunks_with_base: int
    depth: int  # snapshots that have to be read for it, beside this one
    reason: str  # why it was coded so
    quantizer: LossReport | None  # what it lost before that; None: every bit is kept

    @property
    def ratio(self) -> float | None:
        """Raw size over stored size."""
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else None


@dataclass(frozen=True)
class Inspection:
    """What a snapshot file holds and what it costs. Sizes are in bytes."""

    path: Path
    id: str
    writer: str
    policy: str
    objective: str | None  # of "lossless" and "bounded"
    bases: list[tuple[str, str]]
    metadata: dict[str, str]
    tensors: list[TensorSummary]
    raw_bytes: int  # of all tensors, aliases not counted again
    file_bytes: int
    pool_raw_bytes: int  # of the small tensors that share chunks
    pool_stored_bytes: int

    @property
    def ratio(self) -> float:
        """Raw size over the size of the file."""
        return self.raw_bytes / self.file_bytes


def inspect(path: PathLike | Snapshot) -> Inspection:
    """Says what a snapshot holds: tensors, roles, codecs, sizes, and what tensors lost before they were stored.

    Reads the index and no tensor, and needs no base.
    """
    native = native_snapshot(path)
    infos = native.tensors
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
                quantizer=quantizer_of(holder.quantizer) if holder else None,
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
    """Reads every byte of a snapshot and holds it against its hashes. Returns if all is well.

    Args:
        path: the file.
        bases: where its bases are looked for, beside its own directory.
        decode: decode every chunk too, which needs the bases. False finds every damage to this file, but not to them.
        threads: 0 for all that the process may use.
        progress: called now and then with (done bytes, total bytes); returning False cancels.

    Raises:
        CorruptError, TruncatedError, ...: the class of the first damage found. The message lists where all of it is.
    """
    native = native_snapshot(path, bases)
    damage = native.verify(decode, threads, progress)
    if damage:
        places = [f"{where}: {message}" for where, _, message in damage]
        raise class_of_kind(damage[0][1])(describe_damage(os.fsdecode(native.path), places))


def describe_damage(path: str, places: list[str]) -> str:
    """One message for all the damage of a file or a store."""
    lines = [f"{path}: damaged in {len(places)} place{'s' if len(places) > 1 else ''}"]
    lines += [f"  {place}" for place in places[:_LISTED_DAMAGE]]
    if len(places) > _LISTED_DAMAGE:
        lines.append(f"  and {len(places) - _LISTED_DAMAGE} more")
    return "\n".join(lines)


def compress(
    source: PathLike,
    path: PathLike,
    *,
    base: PathLike | Snapshot | None = None,
    bases: Bases = (),
    policy: PolicyName | Policy = "lossless",
    objective: Objective = "balanced",
    store_speed: int = 0,
    codec: str = "",
    max_depth: int = 8,
    overwrite: bool = True,
    threads: int = 0,
    progress: Progress | None = None,
) -> _bitsnap.SaveSummary:
    """Stores a safetensors file as a snapshot, from which decompress() makes the very same file, byte for byte.

    The arguments are those of save_file(). Memory is bounded by the number of threads, whatever the size of the file.
    With a `policy` that lets go of some bits it is another file. One that rounds first moments has to say all of Adam's
    numbers, as in ``bitsnap.bounded(betas=(0.9, 0.95), eps=1e-8, step=1000)``.
    """
    chosen = policy_of(policy)
    if overwrite and same_file(source, path):
        raise InvalidArgumentError(f"{os.fspath(path)!r} is the source itself; compress to another file")
    adam = AdamOfState(chosen)
    numbers = adam.for_all()
    with adam.explained():
        return _bitsnap.compress(
            native_path(source),
            native_target(path, overwrite),
            settings=given_settings(
                policy=chosen.name,
                objective=objective,
                store_speed=store_speed,
                max_depth=max_depth,
                loss=chosen.rules,
                codec=codec,
            ),
            adam=numbers,
            base=native_base(base, bases, path, overwrite),
            overwrite=overwrite,
            threads=threads,
            progress=progress,
        )


def decompress(
    source: PathLike | Snapshot,
    path: PathLike,
    *,
    bases: Bases = (),
    overwrite: bool = True,
    threads: int = 0,
    progress: Progress | None = None,
) -> int:
    """Writes a snapshot as a safetensors file, atomically; returns the size of that file in bytes.

    A snapshot that compress() made gives the original file, byte for byte. Any other gets a header of its own, with its
    tree of values, if it has one, as JSON under "bitsnap.tree" in the metadata.
    """
    return _bitsnap.decompress(
        native_snapshot(source, bases),
        native_target(path, overwrite),
        overwrite=overwrite,
        threads=threads,
        progress=progress,
    )


def find_tensor(native: _bitsnap.Snapshot, name: str) -> int:
    """The index of a tensor; NotFoundError, with names that are alike, where there is none."""
    index = native.find(name)
    if index is None:
        raise NotFoundError(f"{os.fsdecode(native.path)}: there is no tensor {name!r}{_alike(native, name)}")
    return index


def _alike(native: _bitsnap.Snapshot, name: str) -> str:
    found = difflib.get_close_matches(name, [info.name for info in native.tensors[:10_000]], n=3)
    return f"; did you mean {', '.join(map(repr, found))}?" if found else ""
