"""Patches that each break one rule of docs/spec/patch.md, or only seem to, built by hand without bitsnap."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field, replace
from typing import Any

import xxhash
import zstandard

from second_reader.container_format import hash64

MAGIC = bytes.fromhex("8942534e50410d0a")
_BLOCK = 65_536


def words(*elements: int) -> bytes:
    return struct.pack(f"<{len(elements)}H", *elements)


def slab_hash(*pieces: bytes) -> int:
    blocks = [piece[at : at + _BLOCK] for piece in pieces for at in range(0, len(piece), _BLOCK)]
    return hash64(b"".join(struct.pack("<Q", hash64(block)) for block in blocks))


def joined_hash(*hashes: int) -> int:
    return xxhash.xxh3_128_intdigest(struct.pack(f"<{len(hashes)}Q", *hashes))


# The example of the document: element 2 is dense, and of the others 1 and 6 change.
BASE = words(0x3F80, 0x3F80, 0x3A00, 0x3F80, 0x3F80, 0x3F80, 0x3F80, 0x3F80)
RESULT = words(0x3F80, 0x3F81, 0x3A10, 0x3F80, 0x3F80, 0x3F80, 0x3F7D, 0x3F80)


@dataclass(frozen=True)
class Changes:
    """A payload of listed changes, by its fields."""

    classes: int = 1
    exponents: bytes = b"\x75\x7f"
    lists: bytes = b"\2\0"
    farther: bytes = b"\1\0\0"
    dense: bytes = b"\2\0\0\x10\x3a"
    bits: bytes = b"\xa2\x0a"

    def payload(self) -> bytes:
        return bytes([1, self.classes]) + self.exponents + self.lists + self.farther + self.dense + self.bits


def tensor(name: str = "w", shape: Any = (8,), **fields: Any) -> dict[str, Any]:
    return {"name": name, "shape": shape, **fields}


def stream(*tensors: Any, dtype: Any = "BF16", slab_bits: Any = 18, **fields: Any) -> dict[str, Any]:
    return {"dtype": dtype, "slab_bits": slab_bits, "tensors": list(tensors or (tensor(),)), **fields}


def top(*streams: Any, **fields: Any) -> dict[str, Any]:
    return {"streams": list(streams or (stream(),)), **fields}


@dataclass(frozen=True)
class PatchParts:
    """A patch whose slabs each have one tensor; `wrong` replaces fields of the header."""

    description: Any = field(default_factory=top)  # bytes are stored as they are
    weights: dict[str, tuple[str, bytes]] = field(default_factory=lambda: {"w": ("BF16", BASE)})
    slabs: tuple[tuple[bytes, bytes, bytes], ...] = ((BASE, Changes().payload(), RESULT),)  # base, payload, result
    table: bytes | None = None
    behind: bytes = b""
    wrong: dict[str, int] = field(default_factory=dict)
    verify_all: bool = False

    def build(self) -> bytes:
        raw = self.description if isinstance(self.description, bytes) else json.dumps(self.description).encode()
        changed = [slab for slab in self.slabs if slab[1]]
        table = self.table
        if table is None:
            table = b"".join(self._entry(*slab) for slab in self.slabs)
        body = raw + table + b"".join(payload for _, payload, _ in changed) + self.behind
        fields = {
            "version": 0,
            "zero": 0,
            "size": 64 + len(body) + 8,
            "stored": len(raw),
            "raw": len(raw),
            "expected": joined_hash(*(slab_hash(base) for base, _, _ in changed)),
            "result": joined_hash(*(slab_hash(result) for _, _, result in changed)),
            "tail": 0,
        } | self.wrong
        header = struct.pack("<8sIIQII", MAGIC, *(fields[key] for key in ("version", "zero", "size", "stored", "raw")))
        ids = b"".join(fields[key].to_bytes(16, "little") for key in ("expected", "result"))
        patch = header + ids + body
        return patch + struct.pack("<Q", hash64(patch) ^ fields["tail"])

    def results(self) -> dict[str, bytes]:
        """By the weights' names, of which each stands for one slab in order."""
        return {name: slab[2] for name, slab in zip(self.weights, self.slabs, strict=False)}

    @staticmethod
    def _entry(base: bytes, payload: bytes, result: bytes) -> bytes:
        if not payload:
            return b"\0"
        hashes = (slab_hash(content) & 0xFFFFFFFF for content in (base, result))
        return number(len(payload)) + struct.pack("<II", *hashes)


