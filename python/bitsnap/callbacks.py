"""Functions for a Checkpointer's `on_progress` that log finished saves to monitoring tools.

They import none of these tools: the object they get needs only the one method that they call.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any, Protocol

from bitsnap._common import PathLike, absolute_path
from bitsnap._engine.saves import Save
from bitsnap.errors import BitsnapError
from bitsnap.store import Store


class ScalarWriter(Protocol):
    """The part of torch.utils.tensorboard.SummaryWriter that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object: ...


class LoggingRun(Protocol):
    """The part of the run of wandb.init() that is used."""

    def log(self, data: dict[str, Any], *, commit: bool) -> object: ...


class TensorBoard:
    """Writes the costs of each finished save to TensorBoard, at its step: the seconds of the stall, of waiting for a
    slot, of encoding and of writing, the stored bytes, the ratio, the lag, and whether it failed. The lag are the
    seconds from the call of save() until this function heard that the save had ended. Of a save to the store also what
    the run then holds on disk, with pruned checkpoints that others need (``run_held_bytes``), and how many times
    smaller that is than its checkpoints are raw (``run_ratio``).

    Args:
        writer: has ``add_scalar(tag, value, step)``, such as a SummaryWriter.
        prefix: the beginning of each tag.
    """

    def __init__(self, writer: ScalarWriter, prefix: str = "bitsnap/") -> None:
        self._writer = writer
        self._prefix = prefix

    def __call__(self, save: Save) -> None:
        for name, value in _numbers_of(save).items():
            self._writer.add_scalar(self._prefix + name, value, save.step)


class WandB:
    """Logs the same values to a run of Weights & Biases, with the step of the save as ``bitsnap/step``.

    They are committed with the next values that the training logs, so its steps do not change.

    Args:
        run: has ``log(data, commit=...)``, such as the run of wandb.init().
        prefix: the beginning of each name.
    """

    def __init__(self, run: LoggingRun, prefix: str = "bitsnap/") -> None:
        self._run = run
        self._prefix = prefix
        define = getattr(run, "define_metric", None)
        if callable(define):
            define(f"{prefix}step")
            define(f"{prefix}*", step_metric=f"{prefix}step")

    def __call__(self, save: Save) -> None:
        numbers = _numbers_of(save)
        if numbers:
            data = {self._prefix + name: value for name, value in numbers.items()}
            self._run.log({f"{self._prefix}step": save.step, **data}, commit=False)


class MetricsClient(Protocol):
    """The part of the module mlflow that is used."""

    def log_metrics(self, metrics: dict[str, float], *, step: int, run_id: str) -> object: ...


class MLflow:
    """Logs the same values to a run of MLflow, at the step of the save.

    Args:
        client: has ``log_metrics(metrics, step=..., run_id=...)``, such as the module mlflow.
        run_id: of the run, such as ``mlflow.active_run().info.run_id``: what is called on another thread has no active
            run there.
        prefix: the beginning of each name.
    """

    def __init__(self, client: MetricsClient, run_id: str, prefix: str = "bitsnap/") -> None:
        self._client = client
        self._run_id = run_id
        self._prefix = prefix

    def __call__(self, save: Save) -> None:
        numbers = _numbers_of(save)
        if numbers:
            metrics = {self._prefix + name: value for name, value in numbers.items()}
            self._client.log_metrics(metrics, step=save.step, run_id=self._run_id)


class JsonLines:
    """Appends the costs of each finished save to a file, one JSON object a line, for `bitsnap report --timings`. If the
    file is ``timings.jsonl`` in the run, `bitsnap report` finds it without the option.

    A line has ``step``, the values of `TensorBoard`, and for a persisted save ``save_seconds``: the time of copying,
    encoding and writing, without the time that the save waited. Each line is appended in one write, so several ranks
    and restarts may share a file.

    Args:
        path: the file; made with the first line. Its folder must exist.
    """

    def __init__(self, path: PathLike) -> None:
        self._path = absolute_path(path, "path")

    def __call__(self, save: Save) -> None:
        numbers = _numbers_of(save)
        if not numbers:
            return
        if save.stage == "persisted":
            parts = ("stall_seconds", "encode_seconds", "write_seconds")
            numbers["save_seconds"] = sum(numbers[part] for part in parts) - numbers["wait_seconds"]
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps({"step": save.step, **numbers}).encode() + b"\n")


def _numbers_of(save: Save) -> dict[str, float]:
    """The costs of a finished save by name; nothing for another save."""
    state = save.state()
    if not state.is_over:
        return {}
    numbers: dict[str, float] = {
        "failed": float(state.error is not None),
        "stall_seconds": state.stall_seconds,
        "wait_seconds": state.wait_seconds,
    }
    if state.error is None:
        numbers |= {
            "encode_seconds": state.encode_seconds,
            "write_seconds": state.write_seconds,
            "stored_bytes": float(state.stored_bytes),
            "ratio": state.ratio,
            "lag_seconds": time.monotonic() - save.began,
        }
    if save.stage == "persisted":
        with suppress(BitsnapError), Store(save.run, read_only=True) as store:
            usage = store.usage()
            numbers |= {"run_held_bytes": float(usage.held_bytes), "run_ratio": usage.ratio}
    return numbers
