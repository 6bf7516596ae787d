"""docs/spec and src/codec/rounded_from/spec.md: predicts weights from masters, and masters from weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.int64]


def rounded_to_bf16(master: bytes) -> bytes:
    bits = np.frombuffer(master, "<u4").astype(np.int64)
    return (((bits + 32_767 + (bits >> 16 & 1)) & 0xFFFF_FFFF) >> 16).astype("<u2").tobytes()


def rounded_to_f16(master: bytes) -> bytes:
    """Computed exactly, in units of the result's last place."""
    bits = np.frombuffer(master, "<u4").astype(np.int64)
    magnitude = bits & 0x7FFF_FFFF
    exponent = np.maximum(magnitude >> 23, 1)
    significand = np.where(magnitude >> 23 > 0, 1 << 23, 0) + (magnitude & 0x7F_FFFF)
    # The master is significand * 2^(exponent - 150); a unit of the result 2^-24 and, from 2^-14 on, more.
    dropped = np.maximum(13, 126 - exponent)
    shift = np.minimum(dropped, 40)
    whole, left = significand >> shift, significand & ((1 << shift) - 1)
    half = 1 << (shift - 1)
    whole = whole + ((left > half) | ((left == half) & (whole % 2 == 1)))
    # A significand that counts 2^10 units is the normal number of the next exponent, so that all adds up.
    result = np.where(dropped > 13, whole, whole + (np.maximum(exponent - 113, 0) << 10))
    result = np.minimum(result, 0x7C00)
    result = np.where(magnitude > 0x7F80_0000, 0x7E00, result)
    rounded: Words = result | bits >> 16 & 0x8000
    return rounded.astype("<u2").tobytes()


def widened_from_bf16(weight: bytes, lows: bytes) -> bytes:
    upper = np.frombuffer(weight, "<u2").astype(np.int64)
    lower: Words = np.frombuffer(lows, "<u2").astype(np.int64) if lows else np.zeros_like(upper)
    masters: Words = ((upper - (lower > 32_768)) % 65_536) << 16 | lower
    return masters.astype("<u4").tobytes()