def number(value: int) -> bytes:
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def described(description: Any, **fields: Any) -> PatchParts:
    return PatchParts(description, **fields)


def coded(payload: bytes, result: bytes = RESULT, **fields: Any) -> PatchParts:
    return PatchParts(slabs=((BASE, payload, result),), **fields)


def changes(result: bytes = RESULT, **fields: Any) -> PatchParts:
    return coded(replace(Changes(), **fields).payload(), result)


def of_dtype(dtype: str, base: bytes, payload: bytes, result: bytes = b"", slab_bits: int = 18) -> PatchParts:
    """One tensor of another dtype with elements of one byte."""
    return PatchParts(
        top(stream(tensor(shape=[len(base)]), dtype=dtype, slab_bits=slab_bits)),
        {"w": (dtype, base)},
        ((base, payload, result),),
    )


def packed(content: bytes, **wrong: int) -> PatchParts:
    """The description as these bytes, which stand for the usual one."""
    raw = len(json.dumps(top()).encode())
    return PatchParts(content, wrong={"raw": raw} | wrong)


def two_slabs(**fields: Any) -> PatchParts:
    base = words(0x3F80, 0x3F80)
    return PatchParts(
        top(stream(tensor("w", (2,))), stream(tensor("v", (2,)))),
        {"w": ("BF16", base), "v": ("BF16", base)},
        ((base, b"\0\0\0" + words(1, 2), words(1, 2)), (base, b"", base)),
        **fields,
    )


_DESCRIPTION = json.dumps(top()).encode()
_FRAME = zstandard.compress(_DESCRIPTION)
_VALID = PatchParts().build()
_LONG = bytes(262_145)
_UNCHANGED = {"tensors": 0, "hash": f"{joined_hash():032x}"}

ALLOWED: dict[str, PatchParts] = {
    "the example": PatchParts(),
    "no streams": PatchParts({"streams": []}, {}, ()),
    "two streams of one dtype, and a slab without changes": two_slabs(),
    "a description with white space": described(json.dumps(top(), indent=2).encode()),
    "a description in a frame": packed(_FRAME),
    "a description in a longer frame": packed(zstandard.ZstdCompressor(write_checksum=True).compress(_DESCRIPTION)),
    "a key of the metadata twice": described(top(metadata=[["a", "1"], ["a", "2"]])),
    "a tied name that the weights lack": described(top(stream(tensor(tied=["v"])))),
    "a first name that the weights lack": described(top(stream(tensor("v", tied=["w"])))),
    "an empty name": PatchParts(top(stream(tensor(""))), {"": ("BF16", BASE)}),
    "short hashes of the result that are not its own": PatchParts(
        table=b"\x10" + struct.pack("<II", slab_hash(BASE) & 0xFFFFFFFF, 0)
    ),
    "a whole slab": coded(b"\0\0\0" + RESULT),
    "a whole slab as its base": coded(b"\0\2\1", BASE),
    "no listed element": changes(
        BASE[:4] + RESULT[4:6] + BASE[6:], lists=b"\0\x17", farther=b"\0", bits=b"", exponents=b"\x75\x75"
    ),
    "no dense element that changes": changes(RESULT[:4] + BASE[4:6] + RESULT[6:], dense=b"\0"),
    "dense elements that stay": changes(RESULT[:4] + BASE[4:6] + RESULT[6:], dense=b"\2\0\0\0\x3a"),
    # The gaps 0 in 24 bits, the signs 1 and 1, the gap 1, and the distance 65,536, which is no change.
    "gaps in the long form, and a listed element that stays": changes(
        words(0x3F7F, 0x3F80, 0x3A10, *[0x3F80] * 5),
        bits=(3 << 80 | 1 << 83 | 65_534 << 100).to_bytes(15, "little"),
    ),
    # The gap 1, its sign, and a distance of 1 in the class of exponent 127.
    "classes of which the first is empty": changes(
        words(0x3F80, 0x3F81, 0x3A10, *[0x3F80] * 5),
        classes=2,
        exponents=b"\x75\x7f\x7f",
        lists=b"\0\0\1\0",
        farther=b"\0",
        bits=b"\2",
    ),
    "all elements dense": of_dtype("F8_E4M3", b"\x7f\x80", b"\1\0\x10\0\2\0\0\1\2", b"\1\2"),
    "a delta beyond the last exponent": of_dtype("F8_E4M3", b"\x7f\0", b"\1\1\0\x0f\1\0\0\0\1", b"\xff\0"),
}

