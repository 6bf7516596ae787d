"""The tensors of files in folders, read from a snapshot: also those that share bytes or are not in row-major order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bitsnap import _bitsnap
from bitsnap._bitsnap import FileTensor
from bitsnap._tensors import dtypes
from bitsnap._tensors.arrays import Memory
from bitsnap.errors import ResourceExhaustedError, UnsupportedError

# Dtypes that only files of torch have, under names of their own.
_NAMES_OF_TORCH = {"F4_E2M1_X2": "F4", "UNTYPED": "U8"}


def read_tensor(
    native: _bitsnap.Snapshot, tensor: FileTensor, where: str, framework: dtypes.Framework, threads: int
) -> Any:
    """A tensor of torch or numpy with the dtype, shape and strides that the file gives it.

    Its memory is a copy of its own bytes, from its first element to its last; `where` names the tensor in errors.

    Raises:
        UnsupportedError: the framework does not have the dtype.
        ImportError: numpy needs ml_dtypes for it.
    """
    name = _NAMES_OF_TORCH.get(tensor.dtype, tensor.dtype)
    shape = tensor.shape
    dtype: Any
    if framework == "pt":
        dtype = dtypes.torch_dtype(name, where)
        if name == tensor.dtype:  # files of torch have the shapes of torch
            shape = dtypes.tensor_shape(name, shape, where)
    else:
        dtype = dtypes.numpy_dtype(name, where)
    item_bytes = dtype.itemsize
    if shape != tensor.shape and tensor.stride is not None:
        raise UnsupportedError(f"{where}: a tensor of dtype {tensor.dtype!r} that is a view cannot be read")
    stride = _row_major(shape) if tensor.stride is None else tensor.stride
    elements = 0 if 0 in shape else 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    memory = _read(native, tensor, elements * item_bytes, where, threads)
    return _as_tensor(memory, dtype, shape, stride, where, framework)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _read(
    native: _bitsnap.Snapshot, tensor: FileTensor, size_bytes: int, where: str, threads: int
) -> np.ndarray[Any, Any]:
    available = native.tensors[tensor.tensor].size_bytes
    if tensor.offset > available or size_bytes > available - tensor.offset:
        raise UnsupportedError(
            f"{where}: {size_bytes} bytes of dtype {tensor.dtype!r} at offset {tensor.offset} exceed the {available} "
            "bytes that the file has for it"
        )
    memory = np.empty(size_bytes, np.uint8)
    place = Memory(int(memory.__array_interface__["data"][0]), size_bytes, memory)
    if size_bytes > 0:
        native.read_bytes(tensor.tensor, tensor.offset, place.address, size_bytes, threads)
    return memory


def _as_tensor(
    memory: np.ndarray[Any, Any],
    dtype: Any,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    where: str,
    framework: dtypes.Framework,
) -> Any:
    try:
        if framework == "pt":
            torch = dtypes.import_torch()
            if memory.size == 0:
                return torch.empty(shape, dtype=dtype)
            return torch.from_numpy(memory).view(dtype).as_strided(shape, stride)
        flat = memory.view(dtype)
        strides = tuple(step * dtype.itemsize for step in stride)
        if memory.size == 0:
            return np.empty(shape, dtype)
        return np.lib.stride_tricks.as_strided(flat, shape, strides)
    except (RuntimeError, ValueError, OverflowError) as error:
        # A view that repeats elements can be larger than any memory.
        raise ResourceExhaustedError(f"{where}: shape {list(shape)} is too large: {error}") from None
