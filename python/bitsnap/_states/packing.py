"""A state in the form of the extension: named tensors with their roles, masters and values of Adam, and the tree."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from bitsnap._arguments import Masters, Role
from bitsnap._base import without_collection
from bitsnap._bitsnap import Settings, TensorTable, ValueTree
from bitsnap._states.adam import AdamOfState, Adams, AdamSources
from bitsnap._states.registry import changes
from bitsnap._states.state_plan import StatePlan, StructureChangedError
from bitsnap._states.tree import Entries, Entry, check_text, flatten
from bitsnap._tensors.arrays import AnyTensor, Data, is_tensor, named_source_of
from bitsnap._tensors.boxes import Box, LazyTensor, local_part, tensor_of
from bitsnap.errors import InvalidArgumentError
from bitsnap.settings import may_lose


class StateWithAdam(NamedTuple):
    """A state for a Checkpointer, with what is known of Adam in this state."""

    state: Any
    adam: AdamSources


class PackedState(NamedTuple):
    adam: AdamOfState
    entries: list[Entry]
    owners: list[object]  # keep the data alive
    native: NativeState

    def names(self) -> Iterator[tuple[str, str, str | None]]:
        """Names, dtypes and roles of the tensors."""
        return ((entry.name, entry.dtype, entry.role) for entry in self.entries)


class NativeState(NamedTuple):
    """The state as the functions of the extension take it, in their order."""

    tensors: TensorTable
    data: list[Data]
    tree: ValueTree | None
    metadata: list[tuple[str, str]]


class Packer:
    """Packs the states of one Checkpointer or Store. Those with the structure of the last one take a fraction of the
    time. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plan: StatePlan | None = None
        self._planned_for: tuple[Any, ...] = ()  # what the plan holds for: roles, masters, consent, registered types

    @without_collection()
    def pack(
        self,
        state: Any,
        settings: Settings,
        adam: Adams | AdamSources | None,
        *,
        roles: Mapping[str, Role] | None,
        masters: Masters | None,
        metadata: Mapping[str, str] | None,
        may_pickle: bool = False,
    ) -> PackedState:
        # The numbers of Adam are found anew for each state. And a signal handler may save while this thread does.
        if may_lose(settings) or not self._lock.acquire(blocking=False):
            return pack(state, settings, adam, roles=roles, masters=masters, metadata=metadata, may_pickle=may_pickle)
        try:
            numbers = AdamOfState(settings, adam)
            plan, self._plan = self._plan, None
            filled = None
            others = may_pickle, changes()
            if plan is not None and self._planned_for == (roles, masters, *others):
                with suppress(StructureChangedError):
                    filled = plan.fill(state)
            if plan is None or filled is None:
                entries, tree = flatten(state, roles, masters, may_pickle)
                entries.check_all_used()
                plan, filled = StatePlan(state, entries, tree, may_pickle), (entries.data, entries.owners)
                self._planned_for = (_copy_of(roles), _copy_of(masters), *others)
            self._plan = plan
            data, owners = filled
            native = NativeState(plan.tensors, data, plan.tree, metadata_of(metadata))
            return PackedState(numbers, plan.entries, owners, native)
        finally:
            self._lock.release()


def _copy_of(names: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if names is None else dict(names)


@without_collection()
def pack(
    state: Any,
    settings: Settings,
    adam: Adams | AdamSources | None,
    *,
    roles: Mapping[str, Role] | None,
    masters: Masters | None,
    metadata: Mapping[str, str] | None,
    may_pickle: bool = False,
) -> PackedState:
    """A state of any structure."""
    entries, tree = flatten(state, roles, masters, may_pickle)
    numbers = AdamOfState(settings, adam)
    numbers.tell(entries, state)
    return _packed(numbers, entries, ValueTree(tree), metadata)


def pack_tensors(
    tensors: Mapping[str, AnyTensor | Box | LazyTensor],
    settings: Settings,
    adam: Adams | AdamSources | None,
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
        tensor = local_part(tensor, (name,))
        box = tensor if isinstance(tensor, Box) else None
        tensor = tensor_of(tensor)
        if not is_tensor(tensor) and not isinstance(tensor, np.ndarray | np.generic | LazyTensor):
            raise InvalidArgumentError(
                f"tensors[{name!r}] is of type {type(tensor).__qualname__}, not a tensor, array or Box; "
                "bitsnap.save stores nested states with other values"
            )
        if box is not None and box.name is not None:
            check_text(box.name, f"the name of tensors[{name!r}]")
        where = f"tensors[{name!r}]"
        is_lazy = isinstance(tensor, LazyTensor)
        entries.add(name, tensor.source(where) if is_lazy else named_source_of(tensor, where), box=box)
    numbers = AdamOfState(settings, adam)
    numbers.tell(entries)
    return _packed(numbers, entries, None, metadata)


def _packed(
    numbers: AdamOfState, entries: Entries, tree: ValueTree | None, metadata: Mapping[str, str] | None
) -> PackedState:
    entries.check_all_used()
    native = NativeState(TensorTable(entries.items), entries.data, tree, metadata_of(metadata))
    return PackedState(numbers, entries.items, entries.owners, native)


def metadata_of(metadata: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Checked, as the extension takes it."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a dict of str to str, got {metadata!r}")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgumentError(f"metadata must map str to str, got {key!r}: {value!r}")
        check_text(key, f"the metadata key {key!r}")
        check_text(value, f"metadata[{key!r}]")
    return list((metadata or {}).items())
