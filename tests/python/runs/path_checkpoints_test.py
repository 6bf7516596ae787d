"""Checkpoints that a framework names by paths: references, a run beside them, rotation, and ends between the parts."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bitsnap
from bitsnap import _references as references
from bitsnap._references import FOLDER_REFERENCE, refer
from bitsnap._runs import path_checkpoints as paths
from bitsnap._runs.folder_saves import is_ours
from bitsnap._runs.framework_files import STUB
from bitsnap._runs.framework_objects import numbered
from bitsnap._runs.path_checkpoints import begin, forget, remove, snapshot_of, step_of
from bitsnap._runs.path_saves import save


def state_of(value: int) -> dict[str, Any]:
    return {"w": np.full(100, value, np.float32), "value": value}


def saved(path: Path, value: int, step: int | None = None) -> int:
    return save(path, value if step is None else step, state_of(value)).step


def value_at(path: Path) -> int:
    state = bitsnap.load(snapshot_of(path))
    assert (state["w"] == state["value"]).all()
    value: int = state["value"]
    return value


def steps(parent: Path) -> list[int]:
    with bitsnap.Store(parent / "bitsnap", read_only=True) as store:
        store.verify()
        return store.steps()


def labels(parent: Path) -> dict[str, int]:
    with bitsnap.Store(parent / "bitsnap", read_only=True) as store:
        return store.labels()


def test_steps_rise_and_the_step_of_the_framework_is_kept(tmp_path: Path) -> None:
    assert saved(tmp_path / "a.ckpt", 100) == 100
    assert saved(tmp_path / "last.ckpt", 100) == 101
    assert saved(tmp_path / "older.ckpt", 50) == 102
    assert saved(tmp_path / "b.ckpt", 200) == 200
    assert labels(tmp_path) == {"a.ckpt": 100, "last.ckpt": 101, "older.ckpt": 102, "b.ckpt": 200}
    assert json.loads(snapshot_of(tmp_path / "older.ckpt").metadata[paths.KEY])["step"] == 50
    assert [value_at(tmp_path / name) for name in ("a.ckpt", "last.ckpt", "older.ckpt", "b.ckpt")] == [
        100, 100, 50, 200
    ]  # fmt: skip


def test_the_reference_of_a_folder_lies_in_it_and_the_run_beside_it(tmp_path: Path) -> None:
    for value in (5, 6, 7):
        saved(tmp_path / f"checkpoint-{value}" / "bitsnap-reference.json", value)
    saved(tmp_path / "8" / "bitsnap-reference.json", 8)
    assert labels(tmp_path) == {"checkpoint-5": 5, "checkpoint-6": 6, "checkpoint-7": 7, "./8": 8}
    shutil.rmtree(tmp_path / "checkpoint-5")
    shutil.rmtree(tmp_path / "checkpoint-6")
    with bitsnap.Store(tmp_path / "bitsnap") as store:
        store.label(6, "good")
    assert saved(tmp_path / "checkpoint-9" / "bitsnap-reference.json", 9) == 9
    assert steps(tmp_path) == [6, 7, 8, 9]
    (tmp_path / "checkpoint-7").rename(tmp_path / "best")
    saved(tmp_path / "checkpoint-10" / "bitsnap-reference.json", 10)
    assert value_at(tmp_path / "best" / "bitsnap-reference.json") == 7


def test_a_second_save_to_a_path_replaces_the_first(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    saved(path, 1)
    with bitsnap.Store(tmp_path / "bitsnap") as store:
        store.label(1, "user's")
    saved(path, 2)
    assert steps(tmp_path) == [1, 2]
    saved(path, 3)
    assert steps(tmp_path) == [1, 3]
    assert labels(tmp_path) == {"last.ckpt": 3, "user's": 1}
    assert value_at(path) == 3


def test_removing_a_path_removes_its_step_unless_something_else_leads_to_it(tmp_path: Path) -> None:
    for value in (1, 2, 3, 4):
        saved(tmp_path / f"{value}.ckpt", value)
    with bitsnap.Store(tmp_path / "bitsnap") as store:
        store.label(2, "good")
    shutil.copy(tmp_path / "3.ckpt", tmp_path / "copy.ckpt")
    (tmp_path / "link.ckpt").symlink_to("4.ckpt")
    remove(tmp_path / "link.ckpt")
    for value in (1, 2, 3):
        remove(tmp_path / f"{value}.ckpt")
    assert steps(tmp_path) == [2, 3, 4]
    assert value_at(tmp_path / "copy.ckpt") == 3
    remove(tmp_path / "4.ckpt")
    assert steps(tmp_path) == [2, 3]
    remove(tmp_path / "4.ckpt")
    with pytest.raises(bitsnap.NotFoundError, match="no checkpoint of bitsnap"):
        snapshot_of(tmp_path / "4.ckpt")


def test_pipes_beside_checkpoints_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for pipe in (tmp_path / "pipe", tmp_path / "folder" / FOLDER_REFERENCE):
        os.mkfifo(pipe)
    for value in (1, 2):
        saved(tmp_path / "last.ckpt", value)
    assert steps(tmp_path) == [2]
    with pytest.raises(bitsnap.NotFoundError, match="no checkpoint of bitsnap"):
        snapshot_of(tmp_path / "pipe")


def test_the_last_removed_step_stays_until_the_next_save(tmp_path: Path) -> None:
    for value in (1, 2):
        saved(tmp_path / f"{value}.ckpt", value)
    for value in (1, 2):
        remove(tmp_path / f"{value}.ckpt")
    assert steps(tmp_path) == [2]
    assert saved(tmp_path / "3.ckpt", 1) == 3
    assert steps(tmp_path) == [3]


def test_a_second_line_in_another_folder_leaves_the_first_one_alone(tmp_path: Path) -> None:
    first, second = tmp_path / "first" / "1.ckpt", tmp_path / "second" / "2.ckpt"
    save(first, 1, {"a": np.arange(3000)})
    state = bitsnap.load(snapshot_of(first))
    save(second, 2, {"a": state["a"] + 1})
    remove(first)
    assert step_of(second) == (tmp_path / "second" / "bitsnap", 2)
    shutil.rmtree(tmp_path / "first")
    assert bitsnap.load(snapshot_of(second))["a"][0] == 1


def test_a_checkpoint_has_not_the_name_of_the_run(tmp_path: Path) -> None:
    saved(tmp_path / "a" / FOLDER_REFERENCE, 1)
    for path in (tmp_path / "bitsnap", tmp_path / "bitsnap" / FOLDER_REFERENCE):
        with pytest.raises(bitsnap.InvalidArgumentError, match="is the run of the checkpoints beside it"):
            saved(path, 2)
    assert value_at(tmp_path / "a" / FOLDER_REFERENCE) == 1


def test_a_reference_that_cannot_be_read_now_keeps_all_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (1, 2):
        saved(tmp_path / f"{value}.ckpt", value)
    (tmp_path / "1.ckpt").unlink()

    def fail(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as broken, bitsnap.Store(tmp_path / "bitsnap") as store:
        broken.setattr(references, "_opened", fail)
        with pytest.warns(bitsnap.RetentionWarning, match=r"2\.ckpt cannot be read or followed, and may refer to any"):
            forget(store)
        forget(store)  # says it once
    assert steps(tmp_path) == [1, 2]
    saved(tmp_path / "3.ckpt", 3)
    assert steps(tmp_path) == [2, 3]


def test_a_step_that_another_save_took_does_not_hide_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    saved(path, 1)
    with bitsnap.Store(tmp_path / "bitsnap", read_only=True) as store:
        new = begin(store, path, 2)  # which is never committed
        refer(path, new.run, store.run_id, (new.saved, *new.earlier))
    saved(tmp_path / "other.ckpt", 2)
    assert steps(tmp_path) == [1, 2]
    with pytest.warns(bitsnap.RestoreWarning, match="step 2"):
        assert value_at(path) == 1


def test_a_label_of_the_user_is_not_taken_by_a_path(tmp_path: Path) -> None:
    saved(tmp_path / "a.ckpt", 1)
    with bitsnap.Store(tmp_path / "bitsnap") as store:
        store.label(1, "release")
    remove(tmp_path / "a.ckpt")
    with pytest.warns(UserWarning, match="the label 'release' of another step stays there"):
        saved(tmp_path / "release", 2)
    assert steps(tmp_path) == [1, 2]
    assert labels(tmp_path)["release"] == 1


def test_a_copy_that_lies_deeper_keeps_its_step_and_a_link_to_a_folder_leads_to_it(tmp_path: Path) -> None:
    saved(tmp_path / "a" / FOLDER_REFERENCE, 1)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "best").symlink_to(tmp_path / "a")
    assert value_at(tmp_path / "elsewhere" / "best" / FOLDER_REFERENCE) == 1
    (tmp_path / "kept").mkdir()
    shutil.copytree(tmp_path / "a", tmp_path / "kept" / "best")
    shutil.rmtree(tmp_path / "a")
    saved(tmp_path / "b" / FOLDER_REFERENCE, 2)
    assert steps(tmp_path) == [1, 2]


def test_the_last_deleted_step_is_a_base_of_the_next_save(tmp_path: Path) -> None:
    saved(tmp_path / "a.ckpt", 1)
    (tmp_path / "a.ckpt").unlink()
    saved(tmp_path / "b.ckpt", 2)
    with bitsnap.Store(tmp_path / "bitsnap", read_only=True) as store:
        assert [(each.step, each.base) for each in store.checkpoints()] == [(2, 1)]


def test_steps_that_were_not_saved_to_a_path_stay(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "bitsnap") as store:
        store.save(1, state_of(1))
    saved(tmp_path / "a.ckpt", 2)
    saved(tmp_path / "a.ckpt", 3)
    assert steps(tmp_path) == [1, 3]


def test_a_link_leads_to_the_checkpoint_and_is_replaced_without_it(tmp_path: Path) -> None:
    saved(tmp_path / "a.ckpt", 1)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "last.ckpt").symlink_to("../a.ckpt")
    assert value_at(tmp_path / "elsewhere" / "last.ckpt") == 1
    (tmp_path / "last.ckpt").symlink_to("a.ckpt")
    saved(tmp_path / "last.ckpt", 2)
    assert not (tmp_path / "last.ckpt").is_symlink()
    assert (value_at(tmp_path / "a.ckpt"), value_at(tmp_path / "last.ckpt")) == (1, 2)


def test_a_file_of_another_kind_is_replaced_and_a_directory_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.ckpt").write_bytes(b"of torch.save")
    with pytest.raises(bitsnap.CorruptError, match=r"a\.ckpt: the reference to a run is damaged"):
        snapshot_of(tmp_path / "a.ckpt")
    saved(tmp_path / "a.ckpt", 1)
    (tmp_path / "b.ckpt").mkdir()
    with pytest.raises(bitsnap.ExistsError, match=r"b\.ckpt is a directory"):
        saved(tmp_path / "b.ckpt", 2)
    assert steps(tmp_path) == [1]


def test_a_checkpoint_moves_together_with_its_run_only(tmp_path: Path) -> None:
    saved(tmp_path / "there" / "a.ckpt", 1)
    (tmp_path / "there").rename(tmp_path / "here")
    assert value_at(tmp_path / "here" / "a.ckpt") == 1
    assert step_of(tmp_path / "here" / "a.ckpt") == (tmp_path / "here" / "bitsnap", 1)
    (tmp_path / "here" / "a.ckpt").rename(tmp_path / "a.ckpt")
    with pytest.raises(bitsnap.NotFoundError, match="together with its run"):
        snapshot_of(tmp_path / "a.ckpt")
    saved(tmp_path / "b.ckpt", 1)
    with pytest.raises(bitsnap.NotFoundError, match=r"refers to the run .* but .* is the run"):
        snapshot_of(tmp_path / "a.ckpt")


def test_a_reference_never_leads_to_another_save_of_its_step(tmp_path: Path) -> None:
    saved(tmp_path / "a.ckpt", 1)
    saved(tmp_path / "b.ckpt", 2)
    (tmp_path / "aside").mkdir()
    reference = (tmp_path / "b.ckpt").read_bytes()
    remove(tmp_path / "b.ckpt")
    saved(tmp_path / "c.ckpt", 2)
    (tmp_path / "b.ckpt").write_bytes(reference)
    with pytest.raises(bitsnap.NotFoundError, match=r"refers to step 2 .* removed, or never committed"):
        snapshot_of(tmp_path / "b.ckpt")


def test_damaged_references_keep_their_steps(tmp_path: Path) -> None:
    for value in (1, 2, 3):
        saved(tmp_path / f"{value}.ckpt", value)
    whole = (tmp_path / "1.ckpt").read_bytes()
    (tmp_path / "1.ckpt").write_bytes(whole[:-3])
    (tmp_path / "2.ckpt").write_bytes(whole[-3:])  # no reference at all
    # The damaged one may be a copy that led to any of them.
    with pytest.warns(bitsnap.RetentionWarning, match=r"1\.ckpt cannot be read"):
        saved(tmp_path / "4.ckpt", 4)
    assert steps(tmp_path) == [1, 2, 3, 4]
    with pytest.raises(bitsnap.CorruptError, match=r"1\.ckpt: the reference to a run is damaged"):
        snapshot_of(tmp_path / "1.ckpt")
    (tmp_path / "1.ckpt").unlink()
    saved(tmp_path / "5.ckpt", 5)
    assert steps(tmp_path) == [3, 4, 5]


def test_a_save_reads_the_metadata_of_steps_that_may_go_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in range(5):
        saved(tmp_path / f"{value}.ckpt", value)
    (tmp_path / "1.ckpt").unlink()
    read = []
    whole = bitsnap.Store.checkpoint

    def checkpoint(store: bitsnap.Store, step: int) -> bitsnap.Checkpoint:
        read.append(step)
        return whole(store, step)

    monkeypatch.setattr(bitsnap.Store, "checkpoint", checkpoint)
    saved(tmp_path / "5.ckpt", 5)
    assert set(read) == {1}
    assert steps(tmp_path) == [0, 2, 3, 4, 5]


class EndError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("part", ["commit", "committed", "refer", "referred", "remove", "removed"])
@pytest.mark.parametrize("is_new", [True, False])
def test_whenever_a_save_ends_the_path_leads_to_the_old_or_the_new_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, is_new: bool
) -> None:
    saved(tmp_path / "other.ckpt", 1)
    path = tmp_path / "last.ckpt"
    if not is_new:
        saved(path, 2)

    def end_at(owner: Any, name: str, before: str, after: str) -> None:
        whole = getattr(owner, name)

        def ending(*args: Any, **kwargs: Any) -> Any:
            if part == before:
                raise EndError
            result = whole(*args, **kwargs)
            if part == after:
                raise EndError
            return result

        monkeypatch.setattr(owner, name, ending)

    end_at(bitsnap.Store, "save", "commit", "committed")
    end_at(references, "write_durably", "refer", "referred")
    end_at(bitsnap.Store, "remove", "remove", "removed")
    if is_new and part in ("remove", "removed"):
        saved(path, 3)  # which replaces nothing
    else:
        with pytest.raises(EndError):
            saved(path, 3)
    monkeypatch.undo()
    if part in ("commit", "committed", "refer"):
        assert not path.exists() if is_new else value_at(path) == 2
    else:
        assert value_at(path) == 3
    assert value_at(tmp_path / "other.ckpt") == 1
    saved(path, 4)
    assert value_at(path) == 4
    assert steps(tmp_path) == [1, 4]
    assert labels(tmp_path) == {"other.ckpt": 1, "last.ckpt": 4}


@pytest.mark.parametrize("part", ["unlink", "remove"])
def test_whenever_a_removal_ends_the_next_save_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    for value in (1, 2):
        saved(tmp_path / f"{value}.ckpt", value)

    def end(*_: Any, **__: Any) -> None:
        raise EndError

    owner: Any = Path if part == "unlink" else bitsnap.Store
    monkeypatch.setattr(owner, part, end)
    with pytest.raises(EndError):
        remove(tmp_path / "1.ckpt")
    monkeypatch.undo()
    assert steps(tmp_path) == [1, 2]
    saved(tmp_path / "3.ckpt", 3)
    assert steps(tmp_path) == ([1, 2, 3] if part == "unlink" else [2, 3])


def test_while_a_save_is_pending_its_path_leads_to_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    saved(path, 1)
    with bitsnap.Store(tmp_path / "bitsnap") as store:
        new = paths.begin(store, path, 2)
        references.refer(path, new.run, store.run_id, (new.saved, *new.earlier))
        with pytest.warns(
            bitsnap.RestoreWarning, match="step 2 of .* was not committed; the one before, step 1, is read"
        ):
            assert value_at(path) == 1
        other = paths.begin(store, tmp_path / "b.ckpt", 2, [new.saved])
        assert other.saved.step == 3
        assert store.steps() == [1]
        store.save(2, state_of(2), metadata=new.metadata)
        assert value_at(path) == 2
        paths.finish(store, new)
        assert store.steps() == [2]


@pytest.mark.parametrize("seconds", [-3600, 0, 3600])
def test_a_folder_that_a_framework_saved_over_is_its_own_whatever_the_times_say(tmp_path: Path, seconds: int) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    for name in ("model.safetensors", "optimizer.pt"):
        (folder / name).write_text("earlier, of the framework")
    saved(folder / FOLDER_REFERENCE, 1)

    def is_ours_at_any_time() -> bool:
        time = (folder / FOLDER_REFERENCE).stat().st_mtime + seconds
        for path in folder.glob("[mo]*"):
            os.utime(path, (time, time))
        return is_ours(folder)

    assert is_ours_at_any_time()
    (folder / "optimizer.pt").write_text("later, of the framework")
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"a: optimizer\.pt may have changed after bitsnap saved"):
        is_ours_at_any_time()
    (folder / "model.safetensors").write_text("later, of the framework")
    assert not is_ours_at_any_time()
    (folder / "optimizer.pt").unlink()
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"model\.safetensors may have changed"):
        is_ours_at_any_time()
    (folder / "model.safetensors").unlink()
    assert is_ours_at_any_time()


def test_a_change_of_a_tensor_in_a_large_file_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    model = folder / "model-00001-of-00002.safetensors"
    generator = np.random.default_rng(1)
    size = (80 << 20) + 5
    model.write_bytes(generator.bytes(size))
    saved(folder / FOLDER_REFERENCE, 1)
    assert is_ours(folder)
    whole = model.read_bytes()
    for place in (0, 33 << 20, size - 70_000, size - 1):  # a tensor of 70 kB, or what is at the end
        with model.open("r+b") as file:
            file.seek(place)
            file.write(bytes(each ^ 1 for each in whole[place : place + 70_000]))
        with pytest.raises(bitsnap.InvalidArgumentError, match="model-00001-of-00002"):
            is_ours(folder)
        model.write_bytes(whole)
    assert is_ours(folder)


def test_a_reference_that_does_not_say_what_lay_beside_it_is_believed_without_states_of_the_framework(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "a"
    saved(folder / FOLDER_REFERENCE, 1)
    content = json.loads((folder / FOLDER_REFERENCE).read_bytes())
    assert content.pop("files") == {}
    (folder / FOLDER_REFERENCE).write_text(json.dumps(content))
    (folder / "model.safetensors").write_text("the model of the same save")
    assert is_ours(folder)
    (folder / "optimizer.pt").write_text("of another save?")
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"optimizer\.pt may have changed"):
        is_ours(folder)


def test_a_reference_that_was_deleted_beside_its_run_is_missed(tmp_path: Path) -> None:
    saved(tmp_path / "a" / FOLDER_REFERENCE, 1)
    saved(tmp_path / "b" / FOLDER_REFERENCE, 2)
    (tmp_path / "a" / FOLDER_REFERENCE).unlink()
    with pytest.raises(bitsnap.NotFoundError, match=r"a/bitsnap-reference\.json is not there: .* is step 1 of"):
        is_ours(tmp_path / "a")
    (tmp_path / "c").mkdir()
    assert not is_ours(tmp_path / "c")
    (tmp_path / "c" / "optimizer.pt").write_bytes(STUB)
    with pytest.raises(bitsnap.NotFoundError, match=r"c/bitsnap-reference\.json is not there"):
        is_ours(tmp_path / "c")
    (tmp_path / "a" / "optimizer.pt").write_text("of a training without bitsnap")
    assert not is_ours(tmp_path / "a")


def test_an_optimizer_state_of_another_kind_stays_as_it_is() -> None:
    state = {"state": {}, "param_groups": [{"lr": 0.1}]}
    assert numbered(state) == state
