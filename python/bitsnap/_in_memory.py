"""States as bytes in memory: snapshots without files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitsnap._bitsnap import SaveOptions, Settings, dump as native_dump
from bitsnap._common import (
    Device,
    Masters,
    PathLike,
    Progress,
    Role,
    may_pickle,
    settings_of,
    warn_of_idle_rules,
)
from bitsnap._states.adam import Adams
from bitsnap._states.packing import Packer
from bitsnap.snapshot import Snapshot, native_snapshot
from bitsnap.state import Keys, load


def dumps(
    state: Any,
    *,
    base: PathLike | Snapshot | None = None,
    settings: Settings | str | None = None,
    adam: Adams | None = None,
    metadata: Mapping[str, str] | None = None,
    roles: Mapping[str, Role] | None = None,
    masters: Masters | None = None,
    allow_pickle: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> bytes:
    """A state as the bytes of a snapshot. save() writes the same bytes to a file.

    Args:
        state, metadata, allow_pickle: as in save().
        base: the snapshot, open or by its path, to store the changes from. loads() needs it again.
        settings, adam, roles, masters, threads, progress: as in save_file().

    Raises:
        InvalidArgumentError: a value of the state cannot be stored; the message names its place. Or first moments are
            rounded and a value of Adam is missing.
        CancelledError: `progress` returned False.
    """
    chosen = settings_of(settings)
    packed = Packer(plans=False).pack(
        state, chosen, adam, roles=roles, masters=masters, metadata=metadata, may_pickle=may_pickle(allow_pickle)
    )
    warn_of_idle_rules(chosen, packed.names(), stacklevel=2)
    with packed.adam.explained():
        native = None if base is None else native_snapshot(base)
        options = SaveOptions(settings=chosen, base=native, overwrite=False, threads=threads)
        return native_dump(packed.native, options, progress)


def loads(
    data: bytes,
    *,
    base: PathLike | Snapshot | None = None,
    into: Any = None,
    keys: Keys | None = None,
    strict: bool = True,
    map_location: Device | None = None,
    allow_pickle: bool = False,
    partial: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> Any:
    """Loads a state from the bytes of a snapshot, which dumps() returned or a file holds.

    Args:
        data: the bytes.
        base: the snapshot, open or by its path, that they were made against, if there was one.
        into, keys, strict, map_location, allow_pickle, partial, threads, progress: as in load().

    Raises:
        NotFoundError: the snapshot needs a base that was not given, or there is nothing of `keys`.
        BitsnapError: as load().
    """
    return load(
        Snapshot.from_bytes(data, base=base),
        into=into,
        keys=keys,
        strict=strict,
        map_location=map_location,
        allow_pickle=allow_pickle,
        partial=partial,
        threads=threads,
        progress=progress,
    )