REJECTED: dict[str, dict[str, PatchParts | bytes]] = {
    "truncated": {
        "no bytes": b"",
        "a part of the magic": _VALID[:7],
        "a part of the version": _VALID[:11],
        "a part of the size": _VALID[:23],
        "a part of the header": _VALID[:63],
        "a missing byte": _VALID[:-1],
        "a part of a second patch": _VALID + _VALID[:70],
        "one byte behind a patch": _VALID + b"\0",
        "a description beyond the tail": PatchParts(wrong={"stored": 1000, "raw": 1000}),
        "more slabs than bytes": described(top(stream(tensor(shape=[1 << 40])))),
        "a table that ends in a size": PatchParts(table=b"\x80", slabs=()),
        "a table that ends in a hash": PatchParts(table=b"\1\0\0\0\0\0\0\0", slabs=()),
        "no table": PatchParts(table=b"", slabs=()),
        "a payload beyond the tail": PatchParts(
            table=b"\x11" + struct.pack("<II", slab_hash(BASE) & 0xFFFFFFFF, slab_hash(RESULT) & 0xFFFFFFFF)
        ),
        "changes without classes": coded(b"\1"),
        "changes without the last exponent": coded(b"\1\1\x75"),
        "a class without a parameter": coded(b"\1\1\x75\x7f\2"),
        "farther elements without a parameter": coded(b"\1\1\x75\x7f\2\0\1\0"),
        "changes without a size of the dense elements": coded(b"\1\1\x75\x7f\2\0\1\0\0"),
        "dense elements without a codec": coded(b"\1\1\x75\x7f\2\0\1\0\0\2\0"),
        "too few dense elements": coded(b"\1\1\x75\x7f\2\0\1\0\0\3\0\0\x10\x3a"),
        "a number that does not end": coded(b"\1\1\x75\x7f\x82"),
        "no bits of the gaps": changes(bits=b""),
        "no bits of the distances": changes(bits=b"\xa2"),
        "a whole slab without a codec": coded(b"\0"),
        "a whole slab without a number of inputs": coded(b"\0\0"),
        "a raw whole slab that is too short": coded(b"\0\0\0" + RESULT[:-1]),
        "raw dense elements that are too short": changes(dense=b"\1\0\0\x10"),
    },
    "unsupported": {
        "another version": PatchParts(wrong={"version": 1, "tail": 1}),
        "another version of the second patch": _VALID + PatchParts(wrong={"version": 1}).build(),
        "an unknown key": described(top(more=1)),
        "an unknown codec": coded(b"\0\xff\0"),
        "an unknown codec of dense elements": changes(dense=b"\2\xff\0\x10\x3a"),
    },
    "corrupt": {
        "another magic": b"\x8a" + _VALID[1:],
        "the magic of a snapshot": bytes.fromhex("8942534e41500d0a"),
        "eight other bytes behind a patch": _VALID + bytes(8),
        "a size without a tail": PatchParts(wrong={"size": 71}),
        "a size below that of the bytes": PatchParts(wrong={"size": len(_VALID) - 1}),
        "another hash in the tail": PatchParts(wrong={"tail": 1}),
        "a reserved byte that is not zero": PatchParts(wrong={"zero": 1}),
        "a description of no bytes": described(b""),
        "a description that is not JSON": described(b'{"streams": []'),
        "a byte order mark": described(b"\xef\xbb\xbf" + _DESCRIPTION),
        "bytes behind the JSON": described(_DESCRIPTION + b"1"),
        "a description that is no frame": packed(b"abcd"),
        "two frames": packed(_FRAME + _FRAME),
        "half a frame": packed(_FRAME[:-2]),
        "a frame of more bytes": packed(_FRAME, raw=len(_DESCRIPTION) - 1),
        "a frame of fewer bytes": packed(_FRAME, raw=len(_DESCRIPTION) + 1),
        "a raw size that no frame can have": packed(_FRAME, raw=1 << 27),
        "a key twice": described(b'{"streams": [], "streams": []}'),
        "no streams key": described({"from": "a"}),
        "null for an optional key": described(top(unchanged=None)),
        "a version that is no string": described(top(to=1)),
        "a stream without tensors": described({"streams": [{"dtype": "BF16", "slab_bits": 18, "tensors": []}]}),
        "a stream without slab_bits": described(top({"dtype": "BF16", "tensors": [tensor()]})),
        "slabs of 2^17 places": described(top(stream(slab_bits=17))),
        "slabs of 2^25 places": described(top(stream(slab_bits=25))),
        "slab_bits with a fraction": described(top(stream(slab_bits=18.0))),
        "a tensor without a shape": described(top(stream({"name": "w"}))),
        "a name twice": described(top(stream(tensor(), tensor()))),
        "a name in two streams": described(top(stream(), stream(dtype="F32"))),
        "a tied name twice": described(top(stream(tensor(tied=["v", "v"])))),
        "a tensor that is tied to itself": described(top(stream(tensor(tied=["w"])))),
        "bytes of a known dtype": described(top(stream(tensor(bytes=16)))),
        "no bytes of an opaque dtype": described(top(stream(dtype="F4"))),
        "a tensor of size 0": described(top(stream(tensor(shape=[4, 0])))),
        "an opaque tensor of size 0": described(top(stream(tensor(bytes=0), dtype="F4"))),
        "a tensor of 2^63 bytes": described(top(stream(tensor(shape=[1 << 62])))),
        "a negative extent": described(top(stream(tensor(shape=[-8])))),
        "unchanged tensors without a hash": described(top(unchanged={"tensors": 1})),
        "a hash in capitals": described(top(unchanged={"tensors": 0, "hash": "A" * 32})),
        "a hash of 31 digits": described(top(unchanged={"tensors": 0, "hash": "a" * 31})),
        "metadata that is an object": described(top(metadata={"a": "b"})),
        "metadata of three strings": described(top(metadata=[["a", "b", "c"]])),
        "a size with a superfluous byte": PatchParts(table=b"\x80\0", slabs=()),
        "a size of six bytes": PatchParts(table=b"\x80\x80\x80\x80\x80\1", slabs=()),
        "a byte behind the last payload": PatchParts(behind=b"\0"),
        "another method": coded(b"\2"),
        "changes of integers": of_dtype("U8", bytes(8), b"\1\0\0\0\0"),
        "a whole slab that is too long": of_dtype("U8", _LONG, b"\0\2\1", slab_bits=19),
        "a codec with two inputs": coded(b"\0\2\2"),
        "raw with an input": coded(b"\0\0\1" + RESULT),
        "ordinal_delta without an input": coded(b"\0\7\0\1\x7f\1" + bytes(8)),
        "float_split of integers": of_dtype("U8", bytes(8), b"\0\5\0\0\1\0"),
        "a raw whole slab that is too long": coded(b"\0\0\0" + RESULT + b"\0"),
        "raw dense elements that are too long": changes(dense=b"\3\0\0\x10\x3a\0"),
        "raw dense elements with an input": changes(dense=b"\2\0\1\x10\x3a"),
        "nine classes": changes(classes=9, exponents=bytes(range(0x76, 0x80)), lists=b"\0\0" * 8 + b"\2\0"),
        "two classes from one exponent": changes(classes=2, exponents=b"\x75\x75\x7f", lists=b"\0\0\2\0"),
        "classes out of order": changes(classes=2, exponents=b"\x75\x74\x7f", lists=b"\0\0\2\0"),
        "a class that ends before it begins": changes(exponents=b"\x75\x74"),
        "an exponent that the dtype lacks": of_dtype("F8_E4M3", b"\x7f\x00", b"\1\1\0\x10\1\0\0\0\3"),
        "dense elements beyond the last exponent": of_dtype("F8_E4M3", b"\x7f\x80", b"\1\0\x11\0\2\0\0\1\2"),
        "a parameter of a gap of 24": changes(lists=b"\2\x18"),
        "a parameter of a class without changes of 24": changes(
            classes=2, exponents=b"\x75\x76\x7f", lists=b"\0\x18\2\0"
        ),
        "a parameter of a farther gap of 24": changes(farther=b"\1\x18\0"),
        "a parameter of a distance of 16": changes(farther=b"\1\0\x10"),
        "more listed elements than elements": changes(lists=b"\x09\0"),
        "more farther elements than listed ones": changes(farther=b"\3\0\0"),
        "a number with a superfluous byte": changes(lists=b"\x82\0\0"),
        "a number of five bytes": changes(lists=b"\x82\x80\x80\x80\0\0"),
        # The gaps 5 and 1: of seven members, the last is number 6.
        "a gap beyond the class": changes(farther=b"\0", bits=b"\xa0\0"),
        "a gap beyond the slab": changes(farther=b"\0", bits=b"\x02\x08"),
        # The gaps 1 and 3, the signs 0 and 1, the gap 2, and the distance 2.
        "a gap beyond the listed elements": changes(bits=b"\xa2\x0c"),
        "dense elements where there are none": changes(exponents=b"\x74\x7f"),
        "too many dense elements": of_dtype("F8_E4M3", _LONG, b"\1\0\x10\0\1\2\1\0", slab_bits=19),
        "a bit behind the last number": changes(bits=b"\xa2\x1a"),
        "a byte behind the last bit": changes(bits=b"\xa2\x0a\0"),
        "another hash of the result": PatchParts(
            top(unchanged=_UNCHANGED), wrong={"result": joined_hash(slab_hash(BASE))}, verify_all=True
        ),
    },
}

