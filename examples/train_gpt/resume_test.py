"""Tests of the example with a tiny model: a resumed run equals an uninterrupted one, and records show differences."""

from __future__ import annotations

import copy
import io
import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import demo
from checkpoints import STORAGES, BitsnapFolder, TorchFolder
from child import Child, ChildError
from data import Corpus, Sampler, read_text
from records import differences, raw_bytes_by_role, record_of
from train import run_config
from trainer import StepResult, TrainConfig, Trainer, learning_rate

STEPS = 12
STOP = 7


@pytest.fixture(autouse=True)
def deterministic_for_one_test() -> Iterator[None]:
    """A Trainer makes torch deterministic for the whole process, which other tests run in as well."""
    before = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(before)


def tiny_config(compute: str = "float32") -> TrainConfig:
    config = run_config("tiny", STEPS)
    return replace(config, model=replace(config.model, compute=compute))


def frozen(state: Any) -> Any:
    """A copy through torch.save, which shares nothing with the trainer."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def run(trainer: Trainer, until: int) -> list[StepResult]:
    return [trainer.train_step() for _ in range(until - trainer.step)]


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(compute: str) -> None:
    whole = Trainer(tiny_config(compute))
    run(whole, STOP)
    stopped = frozen(whole.state())
    expected = run(whole, STEPS)

    resumed = Trainer(tiny_config(compute))
    run(resumed, 3)  # its own earlier state, which load must replace completely
    resumed.load(stopped)
    assert differences(record_of(stopped), record_of(resumed.state())) == []
    assert run(resumed, STEPS) == expected
    assert differences(record_of(whole.state()), record_of(resumed.state())) == []


@pytest.mark.parametrize("source", ["torch_rng", "numpy", "python", "cursor"])
def test_each_random_generator_affects_the_losses(source: str) -> None:
    whole = Trainer(tiny_config())
    fresh = frozen(whole.state())
    run(whole, STOP)
    state = frozen(whole.state())
    expected = run(whole, STEPS)

    if source == "torch_rng":
        state["torch_rng"] = fresh["torch_rng"]
    else:
        state["data"][source] = fresh["data"][source]
    resumed = Trainer(tiny_config())
    resumed.load(state)
    assert run(resumed, STEPS) != expected


def test_weights_are_the_masters_rounded_to_nearest_even() -> None:
    trainer = Trainer(tiny_config())
    run(trainer, 2)
    state = trainer.state()
    for name, master in state["master"].items():
        bits = master.contiguous().view(torch.int32).to(torch.int64) & 0xFFFFFFFF
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        found = state["model"][name].contiguous().view(torch.int16).to(torch.int64) & 0xFFFF
        assert torch.equal(found, rounded), name


def test_a_sampler_resumes_across_the_end_of_an_epoch() -> None:
    corpus = Corpus(read_text(20_000), 512)
    sampler = Sampler(corpus, block=32, batch=8, seed=3)
    per_epoch = (len(corpus.tokens) - 1) // 32 // 8
    for _ in range(per_epoch - 1):
        sampler.next()
    saved = copy.deepcopy(sampler.state())
    expected = [sampler.next() for _ in range(5)]
    assert sampler.state()["epoch"] == 1
    other = Sampler(corpus, block=32, batch=8, seed=4)
    other.load(saved)
    for inputs, targets in expected:
        found_inputs, found_targets = other.next()
        assert torch.equal(inputs, found_inputs)
        assert torch.equal(targets, found_targets)


def test_a_checkpoint_of_another_configuration_is_refused() -> None:
    trainer = Trainer(tiny_config())
    state = frozen(trainer.state())
    state["config"]["seed"] += 1
    with pytest.raises(ValueError, match="another configuration"):
        trainer.load(state)


def test_the_learning_rate_warms_up_and_ends_at_its_final_value() -> None:
    config = tiny_config()
    rates = [learning_rate(config, step) for step in range(1, STEPS + 1)]
    assert max(rates) == rates[config.warmup - 1] == config.peak_lr
    assert rates[-1] == pytest.approx(config.final_lr)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": 0.0}, {"a": -0.0}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1.0}),
        ({1: 2}, {"1": 2}),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": None}, {}),
        ({"a": torch.zeros(2, 3)}, {"a": torch.zeros(3, 2)}),
        ({"a": torch.zeros(2)}, {"a": torch.zeros(2, dtype=torch.int32)}),
        ({"a": torch.tensor(0.0)}, {"a": torch.tensor(-0.0)}),
    ],
)
def test_a_record_shows_differences_that_equality_hides(before: Any, after: Any) -> None:
    assert differences(record_of(before), record_of(copy.deepcopy(before))) == []
    assert differences(record_of(before), record_of(after)) != []


def test_raw_bytes_count_tied_tensors_once() -> None:
    trainer = Trainer(tiny_config())
    run(trainer, 1)
    sizes = raw_bytes_by_role(trainer.state())
    assert sizes["weight"] == 2 * trainer.parameter_count()
    assert sizes["master"] == sizes["exp_avg"] == sizes["exp_avg_sq"] == 4 * trainer.parameter_count()


def demo_arguments(out: Path, storage: str = "torch") -> list[str]:
    return ["demo.py", "--out", str(out), "--storage", storage, "--size", "tiny", "--steps", "10", "--every", "2"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all demonstrations; each replaces the one before."""
    return tmp_path_factory.mktemp("demonstrations") / "out"


