"""`bitsnap mirror` between directories."""

from __future__ import annotations

import json
import time
from pathlib import Path

from cli.command_line import INVALID_ARGUMENT, NOT_FOUND, run, run_json
from cli.command_runs import add, extracted, make_run


def test_a_copy_without_the_checkpoints_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    original, copy = tmp_path / "run", tmp_path / "copy"
    states = make_run(original, [10, 20, 30], "--max-depth", 1)
    for file in (original / "checkpoints" / "0000000020").glob("*.bsnap"):
        file.unlink()
    said = run("mirror", original, copy, "--json", status=NOT_FOUND)
    lines = [json.loads(line) for line in said.stdout.splitlines()]
    assert lines[0]["added"] == [10, 30]
    assert lines[1]["error"]["exit_code"] == NOT_FOUND
    assert f"{copy}: step 20 is not copied: ".encode() in said.stderr
    assert extracted(f"{copy}@30") == states[30]


def test_following_ends_after_a_while_of_errors(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [10])
    start = time.monotonic()
    arguments = ("mirror", tmp_path / "run", tmp_path / "none" / "copy", "--watch", "--poll", 0.1, "--idle", 0.5)
    said = run(*arguments, status=NOT_FOUND)
    assert 2 <= time.monotonic() - start < 15
    assert b"none" in said.stderr
    noted = json.loads((tmp_path / "run" / "mirror.json").read_bytes())
    assert "none" in noted["error"]


def test_following_ends_when_nothing_changes(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [10])
    arguments = ("mirror", tmp_path / "run", tmp_path / "copy", "--watch", "--poll", 0.1, "--idle", 0.5)
    assert run_json(*arguments)["added"] == [10]
    add(tmp_path / "run", 20)
    assert run_json(*arguments)["added"] == [20]


def test_places_that_cannot_be_a_copy_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    original = tmp_path / "run"
    make_run(original, [10])
    assert b"step 99 not found" in run("mirror", f"{original}@99", tmp_path / "copy", status=NOT_FOUND).stderr
    for place in (tmp_path / "copy@20", f"{original}@10"):
        said = run("mirror", original, place, status=INVALID_ARGUMENT)
        assert f"{place}: this names a checkpoint of the run ".encode() in said.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
