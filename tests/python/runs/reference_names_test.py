"""The two names of the reference in a folder: the one that is written, and the one that earlier versions wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import bitsnap
from bitsnap._bitsnap import is_store
from bitsnap._common import native_path
from bitsnap._references import FOLDER_REFERENCE, FOLDER_REFERENCES, reference_of
from bitsnap._runs.framework_files import _undecided
from bitsnap._runs.opened_runs import Options
from bitsnap._runs.path_checkpoints import forget
from bitsnap._runs.path_saves import PathSaves
from bitsnap.deepspeed._tags import files_of, state_of as state_of_file, write_files
from bitsnap.megatron._folders import is_ours as is_ours_of_megatron
from python.runs.path_checkpoints_test import saved, state_of, steps, value_at

OLD = "bitsnap.json"


def make_old(folder: Path) -> Path:
    """Gives the reference of a folder the name of earlier versions."""
    return (folder / FOLDER_REFERENCE).rename(folder / OLD)


@pytest.fixture(params=FOLDER_REFERENCES)
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The folder of a checkpoint, whose reference has one name or the other."""
    folder = tmp_path / "checkpoint-5"
    saved(folder / FOLDER_REFERENCE, 5)
    (folder / FOLDER_REFERENCE).rename(folder / request.param)
    return folder


def test_a_run_keeps_the_steps_of_both_names_and_forgets_those_of_deleted_folders(tmp_path: Path, folder: Path) -> None:
    for value in (6, 7):
        saved(tmp_path / f"checkpoint-{value}" / FOLDER_REFERENCE, value)
    make_old(tmp_path / "checkpoint-6")
    saved(tmp_path / "checkpoint-8" / FOLDER_REFERENCE, 8)
    assert steps(tmp_path) == [5, 6, 7, 8]
    shutil.rmtree(tmp_path / "checkpoint-6")
    saved(tmp_path / "checkpoint-9" / FOLDER_REFERENCE, 9)
    assert steps(tmp_path) == [5, 7, 8, 9]
    shutil.rmtree(folder)
    saved(tmp_path / "checkpoint-10" / FOLDER_REFERENCE, 10)
    assert steps(tmp_path) == [7, 8, 9, 10]


def test_a_folder_deep_below_the_run_is_found_by_both_names(tmp_path: Path) -> None:
    deep = tmp_path / "1/2/3/4/5/6"
    saved(deep / FOLDER_REFERENCE, 1)
    (deep.parent / "bitsnap").rename(tmp_path / "bitsnap")
    with bitsnap.Store(tmp_path / "bitsnap") as store:
        store.save(2, state_of(2), metadata={"bitsnap.path": origin(deep.relative_to(tmp_path), "word", 2)})
        store.save(3, state_of(3))
        content = json.loads((deep / FOLDER_REFERENCE).read_bytes())
        content |= {"step": 2, "save": "word", "run": "../../../../../../bitsnap"}
        (deep / FOLDER_REFERENCE).write_text(json.dumps(content))
        make_old(deep)
        forget(store)
        assert 2 in store.steps()


def origin(folder: Path, word: str, step: int) -> str:
    return json.dumps({"reference": f"{folder}/{FOLDER_REFERENCE}", "label": "", "save": word, "step": step})


def test_a_save_over_a_folder_leaves_one_reference(tmp_path: Path, folder: Path) -> None:
    saved(folder / FOLDER_REFERENCE, 6)
    assert [path.name for path in folder.iterdir()] == [FOLDER_REFERENCE]
    assert value_at(folder / FOLDER_REFERENCE) == 6
    assert steps(tmp_path) == [6]


def test_a_save_leaves_the_record_of_a_run_beside_its_reference(tmp_path: Path) -> None:
    bitsnap.Store(tmp_path / "a").close()
    record = (tmp_path / "a" / OLD).read_bytes()
    saved(tmp_path / "a" / FOLDER_REFERENCE, 1)
    assert (tmp_path / "a" / OLD).read_bytes() == record


@pytest.mark.parametrize("name", FOLDER_REFERENCES)
def test_a_damaged_reference_of_either_name_keeps_all_steps(tmp_path: Path, name: str) -> None:
    for value, path in ((6, "a.ckpt"), (7, "b.ckpt")):
        saved(tmp_path / path, value)
    (tmp_path / "a.ckpt").unlink()
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / name).write_bytes(b"")
    with pytest.warns(bitsnap.RetentionWarning, match=f"{name} cannot be read"):
        saved(tmp_path / "b.ckpt", 8)
    assert steps(tmp_path) == [6, 7, 8]


