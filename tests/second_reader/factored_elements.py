"""src/codec/factored_split/spec.md: elements as remainders without the scales of their row and column."""

from __future__ import annotations

import struct

import numpy as np

from second_reader.rans_lanes import Bytes, Cursor, Numbers
from second_reader.reader_errors import require
from second_reader.short_elements import is_of_short_elements, read_short_head
from second_reader.values_by_class import read_values

FACTORED_WIDTHS = {"F16": 2, "BF16": 2, "F32": 4}  # bytes of an element
FEWEST_ROW_ELEMENTS = 64
MOST_ROW_ELEMENTS = 262_144
ROTATED, ROW_CLASSES, COLUMNS_4, COLUMNS_8 = 1, 2, 4, 8
_ALL_FLAGS = ROTATED | ROW_CLASSES | COLUMNS_4 | COLUMNS_8


def read_factored_split(payload: bytes, elements: int, dtype: str) -> bytes:
    cursor = Cursor(payload, "factored_split")
    if is_of_short_elements(payload):
        head = read_short_head(cursor, elements, dtype)
        low_size = head.mantissa // 8 if dtype == "F32" else 0
        require(head.mantissa >= 3 and (dtype != "F32" or head.mantissa % 8 >= 3), f"{head.mantissa} bits of mantissa")
        return head.lengthen(_read_words(cursor, elements, 8 * head.width, low_size))
    width = FACTORED_WIDTHS[dtype]
    return _read_words(cursor, elements, 8 * width, width - 2).astype(f"<u{width}").tobytes()


def _read_words(cursor: Cursor, elements: int, bits: int, low_size: int) -> Numbers:
    flags, shifts, base, row_length, first_column = struct.unpack("<BBHII", cursor.take(12))
    require(flags <= _ALL_FLAGS, f"factored_split: flags {flags}")
    require(flags & 12 != COLUMNS_4 | COLUMNS_8, "factored_split: columns of four bits and of eight")
    require(FEWEST_ROW_ELEMENTS <= row_length <= MOST_ROW_ELEMENTS, f"factored_split: rows of {row_length}")
    require(first_column < row_length, f"factored_split: first column {first_column} of {row_length}")
    row_count = -(-(first_column + elements) // row_length)

    row_bytes = np.frombuffer(cursor.take(row_count), np.uint8).astype(np.int64)
    classes = np.zeros(row_count, np.uint8)
    if flags & ROW_CLASSES:
        classes = _parts(cursor.take((row_count + 3) // 4), row_count, 2)
    columns = np.zeros(row_length, np.int64)
    if flags & COLUMNS_4:
        columns = _parts(cursor.take((row_length + 1) // 2), row_length, 4).astype(np.int64)
    elif flags & COLUMNS_8:
        columns = np.frombuffer(cursor.take(row_length), np.uint8).astype(np.int64)

    places = first_column + np.arange(elements)
    rows = places // row_length
    coded = row_bytes[rows] != 0
    words = np.zeros(elements, np.int64)
    if coded.any():
        rows = rows[coded]
        scales = base + (row_bytes[rows] - 1 << (shifts & 15)) + (columns[places[coded] % row_length] << (shifts >> 4))
        low = np.frombuffer(cursor.take(low_size * len(rows)), f"<u{low_size}") if low_size else np.zeros(1, int)
        values = read_values(cursor.data[cursor.offset :], classes[rows])
        taken = (values + scales) % 65536 << 8 * low_size | low
        words[coded] = _turned_back(taken, bits) if flags & ROTATED else taken
    else:
        cursor.require_end()
    return words


def _turned_back(words: Numbers, bits: int) -> Numbers:
    turned: Numbers = words >> 1 | (words & 1) << (bits - 1)
    return turned


def _parts(packed: bytes, count: int, bits: int) -> Bytes:
    """`count` numbers of `bits` bits each; the first of a byte is in its lowest bits."""
    wide = np.frombuffer(packed, np.uint8)[:, None] >> np.arange(0, 8, bits).astype(np.uint8) & ((1 << bits) - 1)
    numbers: Bytes = wide.reshape(-1).astype(np.uint8)
    require(not numbers[count:].any(), "factored_split: bits behind the last part of a byte")
    return numbers[:count]
