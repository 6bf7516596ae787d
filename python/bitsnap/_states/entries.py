"""The table of the tensors of a state, as the extension takes it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from bitsnap._bitsnap import AdamNumbers
from bitsnap._common import KeyPath, Masters, number_of
from bitsnap._states.program_values import Registration
from bitsnap._tensors.arrays import Data, NativeBox, Source
from bitsnap.errors import InvalidArgumentError

# The code of errors of values that no way of storing takes.
NOT_STORABLE = "not_storable"


class Entry(NamedTuple):
    """One tensor in the form of the extension, without its data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    role: str | None
    master: tuple[str, int] | None  # its name, and the element in it where this tensor begins
    adam: AdamNumbers | None  # of a first moment
    alias_of: int | None
    box: NativeBox | None


class Content(NamedTuple):
    """What a registered value of a state is stored as."""

    path: KeyPath
    value: Any
    registration: Registration


class Entries:
    """The tensors of a state in their order. Tensors that are the same memory are stored once."""

    def __init__(self, roles: Mapping[str, str] | None, masters: Masters | None) -> None:
        self.items: list[Entry] = []
        self.data: list[Data] = []  # of each
        self.owners: list[object] = []  # keep the data alive
        self.contents: list[Content] = []  # of its registered values, in the order of the state
        if roles is not None and not isinstance(roles, Mapping):
            raise TypeError(f"roles must be a dict of names to roles, got {roles!r}")
        if masters is not None and not isinstance(masters, Mapping):
            raise TypeError(f"masters must be a dict of names to names, got {masters!r}")
        self._roles = dict(roles or {})
        self._masters = {name: _master_of(master, f"masters[{name!r}]") for name, master in (masters or {}).items()}
        self._used: set[str] = set()
        self._by_identity: dict[Hashable, int] = {}
        self._paths: list[KeyPath] = []
        self._by_path: dict[KeyPath, int] = {}  # made when it is needed

    def add(
        self, name: str, source: Source, path: KeyPath = (), role: str | None = None, box: NativeBox | None = None
    ) -> int:
        """Adds the tensor at a path of the state; returns its index. A name that is taken gets "#2", "#3" and so on.

        `role` is that of a tensor for which the caller gave none; None lets the library find it. `box` is that of
        place_in_whole(), if the tensor is in a box.
        """
        unique, count = name, 1
        while unique in self._used:
            count += 1
            unique = f"{name}#{count}"
        self._used.add(unique)
        index = len(self.items)
        self._paths.append(path)
        dtype, shape, size_bytes, data, identity, owner = source
        alias = None
        if identity is not None:
            first = self._by_identity.setdefault(identity, index)
            alias = None if first == index else first
        role = self._roles.pop(unique, role) if self._roles else role
        master = self._masters.pop(unique, None) if self._masters else None
        place: NativeBox | None = None
        if box is not None:
            whole = box[0] or name
            place = ("" if whole == unique else whole, *box[1:])
        self.items.append(tuple.__new__(Entry, (unique, dtype, shape, size_bytes, role, master, None, alias, place)))
        self.data.append(data)
        self.owners.append(owner)
        return index

    def index_of(self, identity: Hashable) -> int | None:
        """The tensor of that memory, if there is one."""
        return self._by_identity.get(identity)

    def index_at(self, path: KeyPath) -> int | None:
        """The tensor at a path of the state, or the one that it is an alias of; None if there is none."""
        if len(self._by_path) < len(self._paths):
            self._by_path = {path: index for index, path in enumerate(self._paths)}
        index = self._by_path.get(path)
        return index if index is None or self.items[index].alias_of is None else self.items[index].alias_of

    def check_all_used(self) -> None:
        """Raises InvalidArgumentError if a role or master was given for a tensor that is not there."""
        if self._roles:
            raise InvalidArgumentError(f"roles are given for tensors that are not there: {sorted(self._roles)}")
        if self._masters:
            raise InvalidArgumentError(f"masters are given for tensors that are not there: {sorted(self._masters)}")


def _master_of(master: object, where: str) -> tuple[str, int]:
    name, element = master if isinstance(master, tuple) and len(master) == 2 else (master, 0)
    if not isinstance(name, str):
        raise TypeError(f"{where} is the name of a tensor, or a tuple of it and an element, not {master!r}")
    return check_text(name, where), number_of(element, f"the element of {where}")


def check_text(text: str, where: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise not_storable(f"{where} is a string that is not valid Unicode: {error.reason}") from None
    return text


def not_storable(message: str) -> InvalidArgumentError:
    error = InvalidArgumentError(message)
    error.code = NOT_STORABLE
    return error


def native_metadata(metadata: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Checked, as the extension takes it."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a dict of str to str, got {metadata!r}")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgumentError(f"metadata must map str to str, got {key!r}: {value!r}")
        check_text(key, f"the metadata key {key!r}")
        check_text(value, f"metadata[{key!r}]")
    return list((metadata or {}).items())
