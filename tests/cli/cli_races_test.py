"""Raw checkpoints that a training changes or writes anew while they are being deleted, and the inside of runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cli.cli_ingest_test import DELETE, events, steps
from cli.command_line import INVALID_ARGUMENT, IO, OK, executable, run
from cli.raw_checkpoints import data, read, write_checkpoint

HOOKS = Path(__file__).with_name("preload_hooks.c")


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that runs a shell command between two system calls of the command."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("hooks") / "hooks.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, HOOKS, "-ldl"], check=True)
    return library


def disturbed(hooks: Path, cwd: Path, run_folder: Path, *shell: str) -> str:
    """Ingests `checkpoints` with deletion: shell[0] runs before the rename, shell[1] after it. Returns its lines."""
    names = dict(zip(("AT_SYNC", "AFTER_RENAME"), shell, strict=False))
    environment = {"LD_PRELOAD": str(hooks), "ASAN_OPTIONS": "verify_asan_link_order=0", **names}
    done = run("ingest", run_folder, "checkpoints", DELETE, cwd=cwd, environment=environment)
    return done.stderr.decode()


# One other byte at the same length, with the old time.
REWRITE = "touch -r {0} old && printf X | dd of={0} conv=notrunc bs=1 count=1 2>/dev/null && touch -r old {0}"


@pytest.mark.parametrize("name", ["model-step-5.bin", "checkpoint-5/model.bin"], ids=["file", "folder"])
@pytest.mark.parametrize("age", [0, 3600])
def test_a_file_that_is_rewritten_with_its_old_time_is_not_deleted(
    tmp_path: Path, hooks: Path, name: str, age: int
) -> None:
    path = tmp_path / "checkpoints" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(data(5, "model"))
    os.utime(path, (path.stat().st_mtime - age,) * 2)
    lines = disturbed(hooks, tmp_path, tmp_path / "run", REWRITE.format(f"checkpoints/{name}"))
    assert "stays, it changed while it was compared" in lines
    assert path.read_bytes() == b"X" + data(5, "model")[1:]
    assert [each.name for each in (tmp_path / "checkpoints").iterdir()] == [name.split("/")[0]]


@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
def test_a_changed_checkpoint_replaces_no_newer_one(tmp_path: Path, hooks: Path, is_folder: bool) -> None:
    folder = tmp_path / "checkpoints"
    name = "checkpoint-5" if is_folder else "model-step-5.bin"
    inner = f"{name}/model.bin" if is_folder else name
    (folder / inner).parent.mkdir(parents=True)
    (folder / inner).write_bytes(b"first")
    second = f"rm -r checkpoints/{name} && mkdir -p $(dirname checkpoints/{inner}) && echo second > checkpoints/{inner}"
    third = f"mkdir -p $(dirname checkpoints/{inner}) && echo third > checkpoints/{inner}"
    lines = disturbed(hooks, tmp_path, tmp_path / "run", second, third)
    assert "was written anew meanwhile; the one before is" in lines
    assert (folder / inner).read_bytes() == b"third\n"
    assert (folder / f".{inner.replace(name, name + '.deleting', 1)}").read_bytes() == b"second\n"
    # Nothing was lost, and nothing is at the next call.
    run("ingest", tmp_path / "run", "checkpoints", DELETE, cwd=tmp_path, status=INVALID_ARGUMENT)
    assert (folder / inner).read_bytes() == b"third\n"


def test_an_undisturbed_checkpoint_is_deleted(tmp_path: Path, hooks: Path) -> None:
    write_checkpoint(tmp_path / "checkpoints", "transformers", 5)
    assert "deleted" in disturbed(hooks, tmp_path, tmp_path / "run", "true", "true")
    assert read(tmp_path / "checkpoints") == {}


def test_the_inside_of_a_run_is_no_history(tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(b"content")
    for step in (1, 2):
        run("add", tmp_path / "run", "--step", step, tmp_path / "content")
    inside = tmp_path / "run" / "checkpoints"
    before = read(tmp_path / "run")
    other = tmp_path / "other"
    for arguments in (
        ("ingest", other, inside, DELETE),
        ("ingest", other, inside / "0000000001", DELETE),
        ("ingest", other, tmp_path / "run", DELETE),
        ("watch", other, inside, "--once", "--settle", 0, DELETE, "--keep-raw", 0),
        ("watch", other, tmp_path / "run", "--once", "--settle", 0, DELETE, "--keep-raw", 0),
        ("add", other, "--step", 1, inside / "0000000001"),
        ("compress", inside / "0000000001", "-o", tmp_path / "x.bsnap"),
    ):
        assert b"run" in run(*arguments, status=INVALID_ARGUMENT).stderr, arguments
    assert read(tmp_path / "run") == before
    assert not other.exists()


def test_a_run_inside_a_checkpoint_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    write_checkpoint(folder, "transformers", 7)
    (tmp_path / "content").write_bytes(b"content")
    run("add", folder / "checkpoint-7" / "nested", "--step", 1, tmp_path / "content")
    done = events("ingest", tmp_path / "run", folder, DELETE)
    assert [(event["event"], event["reason"]) for event in done] == [("skipped", "it contains the run nested")]
    assert steps(folder / "checkpoint-7" / "nested") == [1]
    run("add", tmp_path / "run", "--step", 7, folder / "checkpoint-7", status=INVALID_ARGUMENT)


def test_watch_says_once_why_it_skips_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    write_checkpoint(folder, "transformers", 7)
    (folder / "best").mkdir()
    (folder / "tmp-checkpoint-8").mkdir()
    (folder / "step-9").symlink_to(folder / "checkpoint-7")
    done = events("watch", tmp_path / "run", folder, "--once", "--settle", "0.3", "--poll", "0.05")
    skipped = sorted((Path(e["input"]).name, e["reason"]) for e in done if e["event"] == "skipped")
    assert skipped == [("best", "its name has no step"), ("step-9", "it is a symbolic link")]


@pytest.mark.parametrize("url", ["hf://a/b", "https://host/x.pt", "file:///tmp/x"])
def test_no_command_takes_a_url_for_a_path(tmp_path: Path, url: str) -> None:
    (tmp_path / "x.bin").write_bytes(b"content")
    for arguments in (
        ("add", url, "--step", 1, "x.bin"),
        ("add", "run", "--step", 1, url),
        ("ingest", url, "x.bin"),
        ("watch", url, ".", "--once"),
        ("compress", "x.bin", "-o", url),
        ("convert", "x.bin", url, "--to", "torch"),
        ("extract", f"{url}@1"),
        ("log", url),
        ("verify", "x.bin", url),
        ("compress", "x.bin", "--base", url),
        ("agent", "status", url),
    ):
        done = run(*arguments, status=INVALID_ARGUMENT, cwd=tmp_path)
        assert f"{url}".encode() in done.stderr, arguments
        assert b"is a URL" in done.stderr, arguments
    assert [path.name for path in tmp_path.iterdir()] == ["x.bin"]


def test_a_limit_of_file_sizes_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(os.urandom(300_000))
    command = f"ulimit -f 100; exec {executable()} add run --step 1 x.bin"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == IO, done.stderr
    assert b"file too large" in done.stderr
    run("add", tmp_path / "run", "--step", 1, tmp_path / "x.bin", status=OK)
