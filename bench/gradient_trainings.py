"""Trains one small GPT in the ways that give gradients of different precision, and stores a state against the one
before it: what one training step costs (docs/decisions/0026-gradients-of-few-bits.md).

    PYTHONPATH=. python -m bench.gradient_trainings FOLDER [KIND ...] --bitsnap PROGRAM

States that are in the folder are not trained again. Deterministic on one machine with one version of torch; each kind
takes about a minute on a core with bfloat16 instructions.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bench.corpus_runs import PROJECT

sys.path.insert(0, str(PROJECT / "examples" / "train_gpt"))
from data import Corpus as Corpus, Sampler as Sampler, read_text as read_text
from model import Gpt as Gpt, ModelConfig as ModelConfig
from trainer import make_deterministic as make_deterministic

STEPS = (30, 31)


@dataclass(frozen=True)
class Kind:
    """A way to train. `autocast` is the dtype that the forward pass is computed in; None: that of the parameters."""

    about: str
    autocast: torch.dtype | None = torch.bfloat16
    half_weights: bool = False  # bf16 weights with fp32 masters
    micro_batches: int = 1
    optimizer: str = "adamw"
    clip_norm: float = 1.0


KINDS = {
    "fp32": Kind("fp32 throughout, whose gradients have 24 bits", autocast=None),
    "autocast": Kind("fp32 parameters, autocast bf16", clip_norm=100.0),
    "clipped": Kind("the same with clipping active", clip_norm=0.25),
    "masters": Kind("bf16 weights with bf16 gradients, fp32 masters", autocast=None, half_weights=True),
    "accumulated": Kind("autocast bf16, four micro-batches summed in fp32", micro_batches=4),
    "scaled": Kind("autocast fp16 with a GradScaler", autocast=torch.float16),
    "muon": Kind("autocast bf16, matrices by Muon, all else by AdamW", optimizer="muon"),
    "sgd": Kind("autocast bf16, SGD with momentum", optimizer="sgd"),
}


class Training:
    """Owns model, masters and optimizers."""

    model_config = ModelConfig(layers=6, heads=4, width=256)

    def __init__(self, kind: Kind) -> None:
        make_deterministic(threads=1)
        torch.manual_seed(1)
        self.kind = kind
        corpus = Corpus(read_text(1_000_000), 2048)
        self.sampler = Sampler(corpus, 128, 8 // kind.micro_batches, 1)
        compute = "bfloat16" if kind.half_weights else "float32"
        self.model = Gpt(replace(self.model_config, compute=compute))
        self.model.train()
        self.weights = dict(self.model.named_parameters())
        self.masters = self.weights
        if kind.half_weights:
            self.masters = {name: nn.Parameter(weight.detach().clone()) for name, weight in self.weights.items()}
            self.model.to(torch.bfloat16)
            self.weights = dict(self.model.named_parameters())
        self.optimizers = list(self._optimizers())
        self.scaler = torch.amp.GradScaler("cpu", enabled=kind.autocast is torch.float16)

    def _optimizers(self) -> Iterator[torch.optim.Optimizer]:
        rest = dict(self.masters)
        if self.kind.optimizer == "sgd":
            yield torch.optim.SGD(rest.values(), lr=0.05, momentum=0.9)
            return
        if self.kind.optimizer == "muon":
            matrices = [rest.pop(name) for name in self.masters if name.startswith("blocks.") and rest[name].dim() == 2]
            yield torch.optim.Muon(matrices, lr=2e-3, weight_decay=0.1)
        yield torch.optim.AdamW(rest.values(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)

    def step(self) -> None:
        for _ in range(self.kind.micro_batches):
            inputs, targets = self.sampler.next()
            with torch.autocast("cpu", self.kind.autocast, enabled=self.kind.autocast is not None):
                loss = self.model(inputs, targets) / self.kind.micro_batches
            self.scaler.scale(loss).backward()
        if self.kind.half_weights:
            for name, master in self.masters.items():
                gradient = self.weights[name].grad
                assert gradient is not None
                master.grad = gradient.float()
                self.weights[name].grad = None
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(self.masters.values(), self.kind.clip_norm)
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
            optimizer.zero_grad(set_to_none=True)
        self.scaler.update()
        if self.kind.half_weights:
            with torch.no_grad():
                for name, weight in self.weights.items():
                    weight.copy_(self.masters[name])

    def tensors(self) -> dict[str, Tensor]:
        tensors = {f"model.{name}": weight.detach() for name, weight in self.weights.items()}
        for name, master in self.masters.items():
            if self.kind.half_weights:
                tensors[f"master.{name}"] = master.detach()
            for optimizer in self.optimizers:
                for key, moment in optimizer.state.get(master, {}).items():
                    if isinstance(moment, Tensor) and moment.dim() > 0:
                        tensors[f"{key}.{name}"] = moment
        return {name: tensor.contiguous() for name, tensor in tensors.items()}


def train(kind: Kind, folder: Path) -> list[Path]:
    """The files of both states."""
    paths = [folder / f"state-{step:06d}.safetensors" for step in STEPS]
    if not all(path.exists() for path in paths):
        folder.mkdir(parents=True, exist_ok=True)
        training = Training(kind)
        for step in range(1, STEPS[-1] + 1):
            training.step()
            if step in STEPS:
                save_file(training.tensors(), paths[STEPS.index(step)])
    return paths


def stored_bytes(program: str, before: Path, after: Path) -> int:
    """The size of the later state, stored against the earlier one."""
    first, second = (path.with_suffix(".bsnap") for path in (before, after))
    subprocess.run([program, "compress", "-q", "-f", "-o", first, before], check=True)
    subprocess.run([program, "compress", "-q", "-f", "-o", second, "--base", first, after], check=True)
    return second.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all if none is given")
    parser.add_argument("--bitsnap", default="bitsnap", help="the command")
    arguments = parser.parse_args()
    for name in arguments.kinds or KINDS:
        before, after = train(KINDS[name], arguments.folder / name)
        raw, stored = after.stat().st_size, stored_bytes(arguments.bitsnap, before, after)
        print(
            f"{name:12} {raw / 1e6:6.1f} MB  {stored / 1e6:6.2f} MB  {raw / stored:6.2f}x  {KINDS[name].about}",
            flush=True,
        )


if __name__ == "__main__":
    main()
