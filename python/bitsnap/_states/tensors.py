"""The tensors of a state: what stands for them in it, and their table, as the extension takes it.

A box is a part of a sharded tensor, a lazy tensor is made when it is written, and of a DTensor this process has a part.
Nothing here imports torch where it is not used.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import numpy as np

from bitsnap._bitsnap import AdamNumbers, TensorInfo
from bitsnap._common import (
    LARGEST,
    KeyPath,
    Masters,
    brief,
    check_callable,
    import_torch,
    invalid,
    keystr,
    loaded_torch,
    number_of,
)
from bitsnap._states.program_values import Registration
from bitsnap._tensors.arrays import AnyTensor, Data, NativeBox, Source, is_tensor, named_source_of, stored_shape
from bitsnap.errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    import torch
    from torch.distributed.tensor import DTensor


@dataclass(frozen=True, eq=False)
class Box:
    """The part of a sharded tensor that this process holds, as a value of a state.

    The checkpoint of all ranks then has the whole tensor: Store.tensors() lists it, and Store.read_into() reads any
    part of it, however the tensor was divided. load() gives a Box where save() took one.

    Example:
        local = weight[rank * rows : (rank + 1) * rows]
        state = {"weight": bitsnap.Box(local, global_shape=weight.shape, offset=(rank * rows, 0))}

    Args:
        tensor: the elements of this process, a torch tensor, a numpy array or a LazyTensor. Its shape is the
            extent of the box.
        global_shape: the shape of the whole tensor.
        offset: the position of the first element, in each dimension.
        name: the name of the whole tensor. None for the name that the place in the state gives, as in
            ``model.weight``. A process that holds several boxes of one tensor gives all of them this name.

    Raises:
        InvalidArgumentError: the box does not lie in the whole tensor.
        TypeError: an argument has the wrong type.
    """

    tensor: AnyTensor | LazyTensor
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    name: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "global_shape", _numbers(self.global_shape, "global_shape"))
        object.__setattr__(self, "offset", _numbers(self.offset, "offset"))
        if self.name is not None and not isinstance(self.name, str):
            raise TypeError(f"name must be a str or None, got {brief(self.name)}")
        if self.name == "":
            raise InvalidArgumentError("name must not be empty; None stands for the place in the state")
        shape = tuple(self.tensor.shape)
        lies_inside = len(shape) == len(self.offset) == len(self.global_shape) and all(
            start + extent <= size for start, extent, size in zip(self.offset, shape, self.global_shape, strict=True)
        )
        if not lies_inside:
            raise InvalidArgumentError(
                f"a box of shape {list(shape)} at offset {list(self.offset)} does not lie in a tensor of shape "
                f"{list(self.global_shape)}"
            )

    def __repr__(self) -> str:
        name = "" if self.name is None else f", name={self.name!r}"
        return f"Box(shape={tuple(self.tensor.shape)}, global_shape={self.global_shape}, offset={self.offset}{name})"


def _numbers(values: Sequence[SupportsIndex], name: str) -> tuple[int, ...]:
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} must be a tuple of integers, got {brief(values)}")
    return tuple(number_of(value, name) for value in values)


def named_part(
    tensor: AnyTensor | LazyTensor, name: str, shape: tuple[int, ...], offset: tuple[int, ...]
) -> tuple[str, Any]:
    """A part of the tensor `name`, in a Box unless it is all of it, with a key of its own for a state."""
    if tuple(tensor.shape) == shape:
        return name, tensor
    return f"{name}/{'-'.join(map(str, offset))}", Box(tensor, shape, offset, name)


def tensor_of(value: Any) -> Any:
    """The tensor in a box, or the value itself."""
    return value.tensor if isinstance(value, Box) else value


@dataclass(frozen=True, eq=False)
class LazyTensor:
    """A tensor that a save makes when it writes it, and frees when it has written it, as a value of a state.

    So a state that is larger than the memory can be saved. load() gives a plain tensor.

    Example:
        state = {name: bitsnap.LazyTensor(shape, torch.bfloat16, lambda name=name: read(name)) for name, shape in ...}
        bitsnap.save("a.bsnap", state, threads=1)

    Args:
        shape: the shape of the tensor.
        dtype: its dtype, of torch or numpy.
        make: returns the tensor, a torch tensor or numpy array of this dtype and shape on any device. A save calls it
            once, or a few times if the tensor is the master of a weight; each time it must return the same values,
            which is not checked. It does not call it for a tensor without elements.
            Threads of the save call it, several at a time, for different tensors, in no fixed order: with threads=1 one
            after another. If it raises an error, the save raises that, and nothing is written.

    Raises:
        InvalidArgumentError: no file can hold tensors of this dtype or size.
        TypeError: an argument has the wrong type.
    """

    shape: tuple[int, ...]
    dtype: Any
    make: Callable[[], AnyTensor]

    def __post_init__(self) -> None:
        check_callable(self.make, "make")
        shape: Any = self.shape
        if isinstance(shape, str | bytes) or not isinstance(shape, Sequence):
            raise TypeError(f"shape must be a tuple of integers, got {brief(shape)}")
        object.__setattr__(self, "shape", tuple(number_of(extent, "shape") for extent in shape))
        empty, item = self._source_of_nothing()  # checks the dtype
        if item * math.prod(self.shape) > LARGEST:
            raise invalid("shape", f"{list(self.shape)} of {empty.dtype} is too large")

    @property
    def is_of_torch(self) -> bool:
        """Whether the dtype is one of torch."""
        torch = loaded_torch()
        return torch is not None and isinstance(self.dtype, torch.dtype)

    def source(self, where: str) -> Source:
        """What a save reads. `where` names the tensor in errors."""
        empty, item = self._source_of_nothing()
        shape = stored_shape(empty.dtype, self.shape)
        size_bytes = item * math.prod(self.shape)

        def make() -> tuple[object, int]:
            made = self.make()
            if not is_tensor(made) and not isinstance(made, np.ndarray):
                raise InvalidArgumentError(f"{where}: make() returned {type(made).__qualname__}, not a tensor or array")
            source = named_source_of(made, where)
            if (source.dtype, source.shape) != (empty.dtype, shape):
                raise InvalidArgumentError(
                    f"{where} is to be {empty.dtype} {list(shape)}, but make() returned {source.dtype} "
                    f"{list(source.shape)}"
                )
            if isinstance(source.data, tuple):  # strided
                plain = np.ascontiguousarray(made) if isinstance(made, np.ndarray) else made.detach().contiguous()
                source = named_source_of(plain, where)
            if isinstance(source.data, int):
                return source.owner, source.data
            assert callable(source.data)
            return source.data()

        return Source(empty.dtype, shape, size_bytes, make if size_bytes > 0 else 0, None, self)

    def _source_of_nothing(self) -> tuple[Source, int]:
        """An empty tensor of this dtype, and the bytes of an element."""
        if self.is_of_torch:
            empty: Any = import_torch().empty(0, dtype=self.dtype)
            return named_source_of(empty, "LazyTensor"), int(empty.element_size())
        array: np.ndarray[Any, Any] = np.empty(0, self.dtype)
        return named_source_of(array, "LazyTensor"), array.itemsize


# Every process saves its own replicas of smaller tensors: less than what tells which of them to leave out.
_SMALL_BYTES = 65_536


class Part(NamedTuple):
    """What this process holds of a tensor."""

    tensor: torch.Tensor  # its memory
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    replicated_in: tuple[Any, ...] = ()  # the process groups whose members hold the same
    is_first_replica: bool = True

    @property
    def is_saved(self) -> bool:
        return self.is_first_replica or self.tensor.nbytes <= _SMALL_BYTES

    @property
    def is_shared(self) -> bool:
        """Whether it is saved once for several processes."""
        return bool(self.replicated_in) and self.tensor.nbytes > _SMALL_BYTES

    @property
    def value_or_nothing(self) -> torch.Tensor | Box:
        """As a value of a state whose structure all processes save: an empty Box if another process saves it."""
        if not self.is_shared:
            return self.value
        # In a Box also if it is whole, which tells it from a tensor that each process has of its own.
        if self.is_saved:
            return Box(self.tensor, self.global_shape, self.offset)
        origin = (0,) * len(self.global_shape)
        return Box(self.tensor.new_empty(origin), self.global_shape, origin)

    @property
    def value(self) -> torch.Tensor | Box:
        """As a value of a state."""
        if self.tensor.shape == self.global_shape:
            return self.tensor
        return Box(self.tensor, self.global_shape, self.offset)


def part_of(tensor: torch.Tensor, place: KeyPath, replicas: Any = None, *, shares_replicas: bool = True) -> Part:
    """The part of a tensor in this process.

    Args:
        tensor: a DTensor, or a tensor of this process.
        place: its place in the state, for errors.
        replicas: the group whose processes hold the same, for tensors that are no DTensors.
        shares_replicas: whether one process saves the replicas of all.
    """
    from torch import distributed
    from torch.distributed.tensor import DTensor

    if tensor.requires_grad:
        tensor = tensor.detach()
    if isinstance(tensor, DTensor):
        return _part_of_dtensor(tensor, place, shares_replicas)
    shape = tensor.shape
    if replicas is None or not shares_replicas or distributed.get_world_size(replicas) == 1:
        return Part(tensor, shape, (0,) * len(shape))
    return Part(tensor, shape, (0,) * len(shape), (replicas,), distributed.get_rank(replicas) == 0)


def _part_of_dtensor(tensor: DTensor, place: KeyPath, shares_replicas: bool) -> Part:
    mesh, placements = tensor.device_mesh, tensor.placements
    if any(placement.is_partial() for placement in placements):
        raise InvalidArgumentError(
            f"{keystr(place, 'state')} is a DTensor of partial sums ({placements}): redistribute it first"
        )
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise UnsupportedError(f"{keystr(place, 'state')} is a DTensor on {mesh}, which this process is not in")
    chunks = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call]
    local = tensor.to_local()
    shape = tuple(tensor.shape)
    splits = [(placement, mesh.size(d), coordinate[d]) for d, placement in enumerate(placements)]
    is_box = all(_is_one_range(extent, len(shape), dim, _of_dimension(splits, dim)) for dim, extent in enumerate(shape))
    if len(chunks) != 1 or tuple(chunks[0].sizes) != tuple(local.shape) or not is_box:
        raise UnsupportedError(f"{keystr(place, 'state')} is a DTensor whose part is no box: {placements} on {mesh}")
    # An empty part may begin behind the end.
    offset = tuple(min(start, size) for start, size in zip(chunks[0].offsets, shape, strict=True))
    if not shares_replicas:
        return Part(local, shape, offset)
    replicated = [d for d, placement in enumerate(placements) if placement.is_replicate() and mesh.size(d) > 1]
    is_first = all(coordinate[d] == 0 for d in replicated)
    return Part(local, shape, offset, tuple(mesh.get_group(d) for d in replicated), is_first)


def _of_dimension(splits: list[tuple[Any, int, int]], dim: int) -> tuple[tuple[Any, int, int], ...]:
    return tuple(split for split in splits if getattr(split[0], "dim", None) == dim)


@functools.lru_cache(maxsize=1024)
def _is_one_range(extent: int, dims: int, dim: int, splits: tuple[tuple[Any, int, int], ...]) -> bool:
    """Whether a part lies in one piece in a dimension. A _StridedShard may give a process several pieces, of which
    DTensor tells the beginning of the first one only.

    Args:
        extent: of the whole tensor, which has `dims` dimensions.
        splits: the placements over this dimension, with the number of processes and the number of this one.
    """
    if not any(hasattr(placement, "split_factor") for placement, _, _ in splits):
        return True
    import torch

    indices = torch.arange(extent).reshape([-1 if each == dim else 1 for each in range(dims)])
    for placement, processes, number in splits:
        indices = placement._split_tensor(indices, processes, with_padding=False)[0][number]
    count = indices.numel()
    return count == 0 or int(indices.max() - indices.min()) == count - 1


def local_part(value: Any, path: KeyPath) -> Any:
    """Of a DTensor at a path of a state, what this process holds: in a Box, or the tensor if that is all of it. Any
    other value itself.

    Raises:
        InvalidArgumentError, UnsupportedError: the part of a DTensor is no box of its elements.
    """
    module = sys.modules.get("torch.distributed.tensor")
    kind = getattr(module, "DTensor", None)
    if kind is None or not isinstance(value, kind):
        return value
    return part_of(value, path, shares_replicas=False).value


def place_in_whole(value: Any) -> NativeBox | None:
    """Of a box; None for any other value."""
    return (value.name or "", value.global_shape, value.offset) if isinstance(value, Box) else None


def box_around(tensor: Any, info: TensorInfo) -> Any:
    """A loaded tensor as the value that was saved: in its box, if it is a part of a sharded tensor."""
    if info.global_shape is None or info.offset is None:
        return tensor
    return Box(tensor, info.global_shape, info.offset, info.global_name or None)


# --- the table of the tensors of a state

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
            raise TypeError(f"roles must be a dict of names to roles, got {brief(roles)}")
        if masters is not None and not isinstance(masters, Mapping):
            raise TypeError(f"masters must be a dict of names to names, got {brief(masters)}")
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
