"""Checkpoints of Accelerate in a run: real trainings, killed and resumed, rotated and exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bitsnap
from python.forked_calls import Calls
from python.runs.training_folders import after, names

TRAININGS = "python.accelerate.accelerate_trainings"  # for the fixtures `call` and `stock`


@pytest.mark.parametrize("through_agent", [False, True])
def test_a_killed_training_resumes_whole(
    call: Calls, stock: tuple[Path, dict[str, Any]], tmp_path: Path, through_agent: bool
) -> None:
    folder = tmp_path / "out"
    arguments = {"folder": str(folder), "options": {"through_agent": through_agent}, "total_limit": 2}
    try:
        assert call.status("train", kill_in=6, **arguments)[0] == -9
        resumed = call("train", resume=True, **arguments)
    finally:
        call("stop", folder=str(folder))
    assert resumed["losses"] == after(4, stock[1])
    assert resumed["average"] == stock[1]["average"]
    # Also the bits that the dtype of the parameters does not have.
    assert resumed["momenta"] == stock[1]["momenta"]
    (warning,) = resumed["warnings"]
    assert warning.startswith(f"{folder}/checkpoints/checkpoint_2 is no complete checkpoint")
    # Accelerate's own rotation; the third folder is that of the save that was killed.
    assert names(folder / "checkpoints") == ["checkpoint_3", "checkpoint_4"]
    assert names(folder) == ["bitsnap", "checkpoints"]
    assert names(folder / "checkpoints" / "checkpoint_4") == ["bitsnap-reference.json"]
    with bitsnap.Store(folder / "bitsnap", read_only=True) as store:
        assert store.labels() == {"checkpoints/checkpoint_3": 3, "checkpoints/checkpoint_4": 4}
        assert store.steps() == [3, 4]
        state = store.load()
    assert state["optimizer"]["state"]["0.weight"]["exp_avg"].shape == state["model"]["0.weight"].shape
    assert state["objects"][1] == {"step": 8}


def test_a_training_that_begins_anew_beside_an_earlier_one_is_told(call: Calls, tmp_path: Path) -> None:
    first, (told,), resumed = call("save_thrice", folder=str(tmp_path))
    assert (first, resumed) == ([], [])
    assert told.startswith(f"{tmp_path}/bitsnap has checkpoints of an earlier training, up to step ")
    assert "load_state() before the first save_state() resumes that training; another directory keeps" in told


@pytest.mark.slow
def test_accelerate_resumes_from_an_export_bit_for_bit(
    call: Calls, stock: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    call("train", folder=str(tmp_path / "out"), options={})
    call("export", checkpoint=str(tmp_path / "out/checkpoints/checkpoint_1"), target=str(tmp_path / "plain"))
    found = call("compare", first=str(tmp_path / "plain"), second=str(stock[0] / "checkpoints" / "checkpoint_1"))
    assert found == [
        "custom_checkpoint_0.pkl",
        "custom_checkpoint_1.pkl",
        "model.safetensors",
        "model_1.safetensors",
        "optimizer.bin",
        "optimizer_1.bin",
        "random_states_0.pkl",
        "scheduler.bin",
    ]
    folder = str(tmp_path / "plain")
    expected = call("train", folder=str(tmp_path / "on"), resume=str(stock[0] / "checkpoints" / "checkpoint_1"))
    ways: list[dict[str, Any] | None] = [None, {}]
    for options in ways:  # Accelerate's folder is loaded in either way
        resumed = call("train", folder=str(tmp_path / f"on-{options}"), resume=folder, options=options)
        # Accelerate rounds the momenta of bfloat16 parameters, so that only the first loss is that of the whole run.
        assert resumed["losses"] == expected["losses"]
        assert resumed["losses"]["5"] == stock[1]["losses"]["5"]


@pytest.mark.slow
def test_two_processes_resume_with_their_own_random_generators(call: Calls, tmp_path: Path) -> None:
    ours = {"folder": str(tmp_path / "out"), "options": {}, "bf16": False}
    whole = call("train_on_ranks", meeting=str(tmp_path / "a"), **ours)
    folder = tmp_path / "out" / "checkpoints" / "checkpoint_1"
    resumed = call("train_on_ranks", meeting=str(tmp_path / "b"), resume=str(folder), **ours)
    assert whole == resumed == [0, 0]
    for rank in range(2):
        expected, found = (json.loads((tmp_path / f"{each}-{rank}.json").read_text()) for each in "ab")
        assert found == {step: loss for step, loss in expected.items() if int(step) > 4}
    assert names(folder) == ["bitsnap-reference.json", "random_states_1.pkl"]


def test_what_does_not_fit_is_named(call: Calls, tmp_path: Path) -> None:
    status, error = call.status("train", folder=str(tmp_path), options={"asynchron": True})
    assert status == 1
    assert "asynchron" in error
    status, error = call.status("export", checkpoint=str(tmp_path), target=str(tmp_path / "plain"))
    assert "NotFoundError" in error


def test_what_an_accelerator_does_with_a_run_is_loaded_and_undone(call: Calls, tmp_path: Path) -> None:
    found = call("verbs", folder=str(tmp_path))
    assert found == {"same": True, "stock": True, "files": ["model.safetensors", "random_states_0.pkl"]}
