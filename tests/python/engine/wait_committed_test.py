"""Waiting for a committed checkpoint by the path of its store alone, from any process."""

from __future__ import annotations

import multiprocessing
import pickle
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import bitsnap
from bitsnap._engine.steps import SavableSteps, _error_of
from python.engine.checkpointer_jobs import Jobs, paused, saved
from python.processes import finish_script, start_script
from python.run_states import state_of


def test_it_returns_when_the_step_is_committed(jobs: Jobs) -> None:
    with jobs() as checkpointer, ThreadPoolExecutor(2) as pool:
        checkpointer.reserve(state_of(1))
        with paused(jobs.agent()):
            save = saved(checkpointer, 1, state_of(1))
            waits = [
                pool.submit(bitsnap.wait_committed, jobs.path, 1, 30.0, job=jobs.job),
                pool.submit(bitsnap.wait_committed, str(jobs.path), 1),
            ]
            time.sleep(0.3)
            assert not any(wait.done() for wait in waits)
        for wait in waits:
            assert wait.result(30) is None
        assert save.wait_persisted()
        bitsnap.wait_committed(jobs.path, 1, 0)


def test_it_is_a_plain_function_without_torch_in_any_process(jobs: Jobs) -> None:
    assert pickle.loads(pickle.dumps(bitsnap.wait_committed)) is bitsnap.wait_committed
    script = """
import sys
import bitsnap
from bitsnap._engine.steps import _error_of
bitsnap.wait_committed(sys.argv[1], 7, 60.0, job=sys.argv[2])
print(bitsnap.Store(sys.argv[1], read_only=True).steps(), "torch" in sys.modules)
"""
    waiting = start_script(script, jobs.path, jobs.job)
    with jobs() as checkpointer:
        saved(checkpointer, 6, state_of(6)).result()
        saved(checkpointer, 7, state_of(7))
        children = []
        for method in ("fork", "spawn"):
            context: Any = multiprocessing.get_context(method)
            children.append(context.Process(target=bitsnap.wait_committed, args=(jobs.path, 7, 60.0)))
            children[-1].start()
        for child in children:
            child.join(60)
            assert child.exitcode == 0
    assert finish_script(waiting, 60) == "[6, 7] False\n"


def test_it_waits_for_a_store_that_is_made_later_by_any_means(tmp_path: Path) -> None:
    def write() -> None:
        time.sleep(0.2)
        with bitsnap.Store(tmp_path / "run") as store:
            store.save(1, {})
            time.sleep(0.2)
            store.save(2, {})

    writer = threading.Thread(target=write)
    writer.start()
    bitsnap.wait_committed(tmp_path / "run", 2, 30.0)
    assert bitsnap.Store(tmp_path / "run", read_only=True).latest() == 2
    writer.join()


def test_when_the_time_is_over_the_error_says_what_is_there(jobs: Jobs, tmp_path: Path) -> None:
    message = r"run: step 3 was not committed within 0\.05 s; there is no store yet, and job '.*' has no agent on this"
    with pytest.raises(bitsnap.BusyError, match=message):
        bitsnap.wait_committed(tmp_path / "run", 3, 0.05)
    with jobs() as checkpointer:
        saved(checkpointer, 1, state_of(1)).result()
        jobs.wait_until_idle()
        message = r"step 3 was not committed within 0 s; the newest step of the store is 1, and .* process \d+, is idle"
        with pytest.raises(bitsnap.BusyError, match=message):
            bitsnap.wait_committed(jobs.path, 3, 0, job=jobs.job)
        with paused(jobs.agent()):
            begin = time.monotonic()
            with pytest.raises(
                bitsnap.BusyError, match=r"the newest step of the store is 1, and the agent of job .* does"
            ):
                bitsnap.wait_committed(jobs.path, 3, 0.5, job=jobs.job)
            assert time.monotonic() - begin < 25
        with pytest.raises(bitsnap.BusyError, match=r"and the agent of job .* saves to .*/run"):
            bitsnap.wait_committed(tmp_path / "other", 3, 0, job=jobs.job)


