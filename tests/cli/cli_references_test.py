"""References: files of a training that lead to a checkpoint of a run are read through, never stored, never deleted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bitsnap
from cli.cli_ingest_test import DELETE, events, steps
from cli.command_line import CORRUPT, INVALID_ARGUMENT, NOT_FOUND, run, run_json
from cli.raw_checkpoints import data, write_checkpoint

STEPS = (100, 200, 300)


def refer(path: Path, run_folder: Path, step: int, **other: object) -> Path:
    """Writes a reference as a training does."""
    run_id = json.loads((run_folder / "bitsnap.json").read_bytes())["store"]["id"]
    relative = os.path.relpath(run_folder, path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": 0, "run": relative, "run_id": run_id, "step": step, **other}))
    return path


def training(tmp_path: Path, name: Callable[[int], str]) -> Path:
    """A directory of checkpoints in which every path is a reference to a step of the run beside it."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for step in STEPS:
        (tmp_path / "content").write_bytes(data(step, "content"))
        run("add", folder / "bitsnap", "--step", step, tmp_path / "content")
        refer(folder / name(step), folder / "bitsnap", step)
    return folder


FILE: Callable[[int], str] = "epoch=0-step={}.ckpt".format
FOLDER: Callable[[int], str] = "checkpoint-{}/bitsnap-reference.json".format
OLD_FOLDER: Callable[[int], str] = "checkpoint-{}/bitsnap.json".format  # as earlier versions wrote it
DEEP: Callable[[int], str] = "step-{}/model/last.ckpt".format


@pytest.mark.parametrize("name", [FILE, FOLDER, OLD_FOLDER, DEEP], ids=["file", "folder", "old folder", "deep"])
def test_ingest_and_watch_leave_references_out(tmp_path: Path, name: Callable[[int], str]) -> None:
    folder = training(tmp_path, name)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for done in (
        events("ingest", tmp_path / "archive", folder, DELETE),
        events("watch", tmp_path / "archive", folder, "--once", "--settle", 0, DELETE, "--keep-raw", 0),
    ):
        skipped = [event for event in done if event["step"] is not None]
        assert [(event["event"], event["step"]) for event in skipped] == [("skipped", step) for step in STEPS]
        assert all(f"step {event['step']} of the run {folder / 'bitsnap'}" in event["reason"] for event in skipped)
        assert name is DEEP or all("`bitsnap add` copies that checkpoint" in event["reason"] for event in skipped)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert steps(tmp_path / "archive") == []


@pytest.mark.parametrize("before", ["\t", "\r\n ", "\ufeff"], ids=["tab", "lines", "byte order mark"])
def test_a_reference_that_an_editor_saved_again_is_one(tmp_path: Path, before: str) -> None:
    folder = training(tmp_path, FILE)
    path = folder / FILE(300)
    path.write_text(before + json.dumps(json.loads(path.read_text()), indent=1))
    assert [each["step"] for each in run_json("log", path)] == [300]
    run("ingest", tmp_path / "archive", folder, DELETE)
    assert path.exists()


@pytest.mark.parametrize(
    "content",
    [{"version": 1, "run": "exp-7", "run_id": "0a1b2c", "step": 500}, {"bitsnap": "0.9.1", "torch": "2.13"}],
    ids=["of a tracker", "of versions"],
)
def test_json_of_others_is_part_of_a_checkpoint(tmp_path: Path, content: dict[str, object]) -> None:
    (tmp_path / "in" / "checkpoint-5").mkdir(parents=True)
    (tmp_path / "in" / "checkpoint-5" / "meta.json").write_text(json.dumps(content))
    run("ingest", tmp_path / "archive", tmp_path / "in")
    assert steps(tmp_path / "archive") == [5]


def test_raw_checkpoints_beside_references_are_taken(tmp_path: Path) -> None:
    folder = training(tmp_path, FOLDER)
    write_checkpoint(folder, "transformers", 400)
    done = events("ingest", tmp_path / "archive", folder, DELETE)
    assert [event["event"] for event in done] == ["skipped"] * 3 + ["saved", "deleted"]
    assert not (folder / "checkpoint-400").exists()


