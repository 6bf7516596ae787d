"""docs/spec/rans.md: elements whose topmost byte is coded by 256 states in turn, and whose other bytes are raw."""

from __future__ import annotations

import numpy as np

from second_reader.rans_lanes import GROUPS, LANES, ROUND, SLOTS, STATES_SIZE, Bytes, Cursor, Lanes
from second_reader.reader_errors import require

_BLOCK = 65_536
_MAX_SYMBOLS = 15


class _Table:
    """By slot: the symbol, whether it is escaped, the frequency, and how far the slot is from the start."""

    def __init__(self, cursor: Cursor) -> None:
        [count] = cursor.take(1)
        require(1 <= count <= _MAX_SYMBOLS, f"table of {count} symbols")
        symbols = list(cursor.take(count))
        frequencies = list(cursor.take(count))
        require(len(set(symbols)) == count, "table lists a symbol twice")
        require(count == 1 or all(frequencies), "table with a symbol without slots")
        frequencies = [frequency or SLOTS for frequency in frequencies]
        left = SLOTS - sum(frequencies)
        require(left >= 0, "table with more than 256 slots")
        self.single = symbols[0] if frequencies[0] == SLOTS else None
        runs = frequencies + [left] * (left > 0)
        self.symbols = np.repeat(symbols + [0] * (left > 0), runs)
        self.escaped = np.arange(SLOTS) >= SLOTS - left
        self.frequencies = np.repeat(runs, runs)
        starts = np.cumsum([0, *runs[:-1]])
        self.excess = np.arange(SLOTS) - np.repeat(starts, runs)


def read_split_elements(payload: bytes, elements: int, width: int) -> Bytes:
    """The elements as they were split, one row of `width` bytes for each."""
    cursor = Cursor(payload, "split elements")
    sizes = cursor.numbers(GROUPS)
    [escape_count] = cursor.numbers(1)
    rows = np.empty((elements, width), np.uint8)
    rows[:, :-1] = np.frombuffer(cursor.take(elements * (width - 1)), np.uint8).reshape(elements, width - 1)
    tables = [_Table(cursor) for _ in range(0, elements, _BLOCK)]
    streams = [cursor.take(size) for size in sizes]
    escapes = np.frombuffer(cursor.take(escape_count), np.uint8)
    states = cursor.take(STATES_SIZE)
    cursor.require_end()
    lanes = Lanes(streams, states)

    escape_place = 0
    rounds = -(-elements // ROUND)
    symbols = np.empty((rounds, GROUPS, LANES), np.uint8)
    for round_number in range(rounds):
        table = tables[round_number * ROUND // _BLOCK]
        if table.single is not None:
            symbols[round_number] = table.single
            continue
        for group in range(GROUPS):
            slots = lanes.slots(group)
            coded = table.symbols[slots]
            escaped = table.escaped[slots]
            escape_end = escape_place + int(escaped.sum())
            require(escape_end <= escape_count, "escapes end before the last element")
            coded[escaped] = escapes[escape_place:escape_end]
            escape_place = escape_end
            symbols[round_number, group] = coded
            lanes.advance(group, table.frequencies[slots], table.excess[slots])
    lanes.require_end()
    require(escape_place == escape_count, "escapes do not end with the last element")
    rows[:, -1] = symbols.reshape(-1)[:elements]
    return rows
