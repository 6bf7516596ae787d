"""States taken apart and put together: any nesting of containers into named tensors and a tree of plain values.

What goes in comes back with the same type, with these exceptions, which are stored as what they are made of:
OrderedDict, defaultdict and Counter as dict, torch.Size as tuple, torch's version string as str. Other subclasses are
refused, because they would come back as something else.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bitsnap import _dtypes
from bitsnap._arguments import number_of
from bitsnap._arrays import Data, Source, is_tensor, source_of
from bitsnap._bitsnap import TensorRef
from bitsnap._options import Masters
from bitsnap.errors import InvalidArgumentError

# As deep as the format allows values to nest, one level left for the value itself.
MAX_DEPTH = 127
# Longer paths are cut in messages.
_SHOWN_PATH = 400

_PLAIN = (type(None), bool, int, float, complex, bytes)
_KEY_TYPES = (type(None), bool, int, float, bytes)
_DICTS = (dict, OrderedDict, defaultdict, Counter)


class Entry(NamedTuple):
    """One tensor as the extension takes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    role: str | None
    master: tuple[str, int] | None  # its name, and the element in it where this tensor begins
    adam: tuple[float, float, float, int] | None  # both betas, eps and step, where a first moment has its own
    alias_of: int | None
    data: Data
    owner: object  # keeps the data alive


class Entries:
    """The tensors of a state in the order in which they were met. Tensors that are the same memory are stored once."""

    def __init__(self, roles: Mapping[str, str] | None, masters: Masters | None) -> None:
        self.items: list[Entry] = []
        if roles is not None and not isinstance(roles, Mapping):
            raise TypeError(f"roles is a dict of names to roles, not {roles!r}")
        if masters is not None and not isinstance(masters, Mapping):
            raise TypeError(f"masters is a dict of names to names, not {masters!r}")
        self._roles = dict(roles or {})
        self._masters = {name: _master_of(master, f"masters[{name!r}]") for name, master in (masters or {}).items()}
        self._used: set[str] = set()
        self._by_identity: dict[Hashable, int] = {}

    def add(self, name: str, source: Source) -> int:
        """The index of the tensor. A name that is taken gets "#2", "#3" and so on."""
        unique, count = name, 1
        while unique in self._used:
            count += 1
            unique = f"{name}#{count}"
        self._used.add(unique)
        index = len(self.items)
        alias = None
        if source.identity is not None:
            first = self._by_identity.setdefault(source.identity, index)
            alias = None if first == index else first
        role = self._roles.pop(unique, None)
        master = self._masters.pop(unique, None)
        self.items.append(
            Entry(
                name=unique,
                dtype=source.dtype,
                shape=source.shape,
                size_bytes=source.size_bytes,
                role=role,
                master=master,
                adam=None,
                alias_of=alias,
                data=source.data,
                owner=source.owner,
            )
        )
        return index

    def index_of(self, identity: Hashable) -> int | None:
        """The tensor of that memory, if there is one."""
        return self._by_identity.get(identity)

    def canonical(self, index: int) -> int:
        """The tensor itself where `index` is another name of it."""
        alias = self.items[index].alias_of
        return index if alias is None else alias

    def finish(self) -> list[Entry]:
        if self._roles:
            raise InvalidArgumentError(f"roles are given for tensors that are not there: {sorted(self._roles)}")
        if self._masters:
            raise InvalidArgumentError(f"masters are given for tensors that are not there: {sorted(self._masters)}")
        return self.items


def _master_of(master: object, where: str) -> tuple[str, int]:
    name, element = master if isinstance(master, tuple) and len(master) == 2 else (master, 0)
    if not isinstance(name, str):
        raise TypeError(f"{where} is the name of a tensor, or a tuple of it and an element, not {master!r}")
    return check_text(name, where), number_of(element, f"the element of {where}")


def component(key: object) -> str:
    """How a key stands in the name of a tensor: ``optimizer.state.0.exp_avg``."""
    return key if isinstance(key, str) else str(key) if isinstance(key, int | None) else repr(key)


def place_of(path: tuple[object, ...], root: str) -> str:
    """How a place stands in messages: ``state['optimizer']['state'][0]``."""
    text = root + "".join(f"[{key!r}]" for key in path)
    return text if len(text) <= _SHOWN_PATH else f"{text[:_SHOWN_PATH]}..."


def check_text(text: str, where: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"{where} is a string that is not valid Unicode: {error.reason}") from None
    return text


def _advice(value: object) -> str:
    if isinstance(value, tuple):
        return "pass tuple(...) of it"
    if isinstance(value, Mapping):
        return "pass dict(...) of it"
    if isinstance(value, list | set | frozenset):
        return "pass list(...) of it"
    if isinstance(value, bytearray | memoryview):
        return "pass bytes(...) of it"
    if isinstance(value, np.random.Generator):
        return "pass its bit_generator.state"
    if isinstance(value, np.random.BitGenerator):
        return "pass its state"
    if isinstance(value, np.random.RandomState):
        return "pass its get_state()"
    if hasattr(value, "state_dict"):
        return "pass its state_dict()"
    if hasattr(value, "get_state"):
        return "pass its get_state()"
    return "a state holds dict, list, tuple, tensors, arrays, numbers, str, bytes and None"


