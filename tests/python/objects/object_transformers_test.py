"""Trainings with the Trainer of Transformers whose machine is lost, and that go on from a bucket on an empty one."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import bitsnap
from python.forked_calls import Calls
from python.objects.lost_machines import await_steps, end_copies, lose
from python.objects.object_proxy import Proxy
from python.runs.training_folders import after, names

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is missing"),
    pytest.mark.usefixtures("copies"),
]
TRAININGS = "python.transformers.transformers_trainings"  # for the fixture `call`


@pytest.fixture(scope="module")
def whole(call: Calls, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A training without bitsnap that nothing interrupts."""
    found: dict[str, Any] = call("train", folder=str(tmp_path_factory.mktemp("whole")))
    return found


def without_reference(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "bitsnap-reference.json"}


@pytest.mark.parametrize("through_agent", [False, True])
def test_a_killed_training_resumes_on_an_empty_machine_to_the_last_digit(
    call: Calls, whole: dict[str, Any], run: str, tmp_path: Path, through_agent: bool
) -> None:
    folder = tmp_path / "machine" / "out"
    training: dict[str, Any] = {
        "folder": str(folder),
        "options": {"mirror": run, "through_agent": through_agent},
        "save_total_limit": 2,
    }
    assert call.status("train", **training, kill_in=8)[0] == -9
    bitsnap.wait_mirrored(folder / "bitsnap", 6, timeout=120)
    files = without_reference(folder / "checkpoint-6")
    assert {"model.safetensors", "optimizer.pt", "trainer_state.json", "training_args.bin"} < set(files)
    lose(folder / "bitsnap", 6)
    resumed = call("train", **training, resume=True)
    assert resumed["losses"] == after(6, whole)
    assert resumed["weights"] == whole["weights"]
    assert resumed["warnings"] == []
    assert names(folder) == ["bitsnap", "checkpoint-6", "checkpoint-8"]
    # What was brought back are the files of the first machine.
    assert without_reference(folder / "checkpoint-6") == files
    bitsnap.wait_mirrored(folder / "bitsnap", 8, timeout=120)
    await_steps(run, [6, 8])  # the older one was removed in the copy, too
    with bitsnap.Store(run, read_only=True) as store:
        assert store.labels() == {"checkpoint-6": 6, "checkpoint-8": 8}
        assert not store.verify().damages


@pytest.mark.slow
def test_the_best_checkpoint_is_brought_back_and_loaded_at_the_end(call: Calls, run: str, tmp_path: Path) -> None:
    best = {"eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "loss", "load_best_model_at_end": True}
    training = {"options": {"weights": False}, "save_total_limit": 2, **best}
    whole = call("train", folder=str(tmp_path / "whole"), **training)
    folder, options = tmp_path / "machine", {"weights": False, "mirror": run}
    call("train", folder=str(folder), last=6, **{**training, "options": options})
    lose(folder / "bitsnap", 6)
    resumed = call("train", folder=str(folder), resume=True, **{**training, "options": options})
    assert resumed["losses"] == after(6, whole)
    assert resumed["best"] == f"{folder}/checkpoint-4"
    assert resumed["weights"] == whole["weights"]
    assert names(folder) == ["bitsnap", "checkpoint-4", "checkpoint-8"]
    await_steps(run, [4, 8])


def test_each_checkpoint_of_the_copy_has_all_that_a_training_needs(
    call: Calls, whole: dict[str, Any], run: str, tmp_path: Path
) -> None:
    """Of several that are kept, the newest one is brought back; and others when the copy ends with them."""
    folder = tmp_path / "out"
    options = {"mirror": run, "weights": False}
    call("train", folder=str(folder), options=options, last=6)
    lose(folder / "bitsnap", 6)
    with bitsnap.Store(run, timeout=90) as store:
        assert store.steps() == [2, 4, 6]
        store.rollback(4)
    resumed = call("train", folder=str(folder), options=options, resume=True)
    assert resumed["losses"] == after(4, whole)
    assert names(folder) == ["bitsnap", "checkpoint-4", "checkpoint-6", "checkpoint-8"]
    await_steps(run, [2, 4, 6, 8])  # what was not brought back stays in the copy


@pytest.mark.slow
def test_two_ranks_resume_on_an_empty_machine(call: Calls, run: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    training = {"folder": str(folder), "options": {"mirror": run}}
    assert call("train_on_ranks", meeting=str(tmp_path / "whole"), folder=str(tmp_path / "stock")) == [0, 0]
    assert call("train_on_ranks", meeting=str(tmp_path / "first"), last=4, **training) == [0, 0]
    assert "rng_state_1.pth" in names(folder / "checkpoint-4")
    lose(folder / "bitsnap", 4)
    assert call("train_on_ranks", meeting=str(tmp_path / "second"), resume=True, **training) == [0, 0]
    for rank in range(2):
        expected, found = (json.loads((tmp_path / f"{name}-{rank}.json").read_text()) for name in ("whole", "second"))
        assert found == {step: loss for step, loss in expected.items() if int(step) > 4}
    assert "rng_state_1.pth" in names(folder / "checkpoint-4")


def test_a_service_that_is_away_does_not_stop_a_training(
    call: Calls, whole: dict[str, Any], run: str, proxy: Proxy, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    call("train", folder=str(folder), options={"mirror": run}, last=2)
    end_copies(tmp_path)
    proxy.fault = lambda method, path: 503
    resumed = call("train", folder=str(folder), options={"mirror": run}, resume=True)
    assert resumed["losses"] == after(2, whole)
    proxy.reset()
    bitsnap.wait_mirrored(folder / "bitsnap", 8, timeout=120)


def test_nothing_is_brought_back_over_what_is_there(call: Calls, run: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    call("train", folder=str(folder), options={"mirror": run}, last=2)
    lose(folder / "bitsnap", 2)
    (folder / "checkpoint-2").mkdir(parents=True)
    status, error = call.status("train", folder=str(folder), options={"mirror": run}, resume=True)
    assert status == 1
    assert f"ExistsError: {folder}/checkpoint-2 exists, and step 2 of the copy" in error
    shutil.rmtree(folder / "checkpoint-2")
    # A training that begins anew is told of the one that was brought back.
    (warning,) = call("train", folder=str(folder), options={"mirror": run}, last=2)["warnings"]
    assert f"{folder}/bitsnap has checkpoints of an earlier training, up to step 2" in warning
