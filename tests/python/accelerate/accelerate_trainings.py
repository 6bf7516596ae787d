"""Small trainings with Accelerate, each in a process of its own; see forked_calls.py."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed

import bitsnap
import bitsnap.accelerate
from bitsnap.accelerate import export
from python.forked_calls import on_ranks
from python.runs.training_folders import compare_files, stop

__all__ = ["compare", "export", "save_thrice", "stop", "train", "train_on_ranks"]

torch.set_num_threads(1)


class Average:
    """An object to register: an average of the weights."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self.weights = {name: each.detach().clone() for name, each in model.named_parameters()}
        self.kills = False  # the process in the next save

    def update(self) -> None:
        for name, each in self._model.named_parameters():
            self.weights[name].lerp_(each.detach(), 0.1)

    def state_dict(self) -> dict[str, Any]:
        if self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        return dict(self.weights)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, each in state.items():
            self.weights[name].copy_(each)


def train(
    folder: str,
    options: dict[str, Any] | None = None,
    resume: str | bool = False,
    total_limit: int | None = None,
    kill_in: int | None = None,
    bf16: bool = True,
) -> dict[str, Any]:
    """Trains eight steps, and saves every second. `options`: of bitsnap; None trains without.

    `resume`: the folder of a checkpoint, or True for the newest.
    """
    set_seed(0)
    checkpoints = Path(folder) / "checkpoints"
    taken = [int(path.name.removeprefix("checkpoint_")) for path in checkpoints.glob("checkpoint_*")]
    project = ProjectConfiguration(
        folder, automatic_checkpoint_naming=True, total_limit=total_limit, iteration=max(taken, default=-1) + 1
    )
    accelerator = Accelerator(cpu=True, project_config=project)
    if options is not None:
        if options.pop("through_agent", False):
            options["agent"] = bitsnap.AgentOptions()
        assert bitsnap.accelerate.use(accelerator, **options) is accelerator
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Dropout(0.2), torch.nn.Linear(128, 64))
    critic = torch.nn.Linear(64, 1).to(torch.bfloat16 if bf16 else torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    other = torch.optim.SGD(critic.parameters(), lr=1e-2, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    prepared = accelerator.prepare(model, critic, optimizer, other, scheduler)
    model, critic, optimizer, other, scheduler = prepared
    average = Average(accelerator.unwrap_model(model))
    counter = Counter()
    accelerator.register_for_checkpointing(average, counter)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", bitsnap.RestoreWarning)
        if resume:
            accelerator.load_state(None if resume is True else resume)
    losses = {}
    while counter.step < 8:
        counter.step += 1
        x = torch.randn(8, 64)  # of the random generator that a checkpoint has
        judged = critic(x.to(next(critic.parameters()).dtype))
        loss = (model(x) - x).square().mean() + judged.square().mean()
        accelerator.backward(loss)
        for each in (optimizer, other):
            each.step()
            each.zero_grad()
        for slots in other.state.values():
            slots["momentum_buffer"] = slots["momentum_buffer"].float() * 1.0001  # more bits than its parameter has
        scheduler.step()
        average.update()
        losses[str(counter.step)] = loss.item()
        if counter.step % 2 == 0:
            average.kills = counter.step == kill_in
            accelerator.save_state()
    accelerator.end_training()
    return {
        "losses": losses,
        "average": [each.double().sum().item() for each in average.weights.values()],
        "momenta": [slots["momentum_buffer"].double().sum().item() for slots in other.state.values()],
        "warnings": [str(each.message) for each in caught if issubclass(each.category, bitsnap.RestoreWarning)],
    }


class Counter:
    """Another object to register."""

    step = 0

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]


def save_thrice(folder: str) -> list[list[str]]:
    """What three trainings that save to the same folder are told; the last one resumes."""
    told = []
    for resumes in (False, False, True):
        accelerator = bitsnap.accelerate.use(Accelerator(cpu=True))
        accelerator.prepare(torch.nn.Linear(2, 2))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", bitsnap.RestoreWarning)
            if resumes:
                accelerator.load_state(f"{folder}/step-1")
            for number in (1, 2):
                accelerator.save_state(f"{folder}/step-{number}")
        bitsnap.accelerate.undo(accelerator)
        told.append([str(each.message) for each in caught if issubclass(each.category, bitsnap.RestoreWarning)])
    return told


def train_on_ranks(folder: str, meeting: str, **arguments: Any) -> list[int]:
    """Trains on two processes. Their exit statuses."""
    return on_ranks(meeting, lambda: train(folder, **arguments)["losses"])


def compare(first: str, second: str) -> list[str]:
    """Compares two folders of checkpoints of Accelerate. The names of their files."""
    return compare_files(
        first,
        second,
        lambda path: path.read_bytes() if path.suffix == ".safetensors" else torch.load(path, weights_only=False),
    )


def verbs(folder: str) -> dict[str, Any]:
    """An accelerator that saves to a run, and as before when that is undone; and what the run has."""
    accelerator = bitsnap.accelerate.use(Accelerator(cpu=True))
    layer = accelerator.prepare(torch.nn.Linear(2, 2))
    accelerator.save_state(f"{folder}/ours")
    found = bitsnap.accelerate.load(f"{folder}/ours")
    bitsnap.accelerate.undo(accelerator)
    stock = type(accelerator) is Accelerator
    accelerator.save_state(f"{folder}/plain")
    bitsnap.accelerate.undo(accelerator)  # once more
    same = torch.equal(found["model"]["weight"], accelerator.unwrap_model(layer).weight)
    return {"same": same, "stock": stock, "files": sorted(path.name for path in Path(folder, "plain").iterdir())}
