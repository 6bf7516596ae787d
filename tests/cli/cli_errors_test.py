"""Exit statuses and messages: one status for each kind of error, and the file is named."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from cli.command_line import (
    CORRUPT,
    DAMAGED,
    INVALID_ARGUMENT,
    NOT_FOUND,
    TRUNCATED,
    UNSUPPORTED,
    USAGE,
    executable,
    run,
    run_json,
)
from cli.tensor_file import Tensor, random_bytes, weights, write

COMMANDS = ["compress", "decompress", "inspect", "verify", "diff", "analyze", "bench"]


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    tensors = [weights("w", 3000, 1, "BF16"), Tensor("b", "U8", (500,), random_bytes(500, 2))]
    run("compress", write(tmp_path / "in.safetensors", tensors))
    return tmp_path / "in.bsnap"


def test_what_is_no_snapshot_is_named_with_the_commands_that_read_it(tmp_path: Path, snapshot: Path) -> None:
    torch.save({"w": torch.ones(4)}, tmp_path / "x.pt")
    np.save(tmp_path / "x.npy", np.ones(4))
    (tmp_path / "folder").mkdir()
    plain = tmp_path / "in.safetensors"
    for path, kind in (("x.pt", "a torch file"), ("x.npy", "a numpy file"), ("folder", "a directory")):
        message = f"{tmp_path / path}: is {kind}, not a snapshot; `bitsnap inspect` shows its tensors"
        for command in (
            ("decompress", tmp_path / path),
            ("verify", tmp_path / path),
            ("compress", "--base", tmp_path / path, plain, "-o", tmp_path / "b.bsnap"),
        ):
            done = run(*command, status=INVALID_ARGUMENT)
            assert message in (done.stdout + done.stderr).decode()
            assert b"corrupt" not in done.stdout + done.stderr
    assert b"is a safetensors file, not a snapshot" in run("decompress", plain, status=INVALID_ARGUMENT).stderr
    assert b"is a file, and no run; `bitsnap inspect`" in run("extract", plain, status=INVALID_ARGUMENT).stderr
    assert (
        b"is a snapshot, and no run; `bitsnap decompress`" in run("extract", snapshot, status=INVALID_ARGUMENT).stderr
    )
    (tmp_path / "text").write_bytes(b"no file of any format " * 20)
    assert b"it is another kind of file, or damaged" in run("decompress", tmp_path / "text", status=CORRUPT).stderr


def test_a_snapshot_with_the_name_of_another_format_is_a_warning(tmp_path: Path, snapshot: Path) -> None:
    plain = tmp_path / "in.safetensors"
    warning = b"b.pt: becomes a snapshot, which bitsnap reads and torch.load() does not; name it *.bsnap"
    assert warning in run("compress", plain, "-o", tmp_path / "b.pt").stderr
    assert b"becomes" not in run("compress", plain, "-o", tmp_path / "b.bsnap").stderr


def test_no_command_makes_a_run_of_the_name_of_a_step_or_branch(tmp_path: Path, snapshot: Path) -> None:
    before = sorted(tmp_path.iterdir())
    for name in ("new:lr2", "new@5", "new@latest"):
        done = run("add", tmp_path / name, "--step", 1, tmp_path / "in.safetensors", status=INVALID_ARGUMENT)
        assert b"this names " in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_no_arguments_show_short_help() -> None:
    done = run()
    assert b"bitsnap compress model.safetensors" in done.stdout
    assert done.stderr == b""


@pytest.mark.parametrize("command", ["add", "ingest", "watch", *COMMANDS])
def test_every_command_has_help(command: str) -> None:
    done = run(command, "--help")
    assert done.stdout == run("help", command).stdout
    assert command.encode() in done.stdout
    assert b"--threads" in done.stdout


def test_the_help_lists_commands_and_exit_statuses() -> None:
    text = run("--help").stdout.decode()
    assert text == run("help").stdout.decode()
    for word in [*COMMANDS, "Exit status", "15  corrupt", "12  not found"]:
        assert word in text
    assert "cpu-level" not in text


def test_the_version_names_format_and_cpu_level() -> None:
    text = run("--version").stdout.decode()
    assert text.startswith("bitsnap 0.")
    assert "format 0" in text
    assert "detected" in text
    assert "cpu level: scalar (" in run("--version", "--cpu-level", "scalar").stdout.decode()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compres", "x"], b"did you mean `bitsnap compress`?"),
        (["lgo"], b"did you mean `bitsnap log`?"),
        (["verfy"], b"did you mean `bitsnap verify`?"),
        (["help", "insp"], b"did you mean `bitsnap inspect`?"),
        (["frobnicate"], b"'frobnicate' is not a command"),
        (["--frobnicate"], b"--frobnicate"),
        (["inspect"], b"FILE"),
        (["inspect", "a", "b"], b"b"),
        (["compress", "a", "--policy", "best"], b"best"),
        (["compress", "a", "--policy", "bouned"], b"did you mean 'bounded'?"),
        (["compress", "a", "-T", "many"], b"many"),
        (["compress", "a", "-T", "-1"], b"-1"),
        (["compress", "a", "--max-depth", "99"], b"99"),
        (["decompress", "a", "-c", "-o", "b"], b"--stdout"),
        (["-v"], b"no command"),
        (["diff", "a"], b"B"),
        (["log", "a", "--jsn"], b"did you mean `--json`?"),
        (["prune", "a", "--keeplast=3"], b"did you mean `--keep-last`?"),
        (["add", "a", "--stp", "3", "b"], b"did you mean `--step`?"),
        (["log", "a", "--zzzzzz"], b"`bitsnap log --help` shows the options"),
    ],
)
def test_usage_errors_name_the_mistake(arguments: list[str], message: bytes) -> None:
    done = run(*arguments, status=USAGE)
    assert done.stderr.startswith(b"bitsnap: error: ")
    assert message in done.stderr
    assert done.stdout == b""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_file_is_not_found_and_named(tmp_path: Path, command: str) -> None:
    missing = tmp_path / "missing.bsnap"
    done = run(command, missing, *([missing] if command == "diff" else []), status=NOT_FOUND)
    assert b"missing.bsnap" in done.stdout + done.stderr
    assert b"[not_found]" in done.stdout + done.stderr


def test_a_missing_file_or_run_is_named_with_a_similar_one(tmp_path: Path, snapshot: Path) -> None:
    run("add", tmp_path / "run", tmp_path / "in.safetensors", "--step", 1)
    for command in ("inspect", "verify", "analyze"):
        for given, meant in (("in.bsanp", "in.bsnap"), ("rnu", "run"), ("rnu@1", "run@1")):
            done = run(command, tmp_path / given, status=NOT_FOUND)
            said = (done.stdout + done.stderr).decode()
            assert f"{tmp_path}/{given}: there is no such file or run; did you mean '{tmp_path}/{meant}'?" in said


def test_json_errors_are_json(tmp_path: Path) -> None:
    error = run_json("inspect", tmp_path / "missing.bsnap", status=NOT_FOUND)["error"]
    assert error["kind"] == "not_found"
    assert error["exit_code"] == NOT_FOUND
    assert "missing.bsnap" in error["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "compres", "x"],
        ["--json"],
        ["inspect", "--json"],
        ["inspect", "a", "b", "--json"],
        ["inspect", "--frobnicate", "a", "--json"],
        ["compress", "a", "-T", "many", "--json"],
        ["--json", "help", "insp"],
    ],
    ids=str,
)
def test_json_errors_of_the_command_line_are_json_too(arguments: list[str]) -> None:
    done = run(*arguments, status=USAGE)
    error = json.loads(done.stdout)["error"]
    assert list(error) == ["kind", "message", "exit_code"]
    assert (error["kind"], error["exit_code"]) == ("usage", USAGE)
    # The text output is the same as without --json.
    assert done.stderr.decode().startswith(f"bitsnap: error: {error['message']} [usage]\n")
    assert done.stderr.count(b"\n") == 2


def test_json_after_two_dashes_is_an_argument() -> None:
    assert run("diff", "--", "--json", status=USAGE).stdout == b""


def test_files_of_another_kind_are_rejected(tmp_path: Path, snapshot: Path) -> None:
    source = tmp_path / "in.safetensors"
    text = tmp_path / "text"
    text.write_text("neither the one nor the other\n" * 100)
    run("compress", snapshot, "-o", tmp_path / "x", status=INVALID_ARGUMENT)
    run("verify", source, status=INVALID_ARGUMENT)
    run("diff", text, snapshot, status=CORRUPT)
    run("inspect", text, status=CORRUPT)
    run("decompress", text, "-o", tmp_path / "x", status=CORRUPT)
    run("decompress", source, "-o", tmp_path / "x", status=INVALID_ARGUMENT)
    assert not (tmp_path / "x").exists()


def test_a_newer_format_is_unsupported(snapshot: Path) -> None:
    data = bytearray(snapshot.read_bytes())
    data[8] = 1
    snapshot.write_bytes(data)
    done = run("decompress", snapshot, "-o", snapshot.with_name("x"), status=UNSUPPORTED)
    assert b"in.bsnap" in done.stderr
    run("verify", snapshot, status=UNSUPPORTED)


def test_a_wrong_base_is_an_error(tmp_path: Path, snapshot: Path) -> None:
    data = bytearray(random_bytes(1_200_000, 1))
    first = write(tmp_path / "first.safetensors", [Tensor("w", "F32", (300_000,), bytes(data))])
    data[5] ^= 1
    second = write(tmp_path / "second.safetensors", [Tensor("w", "F32", (300_000,), bytes(data))])
    run("compress", first)
    run("compress", second, "--base", tmp_path / "first.bsnap")
    (tmp_path / "first.bsnap").unlink()
    done = run("decompress", tmp_path / "second.bsnap", "-fo", tmp_path / "x", "--base", snapshot, status=NOT_FOUND)
    assert b"second.bsnap" in done.stderr
    assert not (tmp_path / "x").exists()


def test_every_truncation_is_an_error(snapshot: Path) -> None:
    data = snapshot.read_bytes()
    for size in sorted({0, 1, 7, 8, 63, 64, len(data) - 65, len(data) - 64, len(data) - 1, *range(0, len(data), 257)}):
        snapshot.write_bytes(data[:size])
        done = subprocess.run([executable(), "verify", snapshot], capture_output=True, check=False)
        assert done.returncode in DAMAGED, size
        assert b"in.bsnap" in done.stdout
        out = snapshot.with_name("out")
        done = subprocess.run([executable(), "decompress", snapshot, "-o", out], capture_output=True, check=False)
        assert done.returncode in DAMAGED, size
        assert not out.exists()
    snapshot.write_bytes(data[:100])
    run("verify", snapshot, status=TRUNCATED)


def test_flipped_bytes_are_errors(snapshot: Path) -> None:
    data = snapshot.read_bytes()
    for at in [*range(64), *range(64, len(data) - 64, 151), *range(len(data) - 64, len(data))]:
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        snapshot.write_bytes(damaged)
        for arguments in (["verify"], ["decompress", "-c"]):
            done = subprocess.run([executable(), *arguments, snapshot], capture_output=True, check=False)
            assert done.returncode in DAMAGED, (at, arguments)


def test_verify_names_each_damage_and_goes_on(tmp_path: Path) -> None:
    elements = (1 << 18) + 5
    tensors = [Tensor(name, "U8", (elements,), random_bytes(elements, i)) for i, name in enumerate(["first", "second"])]
    whole = tmp_path / "whole.bsnap"
    run("compress", write(tmp_path / "in.safetensors", tensors), "-o", whole, "--policy", "raw")
    damaged = tmp_path / "damaged.bsnap"
    data = bytearray(whole.read_bytes())
    data[1000] ^= 1
    data[600_000 - 90_000] ^= 1
    damaged.write_bytes(data)
    done = run("verify", whole, damaged, whole, status=CORRUPT)
    text = done.stdout.decode()
    assert text.count("whole.bsnap: OK") == 2
    assert "damaged.bsnap: 2 damages" in text
    assert "first" in text
    assert "second" in text
    assert b"1 of 3 files failed" in done.stderr

    quiet = run("verify", "-q", whole, damaged, status=CORRUPT).stdout.decode()
    assert "OK" not in quiet
    assert "damaged.bsnap" in quiet

    report = run_json("verify", whole, damaged, status=CORRUPT)
    assert not report["ok"]
    assert [entry["ok"] for entry in report["files"]] == [True, False]
    assert [entry["kind"] for entry in report["files"][1]["damages"]] == ["corrupt", "corrupt"]
    assert "chunk 0" in report["files"][1]["damages"][0]["where"]


def test_the_status_of_verify_is_that_of_the_first_failure(tmp_path: Path, snapshot: Path) -> None:
    short = tmp_path / "short.bsnap"
    short.write_bytes(snapshot.read_bytes()[:200])
    missing = tmp_path / "missing.bsnap"
    run("verify", snapshot, missing, short, status=NOT_FOUND)
    run("verify", short, missing, snapshot, status=TRUNCATED)


def test_hostile_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    evil = "a\x1b[2J\x07\u009bb\x7f\u202e\u2066\u200b\ufeff"
    source = write(tmp_path / "in.safetensors", [Tensor(evil, "U8", (2,), b"ab")], {evil: evil})
    run("compress", source)
    snapshot = tmp_path / "in.bsnap"
    for arguments in (["inspect", source], ["inspect", snapshot], ["diff", snapshot, snapshot]):
        text = run(*arguments).stdout
        assert b"\x1b" not in text
        assert b"\x07" not in text
        assert b"\\x1b[2J" in text
        assert not re.search("[\u200b\u202e\u2066\ufeff]", text.decode()), arguments
        assert "\\u202e\\u2066\\u200b\\ufeff" in text.decode(), arguments
    assert run_json("inspect", source)["tensors"][0]["name"] == evil


def test_an_unavailable_cpu_level_is_an_error(snapshot: Path) -> None:
    run("inspect", snapshot, "--cpu-level", "sse9", status=INVALID_ARGUMENT)
