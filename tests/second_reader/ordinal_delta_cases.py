"""Payloads of ordinal_delta: each breaks one rule of its specification, or only seems to.

No payload is longer than its chunk, so that a snapshot can hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from second_reader.bsnap_builder import ChunkPart, Parts, build
from second_reader.container_format import read_footer
from second_reader.ordinal_delta_encoder import (
    Dense,
    Lists,
    Sparse,
    encode_dense,
    encode_sparse,
    encode_values,
    floor,
    low_first,
    number,
    reflected,
)
from second_reader.ordinal_deltas import LAYOUTS


@dataclass(frozen=True)
class Case:
    dtype: str
    base: Sequence[int]
    payload: bytes
    elements: Sequence[int] = ()  # of one that is allowed

    def files(self, base_name: str) -> tuple[bytes, bytes]:
        """A snapshot of the base, and one of a chunk that is coded against it."""
        content = {"tensors": [{"name": "a", "dtype": self.dtype, "shape": [len(self.base)], "role": "weight"}]}
        base_data = to_bytes(self.base, self.dtype)
        base = build(Parts(content, chunks=[ChunkPart(0, base_data, base_data)]))
        encoding = {
            "streams": [{"inputs": [{"base": 0, "stream": 0, "element": 0}]}],
            "bases": [{"id": read_footer(base).snapshot_id, "name": base_name}],
        }
        decoded = to_bytes(self.elements or self.base, self.dtype)
        return base, build(Parts(content, encoding, [ChunkPart(7, self.payload, decoded, (0,), depth=1)]))


def coarsenesses(payload: bytes, elements: int) -> set[int]:
    """The coarsenesses of the contexts of a payload above a floor."""
    plans = 11 + payload[2] * elements + 4 * int.from_bytes(payload[3:7], "little") + 1
    return {plan >> 6 for plan in payload[plans : plans + 32]}


def to_bytes(words: Sequence[int], dtype: str) -> bytes:
    return np.array(words, f"<u{LAYOUTS[dtype][0] // 8}").tobytes()


# Dense: bf16 elements of two exponents. The classes have low bits alone, and low bits and bytes; both have escapes. One
# element of another exponent makes the low bits end within a byte.
_BASE = [0x3F80, 0x3F00] * 511 + [0x3F80, 0x3E80]
_DELTAS = [index * 37 % 28 if index % 2 == 0 else index * 37 % 14 * 256 + index % 256 for index in range(1024)]
_ELEMENTS = [
    old + delta + (9000 if index % 97 == 0 else 0)
    for index, (old, delta) in enumerate(zip(_BASE, _DELTAS, strict=True))
]
_PLANS = [(2, 0), (9, 1), (12, 1)] + [(0, 0)] * 29
_OCTAVES = encode_dense(_BASE, _ELEMENTS, "BF16", 0x7F, [(2, 0, 2), (5, 1, 3), (12, 1, 1)] + [(0, 0)] * 29)
_DENSE = encode_dense(_BASE, _ELEMENTS, "BF16", 0x7F, _PLANS)
_VALUES = _DENSE.values

# Dense: f32 elements with a low byte, of which two have moved too far.
_F32_BASE = [0x3F800000] * 512
_F32_ELEMENTS = [0x3F800000 + 1000 * index for index in range(510)] + [0x00000001, 0xFF812345]
_FAR = encode_dense(_F32_BASE, _F32_ELEMENTS, "F32", 0x7F, [(8, 0)] * 32, low_size=1)

# Dense: elements of every context that the dtype has. Zigzags are below 8, direct measures below 32, but for a few.
_TOPS = {"F8_E4M3": 15, "F8_E5M2": 31, "F16": 31, "BF16": 130, "F32": 130}


def _direct(dtype: str, first_direct: int) -> Case:
    bits, mantissa = LAYOUTS[dtype]
    top, sign = _TOPS[dtype], 1 << (bits - 1)
    base, elements = [], []
    for index in range(4096):
        exponent = max(top - index % 32, 0)
        old = exponent << mantissa | index * 5 % (1 << mantissa) | (sign if index % 3 == 0 else 0)
        if index % 251 == 0:  # any bits, some above the top exponent, infinite or NaN
            new = index * 0x9E3779B1 >> (32 - bits) & (2 * sign - 1)
        elif top - exponent >= first_direct:
            new = ((top + 1) << mantissa) - 1 - index // 7 % 16 + (sign if index % 5 == 0 else 0)
        else:
            new = reflected((reflected(old, bits) + index // 11 % 8 - 4) % (1 << bits), bits)
        base.append(old)
        elements.append(new)
    plans = [(2 if context >= first_direct else 0, context % 2) for context in range(32)]
    low_size = 1 if dtype == "F32" and first_direct == 5 else 0
    payload = encode_dense(base, elements, dtype, top, plans, low_size, first_direct=first_direct).build()
    return Case(dtype, base, payload, elements)


# Above a floor: most elements are a little above 0.95 times their base, some are below. The bases are all kinds of
# numbers, with a few that have no floor.
_FACTOR = 0x3F733333
_FLOOR_BASE = [(index * 0x9E3779B1 >> 9) % 0x7F000000 + 0x00800000 for index in range(512)]
_FLOOR_BASE[100:108] = [0, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00001, 0xBF800000]
_FLOOR_ELEMENTS = [
    (floor(old, _FACTOR) + (index * index * 37 % 4000 if index % 61 else -index)) % (1 << 32)
    for index, old in enumerate(_FLOOR_BASE)
]
_ABOVE = encode_dense(_FLOOR_BASE, _FLOOR_ELEMENTS, "F32", 0x7F, [(6, 0)] * 32, low_size=1, factor=_FACTOR)


def _above(**wrong: object) -> Case:
    return Case("F32", _FLOOR_BASE, replace(_ABOVE, **wrong).build())  # type: ignore[arg-type]


# Sparse: eight f32 elements of two exponents in two classes; the last one of the first has moved by 3 ULPs.
_SPARSE_BASE = [0x3F800000] * 4 + [0x3F000000] * 4
_SPARSE_ELEMENTS = [0x3F800000, 0x3F800001, 0x3F800000, 0x3F7FFFFD, *[0x3F000000] * 3, 0x3F000001]
_SPARSE = encode_sparse(_SPARSE_BASE, _SPARSE_ELEMENTS, "F32", 0x7F, [1], (1, 0, 2))


def _dense(**wrong: object) -> Case:
    """The dense case with other fields of the values by class, or of the header before them."""
    own = {name: wrong.pop(name) for name in list(wrong) if name in Dense.__dataclass_fields__}
    fields = {"values": replace(_VALUES, **wrong)} | own  # type: ignore[arg-type]
    return Case("BF16", _BASE, replace(_DENSE, **fields).build())  # type: ignore[arg-type]


def _far(**wrong: object) -> Case:
    return Case("F32", _F32_BASE, replace(_FAR, **wrong).build())  # type: ignore[arg-type]


def _sparse(**wrong: object) -> Case:
    return Case("F32", _SPARSE_BASE, replace(_SPARSE, **wrong).build())  # type: ignore[arg-type]


def _lists(**wrong: object) -> Case:
    """The header of the first class of lists with other fields."""
    first, second = _SPARSE.lists
    return _sparse(lists=[replace(first, **wrong), second])  # type: ignore[arg-type]


def _one_class(dtype: str, lists: Lists, bits: str, base: Sequence[int], elements: Sequence[int] = ()) -> Case:
    return Case(dtype, base, Sparse(0, [lists], bits).build(), elements)


def _counts(*places: int) -> list[int]:
    """Payloads with one count or size increased by one: four streams, low bits, low bytes, escapes."""
    return [int(place in places) for place in range(7)]


def _beyond(place: int) -> Case:
    return _dense(wrong=[1 << 20 if at == place else 0 for at in range(7)])


def _moved_byte(source: int, target: int) -> list[bytes]:
    """A payload whose last byte of one stream moved to the front of another."""
    streams = list(_VALUES.streams)
    streams[target] = streams[source][-1:] + streams[target]
    streams[source] = streams[source][:-1]
    return streams


def _cut(case: Case, size: int) -> Case:
    return replace(case, payload=case.payload[:size])


def _replaced(numbers: Sequence[int], place: int, value: int) -> list[int]:
    return [value if index == place else old for index, old in enumerate(numbers)]


_ONES = [0x3F80] * 16
_ONES_F32 = [0x3F800000] * 8
_ONES_1024 = [0x3F800000] * 1024
_SPARE = -len(_VALUES.low_bits) % 8
_FULL = encode_values([0] * 1024, [0] * 1024, [(0, 0)] * 32, [[255, 1, *[0] * 14]])

REJECTED: dict[str, dict[str, Case]] = {
    "truncated": {
        "an empty payload": _cut(_dense(), 0),
        "a form alone": _cut(_dense(), 1),
        "dense without the first direct context": _cut(_dense(), 2),
        "dense without low bytes": _cut(_dense(), 3),
        "dense without all of the far elements' number": _cut(_dense(), 7),
        "dense without values": _cut(_dense(), 8),
        "dense without its last byte": _cut(_dense(), -1),
        "far elements that are not there": _cut(_far(), 8 + 512 + 4),
        "low bytes that are not there": _cut(_far(), 8 + 511),
        "above a floor without low bytes": _cut(_above(), 2),
        "above a floor without all of the far elements' number": _cut(_above(), 6),
        "above a floor without all of the factor": _cut(_above(), 10),
        "above a floor without values": _cut(_above(), 11 + 512 + len(_ABOVE.far)),
        "above a floor without its last byte": _cut(_above(), -1),
        "plans that are not there": _cut(_dense(), 8 + 32),
        "frequencies that are not there": _cut(_dense(), 8 + 33 + 31),
        "sizes that are not there": _cut(_dense(), 8 + 33 + 32 + 27),
        "a stream that is too long": _beyond(0),
        "low bits that are not there": _beyond(4),
        "low bytes of values that are not there": _beyond(5),
        "escapes that are not there": _beyond(6),
        "sparse without classes": _cut(_sparse(), 2),
        "sparse without the first context": _cut(_sparse(), 3),
        "sparse without all headers": _cut(_sparse(), 3 + 1 + 15),
        "sparse without its last byte": _cut(_sparse(), -1),
        "sparse that ends within a number": _one_class("BF16", Lists(2, 0, g=3), number(0, 3, 18) + "0100", _ONES),
        "sparse that ends within zeros": _one_class("BF16", Lists(1, 0), "0" * 8, _ONES),
        "sparse that ends behind sixteen zeros": _one_class("BF16", Lists(1, 0), "0" * 16, _ONES),
        "sparse that ends within a long number": _one_class("BF16", Lists(1, 0), "0" * 32, _ONES),
        "sparse that ends before the signs": _one_class("BF16", Lists(8, 0), "1" * 8, _ONES),
        "sparse that ends before the farther ones": _one_class("BF16", Lists(4, 1), "1" * 8, _ONES),
        "sparse that ends before the distances": _one_class("BF16", Lists(3, 1), "1" * 7 + "0", _ONES),
    },
    "corrupt": {
        "a fourth form": _dense(form=3),
        "a fourth form of f32": _above(form=3),
        "a fourth form of lists": _sparse(form=4),
        "bf16 above a floor": Case("BF16", _BASE, Dense(0x7F, _FULL, form=2, factor=_FACTOR).build()),
        "three low bytes above a floor": Case(
            "F32", _ONES_1024, Dense(0x7F, _FULL, low_size=3, low=bytes(3 * 1024), form=2, factor=_FACTOR).build()
        ),
        "a factor that is 0": _above(factor=0),
        "a factor that is subnormal": _above(factor=0x007FFFFF),
        "a factor that is infinite": _above(factor=0x7F800000),
        "a factor that is not a number": _above(factor=0x7FC00000),
        "a factor that is negative": _above(factor=_FACTOR | 0x80000000),
        "more far elements above a floor than are far": _above(
            far_count=_ABOVE.far_count + 1, far=_ABOVE.far + bytes(4)
        ),
        "fewer far elements above a floor than are far": _above(far_count=_ABOVE.far_count - 1, far=_ABOVE.far[:-4]),
        "direct measures from context 33 on": _dense(first_direct=33),
        "direct measures from context 255 on": _dense(first_direct=255),
        "low bytes of bf16": Case("BF16", _BASE, Dense(0x7F, _FULL, low_size=1, low=bytes(1024)).build()),
        "three low bytes of f32": Case(
            "F32", [0x3F800000] * 1024, Dense(0x7F, _FULL, low_size=3, low=bytes(3 * 1024)).build()
        ),
        "far elements of bf16": _dense(far_count=1, far=bytes(4)),
        "more far elements than are far": _far(far_count=3, far=_FAR.far + bytes(4)),
        "fewer far elements than are far": _far(far_count=1, far=_FAR.far[:4]),
        "values without classes": _dense(class_count=0, frequencies=[]),
        "values of five classes": _dense(frequencies=[*_VALUES.frequencies, *[[128, 128, *[0] * 14]] * 3]),
        "a context of a class that is not there": _dense(plans=[*_PLANS[:-1], (0, 2)]),
        "a context of octaves of a class that is not there": _dense(plans=[*_PLANS[:-1], (0, 3, 3)]),
        "a class with 255 slots": _dense(frequencies=[[255, *[0] * 15], _VALUES.frequencies[1]]),
        "a class with 257 slots": _dense(frequencies=[[255, 2, *[0] * 14], _VALUES.frequencies[1]]),
        "a class without slots that nothing has": _dense(frequencies=[*_VALUES.frequencies, [0] * 16]),
        "a bit set before the low bits": _dense(spare_bits=_replaced([0] * _SPARE, _SPARE - 1, 1)),
        "the first bit set before the low bits": _dense(spare_bits=_replaced([0] * _SPARE, 0, 1)),
        "a low bit too few": _dense(low_bits=_VALUES.low_bits[:-1]),
        "a low bit to spare": _dense(low_bits=[*_VALUES.low_bits, 0]),
        "a low byte too few": _dense(low_bytes=_VALUES.low_bytes[:-1]),
        "a low byte to spare": _dense(low_bytes=_VALUES.low_bytes + b"\0"),
        "an escape too few": _dense(escapes=_VALUES.escapes[:-1]),
        "an escape to spare": _dense(escapes=[*_VALUES.escapes, 0]),
        "a stream with a byte to spare": _dense(streams=[_VALUES.streams[0] + b"\0", *_VALUES.streams[1:]]),
        "a stream that ends too early": _dense(streams=_moved_byte(3, 2)),
        # The lane takes a byte in the first round that its encoder never gave, and continues.
        "a state below 256": Case(
            "BF16",
            _BASE,
            Dense(0x7F, replace(_FULL, states=_replaced(_FULL.states, 0, 1), streams=[b"\3", b"", b"", b""])).build(),
        ),
        "a state that does not end as 256": _dense(states=_replaced(_VALUES.states, 0, _VALUES.states[0] ^ 1)),
        "a state that does not end as 256 where no value is": Case(
            "BF16",
            _BASE[:1000],
            Dense(0x7F, replace(_FULL, states=_replaced(_FULL.states, 255, _FULL.states[255] + 1))).build(),
        ),
        "bytes after the states": _dense(behind=b"\0"),
        "no classes of lists": _sparse(class_count=0, firsts=[], lists=[]),
        "nine classes of lists": Case("BF16", _BASE, Sparse(0x7F, [Lists(0, 0)] * 9, "", range(1, 9)).build()),
        "a second class from context 0": _sparse(firsts=[0]),
        "a second class from context 32": _sparse(firsts=[32]),
        "classes in descending order": Case("BF16", _BASE, Sparse(0x7F, [Lists(0, 0)] * 3, "", [5, 4]).build()),
        "two classes from one context": Case("BF16", _BASE, Sparse(0x7F, [Lists(0, 0)] * 3, "", [5, 5]).build()),
        "a set bit in the first number of a class": _lists(zeros=(1, 0)),
        "the topmost bit of the first number of a class": _lists(zeros=(4, 0)),
        "a set bit in the second number of a class": _lists(zeros=(0, 1)),
        "the topmost bit of the second number of a class": _lists(zeros=(0, 128)),
        "a gap's parameter above 17": _lists(g=18),
        "a farther gap's parameter above 17": _lists(h=18),
        "a gap's parameter above 17 that nothing uses": _one_class("BF16", Lists(0, 0, g=18), "", _ONES),
        "a distance's parameter that f8 does not have": _one_class("F8_E5M2", Lists(0, 0, k=8), "", [0] * 16),
        "a distance's parameter that bf16 does not have": _one_class("BF16", Lists(0, 0, k=16), "", _ONES),
        "more changed elements than in the class": _sparse(lists=[Lists(5, 0), Lists(0, 0)], bits="1" * 5 + "0" * 5),
        "more changed elements than in the chunk": _one_class("BF16", Lists(17, 0), "1" * 34, _ONES),
        # The lists are not there, but the numbers of all classes are looked at first.
        "more changed elements than in the chunk and no lists": _one_class("BF16", Lists(17, 0), "", _ONES),
        "more changed elements in two classes than in the chunk": _sparse(lists=[Lists(4, 0), Lists(5, 0)], bits=""),
        "more farther elements than changed ones and no lists": _sparse(lists=[Lists(4, 0), Lists(3, 4)], bits=""),
        "a parameter of the last class and no lists": _sparse(lists=[Lists(4, 0), Lists(4, 0, g=18)], bits=""),
        "more farther elements than changed ones": _lists(farther=3),
        "a gap behind the last element of the class": _one_class("BF16", Lists(1, 0), "0" * 15 + "1" + "0", _ONES[:15]),
        "a long gap behind the last element": _one_class(
            "BF16", Lists(1, 0), number(16, 0, 18, long=True) + "0", _ONES
        ),
        "a gap of more bits than any element's": _one_class("BF16", Lists(1, 0, g=17), "0" * 15 + "1" * 19, _ONES),
        "gaps that together lead behind the last element": _one_class(
            "BF16", Lists(2, 0, g=3), number(8, 3, 18) + number(7, 3, 18) + "00", _ONES
        ),
        "a gap behind the last changed element": _one_class("BF16", Lists(2, 1), "11" + "00" + "001" + "1", _ONES),
        "a gap that leads out of its class": _sparse(
            lists=[Lists(1, 0, g=2), Lists(0, 0)], bits=number(4, 2, 18) + "0"
        ),
        "a bit set behind the last number": _one_class("BF16", Lists(1, 0), "1" + "0" + "1", _ONES),
        "the last bit set behind the last number": _one_class("BF16", Lists(1, 0), "1" + "0" + "000001", _ONES),
        "a byte behind the last bit": _one_class("BF16", Lists(4, 0), "1111" + "0000" + "0" * 8, _ONES),
        "a byte behind no bits": _one_class("BF16", Lists(0, 0), "0" * 8, _ONES),
    },
}

_MOVED = [0x3F81, *_ONES[1:]]

ALLOWED: dict[str, Case] = {
    "dense": replace(_dense(), elements=_ELEMENTS),
    "octaves": Case("BF16", _BASE, _OCTAVES.build(), _ELEMENTS),
    # The first element's: its symbol is 14, whose head is 1.
    "a symbol of more than fifteen low bits": Case(
        "BF16",
        [0x3F00, *[0x3F80] * 1023],
        Dense(
            0x7F,
            replace(
                encode_values([14] + [0] * 1023, [0] * 1024, [(0, 0)] * 32),
                plans=[(0, 0), *[(15, 0, 3)] * 31],
                low_bits=[0] * 7,
                low_bytes=b"\2",
            ),
        ).build(),
        [0x7F01, *[0x3F80] * 1023],
    ),
    "dense with far elements": replace(_far(), elements=_F32_ELEMENTS),
    "above a floor": replace(_above(), elements=_FLOOR_ELEMENTS),
    "above a floor that is twice the base": Case(
        "F32", _ONES_1024, Dense(0x7F, _FULL, form=2, factor=0x40000000).build(), [0x40000000] * 1024
    ),
    "other low bytes of a far element": replace(_far(low=_FAR.low[:-2] + b"\1\2"), elements=_F32_ELEMENTS),
    "a far element that has not moved": replace(
        _far(far=bytes.fromhex("0000803f") * 2), elements=[*_F32_ELEMENTS[:510], 0x3F800000, 0x3F800000]
    ),
    "a top exponent that f16 does not have": Case(
        "F16", [0] * 1024, Dense(255, replace(_FULL, plans=[(15, 0)] * 31 + [(0, 0)])).build(), [0] * 1024
    ),
    "a value of more bits than the element": Case(
        "F8_E5M2",
        [0x3C] * 1024,
        Dense(0, encode_values([0x0102] + [0] * 1023, [0] * 1024, [(0, 0)] * 32)).build(),
        [0x3D] + [0x3C] * 1023,
    ),
    "a value of bf16 that of f32 would be far": Case(
        "BF16",
        [0] * 1024,
        Dense(0, encode_values([0xFFFF] + [0] * 1023, [0] * 1024, [(0, 0)] * 32)).build(),
        [0xFFFF] + [0] * 1023,
    ),
    "a symbol that is shifted out": Case(
        "BF16",
        [0x3F00] + [0x3F80] * 1023,
        Dense(0x7F, encode_values([0x18002, *[0] * 1023], [1, *[0] * 1023], [(0, 0), *[(15, 0)] * 31])).build(),
        [0x3F00 + 0x4001] + [0x3F80] * 1023,
    ),
    **{
        f"direct measures of {dtype} from context {first_direct} on": _direct(dtype, first_direct)
        for dtype in LAYOUTS
        for first_direct in (0, 5, 31, 32)
    },
    "a direct measure of more bits than the element": Case(
        "F8_E5M2",
        [0x3C] * 1024,
        Dense(15, encode_values([0x0103] + [1] * 1023, [0] * 1024, [(0, 0)] * 32), first_direct=0).build(),
        [0x3E] + [0x3F] * 1023,
    ),
    "a direct measure of bf16 that of f32 would be far": Case(
        "BF16",
        [0] * 1024,
        Dense(127, encode_values([0xFFFF] + [0] * 1023, [31] * 1024, [(0, 0)] * 32), first_direct=31).build(),
        [0x4000] + [0xBFFF] * 1023,
    ),
    "a direct measure of f32 that is far": Case(
        "F32",
        [0] * 1024,
        Dense(
            127,
            encode_values([0xFFFF] + [0] * 1023, [31] * 1024, [(0, 0)] * 32),
            first_direct=31,
            far_count=1,
            far=b"\1\2\3\4",
        ).build(),
        [0x04030201] + [0xBFFFFFFF] * 1023,
    ),
    # Their context is 0.
    "elements above the top exponent": Case(
        "BF16",
        [0x4000, 0x3F80] * 512,
        Dense(127, encode_values([2] * 1024, [0] * 1024, [(0, 0)] * 32), first_direct=1).build(),
        [0x4001, 0x3F81] * 512,
    ),
    "direct measures of elements above the top exponent": Case(
        "BF16",
        [0x4000, 0x3F80] * 512,
        Dense(127, encode_values([4] * 1024, [0] * 1024, [(0, 0)] * 32), first_direct=0).build(),
        [0xBFFD] * 1024,
    ),
    "direct measures below a top exponent that f16 does not have": Case(
        "F16",
        [0] * 1024,
        Dense(255, encode_values([0, 1, 2] + [1] * 1021, [31] * 1024, [(0, 0)] * 32), first_direct=31).build(),
        [0xFFFF, 0x7FFF, 0xFFFE] + [0x7FFF] * 1021,
    ),
    "no element that has changed": _one_class("BF16", Lists(0, 0), "", _ONES, _ONES),
    "all elements changed": _one_class("BF16", Lists(16, 0), "1" * 16 + "0" * 16, _ONES, [0x3F81] * 16),
    "sparse": replace(_sparse(), elements=_SPARSE_ELEMENTS),
    "parameters that nothing uses": _one_class("BF16", Lists(0, 0, 17, 17, 15), "", _ONES, _ONES),
    "a class that no element has": Case(
        "BF16", _ONES, Sparse(0x7F, [Lists(1, 0), Lists(0, 0)], "10", [31]).build(), _MOVED
    ),
    "a short number behind sixteen zeros": _one_class(
        "BF16", Lists(1, 0), number(0, 0, 18, long=True) + "0", _ONES, _MOVED
    ),
    "fifteen zeros": _one_class("BF16", Lists(1, 0), "0" * 15 + "1" + "0", _ONES, [*_ONES[:15], 0x3F81]),
    "a farther element that has gone all around": _one_class(
        "BF16", Lists(1, 1), "1" + "0" + "1" + number(0xFFFE, 0, 16), _ONES, _ONES
    ),
    "a farther element that has gone around and on": _one_class(
        "BF16", Lists(1, 1), "1" + "0" + "1" + number(0xFFFF, 0, 16), _ONES, _MOVED
    ),
    "a number beyond the width of f32": _one_class(
        "F32",
        Lists(1, 1, k=31),
        "1" + "1" + "1" + "0" * 15 + "1" + low_first(3, 31),
        _ONES_F32,
        [(0x3F800000 - (15 << 31) - 5) % (1 << 32) ^ 0x7FFFFFFF, *_ONES_F32[1:]],
    ),
}


def rejected() -> list[tuple[str, str, Case]]:
    """The fault, the name and the case of each payload that must be rejected."""
    return [(fault, name, case) for fault, cases in REJECTED.items() for name, case in cases.items()]
