"""What a small file may cost: states that compress well can always be read, and --max-cost and its like are checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from python.processes import run_script
from python.same_bits import assert_same
from second_reader.bsnap_builder import Parts, build


@pytest.mark.parametrize(
    "state",
    [
        {"counts": [0] * 600_000},
        {"flags": {str(i): True for i in range(200_000)}},
        {"steps": {i: torch.zeros(()) for i in range(80_000)}},
        {"lists": [[] for _ in range(400_000)]},
        {"deep": {i: np.zeros((1,) * 64, np.int8) for i in range(20_000)}},
        10**90_000,
    ],
    ids=["zeros", "flags", "scalars", "lists", "dimensions", "digits"],
)
def test_states_that_compress_well_can_be_read(tmp_path: Path, state: Any) -> None:
    bitsnap.save(tmp_path / "a.bsnap", state)
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    if isinstance(state, int):
        assert loaded == state  # not assert_same(), which prints it
    else:
        assert_same(loaded, state)


def test_many_tensors_that_did_not_change_are_stored_in_about_fifty_bytes_each(tmp_path: Path) -> None:
    names = [f"model.layers.{i // 64}.mlp.experts.{i % 64}.up_proj.weight" for i in range(40_000)]
    state = dict(zip(names, torch.randn(40_000, 64), strict=True))
    bitsnap.save_file(state, tmp_path / "a.bsnap")
    summary = bitsnap.save_file(state, tmp_path / "b.bsnap", base=tmp_path / "a.bsnap")
    assert summary.stored_bytes < 60 * len(names)  # uncompressed, the index would take 117 for each
    assert_same(bitsnap.load(tmp_path / "b.bsnap"), state)


def test_a_factor_raises_the_limits(tmp_path: Path) -> None:
    nulls = b"[" + b",".join([b"null"] * 100_000) + b"]"
    path = tmp_path / "a.bsnap"
    path.write_bytes(build(Parts(b'{"tensors":[],"tree":' + nulls + b"}", compressed={1, 2, 3})))
    assert path.stat().st_size < 2000
    with pytest.raises(bitsnap.ResourceExhaustedError, match=r"number of values exceeds .* --max-cost, now 1, raises"):
        bitsnap.load(path)
    before = bitsnap.max_cost()
    bitsnap.set_max_cost(2)
    try:
        assert bitsnap.load(path) == [None] * 100_000
    finally:
        bitsnap.set_max_cost(before)


def test_no_small_file_takes_much_memory() -> None:
    run_script("from python.hostile_files import main; main()")
