"""Tests the second reader with an encoder that was written from the specification of ordinal_delta, too."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from second_reader.chunk_codecs import CODEC_IDS, Chunk, Input, decode
from second_reader.ordinal_delta_cases import ALLOWED, Case, rejected, to_bytes
from second_reader.ordinal_delta_encoder import (
    Dense,
    context_of,
    direct,
    encode_dense,
    encode_sparse,
    encode_values,
    floor,
    reflected,
)
from second_reader.ordinal_deltas import LAYOUTS, floors_of
from second_reader.reader_errors import Corrupt, ReaderError, Truncated
from second_reader.values_by_class import read_values

FAULTS: dict[str, type[ReaderError]] = {"truncated": Truncated, "corrupt": Corrupt}
LENGTHS = [1, 255, 256, 257, 5000]
PATTERNS = ["random", "near", "few", "equal", "special", "around"]


def read(payload: bytes, base: Sequence[int], dtype: str) -> list[int]:
    chunk = Chunk(payload, dtype, len(base), (Input(True, dtype, to_bytes(base, dtype)),))
    data = decode(CODEC_IDS["ordinal_delta"], chunk)
    return [int(word) for word in np.frombuffer(data, f"<u{LAYOUTS[dtype][0] // 8}")]


def specials(dtype: str) -> list[int]:
    """Zeros, the smallest and largest numbers, infinities (or what replaces them) and NaNs, of both signs."""
    bits, mantissa = LAYOUTS[dtype]
    infinity = (1 << (bits - 1)) - (1 << mantissa)
    positive = [0, 1, (1 << mantissa) - 1, 1 << mantissa, infinity - 1, infinity, infinity + 1, (1 << (bits - 1)) - 1]
    return positive + [word | 1 << (bits - 1) for word in positive]


def moved(word: int, by: int, bits: int) -> int:
    return reflected((reflected(word, bits) + by) % (1 << bits), bits)


def pair(pattern: str, dtype: str, length: int, generator: np.random.Generator) -> tuple[list[int], list[int]]:
    """A base, and elements that changed since."""
    bits, _ = LAYOUTS[dtype]
    base = [int(word) for word in generator.integers(0, 1 << bits, length, np.int64)]
    if pattern == "random":
        return base, [int(word) for word in generator.integers(0, 1 << bits, length, np.int64)]
    if pattern in ("special", "around"):
        known = specials(dtype)
        base = [known[index] for index in generator.integers(0, len(known), length)]
        if pattern == "special":
            return base, [known[index] for index in generator.integers(0, len(known), length)]
    by = [int(delta) for delta in generator.laplace(0, 6, length)]
    if pattern == "few":
        by = [delta if rare else 0 for delta, rare in zip(by, generator.random(length) < 0.02, strict=True)]
    if pattern == "equal":
        by = [0] * length
    return base, [moved(word, delta, bits) for word, delta in zip(base, by, strict=True)]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", LAYOUTS)
def test_the_dense_form_is_read_bit_for_bit(dtype: str, length: int, pattern: str) -> None:
    generator = np.random.default_rng([length, PATTERNS.index(pattern)])
    for classes in range(1, 5) if length < 1000 else (1, 4):
        base, elements = pair(pattern, dtype, length, generator)
        plans = [(int(shift), int(generator.integers(0, classes)), 0) for shift in generator.integers(0, 16, 32)]
        plans[0] = (plans[0][0], classes - 1, 0)
        if classes % 2 == 0:
            plans = [(shift, number, int(generator.integers(0, 4))) for shift, number, _ in plans]
        low_size = int(generator.integers(0, 3)) if dtype == "F32" else 0
        top = int(generator.choice([0, 7, 15, 31, 127, 130, 255]))
        payload = encode_dense(base, elements, dtype, top, plans, low_size).build()
        assert read(payload, base, dtype) == elements


@pytest.mark.parametrize("pattern", ["random", "near", "special"])
@pytest.mark.parametrize("first_direct", [0, 1, 5, 31, 32])
@pytest.mark.parametrize("dtype", LAYOUTS)
def test_direct_measures_are_read_bit_for_bit(dtype: str, first_direct: int, pattern: str) -> None:
    bits, mantissa = LAYOUTS[dtype]
    generator = np.random.default_rng([first_direct, PATTERNS.index(pattern)])
    for top in (0, 1, 7, (1 << (bits - 1 - mantissa)) - 1, 40, 127, 255):
        for low_size in range(3 if dtype == "F32" else 1):
            base, elements = pair(pattern, dtype, 300, generator)
            plans = [(int(shift), place % 2, place % 4) for place, shift in enumerate(generator.integers(0, 16, 32))]
            dense = encode_dense(base, elements, dtype, top, plans, low_size, first_direct=first_direct)
            assert read(dense.build(), base, dtype) == elements


# By dtype: the top exponent, and some elements with the direct measures that they have by the formula.
DIRECT = {
    "F8_E4M3": (7, {0xBF: 0, 0x3F: 1, 0xBE: 2, 0x3E: 3, 0x80: 126, 0x00: 127, 0xFF: 128, 0x7F: 129, 0x40: 255}),
    "F8_E5M2": (15, {0xBF: 0, 0x3F: 1, 0xBE: 2, 0x80: 126, 0x00: 127, 0xFF: 128, 0x40: 255}),
    "F16": (15, {0xBFFF: 0, 0x3FFF: 1, 0xBFFE: 2, 0x8000: 0x7FFE, 0x0000: 0x7FFF, 0xFFFF: 0x8000, 0x4000: 0xFFFF}),
    "BF16": (127, {0xBFFF: 0, 0x3FFF: 1, 0xBFFE: 2, 0x8000: 0x7FFE, 0x0000: 0x7FFF, 0xFFFF: 0x8000, 0x4000: 0xFFFF}),
    "F32": (127, {0xBFFFFFFF: 0, 0x3FFFFFFF: 1, 0xBFFFFFFE: 2, 0xBFFF8002: 65_530, 0x3FFF8001: 65_533}),
}


@pytest.mark.parametrize("dtype", LAYOUTS)
def test_a_direct_measure_counts_down_from_the_largest_of_the_top_exponent(dtype: str) -> None:
    top, measures = DIRECT[dtype]
    base = [0] * len(measures)
    context = context_of(0, dtype, top)
    values = encode_values(list(measures.values()), [context] * len(base), [(2, 0)] * 32)
    assert read(Dense(top, values, first_direct=context).build(), base, dtype) == list(measures)
    if context < 31:
        assert read(Dense(top, values, first_direct=context + 1).build(), base, dtype) != list(measures)
    assert [direct(word, dtype, top) for word in measures] == list(measures.values())


def test_direct_measures_begin_with_the_first_direct_context() -> None:
    base = [127 - context << 7 for context in range(32)]
    values = encode_values([1] * 32, range(32), [(0, 0)] * 32)
    for first_direct in range(33):
        elements = read(Dense(127, values, first_direct=first_direct).build(), base, "BF16")
        assert elements == [old - 1 for old in base[:first_direct]] + [0x3FFF] * (32 - first_direct)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("factor", [0x3F733333, 0x3F800000, 0x3F7FFFFF, 0x00800000, 0x00FFFFFF, 0x7F7FFFFF, 0x40000001])
def test_the_form_above_a_floor_is_read_bit_for_bit(factor: int, pattern: str) -> None:
    generator = np.random.default_rng([factor, PATTERNS.index(pattern)])
    for low_size in range(3):
        base, elements = pair(pattern, "F32", 300, generator)
        plans = [(int(shift), place % 3, place % 4) for place, shift in enumerate(generator.integers(0, 16, 32))]
        payload = encode_dense(base, elements, "F32", 130, plans, low_size, factor=factor).build()
        assert read(payload, base, "F32") == elements


# Of the factor 0.95, of one that is below one by half a delta, and of 1.5: bases and floors.
FLOORS = [
    (0x3F733333, {0x40400000: 0x40366666, 0x3F800000: 0x3F733333, 0: 0, 0x007FFFFF: 0, 0x7F800000: 0, 0xC0400000: 0}),
    (0x3F733333, {0x00800000: 0, 0x0086BCA1: 0, 0x0086BCA2: 0x00800000, 0x7F7FFFFF: 0x7F733332}),
    (0x3F7FFFFF, {0x00800001: 0x00800000, 0x00800000: 0, 0x3F800001: 0x3F800000, 0x3FFFFFFF: 0x3FFFFFFE}),
    (0x3FC00000, {0x3F800001: 0x3FC00002, 0x7F7FFFFF: 0, 0x7F2AAAAA: 0x7F7FFFFF, 0x7F2AAAAB: 0}),
]


@pytest.mark.parametrize(("factor", "floors"), FLOORS)
def test_a_floor_is_the_product_rounded_to_the_nearest(factor: int, floors: dict[int, int]) -> None:
    assert [floor(old, factor) for old in floors] == list(floors.values())
    assert floors_of(np.array([*floors], np.int64), factor).tolist() == list(floors.values())


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", LAYOUTS)
def test_the_sparse_form_is_read_bit_for_bit(dtype: str, length: int, pattern: str) -> None:
    generator = np.random.default_rng([length, PATTERNS.index(pattern)])
    for classes in range(1, 9) if length < 1000 else (2, 7):
        base, elements = pair(pattern, dtype, length, generator)
        firsts = sorted(int(first) for first in generator.choice(np.arange(1, 32), classes - 1, replace=False))
        g, h = (int(parameter) for parameter in generator.integers(0, 18, 2))
        k = int(generator.integers(0, LAYOUTS[dtype][0]))
        top = int(generator.choice([0, 7, 15, 31, 127, 130, 255]))
        payload = encode_sparse(base, elements, dtype, top, firsts, (g, h, k), long=classes % 4 == 0).build()
        assert read(payload, base, dtype) == elements


@pytest.mark.parametrize("coarseness", range(4))
@pytest.mark.parametrize("shift", range(16))
@pytest.mark.parametrize("dtype", LAYOUTS)
def test_every_shift_is_read_bit_for_bit(dtype: str, shift: int, coarseness: int) -> None:
    for low_size in range(3 if dtype == "F32" else 1):
        for pattern in ("near", "special", "random"):
            base, elements = pair(pattern, dtype, 600, np.random.default_rng(shift))
            payload = encode_dense(base, elements, dtype, 20, [(shift, 0, coarseness)] * 32, low_size).build()
            assert read(payload, base, dtype) == elements


# By coarseness: values with the number of low bits that they have beyond the shift, and the first that is escaped.
WIDTHS = [
    ({0: 0, 7: 0, 14: 0}, 15),
    ({7: 0, 8: 1, 15: 1, 16: 2, 27: 2}, 28),
    ({3: 0, 4: 1, 7: 1, 8: 2, 127: 5, 128: 6, 191: 6}, 192),
    ({0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 255: 7, 256: 8, 511: 8, 16_383: 13}, 16_384),
]


@pytest.mark.parametrize("coarseness", range(4))
def test_symbols_are_wider_by_octaves(coarseness: int) -> None:
    widths, escaped = WIDTHS[coarseness]
    for shift in (0, 2):
        for value, width in widths.items():
            values = encode_values([value << shift], [1], [(0, 0), *[(shift, 0, coarseness)] * 31])
            assert (len(values.low_bits) + 8 * len(values.low_bytes), values.escapes) == (width + shift, [])
            assert read_values(values.build(), np.array([1], np.uint8)).tolist() == [value << shift]
        values = encode_values([escaped << shift], [1], [(0, 0), *[(shift, 0, coarseness)] * 31])
        assert (len(values.low_bits), values.escapes) == (shift, [escaped << shift])


@pytest.mark.parametrize("low_size", range(3))
def test_deltas_around_the_border_of_far_ones_are_read_bit_for_bit(low_size: int) -> None:
    border = 65_535 << 8 * low_size
    zigzags = [border - 2, border - 1, border, border + 1, (1 << 8 * low_size) - 1, (1 << 32) - 1, (1 << 32) - 2]
    zigzags = [zigzag % (1 << 32) for zigzag in zigzags]
    base = [0x3F800000, 0xBF800000] * len(zigzags)
    by = [zigzag >> 1 if zigzag & 1 == 0 else -(zigzag + 1 >> 1) for zigzag in zigzags]
    elements = [moved(word, delta, 32) for word, delta in zip(base, by * 2, strict=True)]
    dense = encode_dense(base, elements, "F32", 127, [(0, 0)] * 32, low_size)
    assert dense.far_count > 0
    assert read(dense.build(), base, "F32") == elements


@pytest.mark.parametrize("shift", [0, 3, 8, 10])
def test_lanes_of_no_value_may_be_escapes(shift: int) -> None:
    values = encode_values([1, 2], [3, 4], [(shift, 0)] * 32, [[64, 64, 64, *[0] * 12, 64]], padding=0xFFFF)
    assert len(values.escapes) == 254
    assert read_values(values.build(), np.array([3, 4], np.uint8)).tolist() == [1, 2]


def test_low_bits_and_bytes_of_an_escape_are_taken_and_ignored() -> None:
    values = encode_values([0x1F00, 0x0123, 0xFF00], [0] * 3, [(10, 0)] * 32, [[200, 0, 0, 0, 0, 0, 0, *[6] * 8, 8]])
    assert values.escapes == [0xFF00]
    ones = replace(values, low_bits=[*values.low_bits[:4], 1, 1, *values.low_bits[6:]])
    ones = replace(ones, low_bytes=ones.low_bytes[:2] + b"\xff" + ones.low_bytes[3:])
    assert ones != values
    assert read_values(ones.build(), np.zeros(3, np.uint8)).tolist() == [0x1F00, 0x0123, 0xFF00]


def test_the_example_of_values_by_class_holds() -> None:
    payload = bytes.fromhex(
        "01  02" + "00" * 31 + "80 80" + "00" * 14 + "00" * 16 + "00 02 00 00" + "00" * 8 + "01" + "00" * 63
        + "80" + "00" * 63 + "02" * 64 + ("00" * 64 + "02" * 64) * 3
    )  # fmt: skip
    assert read_values(payload, np.zeros(1, np.uint8)).tolist() == [5]
    assert encode_values([5], [0], [(2, 0), *[(0, 0)] * 31], [[128, 128, *[0] * 14]]).build() == payload
    # The last example of ordinal_delta: as the zigzag of the only element, 3 ULPs below 1.0.
    dense = bytes.fromhex("00 7F 20 00 00 00 00 00") + payload
    assert read(dense, [0x3F80], "BF16") == [0x3F7D]
    # And as what its F32 element is above 0.95 times its base.
    above = bytes.fromhex("02 80 00 00 00 00 00 33 33 73 3F") + payload
    assert read(above, [0x40400000], "F32") == [0x4036666B]
    frequencies = [[128, 128, *[0] * 14]]
    assert encode_dense([0x3F80], [0x3F7D], "BF16", 0x7F, [(2, 0), *[(0, 0)] * 31], 0, frequencies).build() == dense


def test_the_example_of_the_sparse_form_holds() -> None:
    payload = bytes.fromhex("01 7F 01    02 00 00 00 01 00 00 00    AA 02")
    base, elements = [0x3F80] * 4, [0x3F80, 0x3F81, 0x3F80, 0x3F7D]
    assert read(payload, base, "BF16") == elements
    assert encode_sparse(base, elements, "BF16", 0x7F).build() == payload


def test_lists_that_were_put_together_by_hand_are_read() -> None:
    payload = bytes.fromhex("01 7F 01  02 00 08 00  01 00 00 00  AF 02")
    base, elements = [0x3F80, 0x3F80, 0x3F80, 0xBF80], [0x3F80, 0x3F81, 0x3F80, 0xBF83]
    assert read(payload, base, "BF16") == elements
    assert encode_sparse(base, elements, "BF16", 0x7F, (), (1, 0, 0)).build() == payload


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in ALLOWED.items()])
def test_accepts_payloads_that_the_specification_allows(case: Case) -> None:
    assert read(case.payload, case.base, case.dtype) == list(case.elements)


@pytest.mark.parametrize(("fault", "case"), [pytest.param(fault, case, id=name) for fault, name, case in rejected()])
def test_rejects_payloads_that_the_specification_forbids(fault: str, case: Case) -> None:
    with pytest.raises(ReaderError) as caught:
        read(case.payload, case.base, case.dtype)
    assert type(caught.value) is FAULTS[fault], caught.value


def test_the_payloads_of_the_cases_fit_into_a_snapshot() -> None:
    for case in [*ALLOWED.values(), *(case for _, _, case in rejected())]:
        assert len(case.payload) <= len(to_bytes(case.base, case.dtype))


@pytest.mark.parametrize("name", ["dense", "octaves", "dense with far elements", "above a floor", "sparse"])
def test_every_payload_that_is_cut_short_is_truncated(name: str) -> None:
    case = ALLOWED[name]
    for size in range(len(case.payload)):
        with pytest.raises(Truncated):
            read(case.payload[:size], case.base, case.dtype)


@pytest.mark.parametrize("name", ["dense", "octaves", "dense with far elements", "above a floor", "sparse"])
def test_a_flipped_bit_gives_elements_or_an_error_of_a_kind(name: str) -> None:
    case = ALLOWED[name]
    for place in range(0, 8 * len(case.payload), 7):
        flipped = bytearray(case.payload)
        flipped[place // 8] ^= 1 << place % 8
        with contextlib.suppress(Truncated, Corrupt):
            assert len(read(bytes(flipped), case.base, case.dtype)) == len(case.base)


@pytest.mark.parametrize("dtype", ["F64", "U16", "I32", "opaque"])
def test_dtypes_that_the_codec_does_not_take_are_corrupt(dtype: str) -> None:
    chunk = Chunk(b"", dtype, 1, (Input(True, dtype, bytes(8)),))
    with pytest.raises(Corrupt):
        decode(CODEC_IDS["ordinal_delta"], chunk)


@pytest.mark.parametrize("kinds", ["", "p", "bb", "bp"])
def test_inputs_that_the_codec_does_not_take_are_corrupt(kinds: str) -> None:
    case = ALLOWED["sparse"]
    inputs = tuple(Input(kind == "b", "F32", to_bytes(case.base, "F32")) for kind in kinds)
    with pytest.raises(Corrupt):
        decode(CODEC_IDS["ordinal_delta"], Chunk(case.payload, "F32", len(case.base), inputs))
