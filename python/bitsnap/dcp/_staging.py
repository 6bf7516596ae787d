"""Copies of the states that dcp.async_save saves while the training goes on.

Memory of the last copy is filled again if the next state has the same tensors: copying into new memory takes several
times as long, because the system clears each page first, and for a GPU pins it. The first copy, and that of a state
with other things than plain tensors, DTensors and simple values, is made by DCP's own stager, or by _Copier for
versions without one that copies.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint import staging
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree

from bitsnap._tensors.device_copies import is_on_gpu
from bitsnap.errors import InvalidArgumentError

_SIMPLE = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, enum.Enum)
_DICTS = (dict, OrderedDict)
_TENSORS = (torch.Tensor, torch.nn.Parameter)


class OtherValueError(Exception):
    """A state has a value that is not simple, so that its memory cannot be filled again."""


@dataclass
class _StagedCopy:
    layout: list[Any]
    state: dict[str, Any]
    tensors: list[torch.Tensor]  # what this rank holds of them, in the order of the layout
    storages: frozenset[int]  # addresses
    in_use: bool = True  # by a save that has not ended


class StagedCopies:
    """Used by the thread that calls dcp.async_save; release() by any. Owns one copy, which a save may be reading."""

    def __init__(self, *, keep: bool = True) -> None:
        self._keep = keep
        self._copy: _StagedCopy | None = None

    def stage(self, state: dict[str, Any]) -> dict[str, Any]:
        """A copy of the state on the CPU, until release() has been called with its tensors."""
        if not self._keep:
            return _new_copy(state)
        with torch.no_grad():
            try:
                layout, tensors = layout_of(state)
            except OtherValueError:
                self._copy = None
                return _new_copy(state)
            copy = self._copy
            if copy is None or copy.in_use or copy.layout != layout:
                self._copy = None  # the memory is free before other memory is needed
                staged = _new_copy(state)
                own = layout_of(staged)[1]
                self._copy = _StagedCopy(layout, staged, own, frozenset(_addresses(own)))
                return staged
            copy.in_use = True
            _fill(copy.tensors, tensors)
            filled: dict[str, Any] = _with_values_of(state, copy.state)
            return filled

    def release(self, tensors: Iterable[torch.Tensor]) -> None:
        """Says that a save has read all its tensors, which were these."""
        copy = self._copy
        if copy is not None and not copy.storages.isdisjoint(_addresses(tensors)):
            copy.in_use = False

    def clear(self) -> None:
        """Frees the memory."""
        self._copy = None


def _new_copy(state: dict[str, Any]) -> dict[str, Any]:
    if not hasattr(staging, "DefaultStager"):  # torch 2.8 and older: the stager of 2.6 does not copy CPU tensors
        with torch.no_grad():
            copied: dict[str, Any] = _Copier().copied(state)
        return copied
    pinned = any(isinstance(value, torch.Tensor) and is_on_gpu(value) for value in pytree.tree_leaves(state))
    options = staging.StagingOptions(
        use_pinned_memory=pinned, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=pinned
    )
    # Which would copy the memory of such a view, and forget that it has to be conjugated or negated.
    plain = pytree.tree_map(_resolved, state)
    made: Any = staging.DefaultStager(options).stage(plain)  # with asynchronous staging, a future
    staged: dict[str, Any] = made
    return staged


def _fill(copies: list[torch.Tensor], tensors: list[torch.Tensor]) -> None:
    """Copies tensors into memory on the CPU, which is pinned if they are on a GPU."""
    # Without waiting, torch copies from one contiguous memory to another alone.
    direct = [
        is_on_gpu(one) and one.is_contiguous() and to.is_contiguous() for to, one in zip(copies, tensors, strict=True)
    ]
    for is_direct in (True, False):
        chosen = [i for i, each in enumerate(direct) if each == is_direct]
        if chosen:
            to, source = [copies[i] for i in chosen], [tensors[i] for i in chosen]
            torch._foreach_copy_(to, source, non_blocking=is_direct)
    for device in {one.device for one, each in zip(tensors, direct, strict=True) if each}:
        torch.cuda.current_stream(device).synchronize()


def _resolved(value: Any) -> Any:
    is_view = type(value) in _TENSORS and (value.is_conj() or value.is_neg())
    return value.detach().resolve_conj().resolve_neg() if is_view else value


class _Copier:
    """Copies a state to the CPU; tensors that share memory share that of their copies."""

    def __init__(self) -> None:
        # Copies, by address and size: one memory may be part of another that begins at the same address.
        self._memory: dict[tuple[int, int], torch.UntypedStorage] = {}

    def copied(self, value: Any) -> Any:
        return pytree.tree_map(self._one, value)

    def _one(self, value: Any) -> Any:
        if isinstance(value, DTensor):
            # DTensor.from_local() would take the copy to the device of the mesh.
            return DTensor(self._one(value.to_local()), value._spec, requires_grad=False)  # type: ignore[no-untyped-call]
        if not isinstance(value, torch.Tensor):
            return deepcopy(value)
        if type(value) not in _TENSORS or value.layout != torch.strided or value.is_conj() or value.is_neg():
            return _resolved(value).detach().to("cpu", copy=True)
        memory: Any = value.untyped_storage()
        if value.numel() > 0 and memory.nbytes() == 0:
            raise InvalidArgumentError("the storage of a tensor has been freed: gather its shards first")
        key = memory.data_ptr(), memory.nbytes()
        if key not in self._memory:
            self._memory[key] = memory.clone() if memory.device.type == "cpu" else memory.cpu()
        place = value.storage_offset(), value.size(), value.stride()
        return torch.empty(0, dtype=value.dtype).set_(self._memory[key], *place)


def layout_of(state: dict[str, Any]) -> tuple[list[Any], list[torch.Tensor]]:
    """The keys and tensors, without the elements, and what this rank holds of the tensors.

    Tensors that share memory share it in the same way in states with equal layouts. Call it without gradients.
    """
    found = _Layout()
    found.add(state)
    return found.described, found.tensors


class _Layout:
    """What layout_of() has found, of a state that it goes through while the training waits."""

    def __init__(self) -> None:
        self.described: list[Any] = []
        self.tensors: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}  # of memory, by address

    def add(self, value: Any) -> None:
        kind = type(value)
        if kind in _TENSORS:
            self._add_tensor(value, None)
        elif isinstance(value, DTensor):
            self._add_tensor(value.to_local(), value._spec)
        elif kind in _DICTS:
            self.described.append(len(value))
            for key, item in value.items():
                if type(key) is not str and not isinstance(key, _SIMPLE):
                    raise OtherValueError
                self.described.append(key)
                self.add(item)
        elif kind in (list, tuple):
            self.described += (kind, len(value))
            for item in value:
                self.add(item)
        elif isinstance(value, _SIMPLE):
            self.described.append(kind)
        else:
            raise OtherValueError

    def _add_tensor(self, local: torch.Tensor, spec: Any) -> None:
        if type(local) not in _TENSORS or local.layout != torch.strided or local.is_conj() or local.is_neg():
            raise OtherValueError
        numbers = self._numbers
        memory = numbers.setdefault(local.untyped_storage().data_ptr(), len(numbers))
        self.described += (memory, local.dtype, local.shape, local.stride(), local.storage_offset(), spec)
        self.tensors.append(local)


def _with_values_of(state: Any, copy: Any) -> Any:
    """The tensors of the copy, in the containers and with the other values of the state."""
    if isinstance(state, torch.Tensor):
        return copy
    if type(state) in _DICTS:
        return type(state)((key, _with_values_of(item, copy[key])) for key, item in state.items())
    if type(state) in (list, tuple):
        return type(state)(_with_values_of(one, other) for one, other in zip(state, copy, strict=True))
    return state


def _addresses(tensors: Iterable[torch.Tensor]) -> Iterator[int]:
    """Of the memory of the tensors, without that of tensors that have none."""
    return (address for tensor in tensors if (address := tensor.untyped_storage().data_ptr()) != 0)
