"""Builds snapshot files by hand, from docs/spec/snapshot.md alone, including files that break its rules.

`Parts` holds the parts of a file, and `build` assembles it with correct offsets, sizes, hashes and id, except those
that the parts replace. The caller provides the payloads; nothing is encoded here.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

import zstandard

from second_reader.container_format import FOOTER_MAGIC, HEADER_MAGIC, hash64, snapshot_id


@dataclass
class ChunkPart:
    codec: int
    payload: bytes
    decoded: bytes
    inputs: tuple[int, ...] = ()
    depth: int = 0
    parameters: int = 0xFFFF
    # Fields of the row that replace the correct ones.
    wrong: dict[str, Any] = field(default_factory=dict)

    def row(self, offset: int) -> bytes:
        fields = {
            "offset": offset if self.payload else 0,
            "stored_hash": hash64(self.payload),
            "decoded_hash": hash64(self.decoded),
            "size": len(self.payload),
            "codec": self.codec,
            "parameters": self.parameters,
            "inputs": bytes(self.inputs).ljust(4, b"\xff"),
            "depth": self.depth,
            "zeros": bytes(3),
        }
        return struct.pack("<QQQIHH4sB3s", *(fields | self.wrong).values())


@dataclass
class Parts:
    content: Any
    encoding: Any = None  # by default no bases, and streams without anything
    chunks: list[ChunkPart] = field(default_factory=list)
    parameters: bytes | None = None
    safetensors_header: bytes | None = None
    compressed: set[int] = field(default_factory=set)  # kinds of the sections to compress
    gap: bytes = b""  # between the payloads and the index
    # Replacements by kind: whole sections (None omits one), and rows of the index.
    sections: dict[int, bytes | None] = field(default_factory=dict)
    section_rows: dict[int, bytes] = field(default_factory=dict)
    raw_sizes: dict[int, int] = field(default_factory=dict)
    index_tail: bytes = b""
    index_zero: int = 0
    wrong_id: str | None = None
    # Replacement bytes by offset, applied before their hash is computed.
    header: dict[int, bytes] = field(default_factory=dict)
    footer: dict[int, bytes] = field(default_factory=dict)


def to_json(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _replace(data: bytes, replaced: dict[int, bytes]) -> bytes:
    for offset, piece in replaced.items():
        data = data[:offset] + piece + data[offset + len(piece) :]
    return data


def build(parts: Parts) -> bytes:
    header = _replace(HEADER_MAGIC + bytes(48), parts.header)
    header += hash64(header).to_bytes(8, "little")

    body = b""
    table = b""
    for chunk in parts.chunks:
        table += chunk.row(64 + len(body))
        body += chunk.payload
    body += parts.gap

    encoding = {"streams": [{} for _ in parts.chunks]} if parts.encoding is None else parts.encoding
    sections: dict[int, bytes | None] = {
        1: to_json(parts.content),
        2: to_json(encoding),
        3: table,
        4: parts.parameters,
        5: parts.safetensors_header,
    } | parts.sections
    rows = b""
    stored_sections = b""
    present = [(kind, raw) for kind, raw in sections.items() if raw is not None]
    for kind, raw in present:
        compress = kind in parts.compressed
        stored = zstandard.ZstdCompressor().compress(raw) if compress else raw
        raw_size = parts.raw_sizes.get(kind, len(raw))
        rows += parts.section_rows.get(kind, struct.pack("<IIQQ", kind, compress, len(stored), raw_size))
        stored_sections += stored
    index = struct.pack("<II", len(present), parts.index_zero) + rows + stored_sections + parts.index_tail

    hashes = [int.from_bytes(table[at + 16 : at + 24], "little") for at in range(0, len(table), 40)]
    own_id = parts.wrong_id or snapshot_id(sections[1] or b"", sections.get(5) or b"", hashes)
    id_bytes = bytes.fromhex(own_id)[::-1]
    footer = struct.pack("<QQQ16s8x", 64 + len(body), len(index), hash64(index), id_bytes)
    footer = _replace(footer, parts.footer)
    return header + body + index + footer + hash64(footer).to_bytes(8, "little") + FOOTER_MAGIC
