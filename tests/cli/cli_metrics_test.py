"""Metrics of checkpoints in the commands: the log shows them, and label finds the best."""

from __future__ import annotations

from pathlib import Path

import bitsnap
from cli.command_line import INVALID_ARGUMENT, NOT_FOUND, run, run_json
from cli.tensor_file import random_bytes


def test_the_log_shows_metrics_and_label_finds_the_best(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with bitsnap.Store(path) as store:
        for step, loss in ((10, 2.5), (20, 1.25), (30, float("nan"))):
            store.save(step, {"w": random_bytes(100, step)}, metrics={"loss": loss} if step < 40 else None)
        store.save(40, {"w": random_bytes(100, 4)})
    lines = [line.split() for line in run("log", path).stdout.decode().splitlines()]
    assert [lines[0][-1], *(line[-1] for line in lines[1:5])] == ["loss", "2.5", "1.25", "nan", "-"]
    assert [entry.get("metrics") for entry in run_json("log", path)] == [
        {"loss": 2.5},
        {"loss": 1.25},
        {"loss": None},
        None,
    ]
    run("label", path, "--best", "loss")
    run("label", path, "--best", "loss", "--highest", "worst")
    assert run_json("label", path)["labels"] == {"best": 20, "worst": 10}
    failed = run("label", path, "--best", "acc", status=NOT_FOUND)
    assert b"no checkpoint has the metric 'acc'; there is loss" in failed.stderr
    failed = run("label", f"{path}@20", "--best", "loss", status=INVALID_ARGUMENT)
    assert b"name the run without a step" in failed.stderr
