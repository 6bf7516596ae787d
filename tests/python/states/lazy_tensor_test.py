"""LazyTensor: values of states that are made when they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from python.engine.checkpointer_jobs import Jobs
from python.processes import MIB, PEAK, run_script
from python.same_bits import assert_same

TENSORS: dict[str, Any] = {
    "large": torch.linspace(-1, 1, 600_000),
    "strided": torch.randn(300, 200).T,
    "small": torch.ones(3, dtype=torch.bfloat16),
    "array": np.arange(5000).reshape(50, 100)[:, ::2],
    "empty": torch.empty(0, 3),
    "scalar": torch.tensor(7),
}


def lazy(tensor: Any) -> bitsnap.LazyTensor:
    return bitsnap.LazyTensor(tensor.shape, tensor.dtype, lambda: tensor)


def test_they_are_stored_as_what_they_make(tmp_path: Path) -> None:
    made = {name: lazy(tensor) for name, tensor in TENSORS.items()}
    bitsnap.save(tmp_path / "lazy.bsnap", {"m": made, "box": bitsnap.Box(made["large"], (1_200_000,), (600_000,))})
    loaded = bitsnap.load(tmp_path / "lazy.bsnap")
    assert_same(loaded["m"], TENSORS)
    assert loaded["box"].offset == (600_000,)
    assert torch.equal(loaded["box"].tensor, TENSORS["large"])
    bitsnap.save_file(made, tmp_path / "a.bsnap")
    bitsnap.save_file(TENSORS, tmp_path / "b.bsnap")
    assert bitsnap.snapshot_id(tmp_path / "a.bsnap") == bitsnap.snapshot_id(tmp_path / "b.bsnap")


def test_a_store_and_a_checkpointer_take_them(jobs: Jobs, tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        for step in (1, 2):
            value = torch.full((70_000,), float(step))
            store.save(step, {"w": lazy(value), "step": step})
            assert torch.equal(store.load(step)["w"], value)
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['w'\] is to be F32 \[70000\], but .* F64"):
            store.save(3, {"w": bitsnap.LazyTensor((70_000,), torch.float32, value.double), "step": 3})
        assert store.steps() == [1, 2]
    with bitsnap.Checkpointer(jobs.path, job=bitsnap.JobOptions(name=jobs.job), timeout=30) as checkpointer:
        assert checkpointer.restore() is not None
        checkpointer.save(3, {"w": lazy(value)})
        checkpointer.wait()
        restored = checkpointer.restore()
    assert restored is not None
    assert torch.equal(restored.state["w"], value)


def test_errors_of_the_function_leave_nothing_behind(tmp_path: Path) -> None:
    def fail() -> torch.Tensor:
        raise LookupError("no such shard")

    large = TENSORS["large"]
    for make, error, message in (
        (fail, LookupError, "no such shard"),
        (lambda: None, bitsnap.InvalidArgumentError, r"state\['w'\]: make\(\) returned NoneType"),
        (lambda: large[1:], bitsnap.InvalidArgumentError, r"F32 \[600000\], but make\(\) returned F32 \[599999\]"),
    ):
        state = {"first": large, "w": bitsnap.LazyTensor(large.shape, large.dtype, make)}  # type: ignore[arg-type]
        with pytest.raises(error, match=message):
            bitsnap.save(tmp_path / "a.bsnap", state)
    assert not [*tmp_path.iterdir()]
    with pytest.raises(TypeError, match="make must be"):
        bitsnap.LazyTensor((3,), torch.float32, 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="shape must be a tuple of integers"):
        bitsnap.LazyTensor(3, torch.float32, fail)  # type: ignore[arg-type]
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"shape \[4294967296, 1073741824\] of F32 is too large"):
        bitsnap.LazyTensor((1 << 32, 1 << 30), torch.float32, fail)


SCRIPT = (
    PEAK
    + """
made = 0
def make():
    global made
    made += 1
    return tensor(32)

state = {f"t{i}": bitsnap.LazyTensor((16 << 20,), torch.bfloat16, make) for i in range(8)}
with Peak() as peak:
    bitsnap.save(path + ".lazy", state, threads=1)
print(made, peak.growth)
"""
)


def test_only_what_is_being_written_is_in_memory(tmp_path: Path) -> None:
    made, growth = map(int, run_script(SCRIPT, tmp_path / "a.bsnap").split())
    assert made == 8
    assert growth < 4 * 32 * MIB  # of 256
