"""src/codec/scaled_by/spec.md: first moments as multiples of a fraction of their update."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from second_reader.rans_lanes import Numbers
from second_reader.reader_errors import Truncated, require

Floats = npt.NDArray[np.float32]

LATTICE_INPUTS = ("p", "bp")
_FROM_BASE, _PLANES = 1, 2
_EXCEPTION = 0xFFFF
_SHARE_UNIT = np.float32(256)
_BEYOND = np.float32(32767.5)


@dataclass(frozen=True)
class LatticeHeader:
    """The header before the values."""

    has_planes: bool
    a: np.float32
    b: np.float32
    share: np.float32
    exceptions: npt.NDArray[np.uint32]
    size: int


def read_lattice_header(payload: bytes, *, has_base: bool) -> LatticeHeader:
    size = 14 if has_base else 13
    if len(payload) < size:
        raise Truncated(f"scaled_by payload of {len(payload)} bytes")
    form = payload[0]
    require(form & ~_PLANES == (_FROM_BASE if has_base else 0), f"scaled_by: form {form}")
    a, b = np.frombuffer(payload[1:9], "<f4")
    for number in (a, b):
        require(bool(np.isfinite(number)) and not np.signbit(number), f"scaled_by: a scale of {number}")
    share = np.float32(payload[9] if has_base else 0) / _SHARE_UNIT
    [count] = struct.unpack("<I", payload[size - 4 : size])
    if len(payload) < size + 4 * count:
        raise Truncated(f"scaled_by: {count} exceptions in a payload of {len(payload)} bytes")
    exceptions = np.frombuffer(payload[size : size + 4 * count], "<u4")
    return LatticeHeader(bool(form & _PLANES), a, b, share, exceptions, size + 4 * count)


def multiples_of_scale(header: LatticeHeader, values: Numbers, inputs: list[bytes]) -> bytes:
    """The elements with these values. The last input has the second moments."""
    *bases, squares = (np.frombuffer(data, "<f4") for data in inputs)
    with np.errstate(all="ignore"):
        scales = header.a * np.sqrt(squares) + header.b
        expected = _nearest(bases[0] / scales * header.share) if bases else np.zeros(len(squares), np.int64)
        deltas = np.where(values & 1, -(values + 1 >> 1), values >> 1)
        integers = (expected + deltas + 0x8000 & 0xFFFF) - 0x8000
        multiples = integers.astype(np.float32) * scales
    assert scales.dtype == multiples.dtype == np.float32
    words = np.where(np.isnan(multiples), 0, multiples.view("<u4")).astype("<u4")
    places = values == _EXCEPTION
    require(int(places.sum()) == len(header.exceptions), f"scaled_by: {len(header.exceptions)} exceptions")
    words[places] = header.exceptions
    return words.tobytes()


def _nearest(numbers: Floats) -> Numbers:
    integers: Numbers = np.rint(np.where(np.abs(numbers) < _BEYOND, numbers, np.float32(0))).astype(np.int64)
    return integers
