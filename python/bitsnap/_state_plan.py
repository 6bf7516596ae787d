"""What one save leaves for the next: the tensors and the tree of a state, for states of the same structure.

A state has the same structure if its containers, keys, and the dtypes, shapes and ties of its tensors are the same.
Its tensors may lie in other memory, and its other values may have changed. A plan keeps no tensor alive.
"""

from __future__ import annotations

import argparse
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import numpy as np

from bitsnap._arrays import Data, NotStorableTensorError, Source, source_maker, source_of
from bitsnap._bitsnap import TensorRef, TensorTable, TypedValue, ValueTree, value_text
from bitsnap._tree import MAX_VALUE_BYTES, Entries, encoded_value, is_container
from bitsnap._typed_values import is_mapping, items_of, metadata_of
from bitsnap.errors import InvalidArgumentError

_NUMBERS = frozenset((type(None), bool, int, float, complex))
# Keys of other types, such as tuples, may be equal and have other bits.
_COMPARABLE_KEYS = frozenset((str, int, bytes))

Replace = Callable[[Any], None]


class StructureChangedError(Exception):
    """The state has another structure than the one that was planned."""


class StatePlan:
    """Made of a state and what flatten() made of it. After an error of fill() it is of no more use."""

    def __init__(self, state: Any, entries: Entries, tree: Any) -> None:
        self.entries = entries.items
        self.tensors = TensorTable(self.entries)
        self.tree = ValueTree(tree)
        self._encoded = [tree]
        self._root = _node_of(state, tree, entries, _setter(self._encoded, 0))
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


class _Node(Protocol):
    """The structure at one place of a state."""

    def match(self, value: Any, plan: StatePlan) -> None: ...


def _setter(parent: Any, key: Any) -> Replace | None:
    """Replaces an encoded value in its encoded container; None if the container cannot be changed."""
    if not isinstance(parent, list | dict):
        return None

    def replace(encoded: Any) -> None:
        parent[key] = encoded

    return replace


def _replace(replace: Replace | None, encoded: Any, plan: StatePlan) -> None:
    if replace is None:
        raise StructureChangedError
    replace(encoded)
    plan.has_new_values = True


class _Tensor:
    __slots__ = ("_dtype", "_holder", "_kind", "_shape", "_source_of")

    def __init__(self, value: Any, dtype: str, shape: tuple[int, ...], holder: int) -> None:
        self._kind, self._source_of = type(value), source_maker(value)
        self._dtype, self._shape, self._holder = dtype, shape, holder

    def match(self, value: Any, plan: StatePlan) -> None:
        if type(value) is not self._kind:
            raise StructureChangedError
        plan.add(self._source_of(value), self._dtype, self._shape, self._holder)


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


class _Plain:
    """A number, or short text or bytes."""

    __slots__ = ("_replace", "_value")

    def __init__(self, value: Any, replace: Replace | None) -> None:
        self._value, self._replace = value, replace

    def match(self, value: Any, plan: StatePlan) -> None:
        # 0.0 and -0.0 are equal.
        if value is self._value or (type(value) is type(self._value) and value == self._value and value != 0):
            return
        kind = type(value)
        if kind not in _NUMBERS:
            is_short = (kind is bytes or (kind is str and value.isascii())) and len(value) <= MAX_VALUE_BYTES
            if not is_short:
                raise StructureChangedError
        _replace(self._replace, value, plan)
        self._value = value


class _Other:
    """A value of any other type that is no container."""

    __slots__ = ("_replace", "_text")

    def __init__(self, encoded: Any, replace: Replace | None) -> None:
        self._text, self._replace = value_text(encoded), replace

    def match(self, value: Any, plan: StatePlan) -> None:
        try:
            encoded = encoded_value(value)
        except InvalidArgumentError:
            raise StructureChangedError from None
        text = value_text(encoded)
        if text != self._text:
            _replace(self._replace, encoded, plan)
            self._text = text


class _Sequence:
    __slots__ = ("_items", "_kind")

    def __init__(self, kind: Any, items: list[_Node]) -> None:
        self._kind, self._items = kind, items

    def match(self, value: Any, plan: StatePlan) -> None:
        if type(value) is not self._kind or len(value) != len(self._items):
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


def _node_of(value: Any, encoded: Any, entries: Entries, replace: Replace | None) -> _Node:
    kind = type(value)
    if isinstance(encoded, TensorRef):
        entry = entries.items[encoded.index]
        holder = encoded.index if entry.alias_of is None else entry.alias_of
        return _Tensor(value, entry.dtype, entry.shape, holder)
    if isinstance(encoded, TypedValue) and isinstance(encoded.content, TensorRef):
        entry = entries.items[encoded.content.index]
        holder = encoded.content.index if entry.alias_of is None else entry.alias_of
        return _LongValue(kind, entry.size_bytes, holder)
    if is_container(value):
        if not is_mapping(value):
            nodes = [_node_of(item, encoded[i], entries, _setter(encoded, i)) for i, item in enumerate(value)]
            return _Sequence(kind, nodes)
        return _mapping_node(value, encoded, entries)
    if kind in _NUMBERS or kind is bytes or kind is str:
        return _Plain(value, replace)
    return _Other(encoded, replace)


def _mapping_node(value: Any, encoded: Any, entries: Entries) -> _Mapping:
    kind, metadata = type(value), None
    content = encoded.content if isinstance(encoded, TypedValue) else encoded
    if kind is defaultdict:
        content = content[1]
    if kind is OrderedDict and isinstance(content, tuple):
        content, encoded_metadata = content
        metadata = _node_of(metadata_of(value), encoded_metadata, entries, None)
    items = [
        (key, _node_of(item, encoded_item, entries, _setter(content, encoded_key)))
        for (key, item), (encoded_key, encoded_item) in zip(items_of(value), content.items(), strict=True)
    ]
    return _Mapping(kind, items, value.default_factory if kind is defaultdict else None, metadata)
