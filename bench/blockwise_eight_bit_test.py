"""The blockwise format of 8 bits, against numbers worked out by hand from its description."""

from __future__ import annotations

import numpy as np
import pytest

from bench.blockwise_eight_bit import (
    BLOCK_ELEMENTS,
    dequantize,
    dynamic_map,
    quantize,
    round_trip,
    stored_bytes,
)


def test_the_signed_map_has_a_number_on_each_side_in_the_lowest_decade_and_64_in_the_highest() -> None:
    numbers = dynamic_map(signed=True)
    assert numbers.dtype == np.float32
    assert numbers.size == 256
    # 10^-7 to 10^-6 is one part, with 5.5 * 10^-7 in its middle; the next decade two: 1 to 5.5 and 5.5 to 10.
    assert numbers[127] == 0
    assert numbers[128:131] == pytest.approx([5.5e-7, 3.25e-6, 7.75e-6])
    assert numbers[126:123:-1] == pytest.approx([-5.5e-7, -3.25e-6, -7.75e-6])
    assert int(((numbers > 0.1) & (numbers < 1)).sum()) == 64
    # The highest decade in 64 parts of 0.9 / 64: the last middle is half of that below 1. Only 1 is there itself.
    assert numbers[-2:] == pytest.approx([1 - 0.9 / 128, 1])
    assert numbers[0] == pytest.approx(-(1 - 0.9 / 128))


def test_the_unsigned_map_has_twice_as_many_in_each_decade() -> None:
    numbers = dynamic_map(signed=False)
    assert numbers.size == 256
    assert numbers[:3] == pytest.approx([0, 3.25e-7, 7.75e-7])
    assert int((numbers > 0.1).sum()) == 128 + 1
    assert numbers[-2:] == pytest.approx([1 - 0.9 / 256, 1])


def test_elements_become_the_nearest_numbers_of_their_block() -> None:
    elements = np.zeros(BLOCK_ELEMENTS + 3, dtype=np.float32)
    # Of 8: 1 itself, 0.5, a hundredth and nothing. 0.5 is nearest to 0.1 + 28.5 parts of 0.9 / 64.
    elements[:4] = [8, 4, 0.08, 0]
    elements[BLOCK_ELEMENTS:] = [-0.5, 0.25, 0]
    codes, largest = quantize(elements, signed=True)
    assert largest.tolist() == [8, 0.5]
    assert codes[0] == 255
    restored = dequantize(codes, largest, signed=True)
    assert restored[0] == 8
    assert restored[1] == pytest.approx(8 * (0.1 + 28.5 * 0.9 / 64))
    # A hundredth is the edge of two decades: 16 parts of 0.09 / 32 above it, 0.009 / 16 below it, which is nearer.
    assert restored[2] == pytest.approx(8 * (0.01 - 0.009 / 32))
    assert not restored[3:BLOCK_ELEMENTS].any()
    # The largest magnitude is below 0, where the map ends before -1.
    assert restored[BLOCK_ELEMENTS] == pytest.approx(-0.5 * (1 - 0.9 / 128))
    assert restored[BLOCK_ELEMENTS + 1] == pytest.approx(0.5 * restored[1] / 8)


def test_what_is_below_0_stays_below_0() -> None:
    elements = np.zeros(4, dtype=np.float32)
    elements[:] = [1, -1e-9, 1e-9, -0.0]
    restored = dequantize(*quantize(elements, signed=True), signed=True)
    assert restored[1:].tolist() == pytest.approx([-5.5e-7, 0, 0])


def test_no_element_is_farther_than_half_a_part_of_its_decade() -> None:
    elements = np.random.default_rng(1).lognormal(-6, 3, 10_000).astype(np.float32)
    for signed, parts in ((True, 64), (False, 128)):
        codes, largest = quantize(elements, signed)
        unit = np.repeat(largest, BLOCK_ELEMENTS)[: elements.size]
        shares = elements / unit
        error = np.abs(dequantize(codes, largest, signed) - elements) / unit
        for decade in range(5):
            inside = (shares > 10.0 ** -(decade + 1)) & (shares <= 10.0**-decade)
            assert inside.any()
            # A decade is a tenth of the one above, in half as many parts: a fifth of the error.
            assert error[inside].max() <= 0.9 / parts / 2 * 0.2**decade * 1.001


def test_a_small_tensor_keeps_its_bits_and_its_bytes() -> None:
    elements = np.random.default_rng(1).normal(size=(5, 819)).astype(np.float32)
    assert round_trip(elements, signed=True) is elements
    assert stored_bytes(4095) == 4 * 4095
    assert stored_bytes(4096) == 4096 + 4 * 16
    assert stored_bytes(4097) == 4097 + 4 * 17


def test_a_large_tensor_keeps_its_shape() -> None:
    elements = np.random.default_rng(1).normal(size=(64, 65)).astype(np.float32)
    restored = round_trip(elements, signed=True)
    assert restored.shape == elements.shape
    assert np.array_equal(np.sign(restored), np.sign(elements))
