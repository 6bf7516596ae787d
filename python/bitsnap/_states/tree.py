"""Takes states apart into named tensors and a tree of other values, and puts them together again.

Every value comes back with the type that it had; only torch's version string comes back as a str. What would come back
as something else, such as an instance of another subclass, is refused, or pickled if the caller asks for it.
bitsnap/_states/typed_values.py knows the types that are neither containers nor plain values.
"""

from __future__ import annotations

import gc
import math
import os
import re
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from bitsnap._bitsnap import TensorRef, TypedValue
from bitsnap._common import KeyPath, Masters, join, keystr, loaded_torch
from bitsnap._states.program_values import (
    PICKLED,
    REGISTERED,
    PackedValue,
    PickledValue,
    Registration,
    packed,
    pickled,
    registration_of,
    type_name,
    unpacked,
    unpickled,
)
from bitsnap._states.tensors import (
    NOT_STORABLE,
    Box,
    Content,
    Entries,
    LazyTensor,
    check_text,
    local_part,
    not_storable,
    place_in_whole,
)
from bitsnap._states.typed_values import (
    CONTAINERS,
    NotStorableError,
    StoredValue,
    encode_container,
    encode_leaf,
    encode_sequence,
    encode_set,
    factory_name,
    is_mapping,
    items_of,
    like,
    metadata_of,
)
from bitsnap._tensors.arrays import NativeBox, NotStorableTensorError, is_tensor, source_of, usual_sources
from bitsnap.errors import InvalidArgumentError

# In a loaded tree, what stands for a tensor, or for a value that is stored as one.
Reference: TypeAlias = TensorRef | StoredValue

# Longer bytes, and strings of more bytes in UTF-8, are stored as streams: compressed, in chunks, and against the base.
# At this length, that takes a third of the time of JSON or less, to save and to load, and never more space.
MAX_VALUE_BYTES = 65_536
# As deep as the format allows values to nest, one level left for the value itself.
MAX_DEPTH = 127

# Are their own encoding. Most lists hold nothing else.
NUMBERS = frozenset((type(None), bool, int, float, complex))
_KEY_TYPES = frozenset((type(None), bool, int, float, bytes))


# What to store instead, by type; the first that fits counts.
_INSTEAD: tuple[tuple[Any, str], ...] = (
    (tuple, "tuple(...) of it"),
    (Mapping, "dict(...) of it"),
    (list, "list(...) of it"),
    (deque, "collections.deque(...) of it"),
    (set | frozenset, "set(...) of it"),
    (bytearray | memoryview, "bytes(...) of it"),
    (np.random.Generator, "its bit_generator.state"),
    (np.random.BitGenerator, "its state"),
    (np.random.RandomState, "its get_state()"),
)


def _advice(value: object) -> str:
    if isinstance(value, type):
        return "pass the name of the class as a str, or what an object of it holds"
    for kind, instead in _INSTEAD:
        if isinstance(value, kind):
            return f"pass {instead}"
    if isinstance(value, types.FunctionType) and re.search(r"<(lambda|locals)>", value.__qualname__):
        return "leave it out: a function within another one, such as a lambda, cannot be stored or pickled"
    for method in ("state_dict", "get_state"):
        if hasattr(value, method):
            return f"pass its {method}()"
    return "bitsnap.register_value() adds its type to those that a state may hold, and allow_pickle=True pickles it"


