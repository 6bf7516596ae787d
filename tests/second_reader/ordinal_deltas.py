"""src/codec/ordinal_delta/spec.md: the ULP distance of each element from the base."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass

import numpy as np

from second_reader.rans_lanes import Bytes, Cursor, Numbers
from second_reader.reader_errors import Truncated, require
from second_reader.short_elements import is_of_short_elements, read_short_head
from second_reader.values_by_class import CONTEXTS, read_values

# By dtype: bits of an element, and of its mantissa; exponent and sign are above.
LAYOUTS = {"F8_E4M3": (8, 3), "F8_E5M2": (8, 2), "F16": (16, 10), "BF16": (16, 7), "F32": (32, 23)}
FAR_VALUE = 0xFFFF
_F32_FRACTION = (1 << 23) - 1
_DENSE, _SPARSE, _ABOVE_FLOOR = range(3)
_GAP_WIDTH = 18
_MAX_CLASSES = 8
_MAX_GAP_PARAMETER = 17


def read_ordinal_delta(payload: bytes, base: bytes, dtype: str) -> bytes:
    bits, mantissa = LAYOUTS[dtype]
    cursor = Cursor(payload, "ordinal_delta")
    words = np.frombuffer(base, f"<u{bits // 8}").astype(np.int64)
    if is_of_short_elements(payload):
        head = read_short_head(cursor, len(words), dtype)
        layout = Layout(8 * head.width, head.mantissa, has_floors=False)
        return head.lengthen(_read_deltas(cursor, head.shorten(words), layout))
    layout = Layout(bits, mantissa, has_floors=dtype == "F32")
    return _read_deltas(cursor, words, layout).astype(f"<u{bits // 8}").tobytes()


@dataclass(frozen=True)
class Layout:
    """The bits of an element, shortened or not, and how many of them are mantissa."""

    bits: int
    mantissa: int
    has_floors: bool

    @property
    def is_wide(self) -> bool:
        return self.bits > 16


def _read_deltas(cursor: Cursor, words: Numbers, layout: Layout) -> Numbers:
    [form] = cursor.take(1)
    require(form in (_DENSE, _SPARSE) or (form == _ABOVE_FLOOR and layout.has_floors), f"{layout} in form {form}")
    [top] = cursor.take(1)
    contexts = _contexts_of(words, layout.bits, layout.mantissa, top)
    if form == _DENSE:
        return _read_dense(cursor, words, contexts, layout, top)
    if form == _ABOVE_FLOOR:
        return _read_above_floor(cursor, words, contexts)
    return _moved(words, _read_sparse(cursor, contexts, layout.bits), layout.bits)


def contexts_of(words: Numbers, dtype: str, top: int) -> Bytes:
    return _contexts_of(words, *LAYOUTS[dtype], top)


def _contexts_of(words: Numbers, bits: int, mantissa: int, top: int) -> Bytes:
    exponents = words >> mantissa & ((1 << (bits - 1 - mantissa)) - 1)
    contexts: Bytes = np.clip(top - exponents, 0, CONTEXTS - 1).astype(np.uint8)
    return contexts


def reflect(words: Numbers, bits: int) -> Numbers:
    """Its own inverse. The result is what a number in two's complement is modulo 2^bits."""
    flipped: Numbers = words ^ np.where(words >> (bits - 1), (1 << (bits - 1)) - 1, 0)
    return flipped


def _moved(words: Numbers, deltas: Numbers, bits: int) -> Numbers:
    return reflect((reflect(words, bits) + deltas) % (1 << bits), bits)


def _of_direct_measures(measures: Numbers, layout: Layout, top: int) -> Numbers:
    """The elements whose distance from the largest of the top exponent is measured, with the sign as the lowest bit."""
    rotated = (((top + 1) << (layout.mantissa + 1)) - 1 - measures) % (1 << layout.bits)
    words: Numbers = rotated >> 1 | (rotated & 1) << (layout.bits - 1)
    return words


def floors_of(base: Numbers, factor: int) -> Numbers:
    """For positive normal numbers, given as bits: the product with the factor. For others: 0."""
    products = (base & _F32_FRACTION | 1 << 23) * (factor & _F32_FRACTION | 1 << 23)
    shifts = 23 + (products >> 47)  # to 24 bits
    mantissas = (products >> (shifts - 1)) + 1 >> 1
    carried = mantissas >> 24
    exponents = (base >> 23) + (factor >> 23) - 127 + (shifts - 23) + carried
    normal = (base >= 1 << 23) & (base < 255 << 23) & (exponents >= 1) & (exponents <= 254)
    floors: Numbers = np.where(normal, exponents << 23 | mantissas >> carried & _F32_FRACTION, 0)
    return floors


def _read_above_floor(cursor: Cursor, base: Numbers, contexts: Bytes) -> Numbers:
    [low_size] = cursor.take(1)
    require(low_size <= 2, f"{low_size} low bytes")
    [far_count] = cursor.numbers(1)
    [factor] = cursor.numbers(1)
    require(1 <= factor >> 23 <= 254, f"a factor of the bits {factor:08X}")
    values, measures, far_elements = _read_measures(cursor, contexts, low_size, far_count)
    words: Numbers = (floors_of(base, factor) + measures) % (1 << 32)
    _put_far(words, values, far_elements)
    return words


