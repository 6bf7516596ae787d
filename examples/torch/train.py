"""A training in several processes that may be stopped at any time, and goes on where its last checkpoint was.

    torchrun --nproc-per-node 2 examples/torch/train.py run --parallel fsdp --steps 20

The same command goes on with more steps; so does it with another number of processes, or with ``--parallel ddp``. It
runs on the CPU, with gloo, or on GPUs if there are some.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import bitsnap.torch


def make_model(parallel: str, device: torch.device) -> nn.Module:
    torch.manual_seed(0)  # the same weights in all processes
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    model = nn.Sequential(nn.Embedding(256, 128), encoder, nn.Linear(128, 256), nn.LogSoftmax(dim=-1)).to(device)
    if parallel == "ddp":
        return DistributedDataParallel(model)
    fully_shard(model)
    return model


def batch_of(text: torch.Tensor, step: int) -> torch.Tensor:
    """The part of a batch that this process takes: 16 pieces of 65 bytes in all."""
    starts = torch.randint(len(text) - 65, (16,), generator=torch.Generator().manual_seed(step))
    own = starts[dist.get_rank() :: dist.get_world_size()]
    return torch.stack([text[start : start + 65] for start in own.tolist()])


def train(run: Path, parallel: str, steps: int, every: int) -> None:
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    text = torch.tensor(list(Path(__file__).read_bytes()))
    model = make_model(parallel, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)

    with bitsnap.torch.TrainingCheckpointer(
        run, model=model, optimizer=optimizer, scheduler=scheduler, every=every, keep_last=3
    ) as checkpointer:
        start = checkpointer.restore() or 0
        if dist.get_rank() == 0 and start > 0:
            print(f"goes on after step {start}", flush=True)
        for step in range(start + 1, steps + 1):
            batch = batch_of(text, step).to(device)
            loss = nn.functional.nll_loss(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            checkpointer.save(step)
            if dist.get_rank() == 0:
                print(f"step {step}: loss {loss.item():.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the directory of the checkpoints")
    parser.add_argument("--parallel", choices=("ddp", "fsdp"), default="fsdp")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--every", type=int, default=5, help="steps between checkpoints")
    arguments = parser.parse_args()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(dist.get_node_local_rank(0)))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        train(arguments.run, arguments.parallel, arguments.steps, arguments.every)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