class _Flattener:
    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._sources = usual_sources()
        self._open: set[int] = set()  # containers around the current place, by id
        self._max_value_bytes: float = MAX_VALUE_BYTES

    def value(self, value: Any, path: KeyPath, name: str) -> Any:
        """The value at a path, encoded. `name` is the dotted name of the path."""
        kind = type(value)
        if kind in self._sources:
            return self._tensor(value, path, name, "tensor")
        if kind is bytes and len(value) > self._max_value_bytes:
            return self._stream(value, path, name, "bytes")
        if kind in NUMBERS or kind is bytes:
            return value
        if kind is str:
            if not value.isascii():
                check_text(value, keystr(path, "state"))
            # A character takes up to four bytes.
            if 4 * len(value) > self._max_value_bytes and len(encoded := value.encode()) > self._max_value_bytes:
                return self._stream(encoded, path, name, "str")
            return value
        if kind in CONTAINERS:
            return self._container(value, path, name)
        if kind is set or kind is frozenset:
            return encode_set(kind, (self._key(item, path, "the item") for item in value))
        return self._leaf(value, path, name)

    def _container(self, value: Any, path: KeyPath, name: str) -> Any:
        if id(value) in self._open:
            raise InvalidArgumentError(f"{keystr(path, 'state')} contains itself")
        if len(path) >= MAX_DEPTH:
            raise InvalidArgumentError(f"{keystr(path, 'state')} is nested deeper than {MAX_DEPTH} levels")
        self._open.add(id(value))
        try:
            if not is_mapping(value):
                items = [
                    item if type(item) in NUMBERS else self.value(item, (*path, i), join(path, name, i))
                    for i, item in items_of(value)
                ]
                return encode_sequence(value, items)
            # All that may be refused comes before the first tensor is added.
            factory_name(value)
            metadata = self._metadata(value, path, name)
            keys = [self._key(key, path, "the key") for key, _ in items_of(value)]
            encoded = {
                encoded_key: item if type(item) in NUMBERS else self.value(item, (*path, key), join(path, name, key))
                for encoded_key, (key, item) in zip(keys, items_of(value), strict=True)
            }
            return encode_container(value, encoded, metadata)
        except NotStorableError as error:
            raise self._refusal(value, path, str(error)) from None
        finally:
            self._open.discard(id(value))

    def _registered(self, value: Any, registration: Registration, path: KeyPath, name: str) -> TypedValue:
        if self._max_value_bytes == math.inf:
            raise self._refusal(value, path, "the attribute _metadata of a dict holds no registered values")
        if id(value) in self._open:
            raise InvalidArgumentError(f"{keystr(path, 'state')} contains itself")
        if len(self._open) >= MAX_DEPTH:
            raise InvalidArgumentError(f"{keystr(path, 'state')} is nested deeper than {MAX_DEPTH} levels")
        content = packed(value, registration, lambda: keystr(path, "state"))
        self._entries.contents.append(Content(path, content, registration))
        self._open.add(id(value))
        try:
            return TypedValue(REGISTERED, (registration.tag, self.value(content, path, name)))
        finally:
            self._open.discard(id(value))

    def _metadata(self, value: Any, path: KeyPath, name: str) -> Any:
        metadata = metadata_of(value)
        if metadata is None:
            return None
        tensors = len(self._entries.items)
        before, self._max_value_bytes = self._max_value_bytes, math.inf
        try:
            encoded = self.value(metadata, (*path, "_metadata"), join(path, name, "_metadata"))
        finally:
            self._max_value_bytes = before
        if len(self._entries.items) > tensors:
            raise InvalidArgumentError(f"{keystr(path, 'state')}._metadata holds a tensor and cannot be stored")
        return encoded

    def _key(self, key: Any, path: KeyPath, what: str) -> Any:
        kind = type(key)
        if kind in _KEY_TYPES:
            return key
        if kind is str:
            return key if key.isascii() else check_text(key, f"a key of {keystr(path, 'state')}")
        if kind is tuple:
            return tuple(self._key(part, path, what) for part in key)
        if kind is frozenset:
            return encode_set(kind, (self._key(item, path, what) for item in key))
        encoded = self._typed(key, path)
        if encoded is not None:
            return encoded
        raise not_storable(
            f"{keystr(path, 'state')} has {what} {key!r} of type {type_name(kind)}; keys and the items of sets are "
            "str, int, float, bool, bytes, None, tuples and frozensets of those, enum members, dtypes, devices, paths "
            "and times"
        )

    def _typed(self, value: Any, path: KeyPath) -> Any:
        try:
            encoded = encode_leaf(value)
        except NotStorableError as error:
            raise self._refusal(value, path, str(error)) from None
        if encoded is not None:
            texts = encoded.content if isinstance(encoded.content, tuple) else (encoded.content,)
            for text in texts:
                if isinstance(text, str) and not text.isascii():
                    check_text(text, keystr(path, "state"))
        return encoded

    def _leaf(self, value: Any, path: KeyPath, name: str) -> Any:
        registration = registration_of(type(value))
        if registration is not None:
            return self._registered(value, registration, path, name)
        if is_tensor(value):
            part = local_part(value, path)
            return self._box(part, path, name) if isinstance(part, Box) else self._tensor(part, path, name, "tensor")
        if isinstance(value, Box):
            return self._box(value, path, name)
        if isinstance(value, LazyTensor):
            return self._tensor(value, path, name, "tensor" if value.is_of_torch else "array")
        if isinstance(value, np.generic):
            return self._tensor(value, path, name, "scalar")
        if isinstance(value, np.ndarray):
            return self._tensor(value, path, name, "array")
        encoded = self._typed(value, path)
        if encoded is not None:
            return encoded
        torch = loaded_torch()
        if torch is not None and isinstance(value, torch.torch_version.TorchVersion):
            return str(value)
        raise self._refusal(value, path, _advice(value))

    def _tensor(
        self, value: Any, path: KeyPath, name: str, kind: str, role: str | None = None, box: NativeBox | None = None
    ) -> TensorRef:
        try:
            if isinstance(value, LazyTensor):
                source = value.source(keystr(path, "state"))
            else:
                source = self._sources.get(type(value), source_of)(value)
        except NotStorableTensorError as error:
            raise not_storable(f"{keystr(path, 'state')} {error}") from None
        return TensorRef(self._entries.add(name or "tensor", source, path, role, box), kind)

    def _box(self, box: Box, path: KeyPath, name: str) -> TensorRef:
        if box.name is not None:
            check_text(box.name, f"the name of {keystr(path, 'state')}")
        tensor, place = box.tensor, place_in_whole(box)
        if isinstance(tensor, LazyTensor):
            return self._tensor(tensor, path, name, "tensor" if tensor.is_of_torch else "array", box=place)
        if is_tensor(tensor) or isinstance(tensor, np.ndarray):
            return self._tensor(tensor, path, name, "tensor" if is_tensor(tensor) else "array", box=place)
        raise self._refusal(box.tensor, path, "a box holds a tensor or an array")

    def _stream(self, content: bytes, path: KeyPath, name: str, kind: str) -> Any:
        return TypedValue(kind, self._tensor(np.frombuffer(content, np.uint8), path, name, "tensor", "other"))

    @staticmethod
    def _refusal(value: object, path: KeyPath, why: str) -> InvalidArgumentError:
        where = keystr(path, "state")
        return not_storable(f"{where} is of type {type_name(type(value))} and cannot be stored: {why}")


