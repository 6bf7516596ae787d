"""External commands: which program runs, its arguments, and the errors if there is none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cli.command_line import IO, NOT_FOUND, OK, USAGE, executable


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in its own folder, with only the files of the test beside it."""
    path = tmp_path_factory.mktemp("command") / "bitsnap"
    shutil.copy(executable(), path)
    return path


@pytest.fixture
def command(copied: Path, tmp_path: Path) -> Path:
    path = tmp_path / "beside" / "bitsnap"
    path.parent.mkdir()
    os.link(copied, path)
    return path


def program(folder: Path, name: str, script: str, mode: int = 0o755) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(mode)
    return path


def run(
    command: Path, *arguments: str, status: int = OK, path: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "PATH": path},
        timeout=60,
    )
    assert done.returncode == status, (arguments, done)
    return done


def test_a_program_gets_its_arguments_unchanged_and_sets_the_status(command: Path, tmp_path: Path) -> None:
    program(tmp_path / "bin", "bitsnap-hello", 'for a in "$@"; do echo "<$a>"; done; exit 7')
    arguments = ["--json", "a b", "", "--", "-x", "*", "--version"]
    done = run(command, "hello", *arguments, status=7, path=str(tmp_path / "bin"))
    assert done.stdout == "".join(f"<{each}>\n" for each in arguments)
    assert done.stderr == ""


def test_a_program_finds_the_command_that_ran_it(command: Path, tmp_path: Path) -> None:
    program(tmp_path / "bin", "bitsnap-who", 'echo "$BITSNAP_COMMAND"')
    link = tmp_path / "link"
    link.symlink_to(command)
    assert run(link, "who", path=str(tmp_path / "bin")).stdout == f"{command}\n"


def test_programs_next_to_the_command_win_over_path(command: Path, tmp_path: Path) -> None:
    program(tmp_path / "one", "bitsnap-hello", "echo one")
    program(tmp_path / "two", "bitsnap-hello", "echo two")
    path = f"{tmp_path / 'none'}::{tmp_path / 'one'}:{tmp_path / 'two'}"
    assert run(command, "hello", path=path).stdout == "one\n"
    program(command.parent, "bitsnap-hello", "echo beside")
    assert run(command, "hello", path=path).stdout == "beside\n"
    # Also if a link elsewhere is called.
    link = tmp_path / "link"
    link.symlink_to(command)
    assert run(link, "hello", path=path).stdout == "beside\n"


def test_a_built_in_command_wins_over_a_program(command: Path) -> None:
    for name in ("log", "help"):
        program(command.parent, f"bitsnap-{name}", "echo not this one")
    assert "run" in run(command, "log", status=USAGE).stderr.lower()
    assert "not this one" not in run(command, "help").stdout


def test_files_that_are_not_programs_are_skipped(command: Path, tmp_path: Path) -> None:
    program(tmp_path / "one", "bitsnap-hello", "echo one", mode=0o644)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "bitsnap-hello").mkdir()
    path = f"{tmp_path / 'one'}:{tmp_path / 'two'}"
    assert "'hello' is not a command" in run(command, "hello", status=USAGE, path=path).stderr
    program(tmp_path / "three", "bitsnap-hello", "echo three")
    assert run(command, "hello", path=f"{path}:{tmp_path / 'three'}").stdout == "three\n"


@pytest.mark.parametrize("path", ["", ".", ":", "here", "./here:"])
def test_nothing_is_run_from_the_working_directory(command: Path, tmp_path: Path, path: str) -> None:
    program(tmp_path, "bitsnap-hello", "echo here")
    program(tmp_path / "here", "bitsnap-hello", "echo here")
    assert "'hello' is not a command" in run(command, "hello", status=USAGE, path=path, cwd=tmp_path).stderr


@pytest.mark.parametrize("name", ["../evil", "x/../../evil", "..", ".", "", "a b", "hello\n"])
def test_names_with_path_separators_are_rejected(command: Path, tmp_path: Path, name: str) -> None:
    (command.parent / "bitsnap-..").mkdir()
    (command.parent / "bitsnap-x").mkdir()
    for place in (tmp_path / "evil", command.parent / "evil", command.parent / "bitsnap-a b"):
        program(place.parent, place.name, "echo evil")
    done = run(command, name, status=USAGE)
    assert done.stdout == ""


def test_a_program_that_cannot_be_started_is_named(command: Path) -> None:
    path = command.parent / "bitsnap-broken"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    done = run(command, "broken", status=IO)
    assert done.stderr.startswith(f"bitsnap: error: {path}: cannot be run: ")
    assert done.stderr.endswith("[io]\n")
    error = json.loads(run(command, "broken", "--json", status=IO).stdout)["error"]
    assert (error["kind"], error["exit_code"]) == ("io", IO)


def test_the_help_lists_report_and_shows_its_own(command: Path) -> None:
    text = run(command, "--help").stdout
    assert "bitsnap-NAME" in text
    assert "  report   " in text
    program(command.parent, "bitsnap-report", 'echo "report given $*"')
    assert run(command, "help", "report").stdout == "report given --help\n"
    assert run(command, "report", "--help").stdout == "report given --help\n"


def test_report_that_is_not_installed_says_how_to_get_it(command: Path) -> None:
    for arguments in (["report", "run"], ["help", "report"], ["-q", "report", "run"]):
        done = run(command, *arguments, status=NOT_FOUND)
        assert "pip install 'bitsnap[report]'" in done.stderr
        assert done.stderr.endswith("[not_found]\n")
    error = json.loads(run(command, "report", "run", "--json", status=NOT_FOUND).stdout)["error"]
    assert (error["kind"], error["exit_code"]) == ("not_found", NOT_FOUND)
    assert "did you mean `bitsnap report`?" in run(command, "reprot", status=USAGE).stderr


def test_options_before_an_external_name_are_rejected(command: Path) -> None:
    program(command.parent, "bitsnap-hello", "echo hello")
    done = run(command, "-q", "hello", "x", status=USAGE)
    assert "write its options after its name: `bitsnap hello ...`" in done.stderr
    assert done.stdout == ""
