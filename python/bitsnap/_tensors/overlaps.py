"""Finds tensors to fill that share some of their memory, so that filling one would change another."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bitsnap._tensors.arrays import Target, is_tensor
from bitsnap.errors import InvalidArgumentError


class Filled(NamedTuple):
    """A tensor that is filled with a tensor of the snapshot, by its number. `where` names it in messages."""

    tensor: int
    target: Target
    where: str


class _Memory(NamedTuple):
    begin: int
    end: int
    order: int
    filled: Filled


def check_apart(filled: list[Filled]) -> None:
    """Raises InvalidArgumentError, with both names, if two of the tensors share memory and are not the same tensor."""
    memories: dict[Any, list[_Memory]] = {}
    for order, each in enumerate(filled):
        device, begin, end = _extent(each.target)
        if begin < end:
            memories.setdefault(device, []).append(_Memory(begin, end, order, each))
    for of_device in memories.values():
        of_device.sort(key=lambda memory: (memory.begin, memory.order))
        before: list[_Memory] = []
        for memory in of_device:
            before = [other for other in before if other.end > memory.begin]
            for other in before:
                if _overlap(other.filled, memory.filled):
                    first, second = sorted((other, memory), key=lambda either: either.order)
                    raise InvalidArgumentError(
                        f"{first.filled.where} and {second.filled.where} share a part of their memory, so that filling "
                        "one changes the other: pass tensors that share none, or load one of them alone with keys="
                    )
            before.append(memory)


def _layout(value: Any) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
    """The address, and the shape and strides in bytes, of a tensor or array, and the bytes of an element."""
    if not is_tensor(value):
        return int(value.__array_interface__["data"][0]), value.shape, value.strides, value.itemsize
    item = value.element_size()
    return value.data_ptr(), tuple(value.shape), tuple(step * item for step in value.stride()), item


def _extent(target: Target) -> tuple[Any, int, int]:
    """The device, and where the memory on it begins and ends."""
    if target.place is not None:
        return None, target.place.address, target.place.address + target.place.size_bytes
    address, shape, strides, item = _layout(target.value)
    if 0 in shape:
        return None, address, address
    spans = [(length - 1) * step for length, step in zip(shape, strides, strict=True)]
    device = None if not is_tensor(target.value) or target.value.is_cpu else target.value.device
    return device, address + sum(min(span, 0) for span in spans), address + sum(max(span, 0) for span in spans) + item


def _overlap(first: Filled, second: Filled) -> bool:
    if (
        first.tensor == second.tensor
        and _plain(first.target) is not None
        and _plain(first.target) == _plain(second.target)
    ):
        return False
    return np.shares_memory(_view(first.target.value), _view(second.target.value))


def _plain(target: Target) -> Any:
    """Memory on the CPU that is filled with the bytes of a tensor as they are."""
    return target.strided if target.place is None else target.place[:2]


class _Interface:
    def __init__(self, value: Any) -> None:
        address, shape, strides, item = _layout(value)
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{item}",
        }


def _view(value: Any) -> np.ndarray[Any, Any]:
    """An array with the addresses of a tensor on any device, whose elements must not be touched."""
    return np.asarray(_Interface(value))
