"""`extract --partial` and `decompress --partial`: what is sound is written, and the rest is named."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.cli_folders_test import listing, make_checkpoint
from cli.command_line import CORRUPT, executable, run, run_json
from cli.command_runs import add, make_run, state

NAMES = {"model.w", "optimizer.exp_avg.w", "optimizer.exp_avg_sq.w", "step"}


def tensors_in(data: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    """The tensors of a safetensors file: dtype, shape and bytes."""
    begin = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {
        name: (each["dtype"], each["shape"], data[begin + each["data_offsets"][0] : begin + each["data_offsets"][1]])
        for name, each in header.items()
    }


def file_of(path: Path, step: int) -> Path:
    return next((path / "checkpoints" / f"{step:010}").glob("*.bsnap"))


def damage(file: Path, place: str) -> None:
    """Flips a byte of the payload that verifying then names, such as "tensor 'model.w', chunk 0"."""
    whole = file.read_bytes()
    size = len(whole)
    for at in [*range(70, size, max(1, size // 50)), *range(size - 100, max(size - 3000, 70), -8)]:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        command = [executable(), "verify", str(file), "--no-decode", "--json"]
        done = json.loads(subprocess.run(command, capture_output=True, check=False).stdout)
        if "files" in done and [each["where"] for each in done["files"][0]["damages"]] == [place]:
            return
    raise AssertionError(f"{file} has no {place}")


def check_partial(path: str, out: Path, whole: bytes, left_out: set[str]) -> None:
    report = run_json("extract", path, "--partial", "-f", "-o", out, status=CORRUPT)
    assert {each["tensor"] for each in report["left_out"]} == left_out
    assert all(each["error"]["kind"] == "corrupt" for each in report["left_out"])
    expected = {name: tensor for name, tensor in tensors_in(whole).items() if name not in left_out}
    assert tensors_in(out.read_bytes()) == expected


@pytest.fixture
def own(tmp_path: Path) -> tuple[Path, dict[int, bytes]]:
    return tmp_path / "run", make_run(tmp_path / "run", [10, 20, 30])


def test_one_damaged_chunk_costs_one_tensor_of_each_checkpoint_that_needs_it(
    own: tuple[Path, dict[int, bytes]], tmp_path: Path
) -> None:
    path, whole = own
    damage(file_of(path, 20), "tensor 'model.w', chunk 0")
    failed = run("extract", f"{path}@20", "-c", status=CORRUPT)
    assert b"--partial" in failed.stderr
    for step in (20, 30):
        check_partial(f"{path}@{step}", tmp_path / "out", whole[step], {"model.w"})
    done = run("extract", f"{path}@20", "--partial", "-q", "-c", status=CORRUPT)
    assert set(tensors_in(done.stdout)) == NAMES - {"model.w"}
    text = done.stderr.decode()
    assert "tensor 'model.w' is left out: " in text
    assert file_of(path, 20).name in text
    assert "expected" in text
    assert run("extract", f"{path}@10", "--partial", "-c").stdout == whole[10], "nothing is left out, so it is exact"
    assert run_json("extract", f"{path}@10", "--partial", "-o", tmp_path / "whole")["left_out"] == []
    one = run("extract", f"{path}@20", "--partial", "--tensor", "step", "-c").stdout
    assert tensors_in(one)["step"] == tensors_in(whole[20])["step"]
    run("extract", f"{path}@20", "--partial", "--tensor", "model.w", "-c", status=CORRUPT)


def test_a_damaged_pool_costs_small_tensors_only(own: tuple[Path, dict[int, bytes]], tmp_path: Path) -> None:
    path, whole = own
    damage(file_of(path, 30), "pool, chunk 0")
    check_partial(f"{path}@30", tmp_path / "out", whole[30], {"step"})


def test_a_damaged_index_costs_what_needs_that_file(own: tuple[Path, dict[int, bytes]], tmp_path: Path) -> None:
    path, whole = own
    file = file_of(path, 20)
    data = bytearray(file.read_bytes())
    data[-60] ^= 1
    file.write_bytes(data)
    run("extract", f"{path}@20", "--partial", "-c", status=CORRUPT)
    run("extract", f"{path}@30", "-c", status=CORRUPT)
    check_partial(f"{path}@30", tmp_path / "out", whole[30], NAMES - {"step"})


def test_files_are_decompressed_in_part(tmp_path: Path) -> None:
    for step in (1, 2):
        (tmp_path / f"{step}.safetensors").write_bytes(state(step))
    run("compress", tmp_path / "1.safetensors")
    run("compress", tmp_path / "2.safetensors", "--base", tmp_path / "1.bsnap")
    damage(tmp_path / "1.bsnap", "tensor 'optimizer.exp_avg.w', chunk 0")
    out = tmp_path / "out.safetensors"
    for step in (1, 2):
        assert b"--partial" in run("decompress", tmp_path / f"{step}.bsnap", "-o", out, status=CORRUPT).stderr
        assert not out.exists()
        report = run_json("decompress", tmp_path / f"{step}.bsnap", "--partial", "-o", out, status=CORRUPT)
        assert [each["tensor"] for each in report["left_out"]] == ["optimizer.exp_avg.w"]
        expected = tensors_in(state(step))
        del expected["optimizer.exp_avg.w"]
        assert tensors_in(out.read_bytes()) == expected
        out.unlink()
    (tmp_path / "1.bsnap").unlink()
    report = run_json("decompress", tmp_path / "2.bsnap", "--partial", "-o", out, status=CORRUPT)
    assert {each["error"]["kind"] for each in report["left_out"]} == {"not_found"}


def test_folders_are_extracted_without_damaged_files(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "checkpoint-1", 1)
    run("add", tmp_path / "run", "--step", 1, folder)
    damage(file_of(tmp_path / "run", 1), "tensor 'logs/same.npy/array', chunk 0")
    path = f"{tmp_path}/run@1"
    out = tmp_path / "out"
    assert b"--partial" in run("extract", path, "-o", out, status=CORRUPT).stderr
    assert not out.exists()
    report = run_json("extract", path, "--partial", "-o", out, status=CORRUPT)
    lost = {"order.npy", "logs/same.npy"}
    assert {each["file"] for each in report["left_out"]} == lost
    expected = {name: each for name, each in listing(folder).items() if name not in lost}
    assert listing(out) == expected
    assert report["files"] == 3


def test_a_repair_keeps_what_can_be_read(own: tuple[Path, dict[int, bytes]], tmp_path: Path) -> None:
    path, whole = own
    damage(file_of(path, 20), "tensor 'model.w', chunk 0")
    foreseen = run_json("repair", path, "--dry-run", status=CORRUPT)
    report = run_json("repair", path, status=CORRUPT)
    assert {**foreseen, "dry_run": False} == report
    assert report["dropped"] == []
    assert [(each["step"], each["tensors"], each["damaged_tensors"]) for each in report["damaged"]] == [
        (20, 4, 1),
        (30, 4, 1),
    ]
    text = run("repair", path, status=CORRUPT).stdout.decode()
    assert f"step 20: damaged, kept: 1 of 4 tensors cannot be read; `bitsnap extract {path}@20 --partial`" in text
    assert f"to train on from step 10: `bitsnap rollback {path} --to 10` removes what is damaged above it\n" in text
    assert text.endswith("1 checkpoint whole, 0 mended, 2 damaged, 0 lost\n")
    log = run_json("log", path)
    assert [each["step"] for each in log] == [10, 20, 30]
    assert ["damage" in each for each in log] == [False, True, True]
    assert "damaged" in run("log", path).stdout.decode()
    assert run("extract", path, "-c").stdout == whole[10], "the newest is one that is whole"
    for step in (20, 30):
        check_partial(f"{path}@{step}", tmp_path / "out", whole[step], {"model.w"})
    data = add(path, 40)
    assert run("extract", path, "-c").stdout == data
    assert run_json("log", path)[-1]["base"] == 10
    run("prune", path, "--remove", "20,30")
    assert run_json("repair", path)["damaged"] == []
    assert run("extract", f"{path}@40", "-c").stdout == data
