"""Trainings with TrainingCheckpointer in which one rank dies or raises in a given phase. The functions run in
processes of python.rank_processes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import bitsnap.torch
from bitsnap._engine.restoring import Restoring
from bitsnap._engine.saves import Saves
from bitsnap.torch._training import Training
from bitsnap.torch._training_tensors import AllShards
from python.engine.dying_ranks import Failure
from python.torch import divided_trainings
from python.torch.divided_trainings import Run

# How long ranks wait for one that does not come, in seconds.
LIMIT_S = 1.0
NONE = Failure()
# What begins with each phase.
PHASES: dict[str, tuple[Any, str]] = {
    "checksums": (bitsnap.torch, "checksums_of"),
    "state": (Training, "state"),
    "copied": (Saves, "add"),
    "steps": (Restoring, "_known_steps"),
    "parts": (Training, "make_optimizer_state"),
    "look": (bitsnap.torch.TrainingCheckpointer, "_others_saved"),
    "read": (Restoring, "read"),
    "check": (Training, "check_values"),
    "fill": (bitsnap.torch, "load"),
    "send": (bitsnap.torch, "send_to_replicas"),
    "shards": (bitsnap.torch, "AllShards"),
    "fill from shards": (AllShards, "fill"),
    "take": (Training, "take_values"),
}

_run: Run


@contextlib.contextmanager
def _failing(failure: Failure) -> Iterator[None]:
    """`failure` may also be planned for the phase "begin", before all others."""
    if not failure.phase:
        yield
        return
    saves, restoring = _run.checkpointer.engine._saves, _run.checkpointer.engine._restoring
    given = saves.timeout_ms, restoring._timeout_ms
    if failure.phase == "begin":
        saves.timeout_ms = restoring._timeout_ms = int(LIMIT_S * 1000)
    owner, name = PHASES.get(failure.phase, (None, ""))
    function: Callable[..., Any] = getattr(owner, name, failure.strike)

    @functools.wraps(function)
    def struck(*arguments: Any, **options: Any) -> Any:
        failure.strike(failure.phase)
        return function(*arguments, **options)

    try:
        if owner is None:
            failure.strike("begin")
        else:
            setattr(owner, name, struck)
        yield
    finally:
        if owner is not None:
            setattr(owner, name, function)
        saves.timeout_ms, restoring._timeout_ms = given


def begin(rank: int, folder: str, job: str, division: str) -> int | None:
    """Makes a training and its checkpointer, and restores it. Returns the step."""
    global _run
    _run = Run(Path(folder) / "run", getattr(divided_trainings, division), job)
    return restore(rank, folder)


def restore(rank: int, folder: str, step: int | None = None, failure: Failure = NONE) -> int | None:
    with _failing(failure):
        restored = _run.checkpointer.restore(step)
    if restored is not None:
        assert _run.extra["seen"] == restored
        expected = torch.load(Path(folder) / f"{restored}.pt")
        assert divided_trainings.same(_run.whole(), expected)
    return restored


def save(rank: int, folder: str, step: int, failure: Failure = NONE) -> None:
    """Trains up to a step and saves it, and waits until it is stored."""
    _run.train(step - _run.extra["seen"])
    whole = _run.whole()
    if rank == 0:
        torch.save(whole, Path(folder) / f"{step}.pt")
    with _failing(failure):
        saved = _run.checkpointer.save(step)
        assert saved is not None
        saved.result(LIMIT_S if failure.phase == "state" else None)
