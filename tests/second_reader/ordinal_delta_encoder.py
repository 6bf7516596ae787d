"""Encodes all forms of ordinal_delta from its specification alone; the caller chooses the form.

The encoders return the fields of a payload, and `build` concatenates them unchecked. So `dataclasses.replace` makes
payloads that break one rule.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from second_reader.ordinal_deltas import FAR_VALUE, LAYOUTS
from second_reader.values_by_class import CONTEXTS, ESCAPE, SYMBOLS

_LANES = 256
_GROUP_LANES = 64


# Shift and class of a context; or also its coarseness, where that is not 0.
Plan = tuple[int, int] | tuple[int, int, int]


@dataclass(frozen=True)
class Values:
    """The fields of values by class. Counts and sizes come from what they count, with `wrong` added."""

    plans: Sequence[Plan]  # by context
    frequencies: Sequence[Sequence[int]]
    low_bits: Sequence[int]
    low_bytes: bytes
    streams: Sequence[bytes]
    escapes: Sequence[int]
    states: Sequence[int]
    class_count: int | None = None
    spare_bits: Sequence[int] | None = None  # those before the low bits
    wrong: Sequence[int] = (0,) * 7
    behind: bytes = b""

    def build(self) -> bytes:
        spare = [0] * (-len(self.low_bits) % 8) if self.spare_bits is None else self.spare_bits
        bits = np.array([*spare, *self.low_bits], np.uint8)
        counts = [*map(len, self.streams), len(self.low_bits), len(self.low_bytes), len(self.escapes)]
        states = b"".join(
            bytes(state & 255 for state in self.states[first : first + _GROUP_LANES])
            + bytes(state >> 8 for state in self.states[first : first + _GROUP_LANES])
            for first in range(0, _LANES, _GROUP_LANES)
        )
        return (
            bytes([len(self.frequencies) if self.class_count is None else self.class_count])
            + bytes(plan[0] | plan[1] << 4 | _coarseness(plan) << 6 for plan in self.plans)
            + b"".join(bytes(row) for row in self.frequencies)
            + struct.pack("<7I", *(count + more for count, more in zip(counts, self.wrong, strict=True)))
            + np.packbits(bits, bitorder="little").tobytes()
            + self.low_bytes
            + b"".join(self.streams)
            + struct.pack(f"<{len(self.escapes)}H", *self.escapes)
            + states
            + self.behind
        )


def encode_values(
    values: Sequence[int],
    contexts: Sequence[int],
    plans: Sequence[Plan],
    frequencies: Sequence[Sequence[int]] | None = None,
    padding: int | None = None,
) -> Values:
    """`padding` is the value of unused lanes; by default 0, or a symbol that has slots."""
    class_count = 1 + max(plan[1] for plan in plans)
    coded = [_coded(value, plans[context]) for value, context in zip(values, contexts, strict=True)]
    tables = [list(row) for row in frequencies or _fit(coded, class_count)]
    if padding is None:
        with_slots = (symbol for symbol, slots in enumerate(tables[plans[0][1]]) if slots)
        padding = _first_value(next(with_slots), plans[0])
    coded += [_coded(padding, plans[0])] * (-len(values) % _LANES)

    states = [256] * _LANES
    streams: list[list[int]] = [[], [], [], []]
    for index in reversed(range(len(coded))):
        symbol, _, _, number = coded[index]
        slots, start = tables[number][symbol], sum(tables[number][:symbol])
        assert slots > 0, f"symbol {symbol} of class {number} has no slots"
        lane = index % _LANES
        if states[lane] >= 256 * slots:
            streams[lane // _GROUP_LANES].append(states[lane] & 255)
            states[lane] >>= 8
        states[lane] = 256 * (states[lane] // slots) + states[lane] % slots + start
    return Values(
        plans=plans,
        frequencies=tables,
        low_bits=[value >> (width & 8) >> bit & 1 for _, value, width, _ in coded for bit in range(width & 7)],
        low_bytes=bytes(value & 255 for _, value, width, _ in coded if width >= 8),
        streams=[bytes(reversed(stream)) for stream in streams],
        escapes=[value for symbol, value, _, _ in coded if symbol == ESCAPE],
        states=states,
    )


def _coarseness(plan: Plan) -> int:
    return plan[2] if len(plan) == 3 else 0


@functools.cache
def _width(symbol: int, plan: Plan) -> int:
    """The number of low bits, before it is limited."""
    octave = (symbol >> 3 - _coarseness(plan)) - 1
    return plan[0] + (0 if symbol == ESCAPE else max(octave, 0))


@functools.cache
def _first_value(symbol: int, plan: Plan) -> int:
    width = _width(symbol, plan)
    return symbol - (width - plan[0] << 3 - _coarseness(plan)) << width


@functools.cache
def _first_values(plan: Plan) -> list[int]:
    """Of all symbols but the escape; they rise."""
    return [_first_value(symbol, plan) for symbol in range(ESCAPE)]


def _coded(value: int, plan: Plan) -> tuple[int, int, int, int]:
    """Symbol, value, low bits and class of the last symbol whose range begins at or below the value."""
    symbol = bisect_right(_first_values(plan), value) - 1
    if value >= _first_value(symbol, plan) + (1 << _width(symbol, plan)):
        symbol = ESCAPE
    return symbol, value, _width(symbol, plan), plan[1]


def _fit(coded: Sequence[tuple[int, int, int, int]], class_count: int) -> list[list[int]]:
    """Frequencies of 1 to 255 that sum to 256 for each class: of its symbols, and one or two more."""
    tables = []
    for number in range(class_count):
        counts = np.bincount([symbol for symbol, _, _, of in coded if of == number], minlength=SYMBOLS)
        counts[0] += 1
        if np.count_nonzero(counts) == 1:
            counts[1] = 1
        slots = np.where(counts > 0, np.maximum(counts * 240 // counts.sum(), 1), 0)
        slots[slots.argmax()] += 256 - slots.sum()
        tables.append([int(count) for count in slots])
    return tables


@dataclass(frozen=True)
class Dense:
    top: int
    values: Values
    first_direct: int = CONTEXTS
    low_size: int = 0
    far_count: int = 0
    low: bytes = b""
    far: bytes = b""
    form: int = 0
    factor: int | None = None  # of the form above a floor

    def build(self) -> bytes:
        if self.factor is None:
            head = struct.pack("<BBBBI", self.form, self.top, self.first_direct, self.low_size, self.far_count)
        else:
            head = struct.pack("<BBBII", self.form, self.top, self.low_size, self.far_count, self.factor)
        return head + self.low + self.far + self.values.build()


def encode_dense(
    base: Sequence[int],
    elements: Sequence[int],
    dtype: str,
    top: int,
    plans: Sequence[Plan],
    low_size: int = 0,
    frequencies: Sequence[Sequence[int]] | None = None,
    first_direct: int = CONTEXTS,
    factor: int | None = None,
) -> Dense:
    """Above a floor where there is a factor."""
    bits, _ = LAYOUTS[dtype]
    contexts = [context_of(old, dtype, top) for old in base]
    if factor is None:
        measures = [
            direct(new, dtype, top) if context >= first_direct else zigzag(deltas(old, new, bits))
            for old, new, context in zip(base, elements, contexts, strict=True)
        ]
    else:
        measures = [(new - floor(old, factor)) % (1 << bits) for old, new in zip(base, elements, strict=True)]
    values = [measure >> 8 * low_size for measure in measures]
    far = b""
    if dtype == "F32":
        values = [min(value, FAR_VALUE) for value in values]
        far = b"".join(
            struct.pack("<I", new) for new, value in zip(elements, values, strict=True) if value == FAR_VALUE
        )
    return Dense(
        top=top,
        values=encode_values(values, contexts, plans, frequencies),
        first_direct=first_direct,
        low_size=low_size,
        far_count=len(far) // 4,
        low=b"".join(measure.to_bytes(8, "little")[:low_size] for measure in measures),
        far=far,
        form=0 if factor is None else 2,
        factor=factor,
    )


@dataclass(frozen=True)
class Lists:
    """The header's fields of one class; `zeros` are its bits that must be 0."""

    changed: int
    farther: int
    g: int = 0
    h: int = 0
    k: int = 0
    zeros: tuple[int, int] = (0, 0)

    def build(self) -> bytes:
        first = self.changed | self.g << 19 | self.h << 24 | self.zeros[0] << 29
        return struct.pack("<II", first, self.farther | self.k << 19 | self.zeros[1] << 24)


