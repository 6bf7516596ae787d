"""What only the training or only the checkpoint has, at a restore of bitsnap.torch.TrainingCheckpointer: it is said."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import bitsnap
import bitsnap.torch
from python.engine.checkpointer_jobs import Jobs


class Counter:
    def __init__(self, number: int) -> None:
        self.number = number

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.number = state["number"]


def with_(jobs: Jobs, number: int, *arguments: str) -> tuple[bitsnap.torch.TrainingCheckpointer, dict[str, Any]]:
    """A Checkpointer with these arguments, and their values."""
    model = nn.Linear(3, 3)
    nn.init.constant_(model.weight, number)
    optimizer = torch.optim.AdamW(model.parameters(), lr=number)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    given: dict[str, Any] = {
        "optimizer": optimizer,
        "scheduler": Counter(number),
        "dataloader": Counter(number),
        "extra": {"it": Counter(number)},
        "rng": True,
    }
    options = {name: given[name] for name in arguments}
    job = bitsnap.JobOptions(name=jobs.job)
    made = bitsnap.torch.TrainingCheckpointer(jobs.path, model=model, job=job, **{"rng": False, **options})
    return made, {"model": model, **given}


def number_of(argument: str, value: Any) -> float:
    if argument == "optimizer":
        return float(value.param_groups[0]["lr"])
    found: float = (value["it"] if argument == "extra" else value).number
    return found


@pytest.mark.parametrize("saved", [True, False], ids=["only saved", "only given"])
@pytest.mark.parametrize("argument", ["optimizer", "scheduler", "dataloader", "extra", "rng"])
def test_what_only_one_side_has_is_an_error_or_a_warning(jobs: Jobs, argument: str, saved: bool) -> None:
    with with_(jobs, 1, *[argument] * saved)[0] as checkpointer:
        checkpointer.save(1)
        checkpointer.wait()
    checkpointer, given = with_(jobs, 2, *[argument] * (not saved))
    with checkpointer:
        if argument == "rng" or (argument == "dataloader" and not saved):
            with pytest.warns(bitsnap.RestoreWarning, match=f"step 1: {argument}: "):
                assert checkpointer.restore() == 1
        else:
            weight = given["model"].weight.detach().clone()
            with pytest.raises(bitsnap.InvalidArgumentError, match=rf"restore\(optional=\['{argument}'\]\)"):
                checkpointer.restore()
            assert torch.equal(given["model"].weight, weight)
        nn.init.zeros_(given["model"].weight)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert checkpointer.restore(optional=[argument]) == 1
        assert given["model"].weight.any()
        if argument != "rng":
            assert number_of(argument, given[argument]) == 2
        if argument == "optimizer":
            assert len(given["optimizer"].state) == 2


def test_optional_takes_names_of_arguments(jobs: Jobs) -> None:
    checkpointer, _ = with_(jobs, 1)
    with checkpointer:
        for wrong in ("rng", ["model"]):
            with pytest.raises(bitsnap.InvalidArgumentError, match="optional must have names of optimizer"):
                checkpointer.restore(optional=wrong)


@pytest.mark.parametrize(
    "state",
    [{"weights": torch.ones(3)}, {"model": {"weight": torch.ones(3, 3)}}, [torch.ones(3)], torch.ones(3), 3],
    ids=["names", "a model", "list", "tensor", "number"],
)
def test_a_run_of_another_program_is_named(jobs: Jobs, state: Any) -> None:
    with bitsnap.Store(jobs.path) as store:
        store.save(1, state)
    with (
        with_(jobs, 1)[0] as checkpointer,
        pytest.raises(
            bitsnap.InvalidArgumentError,
            match=r"step 1 of .* was saved by bitsnap\.Store or bitsnap\.Checkpointer, whose load\(\)",
        ),
    ):
        checkpointer.restore()