def _read_measures(cursor: Cursor, contexts: Bytes, low_size: int, far_count: int) -> tuple[Numbers, Numbers, Numbers]:
    """The values, the values with their low bytes, and the far elements."""
    low = np.zeros((len(contexts), 4), np.uint8)
    low[:, :low_size] = np.frombuffer(cursor.take(low_size * len(contexts)), np.uint8).reshape(len(contexts), low_size)
    far_elements = np.frombuffer(cursor.take(4 * far_count), "<u4").astype(np.int64)
    values = read_values(cursor.take(len(cursor.data) - cursor.offset), contexts)
    return values, values << 8 * low_size | low.view("<u4")[:, 0], far_elements


def _put_far(words: Numbers, values: Numbers, far_elements: Numbers) -> None:
    far = values == FAR_VALUE
    require(int(far.sum()) == len(far_elements), f"{len(far_elements)} far elements, {int(far.sum())} are far")
    words[far] = far_elements


def _read_dense(cursor: Cursor, base: Numbers, contexts: Bytes, layout: Layout, top: int) -> Numbers:
    [first_direct] = cursor.take(1)
    require(first_direct <= CONTEXTS, f"direct measures from context {first_direct} on")
    [low_size] = cursor.take(1)
    require(low_size <= (2 if layout.is_wide else 0), f"{low_size} low bytes of {layout}")
    [far_count] = cursor.numbers(1)
    require(far_count == 0 or layout.is_wide, f"{far_count} far elements of {layout}")
    values, measures, far_elements = _read_measures(cursor, contexts, low_size, far_count)
    measures %= 1 << layout.bits
    words = _moved(base, measures >> 1 ^ -(measures & 1), layout.bits)
    direct = contexts >= first_direct
    words[direct] = _of_direct_measures(measures[direct], layout, top)
    if layout.is_wide:
        _put_far(words, values, far_elements)
    return words


@dataclass(frozen=True)
class _Lists:
    """The fields of one class in the header of the sparse form."""

    changed: int
    farther: int
    g: int
    h: int
    k: int


class RiceBits:
    """The rest of a payload as bits, the least significant of each byte first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def take(self, count: int) -> int:
        first = self._place // 8
        self._place += count
        if self._place > 8 * len(self._data):
            raise Truncated("ordinal_delta: the lists end too early")
        window = int.from_bytes(self._data[first : first + 6], "little")  # 7 bits before and up to 32 taken
        return window >> (self._place - count) % 8 & ((1 << count) - 1)

    def number(self, parameter: int, width: int) -> int:
        ahead = int.from_bytes(self._data[self._place // 8 : self._place // 8 + 3], "little") >> self._place % 8
        zeros = (ahead & -ahead).bit_length() - 1 if ahead else 16
        if zeros >= 16:
            self.take(16)
            return self.take(width)
        self.take(zeros + 1)
        return (zeros << parameter) + self.take(parameter)

    def require_end(self) -> None:
        spare = 8 * len(self._data) - self._place
        require(spare < 8, f"ordinal_delta: {spare // 8} bytes behind the lists")
        require(self.take(spare) == 0, "ordinal_delta: a bit set behind the lists")


def _read_sparse(cursor: Cursor, contexts: Bytes, bits: int) -> Numbers:
    """The deltas of each element, modulo 2^bits."""
    [class_count] = cursor.take(1)
    require(1 <= class_count <= _MAX_CLASSES, f"ordinal_delta: {class_count} classes of lists")
    firsts = [0, *cursor.take(class_count - 1), CONTEXTS]
    ascending = all(first < after for first, after in itertools.pairwise(firsts))
    require(ascending, "ordinal_delta: classes out of order")
    headers = [_parse_lists(cursor.take(8), bits) for _ in range(class_count)]
    classes = np.searchsorted(firsts[1:-1], contexts, side="right")
    members = [np.flatnonzero(classes == number) for number in range(class_count)]
    changed_count = sum(lists.changed for lists in headers)
    require(changed_count <= len(contexts), f"ordinal_delta: {changed_count} of {len(contexts)} elements changed")
    for lists in headers:
        require(lists.farther <= lists.changed, "ordinal_delta: more farther elements than changed ones")
    stream = RiceBits(cursor.take(len(cursor.data) - cursor.offset))
    deltas = np.zeros(contexts.shape, np.int64)
    for lists, places in zip(headers, members, strict=True):
        changed = _places(stream, lists.changed, lists.g, len(places))
        negative = np.array([stream.take(1) for _ in range(lists.changed)], np.bool_)
        farther = _places(stream, lists.farther, lists.h, lists.changed)
        distances = np.ones(lists.changed, np.int64)
        distances[farther] = [stream.number(lists.k, bits) + 2 for _ in range(lists.farther)]
        deltas[places[changed]] = np.where(negative, -distances, distances)
    stream.require_end()
    return deltas


def _parse_lists(header: bytes, bits: int) -> _Lists:
    first, second = struct.unpack("<II", header)
    require(first >> 29 == 0 and second >> 24 == 0, "ordinal_delta: header bits that are not zero")
    lists = _Lists(first & 0x7FFFF, second & 0x7FFFF, first >> 19 & 31, first >> 24 & 31, second >> 19 & 31)
    parameters = f"ordinal_delta: parameters {lists.g}, {lists.h} and {lists.k}"
    require(max(lists.g, lists.h) <= _MAX_GAP_PARAMETER and lists.k < bits, parameters)
    return lists


def _places(stream: RiceBits, count: int, parameter: int, end: int) -> Numbers:
    """`count` positions below `end`, from the gap before each."""
    gaps = np.array([stream.number(parameter, _GAP_WIDTH) for _ in range(count)], np.int64)
    places: Numbers = np.cumsum(gaps + 1) - 1
    require(count == 0 or int(places[-1]) < end, "ordinal_delta: a gap that leads behind the last element")
    return places
