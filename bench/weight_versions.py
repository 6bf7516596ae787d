"""Trains the weights that bench/weight_patches.py compares: consecutive bf16 weights of a GPT while it is fine-tuned.

    .venv/bin/python -m bench.weight_versions WEIGHTS

The example's GPT with 10.6 M parameters is trained for 220 steps, and then fine-tuned from its bf16 weights, with fp32
masters and Adam, at learning rates of 1e-6 and 1e-5. Writes the weights after 1, 2 and 30 to 40 updates. Takes about
three minutes on a core with bfloat16 instructions, and 600 MB of disk.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from bench.train_gpt import ModelConfig, TrainConfig, Trainer

PRETRAINING = 220
RATES = (1e-6, 1e-5)
WRITTEN = (1, 2, *range(30, 41))


def trainer_of(*, seed: int, steps: int, warmup: int, peak_lr: float, final_lr: float, weight_decay: float) -> Trainer:
    return Trainer(
        TrainConfig(
            model=ModelConfig(layers=8, heads=5, width=320, compute="bfloat16"),
            steps=steps,
            warmup=warmup,
            peak_lr=peak_lr,
            final_lr=final_lr,
            weight_decay=weight_decay,
            beta2=0.95 if warmup else 0.999,
            text_bytes=4_000_000,
            seed=seed,
        )
    )


def weights_of(trainer: Trainer) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, help="folder to write to")
    folder = parser.parse_args().weights
    folder.mkdir(parents=True, exist_ok=True)
    trainer = trainer_of(seed=1, steps=400, warmup=60, peak_lr=1e-3, final_lr=1e-4, weight_decay=0.1)
    for _ in range(PRETRAINING):
        result = trainer.train_step()
    print(f"trained {PRETRAINING} steps, loss {result.loss:.3f}", flush=True)
    weights = weights_of(trainer)
    for rate in RATES:
        tuned = trainer_of(seed=2, steps=100, warmup=0, peak_lr=rate, final_lr=rate, weight_decay=0.0)
        tuned.start_from({**weights, "head.weight": weights["token.weight"]})
        while tuned.step < max(WRITTEN):
            result = tuned.train_step()
            if result.step in WRITTEN:
                save_file(weights_of(tuned), folder / f"rate_{rate:.0e}-{result.step}.safetensors")
        print(f"fine-tuned {tuned.step} steps at {rate:g}, loss {result.loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