@pytest.mark.parametrize("content", [b"", bytes(134), b'{"version": 0, "run": "bits', b'{"version": 0, "step": 3}'])
def test_damaged_references_stay(tmp_path: Path, content: bytes) -> None:
    folder = training(tmp_path, FILE)
    (folder / FILE(200)).write_bytes(content)
    (folder / "checkpoint-400").mkdir()
    (folder / FOLDER(400)).write_bytes(content)
    done = events("ingest", tmp_path / "archive", folder, DELETE)
    skipped = {event["step"] for event in done if event["event"] == "skipped"}
    assert skipped >= {100, 300, 400}
    assert (folder / FOLDER(400)).read_bytes() == content
    if not content.startswith(b'{"version": 0, "step"'):
        assert 200 in skipped
        assert (folder / FILE(200)).read_bytes() == content


def test_a_reference_that_an_earlier_version_archived_is_not_deleted(tmp_path: Path) -> None:
    folder = training(tmp_path, FOLDER)
    archive = tmp_path / "archive"
    (folder / FOLDER(200)).rename(tmp_path / "reference")
    (folder / "checkpoint-200" / "notes.txt").write_text("content")
    run("ingest", archive, folder / "checkpoint-200")
    (tmp_path / "reference").rename(folder / FOLDER(200))
    run("watch", archive, folder, "--once", "--settle", 0, DELETE, "--keep-raw", 0)
    assert (folder / FOLDER(200)).exists()


EACH_NAME = pytest.mark.parametrize("name", [FILE, FOLDER, OLD_FOLDER], ids=["file", "folder", "old folder"])


def paths_of(folder: Path, name: Callable[[int], str]) -> list[Path]:
    """How a user may name the checkpoint of step 200."""
    path = folder / name(200)
    return [path] if name is FILE else [path, path.parent]


@EACH_NAME
def test_commands_that_cannot_take_a_reference_say_what_it_is(tmp_path: Path, name: Callable[[int], str]) -> None:
    folder = training(tmp_path, name)
    for each in paths_of(folder, name):
        message = run("compress", each, status=INVALID_ARGUMENT).stderr.decode()
        assert f"refers to step 200 of the run {folder / 'bitsnap'}" in message
        assert f"`bitsnap extract {folder / 'bitsnap'}@200`" in message
        message = run("ingest", tmp_path / "archive", each, status=INVALID_ARGUMENT).stderr.decode()
        assert f"refers to step 200 of the run {folder / 'bitsnap'}" in message
        assert f"`bitsnap add RUN {each} --step 200`" in message
    assert not (tmp_path / "archive").exists()
    assert not list(tmp_path.rglob("*.bsnap.tmp"))


@EACH_NAME
def test_add_copies_the_checkpoint_of_a_reference(tmp_path: Path, name: Callable[[int], str]) -> None:
    folder = training(tmp_path, name)
    paths = paths_of(folder, name)
    for step, each in enumerate(paths):
        run("add", tmp_path / "archive", "--step", step, "--label", f"label {step}", each)
        run("extract", f"{tmp_path / 'archive'}@label {step}", "-o", tmp_path / f"back {step}")
        assert (tmp_path / f"back {step}").read_bytes() == data(200, "content")
    run("verify", tmp_path / "archive")
    assert [checkpoint["base"] for checkpoint in run_json("log", tmp_path / "archive")] == [None, 0][: len(paths)]
    assert all(each.exists() for each in paths)


