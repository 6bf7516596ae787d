"""The parts of the comparison with DCP that need no ranks."""

from __future__ import annotations

import pytest
import torch

from bench.dcp_comparison import beside, counted, size_lines
from bench.dcp_ranks import DCP, NEXT, STORES, ZSTD
from bench.dcp_training import KINDS
from bench.states import State, blank, same_bits


def test_same_bits_compares_signs_of_zeros_and_payloads_of_nans() -> None:
    state = {"a": [torch.tensor([0.0, 1.0])], "step": 1}
    assert same_bits(state, {"a": [torch.tensor([0.0, 1.0])], "step": 1})
    assert not same_bits(state, {"a": [torch.tensor([-0.0, 1.0])], "step": 1})
    payloads = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert not same_bits(payloads[:1], payloads[1:])


def test_a_blank_state_has_nothing_of_the_state() -> None:
    state: State = {"a": {"b": torch.ones(2, dtype=torch.bfloat16)}, "step": 3}
    empty = blank(state)
    assert empty["step"] == -1
    assert empty["a"]["b"].isnan().all()
    assert not state["a"]["b"].isnan().any()


def test_ratios_are_of_the_same_round_without_the_first() -> None:
    times = counted({DCP: [9.0, 1.0, 4.0], STORES[0]: [9.0, 2.0, 8.0], STORES[0] + NEXT: [3.0, 4.0]})
    assert beside(times[STORES[0]], times[DCP]) == "2.00"
    assert beside(times[STORES[0] + NEXT], times[DCP]) == "2.00"
    with pytest.raises(ValueError, match="argument 2 is longer"):
        beside([1.0], times[DCP])


def test_sizes_are_compared_with_compressed_ones_of_dcp() -> None:
    sizes = {STORES[0]: [50, 40, 10], STORES[1]: [25, 20, 5], DCP: [110] * 3, ZSTD: [100] * 3}
    lines = size_lines({"raw": {KINDS[0]: 100}, "sizes": {KINDS[0]: sizes}})
    row = next(line for line in lines if line.startswith(f"| {ZSTD} / {STORES[0]} "))
    assert [cell.strip() for cell in row.split("|")[2:5]] == ["2.00", "2.50", "10.00"]
