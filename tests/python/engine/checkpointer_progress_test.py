"""What a function, and the tools for watching, are told of the saves of a bitsnap.Checkpointer."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import bitsnap
from bitsnap import callbacks
from bitsnap.report.report_data import read_timings
from python.engine.checkpointer_jobs import Jobs, failed, saved
from python.run_states import state_of


def test_a_function_is_told_of_progress(jobs: Jobs) -> None:
    told: list[tuple[int, str, str]] = []

    def tell(save: bitsnap.Save) -> None:
        told.append((save.step, save.stage, threading.current_thread().name))
        if save.stage == "failed":
            raise OSError("no more paper")

    with jobs(on_progress=tell) as checkpointer:
        saved(checkpointer, 1, state_of(1)).result()
        saved(checkpointer, 2, state_of(2)).result()
        failed(checkpointer)
        deadline = time.monotonic() + 10
        while (2, "failed", "bitsnap-progress") not in told and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.warns(bitsnap.BackgroundSaveWarning) as caught:
            saved(checkpointer, 3, state_of(3)).result()
        assert sorted(str(each.message).partition(":")[0] for each in caught) == [
            "on_progress failed for step 2",
            "step 2 was not saved",
        ]
        with pytest.raises(bitsnap.InvalidArgumentError):
            checkpointer.wait()
    assert {name for _, _, name in told} == {"bitsnap-progress"}
    assert len(told) == len(set(told))
    assert [told.count((step, "persisted", "bitsnap-progress")) for step in (1, 2, 3)] == [1, 1, 1]
    assert told.count((2, "failed", "bitsnap-progress")) == 1


def test_what_tells_of_progress_goes_on_whatever_it_raises(jobs: Jobs) -> None:
    told = []

    def tell(save: bitsnap.Save) -> None:
        told.append((save.step, save.stage))
        if save.step == 1:
            raise SystemExit("the end")

    with jobs(on_progress=tell) as checkpointer:
        saved(checkpointer, 1, state_of(1)).result()
        deadline = time.monotonic() + 10
        while (1, "persisted") not in told and time.monotonic() < deadline:
            time.sleep(0.01)
        while "SystemExit" not in str(checkpointer._saves._unwarned) and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.warns(bitsnap.BackgroundSaveWarning, match="on_progress failed for step 1: SystemExit: the end"):
            saved(checkpointer, 2, state_of(2)).result()
    assert (2, "persisted") in told


def test_tools_for_watching_get_the_numbers_of_a_save_that_is_over(jobs: Jobs) -> None:
    class Writer:
        def __init__(self) -> None:
            self.scalars: list[tuple[str, float, int]] = []

        def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
            self.scalars.append((tag, scalar_value, global_step))

    class WandBRun:
        def __init__(self) -> None:
            self.lines: list[dict[str, Any]] = []
            self.metrics: list[tuple[str, str | None]] = []

        def define_metric(self, name: str, step_metric: str | None = None) -> None:
            self.metrics.append((name, step_metric))

        def log(self, data: dict[str, Any], *, commit: bool) -> None:
            assert not commit
            self.lines.append(data)

    class MLflow:
        def __init__(self) -> None:
            self.lines: list[tuple[dict[str, float], int, str]] = []

        def log_metrics(self, metrics: dict[str, float], *, step: int, run_id: str) -> None:
            self.lines.append((metrics, step, run_id))

    writer, run, mlflow = Writer(), WandBRun(), MLflow()
    to_board, to_run, to_mlflow = callbacks.TensorBoard(writer), callbacks.WandB(run), callbacks.MLflow(mlflow, "r7")

    def both(save: bitsnap.Save) -> None:
        to_board(save)
        to_run(save)
        to_mlflow(save)

    with jobs(on_progress=both) as checkpointer:
        result = saved(checkpointer, 3, state_of(3)).result()
        failed(checkpointer)
        with pytest.raises(bitsnap.InvalidArgumentError):
            checkpointer.wait()
    assert run.metrics == [("bitsnap/step", None), ("bitsnap/*", "bitsnap/step")]
    assert [line["bitsnap/failed"] for line in run.lines] == [0.0, 1.0]
    line = run.lines[0]
    assert line["bitsnap/lag_seconds"] >= result.stall_seconds + result.write_seconds
    metrics, *place = mlflow.lines[0]
    assert (set(metrics), place) == (line.keys() - {"bitsnap/step"}, [3, "r7"])
    line = {name: value for name, value in line.items() if not name.endswith("lag_seconds")}
    with bitsnap.Store(checkpointer.path, read_only=True) as store:
        held = store.usage()
    assert line == {
        "bitsnap/step": 3,
        "bitsnap/failed": 0.0,
        "bitsnap/stall_seconds": result.stall_seconds,
        "bitsnap/wait_seconds": result.wait_seconds,
        "bitsnap/encode_seconds": result.encode_seconds,
        "bitsnap/write_seconds": result.write_seconds,
        "bitsnap/stored_bytes": result.stored_bytes,
        "bitsnap/ratio": result.ratio,
        "bitsnap/run_held_bytes": held.held_bytes,
        "bitsnap/run_ratio": held.ratio,
    }
    scalars = [each for each in writer.scalars[:10] if not each[0].endswith("lag_seconds")]
    assert scalars == [(name, value, 3) for name, value in line.items() if name != "bitsnap/step"]
    assert ("bitsnap/failed", 1.0, 3) in writer.scalars[10:]


def test_what_saves_took_is_written_down_for_the_report(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "saves.jsonl"
    with jobs(on_progress=callbacks.JsonLines(path), every=2, every_memory=1) as checkpointer:
        results = [saved(checkpointer, step, state_of(step)).result() for step in (1, 2)]
        failed(checkpointer)
        with pytest.raises(bitsnap.InvalidArgumentError):
            checkpointer.wait()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["step"], line["failed"]) for line in lines[:2]] == [(1, 0.0), (2, 0.0)]
    assert lines[-1]["failed"] == 1.0
    assert "save_seconds" not in lines[0]
    took = results[1].stall_seconds - results[1].wait_seconds + results[1].encode_seconds + results[1].write_seconds
    assert lines[1]["save_seconds"] == pytest.approx(took)
    timings = read_timings(path)
    assert [timing.stall_seconds for timing in timings][:2] == [result.stall_seconds for result in results]
    assert [timing.save_seconds for timing in timings][:2] == [None, pytest.approx(took)]
