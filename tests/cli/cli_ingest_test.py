"""bitsnap ingest: histories of checkpoints, calls that continue earlier ones, and raw checkpoints that are deleted."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from cli.command_line import CORRUPT, INVALID_ARGUMENT, NOT_FOUND, USAGE, executable, run, run_json
from cli.raw_checkpoints import data, files_of, name_of, read, write_checkpoint

DELETE = "--delete-after-verify"


def events(*arguments: object, status: int = 0) -> list[dict[str, Any]]:
    """The JSON lines of the command."""
    return [json.loads(line) for line in run(*arguments, "--json", status=status).stdout.splitlines()]


def steps(path: Path) -> list[int]:
    return [checkpoint["step"] for checkpoint in run_json("log", path)] if (path / "bitsnap.json").exists() else []


def history(folder: Path, layout: str, numbers: list[int]) -> Path:
    folder.mkdir()
    for step in numbers:
        write_checkpoint(folder, layout, step)
    return folder


def facts(folder: Path) -> dict[str, tuple[int, int, bytes | str]]:
    """Mode, time and content of everything in a folder."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        info = path.lstat()
        content: bytes | str = b""
        if path.is_symlink():
            content = str(path.readlink())
        elif path.is_file():
            content = path.read_bytes()
        found[str(path.relative_to(folder))] = (info.st_mode, info.st_mtime_ns, content)
    return found


def lightning_file(step: int) -> bytes:
    """A checkpoint of PyTorch Lightning if torch is there, else any bytes."""
    if importlib.util.find_spec("torch") is None:
        return data(step, "lightning")
    import torch

    buffer = io.BytesIO()
    torch.save({"global_step": step, "state_dict": {"w": torch.arange(4000) * step}}, buffer)
    return buffer.getvalue()


def test_histories_of_three_frameworks_come_back_as_they_were(tmp_path: Path) -> None:
    history(tmp_path / "hf", "transformers", [100, 200])
    (tmp_path / "hf" / "README.md").write_text("no checkpoint")
    (tmp_path / "hf" / "tmp-checkpoint-250").mkdir()
    history(tmp_path / "megatron", "megatron", [300, 1400])
    lightning = tmp_path / "lightning"
    lightning.mkdir()
    (lightning / "epoch=3-step=1500.ckpt").write_bytes(lightning_file(1500))
    (lightning / "last.ckpt").symlink_to("epoch=3-step=1500.ckpt")
    special = tmp_path / "hf" / "checkpoint-200"
    (special / "link").symlink_to("/nowhere")
    (special / "again.pt").hardlink_to(special / "optimizer.pt")
    (special / "optimizer.pt").chmod(0o640)
    done = events("ingest", tmp_path / "run", lightning, tmp_path / "megatron", tmp_path / "hf")
    assert [(event["event"], event["step"]) for event in done] == [
        ("saved", step) for step in (100, 200, 300, 1400, 1500)
    ]
    for step, source in ((200, special), (1400, tmp_path / "megatron" / "iter_0001400")):
        run("extract", f"{tmp_path / 'run'}@{step}", "-o", tmp_path / f"out-{step}")
        assert facts(tmp_path / f"out-{step}") == facts(source)
    run("extract", f"{tmp_path / 'run'}@1500", "-o", tmp_path / "out.ckpt")
    assert (tmp_path / "out.ckpt").read_bytes() == lightning_file(1500)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-1000", 1000),
        ("iter_0001000", 1000),
        ("global_step1000", 1000),
        ("step_7.safetensors", 7),
        ("step=20-epoch=3.ckpt", 20),
        ("epoch=3.ckpt", 3),
        ("0012", 12),
        ("12.pt", 12),
        ("model_v2_checkpoint_5", 5),
        ("model-v2", None),
        ("step-10k", None),
        ("12.5", None),
        ("checkpoint-500-best", 500),
        ("checkpoint-500-merged", None),
        ("checkpoint-500 (copy)", None),
        ("step500.bak", None),
        ("checkpoint_3_500.pt", None),
        ("step_00500_of_01000", 500),
        ("step--5", None),
        ("step=-5", None),
        ("loss--0.5-step=7.ckpt", 7),
        ("step_500.orbax-checkpoint-tmp", None),
        ("step_500.orbax-checkpoint-tmp-12", None),
        (".step-5", None),
        ("tmp-checkpoint-5", None),
        ("checkpoint-5.tmp", None),
    ],
)
def test_steps_come_from_names(tmp_path: Path, name: str, step: int | None) -> None:
    (tmp_path / name).write_bytes(b"content")
    if step is None:
        done = run("ingest", tmp_path / "run", tmp_path / name, status=INVALID_ARGUMENT)
        assert b"its name has no step" in done.stderr
        assert not (tmp_path / "run").exists()
    else:
        assert [event["step"] for event in events("ingest", tmp_path / "run", tmp_path / name)] == [step]