class _PicklingFlattener(_Flattener):
    """Pickles the innermost values that no other way can store."""

    def value(self, value: Any, path: KeyPath, name: str) -> Any:
        try:
            return super().value(value, path, name)
        except InvalidArgumentError as error:
            # What lies in metadata stays plain: the dict that has them is pickled.
            if error.code != NOT_STORABLE or self._max_value_bytes == math.inf:
                raise
        content = pickled(value, lambda: keystr(path, "state"))
        return TypedValue(PICKLED, (type_name(type(value)), super().value(content, path, name)))


def flatten(
    state: Any, roles: Mapping[str, str] | None, masters: Masters | None, may_pickle: bool = False
) -> tuple[Entries, Any]:
    """The tensors of a state, and its tree as the extension takes it, with a TensorRef in the place of each tensor."""
    entries = Entries(roles, masters)
    flattener = _PicklingFlattener(entries) if may_pickle else _Flattener(entries)
    return entries, flattener.value(state, (), "")


def encoded_value(value: Any, may_pickle: bool) -> Any:
    """A value without tensors, encoded. Raises InvalidArgumentError for a tensor, or what cannot be stored."""
    entries, encoded = flatten(value, None, None, may_pickle)
    if entries.items:
        raise InvalidArgumentError("the value holds a tensor")
    return encoded


def references(tree: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Reference]]:
    """All references of a loaded tree with their paths, in order."""
    if isinstance(tree, Reference):
        yield path, tree
    elif isinstance(tree, PackedValue | PickledValue):
        yield from references(tree.content, path)
    for key, item in items_of(tree):
        yield from references(item, (*path, key))


