"""bitsnap.lightning with real trainings of Lightning, some of which are killed."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from python.processes import run_script

pytestmark = pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="lightning is not installed")

STEPS = 8  # an epoch
LAST_STEPS = [15, 18, 24]
LAST_FILES = ["epoch=1-step=15.ckpt", "epoch=2-step=18.ckpt", "last.ckpt"]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What lightning_trainings.py found."""
    path = tmp_path_factory.mktemp("lightning")
    run_script("from python.lightning.lightning_trainings import main; main()", path, timeout=290)
    found: dict[str, Any] = {}
    for line in (path / "facts").read_text().splitlines():
        found |= json.loads(line)
    return found


def test_all_trainings_ended_as_they_should(facts: dict[str, Any]) -> None:
    ends = {name: status for name, status in facts.items() if name.startswith("end of ")}
    assert {name for name, status in ends.items() if status != 0} == {"end of killed", "end of killed agent"}
    assert ends["end of killed"] == ends["end of killed agent"] == -9


@pytest.mark.parametrize("way", ["killed", "agent"])
def test_a_killed_training_goes_on_as_if_it_had_not_stopped(facts: dict[str, Any], way: str) -> None:
    resumed = facts[f"losses {way}"]
    assert list(resumed) == [str(step) for step in range(12, 24)]
    assert resumed == {step: facts["losses"][step] for step in resumed}
    assert "agent left" not in facts


@pytest.mark.parametrize("way", ["whole", "killed", "agent"])
def test_rotation_removes_files_and_their_steps(facts: dict[str, Any], way: str) -> None:
    assert facts[f"{way} files"] == LAST_FILES
    assert facts[f"{way} store"] == {
        "steps": LAST_STEPS,
        "labels": dict(zip(LAST_FILES, LAST_STEPS, strict=True)),
    }


def test_the_best_checkpoint_is_found(facts: dict[str, Any]) -> None:
    assert (facts["best"], facts["best step"]) == ("epoch=2-step=18.ckpt", 18)


def test_a_checkpoint_may_be_saved_anywhere_and_twice_at_one_step(facts: dict[str, Any]) -> None:
    assert facts["anywhere"] == {"steps": [25], "labels": {"where.ckpt": 25}}


def test_a_terminated_training_leaves_a_checkpoint(facts: dict[str, Any]) -> None:
    assert facts["terminated"] == 6
    assert facts["kept"] == ["step=6.ckpt"]


def test_all_that_lightning_saves_comes_back_with_its_bits_and_types(facts: dict[str, Any]) -> None:
    assert {"callbacks", "loops", "optimizer_states", "lr_schedulers", "hyper_parameters"} <= set(facts["keys"])
    assert facts["same"] == "AttributeDict"


def test_the_last_checkpoint_may_be_a_link(facts: dict[str, Any]) -> None:
    assert (facts["link"], facts["linked epoch"]) == ("epoch=1.ckpt", 1)


def test_load_from_checkpoint_reads_either_file_after_install(facts: dict[str, Any]) -> None:
    assert facts["loaded"] == "RED"
    assert "without use" not in facts


def test_a_training_goes_on_with_the_exported_file_and_comes_back_from_it(facts: dict[str, Any]) -> None:
    assert list(facts["losses stayed"]) == [str(step) for step in range(24, 32)]
    assert facts["losses left"] == facts["losses came"] == facts["losses stayed"]


def test_checkpoints_are_as_small_as_those_of_a_plain_state(facts: dict[str, Any]) -> None:
    for number in (1, 2):
        assert facts[f"size {number}"] < 1.005 * facts[f"plain size {number}"]
    assert facts["roles"] == ["exp_avg", "exp_avg_sq", "weight"]
    assert "scaled_by" in facts["moments"]


def test_one_of_several_ranks_saves(facts: dict[str, Any]) -> None:
    assert len(facts["ranks"]["steps"]) == 2
    assert sorted(facts["ranks"]["labels"]) == ["epoch=2.ckpt", "last.ckpt"]
    assert facts["beside"] == ["checkpoints"]


