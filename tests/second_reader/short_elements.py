"""docs/spec/codecs.md, "Shortened elements": floats without low bits that are zero in nearly all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from second_reader.rans_lanes import Cursor
from second_reader.reader_errors import require

Words = npt.NDArray[np.int64]
MANTISSAS = {"F16": 10, "BF16": 7, "F32": 23}
_WIDTHS = {"F16": 2, "BF16": 2, "F32": 4}
FLAG, HAS_EXCEPTIONS = 128, 64
_PER_EXCEPTION = 256


@dataclass(frozen=True)
class ShortHead:
    """The header of a payload of shortened elements."""

    dtype: str
    zero_bits: int
    places: Words
    low_bits: Words

    @property
    def width(self) -> int:
        """Bytes of a shortened element."""
        return 2 if self.zero_bits >= 16 else _WIDTHS[self.dtype]

    @property
    def mantissa(self) -> int:
        return MANTISSAS[self.dtype] - self.zero_bits

    def shorten(self, words: Words) -> Words:
        top = 8 * _WIDTHS[self.dtype] - 1
        shortened: Words = (words >> top) << (8 * self.width - 1) | (words & ((1 << top) - 1)) >> self.zero_bits
        return shortened

    def lengthen(self, shortened: Words) -> bytes:
        """The elements, with exceptions."""
        short_top, top = 8 * self.width - 1, 8 * _WIDTHS[self.dtype] - 1
        magnitudes = (shortened & ((1 << short_top) - 1)) << self.zero_bits & ((1 << top) - 1)
        words = (shortened >> short_top) << top | magnitudes
        words[self.places] |= self.low_bits
        return words.astype(f"<u{_WIDTHS[self.dtype]}").tobytes()


def is_of_short_elements(payload: bytes) -> bool:
    return payload[:1] >= bytes([FLAG])


def read_short_head(cursor: Cursor, elements: int, dtype: str) -> ShortHead:
    [first] = cursor.take(1)
    zero_bits = first & 63
    require(dtype in MANTISSAS and 1 <= zero_bits <= MANTISSAS[dtype], f"{zero_bits} bits left out of {dtype}")
    numbers = np.empty((0, 2), np.int64)
    if first & HAS_EXCEPTIONS:
        [count] = cursor.numbers(1)
        require(1 <= count <= -(-elements // _PER_EXCEPTION), f"{count} exceptions of {elements} elements")
        numbers = np.array(cursor.numbers(2 * count), np.int64).reshape(count, 2)
    places, low_bits = numbers[:, 0], numbers[:, 1]
    require(bool((np.diff(places) > 0).all()) and bool((places < elements).all()), "exceptions out of place")
    require(bool(((low_bits > 0) & (low_bits < 1 << zero_bits)).all()), "low bits of an exception")
    return ShortHead(dtype, zero_bits, places, low_bits)