def test_the_new_name_counts_if_a_save_was_killed_before_it_removed_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    saved(folder / FOLDER_REFERENCE, 1)
    old = make_old(folder)
    content = old.read_bytes()
    saved(folder / FOLDER_REFERENCE, 2)
    old.write_bytes(content)
    folder_saves = pytest.importorskip("bitsnap._runs.folder_saves")
    assert bitsnap.load(folder_saves.snapshot_of(folder))["value"] == 2


def test_an_agent_keeps_what_the_old_name_led_to_until_it_has_committed(tmp_path: Path, folder: Path) -> None:
    before = reference_of(next(folder.iterdir())).saves[0]
    agent = bitsnap.AgentOptions(linger=2)
    saves = PathSaves(Options(agent=agent, timeout=60, threads=1))
    saves.save(folder / FOLDER_REFERENCE, 6, state_of(6))
    assert [path.name for path in folder.iterdir()] == [FOLDER_REFERENCE]
    assert reference_of(folder / FOLDER_REFERENCE).saves[1] == before
    saves.close()
    assert value_at(folder / FOLDER_REFERENCE) == 6
    assert steps(tmp_path) == [6]


def test_the_folder_of_a_framework_has_a_reference_of_either_name(tmp_path: Path, folder: Path) -> None:
    folder_saves = pytest.importorskip("bitsnap._runs.folder_saves")
    name = next(folder.iterdir()).name
    assert folder_saves.is_ours(folder)
    assert bitsnap.load(folder_saves.snapshot_of(folder))["value"] == 5
    assert f"Move {name} away" in str(_undecided(folder, ["optimizer.pt"]))
    (folder / "config.json").write_text("{}")
    (tmp_path / "copy").mkdir()
    folder_saves.copy_others(folder, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["config.json"]
    (folder / name).unlink()
    with pytest.raises(bitsnap.NotFoundError, match="is step 5 of"):
        folder_saves.is_ours(folder)


def test_files_of_deepspeed_lead_to_the_reference_of_either_name(tmp_path: Path) -> None:
    tag = tmp_path / "global_step1"
    saved(tag / FOLDER_REFERENCE, 1)
    write_files(tag, [["value"]])
    for name in FOLDER_REFERENCES:
        (tag / FOLDER_REFERENCE).replace(tag / name)
        assert state_of_file(tag / "value", False) == 1
        assert files_of(tag) == [tag / "value"]


def test_folders_of_megatron_have_a_reference_of_either_name(folder: Path) -> None:
    assert is_ours_of_megatron(folder)
    (folder / "metadata.json").write_text("{}")
    next(path for path in folder.iterdir() if path.name in FOLDER_REFERENCES).unlink()
    with pytest.raises(bitsnap.NotFoundError, match="is step 5 of"):
        is_ours_of_megatron(folder)


def test_a_folder_with_a_reference_is_no_store(folder: Path) -> None:
    (folder / "checkpoints").mkdir()  # as the directory of a project of Accelerate has
    assert not is_store(native_path(folder))
    if (folder / OLD).exists():
        for read_only in (True, False):
            with pytest.raises(bitsnap.InvalidArgumentError, match="is a reference"):
                bitsnap.Store(folder, read_only=read_only)
    assert value_at(next(path for path in folder.iterdir() if path.is_file())) == 5


def test_a_store_with_a_damaged_record_stays_a_store(tmp_path: Path) -> None:
    saved(tmp_path / "a.ckpt", 1)
    run = tmp_path / "bitsnap"
    for record in (b"", b"{", bytes(100), b'{"commit":{}}'):
        (run / "bitsnap.json").write_bytes(record)
        assert is_store(native_path(run))
        with pytest.raises(bitsnap.BitsnapError) as caught:
            bitsnap.Store(run, read_only=True)
        assert "reference" not in str(caught.value)


def test_a_reference_is_no_snapshot_and_the_error_says_what_to_use(tmp_path: Path, folder: Path) -> None:
    saved(tmp_path / "last.ckpt", 6)
    expected = r"refers to step {} of the run .*/bitsnap, and is no snapshot; use load\({}\)"
    for path, step in ((folder, 5), (next(folder.iterdir()), 5), (tmp_path / "last.ckpt", 6)):
        for read in (bitsnap.Snapshot, bitsnap.load):
            with pytest.raises(bitsnap.InvalidArgumentError, match=expected.format(step, step)):
                read(path)
