"""Small trainings with the checkpoints of frameworks, each a module with train(task).

Programs fork the processes of each training, so that a framework is imported once.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.frameworks.task import Task, run


@dataclass(frozen=True)
class Framework:
    program: str  # a module of this package
    packages: tuple[str, ...]
    checkpoint: str  # the name of a checkpoint, with {step}
    ranks: int = 0  # of torch.distributed; 0: one process without it
    arguments: dict[str, Any] = field(default_factory=dict)  # more of its train()

    def module(self) -> ModuleType:
        """Imports the framework, without asking a network for anything."""
        os.environ.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
        importlib.import_module("torch._dynamo")  # which the first optimizer of a process imports, in seconds
        return importlib.import_module(f"bench.frameworks.{self.program}")

    def train(self, task: Task, log: Path = Path(os.devnull)) -> Any:
        """The results of the observer."""
        return run(functools.partial(self.module().train, **self.arguments), task, self.ranks, log)


def _zero(stage: int) -> Framework:
    return Framework("deepspeed_zero", ("deepspeed",), "global_step{step}", 2, {"stage": stage})


FRAMEWORKS = {
    "torch": Framework("plain_torch", ("torch",), "step_{step}.pt"),
    "transformers": Framework("transformers_trainer", ("transformers", "accelerate"), "checkpoint-{step}"),
    "accelerate": Framework("accelerate_states", ("accelerate",), "step_{step}"),
    "lightning": Framework("lightning_trainer", ("lightning",), "step={step}.ckpt"),
    "dcp": Framework("fsdp_dcp", ("torch",), "step-{step}", ranks=4),
    "megatron": Framework("megatron_dist", ("megatron.core",), "iter_{step:07d}", ranks=2),
    **{f"deepspeed{stage}": _zero(stage) for stage in (1, 2, 3)},
}


def installed(names: Iterable[str], frameworks: dict[str, Framework]) -> list[str]:
    """Those whose packages are here; says which are not."""
    found = []
    for name in names:
        if all(map(_is_installed, frameworks[name].packages)):
            found.append(name)
        else:
            print(f"{name}: not installed", file=sys.stderr)
    return found


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ImportError:
        return False
