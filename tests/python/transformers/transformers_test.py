"""Checkpoints of the Trainer of Transformers in a run: real trainings, killed and resumed, rotated and exported."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import bitsnap
from python.forked_calls import Calls
from python.runs.training_folders import after, names

TRAININGS = "python.transformers.transformers_trainings"  # for the fixtures `call` and `stock`

BEST = {"eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "loss", "load_best_model_at_end": True}


@pytest.fixture(scope="module")
def killed(call: Calls, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A training that was killed in its third save, and resumed to its end. The weights are only in the run."""
    folder = tmp_path_factory.mktemp("killed")
    options = {"weights": False}
    assert call.status("train", folder=str(folder), options=options, kill_in=6)[0] == -9
    return folder, call("train", folder=str(folder), options=options, resume=True)


def steps(folder: Path) -> list[int]:
    with bitsnap.Store(folder / "bitsnap", read_only=True) as store:
        return store.steps()


def test_a_training_that_begins_anew_beside_an_earlier_one_is_told(call: Calls, tmp_path: Path) -> None:
    assert call("train", folder=str(tmp_path), options={}, last=2)["warnings"] == []
    (warning,) = call("train", folder=str(tmp_path), options={}, last=2)["warnings"]
    assert "checkpoint-N take the place of those with the same N, and save_total_limit deletes" in warning
    assert warning.startswith(f"{tmp_path}/bitsnap has checkpoints of an earlier training, up to step 2, and this")
    assert "train(resume_from_checkpoint=True) resumes that training; another output_dir keeps" in warning


def test_a_training_that_saves_in_another_way_is_told(call: Calls, tmp_path: Path) -> None:
    assert call("warnings_with", folder=str(tmp_path)) == []
    for attribute, name, instead in (
        ("is_fsdp_enabled", "FSDP", "bitsnap.torch.TrainingCheckpointer saves FSDP2"),
        ("is_deepspeed_enabled", "DeepSpeed", "bitsnap.deepspeed.use(engine)"),
        ("is_fsdp_xla_enabled", "SageMaker or XLA", "stores these in a run"),
    ):
        (warning,) = call("warnings_with", folder=str(tmp_path), **{attribute: True})
        assert warning.startswith(f"bitsnap.transformers saves nothing of this training, which uses {name}: ")
        assert f"`bitsnap watch RUN {tmp_path}` stores these in a run" in warning
        assert instead in warning


@pytest.mark.slow
def test_a_trainer_without_bitsnap_does_not_start_the_optimizer_anew(call: Calls, tmp_path: Path) -> None:
    call("train", folder=str(tmp_path), options={}, last=2)
    error = call("error_without_bitsnap", folder=str(tmp_path))
    assert "bitsnap.transformers.use(trainer)" in error
    assert "the optimizer would start anew" in error


def test_a_killed_training_resumes_from_the_last_complete_checkpoint(
    stock: tuple[Path, dict[str, Any]], killed: tuple[Path, dict[str, Any]]
) -> None:
    folder, resumed = killed
    assert resumed["losses"] == after(4, stock[1])
    assert resumed["weights"] == stock[1]["weights"]
    (warning,) = resumed["warnings"]
    assert warning.startswith(f"{folder}/checkpoint-6 is no complete checkpoint")
    assert warning.endswith(f"resuming from {folder}/checkpoint-4")
    assert names(folder) == ["bitsnap", *(f"checkpoint-{step}" for step in (2, 4, 6, 8))]
    assert names(folder / "checkpoint-4") == [
        "bitsnap-reference.json",
        "config.json",
        "generation_config.json",
        "optimizer.pt",  # these two only say that bitsnap is needed
        "scheduler.pt",
        "trainer_state.json",
        "training_args.bin",
    ]
    with bitsnap.Store(folder / "bitsnap", read_only=True) as store:
        assert store.labels() == {f"checkpoint-{step}": step for step in (2, 4, 6, 8)}
        assert not store.verify().damages
        # Each against the one before.
        assert [store.checkpoint(step).base for step in store.steps()] == [None, 2, 4, 6]
        state = store.load(store.find("checkpoint-4"))
    moments = state["optimizer"]["state"]["transformer.h.0.attn.c_attn.weight"]
    assert moments["exp_avg"].shape == state["model"]["transformer.h.0.attn.c_attn.weight"].shape
    assert state["files"]["scheduler.pt"]["last_epoch"] == 4