@dataclass(frozen=True)
class Sparse:
    top: int
    lists: Sequence[Lists]
    bits: str  # in the order in which they are read
    firsts: Sequence[int] = ()
    class_count: int | None = None
    behind: bytes = b""
    form: int = 1

    def build(self) -> bytes:
        class_count = len(self.lists) if self.class_count is None else self.class_count
        head = bytes([self.form, self.top, class_count, *self.firsts])
        packed = np.packbits(np.array([int(bit) for bit in self.bits], np.uint8), bitorder="little").tobytes()
        return head + b"".join(lists.build() for lists in self.lists) + packed + self.behind


def number(value: int, parameter: int, width: int, long: bool = False) -> str:
    """The number's bits in reading order."""
    if long or value >> parameter >= 16:
        return "0" * 16 + low_first(value, width)
    return "0" * (value >> parameter) + "1" + low_first(value, parameter)


def low_first(value: int, width: int) -> str:
    return "".join(str(value >> bit & 1) for bit in range(width))


def encode_sparse(
    base: Sequence[int],
    elements: Sequence[int],
    dtype: str,
    top: int,
    firsts: Sequence[int] = (),
    parameters: tuple[int, int, int] = (0, 0, 0),
    long: bool = False,
) -> Sparse:
    """`long` writes each number after sixteen zeros, even if it is small."""
    bits, _ = LAYOUTS[dtype]
    g, h, k = parameters
    classes: list[list[int]] = [[] for _ in range(len(firsts) + 1)]
    for old, new in zip(base, elements, strict=True):
        context = context_of(old, dtype, top)
        classes[sum(first <= context for first in firsts)].append(deltas(old, new, bits))
    lists, written = [], ""
    for of_class in classes:
        changed = [delta for delta in of_class if delta]
        farther = [delta for delta in changed if abs(delta) > 1]
        lists.append(Lists(len(changed), len(farther), g, h, k))
        written += "".join(number(gap, g, 18, long) for gap in _gaps([delta != 0 for delta in of_class]))
        written += "".join(str(int(delta < 0)) for delta in changed)
        written += "".join(number(gap, h, 18, long) for gap in _gaps([abs(delta) > 1 for delta in changed]))
        written += "".join(number(abs(delta) - 2, k, bits, long) for delta in farther)
    return Sparse(top, lists, written, firsts)


