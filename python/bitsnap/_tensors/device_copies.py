"""Copies between the memory of a GPU and that of the CPU.

Copies from a GPU run on a stream of their own, after the work that the caller's current stream had when they were asked
for, and beside its later work, which never waits for them. Work on any other stream must have finished before.
"""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from bitsnap.errors import InvalidArgumentError

if TYPE_CHECKING:
    from torch import Tensor

_PORTABLE = 1  # cudaHostRegisterPortable: for all devices
_ALIGNMENT = 64  # of tensors in one memory
_BATCHES = 2  # on their way to a GPU at a time


def is_on_gpu(tensor: Tensor) -> bool:
    return tensor.is_cuda


def _cuda() -> Any:
    import torch

    return torch.cuda


class DeviceTensor:
    """A tensor of a GPU whose bits are to be copied to the CPU. Made on the thread that computed it; any thread copies.

    `plain` makes of a tensor a contiguous one on the same device, with the same bits.
    """

    __slots__ = ("_computed", "_computing", "_name", "_noted", "_plain", "_tensor")

    def __init__(self, tensor: Tensor, plain: Callable[[Tensor], Tensor]) -> None:
        self._tensor, self._plain = tensor, plain
        self._computing = _cuda().current_stream(tensor.device)
        self._computed: Any = None  # an event; None: the work that its stream has when the copy begins
        self._name = ""  # in errors
        self._noted: tuple[int, int, int] | None = None  # of the tensor that is to be copied; None: any

    def __call__(self) -> tuple[object, int]:
        """A copy in pinned memory, and its address."""
        item = self._tensor.element_size()
        on_cpu = pinned_bytes(self._tensor.numel() * item)
        copy_all([self], [(on_cpu.data_ptr(), on_cpu.numel())])
        return on_cpu, on_cpu.data_ptr()

    @staticmethod
    def copy_all(tensors: Sequence[DeviceTensor], memory: Sequence[tuple[int, int]]) -> None:
        copy_all(tensors, memory)

    def pin(self, address: int, size_bytes: int) -> object:
        """Makes memory fit for copies that run beside the processor, until the result is collected."""
        return RegisteredMemory(address, size_bytes, self._tensor.device)

    def _copy_into(self, out: Tensor) -> None:
        """Begins to copy, on the current stream, into contiguous memory on the CPU, which is given as bytes."""
        _copy_parts(self._tensor, self._plain, out)

    def _state(self) -> tuple[int, int, int]:
        """What changes with the elements, as far as torch knows, or if the memory is another one or freed."""
        tensor = self._tensor
        version = 0 if tensor.is_inference() else tensor._version
        return version, tensor.data_ptr(), tensor.untyped_storage().nbytes()

    def _check_unchanged(self) -> None:
        if self._noted is not None and self._noted != self._state():
            raise InvalidArgumentError(
                f"tensor {self._name!r} was changed before it was copied: after save(blocking=False), call "
                "wait_staged() of the handle before anything but a step of torch's optimizers changes the state"
            )


def note_computed(tensors: Iterable[tuple[str, object]]) -> None:
    """The tensors of a GPU among these, which have names, are copied as they are now, however much later the copy is
    asked for: when the work that their streams have now is done. A copy fails if torch knows that one has changed.
    """
    events: dict[Any, Any] = {}
    for name, each in tensors:
        if isinstance(each, DeviceTensor):
            if each._computing not in events:
                events[each._computing] = _cuda().Event()
                events[each._computing].record(each._computing)
            each._computed = events[each._computing]
            each._name = name
            each._noted = each._state()


def _copy_parts(tensor: Tensor, plain: Callable[[Tensor], Tensor], out: Tensor) -> None:
    try:
        source = plain(tensor)
    except _cuda().OutOfMemoryError:
        # A tensor that is not contiguous takes memory of its size: half of it at a time, then.
        dim = next((dim for dim, extent in enumerate(tensor.shape) if extent > 1), None)
        if dim is None:
            raise
        first, second = tensor.tensor_split(2, dim)
        middle = first.numel() * first.element_size()
        _copy_parts(first, plain, out[:middle])
        _copy_parts(second, plain, out[middle:])
        return
    out.view(source.dtype).copy_(source.view(-1), non_blocking=True)


def copy_all(tensors: Sequence[DeviceTensor], memory: Sequence[tuple[int, int]]) -> None:
    """Copies tensors to the CPU, one behind the other, and waits for the last.

    `memory` has an address and a size for each tensor: contiguous memory, all of it in one mapping, aligned to the
    elements. Size 0 leaves a tensor out.
    """
    cuda = _cuda()
    wanted = [(each, *place) for each, place in zip(tensors, memory, strict=True) if place[1] > 0]
    if not wanted:
        return
    begin = min(address for _, address, _ in wanted)
    whole = _bytes_at(begin, max(address + size for _, address, size in wanted) - begin)
    by_stream: dict[Any, list[tuple[DeviceTensor, Tensor]]] = {}
    for tensor, address, size in wanted:
        out = whole[address - begin : address - begin + size]
        by_stream.setdefault(tensor._computing, []).append((tensor, out))
    events: list[tuple[Any, Any]] = []  # with their devices
    errors: list[BaseException] = []
    for computing, copies in by_stream.items():
        # The device of a thread of the library is the first one, on which this process may have nothing to do.
        with cuda.device(computing.device):
            stream = _copy_stream(computing.device)
            computed = copies[0][0]._computed
            # A thread beside the training sleeps until then; that of the training wakes up sooner.
            event = cuda.Event(blocking=computed is not None)
            try:
                if computed is None:
                    stream.wait_stream(computing)
                else:
                    stream.wait_event(computed)
                with cuda.stream(stream):
                    for tensor, out in copies:
                        tensor._copy_into(out)
            except BaseException as error:
                errors.append(error)
            event.record(stream)
            events.append((computing.device, event))
    # Whatever happened: before the tensors are freed or overwritten, and before the memory is.
    for device, event in events:
        with cuda.device(device):
            try:
                event.synchronize()
            except BaseException as error:
                errors.append(error)
    if errors:
        raise errors[0]
    for tensor, _, _ in wanted:
        tensor._check_unchanged()


