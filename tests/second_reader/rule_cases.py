"""Files that each break one rule of docs/spec, or only seem to, with the result that every reader must return.

The cases are built by hand without bitsnap. Cases of one kind are in one table.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

from second_reader.bsnap_builder import ChunkPart, Parts, build

FAULTS = ("truncated", "corrupt", "unsupported")

_ONES = struct.pack("<4H", *[0x3F80] * 4)
_OTHER = struct.pack("<4H", 0x3F80, 0x3F81, 0x3F82, 0x3F83)
_BASE_ID = "00112233445566778899aabbccddeeff"


def tensor(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "dtype": "BF16", "shape": [4], "role": "weight"} | fields


def _content(*entries: Any, **rest: Any) -> dict[str, Any]:
    return {"tensors": list(entries or (tensor("a"),)), **rest}


def _one(entry: dict[str, Any] | None = None, **parts: Any) -> Parts:
    """One tensor of four bf16 elements in one raw chunk."""
    return Parts(_content(entry or tensor("a")), chunks=[ChunkPart(0, _OTHER, _OTHER)], **parts)


def _row(**wrong: Any) -> Parts:
    return Parts(_content(), chunks=[ChunkPart(0, _OTHER, _OTHER, wrong=wrong)])


def _coded(codec: int, payload: bytes) -> Parts:
    """Four bf16 zeros as this payload."""
    return Parts(_content(), chunks=[ChunkPart(codec, payload, bytes(8))])


_LANED = 1024
_LANED_TABLE = b"\1\x7f\x80"  # 7F has half of the slots, the escape the other half


def _lanes(
    *,
    table: bytes = _LANED_TABLE,
    sizes: tuple[int, ...] = (0,) * 5,
    behind: bytes = b"",
    low: int = 0,
    high: int = 16,
    others: int = 16,
) -> Parts:
    """1024 times 1.0 as split elements: 7F doubles a state in each of the four rounds, and no byte is written."""
    lanes = bytes([low] + [0] * 63) + bytes([high] + [others] * 63) + (bytes(64) + bytes([others] * 64)) * 3
    payload = b"\4" + struct.pack("<5I", *sizes) + bytes(_LANED) + table + behind + lanes
    decoded = struct.pack(f"<{_LANED}H", *[0x3F80] * _LANED)
    return Parts(_content(tensor("a", shape=[_LANED])), chunks=[ChunkPart(5, payload, decoded)])


def _bare(content: Any, **parts: Any) -> Parts:
    """A content without chunks: all tensors are empty, or the fault is found before chunks matter."""
    return Parts(content, encoding=parts.pop("encoding", {}), **parts)


def _empty(**fields: Any) -> dict[str, Any]:
    return tensor("e") | {"shape": [0]} | fields


def _tree(value: Any) -> Parts:
    text = value if isinstance(value, str) else json.dumps(value)
    tensors = json.dumps([_empty(), _empty(name="f")])
    return _bare(f'{{"tensors":{tensors},"tree":{text}}}'.encode())


def _with_encoding(encoding: Any, **parts: Any) -> Parts:
    return _one(encoding=encoding, **parts)


def _bases(*bases: Any) -> Parts:
    return _with_encoding({"streams": [{}], "bases": list(bases)})


def peers(second: ChunkPart, inputs: list[dict[str, Any]] | None = None, dtype: str = "BF16", n: int = 4) -> Parts:
    """Two tensors; the second one's chunk may have the first one's stream as an input."""
    inputs = [{"stream": 0, "element": 0}] if inputs is None else inputs
    content = _content(tensor("a"), tensor("b", dtype=dtype, shape=[n]))
    encoding = {"streams": [{}, {"inputs": inputs}]}
    return Parts(content, encoding, [ChunkPart(1, b"\x80\x3f", _ONES), second])


def _chain(length: int) -> Parts:
    """`count` tensors, each equal to the one before."""
    streams = [{}, *({"inputs": [{"stream": before, "element": 0}]} for before in range(length - 1))]
    chunks = [ChunkPart(0, _ONES, _ONES), *(ChunkPart(2, b"", _ONES, (0,)) for _ in range(length - 1))]
    return Parts(_content(*(tensor(f"t{number}") for number in range(length))), {"streams": streams}, chunks)


def _ignored(depth: int) -> Parts:
    """An encoding with an ignored value that nests `depth` levels."""
    return _bare({"tensors": []}, encoding=b'{"x":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}")


def _nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth - 1):
        value = [value]
    return value


def _parameters(section: bytes | None, sizes: Any, of_stream: Any, index: int) -> Parts:
    encoding = {"streams": [{"parameters": of_stream}], "parameters": sizes}
    return Parts(_content(), encoding, [ChunkPart(0, _OTHER, _OTHER, parameters=index)], parameters=section)


def _bits(value: float) -> str:
    return struct.pack(">d", value).hex()


_SAME = ChunkPart(2, b"", _ONES, (0,))

ALLOWED: dict[str, Parts] = {
    "one tensor": _one(),
    "no tensors": _bare({"tensors": []}),
    "an encoding without anything": _bare({"tensors": []}, encoding={}),
    "unknown keys in the encoding": _with_encoding({"streams": [{"x": 1}], "y": [{"x": {}}], "bases": []}),
    "compressed sections": _one(compressed={1, 2, 3}),
    "a size 0 with a factor beyond 64 bits": _bare(_content(_empty(shape=[2**63, 0, 2**63]))),
    "a tensor of no name": _one(tensor("")),
    "the whole of unicode in a name": _one(tensor("\u0000\ud7ff\ue000\U0010ffff")),
    "an escaped pair of surrogates": _bare(b'{"tensors":[],"metadata":{"\\ud83d\\ude00":"\\u0000"}}'),
    "split elements": _lanes(),
    "split elements of one symbol": _lanes(table=b"\1\x7f\0", low=0, high=1, others=1),
    "split elements whose symbols have all slots": _lanes(table=b"\2\x7f\x7e\x80\x80"),
    "an opaque tensor": Parts(
        _content(tensor("a", dtype="F4", shape=[7], bytes=4)), chunks=[ChunkPart(0, b"\x01\x02\x03\x04", b"\1\2\3\4")]
    ),
    "an alias of a tensor in the pool": Parts(
        _content(tensor("a", pool=0), tensor("b", alias=0), pool=8), chunks=[ChunkPart(0, _OTHER, _OTHER)]
    ),
    "a pool with gaps and overlaps": Parts(
        _content(tensor("a", pool=2, shape=[2]), tensor("b", pool=3, shape=[2]), pool=8),
        chunks=[ChunkPart(0, _OTHER, _OTHER)],
    ),
    "a box": _one(tensor("a", global_shape=[9], offset=[5])),
    "a box with the name of its tensor": _one(tensor("a", global_shape=[9], offset=[5], global_name="b")),
    "a peer": peers(_SAME),
    "a part of a peer": peers(ChunkPart(2, b"", _ONES[:4], (0,)), [{"stream": 0, "element": 2}], n=2),
    "payloads in another order": Parts(
        _content(tensor("a"), tensor("b")),
        chunks=[
            ChunkPart(0, _OTHER, _OTHER, wrong={"offset": 72}),
            ChunkPart(0, _OTHER, _OTHER, wrong={"offset": 64}),
        ],
    ),
    "a base that nothing needs": _bases({"id": _BASE_ID, "name": "x"}),
    "an empty parameter set": _parameters(b"", [0], [0], 0),
    "an empty parameter set without a section": _parameters(None, [0], [0], 0),
    "64 inputs in a row": _chain(65),
    "JSON that nests 512 deep": _ignored(512),
    "an input of another opaque dtype": Parts(
        _content(tensor("a", dtype="F4", bytes=4), tensor("b", dtype="F6", bytes=4)),
        {"streams": [{}, {"inputs": [{"stream": 0, "element": 0}]}]},
        [ChunkPart(0, b"abcd", b"abcd"), ChunkPart(2, b"", b"abcd", (0,))],
    ),
    "a base without a name": _bases({"id": _BASE_ID}),
    "minus zero": _bare(b'{"tensors":[{"name":"a","dtype":"U8","shape":[-0],"role":"other"}],"tree":-0}'),
    "128 values deep": _tree(_nested(128)),
    "keys that are equal numbers": _tree(
        {"dict": [[1, None], [1.0, None], [True, None], [0.0, None], [-0.0, None], [0, None], [False, None]]}
    ),
    "NaN keys of other bits": _tree(
        {"dict": [[{"f64": "7ff8000000000000"}, None], [{"f64": "7ff8000000000001"}, None]]}
    ),
    "a long integer": _tree({"int": "-" + "9" * 3000}),
    "an integer at the limit": _tree([2**53 - 1, -(2**53) + 1]),
    "an integer beyond the limit": _tree([{"int": str(2**53)}, {"int": str(-(2**53))}]),
    "a double with an exponent": _tree("[1e3, 1E+3, 4.9406564584124654e-324, 1e-400]"),
    "complex parts": _tree({"complex": [{"f64": _bits(math.inf)}, -0.0]}),
    "typed values of any name": _tree([{"typed": ["no.such_Type1", None]}, {"typed": ["z" * 64, {"dict": []}]}]),
    "typed values as keys": _tree({"dict": [[{"typed": ["a", 1]}, 1], [{"typed": ["b", 1]}, 1], [{"tuple": []}, 1]]}),
    "empty kinds": _tree([{"bytes": ""}, {"tuple": []}, {"dict": []}, [], ""]),
}

REJECTED: dict[str, dict[str, Parts | bytes]] = {
    "truncated": {
        "an empty file": b"",
        "a header alone": build(_one())[:64],
        "a file without its last byte": build(_one())[:-1],
        "a section too long for the index": _one(section_rows={1: struct.pack("<IIQQ", 1, 0, 4096, 4096)}),
        "a raw payload too short": Parts(_content(), chunks=[ChunkPart(0, _OTHER[:7], _OTHER)]),
        "a constant payload too short": Parts(_content(), chunks=[ChunkPart(1, b"\x80", _ONES)]),
        "byte_group without a payload": Parts(
            _content(tensor("a", shape=[9], dtype="U8")), chunks=[ChunkPart(4, b"", bytes(9))]
        ),
        "float_split without a payload": Parts(_content(), chunks=[ChunkPart(5, b"", _OTHER)]),
        "byte_group without its second plane": _coded(4, b"\1\0"),
        "a stream that goes on behind the payload": _lanes(sizes=(0, 0, 1, 0, 0)),
        "escapes that go on behind the payload": _lanes(sizes=(0, 0, 0, 0, 2**32 - 1)),
    },
    "unsupported": {
        "another version": _one(header={8: b"\x01"}),
        "another version with a wrong hash": build(_one())[:8] + b"\x01" + build(_one())[9:],
        "a required feature": _one(header={23: b"\x80"}),
        "an unknown section": _one(sections={6: b""}),
        "another encoding of a section": _one(section_rows={2: struct.pack("<IIQQ", 2, 2, 16, 16)}),
        "an unknown key in the content": _bare(_content(_empty(), extra=1)),
        "an unknown key in a tensor": _bare(_content(_empty(extra=1))),
        "an unknown codec": Parts(_content(), chunks=[ChunkPart(999, _OTHER, _OTHER)]),
    },
    "corrupt": {
        "another magic": b"\x88" + build(_one())[1:],
        "a header byte that is not zero": _one(header={12: b"\x01"}),
        "another header byte that is not zero": _one(header={55: b"\x01"}),
        "a footer byte that is not zero": _one(footer={40: b"\x01"}),
        "an index within the header": _bare({"tensors": []}, footer={0: b"\x3f"}),
        "an index that is too long": _one(footer={8: b"\xff\xff"}),
        "an index count that is not followed by zero": _one(index_zero=1),
        "bytes behind the sections": _one(index_tail=b"\x00"),
        "a raw size that is not the stored one": _one(section_rows={2: struct.pack("<IIQQ", 2, 0, 16, 15)}),
        "a compressed section of a smaller raw size": _one(compressed={1}, raw_sizes={1: 10}),
        "a compressed section of a larger raw size": _one(compressed={1}, raw_sizes={1: 1000}),
        "a compressed section that is no zstd frame": _one(section_rows={2: struct.pack("<IIQQ", 2, 1, 16, 16)}),
        "a compressed section that is cut short": _one(
            sections={2: b"\x28\xb5\x2f\xfd\x20"}, section_rows={2: struct.pack("<IIQQ", 2, 1, 5, 16)}
        ),
        "sections out of order": _one(section_rows={3: struct.pack("<IIQQ", 1, 0, 40, 40)}),
        "no encoding": _one(sections={2: None}),
        "no chunk table": _bare({"tensors": []}, sections={3: None}),
        "bytes between payloads and index": _one(gap=b"\x00"),
        "a wrong id": _one(wrong_id=_BASE_ID),
        "content that is not JSON": _bare(b"{"),
        "content that is not UTF-8": _bare(b'{"tensors":[],"metadata":{"\xff":""}}'),
        "a byte order mark": _bare(b'\xef\xbb\xbf{"tensors":[]}'),
        "a key twice": _bare(b'{"tensors":[],"tensors":[]}'),
        "a metadata key twice": _bare(b'{"tensors":[],"metadata":{"a":"","\\u0061":""}}'),
        "a key twice in an ignored value": _with_encoding(b'{"streams":[{}],"x":{"a":1,"a":1}}'),
        "a lone surrogate": _bare(b'{"tensors":[],"metadata":{"a":"\\ud800"}}'),
        "NaN in JSON": _bare(b'{"tensors":[],"tree":NaN}'),
        "a comment in JSON": _bare(b'{"tensors":[]/**/}'),
        "content that is a list": _bare([]),
        "no tensors": _bare({}),
        "a tensor without role": _bare({"tensors": [{"name": "a", "dtype": "U8", "shape": [0]}]}),
        "an unknown role": _bare(_content(_empty(role="bias"))),
        "two tensors of one name": _bare(_content(_empty(), _empty())),
        "a negative extent": _bare(_content(_empty(shape=[-1]))),
        "an extent that is a double": _bare(_content(_empty(shape=[0.0]))),
        "an extent that is a boolean": _bare(_content(_empty(shape=[False]))),
        "a size beyond 64 bits": _bare(_content(tensor("a", shape=[2**63, 2]))),
        "bytes of a known dtype": _bare(_content(_empty(bytes=0))),
        "no bytes of an unknown dtype": _bare(_content(_empty(dtype="F4"))),
        "a pool of size 0": _bare(_content(_empty(), pool=0)),
        "a tensor of size 0 in the pool": Parts(_content(_empty(pool=0), pool=1), chunks=[ChunkPart(0, b"a", b"a")]),
        "a tensor of size 0 with an alias": _bare(_content(_empty(), _empty(name="f", alias=0))),
        "a tensor beyond the pool": Parts(_content(tensor("a", pool=1), pool=8), chunks=[ChunkPart(0, _ONES, _ONES)]),
        "a tensor in a pool that is not there": _bare(_content(tensor("a", pool=0))),
        "an alias of itself": _bare(_content(tensor("a", alias=0))),
        "an alias of an alias": Parts(
            _content(tensor("a"), tensor("b", alias=0), tensor("c", alias=1)), chunks=[ChunkPart(0, _ONES, _ONES)]
        ),
        "an alias of another size": Parts(
            _content(tensor("a"), tensor("b", shape=[3], alias=0)), chunks=[ChunkPart(0, _ONES, _ONES)]
        ),
        "alias and pool together": Parts(
            _content(tensor("a", pool=0), tensor("b", pool=0, alias=0), pool=8), chunks=[ChunkPart(0, _ONES, _ONES)]
        ),
        "an offset without a global shape": _one(tensor("a", offset=[0])),
        "a box of another rank": _one(tensor("a", offset=[0, 0], global_shape=[4, 1])),
        "a global name without a box": _one(tensor("a", global_name="b")),
        "an empty global name": _one(tensor("a", global_shape=[9], offset=[5], global_name="")),
        "a global name that is the own name": _one(tensor("a", global_shape=[9], offset=[5], global_name="a")),
        "a box that leaves its tensor": _one(tensor("a", offset=[1], global_shape=[4])),
        "a box that leaves its tensor beyond 64 bits": _one(tensor("a", offset=[2**64 - 1], global_shape=[3])),
        "metadata that is not a string": _bare(_content(_empty(), metadata={"a": 1})),
        "too few streams": _with_encoding({"streams": []}),
        "too many streams": _with_encoding({"streams": [{}, {}]}),
        "a base without id": _bases({"name": "x"}),
        "an id in capitals": _bases({"id": _BASE_ID.upper(), "name": "x"}),
        "an id twice": _bases({"id": _BASE_ID, "name": "x"}, {"id": _BASE_ID, "name": "y"}),
        "a base that is not there": _with_encoding({"streams": [{"inputs": [{"base": 0, "stream": 0, "element": 0}]}]}),
        "its own stream as input": _with_encoding({"streams": [{"inputs": [{"stream": 0, "element": 0}]}]}),
        "256 inputs": peers(_SAME, [{"stream": 0, "element": 0}] * 256),
        "a parameter set that is not there": _parameters(b"", [0], [1], 0),
        "parameters of a stream that are not there": _parameters(b"", [0], [0], 1),
        "a non-empty parameter set": _parameters(b"abc", [3], [0], 0),
        "parameters shorter than their sizes": _parameters(b"ab", [3], [0], 0xFFFF),
        "parameters longer than their sizes": _parameters(b"abcd", [3], [0], 0xFFFF),
        "no chunk table for a tensor": _one(sections={3: b""}),
        "a chunk table that is too long": _one(sections={3: bytes(80)}),
        "a payload outside its place": _row(offset=65),
        "a payload longer than the chunk": Parts(_content(), chunks=[ChunkPart(0, _OTHER + b"\0", _OTHER)]),
        "an offset of an empty payload": peers(ChunkPart(2, b"", _ONES, (0,), wrong={"offset": 64})),
        "a wrong hash of a payload": _row(stored_hash=1),
        "a wrong hash of an empty payload": peers(ChunkPart(2, b"", _ONES, (0,), wrong={"stored_hash": 0})),
        "a wrong hash of a chunk": _row(decoded_hash=1),
        "a chunk byte that is not zero": _row(zeros=b"\0\0\1"),
        "a depth without inputs": _row(depth=1),
        "a depth of a peer alone": peers(ChunkPart(2, b"", _ONES, (0,), depth=1)),
        "an input that is not there": peers(ChunkPart(2, b"", _ONES, (1,))),
        "an input behind an unused one": peers(ChunkPart(2, b"", _ONES, wrong={"inputs": b"\xff\x00\xff\xff"})),
        "an input beyond its stream": peers(_SAME, [{"stream": 0, "element": 1}]),
        "an input of another dtype": peers(_SAME, dtype="F16"),
        "a raw chunk with an input": peers(ChunkPart(0, _ONES, _ONES, (0,))),
        "byte_group with a peer": peers(ChunkPart(4, b"\1\0\1\0", _ONES, (0,))),
        "bitmask with a peer": peers(ChunkPart(6, b"\0", _ONES, (0,))),
        "same without an input": Parts(_content(), chunks=[ChunkPart(2, b"", _ONES)]),
        "same with two inputs": peers(ChunkPart(2, b"", _ONES, (0, 0))),
        "same with a payload": peers(ChunkPart(2, b"a", _ONES, (0,))),
        "a constant payload that is too long": Parts(_content(), chunks=[ChunkPart(1, _ONES[:3], _ONES)]),
        "float_split of integers": Parts(
            _content(tensor("a", dtype="U16")), chunks=[ChunkPart(5, b"\0\1\0\1\0", bytes(8))]
        ),
        "float_split in another form": _coded(5, b"\5\1\0\1\0"),
        "float_split that leaves the sign out of bytes": Parts(
            _content(tensor("a", dtype="F8_E5M2")), chunks=[ChunkPart(5, b"\2\1\0", bytes(4))]
        ),
        "split elements of eight bytes": Parts(
            _content(tensor("a", dtype="F64")), chunks=[ChunkPart(5, b"\3\1\0", bytes(32))]
        ),
        "a table without symbols": _lanes(table=b"\0"),
        "a table of sixteen symbols": _lanes(table=bytes([16, *range(16), *[1] * 16])),
        "a table with a symbol twice": _lanes(table=b"\2\x7f\x7f\1\1"),
        "a table with a symbol without slots": _lanes(table=b"\2\x7f\x7e\x80\0"),
        "a table with more slots than there are": _lanes(table=b"\2\x7f\x7e\x80\x81"),
        # The lane takes a byte in the first round, and continues.
        "a state below 256": _lanes(sizes=(1, 0, 0, 0, 0), behind=b"\0", low=8, high=0),
        "a state that ends above 256": _lanes(low=1),
        "a stream with a byte to spare": _lanes(sizes=(0, 0, 1, 0, 0), behind=b"\0"),
        "an escape to spare": _lanes(sizes=(0, 0, 0, 0, 1), behind=b"\0"),
        "bytes between the escapes and the states": _lanes(behind=b"\0"),
        "a packed plane with bits to spare": _coded(5, b"\2\0\0\0\0\x10\1\0"),
        "an unknown mode of a byte block": _coded(4, b"\4\0\0\0\0\1\0"),
        "a sparse block with mask bits to spare": _coded(4, b"\3\0\0\x10\1\0\1\0"),
        "three sparse blocks in one another": _coded(4, b"\3\0\3\0\3\0\1\0"),
        "sparse values of a sparse block": _coded(4, b"\3\0\1\1\3\0\0\0"),
        "float_split that rotates bytes": Parts(
            _content(tensor("a", dtype="F8_E5M2")), chunks=[ChunkPart(5, b"\1\1\0", bytes(4))]
        ),
        "bytes behind the last byte block": _coded(4, b"\1\0\1\0\0"),
        "65 inputs in a row": _chain(66),
        "JSON that nests 513 deep": _ignored(513),
        "a shape beyond 63 bits": _bare(_content(tensor("a", dtype="U8", shape=[2**62, 2]))),
        "an opaque shape beyond 63 bits": _bare(_content(tensor("a", dtype="F4", shape=[2**63], bytes=0))),
        "a parameter set beyond 32 bits": _parameters(b"", [2**32], [0], 0xFFFF),
        "an input of bytes for an opaque tensor": Parts(
            _content(tensor("a", dtype="U8"), tensor("b", dtype="F6", bytes=4)),
            {"streams": [{}, {"inputs": [{"stream": 0, "element": 0}]}]},
            [ChunkPart(0, b"abcd", b"abcd"), ChunkPart(2, b"", b"abcd", (0,))],
        ),
        "129 values deep": _tree(_nested(129)),
        "a plain integer beyond the limit": _tree(str(2**53)),
        "a small integer in the long form": _tree({"int": "5"}),
        "a long integer with a leading zero": _tree({"int": "0" + "9" * 20}),
        "a long integer with a sign": _tree({"int": "+" + "9" * 20}),
        "a long integer of other digits": _tree({"int": "\u0669" * 20}),
        "a finite double by its bits": _tree({"f64": _bits(1.0)}),
        "bits of a double in capitals": _tree({"f64": _bits(math.nan).upper()}),
        "a double out of range": _tree("1e400"),
        "a complex number of integers": _tree({"complex": [1, 2]}),
        "base64 without padding": _tree({"bytes": "aGVsbG8"}),
        "base64 with bits left over": _tree({"bytes": "aGVsbG9="}),
        "base64 with a blank": _tree({"bytes": "aGVs bG8="}),
        "an object of two keys": _tree({"tuple": [], "bytes": ""}),
        "an object of no keys": _tree({}),
        "an unknown kind of value": _tree({"set": []}),
        "a dict key twice": _tree({"dict": [["a", 1], ["a", 2]]}),
        "a double as key twice": _tree({"dict": [[0.5, 1], [0.5, 2]]}),
        "a list as key": _tree({"dict": [[[], 1]]}),
        "a tuple of a list as key": _tree({"dict": [[{"tuple": [[]]}, 1]]}),
        "a complex number as key": _tree({"dict": [[{"complex": [0.5, 0.5]}, 1]]}),
        "a dict entry of three": _tree({"dict": [["a", 1, 2]]}),
        "a typed value of a list as key": _tree({"dict": [[{"typed": ["a", []]}, 1]]}),
        "a typed value as key twice": _tree({"dict": [[{"typed": ["a", 1]}, 1], [{"typed": ["a", 1]}, 1]]}),
        "a typed value without content": _tree({"typed": ["a"]}),
        "a typed value of two contents": _tree({"typed": ["a", 1, 2]}),
        "a type without a name": _tree({"typed": ["", 1]}),
        "a name of a type with a blank": _tree({"typed": ["a b", 1]}),
        "a name of a type beyond 64 characters": _tree({"typed": ["z" * 65, 1]}),
        "a name of a type that is no string": _tree({"typed": [{"typed": ["a", 1]}, 1]}),
        "a tensor that is not there": _tree({"tensor": 2}),
        "a scalar of another shape": _tree({"scalar": 0}),
    },
}


def rejected() -> list[tuple[str, str, bytes]]:
    """The fault, the name and the file of each case that must be rejected."""
    return [
        (fault, name, parts if isinstance(parts, bytes) else build(parts))
        for fault, cases in REJECTED.items()
        for name, parts in cases.items()
    ]


def allowed() -> list[tuple[str, bytes]]:
    return [(name, build(parts)) for name, parts in ALLOWED.items()]
