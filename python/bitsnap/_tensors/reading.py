"""Reading tensors of a snapshot: whole ones in parallel, parts of them, and those of files in folders.

Tensors are decoded directly into memory on the CPU, and copied from there to other devices. Tensors of the caller that
are filled must not share memory.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from bitsnap._bitsnap import FileTensor, Snapshot as NativeSnapshot, TensorInfo, TensorInfos, WholeState
from bitsnap._common import Device, Progress, brief, check_callable, import_torch
from bitsnap._display import progress_line
from bitsnap._tensors.arrays import (
    Framework,
    Memory,
    Target,
    array_address,
    is_tensor,
    numpy_dtype,
    tensor_shape,
    torch_dtype,
)
from bitsnap._tensors.device_copies import PinnedBatches
from bitsnap.errors import InvalidArgumentError, ResourceExhaustedError, UnsupportedError


class Filled(NamedTuple):
    """A tensor that is filled with a tensor of the snapshot, by its number. `where` names it in messages."""

    tensor: int
    target: Target
    where: str


class _Extent(NamedTuple):
    begin: int
    end: int
    order: int
    filled: Filled


def check_apart(filled: list[Filled]) -> None:
    """Raises InvalidArgumentError, with both names, if two of the tensors share memory and are not the same tensor."""
    memories: dict[Any, list[_Extent]] = {}
    for order, each in enumerate(filled):
        device, begin, end = _extent(each.target)
        if begin < end:
            memories.setdefault(device, []).append(_Extent(begin, end, order, each))
    for of_device in memories.values():
        of_device.sort(key=lambda memory: (memory.begin, memory.order))
        before: list[_Extent] = []
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


if TYPE_CHECKING:
    import torch as pt
    from torch import Tensor

# Tensors for other devices take at most this much memory on the CPU at a time, or the size of the largest one; those
# for a GPU twice as much, as the last ones are still being copied.
_STAGED_BYTES = 128 << 20
T = TypeVar("T")


def new_tensor(
    info: TensorInfo,
    shape: tuple[int, ...],
    size_bytes: int,
    framework: Framework,
    empty: Callable[[tuple[int, ...], Any], Tensor] | None = None,
) -> tuple[Any, Memory]:
    """An uninitialized tensor on the CPU with the dtype that the file has, for the tensor or a part of it.

    `empty` makes one of torch of this shape and dtype; None stands for torch.empty().
    """
    where = f"tensor '{info.name}'"
    if framework == "pt":
        torch = import_torch()
        torch_shape = tensor_shape(info.dtype, shape, where)
        dtype = torch_dtype(info.dtype, where)
        tensor = torch.empty(torch_shape, dtype=dtype, device="cpu") if empty is None else empty(torch_shape, dtype)
        if type(tensor) is not torch.Tensor or (size_bytes > 0 and tensor.data_ptr() == 0):
            raise UnsupportedError(
                f"{where} cannot be loaded: torch makes tensors without memory here (a fake or meta mode)"
            )
        return tensor, Memory(tensor.data_ptr(), size_bytes, tensor)
    array = np.empty(shape, numpy_dtype(info.dtype, where))
    return array, Memory(array_address(array), size_bytes, array)


def bytes_at(place: Memory) -> np.ndarray[Any, Any]:
    """The memory as an array of bytes."""
    if place.size_bytes == 0:
        return np.empty(0, np.uint8)
    memory = memoryview((ctypes.c_ubyte * place.size_bytes).from_address(place.address))
    return np.frombuffer(memory, np.uint8)


class Job(NamedTuple):
    """One tensor to read into `place`; or, if that is None, into a new tensor on the CPU that is given to `deliver`,
    which takes it to a GPU (`gpu`) or to another place.
    """

    tensor: int
    info: TensorInfo
    place: Memory | None
    framework: Framework
    deliver: Callable[[Any], None]
    gpu: pt.device | None = None


def _new(job: Job, memory: PinnedBatches) -> tuple[Any, Memory]:
    info = job.info
    return new_tensor(info, info.shape, info.size_bytes, job.framework, partial(memory.empty, gpu=job.gpu))


def staged_batches(items: Iterable[T], size_of: Callable[[T], int]) -> list[list[T]]:
    """The items in order, in batches of as many bytes as may be on the CPU at a time."""
    batches: list[list[T]] = []
    size = 0
    for item in items:
        if not batches or size + size_of(item) > _STAGED_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(item)
        size += size_of(item)
    return batches


def device_of(device: Device | None, framework: Framework) -> pt.device | None:
    """The device for tensors; None stands for the CPU."""
    if device is None or (isinstance(device, str) and device == "cpu"):
        return None
    if framework == "np":
        raise InvalidArgumentError(f"framework 'np' has no device but 'cpu', got {brief(device)}")
    torch = import_torch()
    try:
        found: pt.device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidArgumentError(f"{device!r} is not a device of torch: {error}") from error
    return None if found.type == "cpu" else found


def canonical(infos: TensorInfos, index: int) -> int:
    """The tensor whose memory this one shares after loading: tied tensors come back tied."""
    info = infos[index]
    if info.alias_of is None or info.size_bytes == 0:
        return index
    owner = infos[info.alias_of]
    return info.alias_of if (owner.dtype, owner.shape) == (info.dtype, info.shape) else index


class Loader:
    """Collects the tensors to load, each once, and reads them together."""

    def __init__(self, native: NativeSnapshot | WholeState) -> None:
        self._native = native
        self._infos = native.tensors
        self._jobs: list[Job] = []
        self._loaded: dict[tuple[int, str], Any] = {}

    def want(self, index: int, framework: Framework, device: pt.device | None) -> tuple[int, str]:
        """Adds a tensor, and returns a ticket for `get`, which returns the tensor after `run`."""
        index = canonical(self._infos, index)
        ticket = (index, framework)
        if ticket in self._loaded:
            return ticket
        info = self._infos[index]
        if device is None:
            tensor, place = new_tensor(info, info.shape, info.size_bytes, framework)
            self._loaded[ticket] = tensor
            self._jobs.append(Job(index, info, place, framework, lambda _: None))
        else:
            self._loaded[ticket] = None

            def deliver(tensor: Any) -> None:
                self._loaded[ticket] = tensor.to(device, non_blocking=gpu is not None)

            gpu = device if device.type == "cuda" else None
            self._jobs.append(Job(index, info, None, framework, deliver, gpu))
        return ticket

    def add(self, job: Job) -> None:
        self._jobs.append(job)

    def run(self, threads: int, progress: Progress | None) -> None:
        """Reads all tensors, first those with a place, in one call."""
        check_callable(progress, "progress")
        progress = progress or progress_line("loading")
        total = sum(job.info.size_bytes for job in self._jobs)
        done = 0

        def read(requests: list[tuple[int, int, int]]) -> None:
            nonlocal done
            start = done
            report = None
            if progress is not None:
                report = lambda part, _: progress(start + part, total)  # noqa: E731
            requests = [request for request in requests if request[2] > 0]
            if requests:
                self._native.read(requests, threads, report)
            done += sum(request[2] for request in requests)

        read([(job.tensor, job.place.address, job.place.size_bytes) for job in self._jobs if job.place is not None])
        staged = [job for job in self._jobs if job.place is None]
        memory = PinnedBatches()
        for batch in staged_batches(staged, lambda job: job.info.size_bytes):
            memory.begin(job.info.size_bytes for job in batch if job.gpu is not None)
            made = [(job, *_new(job, memory)) for job in batch]
            read([(job.tensor, place.address, place.size_bytes) for job, _, place in made])
            for job, tensor, _ in made:
                job.deliver(tensor)
            memory.end()
        memory.finish()

    def get(self, ticket: tuple[int, str]) -> Any:
        return self._loaded[ticket]


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
    native: NativeSnapshot, index: int, info: TensorInfo, key: Any, framework: Framework, threads: int
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
        _fill_part(native, index, info.shape, item_bytes, ranges, place, threads)
    return result


def _fill_part(
    native: NativeSnapshot,
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


# Dtypes that only files of torch have, under names of their own.
_NAMES_OF_TORCH = {"F4_E2M1_X2": "F4", "UNTYPED": "U8"}


def read_tensor(native: NativeSnapshot, tensor: FileTensor, where: str, framework: Framework, threads: int) -> Any:
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
        dtype = torch_dtype(name, where)
        if name == tensor.dtype:  # files of torch have the shapes of torch
            shape = tensor_shape(name, shape, where)
    else:
        dtype = numpy_dtype(name, where)
    item_bytes = dtype.itemsize
    if shape != tensor.shape and tensor.stride is not None:
        raise UnsupportedError(f"{where}: a tensor of dtype {tensor.dtype!r} that is a view cannot be read")
    stride = _row_major(shape) if tensor.stride is None else tensor.stride
    elements = 0 if 0 in shape else 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    memory = _read_memory(native, tensor, elements * item_bytes, where, threads)
    return _as_tensor(memory, dtype, shape, stride, where, framework)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _read_memory(
    native: NativeSnapshot, tensor: FileTensor, size_bytes: int, where: str, threads: int
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
    framework: Framework,
) -> Any:
    try:
        if framework == "pt":
            torch = import_torch()
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