_streams: dict[Any, Any] = {}


def _copy_stream(device: Any) -> Any:
    """The stream for copies from a device: one, as memory of torch's allocator belongs to a stream."""
    return _streams.get(device) or _streams.setdefault(device, _cuda().Stream(device))


def _bytes_at(address: int, size_bytes: int) -> Tensor:
    memory = (ctypes.c_ubyte * size_bytes).from_address(address)
    import torch

    return torch.frombuffer(memory, dtype=torch.uint8)


class RegisteredMemory:
    """Memory of the process that CUDA knows, so that a device copies into it without the processor. It must stay mapped
    until this is collected.

    If CUDA does not take it, copies into it are slower, and take_warning() says why.
    """

    def __init__(self, address: int, size_bytes: int, device: Any) -> None:
        import torch

        cuda = _cuda()
        finalizer = weakref.finalize(self, _unregister, address, device, os.getpid())
        finalizer.atexit = False  # it goes with the memory, into which a copy may still run
        try:
            with cuda.device(device):  # or a context is made on another device
                code = int(cuda.cudart().cudaHostRegister(address, size_bytes, _PORTABLE))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        else:
            if code == 0:
                return
            reason = f"error {code}"
            with suppress(RuntimeError):  # CUDA reports the error to whoever asks next: that is this
                torch.zeros(1, device=device)
        finalizer.detach()
        _warnings.append(
            f"CUDA does not register {size_bytes} bytes of the memory that states are copied into (cudaHostRegister: "
            f"{reason}), so copies from the GPU are slower"
        )


def _unregister(address: int, device: Any, process: int) -> None:
    if os.getpid() != process:  # a child of a fork, which has no CUDA
        return
    cuda = _cuda()
    with cuda.device(device):
        cuda.cudart().cudaHostUnregister(address)


_warnings: deque[str] = deque(maxlen=1)


def take_warning() -> str | None:
    """What there is to say of registered memory, once."""
    return _warnings.pop() if _warnings else None


class PinnedBatches:
    """Memory for tensors on their way to GPUs, which are decoded on the CPU: two batches at a time, so that one is
    decoded while the other is copied. Tensors for other places are in plain memory.

    The copies are of the caller: not blocking, on the current streams. For one thread.
    """

    def __init__(self) -> None:
        self._copies: deque[list[Any]] = deque()  # events of the batches that are being copied
        self._memory: Tensor | None = None
        self._used = 0
        self._devices: set[Any] = set()

    def begin(self, sizes: Iterable[int]) -> None:
        """Begins a batch: tensors of these sizes in bytes go to GPUs."""
        self._devices = set()
        self._used = 0
        if len(self._copies) == _BATCHES:
            _wait_for(self._copies.popleft())
        size = sum(_aligned(each) for each in sizes)
        self._memory = pinned_bytes(size) if size > 0 else None

    def empty(self, shape: tuple[int, ...], dtype: Any, gpu: Any) -> Tensor:
        """A tensor of the batch on the CPU, for this GPU; None stands for another place."""
        size = math.prod(shape) * dtype.itemsize
        if gpu is None or size == 0 or self._memory is None:
            import torch

            return torch.empty(shape, dtype=dtype, device="cpu")
        self._devices.add(gpu)
        place = self._memory[self._used : self._used + size]
        self._used += _aligned(size)
        return place.view(dtype).view(shape)

    def end(self) -> None:
        """All copies of the batch have begun."""
        events = []
        for device in self._devices:
            events.append(_cuda().Event())
            events[-1].record(_cuda().current_stream(device))
        self._copies.append(events)
        self._memory = None  # of torch's cache, which waits for the copies before it gives it to others

    def finish(self) -> None:
        """Returns when all tensors are on their GPUs."""
        while self._copies:
            _wait_for(self._copies.popleft())


def _wait_for(events: list[Any]) -> None:
    for event in events:
        event.synchronize()


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGNMENT) * _ALIGNMENT


def pinned_bytes(size_bytes: int) -> Tensor:
    """Pinned memory, with which a device exchanges data without the processor; plain memory, which is slower, if there
    is none left."""
    import torch

    try:
        pinned = torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)
    except RuntimeError:
        pinned = torch.empty(size_bytes, dtype=torch.uint8, device="cpu")
    return pinned
