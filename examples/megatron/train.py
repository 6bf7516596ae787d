"""Ranks that divide a model among them, and save it with Megatron-core's dist_checkpointing into a run of bitsnap.

    torchrun --nproc-per-node 2 -m bitsnap.megatron examples/megatron/train.py checkpoints --steps 20

The same command goes on with more steps, also with another number of processes that divides 8. It runs on the CPU, with
gloo, and needs megatron-core. A training with Megatron's own pretrain_gpt.py needs nothing but the same module.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.mapping import ShardedTensor

ROWS, COLUMNS = 8, 64


class Model:
    """The rows of a weight that this rank has, and Adam's moments of them."""

    def __init__(self) -> None:
        rows = ROWS // dist.get_world_size()
        whole = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0))
        self.weight = torch.nn.Parameter(whole.chunk(dist.get_world_size())[dist.get_rank()].clone())
        self.optimizer = torch.optim.AdamW([self.weight], lr=0.01)
        self.step = torch.zeros(())
        self.moments = {name: torch.zeros(rows, COLUMNS) for name in ("exp_avg", "exp_avg_sq")}
        self.optimizer.state[self.weight] = {"step": self.step, **self.moments}

    def train(self) -> float:
        """One step; the loss of all ranks."""
        self.optimizer.zero_grad()
        loss = (self.weight - 1).square().sum()
        loss.backward()
        self.optimizer.step()
        total = loss.detach()
        dist.all_reduce(total)
        return total.item()

    def sharded(self) -> dict[str, object]:
        """What Megatron calls a sharded state dict: tensors with their places in the whole ones, and other values."""
        place = (0, dist.get_rank(), dist.get_world_size())
        tensors = {"weight": self.weight.detach(), **{f"optimizer.{key}": each for key, each in self.moments.items()}}
        return {
            **{key: ShardedTensor.from_rank_offsets(key, tensor, place) for key, tensor in tensors.items()},
            "step": int(self.step),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--every", type=int, default=5)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    model, tracker = Model(), arguments.folder / "latest_checkpointed_iteration.txt"
    if tracker.exists():
        folder = arguments.folder / f"iter_{int(tracker.read_text()):07d}"
        state = dist_checkpointing.load(model.sharded(), str(folder))  # fills the tensors of the model
        model.step.fill_(state["step"])
        if dist.get_rank() == 0:
            print(f"goes on after step {state['step']}")
    while model.step < arguments.steps:
        loss = model.train()
        step = int(model.step)
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss:.6f}")
        if step % arguments.every == 0:
            folder = arguments.folder / f"iter_{step:07d}"
            if dist.get_rank() == 0:
                folder.mkdir(parents=True, exist_ok=True)
            dist.barrier()
            dist_checkpointing.save(model.sharded(), str(folder))
            if dist.get_rank() == 0:
                tracker.write_text(str(step))
                # Keeps two checkpoints. The run loses the bytes of a deleted folder with the next save.
                shutil.rmtree(arguments.folder / f"iter_{step - 2 * arguments.every:07d}", ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