@pytest.mark.slow
def test_transformers_resumes_from_an_export_bit_for_bit(
    call: Calls, stock: tuple[Path, dict[str, Any]], killed: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    call("export", checkpoint=str(killed[0] / "checkpoint-4"), target=str(tmp_path / "plain"))
    files = call("compare", first=str(tmp_path / "plain"), second=str(stock[0] / "checkpoint-4"))
    assert {"model.safetensors", "optimizer.pt", "rng_state.pth", "scheduler.pt"} < set(files)
    resumed = call("train", folder=str(tmp_path / "out"), resume=str(tmp_path / "plain"))
    assert resumed["losses"] == after(4, stock[1])
    assert call.status("export", checkpoint=str(killed[0] / "checkpoint-4"), target=str(tmp_path / "plain"))[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["untied", "mixed"])
def test_exported_weights_have_the_names_dtypes_and_bits_of_the_checkpoint(
    call: Calls, tmp_path: Path, kind: str
) -> None:
    assert call("export_of_unusual_model", folder=str(tmp_path), kind=kind)


@pytest.mark.slow
def test_a_checkpoint_of_transformers_and_an_earlier_one_of_ours_are_resumed(
    call: Calls, stock: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(stock[0], folder)
    for step in (4, 6):  # of Transformers, then of ours, of which there is a later one
        resumed = call("train", folder=str(folder), options={}, resume=str(folder / f"checkpoint-{step}"))
        assert resumed["losses"] == after(step, stock[1])
    # The folders refer to the newest saves of their steps, and the steps of a store rise.
    with bitsnap.Store(folder / "bitsnap", read_only=True) as store:
        assert store.labels() == {"checkpoint-6": 6, "checkpoint-8": 9}
        assert store.steps() == [6, 9]


@pytest.mark.slow
def test_rotation_and_the_best_model(call: Calls, tmp_path: Path) -> None:
    arguments = {**BEST, "save_total_limit": 1}
    expected = call("train", folder=str(tmp_path / "stock"), **arguments)
    found = call("train", folder=str(tmp_path / "out"), options={"weights": False}, **arguments)
    assert expected["best"] == f"{tmp_path}/stock/checkpoint-4"
    assert found["best"] == f"{tmp_path}/out/checkpoint-4"
    assert found["weights"] == expected["weights"]
    assert names(tmp_path / "out") == ["bitsnap", *names(tmp_path / "stock")] == ["bitsnap", "checkpoint-4"]
    assert steps(tmp_path / "out") == [4]


def test_the_best_model_stays_if_the_folder_is_a_relative_path(call: Calls, tmp_path: Path) -> None:
    arguments = {**BEST, "save_total_limit": 1, "inside": str(tmp_path)}
    found = call("train", folder="out", options={"weights": False, "through_agent": True}, **arguments)
    assert found["best"] == "out/checkpoint-4"
    assert "checkpoint-4" in names(tmp_path / "out")
    assert found["weights"] == call("train", folder="stock", **arguments)["weights"]


@pytest.mark.slow
def test_what_transformers_deletes_leaves_the_run_before_the_next_save(call: Calls, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert call.status("train", folder=str(folder), options={}, save_total_limit=1, kill_in=6)[0] == -9
    assert names(folder) == ["bitsnap", "checkpoint-4", "checkpoint-6"]  # in which it was killed
    assert steps(folder) == [4]


@pytest.mark.slow
def test_the_last_committed_checkpoint_stays_beside_the_best_and_one_that_is_not_committed_yet(
    call: Calls, tmp_path: Path
) -> None:
    assert call("rotate_while_uncommitted", folder=str(tmp_path)) == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]


@pytest.mark.slow
def test_save_only_model(call: Calls, stock: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    options = {"weights": False}
    call("train", folder=str(folder), options=options, save_only_model=True, last=4, save_total_limit=1)
    assert names(folder) == ["bitsnap", "checkpoint-4"]
    call("export", checkpoint=str(folder / "checkpoint-4"), target=str(tmp_path / "plain"))
    written = (tmp_path / "plain" / "model.safetensors").read_bytes()
    assert written == (stock[0] / "checkpoint-4" / "model.safetensors").read_bytes()
    assert not (tmp_path / "plain" / "optimizer.pt").exists()


@pytest.mark.slow
def test_an_agent_commits_what_a_killed_training_has_saved(
    call: Calls, stock: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    arguments = {"folder": str(folder), "options": {"through_agent": True}, "save_total_limit": 1}
    try:
        assert call.status("train", kill_in=6, **arguments)[0] == -9
        # The checkpoint before stays until the agent has committed the next one, which it may have done to step 4.
        found = [name for name in names(folder) if name != "checkpoint-2"]
        assert found == ["bitsnap", "checkpoint-4", "checkpoint-6"]
        resumed = call("train", resume=True, **arguments)
    finally:
        call("stop", folder=str(folder))
    assert resumed["losses"] == after(4, stock[1])
    assert resumed["weights"] == stock[1]["weights"]
    assert resumed["limit"] == 1
    assert names(folder) == ["bitsnap", "checkpoint-8"]
    assert steps(folder) == [8]
    with bitsnap.Store(folder / "bitsnap", read_only=True) as store:
        assert store.labels() == {"checkpoint-8": 8}


@pytest.mark.slow
@pytest.mark.skipif(version("transformers") < "5", reason="Transformers 4 does not have enable_jit_checkpoint")
@pytest.mark.parametrize("through_agent", [False, True])
def test_sigterm_saves_and_ends_the_training(
    call: Calls, stock: tuple[Path, dict[str, Any]], tmp_path: Path, through_agent: bool
) -> None:
    folder = tmp_path / "out"
    arguments = {"folder": str(folder), "options": {"through_agent": through_agent}, "enable_jit_checkpoint": True}
    try:
        ended = call("train", signal_at=5, **arguments)
        assert list(ended["losses"]) == ["1", "2", "3", "4", "5"]
        assert "checkpoint-5" in names(folder)
        assert steps(folder) == [2, 4, 5]
        resumed = call("train", resume=True, **arguments)
    finally:
        call("stop", folder=str(folder))
    assert resumed["losses"] == after(5, stock[1])
    assert resumed["warnings"] == []


@pytest.mark.slow
def test_two_processes_resume_with_their_own_random_generators(call: Calls, tmp_path: Path) -> None:
    ours = {"folder": str(tmp_path / "out"), "options": {}}
    folder = tmp_path / "out" / "checkpoint-4"
    whole = call("train_on_ranks", meeting=str(tmp_path / "a"), **ours)
    resumed = call("train_on_ranks", meeting=str(tmp_path / "b"), resume=str(folder), **ours)
    assert whole == resumed == [0, 0]
    for rank in range(2):
        expected, found = (json.loads((tmp_path / f"{meeting}-{rank}.json").read_text()) for meeting in "ab")
        assert found == {step: loss for step, loss in expected.items() if int(step) > 4}
    assert len({(tmp_path / f"a-{rank}.json").read_text() for rank in range(2)}) == 2
    assert "rng_state_1.pth" in names(folder)
    assert "rng_state_0.pth" not in names(folder)
    assert steps(tmp_path / "out") == [2, 4, 9, 10]  # those after step 4 were saved again


def test_what_is_missing_or_wrong_is_named(call: Calls, killed: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(killed[0], folder)
    shutil.rmtree(folder / "bitsnap")
    status, error = call.status("train", folder=str(folder), options={}, resume=True)
    assert status == 1
    assert f"NotFoundError: {folder}/checkpoint-8 is no complete checkpoint" in error
    assert f"expected a store at {folder}/bitsnap" in error
    (folder / "checkpoint-8" / "bitsnap-reference.json").write_text('{"version": 0, "run": 5}')
    status, error = call.status("export", checkpoint=str(folder / "checkpoint-8"), target=str(tmp_path / "plain"))
    assert "CorruptError" in error
    assert not (tmp_path / "plain").exists()
    status, error = call.status("train", folder=str(folder), options={"weigths": True})
    assert "weigths" in error
    config = folder / "checkpoint-4" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "architectures": ["Mine"]}))
    shutil.copytree(killed[0] / "bitsnap", folder / "bitsnap")
    status, error = call.status("export", checkpoint=str(folder / "checkpoint-4"), target=str(tmp_path / "plain"))
    assert "InvalidArgumentError" in error
    assert "names the class Mine" in error


def test_what_a_trainer_does_with_a_run_is_loaded_and_undone(call: Calls, tmp_path: Path) -> None:
    found = call("verbs", folder=str(tmp_path / "out"))
    assert found["keys"] == ["files", "model", "optimizer"]
    assert found["names"]
    assert found["stock"]
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt"} <= set(found["files"])
    assert "bitsnap-reference.json" not in found["files"]
