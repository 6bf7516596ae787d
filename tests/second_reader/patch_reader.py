"""A second reader of patches, written from docs/spec/patch.md alone, to test the specification.

`apply_patches` gives the weights that patches make of their base. It holds everything in memory and is slow: it is for
tests. It shares no code with bitsnap.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import xxhash

from second_reader import zstd_frame
from second_reader.chunk_codecs import ELEMENT_SIZES, OPAQUE
from second_reader.container_format import MAX_INDEX_SIZE, hash64
from second_reader.patch_slabs import read_number, read_slab
from second_reader.rans_lanes import Cursor
from second_reader.reader_errors import BaseMissing, Corrupt, LimitReached, ReaderError, Truncated, Unsupported, require
from second_reader.strict_json import check_type, count, counts, members, parse

MAGIC = bytes.fromhex("8942534e50410d0a")
HEADER_SIZE = 64
TAIL_SIZE = 8
_PLACE_UNIT = 64
_HASH_BLOCK = 65_536
_MAX_SIZE = 2**63 - 1

Weights = Mapping[str, tuple[str, bytes]]  # dtype and bytes by name


class WrongBase(ReaderError):  # noqa: N818 - not a fault of the patch
    """The weights are not the base of the patch."""


@dataclass(frozen=True)
class PatchTensor:
    names: list[str]
    dtype: str
    shape: list[int]
    size: int


@dataclass(frozen=True)
class PatchStream:
    dtype: str
    slab_bits: int
    tensors: list[PatchTensor]

    @property
    def width(self) -> int:
        return ELEMENT_SIZES.get(self.dtype, 1)


@dataclass(frozen=True)
class Piece:
    tensor: PatchTensor
    begin: int  # in bytes
    end: int


@dataclass
class Slab:
    stream: PatchStream
    pieces: list[Piece]
    payload: bytes = b""
    expected: int = 0
    result: int = 0


@dataclass(frozen=True)
class Patch:
    expected: int
    result: int
    slabs: list[Slab]
    streams: list[PatchStream]
    origin: str  # `from`
    target: str  # `to`
    metadata: list[tuple[str, str]]
    unchanged: tuple[int, int] | None  # tensors and hash

    @property
    def changed_slabs(self) -> list[Slab]:
        return [slab for slab in self.slabs if slab.payload]

    @property
    def tensors(self) -> list[PatchTensor]:
        return [tensor for stream in self.streams for tensor in stream.tensors]


def read_patches(data: bytes) -> list[Patch]:
    """All patches that were joined to these bytes."""
    patches = []
    while True:
        size = _checked_size(data)
        patches.append(_read_patch(data[:size]))
        data = data[size:]
        if not data:
            return patches


def apply_patches(data: bytes, weights: Weights) -> dict[str, bytes]:
    """What the patches make of the weights; of tied tensors, all names that the weights have."""
    state = {name: bytearray(content) for name, (_, content) in weights.items()}
    dtypes = {name: dtype for name, (dtype, _) in weights.items()}
    for patch in read_patches(data):
        _apply(patch, state, dtypes)
    return {name: bytes(content) for name, content in state.items()}


def check_unchanged(patch: Patch, weights: Weights) -> None:
    """Raises WrongBase if the weights differ from the base where nothing changes."""
    if patch.unchanged is None:
        raise ValueError("a patch without hashes of what does not change")
    state = {name: bytearray(content) for name, (_, content) in weights.items()}
    hashes = [_slab_hash(slab, state) for slab in patch.slabs if not slab.payload]
    named = {name for tensor in patch.tensors for name in tensor.names}
    rest = sorted((name for name in weights if name not in named), key=str.encode)
    for name in rest:
        hashes += [hash64(name.encode()), _blocks_hash([state[name]])]
    if patch.unchanged != (len(rest), _joined_hash(hashes)):
        raise WrongBase("the weights differ where nothing changes")


def _checked_size(data: bytes) -> int:
    if len(data) < len(MAGIC):
        raise Truncated(f"patch of {len(data)} bytes")
    require(data[:8] == MAGIC, "not a patch: it does not begin with the magic")
    if len(data) < 12:
        raise Truncated(f"patch of {len(data)} bytes")
    [version] = struct.unpack_from("<I", data, 8)
    if version != 0:
        raise Unsupported(f"format version {version}")
    if len(data) < 24:
        raise Truncated(f"patch of {len(data)} bytes")
    [size] = struct.unpack_from("<Q", data, 16)
    require(size >= HEADER_SIZE + TAIL_SIZE, f"patch of a size of {size}")
    if size > len(data):
        raise Truncated(f"patch of {size} bytes, {len(data)} are there")
    return int(size)


def _read_patch(data: bytes) -> Patch:
    body = data[:-TAIL_SIZE]
    require(hash64(body) == int.from_bytes(data[-TAIL_SIZE:], "little"), "wrong hash of the patch")
    zero, stored_size, raw_size = struct.unpack_from("<I8xII", body, 12)
    require(zero == 0, "header: a reserved byte is not zero")
    expected, result = (int.from_bytes(body[at : at + 16], "little") for at in (32, 48))
    cursor = Cursor(body, "patch")
    cursor.take(HEADER_SIZE)
    fields = _description(cursor.take(stored_size), raw_size)
    streams = _streams(fields["streams"])
    slabs = _read_table(cursor, streams)
    origin, target = (check_type(fields.get(key, ""), str, f"description: {key}") for key in ("from", "to"))
    return Patch(expected, result, slabs, streams, origin, target, _metadata(fields), _unchanged(fields))


def _description(stored: bytes, raw_size: int) -> dict[str, Any]:
    if raw_size > MAX_INDEX_SIZE:
        raise LimitReached(f"description of {raw_size} bytes")
    if len(stored) != raw_size:
        try:
            stored = zstd_frame.decompress(stored, raw_size, "description")
        except Truncated as error:  # the patch goes on behind the description
            raise Corrupt(f"description: {error}") from error
    optional = {"unchanged", "from", "to", "metadata"}
    return members(parse(stored, "description"), "description", {"streams"}, optional, closed=True)


def _streams(value: Any) -> list[PatchStream]:
    streams = []
    for number, entry in enumerate(check_type(value, list, "description: streams")):
        where = f"description: stream {number}"
        fields = members(entry, where, {"dtype", "slab_bits", "tensors"}, set(), closed=True)
        dtype = check_type(fields["dtype"], str, f"{where}: dtype")
        slab_bits = count(fields["slab_bits"], f"{where}: slab_bits")
        require(18 <= slab_bits <= 24, f"{where}: slab_bits {slab_bits}")
        tensors = [_tensor(item, dtype, where) for item in check_type(fields["tensors"], list, f"{where}: tensors")]
        require(bool(tensors), f"{where}: no tensors")
        streams.append(PatchStream(dtype, slab_bits, tensors))
    names = [name for stream in streams for tensor in stream.tensors for name in tensor.names]
    require(len(set(names)) == len(names), "description: a name occurs twice")
    return streams


def _tensor(entry: Any, dtype: str, where: str) -> PatchTensor:
    fields = members(entry, f"{where}: tensor", {"name", "shape"}, {"tied", "bytes"}, closed=True)
    tied = check_type(fields.get("tied", []), list, f"{where}: tied")
    names = [check_type(name, str, f"{where}: name of a tensor") for name in (fields["name"], *tied)]
    shape = counts(fields["shape"], f"{where}: shape")
    if dtype in ELEMENT_SIZES:
        require("bytes" not in fields, f"{where}: bytes of the known dtype {dtype}")
        size = math.prod(shape) * ELEMENT_SIZES[dtype]
        require(size <= _MAX_SIZE, f"{where}: shape {shape[:8]} is too large")
    else:
        require("bytes" in fields, f"{where}: no bytes of the opaque dtype {dtype}")
        size = count(fields["bytes"], f"{where}: bytes")
    require(size > 0, f"{where}: {names[0]!r} has the size 0")
    return PatchTensor(names, dtype, shape, size)


def _metadata(fields: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = []
    for pair in check_type(fields.get("metadata", []), list, "description: metadata"):
        require(len(check_type(pair, list, "description: metadata")) == 2, "description: metadata of no pair")
        key, value = (check_type(text, str, "description: metadata") for text in pair)
        pairs.append((key, value))
    return pairs


def _unchanged(fields: dict[str, Any]) -> tuple[int, int] | None:
    if "unchanged" not in fields:
        return None
    own = members(fields["unchanged"], "description: unchanged", {"tensors", "hash"}, set(), closed=True)
    digits = check_type(own["hash"], str, "description: hash of what is unchanged")
    require(re.fullmatch("[0-9a-f]{32}", digits) is not None, f"description: {digits!r} is no hash")
    return count(own["tensors"], "description: unchanged tensors"), int(digits, 16)


def _placed(stream: PatchStream) -> list[tuple[PatchTensor, int, int]]:
    """Each tensor with its first place and the one behind its last."""
    placed = []
    place = 0
    for tensor in stream.tensors:
        end = place + tensor.size // stream.width
        placed.append((tensor, place, end))
        place = -(-end // _PLACE_UNIT) * _PLACE_UNIT
        require(place < 2**64, "description: more places than can be counted")
    return placed


def _slabs_of(stream: PatchStream) -> Iterator[Slab]:
    placed = _placed(stream)
    for begin in range(0, placed[-1][2], 1 << stream.slab_bits):
        end = begin + (1 << stream.slab_bits)
        pieces = [
            Piece(tensor, (max(begin, first) - first) * stream.width, (min(end, last) - first) * stream.width)
            for tensor, first, last in placed
            if first < end and last > begin
        ]
        yield Slab(stream, pieces)


def _read_table(cursor: Cursor, streams: list[PatchStream]) -> list[Slab]:
    slab_count = sum(-(-_placed(stream)[-1][2] // (1 << stream.slab_bits)) for stream in streams)
    if slab_count > len(cursor.data) - cursor.offset:
        raise Truncated(f"{slab_count} slabs in {len(cursor.data) - cursor.offset} bytes")
    slabs = [slab for stream in streams for slab in _slabs_of(stream)]
    sizes = []
    for slab in slabs:
        sizes.append(read_number(cursor, 5))
        if sizes[-1]:
            slab.expected, slab.result = cursor.numbers(2)
    for slab, size in zip(slabs, sizes, strict=True):
        slab.payload = cursor.take(size)
    cursor.require_end()
    return slabs


def _blocks_hash(pieces: list[bytearray]) -> int:
    blocks = [piece[at : at + _HASH_BLOCK] for piece in pieces for at in range(0, len(piece), _HASH_BLOCK)]
    return hash64(b"".join(struct.pack("<Q", hash64(bytes(block))) for block in blocks))


def _joined_hash(hashes: list[int]) -> int:
    return xxhash.xxh3_128_intdigest(struct.pack(f"<{len(hashes)}Q", *hashes))


def _piece_contents(slab: Slab, state: dict[str, bytearray]) -> list[bytearray]:
    contents = []
    for piece in slab.pieces:
        name = next(name for name in piece.tensor.names if name in state)
        contents.append(state[name][piece.begin : piece.end])
    return contents


def _slab_hash(slab: Slab, state: dict[str, bytearray]) -> int:
    return _blocks_hash(_piece_contents(slab, state))


def _check_tensors(patch: Patch, state: dict[str, bytearray], dtypes: dict[str, str]) -> None:
    for tensor in patch.tensors:
        names = [name for name in tensor.names if name in state]
        if not names:
            raise BaseMissing(f"no tensor {tensor.names}")
        for name in names:
            if dtypes[name] != tensor.dtype or len(state[name]) != tensor.size:
                raise WrongBase(f"{name!r} is {dtypes[name]} of {len(state[name])} bytes")
            if state[name] != state[names[0]]:
                raise WrongBase(f"{name!r} and {names[0]!r} are tied in the patch")


def _apply(patch: Patch, state: dict[str, bytearray], dtypes: dict[str, str]) -> None:
    _check_tensors(patch, state, dtypes)
    changed = patch.changed_slabs
    expected = [_slab_hash(slab, state) for slab in changed]
    right = all(own & 0xFFFFFFFF == slab.expected for own, slab in zip(expected, changed, strict=True))
    if not right or _joined_hash(expected) != patch.expected:
        raise WrongBase("a slab has another hash")
    made = []
    for slab in changed:
        dtype = slab.stream.dtype if slab.stream.dtype in ELEMENT_SIZES else OPAQUE
        made.append(read_slab(slab.payload, dtype, b"".join(_piece_contents(slab, state))))
    for slab, elements in zip(changed, made, strict=True):
        at = 0
        for piece in slab.pieces:
            size = piece.end - piece.begin
            for name in piece.tensor.names:
                if name in state:
                    state[name][piece.begin : piece.end] = elements[at : at + size]
            at += size
    result = _joined_hash([_slab_hash(slab, state) for slab in changed])
    require(result == patch.result, "the patch makes slabs of another hash")
