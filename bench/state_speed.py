"""How fast whole states are saved and loaded on one thread, compared with copying the same bytes in the same run.

    .venv/bin/python -m bench.state_speed [--corpus FOLDER] [--pairs REGEX] [--rounds 7] [--threads 1]

Each state is saved to a file in memory (/dev/shm) and loaded from it into existing tensors, by a store that keeps its
last state in memory and has saved before: as a keyframe, and against the state 1, 10 or 50 steps earlier. Copies use
memory that was touched before. Rounds are interleaved, and medians are shown. Times include planning, hashing, writing
the file and checking every hash. Growing a file in memory page by page takes the kernel as long as all the rest, so the
time of the process itself is shown as well. Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import argparse
import re
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file

import bitsnap
from bench.corpus_runs import DEFAULT_FOLDER, Pair, all_pairs, state_path
from bench.results_tables import align

State = dict[str, torch.Tensor]
Objective = Literal["ratio", "balanced", "speed"]
OBJECTIVES: tuple[Objective, ...] = ("ratio", "balanced", "speed")


def copied(state: State, into: State) -> None:
    for name, tensor in state.items():
        into[name].copy_(tensor)


@dataclass(frozen=True)
class Taken:
    """Seconds of one run: wall time, and processor time in user mode."""

    wall: float
    user: float


def taken(action: Callable[[], object]) -> Taken:
    user = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    start = time.perf_counter()
    action()
    return Taken(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_utime - user)


def medians(runs: Iterable[Taken]) -> Taken:
    runs = list(runs)
    return Taken(statistics.median(each.wall for each in runs), statistics.mean(each.user for each in runs))


class Measured:
    """One state with one objective, alone or against the state before it."""

    def __init__(self, before: State, state: State, alone: bool, objective: Objective, threads: int) -> None:
        self._before, self._state, self._alone = before, state, alone
        self._objective, self._threads = objective, threads
        self._saves: list[Taken] = []
        self._loads: list[Taken] = []
        self._ratio = 0.0

    def run(self, folder: Path, into: State) -> None:
        path = folder / "run"
        shutil.rmtree(path, ignore_errors=True)
        settings = bitsnap.Settings(objective=self._objective, max_depth=0 if self._alone else None)
        with bitsnap.Store(path, settings=settings, keep_base=True, threads=self._threads) as store:
            for step in (1, 2):  # afterwards the memory for two states is allocated
                store.save(step, self._before)
            self._saves.append(taken(lambda: store.save(3, self._state)))
            self._loads.append(taken(lambda: store.load(3, into=into)))
            self._ratio = store.checkpoint(3).ratio
        for name, tensor in self._state.items():
            assert torch.equal(tensor.view(torch.uint8), into[name].view(torch.uint8)), name

    def row(self, name: str, raw_bytes: int, copy: Taken) -> list[str]:
        cells = [name, self._objective, f"{self._ratio:.3f}"]
        for one in (medians(self._saves), medians(self._loads)):
            cells += [f"{raw_bytes / one.wall / 1e9:.2f}", f"{copy.wall / one.wall:.3f}", f"{copy.wall / one.user:.3f}"]
        return cells


def measure(pair: Pair, corpus: Path, rounds: int, threads: int, folder: Path) -> list[list[str]]:
    state, before = (load_file(state_path(corpus, pair.run, step)) for step in (pair.step, pair.base_step))
    raw_bytes = sum(tensor.nbytes for tensor in state.values())
    into = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    names = {f"{pair.distance} earlier": False}
    if pair.distance == 1:  # alone once per phase
        names = {"alone": True, **names}
    runs = {
        (name, goal): Measured(before, state, alone, goal, threads)
        for name, alone in names.items()
        for goal in OBJECTIVES
    }
    copies = []
    for _ in range(rounds):
        copies += [taken(lambda: copied(state, into)) for _ in range(3)]
        for one in runs.values():
            one.run(folder, into)
    copy = medians(copies)
    title = f"{pair.run}, {pair.phase} ({pair.step})"
    rows = [[title, "memcpy", "1", *[f"{raw_bytes / copy.wall / 1e9:.2f}", "1", "1"] * 2]]
    return rows + [one.row(f"{title}, {name}", raw_bytes, copy) for (name, _), one in runs.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--pairs", default="beta95/middle", help="regular expression for names of pairs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for pair in all_pairs():
            if re.search(options.pairs, pair.name):
                rows += measure(pair, options.corpus, options.rounds, options.threads, Path(folder))
    header = [
        "state",
        "objective",
        "ratio",
        *[cell for what in ("save", "load") for cell in (f"{what} GB/s", "of memcpy", "in process")],
    ]
    print("\n".join(align(header, rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
