"""What the states of many optimizers cost, one step and ten steps after a stored one (docs/measurements.md).

    PYTHONPATH=. python -m bench.optimizer_states FOLDER [OPTIMIZER ...] --bitsnap PROGRAM [--bf16]

Trains a GPT of 1.1 M parameters for 30 steps with each optimizer: fp32 parameters under autocast to bf16, or all in
bf16. Prints bits per element, one step apart, of the parameters and of each tensor of the optimizer, and the ratio of
the whole state one and ten steps apart. Optimizers whose package is not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bench.gradient_trainings import Kind, ModelConfig, Training

STEPS = (20, 21, 30)

# By name: the module and the class, and what differs from its defaults.
OPTIMIZERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "AdamW": ("torch.optim", "AdamW", {"weight_decay": 0.01}),
    "AdamW fused": ("torch.optim", "AdamW", {"weight_decay": 0.01, "fused": True}),
    "Adam amsgrad": ("torch.optim", "Adam", {"amsgrad": True}),
    "NAdam": ("torch.optim", "NAdam", {}),
    "RAdam": ("torch.optim", "RAdam", {}),
    "Adamax": ("torch.optim", "Adamax", {}),
    "Adagrad": ("torch.optim", "Adagrad", {}),
    "Adadelta": ("torch.optim", "Adadelta", {"lr": 1.0}),
    "RMSprop": ("torch.optim", "RMSprop", {}),
    "SGD momentum": ("torch.optim", "SGD", {"lr": 0.05, "momentum": 0.9}),
    "Adafactor": ("torch.optim", "Adafactor", {}),
    "Lion": ("pytorch_optimizer", "Lion", {"lr": 1e-4, "weight_decay": 0.1}),
    "Adan": ("pytorch_optimizer", "Adan", {}),
    "AdEMAMix": ("pytorch_optimizer", "AdEMAMix", {}),
    "AdaBelief": ("pytorch_optimizer", "AdaBelief", {}),
    "Lamb": ("pytorch_optimizer", "Lamb", {}),
    "StableAdamW": ("pytorch_optimizer", "StableAdamW", {}),
    "CAME": ("pytorch_optimizer", "CAME", {"lr": 2e-4}),
    "Prodigy": ("pytorch_optimizer", "Prodigy", {"lr": 1.0}),
    "Schedule-Free AdamW": ("schedulefree", "AdamWScheduleFree", {"warmup_steps": 10}),
    "Schedule-Free SGD": ("schedulefree", "SGDScheduleFree", {"lr": 0.5, "warmup_steps": 10}),
    "AdamW 8-bit (bitsandbytes)": ("bitsandbytes.optim", "AdamW8bit", {}),
    "AdamW 8-bit (torchao)": ("torchao.optim", "AdamW8bit", {}),
}


class OptimizerTraining(Training):
    model_config = ModelConfig(layers=3, heads=4, width=128)

    def __init__(self, name: str, bf16: bool) -> None:
        self.name = name
        super().__init__(Kind(name))
        if bf16:
            self.model.to(torch.bfloat16)
            self.optimizers = list(self._optimizers())

    def _optimizers(self) -> Iterator[torch.optim.Optimizer]:
        module, kind, options = OPTIMIZERS[self.name]
        optimizer = getattr(importlib.import_module(module), kind)(self.masters.values(), **{"lr": 1e-3, **options})
        if hasattr(optimizer, "train"):
            optimizer.train()
        yield optimizer

    def tensors(self) -> dict[str, Tensor]:
        """Also what quantized tensors consist of."""
        tensors = {f"model.{name}": weight.detach() for name, weight in self.weights.items()}
        for name, weight in self.weights.items():
            for key, value in self.optimizers[0].state.get(weight, {}).items():
                for part, tensor in parts_of(key, value):
                    tensors[f"{part}.{name}"] = tensor
        return {name: tensor.contiguous().clone() for name, tensor in tensors.items()}  # some share memory


def parts_of(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if hasattr(value, "__tensor_flatten__"):
        for part in value.__tensor_flatten__()[0]:
            yield f"{name}.{part}", getattr(value, part)
    elif isinstance(value, Tensor) and value.dim() > 0:
        yield name, value.detach()


def train(name: str, bf16: bool, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"state-{step:06d}.safetensors" for step in STEPS]
    if not all(path.exists() for path in paths):
        training = OptimizerTraining(name, bf16)
        for step in range(1, STEPS[-1] + 1):
            training.step()
            if step in STEPS:
                save_file(training.tensors(), paths[STEPS.index(step)])
    return paths


def bits_per_element(tensors: Iterable[dict[str, Any]], names: Iterable[str]) -> dict[str, float]:
    """By the part of the name before that of the parameter; tensors that are stored together are left out."""
    raw: dict[str, int] = defaultdict(int)
    stored: dict[str, float] = defaultdict(float)
    suffixes = tuple(f".{name}" for name in names)
    widths = {"F32": 32, "BF16": 16, "F16": 16, "U8": 8}
    for tensor in tensors:
        if tensor.get("pooled") or tensor["dtype"] not in widths:
            continue
        kind = next((tensor["name"].removesuffix(suffix) for suffix in suffixes if tensor["name"].endswith(suffix)), "")
        raw[kind] += tensor["raw_bytes"]
        stored[kind] += tensor["stored_bytes"] * widths[tensor["dtype"]]
    return {kind: stored[kind] / raw[kind] for kind in raw if kind}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("optimizers", nargs="*", metavar="OPTIMIZER", help=f"of {', '.join(OPTIMIZERS)}; default: all")
    parser.add_argument("--bitsnap", default="bitsnap", help="the command")
    parser.add_argument("--bf16", action="store_true", help="train wholly in bf16")
    arguments = parser.parse_args()

    def run(*options: object) -> str:
        command = [arguments.bitsnap, *(str(option) for option in options)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    for name in arguments.optimizers or OPTIMIZERS:
        folder = arguments.folder / f"{name.replace(' ', '-')}-{'bf16' if arguments.bf16 else 'fp32'}"
        try:
            paths = train(name, arguments.bf16, folder)
        except ImportError as error:
            print(f"| {name} | {error} |", flush=True)
            continue
        before, one, ten = (path.with_suffix(".bsnap") for path in paths)
        run("compress", "-q", "-f", "-o", before, paths[0])
        ratios = []
        for path, stored in ((paths[1], one), (paths[2], ten)):
            run("compress", "-q", "-f", "-o", stored, "--base", before, path)
            ratios.append(path.stat().st_size / stored.stat().st_size)
        parameters = [key for key, _ in nn.Module.named_parameters(OptimizerTraining(name, False).model)]
        bits = bits_per_element(json.loads(run("inspect", "--json", one))["tensors"], parameters)
        model = bits.pop("model", 0)
        others = ", ".join(f"{key} {value:.2f}" for key, value in bits.items())
        print(f"| {name} | {model:.2f}; {others} | {ratios[0]:.2f} | {ratios[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
