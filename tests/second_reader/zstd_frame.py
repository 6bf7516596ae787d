"""One zstd frame (RFC 8878): its end, its header and its contents."""

from __future__ import annotations

from dataclasses import dataclass

import zstandard

from second_reader.reader_errors import Corrupt, Truncated, require

_MAGIC = bytes.fromhex("28b52ffd")


@dataclass(frozen=True)
class FrameHeader:
    size: int
    content_size: int | None
    window_size: int | None  # None: single segment, the window is the content
    dictionary: int
    has_checksum: bool


def _take(data: bytes, offset: int, size: int) -> int:
    if offset + size > len(data):
        raise Truncated(f"zstd frame ends at byte {len(data)}, within a field at {offset}")
    return int.from_bytes(data[offset : offset + size], "little")


def read_header(data: bytes) -> FrameHeader:
    if len(data) < 5:
        raise Truncated(f"zstd frame of {len(data)} bytes")
    require(data[:4] == _MAGIC, f"zstd frame begins with {data[:4].hex()}")
    descriptor = data[4]
    require(descriptor & 0x08 == 0, "zstd frame header: reserved bit set")
    single_segment = bool(descriptor & 0x20)
    offset = 5
    window = None
    if not single_segment:
        exponent, mantissa = divmod(_take(data, offset, 1), 8)
        window = (1 << (10 + exponent)) // 8 * (8 + mantissa)
        offset += 1
    id_size = (0, 1, 2, 4)[descriptor & 3]
    dictionary = _take(data, offset, id_size)
    offset += id_size
    content_field = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    content = _take(data, offset, content_field) + (256 if content_field == 2 else 0)
    size = offset + content_field
    return FrameHeader(size, content if content_field else None, window, dictionary, bool(descriptor & 4))


def frame_size(data: bytes) -> int:
    """Where the frame at the start of `data` ends, by the headers of its blocks."""
    header = read_header(data)
    offset = header.size
    last = False
    while not last:
        block = _take(data, offset, 3)
        last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        require(kind != 3, "zstd frame: reserved kind of block")
        offset += 3 + (1 if kind == 1 else size)
    offset += 4 if header.has_checksum else 0
    if offset > len(data):
        raise Truncated(f"zstd frame of {offset} bytes, {len(data)} remain")
    return offset


def decompress(data: bytes, size: int, where: str) -> bytes:
    """The `size` bytes of the one frame that is all of `data`."""
    end = frame_size(data)
    require(end == len(data), f"{where}: {len(data) - end} bytes behind the zstd frame")
    try:
        with zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(data) as reader:
            content = reader.read(size + 1)
    except zstandard.ZstdError as error:
        raise Corrupt(f"{where}: {error}") from error
    require(len(content) == size, f"{where}: zstd frame does not hold {size} bytes")
    return content
