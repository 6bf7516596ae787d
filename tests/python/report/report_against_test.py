"""Values that a training saves with its checkpoints, and two runs on one page."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bitsnap
from bitsnap.report.report_data import finite, metrics_of
from cli.command_line import NOT_FOUND, run, run_json
from python.report.report_pages import make_run, page_of, traces


def save(path: Path, values: dict[int, dict[str, float]]) -> Path:
    """A run with these metrics beside a tensor that grows from step to step."""
    with bitsnap.Store(path) as store:
        for step, metrics in values.items():
            weights = np.random.default_rng(step).standard_normal(4096 * step).astype(np.float32)
            store.save(step, {"model": {"w": weights}}, metrics=metrics)
    return path


def stored(path: Path) -> list[int]:
    return [entry["stored_bytes"] for entry in run_json("du", path)["steps"]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("against")
    first = save(folder / "first", {step: {"loss": 4 / step} for step in (1, 2, 3)})
    second = save(folder / "<b>second", {step: {"loss": 8 / step} for step in (2, 3, 4)})
    return first, second


# ---- values


def test_metrics_are_those_of_the_log() -> None:
    found = metrics_of({"metrics": {"loss": 2.5, "bad": None}, "step": 3})
    assert found["loss"] == 2.5
    assert math.isnan(found["bad"])
    assert metrics_of({}) == {}


def test_values_are_drawn_with_the_loss_first(tmp_path: Path) -> None:
    values: dict[int, dict[str, float]] = {1: {"grad": 1, "loss": 4}, 2: {"loss": 3.5}, 3: {}}
    figure = page_of(save(tmp_path / "run", values), steps=1).document["figures"]["metrics"]
    assert figure["controls"][0]["options"] == ["loss", "grad"]
    (loss,), (grad,) = traces(figure, 0), traces(figure, 1)
    assert (loss["x"], loss["y"]) == (["1", "2"], [4, 3.5])
    assert (grad["x"], grad["y"]) == (["1"], [1])


def test_values_that_json_cannot_hold_are_text(tmp_path: Path) -> None:
    values = {1: {"loss": 4.0, "lr": math.inf}, 2: {"loss": math.nan, "lr": 1e308}, 3: {"loss": 3.0, "lr": -math.inf}}
    paths = [save(tmp_path / name, values) for name in ("one", "two")]
    for path in paths:
        # A speed that is too large for a float.
        (path / "timings.jsonl").write_text('{"step": 1, "save_seconds": 1e-320}\n{"step": 2, "save_seconds": 1}\n')
    page = page_of(paths[0], steps=1)
    line, marks = traces(page.document["figures"]["metrics"], 0)
    assert (line["x"], line["y"]) == (["1", "2", "3"], [4, None, 3])
    assert (marks["x"], marks["y"], marks["text"]) == (["2"], [3], ["not finite"])
    line, marks = traces(page.document["figures"]["metrics"], 1)
    assert (line["y"], marks["x"]) == ([None, 1e308, None], ["1", "3"])
    table = cells_of(*paths)
    assert table["lr at step 3"] == ["not finite", "not finite", "–"]
    assert table["loss at step 3"] == ["3", "3", "the same"]
    assert finite({"a": [math.inf, 1, (math.nan, "x")], "b": -math.inf}) == {"a": [None, 1, [None, "x"]], "b": None}


def test_a_run_without_values_has_no_plot_of_them(some_run: Path) -> None:
    assert "metrics" not in page_of(some_run, steps=1).document["figures"]


# ---- two runs


def test_both_runs_stand_in_the_same_plots(runs: tuple[Path, Path]) -> None:
    first, second = runs
    figures = page_of(first, against=second, steps=1).document["figures"]
    bytes_layout = figures["bytes"]["variants"]["0"]["layout"]
    assert bytes_layout["xaxis"]["categoryarray"] == ["1", "2", "3", "4"]
    unit = {"kB": 1e3, "MB": 1e6}[bytes_layout["yaxis"]["ticksuffix"].strip()]
    line = traces(figures["bytes"], 0)[-1]
    assert (line["name"], line["x"]) == ("&lt;b&gt;second", ["2", "3", "4"])
    assert [round(size * unit) for size in line["y"]] == stored(second)
    added = traces(figures["bytes"], 1)[-1]
    assert round(added["y"][-1] / added["y"][0] * stored(second)[0]) == sum(stored(second))
    *_, whole, other = traces(figures["ratio"], 0)
    raw = [entry["raw_bytes"] for entry in run_json("du", second)["steps"]]
    assert (whole["name"], other["name"]) == ("whole", "&lt;b&gt;second")
    assert other["y"] == [size / least for size, least in zip(raw, stored(second), strict=True)]
    losses = traces(figures["metrics"], 0)
    assert [(each["x"], each["y"][0]) for each in losses] == [(["1", "2", "3"], 4), (["2", "3", "4"], 4)]


def cells_of(first: Path, second: Path) -> dict[str, list[str]]:
    page = page_of(first, against=second, steps=1)
    cells = [text for text in page.texts["td"] if text]
    return {cells[i]: cells[i + 1 : i + 4] for i in range(0, len(cells) - 3, 4)}


def test_the_table_says_how_the_runs_differ(runs: tuple[Path, Path]) -> None:
    first, second = runs
    table = cells_of(first, second)
    assert table["checkpoints"] == ["3", "3", "the same"]
    held = [run_json("du", path)["stored_bytes"] for path in runs]
    assert table["held on disk"][2] == f"{100 * (held[1] / held[0] - 1):+.1f} %"
    assert table["loss at step 3"] == ["1.3333", "2.6667", "+100.0 %"]
    assert table["stored at step 3"][2] != "–"
    assert table["weights at step 3"][0] == table["weights at step 3"][1]


def test_runs_without_a_common_step_are_compared_as_wholes(tmp_path: Path, runs: tuple[Path, Path]) -> None:
    table = cells_of(save(tmp_path / "run", {9: {}}), runs[0])
    assert table["checkpoints"] == ["1", "3", "3.00×"]
    assert not [line for line in table if "at step" in line]


def test_stalls_of_both_runs_are_shown(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / name, [1]) for name in ("one", "two")]
    for path, seconds in zip(paths, (0.5, 0.25), strict=True):
        (path / "timings.jsonl").write_text(f'{{"step": 1, "stall_seconds": {seconds}}}\n')
    page = page_of(paths[0], against=paths[1], steps=1)
    found: list[Any] = [(each["name"], each["y"]) for each in traces(page.document["figures"]["timings"])]
    assert found == [("stall", [0.5]), ("stall, two", [0.25])]
    assert cells_of(*paths)["mean stall"] == ["0.5 s", "0.25 s", "-50.0 %"]


def test_a_second_run_that_is_not_there_is_an_error(some_run: Path, tmp_path: Path) -> None:
    done = run("report", some_run, "--against", tmp_path / "x", "-o", tmp_path / "p.html", status=NOT_FOUND)
    assert b"x" in done.stderr
    assert not (tmp_path / "p.html").exists()
