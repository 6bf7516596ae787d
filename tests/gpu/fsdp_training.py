"""One training of gpu.fsdp_resume: a small GPT with FSDP2 on one rank, which saves every few steps and may be killed.

    python tests/gpu/fsdp_training.py WAY RUN [--device cuda] [--steps 12] [--every 3]

Prints "restored STEP", then "step STEP LOSS" for each step, the loss as an exact number. Everything that the next step
depends on is saved, the random generator of the device included.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

# Before CUDA starts: matrix products that add in the same order each time.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import bitsnap
import bitsnap.torch
from bitsnap.dcp import StorageReader, StorageWriter

dcp: Any = torch.distributed.checkpoint
WIDTH, HEADS, VOCAB, LENGTH = 128, 4, 512, 32


class Block(nn.Module):
    """Attention by plain matrix products, for which there are deterministic kernels, and a layer with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) / (WIDTH // HEADS) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        added: Tensor = x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm_2(x)))))
        return added


def make_model(device: torch.device) -> nn.Module:
    torch.manual_seed(1)
    head = nn.Sequential(nn.Linear(WIDTH, VOCAB), nn.LogSoftmax(dim=-1))
    model = nn.Sequential(nn.Embedding(VOCAB, WIDTH), Block(), Block(), head).to(device)
    mesh = init_device_mesh(device.type, (1,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


class Training:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.model = make_model(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def step(self, number: int) -> float:
        generator = torch.Generator().manual_seed(number)
        tokens = torch.randint(VOCAB, (4, LENGTH + 1), generator=generator).to(self._device)
        self.optimizer.zero_grad()
        found = self.model(tokens[:, :-1]).float()
        loss: Any = nn.functional.nll_loss(found.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        return float(loss.item())


class TorchSaves:
    """bitsnap.torch.TrainingCheckpointer, which also saves the random generators."""

    def __init__(self, training: Training, run: Path, *, wait: bool) -> None:
        self._wait = wait
        self._checkpointer = bitsnap.torch.TrainingCheckpointer(
            run,
            model=training.model,
            optimizer=training.optimizer,
            agent=bitsnap.AgentOptions(threads=1, linger=60),
            timeout=60,
        )

    def restore(self) -> int:
        return self._checkpointer.restore() or 0

    def save(self, step: int) -> None:
        save = self._checkpointer.save(step)
        assert save is not None
        if self._wait:
            save.wait_persisted()
        print(f"agent {self._checkpointer.engine.agent_process}", flush=True)

    def close(self) -> None:
        self._checkpointer.close()


class DcpSaves:
    """torch.distributed.checkpoint with bitsnap's writer and reader."""

    def __init__(self, training: Training, run: Path, *, in_background: bool) -> None:
        self._training, self._run, self._in_background = training, run, in_background
        self._writer = StorageWriter(keep_last=2)
        self._future: Any = None

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._training.model, self._training.optimizer)
        state = {"model": model, "optimizer": optimizer, "random": torch.get_rng_state()}
        if torch.cuda.is_available():
            state["random of the GPU"] = torch.cuda.get_rng_state()
        return state

    def restore(self) -> int:
        if not self._run.exists():
            return 0
        with bitsnap.Store(self._run, read_only=True) as store:
            step = store.latest()
        if step is None:
            return 0
        state = self._state()
        dcp.load(state, checkpoint_id=self._run / f"step-{step}", storage_reader=StorageReader())
        set_state_dict(
            self._training.model,
            self._training.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        torch.set_rng_state(state["random"])
        if torch.cuda.is_available():
            torch.cuda.set_rng_state(state["random of the GPU"])
        return step

    def save(self, step: int) -> None:
        self.close()
        options = {"checkpoint_id": self._run / f"step-{step}", "storage_writer": self._writer}
        if self._in_background:
            self._future = dcp.async_save(self._state(), **options)
        else:
            dcp.save(self._state(), **options)

    def close(self) -> None:
        if self._future is not None:
            self._future.result()
        self._future = None


def saves_for(way: str, training: Training, run: Path) -> TorchSaves | DcpSaves:
    if way.startswith("torch"):
        return TorchSaves(training, run, wait="agent" in way)
    return DcpSaves(training, run, in_background="async" in way)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way")
    parser.add_argument("run", type=Path, help="the store")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--every", type=int, default=3, help="steps between checkpoints; 0: none is saved")
    options = parser.parse_args()
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if options.device == "cuda":
        torch.cuda.set_device(device)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if options.device == "cuda" else "gloo",
            init_method=f"file://{folder}/meeting",
            rank=0,
            world_size=1,
        )
        training = Training(device)
        saves = saves_for(options.way, training, options.run) if options.every else None
        restored = 0 if saves is None else saves.restore()
        print(f"restored {restored}", flush=True)
        for number in range(restored + 1, options.steps + 1):
            loss = training.step(number)
            if saves is not None and number % options.every == 0:
                saves.save(number)
            print(f"step {number} {loss.hex()}", flush=True)
        if saves is not None:
            saves.close()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
