"""Writes states of a real training as safetensors files, for measurements.

Trains a GPT of about ten million parameters and writes, at each wanted step, `state-000200.safetensors` (tensors
`model.*` bfloat16, `master.*`, `exp_avg.*`, `exp_avg_sq.*` float32) and `weights-fp16-000200.safetensors`
(`model.*`, the masters rounded to float16). Existing files of the same configuration are kept, and an interrupted run
continues after its last file. Uses one thread; deterministic on one machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from model import ModelConfig, fast_compute_dtype
from trainer import TrainConfig, Trainer

_DEFAULT_STEPS = "1,2,10,11,20,21,50,51,60,100,101,110,150,200,201,210,250,400,401,410,450,590,600"
_PROJECT = Path(__file__).resolve().parents[2]


def corpus_config(steps: int) -> TrainConfig:
    model = ModelConfig(layers=8, heads=5, width=320, compute=fast_compute_dtype())
    return TrainConfig(model=model, steps=steps, warmup=40, text_bytes=4_000_000)


def fingerprint(config: TrainConfig) -> str:
    described = json.dumps({**asdict(config), "torch": torch.__version__}, sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()[:16]


def made_from(key: str, step: int) -> dict[str, str]:
    return {"made_from": f"{key} step {step}"}


def is_made_from(path: Path, key: str, step: int) -> bool:
    try:
        with safe_open(str(path), framework="pt") as file:
            return (file.metadata() or {}) == made_from(key, step)
    except (OSError, SafetensorError):
        return False


def write(tensors: dict[str, Tensor], path: Path, key: str, step: int) -> None:
    temporary = path.with_suffix(".partial")
    # One entry only: safetensors writes several in an arbitrary order, and equal states must give equal files.
    save_file(tensors, str(temporary), metadata=made_from(key, step))
    temporary.replace(path)


def state_tensors(trainer: Trainer) -> dict[str, Tensor]:
    """All weights, and masters and moments of the trained ones. The tied embedding is there once."""
    state = trainer.state()
    tensors = {f"model.{name}": weight.detach() for name, weight in trainer.model.named_parameters()}
    for name, (exp_avg, exp_avg_sq) in trainer.moments().items():
        tensors[f"master.{name}"] = state["master"][name]
        tensors[f"exp_avg.{name}"] = exp_avg
        tensors[f"exp_avg_sq.{name}"] = exp_avg_sq
    return tensors


def halves_of(trainer: Trainer) -> dict[str, Tensor]:
    """The weights as float16."""
    return {f"model.{name}": master.to(torch.float16) for name, master in trainer.state()["master"].items()}


def train_through(
    trainer: Trainer, key: str, steps: list[int], resume: Path, write_state: Callable[[int], None]
) -> None:
    """Trains to the last of the steps, and calls `write_state` at each.

    Continues from `resume` if it has been written with the same key before the first of them.
    """
    if resume.exists():
        saved = torch.load(resume, weights_only=True)
        if saved["key"] == key and saved["state"]["step"] < steps[0]:
            trainer.load(saved["state"])
    start = time.monotonic()
    while trainer.step < steps[-1]:
        result = trainer.train_step()
        if result.step in steps:
            write_state(result.step)
        if result.step in steps or result.step % 50 == 0:
            partial = resume.with_suffix(".partial")
            torch.save({"key": key, "state": trainer.state()}, partial)
            partial.replace(resume)
            print(f"  step {result.step:4d}  loss {result.loss:.3f}  {time.monotonic() - start:6.1f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", default=_DEFAULT_STEPS, help="steps to write, separated by commas")
    parser.add_argument("--length", type=int, default=600, help="steps that the learning rate is scheduled for")
    parser.add_argument("--out", type=Path, default=_PROJECT / "build" / "corpus")
    arguments = parser.parse_args()
    wanted = sorted({int(step) for step in arguments.steps.split(",")})
    if wanted[0] < 1:
        parser.error("--steps: the first step is 1")

    config = corpus_config(arguments.length)
    key = fingerprint(config)
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)

    def paths(step: int) -> tuple[Path, Path]:
        return out / f"state-{step:06d}.safetensors", out / f"weights-fp16-{step:06d}.safetensors"

    missing = [step for step in wanted if not all(is_made_from(path, key, step) for path in paths(step))]
    if not missing:
        print(f"{out}: all of {len(wanted)} states are there")
        return 0

    trainer = Trainer(config)
    print(f"{trainer.parameter_count() / 1e6:.1f} M parameters, activations {config.model.compute}", flush=True)

    def write_state(step: int) -> None:
        state_path, half_path = paths(step)
        write(state_tensors(trainer), state_path, key, step)
        write(halves_of(trainer), half_path, key, step)

    train_through(trainer, key, missing, out / "resume.pt", write_state)
    return 0


if __name__ == "__main__":
    sys.exit(main())