def test_add_says_which_files_beside_a_reference_it_leaves_out(tmp_path: Path) -> None:
    folder = training(tmp_path, FOLDER)
    reference = folder / FOLDER(200)
    assert b"beside" not in run("add", tmp_path / "archive", "--step", 1, reference.parent).stderr
    (reference.parent / "model.safetensors").write_bytes(b"weights")
    (reference.parent / "shard").write_text('{"bitsnap": "elsewhere", "shard": 0, "name": "shard"}')
    message = run("add", tmp_path / "archive", "--step", 2, reference.parent).stderr
    assert b"1 other file beside the reference" in message
    assert b"beside" not in run("-q", "add", tmp_path / "archive", "--step", 3, reference.parent).stderr
    reference.write_bytes(reference.read_bytes()[:40])
    message = run("add", tmp_path / "archive", "--step", 4, reference.parent, status=INVALID_ARGUMENT).stderr
    assert b"is a damaged reference to a run" in message


def saved_by_ranks(run_folder: Path, step: int, word: str) -> None:
    with bitsnap.Store(run_folder) as store:
        for shard in (0, 1):
            state = {"w": np.full(3000, step + shard, np.float32), "shard": shard}
            store.save_shard(step, state, shard=shard, shards=2, attempt="a")
        metadata = {"bitsnap.path": json.dumps({"reference": "x", "label": "", "save": word}), "other": "kept"}
        store.commit(step, 2, "a", metadata=metadata, files={"notes.txt": b"notes"})


def test_the_save_of_several_ranks_is_followed_and_copied(tmp_path: Path) -> None:
    saved_by_ranks(tmp_path / "bitsnap", 7, "0123456789abcdef")
    path = tmp_path / "global_step7" / "bitsnap-reference.json"
    reference = refer(path, tmp_path / "bitsnap", 7, save="0123456789abcdef", earlier=[])
    assert run_json("log", reference.parent)[0]["shards"] == 2
    run("add", tmp_path / "archive", "--step", 70, reference.parent)
    with bitsnap.Store(tmp_path / "archive", read_only=True) as store:
        assert store.checkpoint(70).metadata == {"other": "kept"}
        assert store.files(70) == {"notes.txt": b"notes"}
        for shard in (0, 1):
            state = store.load(70, shard=shard)
            assert state["shard"] == shard
            assert (state["w"] == 7 + shard).all()
    run("verify", tmp_path / "archive")
    refer(reference, tmp_path / "bitsnap", 7, save="of another save", earlier=[])
    assert b"no such checkpoint any more" in run("log", reference.parent, status=NOT_FOUND).stderr


@EACH_NAME
def test_watch_says_that_its_directory_is_the_folder_of_a_reference(tmp_path: Path, name: Callable[[int], str]) -> None:
    folder = training(tmp_path, name)
    watched = (folder / name(200)).parent
    done = events("watch", tmp_path / "archive", watched, "--once", "--settle", 0)
    own = [event["reason"] for event in done if event["input"] == str(watched)]
    assert len(own) == (name is not FILE)
    assert all("it refers to step 200 of the run" in reason for reason in own)


def test_the_first_name_of_a_reference_counts(tmp_path: Path) -> None:
    folder = training(tmp_path, OLD_FOLDER)
    refer(folder / "checkpoint-200" / "bitsnap-reference.json", folder / "bitsnap", 300)
    assert [checkpoint["step"] for checkpoint in run_json("log", folder / "checkpoint-200")] == [300]
    (folder / "checkpoint-200" / "bitsnap-reference.json").write_bytes(b"")
    assert b"is a damaged reference" in run("log", folder / "checkpoint-200", status=CORRUPT).stderr


@pytest.mark.parametrize("name", [FOLDER, OLD_FOLDER], ids=["new", "old"])
def test_a_reference_beside_a_folder_of_checkpoints_is_no_run(tmp_path: Path, name: Callable[[int], str]) -> None:
    folder = training(tmp_path, name)
    project = (folder / name(200)).parent
    write_checkpoint(project / "checkpoints", "transformers", 400)
    assert [checkpoint["step"] for checkpoint in run_json("log", project)] == [200]
    message = run("repair", project, status=INVALID_ARGUMENT).stderr
    assert b"refers to step 200 of the run" in message
    run("ingest", tmp_path / "archive", project / "checkpoints")
    assert steps(tmp_path / "archive") == [400]


