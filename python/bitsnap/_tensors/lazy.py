"""Tensors that are made when they are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitsnap._arguments import LARGEST, check_callable, invalid, number_of
from bitsnap._tensors import dtypes
from bitsnap._tensors.arrays import AnyTensor, Source, is_tensor, named_source_of
from bitsnap.errors import InvalidArgumentError


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
            raise TypeError(f"shape must be a tuple of integers, got {shape!r}")
        object.__setattr__(self, "shape", tuple(number_of(extent, "shape") for extent in shape))
        empty, item = self._source_of_nothing()  # checks the dtype
        if item * math.prod(self.shape) > LARGEST:
            raise invalid("shape", f"{list(self.shape)} of {empty.dtype} is too large")

    @property
    def is_of_torch(self) -> bool:
        """Whether the dtype is one of torch."""
        torch = dtypes.loaded_torch()
        return torch is not None and isinstance(self.dtype, torch.dtype)

    def source(self, where: str) -> Source:
        """What a save reads. `where` names the tensor in errors."""
        empty, item = self._source_of_nothing()
        shape = dtypes.stored_shape(empty.dtype, self.shape)
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
            empty: Any = dtypes.import_torch().empty(0, dtype=self.dtype)
            return named_source_of(empty, "LazyTensor"), int(empty.element_size())
        array: np.ndarray[Any, Any] = np.empty(0, self.dtype)
        return named_source_of(array, "LazyTensor"), array.itemsize
