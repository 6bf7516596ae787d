"""Trains the runs of the benchmark's corpus and writes their states.

Deterministic on one machine with one version of torch; uses one thread. Existing states of the same configuration are
kept, and an interrupted run continues from its last written state. Takes 10 to 15 minutes on a core with bfloat16
instructions, twice that on others, and 6 GB of disk.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file

from bench.corpus_runs import RUNS, Run, halves_path, run_named, state_path
from bench.train_gpt import (
    ModelConfig,
    TrainConfig,
    Trainer,
    halves_of,
    is_made_from,
    state_tensors,
    train_through,
    write,
)


def train_config(run: Run) -> TrainConfig:
    return TrainConfig(
        model=ModelConfig(layers=8, heads=5, width=320, compute=run.compute),
        steps=run.steps,
        warmup=run.warmup,
        peak_lr=run.peak_lr,
        final_lr=run.final_lr,
        weight_decay=run.weight_decay,
        beta2=run.beta2,
        trained=run.trained,
        text_bytes=4_000_000,
        seed=run.seed,
    )


def key_of(run: Run) -> str:
    """A hash of everything that the numbers of a run depend on, including its parent."""
    described = {**asdict(train_config(run)), "torch": torch.__version__}
    if run.parent:
        described["parent"] = key_of(run_named(run.parent))
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


def begin(run: Run, folder: Path) -> Trainer:
    trainer = Trainer(train_config(run))
    if run.parent:
        last = run_named(run.parent).written_steps()[-1]
        state = load_file(state_path(folder, run.parent, last))
        weights = {name.removeprefix("model."): tensor for name, tensor in state.items() if name.startswith("model.")}
        trainer.start_from({**weights, "head.weight": weights["token.weight"]})
    return trainer


def make_run(run: Run, folder: Path) -> None:
    key = key_of(run)

    def paths(step: int) -> list[Path]:
        found = [state_path(folder, run.name, step)]
        return [*found, halves_path(folder, run.name, step)] if run.halves else found

    missing = [step for step in run.written_steps() if not all(is_made_from(path, key, step) for path in paths(step))]
    if not missing:
        return
    (folder / run.name).mkdir(parents=True, exist_ok=True)
    trainer = begin(run, folder)

    def write_state(step: int) -> None:
        state, *halves = paths(step)
        write(state_tensors(trainer), state, key, step)
        for path in halves:
            write(halves_of(trainer), path, key, step)

    print(f"{run.name}: {run.about}", flush=True)
    resume = folder / run.name / "resume.pt"
    train_through(trainer, key, missing, resume, write_state)
    resume.unlink()


def make_corpus(folder: Path, names: list[str]) -> None:
    """Trains the missing states of the named runs, parents first."""
    wanted = set(names)
    wanted |= {run_named(name).parent for name in names} - {""}
    for run in RUNS:
        if run.name in wanted:
            make_run(run, folder)