def test_shards_of_a_strategy_are_saved_rotated_and_resumed_on_any_number_of_ranks(facts: dict[str, Any]) -> None:
    assert facts["ends of 2"] == [0, 0]
    assert facts["ends of 1"] == [0]
    whole = facts["losses of shards"]
    assert len(whole) == 24
    resumed = facts["losses of resumed shards"]
    assert list(resumed) == [str(step) for step in range(15, 24)]
    assert resumed == {step: whole[step] for step in resumed}
    assert facts["losses of one rank"] == facts["losses of stock shards"] == facts["losses stayed"]
    assert facts["files of shards"] == LAST_FILES
    assert sorted(facts["store of shards"]["labels"]) == LAST_FILES
    assert facts["shards"] == [2, 2, 2]


def test_the_other_package_of_lightning_takes_the_plugin(facts: dict[str, Any]) -> None:
    assert facts["other"] == 2


def test_fabric_threads_of_lightning_and_pickles_take_the_plugin(facts: dict[str, Any]) -> None:
    assert facts["fabric"] == [3, True]
    assert facts["thread"] == {"steps": [8, 16, 24], "labels": {f"step={step}.ckpt": step for step in (8, 16, 24)}}
    assert facts["pickle"]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("not storable", "InvalidArgumentError: state['hyper_parameters']['criterion'] is of type torch.nn.modules"),
        ("url", "UnsupportedError: s3://bucket/a.ckpt: bitsnap saves to local files only"),
        ("url load", "UnsupportedError: memory://a.ckpt: bitsnap saves to local files only"),
        ("options", "UnsupportedError: storage_options: bitsnap saves to local files only, got {'a': 1}"),
        ("missing", "NotFoundError: "),
        ("weights only", "InvalidArgumentError: state['hyper_parameters']['criterion'] is a pickled value"),
        ("stock", "InvalidArgumentError: "),
        (
            "strategy",
            "UnsupportedError: expected a Trainer whose strategy saves through a CheckpointIO, or a ",
        ),
    ],
)
def test_what_is_not_supported_is_an_error_that_names_it(facts: dict[str, Any], what: str, message: str) -> None:
    assert facts[what].startswith(message)


def test_pickled_values_and_files_of_lightning_are_loaded(facts: dict[str, Any]) -> None:
    assert facts["pickled"] == "MSELoss()"
    assert facts["stock value"] == 1
    assert facts["removed"] == ["bitsnap"]


def test_tensors_go_where_map_location_says(facts: dict[str, Any]) -> None:
    assert {facts[f"device {kind}"] for kind in ("str", "dict", "function")} == {"meta"}


@pytest.mark.parametrize("way", ["None", "agent"])
def test_what_a_trainer_has_logged_is_kept_as_metrics(facts: dict[str, Any], way: str) -> None:
    metrics, loss = facts[f"metrics with {way}"]
    assert metrics == {"loss": pytest.approx(loss), "waves": (STEPS - 1) * 7 % 10}


def test_of_ranks_the_one_that_saves_has_metrics(facts: dict[str, Any]) -> None:
    assert facts["ranks metrics"] == [["loss", "waves"]] * 2
    found = facts["metrics of shards"]
    assert list(found) == [str(step) for step in LAST_STEPS]
    assert found["15"] == {"loss": pytest.approx(facts["losses of shards"]["14"]), "waves": 14 * 7 % 10}


def test_the_plugin_alone_keeps_what_checkpoints_are_chosen_by(facts: dict[str, Any]) -> None:
    assert facts["whole metrics"] == {"15": {"waves": 14 * 7 % 10}, "18": {"waves": 17 * 7 % 10}, "24": {}}


def test_what_a_trainer_does_with_a_run_is_undone(facts: dict[str, Any]) -> None:
    assert facts["undone"] == "TorchCheckpointIO"