# The weights are not the base: none of the faults of a patch, even if the payload has one.
WRONG_BASES: dict[str, PatchParts] = {
    "other weights": replace(PatchParts(), weights={"w": ("BF16", RESULT)}),
    "other weights that make a payload corrupt": replace(changes(bits=b"\xa2\x1a"), weights={"w": ("BF16", bytes(16))}),
    "another short hash": PatchParts(table=b"\x10" + struct.pack("<II", 0, slab_hash(RESULT) & 0xFFFFFFFF)),
    "another hash of all slabs": PatchParts(wrong={"expected": 1}),
    "tied tensors that differ": PatchParts(
        top(stream(tensor(tied=["v"]))), {"w": ("BF16", BASE), "v": ("BF16", RESULT)}
    ),
}

# Objects within the description: unknown keys are unsupported there as well.
NESTED_KEYS: dict[str, PatchParts] = {
    "an unknown key of a stream": described(top(stream(more=1))),
    "an unknown key of a tensor": described(top(stream(tensor(more=1)))),
    "an unknown key of what is unchanged": described(top(unchanged=_UNCHANGED | {"more": 1})),
}


def rejected() -> list[tuple[str, str, PatchParts | bytes]]:
    return [(fault, name, parts) for fault, cases in REJECTED.items() for name, parts in cases.items()]
