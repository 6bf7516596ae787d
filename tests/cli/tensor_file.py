"""Makes safetensors files byte by byte, including files that common writers would not make."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ELEMENT_BYTES = {
    **dict.fromkeys(["BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"], 1),
    **dict.fromkeys(["U16", "I16", "F16", "BF16"], 2),
    **dict.fromkeys(["U32", "I32", "F32"], 4),
    **dict.fromkeys(["U64", "I64", "F64", "C64"], 8),
}


@dataclass(frozen=True)
class Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes = field(repr=False)


def random_bytes(size: int, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8).tobytes()


def weights(name: str, elements: int, seed: int, dtype: str = "F32") -> Tensor:
    """Values that are distributed as trained weights are: what the codecs are made for."""
    values = np.random.default_rng(seed).normal(0, 0.02, elements).astype(np.float32)
    if dtype == "BF16":
        return Tensor(name, dtype, (elements,), (values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
    kind = {"F32": np.float32, "F16": np.float16, "F64": np.float64}[dtype]
    return Tensor(name, dtype, (elements,), values.astype(kind).tobytes())


def to_bytes(tensors: list[Tensor], metadata: dict[str, str] | None = None, padding: str = "") -> bytes:
    """The data lie in the order of `tensors`; `padding` follows the header's JSON."""
    header: dict[str, object] = {}
    if metadata is not None:
        header["__metadata__"] = metadata
    at = 0
    for tensor in tensors:
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [at, at + len(tensor.data)],
        }
        at += len(tensor.data)
    text = json.dumps(header, ensure_ascii=False).encode() + padding.encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensor.data for tensor in tensors)


def write(path: Path, tensors: list[Tensor], metadata: dict[str, str] | None = None, padding: str = "") -> Path:
    path.write_bytes(to_bytes(tensors, metadata, padding))
    return path
