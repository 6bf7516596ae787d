"""Tests the second reader with an encoder that was written from the specification of factored_split, too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from second_reader.chunk_codecs import CODEC_IDS, Chunk, decode
from second_reader.factored_elements import FACTORED_WIDTHS
from second_reader.factored_split_cases import FACTORED_ALLOWED, FactoredCase, rejected_factored, words_to_bytes
from second_reader.factored_split_encoder import Factored, Scales, encode_factored
from second_reader.ordinal_delta_encoder import encode_values
from second_reader.reader_errors import Corrupt, ReaderError, Truncated

FAULTS: dict[str, type[ReaderError]] = {"truncated": Truncated, "corrupt": Corrupt}


def read(payload: bytes, elements: int, dtype: str) -> list[int]:
    data = decode(CODEC_IDS["factored_split"], Chunk(payload, dtype, elements))
    return [int(word) for word in np.frombuffer(data, f"<u{FACTORED_WIDTHS[dtype]}")]


@pytest.mark.parametrize("column_bits", [0, 4, 8])
@pytest.mark.parametrize("first_column", [0, 1, 69])
@pytest.mark.parametrize("elements", [1, 70, 71, 1000])
@pytest.mark.parametrize("dtype", FACTORED_WIDTHS)
def test_any_elements_are_read_bit_for_bit(dtype: str, elements: int, first_column: int, column_bits: int) -> None:
    generator = np.random.default_rng([elements, first_column, column_bits])
    words = [int(word) for word in generator.integers(0, 1 << 8 * FACTORED_WIDTHS[dtype], elements, np.int64)]
    row_count = -(-(first_column + elements) // 70)
    scales = Scales(
        70,
        first_column,
        base=int(generator.integers(0, 65_536)),
        rows=[int(scale) for scale in generator.integers(0, 256, row_count)],
        row_shift=int(generator.integers(0, 16)),
        columns=[int(scale) for scale in generator.integers(0, 1 << column_bits, 70)] if column_bits else (),
        column_bits=column_bits or 8,
        column_shift=int(generator.integers(0, 16)),
    )
    words = [0 if scales.rows[scales.row_of(index)] == 0 else word for index, word in enumerate(words)]
    for rotated in (False, True):
        for classes in ((), [row % 4 for row in range(row_count)]):
            plans = [
                (int(shift), place % 4 if classes else 0, place // 2 % 4 if classes else 0)
                for place, shift in enumerate(generator.integers(0, 16, 32))
            ]
            plans[4:] = [(plans[0][0], 3 if classes else 0, 0)] * 28
            own = replace(scales, rotated=rotated, classes=classes)
            assert read(encode_factored(words, dtype, own, plans).build(), elements, dtype) == words


@pytest.mark.parametrize("case", FACTORED_ALLOWED.values(), ids=FACTORED_ALLOWED)
def test_what_the_specification_allows_is_read(case: FactoredCase) -> None:
    assert len(case.payload) <= len(words_to_bytes(case.elements, case.dtype))
    assert read(case.payload, len(case.elements), case.dtype) == list(case.elements)


@pytest.mark.parametrize(
    ("fault", "case"), [pytest.param(fault, case, id=name) for fault, name, case in rejected_factored()]
)
def test_what_the_specification_forbids_is_rejected(fault: str, case: FactoredCase) -> None:
    with pytest.raises(ReaderError) as caught:
        read(case.payload, len(case.elements), case.dtype)
    assert type(caught.value) is FAULTS[fault], caught.value


def test_the_examples_hold() -> None:
    assert read(bytes.fromhex("00 04 00 00 00 02 00 00 00 00 00 00 00"), 64, "F32") == [0] * 64
    values = encode_values([5], [0], [(2, 0), *[(0, 0)] * 31], [[128, 128, *[0] * 14]])
    one = Factored(4, 0x12, 0x3F6F, 64, 63, b"\x03", b"", bytes(31) + b"\x20", b"", values)
    assert one.build()[:13] == bytes.fromhex("04    12    6F 3F    40 00 00 00    3F 00 00 00    03")
    assert read(one.build(), 1, "BF16") == [0x3F80]
