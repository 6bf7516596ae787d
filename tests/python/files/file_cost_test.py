"""What a small file may cost: states that compress well can always be read, and --max-cost and its like are checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from cli.command_line import RESOURCE_EXHAUSTED, run
from python.processes import run_script
from python.same_bits import assert_same
from second_reader.bsnap_builder import Parts, build


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: {"counts": [0] * 600_000},
        lambda: {"flags": {str(i): True for i in range(200_000)}},
        lambda: {"steps": {i: torch.zeros(()) for i in range(80_000)}},
        lambda: {"lists": [[] for _ in range(400_000)]},
        lambda: {"deep": {i: np.zeros((1,) * 64, np.int8) for i in range(20_000)}},
        lambda: 10**90_000,
    ],
    ids=["zeros", "flags", "scalars", "lists", "dimensions", "digits"],
)
def test_states_that_compress_well_can_be_read(tmp_path: Path, make: Callable[[], Any]) -> None:
    state = make()
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


def test_a_factor_lowers_the_limits(tmp_path: Path) -> None:
    path = tmp_path / "a.bsnap"
    bitsnap.save_file({f"w{i}": torch.zeros(2) for i in range(200)}, path)
    refused = r"more tensors than the limit of 164; .* BITSNAP_MAX_COST or --max-cost, now 0.01, raises"
    before = bitsnap.max_cost()
    bitsnap.set_max_cost(0.01)
    try:
        with pytest.raises(bitsnap.ResourceExhaustedError, match=refused):
            bitsnap.load(path)
    finally:
        bitsnap.set_max_cost(before)
    assert len(bitsnap.load(path)) == 200
    lowered = run("inspect", path, "--max-cost", "0.01", status=RESOURCE_EXHAUSTED)
    in_environment = run("inspect", path, status=RESOURCE_EXHAUSTED, environment={"BITSNAP_MAX_COST": "0.01"})
    for command in (lowered, in_environment):
        assert re.search(refused, command.stderr.decode())


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_factor_that_is_not_above_0_and_finite_is_refused(factor: float) -> None:
    before = bitsnap.max_cost()
    with pytest.raises(bitsnap.InvalidArgumentError, match="max_cost must be finite and above 0, got"):
        bitsnap.set_max_cost(factor)
    assert bitsnap.max_cost() == before


def test_no_small_file_takes_much_memory() -> None:
    run_script("from python.files.hostile_files import main; main()")
