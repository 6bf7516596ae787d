"""Values that code of the program makes: of registered types, or pickled with the caller's consent.

register_value() is the public function. Its table belongs to the process; any thread may read it. A file names tags
only, never a class or a function, so reading one calls what the program has registered and nothing else. Of a pickled
value, a file holds the name of the type as text and the pickle as bytes. Reading the file without consent,
`allow_pickle=True`, leaves the bytes alone: only unpickled() runs them, and only load() with consent calls it.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import io
import pathlib
import pickle
import re
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bitsnap._common import brief, import_torch, invalid, loaded_torch, text_of
from bitsnap.errors import InvalidArgumentError

T = TypeVar("T")

# The name of a registered value in the typed tree. docs/spec/typed_tree.md.
REGISTERED = "registered"
_TAG = re.compile(r"[A-Za-z0-9._:/+-]{1,128}")

# Values of exactly these types are stored in ways of their own, which a registration would not change.
_BUILT_IN: frozenset[type] = frozenset(
    (
        *(type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset),
        *(OrderedDict, defaultdict, Counter, deque, argparse.Namespace, np.ndarray),
        *(datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone),
        *(pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath),
    )
)


class Registration(NamedTuple):
    tag: str
    kind: type | None  # None: read only
    pack: Callable[[Any], Any] | None
    unpack: Callable[[Any], Any]


@dataclass
class PackedValue:
    """In a loaded tree: a value that its registration has not made yet. Not hashable, as no key is."""

    tag: str
    content: Any


def _buffer(content: tuple[bytes, int]) -> io.BytesIO:
    result = io.BytesIO(content[0])
    result.seek(content[1])
    return result


# Known without a registration, which may replace it.
_KNOWN = Registration("io.BytesIO", io.BytesIO, lambda value: (value.getvalue(), value.tell()), _buffer)

_lock = threading.RLock()  # a signal handler may import a module that registers values
_by_tag: dict[str, Registration] = {}
_by_type: dict[type, Registration] = {}
_changes = 0


def register_value(
    tag: str,
    type: type[T] | None,  # noqa: A002
    pack: Callable[[T], Any] | None,
    unpack: Callable[[Any], T],
) -> None:
    """Teaches this process to store values of a type that a state cannot hold otherwise, and to load them.

    Example:
        bitsnap.register_value(
            "my_project.Schedule", Schedule, lambda value: vars(value), lambda content: Schedule(**content)
        )

    The registration counts for all states that this process saves and loads from now on: each process that saves or
    loads such values has to register them, best in the module that defines the type. It counts for values of exactly
    this type, not of subclasses. Keys of dicts and items of sets are stored without it.

    A value is loaded completely if `keys` selects any part of it. Tensors in what `pack` returns are stored as all
    tensors are, named by the place of the value; with `into`, those of the value at the same place are filled if `pack`
    returns the tensors themselves. A value that occurs at several places is loaded as several ones.

    Args:
        tag: what the file stores: 1 to 128 of the characters A-Z a-z 0-9 . _ : / + -. Choose a name that no other
            library uses, such as that of your package and a word, and never change it.
        type: the type; or None to load the tag only, such as one that an earlier version of the program wrote.
        pack: returns what a value is stored as: anything that a state can hold, with tensors or other registered
            values; None if `type` is.
        unpack: makes the value of what `pack` returned. ``lambda content: content`` gives the content itself.

    Raises:
        InvalidArgumentError: the tag belongs to another type, or the type to another tag; or bitsnap stores values of
            the type already. The same tag and type (or one with the same module and name, as after a module was
            reloaded) replace the earlier registration.
        TypeError: an argument has the wrong type.
    """
    global _changes
    if not _TAG.fullmatch(text_of(tag, "tag")):
        raise invalid("tag", f"must be 1 to 128 of the characters A-Z a-z 0-9 . _ : / + -, got {brief(tag)}")
    if (type is None) != (pack is None):
        raise TypeError("type and pack must both be given, or both be None to load the tag only")
    if pack is not None and not callable(pack):
        raise TypeError(f"pack must be a function or None, got {brief(pack)}")
    if not callable(unpack):
        raise TypeError(f"unpack must be a function, got {brief(unpack)}")
    if type is not None:
        _check_type(type)
    registration = Registration(tag, type, pack, unpack)
    with _lock:
        before = _by_tag.get(tag)
        if before is not None and before.kind is not None and _name_of(before.kind) != _name_of(type):
            raise invalid("tag", f"{tag!r} is registered for {_name_of(before.kind)}, not for {_name_of(type)}")
        other = None if type is None else _by_type.get(type)
        if other is not None and other.tag != tag:
            raise invalid("type", f"{_name_of(type)} is registered with the tag {other.tag!r}, not with {tag!r}")
        if before is not None and before.kind is not None:
            del _by_type[before.kind]
        _by_tag[tag] = registration
        if type is not None:
            _by_type[type] = registration
        _changes += 1


def _check_type(kind: Any) -> None:
    if not isinstance(kind, type):
        raise TypeError(f"type must be a class or None, got {brief(kind)}")
    torch = loaded_torch()
    of_torch = () if torch is None else (torch.Tensor, torch.nn.Parameter, torch.Size, torch.dtype, torch.device)
    if kind in _BUILT_IN or kind in of_torch or issubclass(kind, np.generic):
        raise invalid("type", f"{_name_of(kind)} is a type that bitsnap stores without a registration")


def _name_of(kind: type | None) -> str:
    return "no type" if kind is None else f"{kind.__module__}.{kind.__qualname__}"


def registration_of(kind: type) -> Registration | None:
    """What is registered for values of exactly this type."""
    return _by_type.get(kind, _KNOWN if kind is _KNOWN.kind else None)


def _tagged(tag: str) -> Registration | None:
    return _by_tag.get(tag, _KNOWN if tag == _KNOWN.tag else None)


def changes() -> int:
    """How often the table has changed. What was planned for one count may be wrong for another."""
    return _changes


def packed(value: Any, registration: Registration, where: Callable[[], str]) -> Any:
    """What a value is stored as. `where` names its place."""
    assert registration.pack is not None
    try:
        return registration.pack(value)
    except Exception as error:
        raise InvalidArgumentError(
            f"{where()} cannot be stored: the pack function of {registration.tag!r} failed: {_text_of(error)}"
        ) from error


def check_registered(value: PackedValue, where: str) -> None:
    """Raises InvalidArgumentError if this process cannot make the value."""
    if _tagged(value.tag) is None:
        raise InvalidArgumentError(
            f"{where} is a value with the tag {value.tag!r}, which is not registered: import the module that calls "
            f"bitsnap.register_value({value.tag!r}, ...) before loading; or load other parts with keys=; or register "
            f"the tag with type=None, pack=None and unpack=lambda content: content to load what the value is stored as"
        )


def unpacked(tag: str, content: Any, where: Callable[[], str]) -> Any:
    """The value of a registered tag, made of its loaded content."""
    registration = _tagged(tag)
    assert registration is not None
    try:
        return registration.unpack(content)
    except Exception as error:
        raise InvalidArgumentError(
            f"{where()} cannot be loaded: the unpack function of {tag!r} failed: {_text_of(error)}"
        ) from error


def packed_value(content: Any) -> PackedValue:
    """Of the content that a file holds. Raises ValueError or TypeError if no registered value has such content."""
    tag, inner = content
    if type(content) is not tuple or not _TAG.fullmatch(tag):
        raise ValueError
    return PackedValue(tag, inner)


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


# The name of a pickled value in the typed tree. docs/spec/typed_tree.md.
PICKLED = "pickle"
# Of every version of Python that this package supports: the same value gives the same bytes.
_PROTOCOL = 5


@dataclass
class PickledValue:
    """In a loaded tree: a value that has not been unpickled. Not hashable, as no key is."""

    type_name: str
    content: Any  # bytes, or what stands for bytes that are stored as a tensor


def type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def pickled(value: Any, where: Callable[[], str]) -> bytes:
    """Raises InvalidArgumentError if pickle cannot store the value either."""
    kind = pickle.Pickler if loaded_torch() is None else _torch_pickler()
    file = io.BytesIO()
    try:
        kind(file, _PROTOCOL).dump(value)
    except Exception as error:
        raise InvalidArgumentError(
            f"{where()} is of type {type_name(type(value))} and cannot be stored, not even pickled: "
            f"{type(error).__name__}: {error}"
        ) from error
    return file.getvalue()


@functools.cache
def _torch_pickler() -> type[pickle.Pickler]:
    """Pickles what holds tensors in the dtypes that torch has had no storage class for since 2.1, such as float8.

    torch pickles their storages in a way that it cannot read.
    """
    torch = import_torch()

    class Pickler(pickle.Pickler):
        def __init__(self, file: io.BytesIO, protocol: int) -> None:
            super().__init__(file, protocol)
            self._of_tensors: set[int] = set()

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                with contextlib.suppress(RuntimeError, NotImplementedError):  # it has no storage
                    self._of_tensors.add(value.untyped_storage()._cdata)
            if type(value) is not torch.UntypedStorage:
                return NotImplemented
            typed = torch.TypedStorage(wrap_storage=value, dtype=torch.uint8, _internal=True)
            # The function of torch that makes such a tensor expects a typed storage.
            return typed.__reduce__() if value._cdata in self._of_tensors else (getattr, (typed, "_untyped_storage"))

    return Pickler


def check_consent(value: PickledValue, may_unpickle: bool, where: str) -> None:
    """Raises InvalidArgumentError if the caller did not consent to run what the file says."""
    if not may_unpickle:
        raise InvalidArgumentError(
            f"{where} is a pickled value of type {value.type_name!r}: pass allow_pickle=True to load it if you trust "
            "the file, because unpickling runs code that the file chooses; or load other parts with keys="
        )


def unpickled(type_name: str, content: bytes, where: Callable[[], str]) -> Any:
    """Runs the pickle. Only for callers who have consented."""
    try:
        return pickle.loads(content)
    except Exception as error:
        raise InvalidArgumentError(
            f"{where()} is a pickled value of type {type_name!r} and cannot be unpickled: "
            f"{type(error).__name__}: {error}"
        ) from error
