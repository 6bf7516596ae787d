"""Values that are neither containers nor plain: each as the name of its type and the plain value it is made of.

docs/spec/typed_tree.md lists the names. encode_leaf() and the container functions make TypedValues of Python objects,
decode() makes Python objects of what a file holds. decode() runs no code that a file names: it imports no module
except torch, and it looks enum classes up in modules that the program has imported.
"""

from __future__ import annotations

import argparse
import datetime
import enum
import functools
import pathlib
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from bitsnap._bitsnap import TensorRef, TypedValue, value_text
from bitsnap._common import has_torch, import_torch, loaded_torch
from bitsnap._states.program_values import PICKLED, REGISTERED, PackedValue, PickledValue, packed_value
from bitsnap.errors import BitsnapError, CorruptError, InvalidArgumentError, UnsupportedError

_FACTORIES = {
    kind.__name__: kind for kind in (bool, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)
}
_METADATA = "_metadata"  # the attribute of state dicts in which torch keeps the versions of modules


class NotStorableError(Exception):
    """A value cannot be stored; the message says why and what to do. The caller names the value."""


# --- long values


@dataclass
class StoredValue:
    """In a loaded tree: bytes, or a str in UTF-8, whose content is a tensor of the file. Not hashable, as no key is."""

    index: int
    kind: str  # "bytes" or "str"


_STORED_KINDS = ("bytes", "str")
# The whole tree of a snapshot of a folder; docs/spec/folder.md.
_FOLDER = "bitsnap.folder"


def _stored_value(kind: str, content: Any) -> StoredValue:
    if not isinstance(content, TensorRef) or content.kind != "tensor":
        raise TypeError
    return StoredValue(content.index, kind)


def _pickled_value(content: Any) -> PickledValue:
    name, stored = content
    is_bytes = isinstance(stored, bytes) or (isinstance(stored, StoredValue) and stored.kind == "bytes")
    if type(content) is not tuple or not isinstance(name, str) or not is_bytes:
        raise TypeError
    return PickledValue(name, stored)


# --- containers


CONTAINERS: frozenset[type] = frozenset(
    (list, tuple, deque, dict, OrderedDict, defaultdict, Counter, argparse.Namespace)
)


def is_container(value: object) -> bool:
    """Whether the items of a value of a state are values of the state themselves."""
    return type(value) in CONTAINERS


def is_mapping(value: object) -> bool:
    """Whether a container has its items by keys; a Namespace has them by the names of its attributes."""
    return isinstance(value, dict | argparse.Namespace)


