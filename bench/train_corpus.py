"""Trains the runs of the benchmark's corpus and writes their states.

Deterministic on one machine with one version of torch; uses one thread. Existing states of the same configuration are
kept, and an interrupted run continues from its last written state. Takes 10 to 15 minutes on a core with bfloat16
instructions, twice that on others, and 6 GB of disk.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from bench.corpus_runs import RUNS, Run, halves_path, run_named, state_path
from bench.train_gpt import ModelConfig, TrainConfig, Trainer, fast_compute_dtype, is_made_from, write


def train_config(run: Run) -> TrainConfig:
    return TrainConfig(
        model=ModelConfig(layers=8, heads=5, width=320, compute=fast_compute_dtype()),
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


def state_tensors(trainer: Trainer) -> dict[str, Tensor]:
    """All weights, and masters and moments of the trained ones."""
    state = trainer.state()
    tensors = {f"model.{name}": weight.detach() for name, weight in trainer.model.named_parameters()}
    for name, (exp_avg, exp_avg_sq) in trainer.moments().items():
        tensors[f"master.{name}"] = state["master"][name]
        tensors[f"exp_avg.{name}"] = exp_avg
        tensors[f"exp_avg_sq.{name}"] = exp_avg_sq
    return tensors


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
    resume = folder / run.name / "resume.pt"
    if resume.exists():
        saved = torch.load(resume, weights_only=True)
        if saved["key"] == key and saved["state"]["step"] < missing[0]:
            trainer.load(saved["state"])
    print(f"{run.name}: {run.about}", flush=True)
    start = time.monotonic()
    while missing:
        result = trainer.train_step()
        is_wanted = result.step == missing[0]
        if is_wanted:
            missing.pop(0)
            state, *halves = paths(result.step)
            write(state_tensors(trainer), state, key, result.step)
            for path in halves:
                masters = trainer.state()["master"]
                write({f"model.{n}": m.to(torch.float16) for n, m in masters.items()}, path, key, result.step)
        if is_wanted or result.step % 50 == 0:
            partial = resume.with_suffix(".partial")
            torch.save({"key": key, "state": trainer.state()}, partial)
            partial.replace(resume)
            print(f"  step {result.step:4d}  loss {result.loss:.3f}  {time.monotonic() - start:6.1f} s", flush=True)
    resume.unlink()


def make_corpus(folder: Path, names: list[str]) -> None:
    """Trains the missing states of the named runs, parents first."""
    wanted = set(names)
    wanted |= {run_named(name).parent for name in names} - {""}
    for run in RUNS:
        if run.name in wanted:
            make_run(run, folder)