def test_bad_inputs_fail_before_anything_is_done(tmp_path: Path) -> None:
    source = history(tmp_path / "hf", "transformers", [1, 2])
    target = tmp_path / "run"
    (tmp_path / "empty").mkdir()
    other = history(tmp_path / "other", "megatron", [2])
    done = run("ingest", target, source, other, status=INVALID_ARGUMENT)
    assert b"hf/checkpoint-2 and " in done.stderr
    assert b"other/iter_0000002: both have step 2" in done.stderr
    run("ingest", target, source, tmp_path / "empty", status=INVALID_ARGUMENT)
    run("ingest", target, source, tmp_path / "missing", status=NOT_FOUND)
    run("ingest", target, source, tmp_path / "checkpoint-77", status=NOT_FOUND)
    run("ingest", target, source, "--keep-raw", 1, status=USAGE)
    assert not target.exists()
    run("ingest", target, source)
    later = history(tmp_path / "later", "transformers", [0, 3])
    done = run("ingest", target, later, status=INVALID_ARGUMENT)
    assert b"step 0 is below step 2, the newest of" in done.stderr
    assert steps(target) == [1, 2]


def test_equal_steps_are_skipped_and_others_are_errors(tmp_path: Path) -> None:
    source = history(tmp_path / "hf", "transformers", [1, 2])
    target = tmp_path / "run"
    run("add", target, "--step", 1, source / "checkpoint-1")
    os.utime(source / "checkpoint-1" / "optimizer.pt", (1, 1))  # a copy has other times
    assert [event["event"] for event in events("ingest", target, source)] == ["skipped", "saved"]
    changed = source / "checkpoint-2" / "optimizer.pt"
    changed.write_bytes(changed.read_bytes()[:-1] + b"?")
    write_checkpoint(source, "transformers", 3)
    done = run("ingest", target, source, status=INVALID_ARGUMENT)
    assert b"checkpoint-2: " in done.stderr
    assert b"@2 holds something else: optimizer.pt: its bytes from" in done.stderr
    assert b"1 of 3 checkpoints in the run; the same command continues" in done.stderr
    assert steps(target) == [1, 2]
    changed.unlink()
    done = run("ingest", target, source / "checkpoint-2", status=INVALID_ARGUMENT)
    assert b"optimizer.pt: is missing" in done.stderr


def test_a_pruned_run_continues(tmp_path: Path) -> None:
    source = history(tmp_path / "hf", "transformers", [1, 2, 3])
    run("ingest", tmp_path / "run", source, "--keep-last", 1)
    write_checkpoint(source, "transformers", 4)
    done = events("ingest", tmp_path / "run", source, "--keep-last", 1)
    assert [event["event"] for event in done] == ["skipped", "skipped", "skipped", "saved"]
    assert steps(tmp_path / "run") == [4]


def test_verified_checkpoints_are_deleted_but_the_newest(tmp_path: Path) -> None:
    source = history(tmp_path / "hf", "transformers", [1, 2, 3])
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"stays")
    (source / "checkpoint-1" / "link").symlink_to(outside)
    (source / "checkpoint-1" / "file-link").symlink_to(outside / "precious")
    done = events("ingest", tmp_path / "run", source, DELETE, "--keep-raw", 1)
    assert [event["event"] for event in done] == ["saved", "deleted", "saved", "deleted", "saved"]
    assert [path.name for path in source.iterdir()] == ["checkpoint-3"]
    assert read(outside) == {"precious": b"stays"}
    # The same arguments work again, although the first ones are gone.
    names = [source / f"checkpoint-{step}" for step in (1, 2, 3)]
    assert [event["event"] for event in events("ingest", tmp_path / "run", *names, DELETE)][-1] == "deleted"
    assert list(source.iterdir()) == []
    for step in (1, 2, 3):
        run("extract", f"{tmp_path / 'run'}@{step}", "-o", tmp_path / f"out-{step}")
        wanted = files_of("transformers", step)
        assert {name: read(tmp_path / f"out-{step}")[name] for name in wanted} == wanted


