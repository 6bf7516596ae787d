"""The methods of a store for global tensors: their list, and reading boxes of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

from bitsnap import _bitsnap
from bitsnap._bitsnap import GlobalTensor
from bitsnap._common import Progress, alike, check_callable, number_of
from bitsnap._tensors.arrays import (
    AnyTensor,
    Source,
    Strided,
    Target,
    copy_into,
    fillable,
    gpu_of,
    named_source_of,
    note_filled,
)
from bitsnap._tensors.device_copies import PinnedBatches
from bitsnap._tensors.reading import Filled, check_apart, staged_batches
from bitsnap.errors import InvalidArgumentError, NotFoundError

# The name of a tensor, the offset of a box, and the tensor that it is read into.
BoxRequest: TypeAlias = tuple[str, Sequence[SupportsIndex], AnyTensor]
NativeBox: TypeAlias = tuple[str, str, tuple[int, ...], tuple[int, ...], int, tuple[int, ...]]


class StoreTensors:
    """Part of Store, which has the attributes."""

    _native: _bitsnap.Store
    _threads: int

    def tensors(self, step: SupportsIndex) -> dict[str, GlobalTensor]:
        """The tensors of all shards of a checkpoint, by name, in the order of the shards.

        Opens one small file if several processes saved the checkpoint. A tensor that was saved in boxes has its whole
        shape, and the boxes as its parts. A tensor that several shards hold whole is listed once if it is the same in
        all of them; otherwise each is listed as ``rank-N/NAME``.

        Raises:
            NotFoundError: there is no such checkpoint.
        """
        return self._native.tensors(number_of(step, "step"))

    def read_into(
        self, step: SupportsIndex, requests: Iterable[BoxRequest], *, progress: Progress | None = None
    ) -> None:
        """Reads boxes of tensors of a checkpoint, whatever shards hold them, into tensors of the caller.

        Opens only the shards that are needed, and decodes each of their chunks once, however many boxes it is in.
        Memory on the CPU is filled directly, with any strides. Needs little memory besides: a few chunks for each
        thread, and at most 256 MiB, or the largest tensor, for tensors of other devices.

        Example:
            rows = torch.empty(1024, 4096, dtype=torch.bfloat16)
            columns = torch.empty(4096, 64)
            store.read_into(100, [("model.w", (2048, 0), rows), ("model.v", (0, 128), columns)])

        Args:
            step: the checkpoint.
            requests: for each box the name of the tensor as tensors() lists it, the position of the first element, and
                a torch tensor or numpy array with the extent of the box and the dtype of the tensor. None of them may
                share memory with another one.
            progress: called with (done bytes, total bytes); returning False cancels.

        Raises:
            NotFoundError: there is no such checkpoint or tensor, or the shards do not hold all elements of a box.
            InvalidArgumentError: a box does not lie in its tensor, or a tensor has another dtype or cannot be filled.
                Nothing was written.
            CorruptError, TruncatedError: a file is damaged, or shards hold different values of the same elements. Some
                tensors may have been filled.
        """
        check_callable(progress, "progress")
        self._read_into(number_of(step, "step"), requests, progress=progress)

    def _read_into(
        self,
        number: int,
        requests: Iterable[BoxRequest],
        *,
        may_share: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """`may_share`: tensors may share memory, as tied weights do, if the same is read into it."""
        wanted = _checked(self._native.tensors(number), str(self._native.path), number, requests)
        if not may_share:
            check_apart([Filled(i, each.target, each.where) for i, each in enumerate(wanted)])
        total = sum(each.size_bytes for each in wanted)
        done = 0
        pinned = PinnedBatches()
        for batch in _batches(wanted):
            start = done
            report = None
            if progress is not None:
                report = partial(_report, progress, start, total)
            pinned.begin(each.size_bytes for each in batch if each.gpu is not None)
            staged = [each.staged(pinned) for each in batch]
            boxes = [each.native(memory) for each, (_, memory) in zip(batch, staged, strict=True)]
            self._native.read_boxes(number, boxes, threads=self._threads, progress=report)
            for each, (tensor, _) in zip(batch, staged, strict=True):
                if tensor is not None:
                    copy_into(each.target, tensor, each.where)
                note_filled(each.target.value)
            pinned.end()
            done += sum(each.size_bytes for each in batch)
        pinned.finish()


class _Wanted(NamedTuple):
    name: str
    dtype: str
    offset: tuple[int, ...]
    extent: tuple[int, ...]
    target: Target
    memory: Strided | None  # of the target; None: it is filled from a copy on the CPU
    size_bytes: int
    where: str

    @property
    def gpu(self) -> Any:
        """The GPU that the tensor is on, if it is on one."""
        return gpu_of(self.target.value)

    def staged(self, pinned: PinnedBatches) -> tuple[Any, Strided]:
        """The tensor on the CPU that is filled first, if there is one, and the memory to read into."""
        if self.memory is not None:
            return None, self.memory
        value = self.target.value
        tensor = pinned.empty(value.shape, value.dtype, self.gpu)
        item = tensor.element_size()
        return tensor, (tensor.data_ptr(), tuple(tensor.shape), tuple(step * item for step in tensor.stride()), item)

    def native(self, memory: Strided) -> NativeBox:
        address, _, strides, _ = memory
        return self.name, self.dtype, self.offset, self.extent, address, strides


def _report(progress: Progress, start: int, total: int, part: int, _: int) -> object:
    return progress(start + part, total)


def _checked(tensors: dict[str, GlobalTensor], path: str, step: int, requests: Iterable[BoxRequest]) -> list[_Wanted]:
    wanted = []
    for i, request in enumerate(requests):
        if not isinstance(request, tuple) or len(request) != 3:
            raise TypeError(f"requests[{i}] must be a tuple of name, offset and tensor, got {request!r}")
        name, offset, value = request
        where = f"the tensor of requests[{i}] ({name!r})"
        if not isinstance(name, str):
            raise TypeError(f"requests[{i}] must begin with the name of a tensor, got {name!r}")
        tensor = tensors.get(name)
        if tensor is None:
            raise NotFoundError(f"{path}: step {step}: there is no tensor {name!r}{alike(name, list(tensors))}")
        at = tuple(number_of(number, f"the offset of requests[{i}]") for number in offset)
        source = named_source_of(value, where)
        shape = source.shape
        if source.dtype != tensor.dtype:
            raise InvalidArgumentError(f"{where} is {source.dtype}, but the checkpoint holds {tensor.dtype}")
        target = fillable(value, source, where)
        fits = len(at) == len(shape) == len(tensor.shape) and all(
            start + extent <= size for start, extent, size in zip(at, shape, tensor.shape, strict=True)
        )
        if not fits:
            raise InvalidArgumentError(
                f"requests[{i}]: a box of shape {list(shape)} at offset {list(at)} does not lie in tensor {name!r} of "
                f"shape {list(tensor.shape)}"
            )
        if source.size_bytes > 0:
            wanted.append(
                _Wanted(name, source.dtype, at, shape, target, _memory_of(target, source), source.size_bytes, where)
            )
    return wanted


def _memory_of(target: Target, source: Source) -> Strided | None:
    """The memory on the CPU that can be filled directly; None: there is none."""
    if target.place is None:
        return target.strided
    item = source.size_bytes // math.prod(source.shape)
    strides = [item * math.prod(source.shape[axis + 1 :]) for axis in range(len(source.shape))]
    return target.place.address, source.shape, tuple(strides), item


def _batches(wanted: list[_Wanted]) -> list[list[_Wanted]]:
    """All tensors that are filled directly, and then batches of the others."""
    direct = [each for each in wanted if each.memory is not None]
    staged = [each for each in wanted if each.memory is None]
    return ([direct] if direct else []) + staged_batches(staged, lambda each: each.size_bytes)
