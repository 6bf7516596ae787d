"""Decoding tensors in parallel: directly into memory on the CPU, and from there to other devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from bitsnap import _bitsnap
from bitsnap._arguments import Progress, check_callable
from bitsnap._bitsnap import TensorInfo, TensorInfos
from bitsnap._tensors import dtypes
from bitsnap._tensors.arrays import Memory, new_tensor
from bitsnap._tensors.boxes import Box
from bitsnap._tensors.device_copies import PinnedBatches
from bitsnap.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch as pt

    Device: TypeAlias = str | int | pt.device
else:
    Device = Any

# Tensors for other devices take at most this much memory on the CPU at a time, or the size of the largest one; those
# for a GPU twice as much, as the last ones are still being copied.
_STAGED_BYTES = 128 << 20
T = TypeVar("T")


class Job(NamedTuple):
    """One tensor to read into `place`; or, if that is None, into a new tensor on the CPU that is given to `deliver`,
    which takes it to a GPU (`gpu`) or to another place.
    """

    tensor: int
    info: TensorInfo
    place: Memory | None
    framework: dtypes.Framework
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


def device_of(device: Device | None, framework: dtypes.Framework) -> pt.device | None:
    """The device for tensors; None stands for the CPU."""
    if device is None or (isinstance(device, str) and device == "cpu"):
        return None
    if framework == "np":
        raise InvalidArgumentError(f"framework 'np' has no device but 'cpu', got {device!r}")
    torch = dtypes.import_torch()
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


def box_around(tensor: Any, info: TensorInfo) -> Any:
    """A loaded tensor as the value that was saved: in its box, if it is a part of a sharded tensor."""
    if info.global_shape is None or info.offset is None:
        return tensor
    return Box(tensor, info.global_shape, info.offset, info.global_name or None)


class Loader:
    """Collects the tensors to load, each once, and reads them together."""

    def __init__(self, native: _bitsnap.Snapshot) -> None:
        self._native = native
        self._infos = native.tensors
        self._jobs: list[Job] = []
        self._loaded: dict[tuple[int, str], Any] = {}

    def want(self, index: int, framework: dtypes.Framework, device: pt.device | None) -> tuple[int, str]:
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
