"""A state in the form of the extension: named tensors with their roles, masters and values of Adam, and the tree.

A plan is what one save leaves for the next: the tensors and the tree of a state, for states of the same structure. A
state has the same structure if its containers, keys, and the dtypes, shapes and ties of its tensors are the same. Its
tensors may lie in other memory, and its other values may have changed. A plan keeps no tensor alive.
"""

from __future__ import annotations

import argparse
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np

from bitsnap._bitsnap import NativeState, Settings, TensorRef, TensorTable, TypedValue, ValueTree, value_text
from bitsnap._common import Masters, Metrics, Role, brief, float_of, may_lose
from bitsnap._states.adam import AdamOfState, Adams, AdamSources
from bitsnap._states.program_values import PICKLED, REGISTERED, Registration, changes, packed, registration_of
from bitsnap._states.tensors import (
    Box,
    Content,
    Entries,
    Entry,
    LazyTensor,
    check_text,
    local_part,
    place_in_whole,
    tensor_of,
)
from bitsnap._states.tree import NUMBERS, encoded_value, flatten, without_collection
from bitsnap._states.typed_values import is_container, is_mapping, items_of, metadata_of
from bitsnap._tensors.arrays import Data, NotStorableTensorError, Source, source_maker, source_of
from bitsnap.errors import BitsnapError, InvalidArgumentError

# Keys of other types, such as tuples, may be equal and have other bits.
_COMPARABLE_KEYS = frozenset((str, int, bytes))

Replace = Callable[[Any], None]


class StructureChangedError(Exception):
    """The state has another structure than the one that was planned."""


class StatePlan:
    """Made of a state and what flatten() made of it. After an error of fill() it is of no more use."""

    def __init__(self, state: Any, entries: Entries, tree: Any, may_pickle: bool = False) -> None:
        self.may_pickle = may_pickle
        self.entries = entries.items
        self.tensors = TensorTable(self.entries)
        self.tree = ValueTree(tree)
        self._encoded = [tree]
        planned = _Planned(entries.items, iter(entries.contents))
        self._root = _node_of(state, tree, planned, _setter(self._encoded, 0))
        self._data: list[Data] = []
        self._owners: list[object] = []
        self._first: dict[Hashable, int] = {}  # the tensor of each memory
        self.has_new_values = False

    def fill(self, state: Any) -> tuple[list[Data], list[object]]:
        """The data of the tensors of another state, and what keeps it alive; takes over its other values.

        Raises:
            StructureChangedError: it does not have the structure of the plan, or cannot be stored.
        """
        self.has_new_values = False
        try:
            self._root.match(state, self)
            filled = self._data, self._owners
        except NotStorableTensorError:
            raise StructureChangedError from None
        finally:
            self._data, self._owners, self._first = [], [], {}
        if self.has_new_values:
            self.tree = ValueTree(self._encoded[0])
        return filled

    def add(self, source: Source, dtype: str, shape: tuple[int, ...], holder: int) -> None:
        """The next tensor of the state, which is to have the memory of the tensor `holder`, mostly itself."""
        found_dtype, found_shape, _, data, identity, owner = source
        if found_shape != shape or found_dtype != dtype:
            raise StructureChangedError
        index = len(self._data)
        if identity is not None:
            # An address alone is compared faster. If two views begin there, it does not tell which are tied.
            is_contiguous = type(data) is int
            first = self._first.setdefault(data if is_contiguous else identity, index)
            if first != holder or (is_contiguous and first != index and self._is_other_view(first, dtype, shape)):
                raise StructureChangedError
        self._data.append(data)
        self._owners.append(owner)

    def _is_other_view(self, tensor: int, dtype: str, shape: tuple[int, ...]) -> bool:
        entry = self.entries[tensor]
        return (entry.dtype, entry.shape) != (dtype, shape)


class _Planned(NamedTuple):
    """Of the state that is planned: its tensors, and the contents of its registered values, which the functions below
    take in the order of the state."""

    items: list[Entry]
    contents: Iterator[Content]


class _Node(Protocol):
    """The structure at one place of a state."""

    def match(self, value: Any, plan: StatePlan) -> None: ...


def _setter(items: Any, key: Any) -> Replace:
    def replace(encoded: Any) -> None:
        items[key] = encoded

    return replace


