"""docs/spec/codecs.md and the specifications of the codecs: decodes one payload to one chunk."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from second_reader import zstd_frame
from second_reader.byte_blocks import read_byte_block
from second_reader.clustered_elements import read_clustered
from second_reader.factored_elements import FACTORED_WIDTHS, read_factored_split
from second_reader.gradient_elements import (
    averages_after_step,
    elements_after_step,
    read_gradient_header,
    read_sums,
    squares_after_step,
)
from second_reader.lattice_elements import LATTICE_INPUTS, multiples_of_scale, read_lattice_header
from second_reader.optimizer_elements import INPUTS, expected_of_step
from second_reader.ordinal_deltas import LAYOUTS, read_ordinal_delta
from second_reader.rans_lanes import Cursor
from second_reader.reader_errors import Corrupt, Truncated, Unsupported, require
from second_reader.rounded_elements import rounded_to_bf16, rounded_to_f16, widened_from_bf16
from second_reader.short_elements import is_of_short_elements, read_short_head
from second_reader.split_elements import read_split_elements
from second_reader.values_by_class import read_values

ELEMENT_SIZES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}
OPAQUE = "opaque"  # the dtype, with elements of one byte, of all tensors whose dtype is not known
FLOATS = {"F8_E4M3", "F8_E5M2", "F16", "BF16", "F32", "F64"}
MAX_ELEMENTS = 262_144
_GROUP = 65_536
# Groups of shortened elements.
_SHORT_GROUP, _COLUMNS = 512, 16
_MAX_WINDOW = 2 << 20
# Forms of a float_split payload.
_PLANES, _PLANES_ROTATED, _PLANES_UNSIGNED, _LANES, _LANES_ROTATED = range(5)
_LAST_FORM = {1: _PLANES, 2: _LANES_ROTATED, 4: _LANES_ROTATED, 8: _PLANES_UNSIGNED}

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Input:
    from_base: bool
    dtype: str
    data: bytes


@dataclass(frozen=True)
class Chunk:
    """The arguments of a decoder."""

    payload: bytes
    dtype: str
    elements: int
    inputs: tuple[Input, ...] = ()

    @property
    def width(self) -> int:
        return ELEMENT_SIZES.get(self.dtype, 1)

    @property
    def size(self) -> int:
        return self.elements * self.width

    def take_exactly(self, size: int) -> bytes:
        if len(self.payload) < size:
            raise Truncated(f"payload of {len(self.payload)} bytes, expected {size}")
        require(len(self.payload) == size, f"payload of {len(self.payload)} bytes, expected {size}")
        return self.payload


def _raw(chunk: Chunk) -> bytes:
    return chunk.take_exactly(chunk.size)


def _constant(chunk: Chunk) -> bytes:
    return chunk.take_exactly(chunk.width) * chunk.elements


def _same(chunk: Chunk) -> bytes:
    chunk.take_exactly(0)
    return chunk.inputs[0].data


def _zstd(chunk: Chunk) -> bytes:
    require(len(chunk.payload) <= chunk.size, "zstd payload is longer than the chunk")
    header = zstd_frame.read_header(chunk.payload)
    require(header.content_size == chunk.size, f"zstd frame states {header.content_size} bytes, not {chunk.size}")
    require(header.dictionary == 0, "zstd frame names a dictionary")
    require(header.window_size is None or header.window_size <= _MAX_WINDOW, "zstd frame: window above 2 MiB")
    return zstd_frame.decompress(chunk.payload, chunk.size, "zstd payload")


def _byte_group(chunk: Chunk) -> bytes:
    planes = _plane_groups(chunk.payload, chunk.elements, chunk.width)
    if chunk.inputs:
        planes ^= np.frombuffer(chunk.inputs[0].data, np.uint8).reshape(planes.shape)
    return planes.tobytes()


def _float_split(chunk: Chunk) -> bytes:
    if not chunk.payload:
        raise Truncated("float_split payload is empty")
    if is_of_short_elements(chunk.payload):
        return _short_float_split(chunk)
    form = chunk.payload[0]
    require(form <= _LAST_FORM[chunk.width], f"float_split: form {form} for {chunk.dtype}")
    if form in (_LANES, _LANES_ROTATED):
        rows = read_split_elements(chunk.payload[1:], chunk.elements, chunk.width)
    else:
        rows = _plane_groups(chunk.payload[1:], chunk.elements, chunk.width, packed=form == _PLANES_UNSIGNED)
    if form in (_PLANES, _LANES):
        return rows.tobytes()
    words = rows.reshape(-1).view(f"<u{chunk.width}")
    if form == _PLANES_UNSIGNED:
        return (words >> 1).tobytes()
    return (words >> 1 | words << (chunk.width * 8 - 1)).tobytes()


def _short_float_split(chunk: Chunk) -> bytes:
    require(chunk.dtype in ("BF16", "F32"), f"float_split: shortened elements of {chunk.dtype}")
    cursor = Cursor(chunk.payload, "float_split")
    head = read_short_head(cursor, chunk.elements, chunk.dtype)
    [signs] = cursor.take(1)
    require(signs <= 1, f"float_split: {signs} for whether there are signs")
    low_bits = head.mantissa + signs
    lows = [
        _low_bits(cursor, min(_SHORT_GROUP, chunk.elements - first), low_bits)
        for first in range(0, chunk.elements, _SHORT_GROUP)
    ]
    low = np.concatenate(lows)
    rest = cursor.take(len(chunk.payload) - cursor.offset)
    exponents = read_split_elements(rest, chunk.elements, 1).reshape(-1).astype(np.int64)
    sign = (low & signs) << (8 * head.width - 1)
    return head.lengthen(exponents << head.mantissa | low >> signs | sign)


def _low_bits(cursor: Cursor, elements: int, bits: int) -> npt.NDArray[np.int64]:
    """The low bits of a group of elements, which are stored row by row in packed columns."""
    rows = -(-elements // _COLUMNS)
    words = -(-rows * bits // 32)
    columns = np.frombuffer(cursor.take(4 * words * _COLUMNS), np.uint8).reshape(words, _COLUMNS, 4)
    by_column = np.ascontiguousarray(columns.transpose(1, 0, 2)).reshape(_COLUMNS, -1)
    single = np.unpackbits(by_column, axis=1, bitorder="little")[:, : rows * bits].reshape(_COLUMNS, rows, bits)
    numbers: npt.NDArray[np.int64] = (single.astype(np.int64) << np.arange(bits)).sum(axis=2)
    return numbers.T.reshape(-1)[:elements]


def _bitmask(chunk: Chunk) -> bytes:
    mask_size = (chunk.elements + 7) // 8
    if len(chunk.payload) < mask_size:
        raise Truncated(f"bitmask payload of {len(chunk.payload)} bytes, the mask has {mask_size}")
    bits = np.unpackbits(np.frombuffer(chunk.payload[:mask_size], np.uint8), bitorder="little").astype(bool)
    require(not bits[chunk.elements :].any(), "bitmask: bits beyond the last element")
    mask = bits[: chunk.elements]
    chunk.take_exactly(mask_size + int(mask.sum()) * chunk.width)
    elements = np.frombuffer(chunk.inputs[0].data, np.uint8).reshape(-1, chunk.width).copy()
    elements[mask] = np.frombuffer(chunk.payload[mask_size:], np.uint8).reshape(-1, chunk.width)
    return elements.tobytes()


def _ordinal_delta(chunk: Chunk) -> bytes:
    return read_ordinal_delta(chunk.payload, chunk.inputs[0].data, chunk.dtype)


def _factored_split(chunk: Chunk) -> bytes:
    return read_factored_split(chunk.payload, chunk.elements, chunk.dtype)


def _rounded_from(chunk: Chunk) -> bytes:
    if not chunk.payload:
        raise Truncated("rounded_from: no form")
    form, offset, peer = chunk.payload[0], 1, chunk.inputs[0].data
    require(form <= (3 if chunk.dtype == "F32" else 1), f"rounded_from: form {form} for {chunk.dtype}")
    if form & 2:
        offset += 2 * chunk.elements
        if len(chunk.payload) < offset:
            raise Truncated("rounded_from: the lower halves end too early")
    if chunk.dtype == "F32":
        expected = widened_from_bf16(peer, chunk.payload[1:offset])
    else:
        expected = (rounded_to_bf16 if chunk.dtype == "BF16" else rounded_to_f16)(peer)
    if form & 1:
        return read_ordinal_delta(chunk.payload[offset:], expected, chunk.dtype)
    chunk.take_exactly(offset)
    return expected


def _optimizer_step(chunk: Chunk) -> bytes:
    inputs = [item.data for item in chunk.inputs]
    expected, header_bytes = expected_of_step(chunk.payload, chunk.dtype, _kinds(chunk), inputs)
    return read_ordinal_delta(chunk.payload[header_bytes:], expected, chunk.dtype)


def _scaled_by(chunk: Chunk) -> bytes:
    inputs = [item.data for item in chunk.inputs]
    header = read_lattice_header(chunk.payload, has_base=len(inputs) > 1)
    if header.has_planes:
        values = _plane_groups(chunk.payload[header.size :], chunk.elements, 2).reshape(-1).view("<u2").astype(np.int64)
    else:
        values = read_values(chunk.payload[header.size :], np.zeros(chunk.elements, np.uint8))
    return multiples_of_scale(header, values, inputs)


def _gradient_step(chunk: Chunk) -> bytes:
    if len(chunk.inputs) == 2:
        averages, others = averages_after_step(chunk.payload, [item.data for item in chunk.inputs])
        return averages if others is None else read_ordinal_delta(others, averages, chunk.dtype)
    if len(chunk.inputs) > 1:
        squares, others = squares_after_step(chunk.payload, [item.data for item in chunk.inputs])
        return squares if others is None else read_ordinal_delta(others, squares, chunk.dtype)
    header = read_gradient_header(chunk.payload)

    def read(payload: bytes, dtype: str) -> bytes:
        return decode(header.codec, Chunk(payload, dtype, chunk.elements))

    if header.has_sums:
        numbers = read_sums(header.numbers, chunk.elements, lambda payload: read(payload, "BF16"))
    else:
        numbers = read(header.numbers, header.dtype)
    expected = elements_after_step(header, numbers, chunk.inputs[0].data)
    return expected if header.others is None else read_ordinal_delta(header.others, expected, chunk.dtype)


def _clustered(chunk: Chunk) -> bytes:
    return read_clustered(chunk.payload, chunk.elements)


def _kinds(chunk: Chunk) -> str:
    return "".join("b" if item.from_base else "p" for item in chunk.inputs)


def _plane_groups(payload: bytes, elements: int, width: int, *, packed: bool = False) -> Bytes:
    """The elements, one row of `width` bytes for each."""
    rows = np.empty((elements, width), np.uint8)
    offset = 0
    for first in range(0, elements, _GROUP):
        length = min(_GROUP, elements - first)
        for plane in range(width):
            sevens = packed and plane == 0
            block, offset = read_byte_block(payload, offset, (7 * length + 7) // 8 if sevens else length)
            values = np.frombuffer(block, np.uint8)
            rows[first : first + length, plane] = _unpack_sevens(values, length) if sevens else values
    require(offset == len(payload), f"{len(payload) - offset} bytes behind the last byte block")
    return rows


def _unpack_sevens(packed: Bytes, elements: int) -> Bytes:
    bits = np.unpackbits(packed, bitorder="little")
    require(not bits[7 * elements :].any(), "packed plane: bits behind the last element")
    upper = np.zeros((elements, 8), np.uint8)
    upper[:, 1:] = bits[: 7 * elements].reshape(elements, 7)
    return np.packbits(upper, axis=1, bitorder="little")[:, 0]


_NO_INPUT: tuple[str, ...] = ("",)
# By codec id: name, decoder, the inputs it takes ("" none, "b" a base's, "p" a peer's, in order), dtypes (None: all).
_CODECS: dict[int, tuple[str, Callable[[Chunk], bytes], tuple[str, ...], Collection[str] | None]] = {
    0: ("raw", _raw, _NO_INPUT, None),
    1: ("constant", _constant, _NO_INPUT, None),
    2: ("same", _same, ("b", "p"), None),
    3: ("zstd", _zstd, _NO_INPUT, None),
    4: ("byte_group", _byte_group, ("", "b"), None),
    5: ("float_split", _float_split, _NO_INPUT, FLOATS),
    6: ("bitmask", _bitmask, ("b",), None),
    7: ("ordinal_delta", _ordinal_delta, ("b",), LAYOUTS),
    8: ("factored_split", _factored_split, _NO_INPUT, FACTORED_WIDTHS),
    9: ("rounded_from", _rounded_from, ("p",), {"BF16", "F16", "F32"}),
    10: ("optimizer_step", _optimizer_step, INPUTS, {"BF16", "F32"}),
    11: ("scaled_by", _scaled_by, LATTICE_INPUTS, {"F32"}),
    12: ("clustered", _clustered, _NO_INPUT, {"F32"}),
    13: ("gradient_step", _gradient_step, ("b", "bp", "bbp"), {"F32"}),
}
CODEC_IDS = {codec[0]: number for number, codec in _CODECS.items()}


def decode(codec: int, chunk: Chunk, parameters: bytes = b"") -> bytes:
    if codec not in _CODECS:
        raise Unsupported(f"codec {codec}")
    name, decoder, kinds, dtypes = _CODECS[codec]
    require(not parameters, f"{name} has no parameters")
    require(dtypes is None or chunk.dtype in dtypes, f"{name} does not take {chunk.dtype}")
    given = _kinds(chunk)
    require(given in kinds, f"{name} does not take the inputs {given!r}")
    wanted = chunk.dtype
    if name == "rounded_from":
        wanted = "BF16" if chunk.dtype == "F32" else "F32"
    for item in chunk.inputs:
        require(item.dtype == wanted, f"{name}: input of {item.dtype} for a chunk of {chunk.dtype}")
        if len(item.data) != chunk.elements * ELEMENT_SIZES.get(wanted, 1):
            raise Corrupt(f"{name}: input of {len(item.data)} bytes for a chunk of {chunk.size}")
    output = decoder(chunk)
    assert len(output) == chunk.size
    return output
