"""A training of Megatron-core on two ranks that goes on from what is there: a script, for object_megatron_test.py.

Usage: python -m python.objects.megatron_machine FOLDER CHECKPOINTS MIRROR LAST
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from python.megatron.megatron_gpt import Training, new_folder, run_ranks  # isort: skip

import torch.distributed as dist
from megatron.core import dist_checkpointing

import bitsnap.megatron


def train(path: Path, checkpoints: Path, mirror: str, last: int) -> None:
    """Saves every second iteration, as Megatron's training loop does."""
    bitsnap.megatron.use(mirror=mirror or None, load=checkpoints)
    training = Training(tp=2, pp=1)
    tracker = checkpoints / "latest_checkpointed_iteration.txt"
    if tracker.exists():
        training.resume(checkpoints / f"iter_{int(tracker.read_text()):07d}")
    losses = {}
    while training.done < last:
        for _ in range(2):
            (losses[training.done],) = training.train(1)
        dist_checkpointing.save(training.sharded(), str(new_folder(checkpoints, training.done)))
        if dist.get_rank() == 0:
            tracker.write_text(str(training.done))
    if dist.get_rank() == 0:
        (path / "losses").write_text(json.dumps(losses))


if __name__ == "__main__":
    run_ranks(2, train, Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
