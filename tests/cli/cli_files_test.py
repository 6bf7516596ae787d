"""Which files the command writes, and that it leaves nothing else behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cli.command_line import CORRUPT, INVALID_ARGUMENT, IO, NOT_FOUND, executable, run
from cli.tensor_file import Tensor, random_bytes, weights, write


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "model.safetensors", [weights("w", 300_000, 1, "BF16"), Tensor("s", "F32", (), b"abcd")])


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_default_names_replace_the_extension(source: Path) -> None:
    original = source.read_bytes()
    run("compress", source)
    source.unlink()
    run("decompress", source.with_suffix(".bsnap"))
    assert names(source.parent) == ["model.bsnap", "model.safetensors"]
    assert source.read_bytes() == original


def test_names_without_the_extension_get_one(source: Path) -> None:
    plain = source.rename(source.with_name("weights"))
    run("compress", plain)
    snapshot = plain.with_name("weights.bsnap").rename(plain.with_name("snapshot"))
    run("decompress", snapshot)
    assert snapshot.with_name("snapshot.safetensors").read_bytes() == plain.read_bytes()


def test_names_may_begin_with_a_dash_after_two_dashes(source: Path) -> None:
    source.rename(source.with_name("-m.safetensors"))
    run("compress", "--", "-m.safetensors", cwd=source.parent)
    assert names(source.parent) == ["-m.bsnap", "-m.safetensors"]


def test_nothing_is_overwritten_without_force(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.bsnap"
    out.write_bytes(b"precious")
    done = run("compress", source, status=INVALID_ARGUMENT)
    assert out.read_bytes() == b"precious"
    assert b"model.bsnap" in done.stderr
    assert b"-f" in done.stderr
    run("compress", source, "-f")
    assert out.read_bytes() != b"precious"
    run("decompress", out, status=INVALID_ARGUMENT)
    original = source.read_bytes()
    source.write_bytes(b"old")
    run("decompress", out, "--force")
    assert source.read_bytes() == original
    assert names(tmp_path) == ["model.bsnap", "model.safetensors"]


def test_an_input_is_never_overwritten(source: Path, tmp_path: Path) -> None:
    original = source.read_bytes()
    run("compress", source, "-o", source, "-f", status=INVALID_ARGUMENT)
    link = tmp_path / "link"
    link.symlink_to(source)
    run("compress", link, "-o", source, "-f", status=INVALID_ARGUMENT)
    assert source.read_bytes() == original
    run("compress", source)
    snapshot = tmp_path / "model.bsnap"
    stored = snapshot.read_bytes()
    run("decompress", snapshot, "-o", snapshot, "-f", status=INVALID_ARGUMENT)
    run("compress", source, "--base", snapshot, "-f", status=INVALID_ARGUMENT)
    assert snapshot.read_bytes() == stored


def test_bases_of_a_base_are_never_overwritten(tmp_path: Path) -> None:
    data = bytearray(random_bytes(1_200_000, 1))
    for step in range(3):
        data[step * 1000 : step * 1000 + 10] = random_bytes(10, step)
        write(tmp_path / f"{step}.safetensors", [Tensor("w", "F32", (300_000,), bytes(data))])
    run("compress", tmp_path / "0.safetensors")
    run("compress", tmp_path / "1.safetensors", "--base", tmp_path / "0.bsnap")
    stored = (tmp_path / "0.bsnap").read_bytes()
    arguments = ["compress", tmp_path / "2.safetensors", "--base", tmp_path / "1.bsnap", "-f", "-o"]
    done = run(*arguments, tmp_path / "0.bsnap", status=INVALID_ARGUMENT)
    assert b"is read from it" in done.stderr
    assert (tmp_path / "0.bsnap").read_bytes() == stored


def test_a_directory_is_rejected_as_output(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    run("compress", source, "-o", folder, "-f", status=INVALID_ARGUMENT)
    assert names(folder) == []


def test_decompress_writes_to_standard_output(source: Path) -> None:
    run("compress", source)
    snapshot = source.with_suffix(".bsnap")
    for arguments in (["-c"], ["--stdout"], ["-o", "-"], ["-o-"]):
        done = run("decompress", snapshot, *arguments)
        assert done.stdout == source.read_bytes()
    assert b"standard output" in done.stderr
    assert run("decompress", "-qc", snapshot).stderr == b""


def test_the_command_ends_when_its_reader_closes_the_pipe(source: Path) -> None:
    write(source, [weights("w", 3_000_000, 1)])
    run("compress", source)
    with subprocess.Popen(
        [executable(), "decompress", "-c", source.with_suffix(".bsnap")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(60) != 0
    assert names(source.parent) == ["model.bsnap", "model.safetensors"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_reported(source: Path) -> None:
    run("compress", source)
    snapshot = source.with_suffix(".bsnap")
    for command in ("decompress -c", "inspect", "inspect --json", "verify"):
        arguments = [executable(), *command.split(), str(snapshot)]
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, check=False)
        assert done.returncode == IO, command
        assert b"error" in done.stderr


def test_closed_standard_streams_do_no_harm(source: Path) -> None:
    original = source.read_bytes()
    script = '"$1" compress "$2" <&- >&- 2>&- && "$1" decompress "$3" -o "$4" <&- >&- 2>&-'
    snapshot = source.with_suffix(".bsnap")
    again = source.with_name("again.safetensors")
    subprocess.run(["sh", "-c", script, "sh", executable(), source, snapshot, again], check=True, timeout=60)
    assert again.read_bytes() == original
    run("verify", snapshot)


def test_a_failure_leaves_no_file(source: Path, tmp_path: Path) -> None:
    run("compress", source)
    snapshot = tmp_path / "model.bsnap"
    stored = bytearray(snapshot.read_bytes())
    stored[1000] ^= 1  # within a payload
    snapshot.write_bytes(stored)
    run("decompress", snapshot, "-o", tmp_path / "out.safetensors", status=CORRUPT)
    run("compress", tmp_path / "missing.safetensors", status=NOT_FOUND)
    assert names(tmp_path) == ["model.bsnap", "model.safetensors"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_an_io_error(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o500)
    run("compress", source, "-o", folder / "out.bsnap", status=IO)


def test_an_output_in_a_missing_folder_is_not_found(source: Path, tmp_path: Path) -> None:
    run("compress", source, "-o", tmp_path / "missing" / "out.bsnap", status=NOT_FOUND)


def test_bases_are_found_next_to_the_file_or_by_option(tmp_path: Path) -> None:
    data = bytearray(random_bytes(1_200_000, 1))
    for step in range(3):
        data[step * 1000 : step * 1000 + 10] = random_bytes(10, step)
        source = write(tmp_path / f"{step}.safetensors", [Tensor("w", "F32", (300_000,), bytes(data))])
        run("compress", source, *(["--base", tmp_path / f"{step - 1}.bsnap"] if step else []))
    last = tmp_path / "2.bsnap"
    assert run("decompress", "-c", last).stdout == source.read_bytes()

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    first = (tmp_path / "0.bsnap").rename(elsewhere / "renamed.bsnap")
    middle = (tmp_path / "1.bsnap").rename(elsewhere / "1.bsnap")
    done = run("decompress", last, "-o", tmp_path / "x.safetensors", status=NOT_FOUND)
    assert b"1.bsnap" in done.stderr
    assert run("decompress", "-c", last, "--base", elsewhere).stdout == source.read_bytes()
    assert run("decompress", "-c", last, "--base", first, "--base", middle).stdout == source.read_bytes()
    run("verify", last, status=NOT_FOUND)
    run("verify", "--no-decode", last)
    run("verify", "--base", elsewhere, last)
    delta = ["compress", source, "-o", tmp_path / "3.bsnap", "--base", last]
    run(*delta, "--base", middle, "--base", first)
    assert run("decompress", "-c", tmp_path / "3.bsnap", "--base", elsewhere).stdout == source.read_bytes()