def test_convert_writes_into_the_folder_of_a_reference(tmp_path: Path) -> None:
    folder = training(tmp_path, FOLDER)
    np.savez(tmp_path / "in.npz", w=np.ones(5))
    run("convert", tmp_path / "in.npz", folder / "checkpoint-200" / "out.safetensors")


@EACH_NAME
def test_commands_that_read_a_checkpoint_follow_references(tmp_path: Path, name: Callable[[int], str]) -> None:
    folder = training(tmp_path, name)
    path = folder / name(200)
    each = path if name is FILE else path.parent
    assert [checkpoint["step"] for checkpoint in run_json("log", each)] == [200]
    run("extract", each, "-o", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data(200, "content")
    assert b"content" in run("inspect", each).stdout
    run("verify", each)
    run("diff", each, f"{folder / 'bitsnap'}@200")
    run("label", each, "best")
    assert run_json("log", f"{folder / 'bitsnap'}@best")[0]["step"] == 200


def test_commands_about_a_run_say_what_a_reference_is(tmp_path: Path) -> None:
    folder = training(tmp_path, FOLDER)
    reference = folder / "checkpoint-200"
    before = (reference / "bitsnap-reference.json").read_bytes()
    for arguments in (
        ("prune", reference, "--keep-last", 1),
        ("rollback", reference, "--to", 100),
        ("repair", reference),
        ("du", reference),
        ("add", reference, "--step", 5, tmp_path / "content"),
        ("add", reference, "--step", 5, reference / "bitsnap-reference.json"),
        ("ingest", reference, tmp_path / "content"),
    ):
        done = run(*arguments, status=INVALID_ARGUMENT)
        assert b"refers to step 200 of the run" in done.stderr or b"its name has no step" in done.stderr, arguments
    assert (reference / "bitsnap-reference.json").read_bytes() == before
    assert steps(folder / "bitsnap") == list(STEPS)


def test_a_reference_that_leads_nowhere_is_not_followed(tmp_path: Path) -> None:
    folder = training(tmp_path, FILE)
    other = tmp_path / "other" / "checkpoints"
    other.mkdir(parents=True)
    moved = other / FILE(200)
    moved.write_bytes((folder / FILE(200)).read_bytes())
    assert b"but no run is there" in run("log", moved, status=NOT_FOUND).stderr
    run("add", other / "bitsnap", "--step", 200, tmp_path / "content")
    assert b"but another run is there" in run("log", moved, status=NOT_FOUND).stderr
    gone = refer(folder / FILE(250), folder / "bitsnap", 250)
    assert b"no such checkpoint any more" in run("extract", gone, status=NOT_FOUND).stderr
    replaced = refer(folder / FILE(260), folder / "bitsnap", 200, save="0123456789abcdef", earlier=[])
    assert b"no such checkpoint any more" in run("extract", replaced, status=NOT_FOUND).stderr


def test_other_json_files_are_no_references(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    checkpoint = write_checkpoint(folder, "transformers", 100)
    (checkpoint / "tokenizer.json").write_text('{"version": "1.0", "truncation": null}')
    (checkpoint / "config.json").write_text('{"version": 0, "step": 100, "run": "name"}')
    (checkpoint / "empty").write_bytes(b"")
    assert [event["event"] for event in events("ingest", tmp_path / "run", folder, DELETE)] == ["saved", "deleted"]


def test_a_damaged_record_of_a_run_is_no_reference(tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(b"content")
    run("add", tmp_path / "run", "--step", 1, tmp_path / "content")
    for record in (b"", b'{"stor', bytes(100)):
        (tmp_path / "run" / "bitsnap.json").write_bytes(record)
        assert b"a damaged reference" not in run("log", tmp_path / "run", status=CORRUPT).stderr
    run("repair", tmp_path / "run")
    assert steps(tmp_path / "run") == [1]
