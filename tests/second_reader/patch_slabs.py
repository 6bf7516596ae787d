"""docs/spec/patch.md, "Payload of a slab": decodes one payload to the elements of a slab."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from second_reader.chunk_codecs import ELEMENT_SIZES, MAX_ELEMENTS, Chunk, Input, decode
from second_reader.ordinal_deltas import LAYOUTS, RiceBits, reflect
from second_reader.rans_lanes import Cursor, Numbers
from second_reader.reader_errors import Corrupt, require

_WHOLE, _CHANGES = range(2)
_MAX_CLASSES = 8
_GAP_WIDTH = 24
_NUMBER_BYTES = 4


def read_number(cursor: Cursor, most_bytes: int) -> int:
    number = 0
    for position in range(most_bytes):
        [byte] = cursor.take(1)
        number |= (byte & 127) << 7 * position
        if byte < 128:
            require(byte > 0 or position == 0, "a number with a superfluous byte")
            return number
    raise Corrupt(f"a number of more than {most_bytes} bytes")


def read_slab(payload: bytes, dtype: str, base: bytes) -> bytes:
    cursor = Cursor(payload, "slab")
    [method] = cursor.take(1)
    require(method in (_WHOLE, _CHANGES), f"slab: method {method}")
    if method == _WHOLE:
        elements = len(base) // ELEMENT_SIZES.get(dtype, 1)
        require(elements <= MAX_ELEMENTS, f"slab: {elements} elements as a whole")
        codec, inputs = cursor.take(2)
        return _decode(codec, inputs, cursor.take(len(payload) - cursor.offset), dtype, base)
    require(dtype in LAYOUTS, f"slab: changes of {dtype}")
    return _read_changes(cursor, dtype, base)


def _decode(codec: int, inputs: int, payload: bytes, dtype: str, base: bytes) -> bytes:
    elements = len(base) // ELEMENT_SIZES.get(dtype, 1)
    return decode(codec, Chunk(payload, dtype, elements, (Input(True, dtype, base),) * inputs))


@dataclass(frozen=True)
class _Header:
    exponents: list[int]  # classes are from each one to below the next one
    lists: list[tuple[int, int]]  # of each class: changed elements, and the parameter of their gaps
    farther: int
    gap_parameter: int
    distance_parameter: int


def _parameter(cursor: Cursor, width: int) -> int:
    [parameter] = cursor.take(1)
    require(parameter < width, f"slab: parameter {parameter}")
    return parameter


def _read_header(cursor: Cursor, dtype: str, elements: int) -> _Header:
    bits, mantissa = LAYOUTS[dtype]
    [classes] = cursor.take(1)
    require(classes <= _MAX_CLASSES, f"slab: {classes} classes")
    exponents = list(cursor.take(classes + 1))
    if classes:
        exponents[-1] += 1
    ascending = exponents == sorted(set(exponents))
    require(ascending and exponents[-1] <= 1 << (bits - 1 - mantissa), f"slab: classes from exponents {exponents}")
    lists = [(read_number(cursor, _NUMBER_BYTES), _parameter(cursor, _GAP_WIDTH)) for _ in range(classes)]
    listed = sum(changed for changed, _ in lists)
    require(listed <= elements, f"slab: {listed} of {elements} elements are listed")
    farther = read_number(cursor, _NUMBER_BYTES)
    require(farther <= listed, f"slab: {farther} of {listed} listed elements moved farther")
    gap = _parameter(cursor, _GAP_WIDTH) if farther else 0
    distance = _parameter(cursor, bits) if farther else 0
    return _Header(exponents, lists, farther, gap, distance)


def _read_changes(cursor: Cursor, dtype: str, base: bytes) -> bytes:
    bits, mantissa = LAYOUTS[dtype]
    number_type = f"<u{bits // 8}"
    words = np.frombuffer(base, number_type).astype(np.int64)
    header = _read_header(cursor, dtype, len(words))
    exponents = words >> mantissa & ((1 << (bits - 1 - mantissa)) - 1)
    result = words.copy()
    size = read_number(cursor, _NUMBER_BYTES)
    if size:
        dense = np.flatnonzero(exponents < header.exponents[0])
        codec, inputs = cursor.take(2)
        payload = cursor.take(size)
        require(1 <= len(dense) <= MAX_ELEMENTS, f"slab: {len(dense)} dense elements")
        coded = _decode(codec, inputs, payload, dtype, words[dense].astype(number_type).tobytes())
        result[dense] = np.frombuffer(coded, number_type)
    stream = RiceBits(cursor.take(len(cursor.data) - cursor.offset))
    listed, deltas = _read_lists(stream, header, exponents, bits)
    result[listed] = reflect((reflect(words[listed], bits) + deltas) % (1 << bits), bits)
    return result.astype(number_type).tobytes()


def _read_lists(stream: RiceBits, header: _Header, exponents: Numbers, bits: int) -> tuple[Numbers, Numbers]:
    """The listed elements in the order of the slab, and their deltas."""
    found = [np.zeros(0, np.int64)]
    for number, (changed, parameter) in enumerate(header.lists):
        first, end = header.exponents[number : number + 2]
        class_elements = np.flatnonzero((exponents >= first) & (exponents < end))
        found.append(class_elements[_ranks(stream, changed, parameter, len(class_elements))])
    listed = np.sort(np.concatenate(found))
    negative = np.array([stream.take(1) for _ in listed], np.bool_)
    farther = _ranks(stream, header.farther, header.gap_parameter, len(listed))
    distances = np.ones(len(listed), np.int64)
    distances[farther] = [stream.number(header.distance_parameter, bits) + 2 for _ in farther]
    stream.require_end()
    return listed, np.where(negative, -distances, distances)


def _ranks(stream: RiceBits, count: int, parameter: int, end: int) -> Numbers:
    """`count` ascending ranks below `end`, from the gap before each."""
    ranks = np.zeros(count, np.int64)
    rank = 0
    for index in range(count):
        rank += stream.number(parameter, _GAP_WIDTH)
        require(rank < end, f"slab: a gap leads to element {rank} of {end}")
        ranks[index] = rank
        rank += 1
    return ranks
