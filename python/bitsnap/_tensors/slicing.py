"""Reading parts of tensors: the bytes that an index selects, read in pieces of bounded size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bitsnap import _bitsnap
from bitsnap._bitsnap import TensorInfo
from bitsnap._tensors import dtypes
from bitsnap._tensors.arrays import Memory, bytes_at, new_tensor
from bitsnap.errors import UnsupportedError

# The largest piece that is read to pick elements from; at least one row of the first dimension that is cut.
_PIECE_BYTES = 32 << 20


def normalize(index: Any, shape: Sequence[int]) -> tuple[list[range], list[int]]:
    """The positions taken in each dimension, and the dimensions that an integer index removes.

    Raises IndexError as numpy does, and TypeError for anything but integers, slices and an ellipsis.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    ellipses = sum(part is ... for part in parts)
    if ellipses > 1:
        raise IndexError("an index can have only one ellipsis")
    if len(parts) - ellipses > len(shape):
        raise IndexError(f"too many indices: {len(parts) - ellipses} for a tensor of {len(shape)} dimensions")
    at = next((i for i, part in enumerate(parts) if part is ...), len(parts))
    missing = len(shape) - (len(parts) - ellipses)
    parts[at : at + ellipses] = [slice(None)] * missing

    ranges, dropped = [], []
    for axis, (part, length) in enumerate(zip(parts, shape, strict=True)):
        if isinstance(part, slice):
            ranges.append(range(*part.indices(length)))
            continue
        if isinstance(part, bool) or not isinstance(part, int | np.integer):
            raise TypeError(f"a tensor in a file is indexed by integers, slices and an ellipsis, not by {part!r}")
        i = int(part)
        if not -length <= i < length:
            raise IndexError(f"index {i} is out of bounds for dimension {axis} of size {length}")
        i += length if i < 0 else 0
        ranges.append(range(i, i + 1))
        dropped.append(axis)
    return ranges, dropped


def read_part(
    native: _bitsnap.Snapshot, index: int, info: TensorInfo, key: Any, framework: dtypes.Framework, threads: int
) -> Any:
    """The part of a tensor that `key` selects, as a new contiguous tensor. Decodes only the chunks that it touches."""
    ranges, dropped = normalize(key, info.shape)
    elements = math.prod(info.shape)
    if elements > 0 and info.size_bytes % elements != 0:
        raise UnsupportedError(f"tensor '{info.name}': elements of dtype '{info.dtype}' are not whole bytes")
    item_bytes = info.size_bytes // elements if elements > 0 else info.item_bytes
    shape = tuple(len(positions) for axis, positions in enumerate(ranges) if axis not in dropped)
    result, place = new_tensor(info, shape, item_bytes * math.prod(shape), framework)
    if place.size_bytes > 0:
        _fill(native, index, info.shape, item_bytes, ranges, place, threads)
    return result


def _fill(
    native: _bitsnap.Snapshot,
    index: int,
    shape: tuple[int, ...],
    item_bytes: int,
    ranges: list[range],
    place: Memory,
    threads: int,
) -> None:
    # Each dimension before `cut` has one position: what is wanted lies in rows of dimension `cut`, side by side.
    cut = next((axis for axis, positions in enumerate(ranges) if len(positions) > 1), len(shape))
    row_bytes = item_bytes * math.prod(shape[cut + 1 :])
    offset = 0
    for axis in range(cut):
        offset += ranges[axis].start * item_bytes * math.prod(shape[axis + 1 :])
    rows = ranges[cut] if cut < len(shape) else range(1)
    inner, inner_shape = ranges[cut + 1 :], shape[cut + 1 :]
    if rows.step == 1 and inner == [range(n) for n in inner_shape]:
        native.read_bytes(index, offset + rows.start * row_bytes, place.address, place.size_bytes, threads)
        return

    kind = np.dtype(f"V{item_bytes}")
    out = bytes_at(place).view(kind).reshape([len(rows), *(len(positions) for positions in inner)])
    if rows.step < 0:
        rows, out = rows[::-1], out[::-1]
    step = rows.step
    picks = tuple(_as_slice(positions) for positions in inner)
    per_piece = max(1, (_PIECE_BYTES // row_bytes - 1) // step + 1)
    for first in range(0, len(rows), per_piece):
        taken = rows[first : first + per_piece]
        span = taken[-1] - taken[0] + 1
        buffer = np.empty(span * row_bytes, np.uint8)
        address = int(buffer.__array_interface__["data"][0])
        native.read_bytes(index, offset + taken[0] * row_bytes, address, buffer.nbytes, threads)
        block = buffer.view(kind).reshape([span, *inner_shape])
        out[first : first + len(taken)] = block[(slice(None, None, step), *picks)]


def _as_slice(positions: range) -> slice:
    stop: int | None = positions.stop
    if positions.step < 0 and stop is not None and stop < 0:
        stop = None
    return slice(positions.start, stop, positions.step)
