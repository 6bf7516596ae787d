"""NVIDIA's nvCOMP as a coder of bytes on the GPU, alone or behind byte planes that torch makes there.

nvCOMP is a package of its own (nvidia-nvcomp-cu13), proprietary, and needed for nothing else here. Its calls are those
of version 6 of its Python interface: Codec(algorithm=..., cuda_stream=..., ...), encode(), decode() and as_array().
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

# A part of a role that is encoded by one call.
PIECE_BYTES = 256 << 20


@dataclass(frozen=True)
class Coder:
    """How a role is encoded: an algorithm of nvCOMP with its options, by the width of the elements in bytes."""

    name: str
    algorithm: str
    types: dict[int, str]  # nvCOMP's names of the data types of elements, such as "<f2"; of others, bytes
    planes: bool = False  # whether each plane of bytes is encoded by itself

    def type_for(self, width: int) -> str:
        return "|u1" if self.planes else self.types.get(width, "|u1")


_TORCH_TYPES = {
    "|u1": torch.uint8,
    "<u2": torch.uint16,
    "<u4": torch.uint32,
    "<f2": torch.float16,
    "<f4": torch.float32,
}
# nvCOMP has no type for bfloat16: ANS takes it for an IEEE half.
CODERS = (
    Coder("gANS", "ANS", {}),
    Coder("gANS, floats", "ANS", {2: "<f2", 4: "<f4"}),
    Coder("gANS on byte planes", "ANS", {}, planes=True),
    Coder("zstd", "Zstd", {}),
    Coder("zstd on byte planes", "Zstd", {}, planes=True),
    Coder("Bitcomp", "Bitcomp", {2: "<u2", 4: "<u4"}),
    Coder("Bitcomp on byte planes", "Bitcomp", {}, planes=True),
)


def load_nvcomp() -> ModuleType:
    """Raises ImportError if it is not installed."""
    return importlib.import_module("nvidia.nvcomp")


def pieces_of(bits: Tensor, width: int) -> list[Tensor]:
    """A role as bytes, in pieces of whole elements."""
    step = PIECE_BYTES // width * width
    return [bits[begin : begin + step] for begin in range(0, bits.numel(), step)]


def planes_of(piece: Tensor, width: int) -> list[Tensor]:
    """The first bytes of all elements, the second ones, and so on. A copy on the device."""
    elements = piece.view(-1, width)
    return [elements[:, number].contiguous() for number in range(width)]  # each aligned as nvCOMP asks for


def joined(planes: Sequence[Tensor]) -> Tensor:
    """The opposite of planes_of()."""
    return torch.stack(list(planes), dim=1).reshape(-1)


class Pipeline:
    """Encodes what lies on the device and copies it to the host. One coder and one width of elements.

    Works on the stream that is current when it is made, which must stay current and must not be the default stream:
    nvCOMP would take its number, 0, for none.
    """

    def __init__(self, nvcomp: Any, coder: Coder, width: int, device: torch.device) -> None:
        self._nvcomp, self._coder, self._width, self._device = nvcomp, coder, width, device
        self._type = coder.type_for(width)
        options: dict[str, Any] = {"algorithm": coder.algorithm}
        if coder.algorithm != "Zstd":
            options["data_type"] = self._type
        if device.type == "cuda":
            self._stream = torch.cuda.current_stream(device).cuda_stream
            options |= {"device_id": device.index or 0, "cuda_stream": self._stream}
        self._codec = nvcomp.Codec(**options)

    def encode(self, bits: Tensor) -> list[Any]:
        """nvCOMP's arrays on the device, in order. Does not wait for the device."""
        arrays: list[Any] = []
        for piece in pieces_of(bits, self._width):
            parts = planes_of(piece, self._width) if self._coder.planes else [piece]
            arrays += [self._codec.encode(self._array(part)) for part in parts]
        return arrays

    def decode(self, arrays: Sequence[Any]) -> Tensor:
        """The bytes of a role, on the device."""
        parts = [self._tensor(self._codec.decode(array)) for array in arrays]
        if self._coder.planes:
            groups = range(0, len(parts), self._width)
            parts = [joined(parts[begin : begin + self._width]) for begin in groups]
        return torch.cat(parts)

    def copy_to_host(self, arrays: Sequence[Any], host: Tensor) -> int:
        """Copies what was encoded into the buffer, one behind the other; returns its bytes. Waits for sizes only."""
        end = 0
        for array in arrays:
            encoded = self._tensor(array)
            if end + encoded.numel() > host.numel():
                end = 0  # a state that did not shrink: what is overwritten is not looked at
            host[end : end + encoded.numel()].copy_(encoded, non_blocking=True)
            end += encoded.numel()
        return self.size_of(arrays)

    def size_of(self, arrays: Sequence[Any]) -> int:
        return sum(int(array.buffer_size) for array in arrays)

    def _array(self, bits: Tensor) -> Any:
        typed = bits.view(_TORCH_TYPES[self._type])
        if self._device.type == "cuda":
            return self._nvcomp.as_array(typed, cuda_stream=self._stream)
        return self._nvcomp.as_array(typed.numpy())

    def _tensor(self, array: Any) -> Tensor:
        """The same memory as bytes. The array has to live as long as the tensor is used."""
        if self._device.type != "cuda":
            return torch.as_tensor(np.asarray(array)).reshape(-1).view(torch.uint8)
        try:
            made = torch.as_tensor(array, device=self._device)
        except TypeError:  # of arrays that are not writeable
            made = torch.utils.dlpack.from_dlpack(array)
        return made.reshape(-1).view(torch.uint8)
