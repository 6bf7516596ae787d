"""bitsnap estimate: what it says of a training is what a run of the same checkpoints then holds and writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.command_line import INVALID_ARGUMENT, NOT_FOUND, USAGE, run, run_json
from cli.tensor_file import Tensor, weights, write

# What the 95 % interval does not cover: index and commit record of a small checkpoint.
MARGIN = 0.01
CHUNK = 1 << 18


def train(folder: Path, steps: list[int], chunks: int = 1) -> Path:
    """AdamW on gradients that are drawn: weights in BF16, masters and moments, and an embedding that never changes."""
    folder.mkdir()
    random = np.random.default_rng(1)
    elements = chunks * CHUNK + 1000
    master = random.normal(0, 0.02, elements).astype(np.float32)
    first, second = np.zeros_like(master), np.zeros_like(master)
    scale = (np.exp(random.normal(0, 1, elements)) * 1e-3).astype(np.float32)
    for step in range(1, steps[-1] + 1):
        gradient = random.normal(0, 1, elements).astype(np.float32) * scale
        first += np.float32(0.1) * (gradient - first)
        second += np.float32(0.05) * (gradient * gradient - second)
        rate = np.float32(1e-3) / np.float32(1 - 0.9**step)
        master -= rate * first / (np.sqrt(second / np.float32(1 - 0.95**step)) + np.float32(1e-8))
        if step not in steps:
            continue
        rounded = ((master.view(np.uint32) + 0x7FFF + ((master.view(np.uint32) >> 16) & 1)) >> 16).astype(np.uint16)
        tensors = [
            Tensor("model.w.weight", "BF16", (elements,), rounded.tobytes()),
            weights("model.embedding.weight", CHUNK, 2),
            *(
                Tensor(f"optimizer.w.{name}", "F32", (elements,), values.tobytes())
                for name, values in (("master", master), ("exp_avg", first), ("exp_avg_sq", second))
            ),
        ]
        write(folder / f"step-{step}.safetensors", tensors, {"step": str(step)})
    return folder


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def true_bytes(checkpoints: Path, target: Path, steps: list[int], keep_last: int | None) -> tuple[float, float]:
    """What the run holds after a save, and what a save writes, in the mean; without a retention, after the last one."""
    held, written = [], []
    options = [] if keep_last is None else ["--keep-last", keep_last]
    for step in steps:
        saved = run_json("add", target, "--step", step, checkpoints / f"step-{step}.safetensors", *options)
        again = saved["pruned"]["rewritten"] if saved["pruned"] else []
        held.append(bytes_in(target))
        written.append(saved["stored_bytes"] + sum(each["bytes_after"] for each in again))
    if keep_last is None:
        return held[-1], sum(written) / len(written)
    counted = held[keep_last - 1 :]
    return sum(counted) / len(counted), sum(written[keep_last - 1 :]) / len(counted)


def check_interval(estimated: dict[str, float], truth: float) -> None:
    assert abs(estimated["value"] - truth) <= estimated["error"] + MARGIN * truth, (estimated, truth)


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("estimate") / "near", [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("keep_last", [None, 1, 3])
def test_a_run_holds_and_writes_what_was_estimated(near: Path, tmp_path: Path, keep_last: int | None) -> None:
    options = [] if keep_last is None else ["--keep-last", keep_last]
    estimate = run_json("estimate", near, *options)
    assert estimate["read_bytes"] == estimate["raw_bytes"]
    held, written = true_bytes(near, tmp_path / "run", [1, 2, 3, 4, 5, 6], keep_last)
    assert estimate["these"]["mean_bytes"]["error"] < 1
    check_interval(estimate["these"]["mean_bytes"], held)
    check_interval(estimate["these"]["written_bytes"], written)


def test_a_sample_says_how_far_it_may_be_off(tmp_path: Path) -> None:
    steps = [3, 6, 9]
    checkpoints = train(tmp_path / "checkpoints", steps, 40)
    estimate = run_json("estimate", checkpoints, "--keep-last", 2, "--limit-mb", 60)
    assert estimate["read_bytes"] < 0.6 * estimate["raw_bytes"]
    these = estimate["these"]
    assert 0 < these["mean_bytes"]["error"] < 0.05 * these["mean_bytes"]["value"]
    held, written = true_bytes(checkpoints, tmp_path / "run", steps, 2)
    check_interval(these["mean_bytes"], held)
    check_interval(these["written_bytes"], written)


def test_the_same_for_every_number_of_threads(near: Path) -> None:
    results = [run("estimate", near, "--keep-last", 3, "--threads", threads, "--json").stdout for threads in (1, 3)]
    assert results[0] == results[1]


def test_settings_count(near: Path) -> None:
    raw = run_json("estimate", near, "--policy", "raw", "--keep-last", 2)
    assert raw["alone"]["value"] == pytest.approx(1, abs=0.001)
    bounded = run_json("estimate", near, "--policy", "bounded", "--betas", "0.9,0.95", "--eps", "1e-8")
    assert bounded["alone"]["value"] < run_json("estimate", near)["alone"]["value"] - 0.1


def test_one_checkpoint_shows_only_what_it_takes_alone(near: Path) -> None:
    path = near / "step-3.safetensors"
    assert run_json("estimate", path)["later"] is None
    shown = run("estimate", path, "--keep-last", 2).stdout.decode()
    assert "One checkpoint shows only what it takes standalone" in shown


def test_nothing_is_written(near: Path) -> None:
    before = sorted((path.name, path.stat().st_mtime_ns) for path in near.iterdir())
    run("estimate", near)
    assert before == sorted((path.name, path.stat().st_mtime_ns) for path in near.iterdir())


def error_of(*arguments: object, status: int) -> str:
    found: dict[str, Any] = json.loads(run("estimate", *arguments, "--json", status=status).stdout)
    return str(found["error"]["message"])


def test_errors_say_what_is_wrong(near: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "step-9.safetensors", [weights("other", 5000, 1)])
    message = error_of(near / "step-1.safetensors", other, status=INVALID_ARGUMENT)
    for part in ("none of its 1 tensors", "step-1", "step-9"):
        assert part in message
    assert "does not exist" in error_of(tmp_path / "step-8.pt", status=NOT_FOUND)
    assert "does not exist" in error_of(tmp_path / "nothing", status=NOT_FOUND)
    run("estimate", near, "--keep-last", 0, status=USAGE)
    run("estimate", near, "--full", "--limit-mb", 5, status=USAGE)