def _item_setter(items: list[Any], position: int, replace_tuple: Replace | None) -> Replace | None:
    """Replaces an item of an encoded tuple, whose items are `items`, by replacing the tuple."""
    if replace_tuple is None:
        return None

    def replace(encoded: Any) -> None:
        items[position] = encoded
        replace_tuple(tuple(items))

    return replace


class _Tensor:
    __slots__ = ("_dtype", "_holder", "_kind", "_shape", "_source_of")

    def __init__(self, value: Any, dtype: str, shape: tuple[int, ...], holder: int) -> None:
        self._kind, self._source_of = type(value), source_maker(value)
        self._dtype, self._shape, self._holder = dtype, shape, holder

    def match(self, value: Any, plan: StatePlan) -> None:
        if type(value) is not self._kind:
            raise StructureChangedError
        plan.add(self._source_of(value), self._dtype, self._shape, self._holder)


class _Part:
    """A Box, or a DTensor."""

    __slots__ = ("_kind", "_place", "_tensor")

    def __init__(self, kind: Any, part: Any, tensor: _Tensor) -> None:
        self._kind, self._place, self._tensor = kind, place_in_whole(part), tensor

    def match(self, value: Any, plan: StatePlan) -> None:
        if type(value) is not self._kind:
            raise StructureChangedError
        try:
            part = local_part(value, ())
        except BitsnapError:  # taking the state apart anew names the place
            raise StructureChangedError from None
        if place_in_whole(part) != self._place:
            raise StructureChangedError
        self._tensor.match(tensor_of(part), plan)


class _Unplanned:
    """A LazyTensor, whose errors name its place: the state is taken apart for each save."""

    __slots__ = ()

    def match(self, value: Any, plan: StatePlan) -> None:
        raise StructureChangedError


class _LongValue:
    """Bytes or a str stored as a tensor."""

    __slots__ = ("_holder", "_kind", "_size")

    def __init__(self, kind: Any, size: int, holder: int) -> None:
        self._kind, self._size, self._holder = kind, size, holder

    def match(self, value: Any, plan: StatePlan) -> None:
        if type(value) is not self._kind or len(value) > self._size:
            raise StructureChangedError
        try:
            content = value.encode() if isinstance(value, str) else value
        except UnicodeEncodeError:
            raise StructureChangedError from None
        if len(content) != self._size:
            raise StructureChangedError
        plan.add(source_of(np.frombuffer(content, np.uint8)), "U8", (self._size,), self._holder)


class _Values:
    """A value without tensors, with all that it holds. It is encoded anew for each save."""

    __slots__ = ("_replace", "_text")

    def __init__(self, encoded: Any, replace: Replace | None) -> None:
        self._text, self._replace = value_text(encoded), replace

    def match(self, value: Any, plan: StatePlan) -> None:
        try:
            encoded = value if type(value) in NUMBERS else encoded_value(value, plan.may_pickle)
        except InvalidArgumentError:
            raise StructureChangedError from None
        # The text has all bits of the value, and its types.
        text = value_text(encoded)
        if text == self._text:
            return
        if self._replace is None:
            raise StructureChangedError
        self._replace(encoded)
        self._text = text
        plan.has_new_values = True


class _Sequence:
    __slots__ = ("_items", "_kind", "_longest")

    def __init__(self, kind: Any, items: list[_Node], longest: int | None) -> None:
        self._kind, self._items, self._longest = kind, items, longest

    def match(self, value: Any, plan: StatePlan) -> None:
        if type(value) is not self._kind or len(value) != len(self._items):
            raise StructureChangedError
        if self._kind is deque and value.maxlen != self._longest:
            raise StructureChangedError
        for item, node in zip(value, self._items, strict=True):
            node.match(item, plan)


class _Mapping:
    __slots__ = ("_factory", "_items", "_kind", "_metadata")

    def __init__(self, kind: Any, items: list[tuple[Any, _Node]], factory: Any, metadata: _Node | None) -> None:
        self._kind, self._items, self._factory, self._metadata = kind, items, factory, metadata

    def match(self, value: Any, plan: StatePlan) -> None:
        if type(value) is not self._kind:
            raise StructureChangedError
        mapping = vars(value) if self._kind is argparse.Namespace else value
        if len(mapping) != len(self._items):
            raise StructureChangedError
        for (key, item), (known, node) in zip(mapping.items(), self._items, strict=True):
            if key is not known and (key != known or type(key) is not type(known) or type(key) not in _COMPARABLE_KEYS):
                raise StructureChangedError
            node.match(item, plan)
        if self._kind is defaultdict and value.default_factory is not self._factory:
            raise StructureChangedError
        if self._kind is OrderedDict:
            metadata = metadata_of(value)
            if (metadata is None) != (self._metadata is None):
                raise StructureChangedError
            if self._metadata is not None:
                self._metadata.match(metadata, plan)


