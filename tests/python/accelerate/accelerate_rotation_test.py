"""Accelerate's total_limit with bitsnap: the newest committed checkpoint always stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bitsnap

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")
import bitsnap.accelerate  # noqa: E402


def accelerator(folder: Path, limit: int) -> Any:
    project = accelerate.utils.ProjectConfiguration(
        project_dir=str(folder), automatic_checkpoint_naming=True, total_limit=limit
    )
    made = bitsnap.accelerate.use(accelerate.Accelerator(cpu=True, project_config=project))
    made.prepare(torch.nn.Linear(2, 2))
    return made


def folders(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_older_folders_go_after_the_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it = accelerator(tmp_path, 1)
    it.save_state()
    it.save_state()
    assert folders(tmp_path) == ["checkpoint_1"]

    def fail(*_: Any, **__: Any) -> None:
        raise bitsnap.IoError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(bitsnap.Store, "save", fail)
        with pytest.raises(bitsnap.IoError):
            it.save_state()
    with pytest.warns(bitsnap.RestoreWarning, match="resuming from .*checkpoint_1"):
        accelerator(tmp_path, 1).load_state()


def test_the_run_holds_what_is_in_the_folders(tmp_path: Path) -> None:
    it = accelerator(tmp_path, 2)
    for number in range(4):
        it.save_state()
        with bitsnap.Store(tmp_path / "bitsnap", read_only=True) as store:
            assert len(store) == min(number + 1, 2)


def test_a_resumed_training_that_counts_from_the_beginning_keeps_what_it_saves(tmp_path: Path) -> None:
    before = accelerator(tmp_path, 2)
    for _ in range(5):
        before.save_state()
    assert folders(tmp_path) == ["checkpoint_3", "checkpoint_4"]
    after = accelerator(tmp_path, 2)
    after.load_state()
    after.save_state()
    assert folders(tmp_path) == ["checkpoint_0", "checkpoint_4"]
    after.save_state()
    after.save_state()
    assert folders(tmp_path) == ["checkpoint_1", "checkpoint_2"]
