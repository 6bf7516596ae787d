"""src/codec/gradient_step/spec.md: adds a gradient of few significant bits to a base."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from second_reader.reader_errors import Truncated, require
from second_reader.values_by_class import CONTEXTS, read_values

Floats = npt.NDArray[np.float32]

_SQUARE_FORM = 5
_SQUARE_HEADER_BYTES = 18
_AVERAGE_FORM = 6
_AVERAGE_HEADER_BYTES = 10
_HEADER = struct.Struct("<BBBfffI")
_SUMS_HEADER = struct.Struct("<IB")
_LERP_FUSED, _LERP, _ADD_FUSED, _DECAY_FUSED, _DECAY_AND_ADD = range(5)
_HAS_EXCEPTIONS = 0x80
_DTYPES = ("BF16", "F32")
_SUMS = 2  # the kind of F32 numbers in halves
_CODECS = (5, 8)


@dataclass(frozen=True)
class GradientHeader:
    form: int
    dtype: str  # of the numbers
    has_sums: bool  # the numbers are in halves
    codec: int
    constants: tuple[np.float32, np.float32, np.float32]
    numbers: bytes
    others: bytes | None  # the exceptions; None: there are none


def read_gradient_header(payload: bytes) -> GradientHeader:
    if len(payload) < _HEADER.size:
        raise Truncated(f"gradient_step payload of {len(payload)} bytes")
    first, kind, codec, *_, size = _HEADER.unpack_from(payload)
    form = first & ~_HAS_EXCEPTIONS
    require(form <= _DECAY_AND_ADD, f"gradient_step: form {form}")
    require(kind <= _SUMS, f"gradient_step: kind {kind} of numbers")
    require(codec in _CODECS, f"gradient_step: codec {codec} of numbers")
    # From the bits: Python converts floats of struct to doubles, which changes some NaNs.
    keep, gain, scale = np.frombuffer(payload, "<f4", 3, 3)
    end = _HEADER.size + size
    if len(payload) < end:
        raise Truncated(f"gradient_step: {size} bytes of numbers in a payload of {len(payload)} bytes")
    others = payload[end:]
    require(bool(first & _HAS_EXCEPTIONS) or not others, f"gradient_step: {len(others)} bytes after the numbers")
    return GradientHeader(
        form,
        _DTYPES[min(kind, 1)],
        kind == _SUMS,
        codec,
        (keep, gain, scale),
        payload[_HEADER.size : end],
        others if first & _HAS_EXCEPTIONS else None,
    )


def read_sums(payload: bytes, elements: int, read_halves: Callable[[bytes], bytes]) -> bytes:
    """F32 numbers: `read_halves` decodes the BF16 elements that are their upper halves."""
    if len(payload) < _SUMS_HEADER.size:
        raise Truncated(f"gradient_step: {len(payload)} bytes of sums")
    size, top = _SUMS_HEADER.unpack_from(payload)
    end = _SUMS_HEADER.size + size
    if len(payload) < end:
        raise Truncated(f"gradient_step: {size} bytes of upper halves in {len(payload)} bytes")
    upper = np.frombuffer(read_halves(payload[_SUMS_HEADER.size : end]), "<u2").astype(np.int64)
    contexts = np.clip(top - (upper >> 7 & 0xFF), 0, CONTEXTS - 1).astype(np.uint8)
    values = read_values(payload[end:], contexts)
    assert len(values) == elements
    lower = np.packbits(np.unpackbits(values.astype(">u2").view(np.uint8)).reshape(-1, 16)[:, ::-1], axis=1)
    words: npt.NDArray[np.uint32] = (upper << 16 | lower.view(">u2")[:, 0]).astype("<u4")
    return words.tobytes()


def elements_after_step(header: GradientHeader, numbers: bytes, base: bytes) -> bytes:
    """The expected elements."""
    if header.dtype == "BF16":
        words = np.frombuffer(numbers, "<u2").astype("<u4") << np.uint32(16)
        short = words.view("<f4")
    else:
        short = np.frombuffer(numbers, "<f4")
    before = np.frombuffer(base, "<f4")
    with np.errstate(all="ignore"):
        expected = _moved(header.form, header.constants, before, short)
    assert expected.dtype == np.float32
    return np.where(np.isnan(expected), before.view("<u4"), expected.view("<u4")).astype("<u4").tobytes()


def _moved(form: int, constants: tuple[np.float32, np.float32, np.float32], x: Floats, q: Floats) -> Floats:
    keep, gain, scale = constants
    gradient = scale * q
    if form == _LERP_FUSED:
        return _fused(gain, gradient - x, x)
    if form == _LERP:
        return x + gain * (gradient - x)
    if form == _ADD_FUSED:
        return _fused(gain, gradient, keep * x)
    if form == _DECAY_FUSED:
        return _fused(keep, x, gain * gradient)
    return keep * x + gain * gradient


def _fused(a: np.float32 | Floats, b: Floats, c: Floats) -> Floats:
    """a * b + c, rounded once: the sum of doubles is rounded to odd before it becomes a float."""
    product = np.asarray(a, np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    rounded = product + addend
    # What the addition lost, exactly (Knuth).
    of_addend = rounded - product
    lost = (product - (rounded - of_addend)) + (addend - of_addend)
    inexact = np.isfinite(lost) & (lost != 0)
    is_even = rounded.view(np.int64) & 1 == 0
    towards = np.where(lost > 0, np.inf, -np.inf)
    odd = np.where(inexact & is_even, np.nextafter(rounded, towards), rounded)
    return odd.astype(np.float32)


def squares_after_step(payload: bytes, inputs: list[bytes]) -> tuple[bytes, bytes | None]:
    """The expected second moments, and the exceptions; None: there are none."""
    if len(payload) < _SQUARE_HEADER_BYTES:
        raise Truncated(f"gradient_step payload of {len(payload)} bytes")
    form, bits = payload[0] & ~_HAS_EXCEPTIONS, payload[1]
    require(form == _SQUARE_FORM, f"gradient_step: form {form} of a second moment")
    require(1 <= bits <= 24, f"gradient_step: {bits} significant bits")
    keep, gain, rate, scale = np.frombuffer(payload, "<f4", 4, 2)
    square, before, after = (np.frombuffer(data, "<f4") for data in inputs)
    with np.errstate(all="ignore"):
        gradient = scale * _rounded(((after - before) / rate + before) / scale, bits)
        expected = _fused(gain * gradient, gradient, keep * square)
    words = np.where(np.isnan(expected), square.view("<u4"), expected.view("<u4")).astype("<u4")
    others = payload[_SQUARE_HEADER_BYTES:]
    has_exceptions = bool(payload[0] & _HAS_EXCEPTIONS)
    require(has_exceptions or not others, f"gradient_step: {len(others)} bytes after the constants")
    return words.tobytes(), others if has_exceptions else None


def averages_after_step(payload: bytes, inputs: list[bytes]) -> tuple[bytes, bytes | None]:
    """The expected averages, and the exceptions; None: there are none."""
    if len(payload) < _AVERAGE_HEADER_BYTES:
        raise Truncated(f"gradient_step payload of {len(payload)} bytes")
    form, operations = payload[0] & ~_HAS_EXCEPTIONS, payload[1]
    require(form == _AVERAGE_FORM, f"gradient_step: form {form} of an average")
    require(operations <= _DECAY_AND_ADD, f"gradient_step: operations {operations} of an average")
    keep, gain = np.frombuffer(payload, "<f4", 2, 2)
    before, weights = (np.frombuffer(data, "<f4") for data in inputs)
    with np.errstate(all="ignore"):
        expected = _moved(operations, (keep, gain, np.float32(1)), before, weights)
    words = np.where(np.isnan(expected), before.view("<u4"), expected.view("<u4")).astype("<u4")
    others = payload[_AVERAGE_HEADER_BYTES:]
    has_exceptions = bool(payload[0] & _HAS_EXCEPTIONS)
    require(has_exceptions or not others, f"gradient_step: {len(others)} bytes after the constants")
    return words.tobytes(), others if has_exceptions else None


def _rounded(numbers: Floats, bits: int) -> Floats:
    words = numbers.view(np.uint32).astype(np.uint64)
    if bits < 24:
        words += (words >> (24 - bits) & 1) + (1 << (23 - bits)) - 1
    rounded = (words & 0xFFFFFFFF & -(1 << (24 - bits)) % 2**32).astype(np.uint32)
    rounded[rounded & 0x7F800000 == 0x7F800000] = 0
    return rounded.view(np.float32)