class _Registered:
    """A registered value that holds tensors."""

    __slots__ = ("_content", "_kind", "_registration")

    def __init__(self, kind: Any, registration: Registration, content: _Node) -> None:
        self._kind, self._registration, self._content = kind, registration, content

    def match(self, value: Any, plan: StatePlan) -> None:
        if type(value) is not self._kind:
            raise StructureChangedError
        try:
            content = packed(value, self._registration, str)
        except InvalidArgumentError:
            raise StructureChangedError from None
        self._content.match(content, plan)


class _Pickled:
    """A value whose pickle is stored as a tensor."""

    __slots__ = ("_holder", "_size", "_type_name")

    def __init__(self, type_name: str, size: int, holder: int) -> None:
        self._type_name, self._size, self._holder = type_name, size, holder

    def match(self, value: Any, plan: StatePlan) -> None:
        try:
            entries, encoded = flatten(value, None, None, plan.may_pickle)
        except InvalidArgumentError:
            raise StructureChangedError from None
        # A value of the same type may need no pickle, such as a tensor that is not sparse any more.
        is_pickled = isinstance(encoded, TypedValue) and encoded.type == PICKLED and len(entries.items) == 1
        if not is_pickled or encoded.content[0] != self._type_name:
            raise StructureChangedError
        dtype, shape, size_bytes = entries.items[0][1:4]
        source = Source(dtype, shape, size_bytes, entries.data[0], None, entries.owners[0])
        plan.add(source, "U8", (self._size,), self._holder)


def _node_of(value: Any, encoded: Any, entries: _Planned, replace: Replace | None) -> _Node:
    return _node_with_tensors(value, encoded, entries, replace) or _Values(encoded, replace)


def _node_with_tensors(value: Any, encoded: Any, entries: _Planned, replace: Replace | None) -> _Node | None:
    """None if there is no tensor in the value."""
    if isinstance(encoded, TensorRef):
        if isinstance(tensor_of(value), LazyTensor):
            return _Unplanned()
        entry = entries.items[encoded.index]
        holder = encoded.index if entry.alias_of is None else entry.alias_of
        part = local_part(value, ())
        tensor = _Tensor(tensor_of(part), entry.dtype, entry.shape, holder)
        return _Part(type(value), part, tensor) if isinstance(part, Box) or part is not value else tensor
    if isinstance(encoded, TypedValue) and isinstance(encoded.content, TensorRef):
        entry = entries.items[encoded.content.index]
        holder = encoded.content.index if entry.alias_of is None else entry.alias_of
        return _LongValue(type(value), entry.size_bytes, holder)
    if isinstance(encoded, TypedValue) and encoded.type == REGISTERED:
        return _registered_node(value, encoded.content, entries, replace)
    if isinstance(encoded, TypedValue) and encoded.type == PICKLED:
        type_name, content = encoded.content
        if not isinstance(content, TypedValue):
            return None
        return _Pickled(type_name, entries.items[content.content.index].size_bytes, content.content.index)
    if not is_container(value):
        return None
    return (
        _mapping_node(value, encoded, entries, replace)
        if is_mapping(value)
        else _sequence_node(value, encoded, entries, replace)
    )


def _registered_node(
    value: Any, encoded: tuple[str, Any], entries: _Planned, replace: Replace | None
) -> _Registered | None:
    tag, encoded_content = encoded
    _, content, registration = next(entries.contents)

    def replace_content(other: Any) -> None:
        assert replace is not None
        replace(TypedValue(REGISTERED, (tag, other)))

    setter = None if replace is None else replace_content
    node = _node_with_tensors(content, encoded_content, entries, setter)
    return None if node is None else _Registered(type(value), registration, node)


def _sequence_node(value: Any, encoded: Any, entries: _Planned, replace: Replace | None) -> _Sequence | None:
    kind = type(value)
    if kind is deque:
        encoded = encoded.content[1]
    items = encoded if isinstance(encoded, list) else list(encoded)

    def setter(position: int) -> Replace | None:
        return _setter(items, position) if items is encoded else _item_setter(items, position, replace)

    nodes = [_node_with_tensors(item, items[i], entries, setter(i)) for i, item in enumerate(value)]
    if all(node is None for node in nodes):
        return None
    longest = value.maxlen if kind is deque else None
    return _Sequence(kind, [node or _Values(items[i], setter(i)) for i, node in enumerate(nodes)], longest)


