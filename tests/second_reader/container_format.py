"""docs/spec/snapshot.md, the binary parts: header, footer, index, chunk table."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import xxhash

from second_reader import zstd_frame
from second_reader.reader_errors import Corrupt, LimitReached, Truncated, Unsupported, require

HEADER_SIZE = 64
FOOTER_SIZE = 64
HEADER_MAGIC = bytes.fromhex("8942534e41500d0a")
FOOTER_MAGIC = bytes.fromhex("0d0a50414e534289")
CONTENT, ENCODING, CHUNKS, PARAMETERS, SAFETENSORS = range(1, 6)
NO_PARAMETERS = 0xFFFF
MAX_DEPTH = 64
MAX_STEPS = 64  # inputs to follow in a row
# This reader's own limit: for the index, and for each section of it.
MAX_INDEX_SIZE = 1 << 30

_CHUNK_ROW = struct.Struct("<QQQIHH4sB3s")


def hash64(data: bytes) -> int:
    return xxhash.xxh3_64_intdigest(data)


@dataclass(frozen=True)
class Footer:
    index_offset: int
    index_size: int
    index_hash: int
    snapshot_id: str


@dataclass(frozen=True)
class ChunkRow:
    offset: int
    stored_hash: int
    decoded_hash: int
    size: int
    codec: int
    parameters: int
    inputs: tuple[int, ...]
    depth: int


def check_header(file: bytes) -> None:
    start = file[: len(HEADER_MAGIC)]
    require(start == HEADER_MAGIC[: len(start)], "not a snapshot file: it does not begin with the magic")
    if len(file) < HEADER_SIZE + FOOTER_SIZE:
        raise Truncated(f"file of {len(file)} bytes")
    version, zero, features, zeros, stated = struct.unpack("<8xIIQ32sQ", file[:HEADER_SIZE])
    if version != 0:
        raise Unsupported(f"format version {version}")
    require(hash64(file[:56]) == stated, "header: wrong hash")
    if features:
        raise Unsupported(f"required features {features:#x}")
    require(zero == 0 and not any(zeros), "header: a reserved byte is not zero")


def read_footer(file: bytes) -> Footer:
    footer = file[-FOOTER_SIZE:]
    if footer[56:] != FOOTER_MAGIC:
        raise Truncated("the file does not end with the footer's magic")
    offset, size, index_hash, low, high, zero, stated = struct.unpack("<7Q8x", footer)
    require(hash64(footer[:48]) == stated, "footer: wrong hash")
    require(zero == 0, "footer: a reserved byte is not zero")
    require(offset >= HEADER_SIZE, f"footer: index at {offset}, within the header")
    require(offset + size == len(file) - FOOTER_SIZE, "footer: the index does not end where the footer begins")
    return Footer(offset, size, index_hash, f"{high:016x}{low:016x}")


def read_sections(file: bytes, footer: Footer) -> dict[int, bytes]:
    """The raw bytes of each section, by kind."""
    _grant(footer.index_size, "index")
    index = file[footer.index_offset : footer.index_offset + footer.index_size]
    require(hash64(index) == footer.index_hash, "index: wrong hash")
    if len(index) < 8:
        raise Truncated(f"index of {len(index)} bytes")
    section_count, zero = struct.unpack("<II", index[:8])
    require(zero == 0, "index: a reserved byte is not zero")
    offset = 8 + 24 * section_count
    if offset > len(index):
        raise Truncated(f"index: {section_count} sections in {len(index)} bytes")
    sections: dict[int, bytes] = {}
    previous = 0
    for row in struct.iter_unpack("<IIQQ", index[8:offset]):
        kind, encoding, stored_size, raw_size = row
        require(kind > previous, f"index: section {kind} behind {previous}")
        if kind > SAFETENSORS:
            raise Unsupported(f"section kind {kind}")
        previous = kind
        if stored_size > len(index) - offset:
            raise Truncated(f"section {kind} of {stored_size} bytes at {offset}, the index has {len(index)}")
        _grant(raw_size, f"section {kind}")
        stored = index[offset : offset + stored_size]
        offset += stored_size
        sections[kind] = _section(stored, encoding, raw_size, f"section {kind}")
    require(offset == len(index), f"index: {len(index) - offset} bytes behind the last section")
    for kind in (CONTENT, ENCODING, CHUNKS):
        require(kind in sections, f"index: section {kind} missing")
    return sections


def _grant(size: int, what: str) -> None:
    if size > MAX_INDEX_SIZE:
        raise LimitReached(f"{what} of {size} bytes")


def _section(stored: bytes, encoding: int, raw_size: int, where: str) -> bytes:
    if encoding == 0:
        require(raw_size == len(stored), f"{where}: {len(stored)} bytes stored as they are, stated {raw_size}")
        return stored
    if encoding == 1:
        try:
            return zstd_frame.decompress(stored, raw_size, where)
        except Truncated as error:  # the file goes on behind the section
            raise Corrupt(f"{where}: {error}") from error
    raise Unsupported(f"{where}: encoding {encoding}")


def parse_chunk_table(table: bytes, chunk_count: int) -> list[ChunkRow]:
    require(len(table) == _CHUNK_ROW.size * chunk_count, f"chunk table of {len(table)} bytes, {chunk_count} chunks")
    rows = []
    for number, fields in enumerate(_CHUNK_ROW.iter_unpack(table)):
        offset, stored_hash, decoded_hash, size, codec, parameters, inputs, depth, zeros = fields
        used = inputs.split(b"\xff", 1)[0]
        require(inputs == used.ljust(4, b"\xff"), f"chunk {number}: an unused input stands before a used one")
        require(not any(zeros), f"chunk {number}: a reserved byte is not zero")
        rows.append(ChunkRow(offset, stored_hash, decoded_hash, size, codec, parameters, tuple(used), depth))
    return rows


def check_payload_places(rows: list[ChunkRow], index_offset: int) -> None:
    """The payloads cover the file from the header to the index, without gaps and overlaps."""
    require(all(row.size or row.offset == 0 for row in rows), "chunk table: an empty payload has an offset")
    end = HEADER_SIZE
    for row in sorted((row for row in rows if row.size), key=lambda row: row.offset):
        require(row.offset == end, f"chunk table: a payload at {row.offset}, expected at {end}")
        end += row.size
    require(end == index_offset, f"chunk table: payloads end at {end}, the index begins at {index_offset}")


def snapshot_id(content: bytes, safetensors_header: bytes, decoded_hashes: list[int]) -> str:
    hashed = xxhash.xxh3_128(content)
    hashed.update(struct.pack("<Q", len(safetensors_header)) + safetensors_header)
    hashed.update(struct.pack(f"<{len(decoded_hashes)}Q", *decoded_hashes))
    return f"{hashed.intdigest():032x}"
