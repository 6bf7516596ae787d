"""Boxes: parts of sharded tensors, as a rank holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from bitsnap._arguments import number_of
from bitsnap._tensors.arrays import AnyTensor
from bitsnap._tensors.lazy import LazyTensor
from bitsnap.errors import InvalidArgumentError


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
            raise TypeError(f"name must be a str or None, got {self.name!r}")
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
        raise TypeError(f"{name} must be a tuple of integers, got {values!r}")
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
