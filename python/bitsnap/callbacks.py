"""What becomes of saves, for the tools that trainings are watched with: to be given as a Checkpointer's `on_progress`.

Nothing of these tools is imported: what is given only has to have the one method that is called.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from bitsnap._engine_saves import Save
from bitsnap._options import PathLike, absolute_path


class ScalarWriter(Protocol):
    """As torch.utils.tensorboard.SummaryWriter."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object: ...


class LoggingRun(Protocol):
    """As the run that wandb.init() returns."""

    def log(self, data: dict[str, Any], *, commit: bool) -> object: ...


class TensorBoard:
    """Writes what each save cost to TensorBoard once it is over, at its step: how long the training stalled and waited
    for a slot, encoding, writing, bytes stored, the ratio, and whether it failed.

    Args:
        writer: has ``add_scalar(tag, value, step)``, as a SummaryWriter.
        prefix: what the tags begin with.
    """

    def __init__(self, writer: ScalarWriter, prefix: str = "bitsnap/") -> None:
        self._writer = writer
        self._prefix = prefix

    def __call__(self, save: Save) -> None:
        for name, value in _numbers_of(save).items():
            self._writer.add_scalar(self._prefix + name, value, save.step)


class WandB:
    """Logs the same to a run of Weights & Biases, with the step of the save as ``bitsnap/step``.

    It goes with the next line that the training itself logs, whose steps it does not touch.

    Args:
        run: has ``log(data, commit=...)``, as what wandb.init() returns.
        prefix: what the names begin with.
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


class JsonLines:
    """Appends what each save cost to a file once it is over, one JSON object a line, for `bitsnap report --timings`.

    A line has ``step``, what `TensorBoard` writes, and for what was persisted ``save_seconds``, from the copy to the
    end of writing without the time in between in which the save waited. It is appended in one piece, so that lines of
    several ranks, and of several lives of a training, may be in one file.

    Args:
        path: the file; made with the first line. Its folder has to be there.
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
    """Of a save that is over."""
    if not save.done():
        return {}
    measured = save._measured()
    numbers: dict[str, float] = {
        "failed": float(save.error is not None),
        "stall_seconds": measured.stall_seconds,
        "wait_seconds": measured.wait_seconds,
    }
    if save.error is None:
        numbers |= {
            "encode_seconds": measured.encode_seconds,
            "write_seconds": measured.write_seconds,
            "stored_bytes": float(measured.stored_bytes),
            "ratio": measured.ratio,
        }
    return numbers
