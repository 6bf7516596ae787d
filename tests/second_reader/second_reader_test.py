"""Tests the second reader with the rules of the specification, the golden files, and files that bitsnap writes."""

from __future__ import annotations

import pytest

from second_reader import rule_cases
from second_reader.bsnap_reader import Snapshot
from second_reader.byte_blocks import read_byte_block
from second_reader.chunk_codecs import CODEC_IDS, Chunk, Input, decode
from second_reader.reader_errors import Corrupt, ReaderError, Truncated, Unsupported

FAULTS: dict[str, type[ReaderError]] = {"truncated": Truncated, "corrupt": Corrupt, "unsupported": Unsupported}


def read_all(file: bytes) -> Snapshot:
    snapshot = Snapshot(file)
    snapshot.verify()
    snapshot.read_state()
    return snapshot


@pytest.mark.parametrize("file", [pytest.param(file, id=name) for name, file in rule_cases.allowed()])
def test_accepts_what_the_specification_allows(file: bytes) -> None:
    read_all(file)


@pytest.mark.parametrize(
    ("fault", "file"), [pytest.param(fault, file, id=name) for fault, name, file in rule_cases.rejected()]
)
def test_rejects_what_the_specification_forbids(fault: str, file: bytes) -> None:
    with pytest.raises(ReaderError) as caught:
        read_all(file)
    assert type(caught.value) is FAULTS[fault], caught.value


def _states(upper: str) -> str:
    return ("00" * 64 + upper * 64) * 4


# The worked examples of the specifications: codec, dtype, elements, payload, input, output.
EXAMPLES = [
    ("raw", "U16", 2, "01 02 03 04", None, "01 02 03 04"),
    ("constant", "BF16", 3, "80 3F", None, "80 3F 80 3F 80 3F"),
    ("same", "BF16", 2, "", "80 3F 00 40", "80 3F 00 40"),
    ("zstd", "U8", 32, "28 B5 2F FD 20 20 03 01 00 61", None, "61" * 32),
    ("byte_group", "BF16", 4, "00 80 81 82 83 01 3F", None, "80 3F 81 3F 82 3F 83 3F"),
    ("byte_group", "BF16", 4, "00 00 01 02 03 01 00", "80 3F" * 4, "80 3F 81 3F 82 3F 83 3F"),
    ("float_split", "BF16", 5, "01 00 00 01 80 40 20 01 7F", None, "80 3F 80 BF C0 3F A0 3F 90 3F"),
    ("float_split", "BF16", 8, "02 00 01 C1 80 50 30 1C 10 01 7F", None, "".join(f"{i}3F" for i in range(81, 89))),
    ("float_split", "BF16", 2, "04" + "00" * 20 + "00 01  01 7F 00" + _states("01"), None, "80 3F 80 BF"),
    ("float_split", "BF16", 1, "04" + "00" * 20 + "00  01 7F 80" + _states("02"), None, "80 3F"),
    ("bitmask", "U16", 10, "02 02 34 12 78 56", "FF FF" * 10, "FF FF 34 12" + "FF FF" * 7 + "78 56"),
]


@pytest.mark.parametrize(("codec", "dtype", "elements", "payload", "given", "output"), EXAMPLES)
def test_the_examples_of_the_codecs_hold(
    codec: str, dtype: str, elements: int, payload: str, given: str | None, output: str
) -> None:
    inputs = () if given is None else (Input(True, dtype, bytes.fromhex(given)),)
    chunk = Chunk(bytes.fromhex(payload), dtype, elements, inputs)
    assert decode(CODEC_IDS[codec], chunk) == bytes.fromhex(output)


def test_the_example_of_a_byte_plane_holds() -> None:
    plane = bytes.fromhex("7a7b7a7c7a7a7b7a7a7a7c7a7b7a7a7a7e7a7a7b7a7c7a7a7b7a7a7a7a7a7a7a")
    stored = bytes.fromhex("020600017a7e2103034c4321c98800")
    assert read_byte_block(stored, 0, len(plane)) == (plane, len(stored))


@pytest.mark.parametrize("stored", ["03 07 00 02 04 00 08 09", "03 07 03 02 00 02 00 04 00 08 09"])
def test_the_examples_of_sparse_blocks_hold(stored: str) -> None:
    data = bytes.fromhex(stored)
    assert read_byte_block(data, 0, 12) == (bytes.fromhex("070807070707070707070907"), len(data))
