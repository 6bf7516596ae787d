"""Compares the sizes of bitsnap.megatron's checkpoints with those of torch_dist and of published methods.

    python -m bench.megatron_sizes [--first 40] [--layers 4] [--hidden 512] [--folder FOLDER]

Four ranks on the CPU train a GPT with Megatron-core, two of them with each half of the tensors, on the sources of
Python's standard library. Measured are the bytes of three checkpoints of the distributed optimizer in each kind of
sharding, without and with Megatron's wrapper for fully parallel saving. Needs megatron-core and the package zstandard.
Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import zstandard

import bitsnap
import bitsnap.megatron
from bench.corpus_runs import PROJECT
from bench.disk_use import bytes_in
from bench.measuring import folder_of, parser_of, print_machine, print_table
from bench.train_gpt import Corpus, Sampler, read_text

sys.path.insert(0, str(PROJECT / "tests"))
warnings.simplefilter("ignore")

from megatron.core import dist_checkpointing  # noqa: E402
from megatron.core.dist_checkpointing.strategies.fully_parallel import FullyParallelSaveStrategyWrapper  # noqa: E402
from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy  # noqa: E402

from python.megatron.megatron_gpt import Training, new_folder, run_ranks  # noqa: E402

RANKS, TENSOR_PARALLEL = 4, 2
MOMENTS = {"first": 0, "one step later": 1, "ten steps later": 10}  # with the steps before each
SHARDINGS = ("dp_reshardable", "fully_reshardable")
WRAPPED = " in parallel"
STOCK, ZSTD = "torch_dist", "torch_dist, zstd -3"
OURS = "bitsnap.megatron"
POLICIES = {OURS: "lossless", "policy lmc": "lmc", "policy bitsnap": "bitsnap", "policy bounded": "bounded"}
_VOCABULARY, _LENGTH, _BATCH = 2048, 64, 4
_TEXT_BYTES = 2_000_000


class TextTraining(Training):
    """Learns Python's standard library."""

    def __init__(self, options: argparse.Namespace) -> None:
        sizes = {"hidden": options.hidden, "layers": options.layers, "words": _VOCABULARY, "length": _LENGTH}
        super().__init__(TENSOR_PARALLEL, 1, **sizes)
        self._sampler = Sampler(Corpus(read_text(_TEXT_BYTES), _VOCABULARY), _LENGTH, _BATCH, seed=0)

    def batch(self) -> torch.Tensor:
        inputs, targets = self._sampler.next()
        return torch.cat((inputs, targets[:, -1:]), dim=1)


def measured(path: Path, options: argparse.Namespace) -> None:
    """What each rank does. Rank 0 writes the sizes."""
    training = TextTraining(options)
    losses = training.train(options.first)
    cases = [kind + way for kind in SHARDINGS for way in ("", WRAPPED)]
    sizes: dict[str, dict[str, list[int]]] = {case: {name: [] for name in (STOCK, ZSTD, *POLICIES)} for case in cases}
    shares: dict[str, list[float]] = {case: [] for case in cases}
    for moment, steps in MOMENTS.items():
        losses += training.train(steps)
        for case in cases:
            for name in (STOCK, *POLICIES):
                folder = new_folder(path / "checkpoints" / f"{case} {name}".replace(" ", "-"), training.done)
                save(training, folder, case.removesuffix(WRAPPED), case.endswith(WRAPPED), name)
                size = bytes_in(folder)
                if name == STOCK:
                    sizes[case][ZSTD].append(compressed_size_of(folder))
                else:
                    size += stored_bytes(folder.parent / "bitsnap", training.done)
                if name == OURS:
                    shares[case].append(share_of_weights(folder.parent / "bitsnap", training.done))
                sizes[case][name].append(size)
                dist.barrier()
        if dist.get_rank() == 0:
            print(f"{moment}: step {training.done}, loss {losses[-1]:.3f}", file=sys.stderr, flush=True)
    if dist.get_rank() == 0:
        parameters = sum(parameter.numel() for parameter in training.model[0].parameters())
        results = {"parameters": parameters, "sizes": sizes, "shares": shares}
        (path / "results.json").write_text(json.dumps(results))


def save(training: Training, folder: Path, kind: str, is_wrapped: bool, name: str) -> None:
    strategy: Any = TorchDistSaveShardedStrategy("torch_dist", 1)
    if is_wrapped:
        strategy = FullyParallelSaveStrategyWrapper(strategy)
    if name in POLICIES:
        bitsnap.megatron.use(settings=POLICIES[name], threads=1)
    try:
        dist_checkpointing.save(training.sharded(kind), str(folder), strategy)
    finally:
        bitsnap.megatron.undo()


def compressed_size_of(folder: Path) -> int:
    return sum(len(zstandard.compress(path.read_bytes(), 3)) for path in folder.rglob("*") if path.is_file())


def stored_bytes(run: Path, step: int) -> int:
    with bitsnap.Store(run, read_only=True) as store:
        return store.checkpoint(step).stored_bytes


def share_of_weights(run: Path, step: int) -> float:
    """The part of the bytes of a step that weights take. Those of the pool count as its raw bytes are divided."""
    total = weights = 0.0
    with bitsnap.Store(run, read_only=True) as store:
        for shard in range(store.checkpoint(step).shards):
            found = bitsnap.inspect(store.snapshot(step, shard))
            total += found.file_bytes
            of_pool = found.pool_stored_bytes / max(found.pool_raw_bytes, 1)
            for tensor in found.tensors:
                if tensor.role == "weight" and tensor.alias_of is None:
                    stored = tensor.stored_bytes
                    weights += tensor.raw_bytes * of_pool if stored is None else stored
    return weights / total


def print_sizes(results: dict[str, Any]) -> None:
    """Tables of sizes, each with how many times smaller it is than that of torch_dist."""
    for case, sizes in results["sizes"].items():
        rows = []
        for name, each in sizes.items():
            pairs = zip(each, sizes[STOCK], strict=True)
            rows.append([name, *(f"{size / 1e6:.1f} MB ({raw / size:.2f})" for size, raw in pairs)])
        factors = [theirs / our for theirs, our in zip(sizes[ZSTD], sizes[OURS], strict=True)]
        rows.append([f"{ZSTD} / {OURS}", *(f"{factor:.2f}" for factor in factors)])
        rows.append([f"share of weights in {OURS}", *(f"{100 * share:.2f} %" for share in results["shares"][case])])
        print(f"{case}:\n")
        print_table(["", *MOMENTS], rows)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--first", type=int, default=40, help="step of the first checkpoint")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=512)
    options = parser.parse_args()
    with folder_of(options) as path:
        try:
            run_ranks(RANKS, measured, path, options)
        finally:
            sys.stderr.write((path / "output").read_text())
        results = json.loads((path / "results.json").read_text())
    print_machine()
    print(f"{results['parameters'] * TENSOR_PARALLEL / 1e6:.1f} M parameters, {RANKS} ranks.\n")
    print_sizes(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
