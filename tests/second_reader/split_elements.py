"""docs/spec/rans.md: elements whose topmost byte is coded by 256 states in turn, and whose other bytes are raw."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from second_reader.reader_errors import Truncated, require

Bytes = npt.NDArray[np.uint8]

_GROUPS = 4
_LANES = 64
_BLOCK = 65_536
_MAX_SYMBOLS = 15
_SCALE = 256
_FIRST_STATE = 256


class _Cursor:
    """The payload from where it has been read to."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0

    def take(self, size: int) -> bytes:
        taken = self.data[self.offset : self.offset + size]
        if len(taken) < size:
            raise Truncated(f"split elements: {size} bytes expected at {self.offset}, {len(taken)} remain")
        self.offset += size
        return taken


class _Table:
    """By slot: the symbol, whether it is escaped, the frequency, and how far the slot is from the start."""

    def __init__(self, cursor: _Cursor) -> None:
        [count] = cursor.take(1)
        require(1 <= count <= _MAX_SYMBOLS, f"table of {count} symbols")
        symbols = list(cursor.take(count))
        frequencies = list(cursor.take(count))
        require(len(set(symbols)) == count, "table lists a symbol twice")
        require(count == 1 or all(frequencies), "table with a symbol without slots")
        frequencies = [frequency or _SCALE for frequency in frequencies]
        left = _SCALE - sum(frequencies)
        require(left >= 0, "table with more than 256 slots")
        self.single = symbols[0] if frequencies[0] == _SCALE else None
        runs = frequencies + [left] * (left > 0)
        self.symbols = np.repeat(symbols + [0] * (left > 0), runs)
        self.escaped = np.arange(_SCALE) >= _SCALE - left
        self.frequencies = np.repeat(runs, runs)
        starts = np.cumsum([0, *runs[:-1]])
        self.excess = np.arange(_SCALE) - np.repeat(starts, runs)


def read_split_elements(payload: bytes, elements: int, width: int) -> Bytes:
    """The elements as they were split, one row of `width` bytes for each."""
    cursor = _Cursor(payload)
    sizes = np.frombuffer(cursor.take(4 * _GROUPS), "<u4").tolist()
    [escape_count] = np.frombuffer(cursor.take(4), "<u4").tolist()
    rows = np.empty((elements, width), np.uint8)
    rows[:, :-1] = np.frombuffer(cursor.take(elements * (width - 1)), np.uint8).reshape(elements, width - 1)
    tables = [_Table(cursor) for _ in range(0, elements, _BLOCK)]
    streams = [np.frombuffer(cursor.take(size), np.uint8) for size in sizes]
    escapes = np.frombuffer(cursor.take(escape_count), np.uint8)
    state_bytes = np.frombuffer(cursor.take(2 * _GROUPS * _LANES), np.uint8).reshape(_GROUPS, 2, _LANES).astype(int)
    require(cursor.offset == len(payload), f"{len(payload) - cursor.offset} bytes behind the states")
    require(bool(state_bytes[:, 1].all()), "a state below 256")

    states = list(state_bytes[:, 1] * 256 + state_bytes[:, 0])
    places = [0] * _GROUPS
    escape_place = 0
    steps = -(-elements // (_GROUPS * _LANES))
    symbols = np.empty((steps, _GROUPS, _LANES), np.uint8)
    for step in range(steps):
        table = tables[step * _GROUPS * _LANES // _BLOCK]
        if table.single is not None:
            symbols[step] = table.single
            continue
        for group in range(_GROUPS):
            slots = states[group] % 256
            coded = table.symbols[slots]
            escaped = table.escaped[slots]
            coded[escaped] = _next(escapes, escape_place, int(escaped.sum()))
            escape_place += int(escaped.sum())
            symbols[step, group] = coded
            state = table.frequencies[slots] * (states[group] // 256) + table.excess[slots]
            grows = state < 256
            state[grows] = state[grows] * 256 + _next(streams[group], places[group], int(grows.sum()))
            places[group] += int(grows.sum())
            states[group] = state
    require(places == sizes, "a stream does not end with the last element")
    require(escape_place == escape_count, "escapes do not end with the last element")
    require(all((state == _FIRST_STATE).all() for state in states), "a state does not end as 256")
    rows[:, -1] = symbols.reshape(-1)[:elements]
    return rows


def _next(stream: Bytes, place: int, count: int) -> Bytes:
    require(place + count <= len(stream), "a stream or the escapes end before the last element")
    return stream[place : place + count]