@pytest.mark.parametrize("what", ["time", "mode", "link", "file"])
def test_a_checkpoint_that_differs_in_anything_is_not_deleted(tmp_path: Path, what: str) -> None:
    source = history(tmp_path / "hf", "transformers", [1])
    folder = source / "checkpoint-1"
    run("ingest", tmp_path / "run", source)
    if what == "time":
        os.utime(folder / "optimizer.pt", (1, 1))
    elif what == "mode":
        (folder / "optimizer.pt").chmod(0o600)
    elif what == "link":
        (folder / "again").hardlink_to(folder / "optimizer.pt")
    else:
        (folder / "optimizer.pt").write_bytes(b"?" * 9000)
    before = facts(folder)
    status = 0 if what in ("time", "mode") else INVALID_ARGUMENT
    run("ingest", tmp_path / "run", source, DELETE, status=status)
    assert facts(folder) == before


def test_a_damaged_store_keeps_the_raw_checkpoint(tmp_path: Path) -> None:
    source = history(tmp_path / "hf", "transformers", [1])
    target = tmp_path / "run"
    run("ingest", target, source)
    before = facts(source)
    shard = next((target / "checkpoints" / "0000000001").glob("shard*"))
    whole = shard.read_bytes()
    damaged = 0
    for at in range(100, len(whole), len(whole) // 15):
        shard.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        done = subprocess.run([executable(), "ingest", target, source, DELETE], capture_output=True, check=False)
        assert done.returncode == CORRUPT, at
        assert facts(source) == before
        damaged += 1
    assert damaged >= 15
    shard.write_bytes(whole)
    run("ingest", target, source, DELETE)
    assert list(source.iterdir()) == []


def test_a_deletion_that_was_killed_is_finished_if_the_rest_is_equal(tmp_path: Path) -> None:
    source = history(tmp_path / "hf", "transformers", [1, 2, 3])
    target = tmp_path / "run"
    run("ingest", target, source / "checkpoint-1", source / "checkpoint-2")
    hidden = [(source / f"checkpoint-{step}").rename(source / f".checkpoint-{step}.deleting") for step in (1, 2, 3)]
    (hidden[0] / "optimizer.pt").unlink()
    (hidden[1] / "optimizer.pt").write_bytes(b"?" * 9000)
    run("ingest", target, source)  # deletes nothing without the option
    assert len(list(source.iterdir())) == 3
    done = {event["step"]: event for event in events("ingest", target, source, DELETE)}
    assert [done[step]["event"] for step in (1, 2, 3)] == ["deleted", "kept", "kept"]
    assert "optimizer.pt: its bytes" in done[2]["reason"]
    assert done[3]["reason"] == "the run does not have its step"
    assert sorted(source.iterdir()) == hidden[1:]
    # The same for a checkpoint that is named.
    write_checkpoint(source, "transformers", 4)
    run("ingest", target, source / "checkpoint-4")
    (source / "checkpoint-4").rename(source / ".checkpoint-4.deleting")
    assert [event["event"] for event in events("ingest", target, source / "checkpoint-4", DELETE)] == ["deleted"]
    assert sorted(source.iterdir()) == hidden[1:]


def test_a_killed_ingest_continues(tmp_path: Path) -> None:
    count = 8
    source = history(tmp_path / "hf", "transformers", list(range(1, count + 1)))
    target = tmp_path / "run"
    chance = random.Random(7)
    command = [executable(), "ingest", str(target), str(source), DELETE, "-q", "-T1"]
    kills = 0
    for attempt in range(60):
        with subprocess.Popen(command) as process:
            time.sleep(chance.uniform(0, min(0.15, 0.01 * attempt)))  # the first ones are killed on a fast machine, too
            process.kill()
            kills += process.wait(60) == -signal.SIGKILL
        there = steps(target)
        assert there == list(range(1, len(there) + 1))
        for step in range(1, count + 1):
            if not (source / name_of("transformers", step)).exists():
                assert step in there
        if len(there) == count:
            break
    run(*command[1:])
    assert list(source.iterdir()) == []
    assert kills >= 2
    for step in range(1, count + 1):
        run("extract", f"{target}@{step}", "-o", tmp_path / f"out-{step}")
        assert read(tmp_path / f"out-{step}") == files_of("transformers", step)
