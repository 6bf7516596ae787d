"""docs/spec/entropy.md: one block of a byte plane, stored raw, as a fill, as a Huffman block or as a sparse block."""

from __future__ import annotations

import numpy as np

from second_reader.reader_errors import Truncated, require

_RAW, _FILL, _HUFFMAN, _SPARSE = range(4)
_MANY_STREAMS = 8
_MANY_STREAMS_FROM = 1024
_MAX_LENGTH = 11


class _Cursor:
    """The bytes of a payload from `offset` on."""

    def __init__(self, data: bytes, offset: int) -> None:
        self.data = data
        self.offset = offset

    def take(self, size: int) -> bytes:
        taken = self.data[self.offset : self.offset + size]
        if len(taken) < size:
            raise Truncated(f"byte block: {size} bytes expected at {self.offset}, {len(taken)} remain")
        self.offset += size
        return taken


def read_byte_block(data: bytes, offset: int, size: int) -> tuple[bytes, int]:
    """The `size` bytes of the block that begins at `offset`, and where it ends."""
    cursor = _Cursor(data, offset)
    return _read_block(cursor, size, sparse_levels=2), cursor.offset


def _read_block(cursor: _Cursor, size: int, sparse_levels: int) -> bytes:
    """A block that may nest `depth` sparse levels, in itself and in its mask."""
    [mode] = cursor.take(1)
    require(mode <= (_SPARSE if sparse_levels else _HUFFMAN), f"byte block of mode {mode}")
    if mode == _RAW:
        return cursor.take(size)
    if mode == _FILL:
        return cursor.take(1) * size
    return _read_huffman(cursor, size) if mode == _HUFFMAN else _read_sparse(cursor, size, sparse_levels)


def _read_sparse(cursor: _Cursor, size: int, sparse_levels: int) -> bytes:
    block = np.frombuffer(cursor.take(1) * size, np.uint8).copy()
    mask = np.frombuffer(_read_block(cursor, (size + 7) // 8, sparse_levels - 1), np.uint8)
    marked = np.unpackbits(mask, bitorder="little").astype(bool)
    require(not marked[size:].any(), "sparse block: a mask bit beyond the last place")
    places = np.flatnonzero(marked)
    if len(places):
        block[places] = np.frombuffer(_read_block(cursor, len(places), 0), np.uint8)
    return block.tobytes()


def _read_huffman(cursor: _Cursor, size: int) -> bytes:
    stream_count = _MANY_STREAMS if size >= _MANY_STREAMS_FROM else 1
    sizes = np.frombuffer(cursor.take(2 * stream_count), "<u2").tolist()
    symbols, lengths = _lookup(_read_lengths(cursor))
    per_stream = -(-size // stream_count)
    pieces = []
    for number, stream_size in enumerate(sizes):
        count = min(per_stream, size - number * per_stream)
        pieces.append(_read_stream(cursor.take(stream_size), count, symbols, lengths))
    return b"".join(pieces)


def _read_lengths(cursor: _Cursor) -> list[int]:
    """The code length of each of the 256 symbols."""
    [range_count] = cursor.take(1)
    require(range_count > 0, "Huffman table without ranges")
    bounds = cursor.take(2 * range_count)
    coded: list[int] = []
    for first, last in zip(bounds[::2], bounds[1::2], strict=True):
        require(first <= last, f"Huffman table: range {first} to {last}")
        require(not coded or first > coded[-1], "Huffman table: ranges out of order")
        coded += range(first, last + 1)
    nibbles = [nibble for byte in cursor.take((len(coded) + 1) // 2) for nibble in (byte & 15, byte >> 4)]
    require(not any(nibbles[len(coded) :]), "Huffman table: padding that is not zero")
    lengths = [0] * 256
    for symbol, length in zip(coded, nibbles, strict=False):
        require(length <= _MAX_LENGTH, f"Huffman table: length {length}")
        lengths[symbol] = length
    complete = sum(1 << (_MAX_LENGTH - length) for length in lengths if length)
    require(complete == 1 << _MAX_LENGTH, "Huffman table: the code is not complete")
    return lengths


def _lookup(lengths: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The symbol and the length of its code, by the next 11 bits. Canonical codes fill the table in order."""
    order = sorted((length, symbol) for symbol, length in enumerate(lengths) if length)
    repeats = [1 << (_MAX_LENGTH - length) for length, _ in order]
    by_code = np.array(order, np.uint8)
    return np.repeat(by_code[:, 1], repeats), np.repeat(by_code[:, 0], repeats)


def _read_stream(stream: bytes, count: int, symbols: np.ndarray, lengths: np.ndarray) -> bytes:
    bits = np.unpackbits(np.frombuffer(stream, np.uint8))
    padded = np.concatenate([bits, np.zeros(_MAX_LENGTH, np.uint8)]).astype(np.uint16)
    windows = np.zeros(len(bits), np.uint16)  # the 11 bits from each place on
    for bit in range(_MAX_LENGTH):
        windows |= padded[bit : bit + len(bits)] << (_MAX_LENGTH - 1 - bit)
    symbol_at = symbols[windows].tolist()
    length_at = lengths[windows].tolist()
    decoded = bytearray()
    place = 0
    for _ in range(count):
        require(place < len(bits), "Huffman stream ends before its last symbol")
        decoded.append(symbol_at[place])
        place += length_at[place]
    require(place <= len(bits), "Huffman stream ends within its last symbol")
    require(len(bits) - place < 8, "Huffman stream with a byte to spare")
    require(not bits[place:].any(), "Huffman stream: padding that is not zero")
    return bytes(decoded)