def _gaps(marked: Sequence[bool]) -> list[int]:
    places = [-1, *(place for place, mark in enumerate(marked) if mark)]
    return [after - before - 1 for before, after in itertools.pairwise(places)]


def reflected(word: int, bits: int) -> int:
    return word if word >> (bits - 1) == 0 else word ^ ((1 << (bits - 1)) - 1)


def deltas(old: int, new: int, bits: int) -> int:
    difference = (reflected(new, bits) - reflected(old, bits)) % (1 << bits)
    return difference - (1 << bits) if difference >> (bits - 1) else difference


def zigzag(delta: int) -> int:
    return 2 * delta if delta >= 0 else -2 * delta - 1


def floor(old: int, factor: int) -> int:
    """Computed with fractions: the number of 24 bits that is nearest to the product; the larger one of two."""
    if not 1 <= old >> 23 <= 254:
        return 0
    product = _f32(old) * _f32(factor)
    exponent = 0  # of the first bit
    while product >= 2 ** (exponent + 1):
        exponent += 1
    while product < Fraction(2) ** exponent:
        exponent -= 1
    mantissa = math.floor(product / Fraction(2) ** (exponent - 23) + Fraction(1, 2))
    if mantissa == 1 << 24:
        mantissa, exponent = 1 << 23, exponent + 1
    return exponent + 127 << 23 | mantissa - (1 << 23) if -126 <= exponent <= 127 else 0


def _f32(word: int) -> Fraction:
    return Fraction((word & (1 << 23) - 1) + (1 << 23)) * Fraction(2) ** ((word >> 23) - 150)


def direct(word: int, dtype: str, top: int) -> int:
    """From the largest magnitude of the top exponent down, both signs in turn."""
    bits, mantissa = LAYOUTS[dtype]
    sign, magnitude = divmod(word, 1 << (bits - 1))
    return (((top + 1) << (mantissa + 1)) - 1 - (2 * magnitude + sign)) % (1 << bits)


def context_of(word: int, dtype: str, top: int) -> int:
    bits, mantissa = LAYOUTS[dtype]
    exponent = (word >> mantissa) % (1 << (bits - 1 - mantissa))
    return min(max(top - exponent, 0), CONTEXTS - 1)
