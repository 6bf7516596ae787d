"""Tensors of a GPU on their way to memory: behind what their device was told before, beside what it is told later.

The copy of each goes through pinned memory of torch's own cache, which keeps it for the next one, on a stream beside
that of the caller, so that several are under way. That stream waits for the one that the caller computes on, and not
the other way round. What a device computes for another stream than the caller's current one has to be over before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bitsnap import _dtypes

if TYPE_CHECKING:
    from torch import Tensor


def is_on_gpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cuda"


def copier(tensor: Tensor, plain: Callable[[], Tensor], cuda: Any = None) -> Callable[[], Tensor]:
    """To be called by the thread that computed the tensor; what it returns, by any thread while that one waits.

    `plain` makes the contiguous tensor on its device whose bits are to be copied. `cuda` is torch.cuda.
    """
    cuda = _dtypes.import_torch().cuda if cuda is None else cuda
    computing = cuda.current_stream(tensor.device)

    def copy() -> Tensor:
        stream = cuda.Stream(tensor.device)  # one of a few that torch has
        with cuda.stream(stream):
            stream.wait_stream(computing)
            source = plain()
            on_cpu = pinned_like(source)
            on_cpu.copy_(source, non_blocking=True)
        # Before `source` goes, which may be a copy: its memory is the stream's.
        stream.synchronize()
        return on_cpu

    return copy


def pinned_like(source: Tensor) -> Tensor:
    """Memory that a device copies to by itself; plain memory, which is slower, where there is no more of it."""
    torch = _dtypes.import_torch()
    try:
        pinned: Tensor = torch.empty(source.shape, dtype=source.dtype, device="cpu", pin_memory=True)
    except RuntimeError:
        pinned = torch.empty(source.shape, dtype=source.dtype, device="cpu")
    return pinned
