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
        "the name of settings",
        lambda path: bitsnap.Store(path / "settings", settings="bouned"),
        "settings must be bitsnap.Settings or one of lossless, lmc, bounded, bitsnap, raw, got 'bouned'; did you mean "
        "'bounded'?",
    ),
    (
        "a setting that is not there",
        lambda _: bitsnap.Settings(objetive="speed"),  # type: ignore[call-arg]
        "TypeError: there is no setting 'objetive', expected policy, objective",
    ),
    (
        "no checkpoint to keep",
        lambda path: bitsnap.Checkpointer(path / "kept", keep_last=0),
        "keep_last must be at least 1, got 0: 1 keeps the newest checkpoint alone. Without keep_last and keep_every, "
        "all are kept",
    ),
    (
        "a similar run in place of a file",
        lambda path: bitsnap.load(path / "stroe"),
        "NotFoundError: {path}/stroe: there is no such file or run; did you mean '{path}/store@latest'?",
    ),
    (
        "a branch of a run that is not there",
        lambda path: bitsnap.Store(path / "new:lr2"),
        "there is no such run; save the first checkpoints to {path}/new itself, and `bitsnap branch {path}/new@STEP "
        "lr2` then begins the branch",
    ),
    (
        "a file of torch to save to",
        lambda path: bitsnap.save(path / "model.pt", {}),
        "model.pt' exists and is a file of torch.save(), and no snapshot: save to '{path}/model.bsnap' instead",
    ),
    (
        "a run to read that is not there",
        lambda path: bitsnap.Store(path / "stor").load(),
        "create=False or read_only=True begins none; did you mean '{path}/store'?",
    ),
    (
        "a mistyped option",
        lambda path: training(path / "new", evry=10),
        "TypeError: TrainingCheckpointer() has no argument 'evry'; did you mean 'every'",
    ),
    (
        "a label as a step",
        lambda path: bitsnap.Store(path / "store", read_only=True).load("best"),  # type: ignore[arg-type]
        "got 'best'; of a label, find('best') gives the step",
    ),
    (
        "a mistyped word for the newest",
        lambda path: bitsnap.load(path / "store@lastest"),
        "the store has no labels; did you mean {path}/store@latest, the newest checkpoint?",
    ),
    (
        "a step after its state",
        lambda path: bitsnap.Store(path / "swapped").save({"w": 1}, 50),  # type: ignore[arg-type]
        "TypeError: step must be an integer, got {{'w': 1}}; are the arguments swapped?",
    ),
    (
        "a shard that is not there",
        lambda path: bitsnap.Store(path / "store", read_only=True).load(shard=3),
        "there is no shard 3: step 1 has one shard, number 0, which need not be named",
    ),
    (
        "a step that goes back",
        lambda path: bitsnap.Store(path / "store").save(0, {}),
        "to go on from an earlier step, `bitsnap rollback {path}/store --to STEP` removes the steps above it",
    ),
    (
        "a metric where there are none",
        lambda path: bitsnap.Store(path / "store", read_only=True).best("loss"),
        "no checkpoint has the metric 'loss'; none has metrics, which save(step, state, metrics={{...}}) gives it",
    ),
    (
        "no folder for a file",
        lambda path: bitsnap.save(path / "none" / "a.bsnap", {}),
        "a.bsnap: the directory {path}/none does not exist; make it first",
    ),
    (
        "a checkpoint of a run in place of a file",
        lambda path: bitsnap.Snapshot(path / "store@1"),
        "store@1: names a checkpoint of the run {path}/store, and is no file; bitsnap.load('{path}/store@1') loads its",
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
