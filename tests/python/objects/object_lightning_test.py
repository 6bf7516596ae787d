"""Trainings with Lightning whose machine is lost, and that go on from a bucket on an empty one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import bitsnap
from python.forked_calls import Calls
from python.objects.lost_machines import await_steps, lose

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="lightning is not installed"),
    pytest.mark.usefixtures("copies"),
]
TRAININGS = "python.lightning.lightning_trainings"  # for the fixture `call`


@pytest.mark.parametrize("through_agent", [False, True])
def test_a_killed_training_resumes_on_an_empty_machine_to_the_last_digit(
    call: Calls, run: str, tmp_path: Path, through_agent: bool
) -> None:
    whole = call("mirrored", folder=str(tmp_path / "whole"))
    folder = tmp_path / "machine" / "checkpoints"
    training = {"folder": str(folder), "mirror": run, "through_agent": through_agent}
    assert call.status("mirrored", end=14, **training)[0] == -9
    lose(folder / "bitsnap", 12)
    resumed = call("mirrored", resumes=True, **training)
    assert resumed == {step: loss for step, loss in whole.items() if int(step) >= 12}
    assert (folder / "last.ckpt").is_symlink() == through_agent
    kept = {"epoch=1-step=15.ckpt": 15, "epoch=2-step=18.ckpt": 18}
    if not through_agent:
        kept["last.ckpt"] = 24
    await_steps(run, sorted(kept.values()))  # save_top_k removes in the copy, too
    with bitsnap.Store(run, read_only=True) as store:
        assert store.labels() == kept
        assert not store.verify().damages
