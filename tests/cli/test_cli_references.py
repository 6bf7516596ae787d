"""References: files of a training that lead to a checkpoint of a run are read through, never stored, never deleted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.command_line import CORRUPT, INVALID_ARGUMENT, NOT_FOUND, run, run_json
from cli.raw_checkpoints import data, write_checkpoint
from cli.test_cli_ingest import DELETE, events, steps

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
FOLDER: Callable[[int], str] = "checkpoint-{}/bitsnap.json".format
DEEP: Callable[[int], str] = "step-{}/model/last.ckpt".format


@pytest.mark.parametrize("name", [FILE, FOLDER, DEEP], ids=["file", "folder", "deep"])
def test_ingest_and_watch_leave_references_out(tmp_path: Path, name: Callable[[int], str]) -> None:
    folder = training(tmp_path, name)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for done in (
        events("ingest", tmp_path / "archive", folder, DELETE),
        events("watch", folder, tmp_path / "archive", "--once", "--settle", 0, DELETE, "--keep-raw", 0),
    ):
        skipped = [event for event in done if event["step"] is not None]
        assert [(event["event"], event["step"]) for event in skipped] == [("skipped", step) for step in STEPS]
        assert all(f"step {event['step']} of the run {folder / 'bitsnap'}" in event["reason"] for event in skipped)
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
    (folder / "checkpoint-400" / "bitsnap.json").write_bytes(content)
    done = events("ingest", tmp_path / "archive", folder, DELETE)
    skipped = {event["step"] for event in done if event["event"] == "skipped"}
    assert skipped >= {100, 300, 400}
    assert (folder / "checkpoint-400" / "bitsnap.json").read_bytes() == content
    if not content.startswith(b'{"version": 0, "step"'):
        assert 200 in skipped
        assert (folder / FILE(200)).read_bytes() == content


def test_a_reference_that_an_earlier_version_archived_is_not_deleted(tmp_path: Path) -> None:
    folder = training(tmp_path, FOLDER)
    archive = tmp_path / "archive"
    (folder / "checkpoint-200" / "bitsnap.json").rename(tmp_path / "reference")
    (folder / "checkpoint-200" / "notes.txt").write_text("content")
    run("ingest", archive, folder / "checkpoint-200")
    (tmp_path / "reference").rename(folder / "checkpoint-200" / "bitsnap.json")
    run("watch", folder, archive, "--once", "--settle", 0, DELETE, "--keep-raw", 0)
    assert (folder / "checkpoint-200" / "bitsnap.json").exists()


@pytest.mark.parametrize("name", [FILE, FOLDER], ids=["file", "folder"])
def test_commands_that_store_refuse_references(tmp_path: Path, name: Callable[[int], str]) -> None:
    folder = training(tmp_path, name)
    path = folder / name(200)
    paths = [path] if name is FILE else [path, path.parent]
    for each in paths:
        for arguments in (("add", tmp_path / "archive", "--step", 200, each), ("compress", each)):
            message = run(*arguments, status=INVALID_ARGUMENT).stderr.decode()
            assert f"refers to step 200 of the run {folder / 'bitsnap'}" in message
            assert f"`bitsnap extract {folder / 'bitsnap'}@200`" in message
    assert not (tmp_path / "archive").exists()
    assert not list(tmp_path.glob("*.bsnap"))


@pytest.mark.parametrize("name", [FILE, FOLDER], ids=["file", "folder"])
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
    before = (reference / "bitsnap.json").read_bytes()
    for arguments in (
        ("prune", reference, "--keep-last", 1),
        ("rollback", reference, "--to", 100),
        ("repair", reference),
        ("du", reference),
        ("add", reference, "--step", 5, tmp_path / "content"),
        ("ingest", reference, tmp_path / "content"),
    ):
        done = run(*arguments, status=INVALID_ARGUMENT)
        assert b"refers to step 200 of the run" in done.stderr or b"its name has no step" in done.stderr, arguments
    assert (reference / "bitsnap.json").read_bytes() == before
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
