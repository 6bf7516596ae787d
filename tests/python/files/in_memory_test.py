"""dumps() and loads(): snapshots without files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap


def state_of(seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(300, 40, generator=generator)
    return {"model": {"weight": weight, "tied": weight}, "array": np.arange(5), "step": seed, "notes": ("a", None)}


def check(state: dict[str, Any], seed: int) -> None:
    expected = state_of(seed)
    assert torch.equal(state["model"]["weight"], expected["model"]["weight"])
    assert state["model"]["tied"] is state["model"]["weight"]
    assert np.array_equal(state["array"], expected["array"])
    assert (state["step"], state["notes"]) == (seed, ("a", None))


def test_a_state_comes_back_from_bytes() -> None:
    check(bitsnap.loads(bitsnap.dumps(state_of(1))), 1)


def test_the_bytes_are_those_of_the_file(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", state_of(1))
    data = bitsnap.dumps(state_of(1))
    assert (tmp_path / "a.bsnap").read_bytes() == data
    with io.BytesIO() as file:
        file.write(data)
        check(bitsnap.loads(file.getvalue()), 1)


def test_a_base_is_needed_again_and_may_be_in_memory_or_a_file(tmp_path: Path) -> None:
    first = bitsnap.Snapshot.from_bytes(bitsnap.dumps(state_of(1)))
    changed = state_of(1)
    changed["model"]["weight"][:10] += 1
    second = bitsnap.dumps(changed, base=first)
    assert len(second) < len(bitsnap.dumps(changed)) / 2
    loaded = bitsnap.loads(second, base=first)
    assert torch.equal(loaded["model"]["weight"], changed["model"]["weight"])
    bitsnap.save(tmp_path / "first.bsnap", state_of(1))
    loaded = bitsnap.loads(second, base=tmp_path / "first.bsnap")
    assert torch.equal(loaded["model"]["weight"], changed["model"]["weight"])
    third = bitsnap.dumps(changed, base=bitsnap.Snapshot.from_bytes(second, base=first))
    assert torch.equal(
        bitsnap.loads(third, base=bitsnap.Snapshot.from_bytes(second, base=first))["model"]["weight"],
        changed["model"]["weight"],
    )
    with pytest.raises(bitsnap.NotFoundError, match="no base was given"):
        bitsnap.loads(second)


def test_the_bytes_live_as_long_as_what_was_opened() -> None:
    data: Any = bytearray(bitsnap.dumps(state_of(2)))
    snapshot = bitsnap.Snapshot.from_bytes(data)
    del data
    check(bitsnap.load(snapshot), 2)
    assert bitsnap.inspect(snapshot).tensors


def test_arguments_of_load_and_save_are_taken() -> None:
    into = state_of(3)
    data = bitsnap.dumps(state_of(4), metadata={"run": "x"}, settings="lossless", threads=1)
    assert bitsnap.Snapshot.from_bytes(data).metadata["run"] == "x"
    filled = bitsnap.loads(data, into=into)
    assert filled["model"]["weight"] is into["model"]["weight"]
    assert list(bitsnap.loads(data, keys="model.weight")) == ["model"]


def test_what_is_no_snapshot_is_refused() -> None:
    data = bitsnap.dumps(state_of(1))
    with pytest.raises(bitsnap.TruncatedError):
        bitsnap.loads(data[:-1])
    with pytest.raises(bitsnap.CorruptError):
        bitsnap.loads(data[:-20] + b"x" + data[-19:])
    with pytest.raises(TypeError, match="data must be the bytes of a snapshot"):
        bitsnap.loads("a.bsnap")  # type: ignore[arg-type]
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['x'\]"):
        bitsnap.dumps({"x": object()})
