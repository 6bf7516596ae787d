"""Checkpoints that are brought back from the copy of their run, with the files of their folders and their paths."""

from __future__ import annotations

import functools
import os
import shutil
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bitsnap
from bitsnap._references import FOLDER_REFERENCE, reference_of
from bitsnap._runs import mirrored_runs
from bitsnap._runs.folder_saves import FolderSaves, is_ours, write_folder
from bitsnap._runs.opened_runs import Options
from bitsnap._runs.path_checkpoints import KEY, snapshot_of
from bitsnap._runs.path_saves import save
from python.objects.lost_machines import await_steps, end_copies, lose
from python.runs.path_checkpoints_test import state_of, value_at

bring_back = functools.partial(mirrored_runs.bring_back, write=write_folder)
# What lies in the folder of a checkpoint before it is saved.
FILES = {"config.json": b"{}", "empty": b"", "adapter/weights.bin": bytes(range(256)) * 500}


@pytest.fixture
def options(tmp_path: Path) -> Iterator[Options]:
    """With a copy in another directory. The processes that copy end with the test."""
    yield Options(mirror=tmp_path / "copy")
    end_copies(tmp_path)


def save_folder(folder: Path, step: int, options: Options) -> None:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    FolderSaves(options).save(folder, step, state_of(step))


def lost(tmp_path: Path, options: Options) -> Path:
    """The directory of a machine that had folders of the steps 1 to 3, a copy of which is left."""
    machine = tmp_path / "machine"
    for step in (1, 2, 3):
        save_folder(machine / f"checkpoint-{step}", step, options)
    with bitsnap.Store(machine / "bitsnap") as store:
        store.label(1, "release")
    bitsnap.wait_mirrored(machine / "bitsnap", 3, timeout=60)
    while "release" not in bitsnap.Store(tmp_path / "copy", read_only=True).labels():
        time.sleep(0.1)
    lose(machine / "bitsnap", 3)
    return machine


def files_of(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths if path.name != FOLDER_REFERENCE}


@pytest.mark.parametrize("all_steps", [False, True])
def test_folders_come_back_with_their_files_times_and_labels(
    tmp_path: Path, options: Options, all_steps: bool, caplog: pytest.LogCaptureFixture
) -> None:
    machine = lost(tmp_path, options)
    caplog.set_level("INFO", "bitsnap")
    assert bring_back(machine / "bitsnap", options, is_first=True, all_steps=all_steps)
    folders = [machine / f"checkpoint-{step}" for step in ((1, 2, 3) if all_steps else (3,))]
    assert sorted(machine.iterdir()) == [machine / "bitsnap", *folders]
    assert f"brought step 3 back from {options.mirror}" in caplog.text
    with bitsnap.Store(machine / "bitsnap", read_only=True) as store:
        for folder in folders:
            reference = folder / FOLDER_REFERENCE
            step = value_at(reference)
            assert folder.name == f"checkpoint-{step}"
            assert files_of(folder) == FILES
            assert is_ours(folder)
            assert abs(folder.stat().st_mtime - store.checkpoint(step).time.timestamp()) < 1e-3
        assert ("release" in store.labels()) == all_steps
    # Once the run is there, nothing more is brought back.
    shutil.rmtree(folders[0])
    assert not bring_back(machine / "bitsnap", options, is_first=True, all_steps=all_steps)
    # What is removed here leaves the copy, but for what has a label, or was not brought back.
    save_folder(machine / "checkpoint-4", 4, options)
    await_steps(str(options.mirror), [1, 2, 3, 4] if all_steps else [1, 2, 4])
    for step in (2, 3):
        shutil.rmtree(machine / f"checkpoint-{step}", ignore_errors=True)
    save_folder(machine / "checkpoint-5", 5, options)
    await_steps(str(options.mirror), [1, 4, 5] if all_steps else [1, 2, 4, 5])


def test_folders_do_not_come_back_for_a_framework_of_files(tmp_path: Path, options: Options) -> None:
    machine = lost(tmp_path, options)
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"checkpoint-3: step 3 of the copy .* is a folder"):
        mirrored_runs.bring_back(machine / "bitsnap", options, is_first=True)
    assert not (machine / "bitsnap").exists()


