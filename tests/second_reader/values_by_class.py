"""docs/spec/rans.md, "Values by class": numbers of 16 bits, with a table for each class of contexts."""

from __future__ import annotations

import numpy as np

from second_reader.rans_lanes import GROUPS, LANES, ROUND, SLOTS, STATES_SIZE, Bytes, Cursor, Lanes, Numbers
from second_reader.reader_errors import require

CONTEXTS = 32
SYMBOLS = 16
ESCAPE = 15
_MAX_CLASSES = 4
_MOST_LOW_BITS = 15


def read_values(payload: bytes, contexts: Bytes) -> Numbers:
    """The value of each of these contexts."""
    cursor = Cursor(payload, "values by class")
    [class_count] = cursor.take(1)
    require(1 <= class_count <= _MAX_CLASSES, f"values of {class_count} classes")
    plans = np.frombuffer(cursor.take(CONTEXTS), np.uint8).astype(np.int64)
    require(bool(((plans >> 4 & 3) < class_count).all()), "a context of a class that is not there")
    frequencies = np.frombuffer(cursor.take(SYMBOLS * class_count), np.uint8).reshape(-1, SYMBOLS).astype(np.int64)
    require(bool((frequencies.sum(axis=1) == SLOTS).all()), "a class whose symbols do not have 256 slots")
    sizes = cursor.numbers(GROUPS)
    bit_count, byte_count, escape_count = cursor.numbers(3)
    bits = np.unpackbits(np.frombuffer(cursor.take((bit_count + 7) // 8), np.uint8), bitorder="little")
    spare = len(bits) - bit_count
    require(not bits[:spare].any(), "a bit set before the low bits")
    low_bytes = np.frombuffer(cursor.take(byte_count), np.uint8)
    streams = [cursor.take(size) for size in sizes]
    escapes = np.frombuffer(cursor.take(2 * escape_count), "<u2")
    lanes = Lanes(streams, cursor.take(STATES_SIZE))
    cursor.require_end()

    padded = np.zeros(-(-len(contexts) // ROUND) * ROUND, np.int64)  # lanes of no value have the context 0
    padded[: len(contexts)] = contexts
    symbols = _read_symbols(lanes, frequencies, plans[padded] >> 4 & 3)
    heads, widths = _heads(symbols, plans[padded])
    values: Numbers = (heads << widths | _low_parts(widths, bits[spare:], low_bytes)) & 0xFFFF
    # Low bits and low bytes of an escape are read like any others', and then of no use.
    escaped = symbols == ESCAPE
    require(int(escaped.sum()) == escape_count, f"{escape_count} escapes, {int(escaped.sum())} are escaped")
    values[escaped] = escapes
    return values[: len(contexts)]


def _read_symbols(lanes: Lanes, frequencies: Numbers, classes: Numbers) -> Numbers:
    """The symbol of each of these classes."""
    by_slot = np.array([np.repeat(np.arange(SYMBOLS), row) for row in frequencies])
    starts = np.cumsum(frequencies, axis=1) - frequencies
    symbols = np.empty(classes.shape, np.int64)
    for first in range(0, len(classes), LANES):
        group = first // LANES % GROUPS
        turn = slice(first, first + LANES)
        slots = lanes.slots(group)
        coded = by_slot[classes[turn], slots]
        lanes.advance(group, frequencies[classes[turn], coded], slots - starts[classes[turn], coded])
        symbols[turn] = coded
    lanes.require_end()
    return symbols


def _heads(symbols: Numbers, plans: Numbers) -> tuple[Numbers, Numbers]:
    """The part of each value above its low bits, and the number of low bits."""
    fineness = 3 - (plans >> 6)
    octaves = np.maximum((symbols >> fineness) - 1, 0)
    octaves[symbols == ESCAPE] = 0
    return symbols - (octaves << fineness), np.minimum((plans & 15) + octaves, _MOST_LOW_BITS)


def _low_parts(widths: Numbers, bits: Bytes, low_bytes: Bytes) -> Numbers:
    """The part below the head: low bits, and below them a low byte if there are 8 or more."""
    counts = widths % 8
    require(int(counts.sum()) == len(bits), f"{len(bits)} low bits, the values take {int(counts.sum())}")
    starts = np.cumsum(counts) - counts
    low = np.zeros(widths.shape, np.int64)
    for bit in range(7):
        longer = counts > bit
        low[longer] |= bits[starts[longer] + bit].astype(np.int64) << bit
    with_byte = widths >= 8
    require(int(with_byte.sum()) == len(low_bytes), f"{len(low_bytes)} low bytes, the values take {with_byte.sum()}")
    low[with_byte] = low[with_byte] << 8 | low_bytes
    return low