class _Flattener:
    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._open: set[int] = set()  # containers around the current place, by id

    def value(self, value: Any, path: tuple[object, ...]) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is str:
            return check_text(value, place_of(path, "state"))
        if kind is list or kind is tuple or kind in _DICTS:
            return self._container(value, path)
        return self._leaf(value, path)

    def _container(self, value: Any, path: tuple[object, ...]) -> Any:
        if id(value) in self._open:
            raise InvalidArgumentError(f"{place_of(path, 'state')} contains itself")
        if len(path) >= MAX_DEPTH:
            raise InvalidArgumentError(f"{place_of(path, 'state')} is nested deeper than {MAX_DEPTH} levels")
        self._open.add(id(value))
        try:
            if isinstance(value, dict):
                return {self._key(key, path): self.value(item, (*path, key)) for key, item in value.items()}
            items = [self.value(item, (*path, i)) for i, item in enumerate(value)]
            return items if isinstance(value, list) else tuple(items)
        finally:
            self._open.discard(id(value))

    def _key(self, key: Any, path: tuple[object, ...]) -> Any:
        kind = type(key)
        if kind in _KEY_TYPES:
            return key
        if kind is str:
            return check_text(key, f"a key of {place_of(path, 'state')}")
        if kind is tuple:
            return tuple(self._key(part, path) for part in key)
        raise InvalidArgumentError(
            f"{place_of(path, 'state')} has the key {key!r} of type {_type_name(kind)}; "
            "keys are str, int, float, bool, bytes, None, or tuples of those"
        )

    def _leaf(self, value: Any, path: tuple[object, ...]) -> Any:
        where = place_of(path, "state")
        if is_tensor(value):
            return self._tensor(value, path, where, "tensor")
        if isinstance(value, np.generic):
            return self._tensor(value, path, where, "scalar")
        if isinstance(value, np.ndarray):
            return self._tensor(value, path, where, "array")
        torch = _dtypes.loaded_torch()
        if torch is not None:
            if type(value) is torch.Size:
                return tuple(int(n) for n in value)
            if isinstance(value, torch.torch_version.TorchVersion):
                return str(value)
        raise InvalidArgumentError(
            f"{where} is of type {_type_name(type(value))} and cannot be stored: {_advice(value)}"
        )

    def _tensor(self, value: Any, path: tuple[object, ...], where: str, kind: str) -> TensorRef:
        name = ".".join(component(key) for key in path) or "tensor"
        return TensorRef(self._entries.add(name, source_of(value, where)), kind)


def _type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def flatten(state: Any, roles: Mapping[str, str] | None, masters: Masters | None) -> tuple[Entries, Any]:
    """The tensors of a state, and its tree with a TensorRef in the place of each."""
    entries = Entries(roles, masters)
    tree = _Flattener(entries).value(state, ())
    return entries, tree


def references(tree: Any, path: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], TensorRef]]:
    """All TensorRefs of a tree with their paths, in order."""
    if isinstance(tree, TensorRef):
        yield path, tree
    elif isinstance(tree, dict):
        for key, item in tree.items():
            yield from references(item, (*path, key))
    elif isinstance(tree, list | tuple):
        for i, item in enumerate(tree):
            yield from references(item, (*path, i))


def rebuild(tree: Any, give: Callable[[TensorRef, tuple[object, ...]], Any], path: tuple[object, ...] = ()) -> Any:
    """The tree with what `give` returns in the place of each TensorRef."""
    if isinstance(tree, TensorRef):
        return give(tree, path)
    if isinstance(tree, dict):
        return {key: rebuild(item, give, (*path, key)) for key, item in tree.items()}
    if isinstance(tree, list):
        return [rebuild(item, give, (*path, i)) for i, item in enumerate(tree)]
    if isinstance(tree, tuple):
        return tuple(rebuild(item, give, (*path, i)) for i, item in enumerate(tree))
    return tree


def prune(tree: Any, selected: Callable[[str], bool]) -> Any:
    """The tree without the dict entries in which nothing is selected; Ellipsis where that is everything.

    `selected` is asked with dotted paths; where it says yes, all that lies below is selected. Lists and tuples of which
    any part is selected stay whole, so that positions keep their meaning.
    """

    def any_selected(value: Any, path: str) -> bool:
        if selected(path):
            return True
        if isinstance(value, list | tuple):
            return any(any_selected(item, f"{path}.{i}" if path else str(i)) for i, item in enumerate(value))
        if isinstance(value, dict):
            return any(any_selected(item, _join(path, key)) for key, item in value.items())
        return False

    def visit(value: Any, path: str) -> Any:
        if isinstance(value, dict) and not (path and selected(path)):
            kept = {key: visit(item, _join(path, key)) for key, item in value.items()}
            kept = {key: item for key, item in kept.items() if item is not ...}
            return kept or ...
        return value if any_selected(value, path) else ...

    return visit(tree, "")


def _join(path: str, key: object) -> str:
    return f"{path}.{component(key)}" if path else component(key)