def test_a_step_that_failed_raises_the_error_of_the_save(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SavableSteps, "check", lambda *_: None)  # as if another process saved step 5
    with jobs() as checkpointer:
        saved(checkpointer, 5, state_of(5)).result()
        with paused(jobs.agent()):
            save = saved(checkpointer, 3, state_of(3))
            with pytest.raises(bitsnap.BusyError, match=r"step of the store is 5, and the agent .* does not say more"):
                bitsnap.wait_committed(jobs.path, 3, 2.5, job=jobs.job)
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"run: step 3 failed: .*greater than 5") as caught:
            bitsnap.wait_committed(jobs.path, 3, 60.0, job=jobs.job)
        with pytest.raises(bitsnap.InvalidArgumentError, match="greater than 5"):
            save.result()  # this process may hear of it later than wait_committed() did
        assert type(caught.value) is type(save.error)
        assert str(save.error) in str(caught.value)
        with pytest.raises(bitsnap.InvalidArgumentError):
            checkpointer.wait()
    with jobs(job=bitsnap.JobOptions(name=jobs.job)) as checkpointer:  # a new trainer begins anew
        with pytest.raises(bitsnap.NotFoundError, match="step 3 is not in the store, which has the later step 5"):
            bitsnap.wait_committed(jobs.path, 3, 60.0, job=jobs.job)
        with pytest.raises(bitsnap.BusyError):
            bitsnap.wait_committed(jobs.path, 8, 0, job=jobs.job)


def test_the_kind_and_code_of_an_error_are_kept() -> None:
    report = {"stage": "failed", "step": 1, "kind": "io", "code": "no_space", "message": "the disk is full"}

    error = _error_of("run: step 1 failed", report)
    assert isinstance(error, bitsnap.IoError)
    assert error.code == "no_space"
    assert str(error) == "run: step 1 failed: the disk is full"
    assert type(_error_of("x", report | {"kind": "new", "code": ""})) is bitsnap.InternalError


def test_a_step_that_not_all_ranks_saved_raises(jobs: Jobs) -> None:
    ranks = [jobs(job=bitsnap.JobOptions(jobs.job, rank, 2)) for rank in (0, 1)]
    saved(ranks[0], 1, state_of(1))
    with pytest.raises(bitsnap.BusyError, match=r"waits for ranks beside \[0\]|works on saves"):
        bitsnap.wait_committed(jobs.path, 1, 1.0, job=jobs.job)
    for rank in ranks:
        saved(rank, 2, state_of(2))
    with pytest.raises(bitsnap.BusyError, match=r"step 1 was skipped: .*not all ranks saved it"):
        bitsnap.wait_committed(jobs.path, 1, 30.0, job=jobs.job)
    bitsnap.wait_committed(jobs.path, 2, 30.0, job=jobs.job)
    for rank in ranks:
        rank.wait()


def test_a_step_that_was_removed_since_was_committed(jobs: Jobs) -> None:
    with jobs(keep_last=1) as checkpointer:
        for step in (1, 2, 3):
            saved(checkpointer, step, state_of(step)).result()
        deadline = time.monotonic() + 10
        while (left := bitsnap.Store(jobs.path, read_only=True).steps()) != [3]:
            assert time.monotonic() < deadline, left
        bitsnap.wait_committed(jobs.path, 1, 0, job=jobs.job)
    bitsnap.stop_agent(job=jobs.job)
    with pytest.raises(bitsnap.NotFoundError, match="later step 3: it was removed, or was never committed"):
        bitsnap.wait_committed(jobs.path, 1, 60.0, job=jobs.job)


def test_the_agent_lists_the_newest_saves_that_ended(jobs: Jobs) -> None:
    with jobs(every=2, every_memory=1, keep_last=1) as checkpointer:
        for step in range(1, 133):
            saved(checkpointer, step, {"x": step}).result()
        ended = checkpointer.agent_status()["ranks"][0]["ended"]
    assert [save["step"] for save in ended] == list(range(6, 133, 2))
    assert {save["stage"] for save in ended} == {"persisted"}
    assert ended[-1] == {"step": 132, "stage": "persisted", "kind": "", "code": "", "message": ""}


def test_wrong_arguments_and_stores_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    job = f"none-{secrets.token_hex(4)}"
    for path, step, timeout, error in [
        (tmp_path / "none" / "run", 1, 60.0, bitsnap.NotFoundError),
        ("", 1, 60.0, bitsnap.InvalidArgumentError),
        (tmp_path / "run", -1, 60.0, bitsnap.InvalidArgumentError),
        (tmp_path / "run", "1", 60.0, TypeError),
        (tmp_path / "run", 1, -1, bitsnap.InvalidArgumentError),
        (tmp_path / "run", 1, "1", TypeError),
    ]:
        with pytest.raises(error):
            bitsnap.wait_committed(path, step, timeout, job=job)  # type: ignore[arg-type]
    with pytest.raises(bitsnap.InvalidArgumentError, match="job must have 1 to"):
        bitsnap.wait_committed(tmp_path / "run", 1, 60.0, job="no job")
