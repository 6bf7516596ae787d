"""The page of a run shows what was lost: bounds, measured errors, and what other quantizers would lose."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from bitsnap.errors import InvalidArgumentError
from bitsnap.report import report_figures, report_page
from bitsnap.report.report_data import RunData, error_text, gather
from bitsnap.report.report_page import write_report
from cli.command_line import run, run_json
from cli.tensor_file import Tensor, write
from python.report.report_pages import ELEMENTS, Page, make_run, page_of, traces


def lossy(data: RunData) -> RunData:
    """The same run as if its last step had gone through quantizers, in the form that `inspect --json` prints."""
    snapshot = json.loads(json.dumps(data.snapshots[30]))
    for tensor in snapshot["tensors"]:
        common = {"elements": ELEMENTS, "changed": ELEMENTS, "max_absolute": 0.5, "mean_square": 4e-12}
        if tensor["role"] == "exp_avg_sq":
            rule = {"name": "mantissa_bits", "amount": 3.0, "bound": 0.0625, "bound_of": "relative"}
            tensor["quantizer"] = {**common, **rule, "max_relative": 0.06, "mean_relative": 0.0225}
        if tensor["role"] == "exp_avg":
            rule = {"name": "update_step", "amount": 0.02, "bound": 0.01, "bound_of": "of the update"}
            update = {"elements": ELEMENTS, "largest": 0.009, "mean": 0.0025, "mean_of_updates": 0.5}
            tensor["quantizer"] = {**common, **rule, "max_relative": 2.0, "mean_relative": 0.05, "update": update}
    snapshot["policy"] = "bounded"
    snapshots = {**data.snapshots, 30: snapshot}
    return dataclasses.replace(data, snapshots=snapshots, lossy=(30, snapshot))


def test_loss_is_shown_with_its_bound_and_the_measured_error(run_data: RunData) -> None:
    page = Page(report_page.render(lossy(run_data)))
    assert "lossy, within bounds" in page.texts["span"]
    assert "lossless, every bit" not in page.texts["span"]
    assert {"policy lossless, for balanced", "policy bounded, for balanced"} <= set(page.texts["span"])
    cells = page.texts["td"]
    assert cells[:8] == ["first moments", "", "1", "1 % of the update", "0.9 %", "5 %", "4.0·10⁻¹²", "0.5 %"]
    assert cells[8:16] == ["second moments", "", "1", "6.2 % relative", "6 %", "2.2 %", "4.0·10⁻¹²", "–"]
    assert page.texts["code"] == ["update_step 0.02", "mantissa_bits 3"]


def test_the_loss_of_a_run_is_drawn_among_what_other_quantizers_would_lose(run_data: RunData) -> None:
    for each, stars in ((run_data, 0), (lossy(run_data), 1)):
        figure = report_figures.rate_figure(each)
        assert figure is not None
        choice = figure.controls[0]["options"].index("second moments")
        found = [trace for trace in traces(figure, choice, 0) if trace["name"] == "this run"]
        assert len(found) == stars
        for trace in found:
            tensor = next(t for t in each.snapshots[30]["tensors"] if t["role"] == "exp_avg_sq")
            assert trace["x"] == [8 * tensor["stored_bytes"] / ELEMENTS]
            assert trace["y"] == [0.0225]
        assert figure.controls[1]["options"][3:] == ["update error"] * stars
    assert figure is not None
    choice = figure.controls[0]["options"].index("first moments")
    (updates,) = traces(figure, choice, 3)
    assert updates["y"] == [0.005]
    assert traces(figure, 0, 3) == []


ADAM = ("--betas", "0.9,0.95", "--eps", "1e-8")


@pytest.fixture(scope="module")
def bounded_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints of a matrix and its moments, stored within bounds."""
    path = tmp_path_factory.mktemp("bounded") / "run"
    random = np.random.default_rng(5)
    scales = np.exp(random.normal(-9, 1, ELEMENTS))
    for step in (10, 20):
        master = random.normal(0, 0.02, ELEMENTS).astype(np.float32)
        moment = (random.normal(0, 0.4, ELEMENTS) * scales).astype(np.float32)
        half = ((master.view(np.uint32).astype(np.uint64) + 0x8000) >> 16).astype(np.uint16)
        tensors = [Tensor("model.w", "BF16", (64, 64), half.tobytes())]
        for role, values in (("master", master), ("exp_avg", moment), ("exp_avg_sq", (scales**2).astype(np.float32))):
            tensors.append(Tensor(f"{role}.w", "F32", (64, 64), values.tobytes()))
        state = write(path.with_name("state.safetensors"), tensors)
        run("add", path, "--step", step, "--policy", "bounded", *ADAM, "--adam-step", step, state)
    return path


