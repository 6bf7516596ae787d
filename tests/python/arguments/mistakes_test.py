"""Mistakes of new users: each error says what was given, what was expected, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import checkpoint

import bitsnap
import bitsnap.dcp
import bitsnap.torch

dcp: Any = checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

MODEL = torch.nn.Linear(50, 50)
OPTIMIZER = torch.optim.AdamW(MODEL.parameters())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each interface."""
    path = tmp_path_factory.mktemp("made")
    with bitsnap.torch.TrainingCheckpointer(path / "torch", model=MODEL, optimizer=OPTIMIZER) as checkpointer:
        checkpointer.save(1)
        checkpointer.wait()
    with bitsnap.Store(path / "store") as store:
        store.save(1, {"model": MODEL.state_dict(), "optimizer": OPTIMIZER.state_dict()})
    writer = bitsnap.dcp.StorageWriter()
    dcp.save({"model": MODEL.state_dict()}, checkpoint_id=f"{path}/dcp/step-1", storage_writer=writer)
    torch.save(MODEL.state_dict(), path / "model.pt")
    return path


def training(path: Path, **options: Any) -> bitsnap.torch.TrainingCheckpointer:
    given: dict[str, Any] = {"model": MODEL, "optimizer": OPTIMIZER}
    return bitsnap.torch.TrainingCheckpointer(path, **given | options)


MISTAKES: list[tuple[str, Callable[[Path], Any], str]] = [
    (
        "the state of a model in place of the model",
        lambda path: training(path / "new", model=MODEL.state_dict()),
        "TypeError: model['weight'] must be a torch.nn.Module, got a tensor: pass the module, not its state_dict()",
    ),
    (
        "the state of an optimizer",
        lambda path: training(path / "new", optimizer=OPTIMIZER.state_dict()),
        "got dict with 'state', 'param_groups': pass the optimizer, not its state_dict()",
    ),
    (
        "a loader without a state",
        lambda path: training(path / "new", dataloader=torch.utils.data.DataLoader([1])),  # type: ignore[arg-type]
        "torchdata's StatefulDataLoader has them",
    ),
    (
        "a run of Store",
        lambda path: training(path / "store").restore(),
        "was saved by bitsnap.Store or bitsnap.Checkpointer, whose load() and restore() read it",
    ),
    ("a run of DCP", lambda path: training(path / "dcp").restore(), "was saved by bitsnap.dcp, whose StorageReader"),
    (
        "a run of another interface in DCP",
        lambda path: dcp.load({}, checkpoint_id=f"{path}/torch/step-1", storage_reader=bitsnap.dcp.StorageReader()),
        "torch: step 1 was saved by bitsnap.torch.TrainingCheckpointer, whose restore() reads it",
    ),
    (
        "a checkpoint in place of a run",
        lambda path: bitsnap.Store(path / "store@1"),
        "store@1: this names a checkpoint of the run {path}/store, expected the run alone",
    ),
    (
        "a file in place of a run",
        lambda path: bitsnap.Store(path / "model.pt"),
        "InvalidArgumentError: {path}/model.pt: is a file, not the directory of a store",
    ),
    (
        "no directory above",
        lambda path: bitsnap.Store(path / "a" / "b"),
        "NotFoundError: {path}/a/b: the directory {path}/a does not exist",
    ),
    (
        "a similar key",
        lambda path: bitsnap.Store(path / "store", read_only=True).load(keys="modle"),
        "the snapshot holds nothing under 'modle'; did you mean 'model'?",
    ),
    (
        "another key",
        lambda path: bitsnap.Store(path / "store", read_only=True).load(keys="scheduler_state_of_it"),
        "nothing under 'scheduler_state_of_it'; it holds 'model', 'optimizer'",
    ),
    (
        "settings without a name",
        lambda _: bitsnap.Settings("bounded"),  # type: ignore[call-arg]
        'TypeError: Settings() takes named arguments only, such as Settings(policy="bounded")',
    ),
    (
        "metrics of several elements",
        lambda path: bitsnap.Store(path / "metrics").save(9, {}, metrics={"loss": torch.ones(2, 3)}),
        "TypeError: metrics['loss'] must be a number, got Tensor of shape (2, 3)",
    ),
    (
        "a tensor as a step",
        lambda path: bitsnap.Store(path / "tensor").save(torch.ones(9), {}),
        "TypeError: step must be an integer, got Tensor of shape (9,)",
    ),
]


@pytest.mark.parametrize(("call", "message"), [each[1:] for each in MISTAKES], ids=[each[0] for each in MISTAKES])
def test_an_error_says_what_to_do(made: Path, call: Callable[[Path], Any], message: str) -> None:
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # DCP raises one that is no Exception
        call(made)
    said = f"{type(caught.value).__name__}: {caught.value}"
    assert re.search(re.escape(message.format(path=made)), said), said
    if type(caught.value).__name__ != "CheckpointException":  # which prints tracebacks
        assert len(said) < 600
        assert "\n" not in said
