"""Trainings with Accelerate whose machine is lost, and that go on from a bucket on an empty one."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import bitsnap
from python.forked_calls import Calls
from python.objects.lost_machines import await_steps, lose
from python.runs.training_folders import after, names

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed"),
    pytest.mark.usefixtures("copies"),
]
TRAININGS = "python.accelerate.accelerate_trainings"  # for the fixture `call`


@pytest.mark.parametrize("through_agent", [False, True])
def test_a_killed_training_resumes_on_an_empty_machine_to_the_last_digit(
    call: Calls, run: str, tmp_path: Path, through_agent: bool
) -> None:
    whole = call("train", folder=str(tmp_path / "whole"))
    folder = tmp_path / "machine"
    options = {"mirror": run, "through_agent": through_agent}
    training: dict[str, Any] = {"folder": str(folder), "options": options, "total_limit": 2}
    assert call.status("train", kill_in=8, **training)[0] == -9
    lose(folder / "bitsnap", 2)
    resumed = call("train", resume=True, **training)
    assert resumed["losses"] == after(6, whole)
    assert (resumed["average"], resumed["momenta"]) == (whole["average"], whole["momenta"])
    assert resumed["warnings"] == []
    assert names(folder / "checkpoints") == ["checkpoint_2", "checkpoint_3"]
    await_steps(run, [2, 3])  # total_limit removes in the copy, too
    with bitsnap.Store(run, read_only=True) as store:
        assert not store.verify().damages


@pytest.mark.slow
def test_two_ranks_resume_on_an_empty_machine(call: Calls, run: str, tmp_path: Path) -> None:
    folder = tmp_path / "machine"
    whole = {"folder": str(tmp_path / "whole"), "options": {}, "bf16": False}
    training = {"folder": str(folder), "options": {"mirror": run}, "bf16": False}
    assert call("train_on_ranks", meeting=str(tmp_path / "a"), **whole) == [0, 0]
    assert call("train_on_ranks", meeting=str(tmp_path / "b"), **training) == [0, 0]
    files = names(folder / "checkpoints" / "checkpoint_1")
    assert "random_states_1.pkl" in files
    lose(folder / "bitsnap", 3)
    with bitsnap.Store(run, timeout=90) as store:
        store.rollback(1)
    assert call("train_on_ranks", meeting=str(tmp_path / "c"), resume=True, **training) == [0, 0]
    for rank in range(2):
        expected, found = (json.loads((tmp_path / f"{each}-{rank}.json").read_text()) for each in "ac")
        assert found == {step: loss for step, loss in expected.items() if int(step) > 4}
    assert names(folder / "checkpoints" / "checkpoint_1") == files