def test_an_attempt_that_was_ended_is_begun_again(
    tmp_path: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, run = tmp_path / "machine", tmp_path / "machine" / "bitsnap"
    lost(tmp_path, options)
    with monkeypatch.context() as broken:
        broken.setattr(os, "utime", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            bring_back(run, options, is_first=True, all_steps=True)
    assert (machine / "checkpoint-1").exists()
    assert not run.exists()  # so nobody takes the run for whole
    assert bring_back(run, options, is_first=True, all_steps=True)
    assert [value_at(machine / f"checkpoint-{step}" / FOLDER_REFERENCE) for step in (1, 2, 3)] == [1, 2, 3]


def test_the_other_processes_wait_until_all_is_there(tmp_path: Path, options: Options) -> None:
    machine = lost(tmp_path, options)
    found: list[Any] = []

    def wait() -> None:
        found.append(bring_back(machine / "bitsnap", options, is_first=False))
        found.append(value_at(machine / "checkpoint-3" / FOLDER_REFERENCE))

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.5)
    assert found == []
    bring_back(machine / "bitsnap", options, is_first=True)
    waiting.join(20)
    assert found == [True, 3]
    shutil.rmtree(machine)
    with pytest.raises(bitsnap.BusyError, match=r"expected that the first process brings it back from .*/copy, to"):
        bring_back(machine / "bitsnap", Options(mirror=options.mirror, timeout=0.1), is_first=False)


def test_a_path_that_was_saved_to_twice_leads_to_the_last_checkpoint(tmp_path: Path, options: Options) -> None:
    machine = tmp_path / "machine"
    for step in (1, 2):
        save(machine / "last.ckpt", step, state_of(step), options)
    with bitsnap.Store(machine / "bitsnap") as store:
        store.label(2, "kept")
    save(machine / "last.ckpt", 3, state_of(3), options)
    bitsnap.wait_mirrored(machine / "bitsnap", 3, timeout=60)
    await_steps(str(options.mirror), [2, 3])
    while "kept" not in bitsnap.Store(tmp_path / "copy", read_only=True).labels():
        time.sleep(0.1)
    lose(machine / "bitsnap", 3)
    bring_back(machine / "bitsnap", options, is_first=True, all_steps=True)
    assert value_at(machine / "last.ckpt") == 3
    with bitsnap.Store(machine / "bitsnap", read_only=True) as store:
        assert store.labels()["kept"] == 2


def test_what_is_in_the_way_stays_and_is_named(tmp_path: Path, options: Options) -> None:
    machine = lost(tmp_path, options)
    (machine / "checkpoint-3").mkdir(parents=True)
    with pytest.raises(
        bitsnap.ExistsError, match=r"checkpoint-3 exists, and step 3 of the copy of .* is to be brought"
    ):
        bring_back(machine / "bitsnap", options, is_first=True)
    (machine / "checkpoint-3").rmdir()
    bitsnap.Store(machine / "bitsnap").close()
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"bitsnap has no checkpoint, and its copy .* has step 3"):
        bring_back(machine / "bitsnap", options, is_first=True)


def test_a_checkpoint_that_was_saved_without_a_copy_has_no_files(tmp_path: Path, options: Options) -> None:
    machine = tmp_path / "machine"
    save_folder(machine / "checkpoint-1", 1, Options())
    options.follow(machine / "bitsnap")
    lose(machine / "bitsnap", 1)
    with pytest.warns(bitsnap.RestoreWarning, match="checkpoint-1 is brought back without its files: step 1 of"):
        bring_back(machine / "bitsnap", options, is_first=True)
    assert files_of(machine / "checkpoint-1") == {}
    assert value_at(machine / "checkpoint-1" / FOLDER_REFERENCE) == 1


def test_a_copy_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    options, run = Options(mirror=tmp_path / "file"), tmp_path / "machine" / "bitsnap"
    save(run.parent / "1.ckpt", 1, state_of(1), options)
    while (status := bitsnap.mirror_status(run)) is None or status.error is None:
        time.sleep(0.1)
    with pytest.warns(bitsnap.BackgroundSaveWarning, match=r"/file does not follow .*/bitsnap now: "):
        save(run.parent / "2.ckpt", 2, state_of(2), options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(run.parent / "3.ckpt", 3, state_of(3), options)
    end_copies(tmp_path)


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "..", "a\0b"])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path, options: Options, name: str) -> None:
    machine = tmp_path / "machine"
    with bitsnap.Store(tmp_path / "copy") as store:
        good = '{"reference": "checkpoint-1/bitsnap-reference.json", "label": "", "save": "a", "step": 1}'
        store.save(1, {"w": np.zeros(3), "folder": {name: np.zeros(3, np.uint8)}}, metadata={KEY: good})
    with pytest.raises(bitsnap.CorruptError, match="expected the name of a file in the checkpoint's folder, found"):
        bring_back(machine / "bitsnap", options, is_first=True)
    shutil.rmtree(tmp_path / "copy")
    with bitsnap.Store(tmp_path / "copy") as store:
        bad = good.replace("checkpoint-1/bitsnap-reference.json", name.replace("\0", "\\u0000"))
        store.save(1, {"w": np.zeros(3)}, metadata={KEY: bad})
    with pytest.raises(bitsnap.CorruptError, match="expected the name of a file in the checkpoint's folder, found"):
        bring_back(machine / "bitsnap", options, is_first=True)
    assert not (tmp_path / "evil").exists()
    assert {path.name for path in machine.iterdir()} <= {".bitsnap-brought-back"}


def test_a_reference_that_is_brought_back_names_the_run_of_the_copy(tmp_path: Path, options: Options) -> None:
    machine = lost(tmp_path, options)
    bring_back(machine / "bitsnap", options, is_first=True)
    found = reference_of(machine / "checkpoint-3" / FOLDER_REFERENCE)
    assert found.run == machine / "bitsnap"
    with bitsnap.Store(options.mirror or "", read_only=True) as copy:
        assert found.run_id == copy.run_id
    assert snapshot_of(machine / "checkpoint-3" / FOLDER_REFERENCE).path.is_relative_to(machine)
    assert os.access(machine / "checkpoint-3" / "config.json", os.R_OK)


def test_a_copy_is_that_of_one_directory(tmp_path: Path, options: Options) -> None:
    save_folder(tmp_path / "machine" / "checkpoint-1", 1, options)
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"is the copy of .*machine/bitsnap, and cannot be that of"):
        save_folder(tmp_path / "other" / "checkpoint-1", 1, options)


def test_a_copy_needs_the_directory_above_it(tmp_path: Path) -> None:
    """Which may be a disk that is not there: the training must not begin anew."""
    run, absent = tmp_path / "machine" / "bitsnap", Options(mirror=tmp_path / "absent" / "copy")
    with pytest.raises(bitsnap.NotFoundError, match=r"there is no directory .*absent to make it in"):
        bring_back(run, absent, is_first=True)
    with pytest.raises(bitsnap.NotFoundError, match=r"there is no directory .*absent to make it in"):
        bitsnap.Checkpointer(tmp_path / "run", mirror=tmp_path / "absent" / "copy")
