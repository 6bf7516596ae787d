"""How long saves of a run take one after another, each coded against the one before.

    .venv/bin/python -m bench.saves_in_a_row [--gigabytes 0.5] [--width 768] [--saves 12] [--steps 1] [--threads 0]

A GPT is trained on the CPU: bfloat16 weights, float32 masters and moments. After each `--steps` steps, stores save its
state in several ways, and torch.save does, with a sync; the order alternates. "From files" is `keep_base=False`: a save
decodes its base, with all that this one is coded against. Each last checkpoint is loaded and its bits are compared.
Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

import bitsnap
from bench.gpu_training import GpuTraining, State, layers_for, tensors_of
from bench.machine_description import describe
from bench.results_tables import align

WAYS = ("from memory", "from memory, opened each time", "from files", "torch.save")


class Saves:
    """One store for each way."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder, self._threads = folder, threads
        self._stores = {
            way: bitsnap.Store(folder / way, keep_base=way != "from files", threads=threads) for way in WAYS[::2]
        }

    def timed_save(self, way: str, state: State) -> tuple[float, float]:
        """The seconds, and how many times smaller the checkpoint is."""
        begin = time.perf_counter()
        ratio = self._save(way, state)
        return time.perf_counter() - begin, ratio

    def _save(self, way: str, state: State) -> float:
        if way == "torch.save":
            path = self._folder / "state.pt"
            torch.save(state, path)
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
            return sum(tensor.nbytes for tensor in tensors_of(state)) / path.stat().st_size
        if way in self._stores:
            return self._stores[way].save(state["step"], state).ratio
        with bitsnap.Store(self._folder / way, threads=self._threads) as store:
            return store.save(state["step"], state).ratio

    def load(self, way: str) -> State:
        with bitsnap.Store(self._folder / way, read_only=True) as store:
            loaded: State = store.load()
        return loaded


def same_bits(left: State, right: State) -> bool:
    pairs = zip(tensors_of(left), tensors_of(right), strict=True)
    return all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=0.5)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--saves", type=int, default=12)
    parser.add_argument("--steps", type=int, default=1, help="of the training between two saves")
    parser.add_argument("--threads", type=int, default=0, help="of the stores; 0: as many as there are processors")
    parser.add_argument("--folder", type=Path, help="folder to write to; default: a temporary one")
    options = parser.parse_args()
    training = GpuTraining(
        torch.device("cpu"), layers_for(options.gigabytes, options.width), options.width, batch=1, block=64
    )
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        saves = Saves(Path(folder), options.threads)
        for _ in range(5):
            training.step()
        for turn in range(options.saves):
            for _ in range(options.steps):
                training.step()
            state = training.state()
            for way in WAYS if turn % 2 == 0 else reversed(WAYS):
                duration, ratio = saves.timed_save(way, state)
                seconds[way].append(duration)
                ratios[way].append(ratio)
        for way in WAYS[:-1]:
            if not same_bits(saves.load(way), state):
                print(f"{way}: the loaded state differs", file=sys.stderr)
                return 1
    nbytes = sum(tensor.nbytes for tensor in tensors_of(state))
    print(", ".join(describe("as detected").values()))
    print(f"\n{nbytes / 1e9:.2f} GB of tensors, {options.steps} steps between two saves; seconds.\n")
    rows = [
        [str(turn + 1), f"{ratios[WAYS[0]][turn]:.2f}", *(f"{seconds[way][turn]:.2f}" for way in WAYS)]
        for turn in range(options.saves)
    ]
    rows.append(["mean", "", *(f"{statistics.mean(seconds[way]):.2f}" for way in WAYS)])
    print("\n".join(align(["save", "times smaller", *WAYS], rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
