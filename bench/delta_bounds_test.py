"""Entropies that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench.baselines.method import Sample
from bench.delta_bounds import conditional_entropy_bits, delta_bounds, entropy_bits, ordinals


def bf16_bytes(values: torch.Tensor) -> np.ndarray:
    found: np.ndarray = values.to(torch.bfloat16).view(torch.uint8).numpy()
    return found


def test_ordinals_have_the_order_of_the_floats_and_count_ulps() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    floats = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float().numpy()
    finite = np.isfinite(floats)
    order = np.argsort(ordinals(bits)[finite], kind="stable")
    assert np.all(np.diff(floats[finite][order]) >= 0)
    assert np.unique(ordinals(bits)).size == 1 << 16
    minus_zero, plus_zero = ordinals(np.array([0x8000, 0x0000], np.uint16))
    assert plus_zero - minus_zero == 1


def test_entropies_of_known_counts() -> None:
    assert entropy_bits(np.array([4, 4])) == pytest.approx(8.0)
    assert entropy_bits(np.array([8, 0])) == 0.0
    assert entropy_bits(np.array([2, 1, 1])) == pytest.approx(6.0)


def test_a_context_that_determines_the_symbol_leaves_no_entropy() -> None:
    symbols = np.array([0, 1, 0, 1])
    assert conditional_entropy_bits(symbols, symbols, 2) == 0.0
    assert conditional_entropy_bits(symbols, np.zeros(4, np.int64), 2) == pytest.approx(4.0)


def test_a_quarter_of_changed_elements_has_the_expected_entropy() -> None:
    base = torch.full((4096,), 1.5)
    new = base.clone()
    new[::4] += 2**-6  # bits of bf16 below 1.5: a whole number of steps
    bounds = delta_bounds(Sample("weight", "BF16", bf16_bytes(new), bf16_bytes(base)))
    assert bounds.unchanged == 0.75
    entropy = -0.75 * np.log2(0.75) - 0.25 * np.log2(0.25)
    assert bounds.ratio == pytest.approx(16 / entropy)


def test_the_exponent_of_the_base_lowers_the_entropy_if_only_small_elements_change() -> None:
    base = torch.cat([torch.full((1000,), 2.0**-10), torch.full((1000,), 1.0)])
    new = base.clone()
    new[:1000:2] += 2**-16
    bounds = delta_bounds(Sample("weight", "BF16", bf16_bytes(new), bf16_bytes(base)))
    assert bounds.ratio_by_exponent > 1.5 * bounds.ratio


def test_fp32_counts_the_bits_below_the_leading_one() -> None:
    base = np.full(1024, 1.0, np.float32)
    new = (base.view(np.int32) + 12).view(np.float32)  # all of four bits and one sign
    bounds = delta_bounds(Sample("master", "F32", new.view(np.uint8), base.view(np.uint8)))
    assert bounds.ratio == pytest.approx(32 / 3, rel=1e-3)


def test_a_delta_needs_a_base() -> None:
    with pytest.raises(ValueError, match="needs a base"):
        delta_bounds(Sample("weight", "BF16", np.zeros(8, np.uint8)))
