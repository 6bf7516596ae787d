"""What Megatron-core does for megatron_convert_test.py: saves, converts without processes, and loads both.

A script: its argument is an empty folder. It writes what it found to the file "facts" in it, from rank 0.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import bitsnap
import bitsnap.megatron
from python.megatron.megatron_gpt import Training, new_folder, run_ranks
from python.megatron.megatron_scenario import report, same

from megatron.core import dist_checkpointing  # isort: skip
from megatron.core.dist_checkpointing.mapping import ShardedObject  # isort: skip
from megatron.core.transformer.enums import AttnBackend  # isort: skip

RANKS = 2
FULL, PIECES = "fully_reshardable", "dp_reshardable"
ARGS = argparse.Namespace(lr=0.1, dtype=torch.bfloat16, attention_backend=AttnBackend.auto, sizes=(1, 2))


def values(rank: int) -> dict[str, Any]:
    rng = [{"random": (3, (1, 2, rank), None), "torch": torch.arange(rank, rank + 9, dtype=torch.uint8)}]
    return {"args": ARGS, "rng_state": ShardedObject("rng_state", rng, (RANKS,), (rank,))}


def save(path: Path) -> None:
    """Saves two iterations through stock, which rank 0 names as Megatron does, and through bitsnap."""
    training = Training(tp=2, pp=1)
    for iteration in (1, 2):
        training.train(1)
        for kind in (FULL, PIECES):
            state = {**training.sharded(kind), **values(dist.get_rank())}
            dist_checkpointing.save(state, str(new_folder(path / "stock" / kind, iteration)))
    bitsnap.megatron.use()
    for kind in (FULL, PIECES):
        state = {**training.sharded(kind), **values(dist.get_rank())}
        dist_checkpointing.save(state, str(new_folder(path / "ours" / kind, 2)))
        if dist.get_rank() == 0:
            (path / "stock" / kind / "latest_checkpointed_iteration.txt").write_text("2")


def convert(path: Path) -> None:
    """From stock to runs, from there back to torch_dist, and from bitsnap's own saves."""
    for kind in (FULL, PIECES):
        bitsnap.megatron.main(["convert", str(path / "stock" / kind), str(path / "run" / kind)])
        bitsnap.megatron.main(["convert", str(path / "run" / kind), str(path / "again" / kind)])
        folder = path / "ours" / kind / "iter_0000002"
        bitsnap.megatron.convert(folder, path / "back" / kind / folder.name)


def load(path: Path) -> None:
    """Loads what stock saved and what came of it in another layout: through stock, and what is bitsnap's through it."""
    bits: dict[str, dict[str, torch.Tensor]] = {}
    for tp, pp, kind in ((1, 2, FULL), (2, 1, PIECES)):
        training = Training(tp, pp, seed=3)
        for origin in ("stock", "again", "back", "run"):
            if origin == "run":
                bitsnap.megatron.use()
            training.train(1)  # so that loading has something to change
            folder = path / origin / kind / "iter_0000002"
            training.resume(folder, kind)
            bits[origin] = training.tensors()
            report(path, f"same {kind} {origin}", same(bits["stock"], bits[origin]))
            wanted = values(dist.get_rank())["rng_state"]
            expected, wanted.data = wanted.data, None
            state = dist_checkpointing.load({"rng_state": wanted}, str(folder))
            report(path, f"values {kind} {origin}", state["args"] == ARGS and str(state["rng_state"]) == str(expected))
        training.train(1)
        dist_checkpointing.save(training.sharded(kind), str(new_folder(path / "run" / kind, 3)))
        bitsnap.megatron.undo()
        with bitsnap.Store(path / "run" / kind / "bitsnap", read_only=True) as store:
            report(path, f"stored {kind}", [store.checkpoint(step).stored_bytes for step in store.steps()])


def main() -> None:
    path = Path(sys.argv[1])
    run_ranks(RANKS, save, path)
    convert(path)
    run_ranks(RANKS, load, path)


if __name__ == "__main__":
    main()