def _mapping_node(value: Any, encoded: Any, entries: _Planned, replace: Replace | None) -> _Mapping | None:
    kind, metadata = type(value), None
    content = encoded.content if isinstance(encoded, TypedValue) else encoded
    if kind is defaultdict:
        content = content[1]
    if kind is OrderedDict and isinstance(content, tuple):
        content, metadata = content
    nodes = [
        (key, _node_with_tensors(item, encoded_item, entries, _setter(content, encoded_key)), encoded_key)
        for (key, item), (encoded_key, encoded_item) in zip(items_of(value), content.items(), strict=True)
    ]
    if all(node is None for _, node, _ in nodes):
        return None
    items = [
        (key, node or _Values(content[encoded_key], _setter(content, encoded_key))) for key, node, encoded_key in nodes
    ]
    factory = value.default_factory if kind is defaultdict else None
    return _Mapping(kind, items, factory, None if metadata is None else _Values(metadata, None))


class PackedState(NamedTuple):
    adam: AdamOfState
    entries: list[Entry]
    owners: list[object]  # keep the data alive
    native: NativeState

    def names(self) -> Iterator[tuple[str, str, str | None]]:
        """Names, dtypes and roles of the tensors."""
        return ((entry.name, entry.dtype, entry.role) for entry in self.entries)


class Packer:
    """Packs the states of one Checkpointer or Store. Those with the structure of the last one take a fraction of the
    time. Any thread may use it.

    `plans`: False for one state only, of which nothing is kept.
    """

    def __init__(self, *, plans: bool = True) -> None:
        self._plans = plans
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
        roles: Mapping[str, Role] | None = None,
        masters: Masters | None = None,
        metadata: Mapping[str, str] | None = None,
        may_pickle: bool = False,
    ) -> PackedState:
        numbers = AdamOfState(settings, adam)
        # The numbers of Adam are found anew for each state. And a signal handler may save while this thread does.
        if not self._plans or may_lose(settings) or not self._lock.acquire(blocking=False):
            entries, tree = flatten(state, roles, masters, may_pickle)
            numbers.tell(entries, state)
            return as_packed(numbers, entries, ValueTree(tree), metadata)
        try:
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
                copies = (None if each is None else dict(each) for each in (roles, masters))
                self._planned_for = (*copies, *others)
            self._plan = plan
            data, owners = filled
            native = NativeState(plan.tensors, data, plan.tree, native_metadata(metadata))
            return PackedState(numbers, plan.entries, owners, native)
        finally:
            self._lock.release()


def as_packed(
    numbers: AdamOfState, entries: Entries, tree: ValueTree | None, metadata: Mapping[str, str] | None
) -> PackedState:
    entries.check_all_used()
    native = NativeState(TensorTable(entries.items), entries.data, tree, native_metadata(metadata))
    return PackedState(numbers, entries.items, entries.owners, native)


def made_state(state: Any) -> Any:
    """The state itself, or what a function returns that makes it."""
    # Modules and registered values can be called, too, with another meaning.
    is_function = callable(state) and not hasattr(state, "state_dict") and registration_of(type(state)) is None
    return state() if is_function else state


def with_metrics(metadata: Mapping[str, str] | None, metrics: Metrics | None) -> Mapping[str, str] | None:
    """The metadata of a state, with the metrics of its checkpoint as "metrics.NAME"."""
    if metrics is None:
        return metadata
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics must be a dict of str to numbers, got {brief(metrics)}")
    native_metadata(metadata)
    texts = dict(metadata or {})
    for name, value in metrics.items():
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(f"metrics must have names that are str and not empty, got {brief(name)}")
        texts[f"metrics.{name}"] = repr(float_of(value, f"metrics[{name!r}]"))
    return texts


def native_metadata(metadata: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Checked, as the extension takes it."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a dict of str to str, got {brief(metadata)}")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgumentError(f"metadata must map str to str, got {brief(key)}: {value!r}")
        check_text(key, f"the metadata key {key!r}")
        check_text(value, f"metadata[{key!r}]")
    return list((metadata or {}).items())
