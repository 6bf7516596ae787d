"""A state in the form of the extension: named tensors with their roles, masters and values of Adam, and the tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bitsnap import _bitsnap
from bitsnap._adam import Adam, AdamOfState
from bitsnap._arrays import AnyTensor, is_tensor, source_of
from bitsnap._bitsnap import SaveSummary, Settings
from bitsnap._options import Bases, Masters, PathLike, Progress, Role, native_target
from bitsnap._tree import Entries, Entry, check_text, flatten
from bitsnap.errors import InvalidArgumentError
from bitsnap.settings import warn_of_idle_rules
from bitsnap.snapshot import Snapshot, native_base


class PackedState(NamedTuple):
    adam: AdamOfState
    tensors: list[Entry]
    tree: tuple[Any] | None
    metadata: list[tuple[str, str]]


def pack(
    state: Any,
    settings: Settings,
    adam: Adam | None,
    *,
    roles: Mapping[str, Role] | None,
    masters: Masters | None,
    metadata: Mapping[str, str] | None,
) -> PackedState:
    """A state of any structure."""
    entries, tree = flatten(state, roles, masters)
    numbers = AdamOfState(settings, adam)
    numbers.tell(entries, state)
    return PackedState(numbers, entries.finish(), (tree,), _metadata_of(metadata))


def pack_tensors(
    tensors: Mapping[str, AnyTensor],
    settings: Settings,
    adam: Adam | None,
    *,
    roles: Mapping[str, Role] | None,
    masters: Masters | None,
    metadata: Mapping[str, str] | None,
) -> PackedState:
    """A flat dict of tensors."""
    entries = Entries(roles, masters)
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise InvalidArgumentError(f"the names of tensors must be str, got {name!r}")
        check_text(name, f"the name {name!r}")
        if not is_tensor(tensor) and not isinstance(tensor, np.ndarray | np.generic):
            raise InvalidArgumentError(
                f"tensors[{name!r}] is of type {type(tensor).__qualname__}, not a tensor or array; "
                "bitsnap.save stores nested states with other values"
            )
        entries.add(name, source_of(tensor, f"tensors[{name!r}]"))
    numbers = AdamOfState(settings, adam)
    numbers.tell(entries)
    return PackedState(numbers, entries.finish(), None, _metadata_of(metadata))


def write(
    path: PathLike,
    packed: PackedState,
    settings: Settings,
    *,
    base: PathLike | Snapshot | None,
    bases: Bases,
    overwrite: bool,
    threads: int,
    progress: Progress | None,
) -> SaveSummary:
    """Writes one file. For save() and save_file(), whose caller is warned of rules that match nothing."""
    warn_of_idle_rules(settings, packed.tensors, stacklevel=3)
    with packed.adam.explained(path):
        return _bitsnap.save(
            native_target(path, overwrite),
            packed.tensors,
            packed.tree,
            packed.metadata,
            settings=settings,
            base=native_base(base, bases, path, overwrite),
            overwrite=overwrite,
            threads=threads,
            progress=progress,
        )


def _metadata_of(metadata: Mapping[str, str] | None) -> list[tuple[str, str]]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a dict of str to str, got {metadata!r}")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgumentError(f"metadata must map str to str, got {key!r}: {value!r}")
        check_text(key, f"the metadata key {key!r}")
        check_text(value, f"metadata[{key!r}]")
    return list((metadata or {}).items())
