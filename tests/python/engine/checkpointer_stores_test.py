"""bitsnap.Checkpointer on stores that cannot be written: by a mistake of the caller, or because of the disk."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import bitsnap
from python.engine.checkpointer_jobs import Jobs, saved
from python.processes import in_fork, run_script
from python.run_states import state_of
from python.same_bits import assert_same


def missing_parent(folder: Path) -> Path:
    return folder / "none" / "run"


def not_a_store(folder: Path) -> Path:
    (folder / "photos").mkdir()
    (folder / "photos" / "1.jpg").write_bytes(b"x")
    return folder / "photos"


def a_file(folder: Path) -> Path:
    (folder / "file").write_bytes(b"x")
    return folder / "file"


def dangling_link(folder: Path) -> Path:
    (folder / "link").symlink_to(folder / "gone" / "run")
    return folder / "link"


def nobody_may_write(folder: Path) -> Path:
    return Path("/sys/fs/bitsnap-of-a-test")  # not even root makes a directory there


@pytest.mark.parametrize("make", [missing_parent, not_a_store, a_file, dangling_link, nobody_may_write])
def test_a_mistake_in_the_path_raises_what_a_store_raises(jobs: Jobs, tmp_path: Path, make: object) -> None:
    assert callable(make)
    path = make(tmp_path)
    with pytest.raises(bitsnap.BitsnapError) as of_store:
        bitsnap.Store(path)
    with pytest.raises(type(of_store.value)) as caught:
        jobs(path=path)
    assert str(caught.value) == str(of_store.value)
    with pytest.raises(bitsnap.NotFoundError):  # no agent was started
        jobs.agent()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the superuser, to become a user without rights")
def test_a_missing_right_raises_at_once(jobs: Jobs, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    with bitsnap.Store(jobs.path):
        pass

    # No agent is started, and the user may not read the command.
    agent = bitsnap.AgentOptions(command="/bin/false")

    def attach() -> None:
        os.setuid(65534)
        for options in (
            {"job": bitsnap.JobOptions(jobs.job)},
            {"job": bitsnap.JobOptions(jobs.job, rank=0, world_size=2)},
            {"path": tmp_path / "new"},
        ):
            with pytest.raises(bitsnap.IoError, match="permission denied"):
                jobs(agent=agent, **options)

    assert in_fork(attach) == 0


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """A tmpfs; skips the test where nothing may be mounted."""
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options) or "rw", "bitsnap-test", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"may not mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(filler: Path) -> None:
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def expect_kept_in_memory(checkpointer: bitsnap.Checkpointer, step: int, code: str) -> None:
    save = saved(checkpointer, step, state_of(step))
    assert save.wait_memory()
    with pytest.raises(bitsnap.IoError) as caught:
        save.wait_persisted()
    assert caught.value.code == code
    with pytest.raises(bitsnap.IoError):
        checkpointer.wait()
    restored = checkpointer.restore()
    assert restored is not None
    assert (restored.step, restored.source) == (step, "memory")
    assert_same(restored.state, state_of(step))


@pytest.mark.filterwarnings("ignore::bitsnap.BackgroundSaveWarning", "ignore::bitsnap.RestoreWarning")
@pytest.mark.parametrize("has_store", [False, True])
def test_states_stay_in_memory_while_the_disk_is_read_only(jobs: Jobs, tmp_path: Path, has_store: bool) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk):
        if has_store:
            with bitsnap.Store(disk / "run") as store:
                store.save(1, state_of(1))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        checkpointer = jobs(path=disk / "run")
        if has_store:
            restored = checkpointer.restore()
            assert restored is not None
            assert (restored.step, restored.source) == (1, "store")
        else:
            assert checkpointer.restore() is None
        expect_kept_in_memory(checkpointer, 2, "read_only")
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        assert saved(checkpointer, 3, state_of(3)).wait_persisted()
        checkpointer.close()
        bitsnap.stop_agent(job=jobs.job)


@pytest.mark.filterwarnings("ignore::bitsnap.BackgroundSaveWarning", "ignore::bitsnap.RestoreWarning")
@pytest.mark.parametrize("has_store", [False, True])
def test_states_stay_in_memory_while_the_disk_is_full(jobs: Jobs, tmp_path: Path, has_store: bool) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, "size=1m"):
        if has_store:
            with bitsnap.Store(disk / "run"):
                pass
        filler = disk / "filler"
        fill(filler)
        checkpointer = jobs(path=disk / "run")
        expect_kept_in_memory(checkpointer, 1, "no_space")
        filler.unlink()
        assert saved(checkpointer, 2, state_of(2)).wait_persisted()
        checkpointer.close()
        bitsnap.stop_agent(job=jobs.job)


def test_files_get_the_permissions_of_the_trainer_that_is_there(jobs: Jobs) -> None:
    script = """
import os, sys, bitsnap
os.umask(int(sys.argv[1], 8))
checkpointer = bitsnap.Checkpointer(sys.argv[2], job=bitsnap.JobOptions(name=sys.argv[3]),
                                    agent=bitsnap.AgentOptions(threads=1, linger=60.0))
checkpointer.save(int(sys.argv[4]), {"a": 1})
checkpointer.close()
"""
    for step, (mask, mode) in enumerate([("077", 0o600), ("002", 0o664), ("027", 0o640)], start=1):
        run_script(script, mask, jobs.path, jobs.job, step)
        files = [path for path in (jobs.path / "checkpoints" / f"{step:010d}").iterdir() if path.is_file()]
        assert files
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {mode}, mask