def items_of(value: Any) -> Iterable[tuple[Any, Any]]:
    """The items of a container by key or position; nothing for any other value."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple | deque):
        return enumerate(value)
    if isinstance(value, argparse.Namespace):
        return vars(value).items()
    return value.items() if isinstance(value, Mapping) else ()


def like(container: Any, items: Iterable[tuple[Any, Any]]) -> Any:
    """A container of the same type with other items; `items` are as items_of() gives them."""
    kind = type(container)
    if kind is list or kind is tuple:
        return kind(item for _, item in items)
    if kind is deque:
        return deque((item for _, item in items), container.maxlen)
    if kind is defaultdict:
        return defaultdict(container.default_factory, items)
    if kind is argparse.Namespace:
        return _namespace(dict(items))
    if kind is Counter:
        return _counter(dict(items))
    result = kind(items)
    if kind is OrderedDict and hasattr(container, _METADATA):
        result._metadata = container._metadata
    return result


def metadata_of(container: Any) -> Any:
    """What torch notes about the modules of a state dict; None if the container is no such dict."""
    return getattr(container, _METADATA, None) if type(container) is OrderedDict else None


def encode_container(container: Any, items: dict[Any, Any], metadata: Any) -> Any:
    """`items` and `metadata` are those of the container, encoded. Raises NotStorableError."""
    kind = type(container)
    if kind is dict:
        return items
    if kind is OrderedDict:
        return TypedValue("collections.OrderedDict", items if metadata is None else (items, metadata))
    if kind is Counter:
        return TypedValue("collections.Counter", items)
    if kind is argparse.Namespace:
        return TypedValue("argparse.Namespace", items)
    return TypedValue("collections.defaultdict", (factory_name(container), items))


def encode_sequence(sequence: Any, items: list[Any]) -> Any:
    """`items` are those of the sequence, encoded."""
    kind = type(sequence)
    return TypedValue("collections.deque", (sequence.maxlen, items)) if kind is deque else kind(items)


def factory_name(container: Any) -> str | None:
    """Of a defaultdict; None for any other container. Raises NotStorableError."""
    factory = container.default_factory if type(container) is defaultdict else None
    name = None if factory is None else str(getattr(factory, "__name__", ""))
    if name is not None and _FACTORIES.get(name) is not factory:
        raise NotStorableError("its default_factory is not a builtin type; pass dict(...) of it")
    return name


def encode_set(kind: type, items: Iterable[Any]) -> TypedValue:
    """`items` are encoded. They are ordered by their JSON, so that equal sets give equal bytes."""
    return TypedValue(kind.__name__, tuple(sorted(items, key=value_text)))


def _ordered_dict(content: Any) -> OrderedDict[Any, Any]:
    items, metadata = content if isinstance(content, tuple) else (content, None)
    result = OrderedDict(_dict(items))
    if metadata is not None:
        _check_plain(metadata)
        result._metadata = metadata  # type: ignore[attr-defined]
    return result


def _check_plain(metadata: Any) -> None:
    """Raises TypeError if it holds what loading would have to replace, which it does in containers only."""
    if isinstance(metadata, TensorRef | StoredValue | PackedValue | PickledValue):
        raise TypeError
    for _, item in items_of(metadata):
        _check_plain(item)


def _default_dict(content: Any) -> defaultdict[Any, Any]:
    name, items = content
    return defaultdict(None if name is None else _FACTORIES[name], _dict(items))


def _counter(content: Any) -> Counter[Any]:
    result: Counter[Any] = Counter()
    dict.update(result, _dict(content))
    return result


def _deque(content: Any) -> deque[Any]:
    longest, items = content
    if type(content) is not tuple or type(items) is not list or not isinstance(longest, int | None):
        raise TypeError
    if isinstance(longest, bool) or (longest is not None and longest < len(items)):
        raise ValueError
    return deque(items, longest)


def _namespace(content: Any) -> argparse.Namespace:
    return argparse.Namespace(**_dict(content))


def _dict(content: Any) -> dict[Any, Any]:
    if type(content) is not dict:
        raise TypeError
    return content


def _set_as(kind: type[set[Any]] | type[frozenset[Any]], content: Any) -> Any:
    result = kind(content)
    if type(content) is not tuple or len(result) != len(content):
        raise ValueError
    return result


_MAKERS: dict[str, Callable[[Any], Any]] = {
    "collections.OrderedDict": _ordered_dict,
    "collections.defaultdict": _default_dict,
    "collections.Counter": _counter,
    "collections.deque": _deque,
    "argparse.Namespace": _namespace,
    "set": functools.partial(_set_as, set),
    "frozenset": functools.partial(_set_as, frozenset),
}


# --- leaves


class _Leaf(NamedTuple):
    """A type whose values hold no other values of a state."""

    name: str
    encode: Callable[[Any], Any]  # may raise NotStorableError
    decode: Callable[[Any], Any]


def _encode_offset(offset: datetime.timedelta) -> tuple[int, int, int]:
    return offset.days, offset.seconds, offset.microseconds


def _encode_zone(zone: datetime.tzinfo | None) -> tuple[Any, ...] | None:
    if zone is None:
        return None
    if type(zone) is not datetime.timezone:
        raise NotStorableError("its time zone has no fixed offset; pass astimezone(datetime.timezone.utc) of it")
    # The name follows the offset only if it is not the default one.
    offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
    return (*_encode_offset(offset), *name)


def _decode_zone(content: tuple[Any, ...] | None) -> datetime.timezone | None:
    return None if content is None else datetime.timezone(datetime.timedelta(*content[:3]), *content[3:])


def _encode_clock(value: datetime.datetime | datetime.time) -> tuple[Any, ...]:
    return value.hour, value.minute, value.second, value.microsecond, value.fold, _encode_zone(value.tzinfo)


def _decode_clock(kind: Callable[..., Any], content: tuple[Any, ...]) -> Any:
    *numbers, fold, zone = content
    return kind(*numbers, _decode_zone(zone), fold=fold)


_LEAVES: dict[type, _Leaf] = {
    datetime.date: _Leaf(
        "datetime.date", lambda value: (value.year, value.month, value.day), lambda content: datetime.date(*content)
    ),
    datetime.datetime: _Leaf(
        "datetime.datetime",
        lambda value: (value.year, value.month, value.day, *_encode_clock(value)),
        functools.partial(_decode_clock, datetime.datetime),
    ),
    datetime.time: _Leaf("datetime.time", _encode_clock, functools.partial(_decode_clock, datetime.time)),
    datetime.timedelta: _Leaf("datetime.timedelta", _encode_offset, lambda content: datetime.timedelta(*content)),
    datetime.timezone: _Leaf("datetime.timezone", _encode_zone, lambda content: _decode_zone(tuple(content))),
    **{
        kind: _Leaf(f"pathlib.{kind.__name__}", str, kind)
        for kind in (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath)
    },
}


def _enum_parts(member: enum.Enum) -> tuple[str, str, str]:
    kind = type(member)
    if kind.__members__.get(member.name) is not member or _enum_class(kind.__module__, kind.__qualname__) is not kind:
        raise NotStorableError("it is not a named member of an enum class of a module; pass its value")
    return kind.__module__, kind.__qualname__, member.name


def _enum_class(module: str, qualname: str) -> Any:
    """The class if its module has been imported and has it; None otherwise. Looks names up without running code."""
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return found if isinstance(found, enum.EnumMeta) else None


def _enum_member(content: tuple[str, str, str]) -> enum.Enum:
    module, qualname, name = content
    shown = f"{module}.{qualname}.{name}"
    kind = _enum_class(module, qualname)
    if kind is None:
        where = f"{module!r} has no such enum class" if module in sys.modules else f"{module!r} is not imported"
        raise InvalidArgumentError(
            f"the state holds the enum member {shown}, but the module {where}; import it before loading"
        )
    member = kind.__members__.get(name)
    if member is None:
        raise InvalidArgumentError(f"the state holds the enum member {shown}, but that class has no member {name!r}")
    return member  # type: ignore[no-any-return]


@functools.cache
def _torch_leaves() -> dict[type, _Leaf]:
    torch = import_torch()
    kinds = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if type(dtype) is torch.dtype}

    def dtype_of(name: str) -> Any:
        if name not in kinds and isinstance(name, str):
            raise UnsupportedError(f"the state holds the dtype {name!r}, which torch {torch.__version__} does not have")
        return kinds[name]

    def device_of(name: str) -> Any:
        try:
            return torch.device(name)
        except RuntimeError as error:
            raise UnsupportedError(f"the state holds the device {name!r}, which torch does not know: {error}") from None

    return {
        torch.Size: _Leaf("torch.Size", lambda value: tuple(map(int, value)), torch.Size),
        torch.dtype: _Leaf("torch.dtype", lambda value: str(value).removeprefix("torch."), dtype_of),
        torch.device: _Leaf("torch.device", str, device_of),
    }


_TORCH_NAMES = ("torch.Size", "torch.dtype", "torch.device")


def encode_leaf(value: Any) -> TypedValue | None:
    """None if the value is of no type that is known here. Raises NotStorableError."""
    if isinstance(value, enum.Enum):
        return TypedValue("enum", _enum_parts(value))
    leaf = _LEAVES.get(type(value))
    if leaf is None and loaded_torch() is not None:
        leaf = _torch_leaves().get(type(value))
    return None if leaf is None else TypedValue(leaf.name, leaf.encode(value))


def decode(name: str, content: Any) -> Any:
    """The value of which a file holds the name of the type and the content, which has been decoded.

    Without torch, a torch.Size comes back as a tuple, and a torch.dtype and a torch.device as a str.

    Raises:
        UnsupportedError: this version knows no such type, or torch no such dtype or device.
        InvalidArgumentError: the module of an enum class has not been imported, or has no such class or member.
        CorruptError: no value of the type is made of such content.
    """
    if name in _TORCH_NAMES and not has_torch():
        return content
    try:
        if name in _MAKERS:
            return _MAKERS[name](content)
        if name == "enum":
            return _enum_member(content)
        if name in _STORED_KINDS:
            return _stored_value(name, content)
        if name == REGISTERED:
            return packed_value(content)
        if name == PICKLED:
            return _pickled_value(content)
        if name == _FOLDER:
            raise InvalidArgumentError(
                "the snapshot holds a folder or file that was stored as it is, and no state: open_folder() of bitsnap "
                "or of the store reads its files and tensors, and extract_folder() of the store, or extract() of what "
                "open_folder() returns, writes it"
            )
        leaf = _leaves_by_name().get(name)
        if leaf is None:
            raise UnsupportedError(f"the state holds a value of type {name!r}, which this version does not know")
        value = leaf.decode(content)
        # Each value is written in one way only.
        if repr(leaf.encode(value)) == repr(content):
            return value
    except BitsnapError:
        raise
    except NotImplementedError as error:
        raise UnsupportedError(f"the state holds a value of type {name!r}: {error}") from None
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        pass
    raise CorruptError(f"the state holds a value of type {name!r} that is made of {ascii(content)[:80]}")


@functools.cache
def _leaves_by_name() -> dict[str, _Leaf]:
    kinds = _LEAVES | (_torch_leaves() if has_torch() else {})
    return {leaf.name: leaf for leaf in kinds.values()}