def program_values(tree: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, PackedValue | PickledValue]]:
    """All values of a loaded tree that code of the program or of the file makes, with their paths."""
    if isinstance(tree, PackedValue | PickledValue):
        yield path, tree
        yield from program_values(tree.content, path)
    for key, item in items_of(tree):
        yield from program_values(item, (*path, key))


def rebuild(tree: Any, give: Callable[[Reference, KeyPath], Any], path: KeyPath = ()) -> Any:
    """The loaded tree with what `give` returns in the place of each reference, and with the values of programs made.

    Runs the pickles of the tree.
    """
    if isinstance(tree, Reference):
        return give(tree, path)
    if isinstance(tree, PackedValue):
        return unpacked(tree.tag, rebuild(tree.content, give, path), lambda: keystr(path, "state"))
    if isinstance(tree, PickledValue):
        return unpickled(tree.type_name, rebuild(tree.content, give, path), lambda: keystr(path, "state"))
    if type(tree) not in CONTAINERS:
        return tree
    return like(tree, [(key, rebuild(item, give, (*path, key))) for key, item in items_of(tree)])


# What is asked about the dotted name and the path of a value.
Question: TypeAlias = Callable[[str, KeyPath], bool]


def places(tree: Any, leads_on: Question, path: KeyPath = (), name: str = "") -> Iterator[tuple[str, KeyPath]]:
    """The dotted name and the path of every value inside a loaded tree. Several values may have one name.

    Of what lies below a value, only if `leads_on` is true of it. What lies in a registered value has the names that it
    has in the content of that value.
    """
    while isinstance(tree, PackedValue):
        tree = tree.content
    for key, item in items_of(tree):
        own, at = join(path, name, key), (*path, key)
        yield own, at
        if leads_on(own, at):
            yield from places(item, leads_on, at, own)


def prune(tree: Any, selected: Question, leads_on: Question) -> Any:
    """The loaded tree without the dict entries in which nothing is selected; Ellipsis if nothing remains.

    If `selected` is true of a value, all that lies below is selected. Nothing is below a value of which neither that
    nor `leads_on` is true. Lists and tuples of which any part is selected stay whole, so that positions keep their
    meaning, and so do registered values.
    """

    def visit(value: Any, path: KeyPath, name: str) -> Any:
        if path and selected(name, path):
            return value
        if path and not leads_on(name, path):
            return ...
        if is_mapping(value):
            pruned = ((key, visit(item, (*path, key), join(path, name, key))) for key, item in items_of(value))
            kept = [(key, item) for key, item in pruned if item is not ...]
            return like(value, kept) if kept else ...
        return value if any(selected(*place) for place in places(value, leads_on, path, name)) else ...

    return visit(tree, (), "")


# The threshold of the collector, for as good as never.
_NEVER = 1 << 30

_lock = threading.RLock()  # a signal handler may save at any point
_users = 0
_thresholds = (0, 0, 0)  # as they were before the first user


@contextmanager
def without_collection() -> Iterator[None]:
    """Keeps the collector from running by itself, which would visit the growing state again and again in vain.

    Without it, a load of 100,000 tensors takes 1.7 times as long, and a save up to 1.3 times. It takes the thresholds
    of the collector away, so that switching it off and on, and collecting, remain the program's. Cyclic garbage of
    other threads waits meanwhile.
    """
    global _users, _thresholds
    with _lock:
        if _users == 0 and gc.get_threshold()[0] != _NEVER:
            _thresholds = gc.get_threshold()
            gc.set_threshold(_NEVER, *_thresholds[1:])
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users = max(_users - 1, 0)  # 0 already in a child that was forked inside
            if _users == 0:
                _restore()


def _restore() -> None:
    if gc.get_threshold()[0] == _NEVER:  # nobody has chosen others
        gc.set_threshold(*_thresholds)


def _start_anew() -> None:
    """In a forked child, which has none of the other threads."""
    global _lock, _users
    _lock = threading.RLock()
    if _users > 0:
        _users = 0
        _restore()


os.register_at_fork(after_in_child=_start_anew)