@pytest.mark.slow
@pytest.mark.parametrize("storage", STORAGES)
def test_the_demonstration_succeeds(
    out: Path, storage: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", demo_arguments(out, storage))
    assert demo.main() == 0, capsys.readouterr().out
    report = json.loads((out / "report.json").read_text())
    assert report["steps"] == [2, 4, 6, 8, 10]
    assert set(report["same_bits"].values()) == {"yes"}
    assert not (out / "earlier").exists()
    (out / "earlier").touch()


@pytest.mark.slow
def test_the_demonstration_fails_when_one_bit_of_a_checkpoint_differs(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = TorchFolder.load

    def load_with_a_flipped_bit(folder: TorchFolder, step: int) -> Any:
        state = load(folder, step)
        state["master"]["norm.bias"].view(torch.int32)[0] ^= 1
        return state

    monkeypatch.setattr(TorchFolder, "load", load_with_a_flipped_bit)
    monkeypatch.setattr("sys.argv", demo_arguments(out))
    assert demo.main() == 1
    assert "first at /master/norm.bias" in capsys.readouterr().out
    assert not (out / "earlier").exists()


def test_sizes_by_role_add_up_to_the_size_on_disk(tmp_path: Path) -> None:
    trainer = Trainer(tiny_config())
    with BitsnapFolder(tmp_path / "run" / "store") as folder:
        for step in (1, 2):
            run(trainer, step)
            folder.save(step, trainer.state())
        assert folder.keyframe_steps() == [1]
        for step in folder.steps():
            files = (tmp_path / "run" / "store" / "checkpoints" / f"{step:010d}").iterdir()
            assert sum(folder.stored_bytes_by_role(step).values()) == sum(path.stat().st_size for path in files)
        assert differences(record_of(trainer.state()), record_of(folder.load(2))) == []


def test_the_demonstration_refuses_a_folder_with_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    monkeypatch.setattr("sys.argv", demo_arguments(tmp_path))
    assert demo.main() == 1
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_the_error_of_a_failed_child_has_its_last_lines(tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path / "run"), "--size", "tiny", "--storage", "torch", "--every", "2", "--resume"]
    with Child(arguments, tmp_path / "log.txt") as child:
        list(child.events())
        with pytest.raises(ChildError, match="no checkpoint to resume from"):
            child.finish()


@pytest.mark.slow
def test_a_killed_child_does_not_finish(tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path / "run"), "--size", "tiny", "--storage", "torch", "--steps", "1000"]
    with Child(arguments, tmp_path / "log.txt") as child:
        for event in child.events():
            if event["event"] == "step":
                child.kill()
                break
        assert child._process.returncode == -signal.SIGKILL
        assert all(event["event"] != "done" for event in child.seen)
