"""What the corpus's runs do that the example's training does not: start from weights, and leave most of them alone."""

from __future__ import annotations

from dataclasses import asdict, replace

import torch

from bench.corpus_runs import RUNS, run_named
from bench.train_corpus import key_of, train_config
from bench.train_gpt import state_tensors
from model import ModelConfig
from trainer import TrainConfig, Trainer

TINY = TrainConfig(
    model=ModelConfig(vocab=300, block=16, layers=2, heads=2, width=16, compute="float32"),
    steps=10,
    batch=2,
    warmup=0,
    text_bytes=20_000,
)


def test_a_frozen_backbone_stays_bit_for_bit_and_has_no_optimizer_state() -> None:
    trainer = Trainer(replace(TINY, trained=("blocks.1.", "norm.")))
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer.train_step()
    tensors = state_tensors(trainer)
    for name, weight in trainer.model.state_dict().items():
        if name.startswith(("blocks.1.", "norm.")):
            assert f"master.{name}" in tensors
        else:
            assert torch.equal(weight, before[name])
            assert not any(f"{role}.{name}" in tensors for role in ("master", "exp_avg", "exp_avg_sq"))
    assert not torch.equal(trainer.model.state_dict()["blocks.1.up.weight"], before["blocks.1.up.weight"])


def test_fine_tuning_starts_from_the_bits_of_the_weights() -> None:
    parent = Trainer(TINY)
    parent.train_step()
    weights = {name: weight.clone() for name, weight in parent.model.state_dict().items()}
    child = Trainer(replace(TINY, seed=2))
    child.start_from(weights)
    assert child.moments() == {}
    for name, master in child.state()["master"].items():
        assert torch.equal(master, weights[name].float())


def test_the_key_of_a_run_changes_with_its_settings() -> None:
    keys = {key_of(run) for run in RUNS}
    assert len(keys) == len(RUNS)
    run = run_named("finetune")
    assert key_of(replace(run, peak_lr=2e-6)) != key_of(run)
    assert key_of(replace(run, parent="beta999")) != key_of(run)
    assert key_of(replace(run, about="other words")) == key_of(run)


def test_the_betas_and_the_learning_rate_match_the_description() -> None:
    for run in RUNS:
        config = asdict(train_config(run))
        assert (config["beta2"], config["peak_lr"]) == (run.beta2, run.peak_lr)
