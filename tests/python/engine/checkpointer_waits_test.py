"""How long a Checkpointer waits: for an agent that is stopped, and for ranks that do not come."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import bitsnap
from python.engine.checkpointer_jobs import Jobs, paused, saved
from python.processes import finish_script, start_script
from python.run_states import state_of
from python.same_bits import assert_same


def test_restore_takes_no_longer_than_its_timeout_if_the_agent_is_stopped(jobs: Jobs) -> None:
    checkpointer = jobs(timeout=2.0)
    saved(checkpointer, 1, state_of(1)).result(30)
    with paused(jobs.agent()):
        begin = time.monotonic()
        with pytest.warns(bitsnap.RestoreWarning, match="stopped by a signal") as caught:
            restored = checkpointer.restore()
        assert time.monotonic() - begin < 25  # and not the 30 s after which an agent counts as frozen
        assert len(caught) == 1
        assert restored is not None
        assert (restored.step, restored.source) == (1, "store")
        assert_same(restored.state, state_of(1))
        begin = time.monotonic()
        with pytest.warns(bitsnap.RestoreWarning, match="kill -CONT"):
            restored = checkpointer.restore(1)
        assert time.monotonic() - begin < 25  # and not the 30 s after which an agent counts as frozen
        assert restored is not None
        assert restored.source == "store"
    restored = checkpointer.restore()
    assert restored is not None
    assert restored.source == "memory"


def test_a_stopped_agent_ends_the_constructor_with_what_to_do(jobs: Jobs) -> None:
    with jobs():
        pass
    process = jobs.agent()
    with paused(process):
        begin = time.monotonic()
        with pytest.raises(bitsnap.BusyError, match=f"process {process}, .*stopped.*'kill -CONT {process}'"):
            jobs(timeout=1.0)
        assert time.monotonic() - begin < 25


@pytest.mark.slow
def test_a_stopped_agent_ends_the_constructor_long_before_the_timeout(jobs: Jobs) -> None:
    with jobs():
        pass
    with paused(jobs.agent()):
        begin = time.monotonic()
        with pytest.raises(bitsnap.BusyError, match="kill -CONT"):
            jobs(timeout=600.0)
        assert time.monotonic() - begin < 45


GROUP = """
import sys, time, warnings
import numpy as np, torch, bitsnap
path, job, rank, meeting = *sys.argv[1:3], int(sys.argv[3]), sys.argv[4]
torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
def attach(timeout=30, **options):
    return bitsnap.Checkpointer(path, job=bitsnap.JobOptions(job, **options), timeout=timeout,
                                agent=bitsnap.AgentOptions(threads=1, linger=20))
def gives_up(call, action):
    begin = time.monotonic()
    try:
        call()
    except bitsnap.BusyError as error:
        assert f"1 of 2 ranks (1) did not {action} within 1 s" in str(error), error
        assert "JobOptions(rank=0, world_size=1)" in str(error), error
    else:
        raise AssertionError("did not give up")
    assert time.monotonic() - begin < 60  # and not after the timeout of another call
"""


@pytest.mark.slow
def test_a_rank_that_is_alone_gives_up_and_may_try_again(jobs: Jobs, tmp_path: Path) -> None:
    script = (
        GROUP
        + """
if rank == 0:
    gives_up(lambda: attach(timeout=1), "create a Checkpointer")
# The collectives of the training are not disturbed.
value = torch.tensor([rank + 1])
torch.distributed.all_reduce(value)
assert value.item() == 3
checkpointer = attach(timeout=120)  # a second would not always do on a busy machine
if rank == 0:
    checkpointer._restoring._timeout_ms = 1000
    gives_up(checkpointer.restore, "call restore()")
    checkpointer._restoring._timeout_ms = 120_000
torch.distributed.barrier()
assert checkpointer.restore() is None
checkpointer.save(1, {"rank": rank, "w": np.full(1000, 1)}).wait_persisted(120)
torch.distributed.barrier()
assert checkpointer.restore().state["rank"] == rank
checkpointer.close()
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""
    )
    for number, meeting in enumerate((f"file://{tmp_path}/meeting", "tcp://127.0.0.1:29541")):
        folder = tmp_path / str(number)
        folder.mkdir()
        job = jobs.new_job()
        ranks = [start_script(script, folder / "run", job, rank, meeting) for rank in (0, 1)]
        assert [finish_script(rank, 250) for rank in ranks] == ["", ""]


@pytest.mark.slow
def test_one_rank_may_save_alone_if_it_says_so(jobs: Jobs, tmp_path: Path) -> None:
    script = (
        GROUP
        + """
if rank == 0:
    with attach(rank=0, world_size=1) as checkpointer:
        assert checkpointer.restore() is None
        checkpointer.save(1, {"w": np.full(1000, 1)})
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""
    )
    meeting = f"file://{tmp_path}/meeting"
    ranks = [start_script(script, jobs.path, jobs.job, rank, meeting) for rank in (0, 1)]
    assert [finish_script(rank, 250) for rank in ranks] == ["", ""]
