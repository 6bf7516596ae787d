"""A training that begins anew and saves to the run of an earlier one is told, once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import checkpoint

import bitsnap
import bitsnap.dcp
import bitsnap.lightning
from bitsnap._engine import steps
from bitsnap._engine.steps import Beside
from bitsnap._runs.opened_runs import Options
from bitsnap._runs.path_saves import RankSaves

dcp: Any = checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def save_with_lightning(folder: Path, step: int) -> None:
    bitsnap.lightning.CheckpointIO().save_checkpoint({"global_step": step, "w": torch.ones(9)}, folder / f"{step}.ckpt")


def load_with_lightning(folder: Path) -> None:
    bitsnap.lightning.load(folder / "1.ckpt")


def save_with_dcp(folder: Path, step: int) -> None:
    writer = bitsnap.dcp.StorageWriter()
    dcp.save({"w": torch.ones(9)}, checkpoint_id=f"{folder}/bitsnap/step-{step}", storage_writer=writer)


def load_with_dcp(folder: Path) -> None:
    reader = bitsnap.dcp.StorageReader()
    dcp.load({"w": torch.ones(9)}, checkpoint_id=f"{folder}/bitsnap/step-1", storage_reader=reader)


def save_with_ranks(folder: Path, step: int) -> None:
    """As DeepSpeed and Megatron do."""
    saves = RankSaves(Options(), told=Beside("the tags are replaced", "loading", "another folder"))
    new = saves.begin(folder / f"{step}.ckpt", step)
    saves.write(saves.shard(new, {"w": torch.ones(9)}))
    saves.commit(new)


@pytest.mark.parametrize(
    ("save", "load", "advice"),
    [
        (save_with_lightning, load_with_lightning, "trainer.fit(model, ckpt_path=PATH) resumes that training"),
        (save_with_dcp, load_with_dcp, "and keep_last removes the earlier ones. dcp.load("),
        (save_with_ranks, load_with_lightning, "the tags are replaced. loading resumes that training; another folder"),
    ],
    ids=["lightning", "dcp", "ranks"],
)
def test_a_training_that_begins_anew_is_told(
    save: Callable[[Path, int], None],
    load: Callable[[Path], None],
    advice: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start_a_process() -> None:
        monkeypatch.setattr(steps, "_known_runs", set())

    start_a_process()
    save(tmp_path, 1)
    save(tmp_path, 2)
    start_a_process()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", bitsnap.RestoreWarning)
        save(tmp_path, 3)
        save(tmp_path, 4)
    (told,) = [each for each in caught if each.category is bitsnap.RestoreWarning]
    assert f"{tmp_path}/bitsnap has checkpoints of an earlier training, up to step 2, and this training" in str(
        told.message
    )
    assert advice in str(told.message)
    assert told.filename == __file__
    start_a_process()
    load(tmp_path)
    save(tmp_path, 5)
