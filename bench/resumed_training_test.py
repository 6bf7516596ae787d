"""Resumes of a training: without loss nothing changes; what is lost shows in the losses, and not in the weights."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bench.bitsnap_command import BitsnapCommand
from bench.resumed_training import (
    ResumedTraining,
    Way,
    every_weight,
    in_blocks_of_eight_bits,
    one_weight_of_each_tensor,
    through_the_command,
)
from bench.train_corpus import state_tensors
from model import ModelConfig
from trainer import TrainConfig, Trainer

TINY = TrainConfig(
    model=ModelConfig(vocab=300, block=16, layers=2, heads=2, width=64, compute="float32"),
    steps=12,
    batch=2,
    warmup=0,
    text_bytes=20_000,
)


class CopyingCommand(BitsnapCommand):
    """Stores a state by copying it, what `change` does to a tensor aside; for where there is no command."""

    def __init__(self, change: str = "") -> None:
        super().__init__(Path("none"))
        self._change = change

    def compress(self, state: Path, out: Path, options: object, base: Path | None = None) -> None:
        tensors = load_file(state)
        if self._change:
            tensors[self._change] += 1
        save_file(tensors, out)

    def decompress(self, snapshot: Path, out: Path) -> None:
        save_file(load_file(snapshot), out)


@pytest.fixture(scope="module")
def training() -> ResumedTraining:
    return ResumedTraining(TINY)


def test_a_resume_without_loss_gives_the_very_same_losses(training: ResumedTraining, tmp_path: Path) -> None:
    uninterrupted = training.run_through({5})
    assert (len(uninterrupted.train), len(uninterrupted.held_out)) == (12, 2)
    resumed = training.run_resumed("copied", through_the_command(CopyingCommand(), tmp_path, ()), (5, 8, 10))
    assert resumed.train == uninterrupted.train
    assert resumed.held_out == uninterrupted.held_out


@pytest.mark.parametrize("way", [in_blocks_of_eight_bits, one_weight_of_each_tensor, every_weight])
def test_losses_differ_behind_a_resume_with_loss_and_only_there(training: ResumedTraining, way: Way) -> None:
    uninterrupted = training.run_through({5})
    resumed = training.run_resumed("lossy", way, (5,))
    assert resumed.train[:5] == uninterrupted.train[:5]
    assert resumed.train[5:] != uninterrupted.train[5:]
    # And the next run begins where it should, whatever the last one did.
    assert training.run_resumed("again", way, (5,)).train == resumed.train


def test_what_is_stored_is_all_that_is_loaded(training: ResumedTraining, tmp_path: Path) -> None:
    uninterrupted = training.run_through({5})
    way = through_the_command(CopyingCommand("exp_avg.token.weight"), tmp_path, ())
    assert training.run_resumed("changed", way, (5,)).train[6:] != uninterrupted.train[6:]


def test_another_weight_is_an_error(training: ResumedTraining, tmp_path: Path) -> None:
    training.run_through({5})
    with pytest.raises(ValueError, match=r"model\.norm\.weight: another weight"):
        training.run_resumed("changed", through_the_command(CopyingCommand("model.norm.weight"), tmp_path, ()), (5,))


def test_one_weight_of_each_tensor_moves_and_its_master_with_it() -> None:
    trainer = Trainer(TINY)
    trainer.train_step()
    before = {name: tensor.detach().clone() for name, tensor in state_tensors(trainer).items()}
    one_weight_of_each_tensor(trainer)
    for name, after in state_tensors(trainer).items():
        changed = int((after != before[name]).sum())
        assert changed == (1 if name.startswith(("model.", "master.")) else 0), name
        if name.startswith("model."):
            assert torch.equal(after, state_tensors(trainer)[f"master.{name.removeprefix('model.')}"].bfloat16())


@pytest.mark.slow
def test_the_command_loses_nothing_losslessly_and_little_within_bounds(
    training: ResumedTraining, tmp_path: Path
) -> None:
    program = Path(sys.executable).with_name("bitsnap")
    if not program.exists():
        pytest.skip(f"there is no {program}")
    uninterrupted = training.run_through({5})
    found = {}
    for policy in ("lossless", "bounded"):
        way = through_the_command(BitsnapCommand(program), tmp_path, ("--policy", policy))
        found[policy] = training.run_resumed(policy, way, (5, 10))
    assert found["lossless"].train == uninterrupted.train
    assert found["bounded"].train != uninterrupted.train
    assert found["bounded"].train == pytest.approx(uninterrupted.train, abs=0.02)
