"""The command, on runs in a bucket of a real server."""

from __future__ import annotations

import json
import math
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import bitsnap
from bitsnap.agents import find_program
from python.objects.object_proxy import Proxy


def said(*arguments: str | Path, status: int = 0, folder: Path | None = None) -> str:
    done = subprocess.run([find_program(), *arguments], capture_output=True, text=True, timeout=300, cwd=folder)
    assert done.returncode == status, (arguments, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


def told(*arguments: str | Path) -> Any:
    return json.loads(said(*arguments, "--json"))


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    weights = np.random.default_rng(3).standard_normal((100, 500)).astype(np.float32)
    for step in (10, 20, 30):
        folder = tmp_path / "checkpoints" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        save_file({"w": weights + np.float32(step) * 1e-5, "b": np.ones(9)}, folder / "model.safetensors")
    return tmp_path / "checkpoints"


def test_a_run_in_a_bucket_is_written_read_and_kept_small(run: str, folders: Path, tmp_path: Path) -> None:
    said("ingest", run, folders)
    assert [entry["step"] for entry in told("log", run)] == [10, 20, 30]
    said("label", f"{run}@20", "best")
    assert f"{run}@20" in said("inspect", f"{run}@best")
    said("diff", f"{run}@10", f"{run}@20", status=1)  # they differ
    said("extract", f"{run}@10", folder=tmp_path)  # beside the working directory, as there is no folder of the run
    name = f"{run.rpartition('/')[2]}-10"
    original = folders / "checkpoint-10" / "model.safetensors"
    assert (tmp_path / name / "model.safetensors").read_bytes() == original.read_bytes()
    said("convert", f"{run}@20", tmp_path / "m.safetensors")
    used = told("du", run, "--prices", "1000,1,0.5")
    month = used["month"]
    assert month["stored_bytes"] == used["stored_bytes"] > 0
    assert math.isclose(month["cost"]["storage"], used["stored_bytes"] / 1e6)
    assert math.isclose(month["cost"]["requests"], (month["writes"] + month["reads"] / 2) / 1000)
    assert math.isclose(month["writes"], 2 * month["saves"])  # a file and a record
    assert "a month in the bucket: $" in said("du", run)
    assert told("analyze", run, "--steps", "1")["states"]
    said("report", run, "-o", tmp_path / "page.html", "--steps", "1")
    said("rollback", run, "--to", "20")
    said("add", run, "--step", "25", folders / "checkpoint-30")
    said("watch", run, folders, "--once", "--settle", "0")
    assert "rewrote" in said("prune", run, "--keep-last", "1")
    said("verify", run)
    said("repair", run)
    assert [entry["step"] for entry in told("log", run)] == [30]


def test_arguments_that_can_be_no_run_are_refused(run: str, folders: Path, tmp_path: Path) -> None:
    file = folders / "checkpoint-10" / "model.safetensors"
    said("add", run, "--step", "1", file)
    for arguments in (
        ("extract", run, "-o", "s3://bucket/x"),
        ("compress", "s3://bucket/x.safetensors"),
        ("compress", file, "-o", "s3://bucket/x.bsnap"),
        ("convert", run, "s3://bucket/x.pt"),
        ("convert", run, "s3://bucket/x", "--to", "hf"),
        ("watch", tmp_path / "run", "s3://bucket/x"),
        ("estimate", "s3://bucket/x"),
        ("log", "https://bucket/run"),
    ):
        assert ": is a" in said(*arguments, status=11, folder=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints"]
    assert "has no branches" in said("branch", f"{run}@1", "other", status=13)
    assert "no store found" in said("log", f"{run}-none", status=12)


def test_a_command_without_the_package_says_where_it_comes_from(run: str, tmp_path: Path) -> None:
    program = tmp_path / "bitsnap"
    program.write_bytes(find_program().read_bytes())
    program.chmod(0o755)
    done = subprocess.run([program, "log", run], capture_output=True, text=True, env={"PATH": "/usr/bin"})
    assert done.returncode == 13
    assert "pip install 'bitsnap[remote]'" in done.stderr


def test_what_agents_hold_is_shown(run: str) -> None:
    with bitsnap.Checkpointer(run) as checkpointer:
        checkpointer.save(1, {"w": np.ones(100_000, np.float32)})
        checkpointer.wait()
        assert told("agent", "status", run)["store"] == run
    said("agent", "stop", run)


def test_a_copy_in_a_bucket_follows_a_run_and_brings_it_back(run: str, folders: Path, tmp_path: Path) -> None:
    local, copy = tmp_path / "run", f"{run}-copy"
    said("ingest", local, folders)
    assert told("mirror", local, copy)["added"] == [10, 20, 30]
    assert "nothing to do" in said("mirror", local, copy)
    said("prune", local, "--keep-last", "2")
    assert told("mirror", local, copy, "--rate", "1000")["removed"] == [10]
    said("verify", copy)
    back = tmp_path / "back"
    assert told("mirror", f"{copy}@latest", back)["added"] == [30]
    said("add", back, "--step", "40", folders / "checkpoint-20")
    assert told("mirror", back, copy)["added"] == [40]
    assert [entry["step"] for entry in told("log", copy)] == [20, 30, 40]
    said("add", local, "--step", "40", folders / "checkpoint-10")
    assert "has step 40, which" in said("mirror", local, copy, status=11)
    assert "follows a whole run" in said("mirror", f"{local}@30", copy, "--watch", status=2)


def test_a_copy_is_watched_while_a_run_grows(run: str, folders: Path, tmp_path: Path) -> None:
    local = tmp_path / "run"
    said("ingest", local, folders / "checkpoint-10")
    arguments: list[str | Path] = [find_program(), "mirror", local, run, "--watch", "--poll", "0.2", "--json"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["added"] == [10]
        said("ingest", local, folders)
        found: list[int] = []
        while found[-1:] != [30]:
            found += json.loads(watching.stdout.readline())["added"]
        watching.terminate()
        assert watching.wait(60) == 0
    said("verify", run)


def test_a_copy_that_is_watched_stops_between_files(run: str, proxy: Proxy, folders: Path, tmp_path: Path) -> None:
    local = tmp_path / "run"
    for step in range(1, 31):
        said("add", local, "--step", str(step), folders / "checkpoint-10")
    proxy.slow_seconds = 0.3
    proxy.fault = lambda method, path: "slow" if method == "PUT" and "checkpoints" in path else None
    arguments: list[str | Path] = [find_program(), "mirror", local, run, "--watch"]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as watching:
        while not any("commit.json" in path for method, path in proxy.requests if method == "PUT"):
            time.sleep(0.05)
        watching.terminate()
        start = time.monotonic()
        assert watching.wait(60) == 0
        assert time.monotonic() - start < 5
        assert watching.stderr is not None
        assert f"{run}: stopped before it was like {local}" in watching.stderr.read()
    proxy.reset()
    assert 0 < len(told("log", run)) < 30
    said("verify", run)
    assert len(told("mirror", local, run)["added"]) < 30
    assert len(told("log", run)) == 30
