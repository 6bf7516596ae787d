"""How long saves of a run take one after another, each coded against the one before.

    .venv/bin/python -m bench.saves_in_a_row [--gigabytes 0.5] [--width 768] [--saves 12] [--steps 1] [--threads 0]

A GPT is trained on the CPU: bfloat16 weights, float32 masters and moments. After each `--steps` steps, stores save its
state in several ways, and torch.save does, with a sync; the order alternates. "From files" is `keep_base=False`: a save
decodes its base, with all that this one is coded against. Each last checkpoint is loaded and its bits are compared.
Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from statistics import mean

import torch

import bitsnap
from bench.gpu_training import GpuTraining, layers_for
from bench.measuring import folder_of, parser_of, print_machine, print_table, timed, turn_of
from bench.states import State, bytes_of, same_bits

WAYS = ("from memory", "from memory, opened each time", "from files", "torch.save")


class Saves:
    """One store for each way but torch.save, whose size is that of the state."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder, self._threads = folder, threads
        self._stores = {
            way: bitsnap.Store(folder / way, keep_base=way != "from files", threads=threads) for way in WAYS[:3:2]
        }

    def save(self, way: str, state: State) -> float:
        """How many times smaller the checkpoint is."""
        if way == "torch.save":
            with (self._folder / "state.pt").open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            return 1.0
        if way in self._stores:
            return self._stores[way].save(state["step"], state).ratio
        with bitsnap.Store(self._folder / way, threads=self._threads) as store:
            return store.save(state["step"], state).ratio

    def load(self, way: str) -> State:
        with bitsnap.Store(self._folder / way, read_only=True) as store:
            loaded: State = store.load()
        return loaded


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--gigabytes", type=float, default=0.5)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--saves", type=int, default=12)
    parser.add_argument("--steps", type=int, default=1, help="of the training between two saves")
    parser.add_argument("--threads", type=int, default=0, help="of the stores; 0: as many as there are processors")
    options = parser.parse_args()
    layers = layers_for(options.gigabytes, options.width)
    training = GpuTraining(torch.device("cpu"), layers, options.width, batch=1, block=64)
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}  # seconds and ratios
    with folder_of(options) as folder:
        saves = Saves(folder, options.threads)
        training.run(5)
        for turn in range(options.saves):
            training.run(options.steps)
            state = training.state()
            for way in turn_of(WAYS, turn):
                found[way].append(timed(partial(saves.save, way, state)))
        for way in WAYS[:-1]:
            if not same_bits(saves.load(way), state):
                print(f"{way}: the loaded state differs", file=sys.stderr)
                return 1
    print_machine()
    print(f"{bytes_of(state) / 1e9:.2f} GB of tensors, {options.steps} steps between two saves; seconds.\n")
    rows = [
        [str(turn + 1), f"{found[WAYS[0]][turn][1]:.2f}", *(f"{found[way][turn][0]:.2f}" for way in WAYS)]
        for turn in range(options.saves)
    ]
    rows.append(["mean", "", *(f"{mean(seconds for seconds, _ in found[way]):.2f}" for way in WAYS)])
    print_table(["save", "times smaller", *WAYS], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
