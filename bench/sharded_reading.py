"""Measures checkpoints of many ranks: committing, listing their tensors, and reading rows and columns.

    python -m bench.sharded_reading [--ranks 4 16 64 256] [--tensors 100] [--rounds 5]

The ranks are simulated: one process saves their shards one after another. Each time is the best of the rounds.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

import bitsnap
from bench.measuring import parser_of, print_machine, print_table, timed

ROWS, COLUMNS = 64, 16  # of the part of each rank
# A weight of several chunks: columns of it are in all of them, as many bytes of rows in a few.
WIDE_ROWS, WIDE_COLUMNS, NARROW = 8192, 4096, 64


def best(rounds: int, work: Callable[[], object]) -> float:
    """Milliseconds."""
    return 1e3 * min(timed(work)[0] for _ in range(rounds))


def part(rank: int, ranks: int, tensor: int) -> bitsnap.Box:
    values = np.random.default_rng(rank * 10_007 + tensor).standard_normal((ROWS, COLUMNS), np.float32)
    return bitsnap.Box(values, (ROWS * ranks, COLUMNS), (ROWS * rank, 0))


def measure_ranks(ranks: int, tensors: int, rounds: int) -> list[str]:
    names = [f"layers.{i}.weight" for i in range(tensors)]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"

        def save_shards() -> None:
            for rank in range(ranks):
                state = {name: part(rank, ranks, i) for i, name in enumerate(names)}
                store.save_shard(1, state, shard=rank, shards=ranks, attempt="a")

        with bitsnap.Store(run, shared=True) as store:
            saved = best(1, save_shards)
            committed = best(1, lambda: store.commit(1, ranks, "a"))
        out = [(name, (ROWS * (ranks // 2), 0), torch.empty(ROWS, COLUMNS)) for name in names]
        ways: list[Callable[[bitsnap.Store], object]] = [
            lambda opened: opened.tensors(1),
            lambda opened: [opened.snapshot(1, rank) for rank in range(ranks)],
            lambda opened: opened.read_into(1, out),
        ]

        def read(way: Callable[[bitsnap.Store], object]) -> object:
            with bitsnap.Store(run, read_only=True) as opened:
                return way(opened)

        times = [saved / ranks, committed, *(best(rounds, partial(read, way)) for way in ways)]
    return [str(ranks), f"{tensors:,}", *(f"{each:.1f}" for each in times)]


def measure_boxes(rounds: int) -> list[list[str]]:
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
            shares = [times[1] / (1.3 * times[0] + times[2]), times[2] / copied]
            lines.append([str(threads or "all"), *(f"{each:.1f}" for each in times), *(f"{x:.2f}" for x in shares)])
    assert torch.equal(columns, weight[:, :NARROW])
    return lines


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 16, 64, 256])
    parser.add_argument("--tensors", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    tempfile.tempdir = options.folder
    print_machine()
    rows = [measure_ranks(ranks, options.tensors, options.rounds) for ranks in options.ranks]
    rows.append(measure_ranks(64, 1000, options.rounds))
    header = ["ranks", "tensors", "save of one ms", "commit ms", "tensors() ms", "all opened ms"]
    print_table([*header, "boxes of one rank ms"], rows)
    print(f"{NARROW} of {WIDE_COLUMNS} columns of a float32 tensor of {WIDE_ROWS} rows, and rows of as many bytes:\n")
    header = ["threads", "rows ms", "columns ms", "whole ms", "columns / (1.3 rows + whole)", "whole / memcpy"]
    print_table(header, measure_boxes(options.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
