"""Copies of GPU tensors to the CPU, which run after earlier work of the device and concurrently with later work.

Each copy goes through pinned memory of torch's own cache, on a stream of its own, so that several run at a time. That
stream waits for the caller's current stream; the caller's stream never waits for it. Work on any other stream must
have finished before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bitsnap import _dtypes

if TYPE_CHECKING:
    from torch import Tensor


def is_on_gpu(tensor: Tensor) -> bool:
    return tensor.is_cuda


def copier(tensor: Tensor, plain: Callable[[], Tensor], cuda: Any = None) -> Callable[[], Tensor]:
    """A function that copies the tensor to the CPU. Call this on the thread that computed the tensor, and the function
    on any thread.

    `plain` makes the contiguous tensor on the device whose bits are copied. `cuda` is torch.cuda.
    """
    cuda = _dtypes.import_torch().cuda if cuda is None else cuda
    computing = cuda.current_stream(tensor.device)

    def copy() -> Tensor:
        stream = cuda.Stream(tensor.device)  # torch has a small pool of them
        with cuda.stream(stream):
            stream.wait_stream(computing)
            source = plain()
            on_cpu = pinned_like(source)
            on_cpu.copy_(source, non_blocking=True)
        # Before `source` is freed: it may be a copy whose memory belongs to the stream.
        stream.synchronize()
        return on_cpu

    return copy


def pinned_like(source: Tensor) -> Tensor:
    """Pinned memory, to which a device copies directly; plain memory, which is slower, if there is none left."""
    torch = _dtypes.import_torch()
    try:
        pinned: Tensor = torch.empty(source.shape, dtype=source.dtype, device="cpu", pin_memory=True)
    except RuntimeError:
        pinned = torch.empty(source.shape, dtype=source.dtype, device="cpu")
    return pinned
