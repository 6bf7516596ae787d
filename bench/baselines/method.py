"""The interface of every measured method, and code that several baselines share.

A method encodes the bytes of a sample and decodes them into existing memory. Only these two calls are timed, so methods
keep the buffers that they can reuse. Methods are not thread-safe; `threads` is the number of threads of one call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Kind = Literal["ceiling", "ours", "paper", "baseline", "reference"]

ELEMENT_BYTES = {"BF16": 2, "F16": 2, "F32": 4}
_PIECE_BYTES = 1 << 20

Item = TypeVar("Item")
Made = TypeVar("Made")


class UnavailableError(Exception):
    """A baseline cannot be measured on this machine; the message explains why."""


@dataclass(frozen=True)
class Sample:
    """Elements of one role, and the same elements of an earlier state if there is one."""

    role: str
    dtype: str
    data: Bytes
    base: Bytes | None = None

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]


@dataclass(frozen=True)
class Payload:
    size_bytes: int
    body: Any = None


class Method(ABC):
    name: str
    kind: Kind = "baseline"
    uses_base: bool = False
    is_slow: bool = False  # measured on part of the sample only

    def accepts(self, sample: Sample) -> bool:
        return not self.uses_base or sample.base is not None

    def prepare(self, sample: Sample) -> None:  # noqa: B027 (most need nothing)
        """Converts the sample to the form that the method takes. Called before each encoding, and not timed."""

    @abstractmethod
    def encode(self, sample: Sample, threads: int) -> Payload: ...

    @abstractmethod
    def decode(self, sample: Sample, payload: Payload, threads: int, out: Bytes) -> None:
        """Fills `out`; may read only the base of the sample."""

    def release(self) -> None:  # noqa: B027 (most keep nothing)
        """Frees memory that was kept for the sample."""


Found = tuple[list[Method], dict[str, str]]
_pools: dict[int, ThreadPoolExecutor] = {}


def run_pieces(work: Callable[[Item], Made], items: Sequence[Item], threads: int) -> list[Made]:
    """Maps `work` over the items on `threads` threads, for libraries without threads of their own."""
    if threads == 1:
        return [work(item) for item in items]
    if threads not in _pools:
        _pools[threads] = ThreadPoolExecutor(threads)
    return list(_pools[threads].map(work, items))


def cut(data: Bytes) -> list[Bytes]:
    """Cuts bytes into pieces of whole elements."""
    return [data[begin : begin + _PIECE_BYTES] for begin in range(0, data.size, _PIECE_BYTES)]


class PieceMethod(Method):
    """A method that codes pieces on their own; with a base, it codes their difference: the XOR, unless overridden."""

    def accepts(self, sample: Sample) -> bool:
        return super().accepts(sample) and self.accepts_dtype(sample.dtype)

    def accepts_dtype(self, dtype: str) -> bool:
        return dtype in ELEMENT_BYTES

    def difference(self, piece: Bytes, base: Bytes, dtype: str) -> Bytes:
        return piece ^ base

    def add_base(self, out: Bytes, base: Bytes, dtype: str) -> None:
        """Turns a decoded difference into the piece."""
        np.bitwise_xor(out, base, out=out)

    @abstractmethod
    def encode_piece(self, piece: Bytes, dtype: str) -> bytes: ...

    @abstractmethod
    def decode_piece(self, payload: bytes, dtype: str, out: Bytes) -> None: ...

    def encode(self, sample: Sample, threads: int) -> Payload:
        bases = cut(sample.base) if self.uses_base and sample.base is not None else None

        def work(number: int) -> bytes:
            piece = pieces[number]
            if bases is not None:
                piece = self.difference(piece, bases[number], sample.dtype)
            return self.encode_piece(piece, sample.dtype)

        pieces = cut(sample.data)
        made = run_pieces(work, range(len(pieces)), threads)
        return Payload(sum(len(payload) for payload in made), made)

    def decode(self, sample: Sample, payload: Payload, threads: int, out: Bytes) -> None:
        bases = cut(sample.base) if self.uses_base and sample.base is not None else None
        outs = cut(out)

        def work(number: int) -> None:
            self.decode_piece(payload.body[number], sample.dtype, outs[number])
            if bases is not None:
                self.add_base(outs[number], bases[number], sample.dtype)

        run_pieces(work, range(len(outs)), threads)


def fill(out: Bytes, decoded: bytes | bytearray | memoryview | Bytes) -> None:
    """Copies the result of a library that returns new memory."""
    out[:] = decoded if isinstance(decoded, np.ndarray) else np.frombuffer(decoded, np.uint8)


def to_planes(piece: Bytes, element_bytes: int) -> Bytes:
    return np.ascontiguousarray(piece.reshape(-1, element_bytes).T).reshape(-1)


def from_planes(planes: Bytes, element_bytes: int, out: Bytes) -> None:
    out.reshape(-1, element_bytes)[:] = planes.reshape(element_bytes, -1).T