def test_a_bounded_run_is_shown_with_its_bounds_and_measured_errors(bounded_run: Path) -> None:
    page = page_of(bounded_run)
    assert "lossy, within bounds" in page.texts["span"]
    assert "policy bounded, for balanced" in page.texts["span"]
    assert page.texts["code"] == ["master_bits 8", "update_step 0.02", "mantissa_bits 3"]
    cells = page.texts["td"]
    rows = {cells[i]: cells[i : i + 8] for i in range(0, 24, 8)}
    assert list(rows) == ["masters", "first moments", "second moments"]
    quantizers = {
        tensor["role"]: tensor["quantizer"]
        for tensor in run_json("inspect", f"{bounded_run}@20")["tensors"]
        if tensor.get("quantizer")
    }
    for role, name in (("master", "masters"), ("exp_avg", "first moments"), ("exp_avg_sq", "second moments")):
        quantizer = quantizers[role]
        of_updates = quantizer["bound_of"] == "of the update"
        reached = quantizer["update"]["largest"] if of_updates else quantizer["max_relative"]
        assert 0 < reached <= quantizer["bound"] * (2 if quantizer["past_nearest"] else 1)
        bound, largest, relative, square = rows[name][3:7]
        assert bound == f"{error_text(quantizer['bound'])} {quantizer['bound_of']}"
        assert largest == error_text(reached)
        assert relative == error_text(quantizer["mean_relative"])
        assert square == error_text(quantizer["mean_square"])

    # The file has Adam's numbers, so the update error of every quantizer is drawn.
    figure = page.document["figures"]["rate"]
    choice = figure["controls"][0]["options"].index("first moments")
    by_update = figure["controls"][1]["options"].index("update error")
    names = [trace["name"] for trace in traces(figure, choice, by_update)]
    for name in ("rounded mantissas", "clusters (BitSnap)", "multiples of the update", "this run, each step"):
        assert name in names
    (stars,) = [trace for trace in traces(figure, choice, by_update) if trace["name"] == "this run, each step"]
    update = quantizers["exp_avg"]["update"]
    assert math.isclose(stars["y"][-1], update["mean"] / update["mean_of_updates"])


def test_multiples_of_the_update_are_drawn_if_adams_numbers_are_given(some_run: Path) -> None:
    data = gather(some_run, steps=1, adam=("0.9,0.95", "1e-8"))
    figure = report_figures.rate_figure(data)
    assert figure is not None
    choice = figure.controls[0]["options"].index("first moments")
    points = next(role for role in data.states[0]["roles"] if role["role"] == "exp_avg")["quantizers"]
    steps = [point for point in points if point["name"] == "update_step"]
    (line,) = [trace for trace in traces(figure, choice, 0) if trace["name"] == "multiples of the update"]
    assert line["y"] == [point["mean_relative"] for point in steps]
    assert line["text"] == ["0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2"]
    by_update = figure.controls[1]["options"].index("update error")
    (line,) = [trace for trace in traces(figure, choice, by_update) if trace["name"] == "multiples of the update"]
    assert line["y"] == [point["update"]["mean"] / point["update"]["mean_of_updates"] for point in steps]
    assert traces(figure, 0, by_update) == []
    with pytest.raises(InvalidArgumentError, match="belong together"):
        write_report(some_run, some_run.with_name("other.html"), eps=1e-8)


def badges_of(page: Page) -> list[str]:
    return [text for text in page.texts["span"] if re.match("lossless, every|lossy, |nothing lost", text)]


def test_one_lossy_step_among_many_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_run(tmp_path / "run", [10])
    state = path.with_name("state.safetensors")
    run("add", path, "--step", 20, state, "--v-bits", 3)
    make_run(path, [30])
    monkeypatch.setattr("bitsnap.report.report_data.MOST_INSPECTED", 2)
    page = page_of(path, steps=1)
    assert badges_of(page) == ["lossy, within bounds"]
    assert page.texts["code"] == ["mantissa_bits 3"]
    # A run of which some files were not inspected is not called lossless.
    monkeypatch.setattr("bitsnap.report.report_data.MOST_SEARCHED", 2)
    assert badges_of(page_of(path, steps=1)) == ["nothing lost in the 2 of 3 files that were looked at"]


def test_a_lossy_shard_is_found_if_another_one_is_lossless(tmp_path: Path) -> None:
    values = torch.arange(1.0, 4097.0).reshape(64, 64) / 3
    for step, settings in ((1, bitsnap.Settings(policy="lossless")), (2, bitsnap.bounded())):
        for rank in (0, 1):
            rule = settings if rank == 1 else bitsnap.Settings(policy="lossless")
            with bitsnap.Store(tmp_path / "run", shared=True, settings=rule) as store:
                store.save_shard(step, {"exp_avg_sq": {"w": values}}, shard=rank, shards=2, attempt=f"a{step}")
        with bitsnap.Store(tmp_path / "run", shared=True) as store:
            store.commit(step, 2, f"a{step}")
        expected = ["lossless, every bit"] if step == 1 else ["lossy, within bounds"]
        assert badges_of(page_of(tmp_path / "run", shard=0)) == expected


def test_losses_are_means_over_elements() -> None:
    def tensor(elements: int, mean: float) -> dict[str, Any]:
        quantizer = {
            "name": "clusters",
            "amount": 16.0,
            "bound": mean,
            "bound_of": "absolute",
            "elements": elements,
            "max_relative": 9.0,
            "max_absolute": mean / 2,
            "mean_relative": mean,
            "mean_square": mean,
        }
        return {"role": "exp_avg", "stored_bytes": elements, "raw_bytes": 4 * elements, "quantizer": quantizer}

    (line,) = report_figures.losses({"tensors": [tensor(100, 1.0), tensor(300, 2.0)]})
    assert (line["tensors"], line["elements"], line["bound"], line["reached"]) == (2, 400, 2.0, 1.0)
    assert line["mre"] == 1.75
    assert line["rule"] == "clusters 16"
    assert line["update"] is None
