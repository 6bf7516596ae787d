"""Measures checkpoints of many ranks: committing, listing their tensors, and reading rows and columns.

    python -m bench.sharded_reading [--ranks 4,16,64,256] [--tensors 100] [--rounds 5]

The ranks are simulated: one process saves their shards one after another. Each time is the best of the rounds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

import bitsnap
from bench.machine_description import processor, usable_cpus

ROWS, COLUMNS = 64, 16  # of the part of each rank
# A weight of several chunks: columns of it are in all of them, as many bytes of rows in a few.
WIDE_ROWS, WIDE_COLUMNS, NARROW = 8192, 4096, 64


def best(rounds: int, work: Callable[[], object]) -> float:
    """Seconds."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def part(rank: int, ranks: int, tensor: int) -> bitsnap.Box:
    values = np.random.default_rng(rank * 10_007 + tensor).standard_normal((ROWS, COLUMNS), np.float32)
    return bitsnap.Box(values, (ROWS * ranks, COLUMNS), (ROWS * rank, 0))


def measure_ranks(ranks: int, tensors: int, rounds: int) -> str:
    names = [f"layers.{i}.weight" for i in range(tensors)]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with bitsnap.Store(run, shared=True) as store:
            begin = time.perf_counter()
            for rank in range(ranks):
                state = {name: part(rank, ranks, i) for i, name in enumerate(names)}
                store.save_shard(1, state, shard=rank, shards=ranks, attempt="a")
            saved = time.perf_counter() - begin
            committed = best(1, lambda: store.commit(1, ranks, "a"))

        def listed() -> object:
            with bitsnap.Store(run, read_only=True) as opened:
                return opened.tensors(1)

        def opened_one_by_one() -> object:
            with bitsnap.Store(run, read_only=True) as opened:
                return [opened.snapshot(1, rank) for rank in range(ranks)]

        out = [(name, (ROWS * (ranks // 2), 0), torch.empty(ROWS, COLUMNS)) for name in names]

        def one_rank() -> None:
            with bitsnap.Store(run, read_only=True) as opened:
                opened.read_into(1, out)

        return (
            f"| {ranks} | {tensors:,} | {saved / ranks * 1e3:.1f} | {committed * 1e3:.1f} | "
            f"{best(rounds, listed) * 1e3:.1f} | {best(rounds, opened_one_by_one) * 1e3:.1f} | "
            f"{best(rounds, one_rank) * 1e3:.1f} |"
        )


def measure_boxes(rounds: int) -> list[str]:
    torch.manual_seed(0)
    weight = torch.randn(WIDE_ROWS, WIDE_COLUMNS)
    columns = torch.empty(WIDE_ROWS, NARROW)
    rows = torch.empty(WIDE_ROWS * NARROW // WIDE_COLUMNS, WIDE_COLUMNS)
    whole = torch.empty_like(weight)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        for threads in (1, 0):
            with bitsnap.Store(run, threads=threads) as store:
                if threads == 1:
                    store.save(1, {"w": weight})
                times = [
                    best(rounds, partial(store.read_into, 1, [("w", (0, 0), box)])) for box in (rows, columns, whole)
                ]
            # Columns touch all chunks: decoding these is reading the whole tensor.
            copied = best(rounds, lambda: whole.copy_(weight))
            lines.append(
                f"| {threads or 'all'} | {times[0] * 1e3:.1f} | {times[1] * 1e3:.1f} | {times[2] * 1e3:.1f} | "
                f"{times[1] / (1.3 * times[0] + times[2]):.2f} | {times[2] / copied:.1f} |"
            )
    assert torch.equal(columns, weight[:, :NARROW])
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="4,16,64,256")
    parser.add_argument("--tensors", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"{processor()}, {usable_cpus()} usable CPUs")
    print("\n| ranks | tensors | save of one ms | commit ms | tensors() ms | all opened ms | boxes of one rank ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for ranks in map(int, options.ranks.split(",")):
        print(measure_ranks(ranks, options.tensors, options.rounds), flush=True)
    print(measure_ranks(64, 1000, options.rounds))
    print(f"\n{NARROW} of {WIDE_COLUMNS} columns of a float32 tensor of {WIDE_ROWS} rows, and rows of as many bytes:\n")
    print("| threads | rows ms | columns ms | whole ms | columns / (1.3 rows + whole) | whole / memcpy |")
    print("| --- | --- | --- | --- | --- | --- |")
    print("\n".join(measure_boxes(options.rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
