"""What cannot be seen now is not deleted: steps stay while something that may refer to them cannot be read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bitsnap
from bitsnap import _references as durable
from bitsnap._references import plain_name, plain_path, write_durably
from bitsnap._runs import path_checkpoints as paths, path_saves
from bitsnap._runs.opened_runs import Options
from bitsnap._runs.path_saves import RankSaves
from bitsnap.megatron._folders import destination_of

Save = Callable[[Path, int], Path]


def save_folder(parent: Path, step: int) -> Path:
    folder = parent / f"checkpoint-{step}"
    path_saves.save(folder / "bitsnap-reference.json", step, {"w": np.full(100, step, np.float32)})
    return folder


def save_file(parent: Path, step: int) -> Path:
    path_saves.save(parent / f"step={step}.ckpt", step, {"w": np.full(100, step, np.float32)})
    return parent / f"step={step}.ckpt"


def save_megatron(parent: Path, step: int) -> Path:
    folder = parent / f"iter_{step:07d}"
    saves = RankSaves(Options())
    new = saves.begin(*destination_of(folder))
    saves.write(saves.shard(new, {"w": np.full(100, step, np.float32)}))
    saves.commit(new)
    (folder / "metadata.json").write_text("{}")
    return folder


@pytest.fixture(params=[save_folder, save_file, save_megatron])
def save(request: pytest.FixtureRequest) -> Save:
    found: Save = request.param
    return found


def steps(parent: Path) -> list[int]:
    return bitsnap.Store(parent / "bitsnap", read_only=True).steps()


def reference_of(checkpoint: Path) -> Path:
    return checkpoint / "bitsnap-reference.json" if checkpoint.is_dir() else checkpoint


def delete(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint) if checkpoint.is_dir() else checkpoint.unlink()


def test_a_checkpoint_behind_a_link_to_a_disk_that_is_away_keeps_all_steps(tmp_path: Path, save: Save) -> None:
    out, disk = tmp_path / "out", tmp_path / "disk"
    first = save(out, 1)
    delete(save(out, 2))
    disk.mkdir()
    shutil.move(first, disk / "moved")
    first.symlink_to(disk / "moved")
    disk.rename(tmp_path / "away")
    with pytest.warns(bitsnap.RetentionWarning, match="may refer to any checkpoint"):
        last = save(out, 3)
    save(out, 4)  # without another warning
    assert steps(out) == [1, 2, 3, 4]
    (tmp_path / "away").rename(disk)
    delete(last)
    save(out, 5)
    assert steps(out) == [1, 4, 5]
    first.unlink()
    save(out, 6)
    assert steps(out) == [4, 5, 6]


def test_all_checkpoints_behind_links_to_a_disk_that_is_away_keep_the_run(tmp_path: Path, save: Save) -> None:
    out, disk = tmp_path / "out", tmp_path / "disk"
    for step in (1, 2):
        checkpoint = save(out, step)
        disk.mkdir(exist_ok=True)
        shutil.move(checkpoint, disk / checkpoint.name)
        checkpoint.symlink_to(disk / checkpoint.name)
    disk.rename(tmp_path / "away")
    with pytest.warns(bitsnap.RetentionWarning):
        save(out, 3)
    assert steps(out) == [1, 2, 3]


def test_a_link_to_a_deleted_file_beside_it_keeps_nothing(tmp_path: Path, save: Save) -> None:
    checkpoint = save(tmp_path, 1)
    (tmp_path / "last.ckpt").symlink_to(checkpoint.name)
    save(tmp_path, 2)
    delete(checkpoint)
    save(tmp_path, 3)
    assert steps(tmp_path) == [2, 3]


@pytest.mark.parametrize("content", [b"", b"\0" * 134, b'{"vers'])
@pytest.mark.parametrize("save", [save_folder, save_megatron])
def test_a_reference_of_a_folder_that_lost_its_beginning_keeps_all_steps(
    tmp_path: Path, save: Save, content: bytes
) -> None:
    checkpoint = save(tmp_path, 1)
    delete(save(tmp_path, 2))
    reference_of(checkpoint).write_bytes(content)
    with pytest.warns(bitsnap.RetentionWarning):
        save(tmp_path, 3)
    assert steps(tmp_path) == [1, 2, 3]
    delete(checkpoint)
    save(tmp_path, 4)
    assert steps(tmp_path) == [3, 4]


@pytest.mark.parametrize("content", [b"", b"\0" * 134, b'{"vers'])
def test_a_file_that_lost_its_beginning_keeps_the_step_of_its_path(tmp_path: Path, content: bytes) -> None:
    save_file(tmp_path, 1).write_bytes(content)
    delete(save_file(tmp_path, 2))
    save_file(tmp_path, 3)
    assert steps(tmp_path) == [1, 3]


def test_a_reference_that_was_moved_deeper_keeps_its_step(tmp_path: Path, save: Save) -> None:
    checkpoint = save(tmp_path, 1)
    (tmp_path / "kept" / "best" / "of-may").mkdir(parents=True)
    shutil.move(checkpoint, tmp_path / "kept" / "best" / "of-may" / "checkpoint")
    save(tmp_path, 2)
    save(tmp_path, 3)
    assert steps(tmp_path) == [1, 2, 3]


def test_a_reference_that_an_editor_saved_again_leads_to_its_step(tmp_path: Path, save: Save) -> None:
    checkpoint = save(tmp_path, 1)
    for number, text in enumerate(("{}", "\ufeff{}", "\n\t{}\n")):
        path = reference_of(checkpoint)
        path.write_text(text.format(json.dumps(json.loads(path.read_text("utf-8-sig")), indent=1)))
        save(tmp_path, number + 2)
        assert 1 in steps(tmp_path)
    copy = tmp_path / "copy" / ("bitsnap-reference.json" if checkpoint.is_dir() else "copy.ckpt")
    copy.parent.mkdir()
    shutil.copytree(checkpoint, copy.parent, dirs_exist_ok=True) if checkpoint.is_dir() else shutil.copy(
        checkpoint, copy
    )
    delete(checkpoint)
    save(tmp_path, 5)
    assert 1 in steps(tmp_path)


def test_what_a_killed_save_left_of_a_reference_keeps_no_step(tmp_path: Path, save: Save) -> None:
    class KilledError(Exception):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        # As after a kill: neither renamed nor removed.
        patch.setattr(Path, "replace", killed)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(KilledError):
            save(tmp_path, 1)
    left = [path for path in tmp_path.rglob("*") if durable.is_temporary(path.name)]
    assert len(left) == 1
    save(tmp_path, 2)
    save(tmp_path, 3)
    assert 1 not in steps(tmp_path)
    os.utime(left[0], (0, 0))
    write_durably(left[0].with_name("other"), b"")
    assert not left[0].exists()


def test_a_small_file_is_never_written_through_a_link_or_into_a_pipe(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for number in range(2):
        name = f"a-{number}.ckpt"
        (tmp_path / f"{name}.tmp").symlink_to(victim) if number == 0 else os.mkfifo(tmp_path / f"{name}.tmp")
        (tmp_path / name).symlink_to(victim)
        write_durably(tmp_path / name, b"content")
        assert (tmp_path / name).read_bytes() == b"content"
        assert not (tmp_path / name).is_symlink()
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    "name",
    ["a\nb.ckpt", "a\tb.ckpt", os.fsdecode(b"caf\xe9.ckpt"), "x" * 247 + ".ckpt", "x" * 250 + ".ckpt", "\x01.ckpt"],
)
def test_any_name_that_a_file_can_have_is_saved_to(tmp_path: Path, name: str) -> None:
    for step in (1, 2):
        path_saves.save(tmp_path / name, step, {"step": step})
    assert bitsnap.load(paths.snapshot_of(tmp_path / name)) == {"step": 2}
    paths.remove(tmp_path / name)
    path_saves.save(tmp_path / "next.ckpt", 3, {"step": 3})
    assert steps(tmp_path) == [3]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "a\0b", "x" * 256, 5, None])
def test_a_name_that_leads_elsewhere_is_corrupt(name: object) -> None:
    with pytest.raises(bitsnap.CorruptError, match="folder: expected the name of a file"):
        plain_name(name, "folder")
    assert plain_name("scheduler.pt", "folder") == "scheduler.pt"
    assert plain_path("a/b", "folder") == "a/b"
    for bad in ("../a", "a/../b", "a//b", "/a", "a/"):
        with pytest.raises(bitsnap.CorruptError):
            plain_path(bad, "folder")


def test_a_deeply_nested_reference_is_damaged(tmp_path: Path) -> None:
    path = save_file(tmp_path, 1)
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(content)[:-1] + ', "x": ' + "[" * 50_000)
    with pytest.raises(bitsnap.CorruptError):
        paths.snapshot_of(path)
    with pytest.warns(bitsnap.RetentionWarning):
        save_file(tmp_path, 2)


def test_files_of_others_beside_a_run_keep_no_step(tmp_path: Path, save: Save) -> None:
    (tmp_path / "train-v2.0.json").write_text(json.dumps({"version": "v2.0", "data": []}))
    (tmp_path / "config.json").write_text(json.dumps({"version": 3, "name": "x"}))
    (tmp_path / "large.json").write_text('{"version": 0, "run": "' + "x" * 100_000)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "python").symlink_to("/nowhere/bin/python")
    for step in (1, 2):
        delete(save(tmp_path, step))
    save(tmp_path, 3)
    save(tmp_path, 4)
    assert steps(tmp_path) == [3, 4]


def test_steps_of_others_in_a_run_of_megatron_stay(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "bitsnap") as store:
        store.save(0, {"of": "the user"})
    for step in (5, 6):
        delete(save_megatron(tmp_path, step))
    save_megatron(tmp_path, 7)
    assert steps(tmp_path) == [0, 7]


def test_a_folder_that_lost_its_reference_only_keeps_its_step(tmp_path: Path) -> None:
    for save in (save_folder, save_megatron):
        out = tmp_path / save.__name__
        lost = save(out, 1)
        (lost / ("trainer_state.json" if save is save_folder else "metadata.json")).write_text("{}")
        reference_of(lost).rename(tmp_path / "elsewhere")
        with pytest.warns(bitsnap.RetentionWarning, match=f"{lost.name} has lost its reference to step 1"):
            save(out, 2)
        save(out, 3)
        assert steps(out) == [1, 2, 3]
        (tmp_path / "elsewhere").rename(reference_of(lost))
        assert bitsnap.load(paths.snapshot_of(reference_of(lost)))["w"][0] == 1
        delete(lost)
        save(out, 4)
        assert steps(out) == [2, 3, 4]


def test_a_folder_that_is_moved_during_the_search_keeps_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = save_folder(tmp_path, 1)
    (tmp_path / "a-kept").mkdir()
    save_folder(tmp_path, 2)
    real = os.scandir

    def scandir(folder: Path) -> object:
        if Path(folder) == moved and moved.exists():
            moved.rename(tmp_path / "a-kept" / "best")  # which has been searched, or is not yet
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    save_folder(tmp_path, 3)
    monkeypatch.undo()
    assert not moved.exists()
    save_folder(tmp_path, 4)
    assert steps(tmp_path) == [1, 2, 3, 4]
