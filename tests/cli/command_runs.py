"""States of a small training as safetensors files, and runs made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cli.command_line import run
from cli.tensor_file import Tensor, to_bytes, weights

ELEMENTS = 6000


def state(step: int, elements: int = ELEMENTS) -> bytes:
    """The same tensors at each step, a few of their elements changed, so that bases pay."""
    tensors = []
    for name, seed in (("model.w", 1), ("optimizer.exp_avg.w", 2), ("optimizer.exp_avg_sq.w", 3)):
        values = np.frombuffer(weights(name, elements, seed).data, np.uint32).copy()
        changes = np.random.default_rng(1000 * step + seed)
        values[changes.integers(0, elements, elements // 20)] ^= changes.integers(1, 256, elements // 20, np.uint32)
        tensors.append(Tensor(name, "F32", (elements,), values.tobytes()))
    tensors.append(Tensor("step", "I64", (), np.int64(step).tobytes()))
    return to_bytes(tensors, {"step": str(step)})


def add(path: Path, step: int, *options: object, elements: int = ELEMENTS) -> bytes:
    """Saves that state as a checkpoint of the run, and returns its file's bytes."""
    data = state(step, elements)
    source = path.with_name(f"{path.name}.step-{step}.safetensors")
    source.write_bytes(data)
    run("add", path, "--step", step, source, *options)
    source.unlink()
    return data


def make_run(path: Path, steps: list[int], *options: object) -> dict[int, bytes]:
    """A run with these steps; returns their files' bytes."""
    return {step: add(path, step, *(options if step == steps[0] else ())) for step in steps}


def extracted(name: str) -> bytes:
    return run("extract", name, "-c").stdout
