"""Encodes factored_split from its specification alone, in the simplest way and with given scales.

The encoder returns the fields of a payload, and `build` concatenates them unchecked. So `dataclasses.replace` makes
payloads that break one rule.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from second_reader.factored_elements import COLUMNS_4, COLUMNS_8, FACTORED_WIDTHS, ROTATED, ROW_CLASSES
from second_reader.ordinal_delta_encoder import Plan, Values, encode_values


@dataclass(frozen=True)
class Scales:
    """`rows` holds a byte for each row the chunk touches; `columns` a number for each column, or nothing."""

    row_length: int
    first_column: int
    base: int
    rows: Sequence[int]
    row_shift: int = 0
    columns: Sequence[int] = ()
    column_bits: int = 8
    column_shift: int = 0
    classes: Sequence[int] = ()
    rotated: bool = False

    def of(self, index: int) -> int:
        """The sum of both scales of an element."""
        row, column = divmod(self.first_column + index, self.row_length)
        scale = self.base + (self.rows[row] - 1 << self.row_shift)
        return scale + (self.columns[column] << self.column_shift if self.columns else 0)

    def row_of(self, index: int) -> int:
        return (self.first_column + index) // self.row_length


@dataclass(frozen=True)
class Factored:
    flags: int
    shifts: int
    base: int
    row_length: int
    first_column: int
    rows: bytes
    classes: bytes
    columns: bytes
    low: bytes
    values: Values | None
    behind: bytes = b""

    def build(self) -> bytes:
        head = struct.pack("<BBHII", self.flags, self.shifts, self.base, self.row_length, self.first_column)
        values = b"" if self.values is None else self.values.build()
        return head + self.rows + self.classes + self.columns + self.low + values + self.behind


def _packed(numbers: Sequence[int], bits: int) -> bytes:
    each = 8 // bits
    groups = [numbers[first : first + each] for first in range(0, len(numbers), each)]
    return bytes(sum(number << bits * place for place, number in enumerate(group)) for group in groups)


def encode_factored(
    elements: Sequence[int], dtype: str, scales: Scales, plans: Sequence[Plan] = ((4, 0),) * 32
) -> Factored:
    """Elements of rows whose byte is 0 must be 0."""
    low_bits = 8 * (FACTORED_WIDTHS[dtype] - 2)
    bits = 16 + low_bits
    values, contexts, low = [], [], b""
    for index, element in enumerate(elements):
        row = scales.row_of(index)
        if scales.rows[row] == 0:
            assert element == 0
            continue
        word = (element << 1 | element >> bits - 1) % (1 << bits) if scales.rotated else element
        values.append(((word >> low_bits) - scales.of(index)) % 65536)
        contexts.append(scales.classes[row] if scales.classes else 0)
        low += (word % (1 << low_bits)).to_bytes(low_bits // 8, "little")
    columns_flag = (COLUMNS_4 if scales.column_bits == 4 else COLUMNS_8) if scales.columns else 0
    return Factored(
        flags=(ROTATED if scales.rotated else 0) | (ROW_CLASSES if scales.classes else 0) | columns_flag,
        shifts=scales.row_shift | scales.column_shift << 4,
        base=scales.base,
        row_length=scales.row_length,
        first_column=scales.first_column,
        rows=bytes(scales.rows),
        classes=_packed(scales.classes, 2),
        columns=_packed(scales.columns, scales.column_bits),
        low=low,
        values=encode_values(values, contexts, plans) if values else None,
    )
