"""How many times smaller a run is on disk than its raw checkpoints, by the steps between two saves and by `keep_last`.

    .venv/bin/python -m bench.retention_intervals [--every 1000]

The training is a GPT of 2 million parameters on text, warmed up for 300 steps. Its states in mixed precision have
weights in bfloat16, masters and moments in float32; those in fp32 have the masters as weights. Each store holds 12
saves of one training (5 at 1,000 steps); its size is the mean after each save from the N-th on, or, without
`keep_last`, that at the end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import bitsnap
from bench.corpus_runs import PROJECT
from bench.machine_description import describe
from bench.results_tables import align
from bench.retention_disk import bytes_in

sys.path.insert(0, str(PROJECT / "examples" / "train_gpt"))
from model import ModelConfig, fast_compute_dtype
from trainer import TrainConfig, Trainer

WARMUP = 300
SAVES = {1: 12, 10: 12, 100: 12, 1000: 5}  # by steps between them
KEPT = (1, 2, 5, None)
KINDS = ("fp32", "mixed")
POLICIES = ("lossless", "bounded")


def states_of(trainer: Trainer) -> dict[str, dict[str, Any]]:
    """By kind."""
    state = trainer.state()
    masters, optimizer = state["master"], state["optimizer"]
    return {
        "fp32": {"model": masters, "optimizer": optimizer},
        "mixed": {"model": state["model"], "master": masters, "optimizer": optimizer},
    }


def ratios_of(every: int, config: TrainConfig) -> Iterator[tuple[str, str, int | None, float]]:
    trainer = Trainer(config)
    for _ in range(WARMUP):
        trainer.train_step()
    shares: dict[tuple[str, str, int | None], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="retention-") as temporary, ExitStack() as stack:
        stores = {
            (kind, policy, kept): stack.enter_context(
                bitsnap.Store(Path(temporary) / f"{kind}-{policy}-{kept}", settings=policy, keep_last=kept)
            )
            for kind in KINDS
            for policy in POLICIES
            for kept in KEPT
        }
        for number in range(1, SAVES[every] + 1):
            for _ in range(every):
                trainer.train_step()
            states = states_of(trainer)
            for key, store in stores.items():
                raw_bytes = store.save(trainer.step, states[key[0]]).raw_bytes
                count = key[2] or SAVES[every]
                if number >= count:
                    shares.setdefault(key, []).append(bytes_in(store.path) / raw_bytes / count)
    for (kind, policy, kept), found in shares.items():
        yield kind, policy, kept, len(found) / sum(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, choices=SAVES, nargs="+", default=list(SAVES), help="steps between saves")
    intervals = parser.parse_args().every
    print(", ".join(describe("as detected").values()), end="\n\n")
    model = ModelConfig(layers=4, heads=4, width=192, compute=fast_compute_dtype())
    config = TrainConfig(model=model, steps=WARMUP + 8000, warmup=100)
    found: dict[tuple[str, str, int], dict[int | None, float]] = {}
    for every in intervals:
        for kind, policy, kept, ratio in ratios_of(every, config):
            found.setdefault((kind, policy, every), {})[kept] = ratio
        print(every, found, file=sys.stderr, flush=True)
    header = ["state", "coding", "steps between saves", *("all" if n is None else f"keep_last={n}" for n in KEPT)]
    rows = [
        [kind, policy, f"{every:,}", *(f"{found[kind, policy, every][n]:.2f}" for n in KEPT)]
        for kind in KINDS
        for policy in POLICIES
        for every in intervals
    ]
    print("\n".join(align(header, rows)))


if __name__ == "__main__":
    main()
