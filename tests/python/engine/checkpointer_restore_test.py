"""Restoring the states of a bitsnap.Checkpointer in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from bitsnap.state import load
from python.engine.checkpointer_jobs import Jobs, saved
from python.processes import run_script
from python.run_states import Run, frozen, state_of
from python.same_bits import assert_same


def test_a_fresh_run_has_nothing_to_restore(jobs: Jobs) -> None:
    with jobs() as checkpointer:
        assert checkpointer.restore() is None
        assert checkpointer.steps() == []
        assert checkpointer.latest() is None
        with pytest.raises(bitsnap.NotFoundError):
            checkpointer.restore(3)


def test_the_newest_state_comes_from_memory_and_an_old_one_from_the_store(jobs: Jobs) -> None:
    with jobs(memory=bitsnap.MemoryOptions(snapshots=1)) as checkpointer:
        for step in (1, 2, 3, 4):
            saved(checkpointer, step, state_of(step)).result()
    with jobs() as checkpointer:
        newest = checkpointer.restore()
        assert newest is not None
        assert (newest.step, newest.source) == (4, "memory")
        assert_same(newest.state, state_of(4))
    bitsnap.stop_agent(job=jobs.job, timeout=20)
    with jobs() as checkpointer:
        old = checkpointer.restore(2)
        assert old is not None
        assert (old.step, old.source) == (2, "store")
        assert_same(old.state, state_of(2))


@pytest.mark.parametrize("source", ["memory", "store"])
def test_a_state_is_restored_into_the_tensors_that_are_there(jobs: Jobs, source: str) -> None:
    run = Run()
    state = frozen(run.advance(2))
    with jobs() as checkpointer:
        saved(checkpointer, 2, state).result()
        if source == "store":
            bitsnap.stop_agent(job=jobs.job, timeout=20)
        into = frozen(run.advance())
        places = {name: tensor.data_ptr() for name, tensor in into["model"].items()}
        restored = checkpointer.restore(into=into)
        assert restored is not None
        assert restored.source == source
        assert_same(restored.state, state)
        assert {name: tensor.data_ptr() for name, tensor in restored.state["model"].items()} == places
        part = checkpointer.restore(keys="optimizer")
        assert part is not None
        assert_same(part.state, {"optimizer": state["optimizer"]})
        with pytest.raises(bitsnap.NotFoundError, match="nothing under 'nowhere'"):
            checkpointer.restore(keys=["nowhere"])
        with pytest.raises(bitsnap.InvalidArgumentError, match="wte"):
            checkpointer.restore(into={"model": {"wte": torch.zeros(3)}}, strict=False)


def test_a_damaged_newest_step_is_passed_over_for_the_one_before(jobs: Jobs) -> None:
    with jobs(settings=bitsnap.Settings(max_depth=0)) as checkpointer:
        for step in (1, 2, 3):
            saved(checkpointer, step, {"w": np.random.default_rng(step).standard_normal(50_000)}).result()
    bitsnap.stop_agent(job=jobs.job, timeout=20)
    (file,) = (jobs.path / "checkpoints" / "0000000003").glob("*.bsnap")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with jobs() as checkpointer:
        with pytest.warns(bitsnap.RestoreWarning, match="step 3 cannot be restored"):
            restored = checkpointer.restore()
        assert restored is not None
        assert (restored.step, restored.source) == (2, "store")
        with pytest.raises(bitsnap.CorruptError):
            checkpointer.restore(fallback=False)
        with pytest.raises(bitsnap.CorruptError):
            checkpointer.restore(3)


def test_too_many_open_files_are_no_damage(jobs: Jobs) -> None:
    weights = np.random.default_rng(1).standard_normal(20_000, np.float32)
    with jobs() as checkpointer:
        for step in range(1, 13):  # reading the newest opens several files
            weights += np.float32(0.01)
            saved(checkpointer, step, {"w": weights.copy()}).result()
    bitsnap.stop_agent(job=jobs.job, timeout=20)
    run_script(
        """
import os, resource, sys, warnings
import bitsnap, torch
checkpointer = bitsnap.Checkpointer(
    sys.argv[1], job=bitsnap.JobOptions(name=sys.argv[2]), agent=bitsnap.AgentOptions(linger=0)
)
before = resource.getrlimit(resource.RLIMIT_NOFILE)
refused = 0
for more in range(8):
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + more, before[1]))
    try:
        with warnings.catch_warnings(action="ignore"):  # that memory cannot be read
            step = checkpointer.restore().step
    except bitsnap.IoError as error:
        assert "too many open files" in str(error), error
        refused += 1
    else:
        assert step == 12, (more, step)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
assert refused > 0
assert checkpointer.restore().step == 12
checkpointer.close()
""",
        jobs.path,
        jobs.job,
    )


def test_an_unreadable_store_is_not_taken_for_a_fresh_run(jobs: Jobs) -> None:
    with jobs(every=2, every_memory=1) as checkpointer:
        saved(checkpointer, 2, state_of(2)).result()
        saved(checkpointer, 3, state_of(3)).result()
        (identity,) = (path for path in jobs.path.iterdir() if path.suffix == ".json")
        content = identity.read_bytes()
        identity.write_bytes(b"{" + content)
        with pytest.warns(bitsnap.RestoreWarning, match="the store cannot be read"):
            restored = checkpointer.restore()
        assert restored is not None
        assert restored.step == 3
    bitsnap.stop_agent(job=jobs.job, timeout=20)
    with pytest.raises(bitsnap.CorruptError, match=str(jobs.path)):
        jobs()
    identity.write_bytes(content)
    with jobs() as checkpointer:
        identity.write_bytes(b"{" + content)
        with pytest.raises(bitsnap.BitsnapError, match=str(jobs.path)):
            checkpointer.restore()


def test_a_state_that_is_damaged_in_memory_is_read_from_the_store(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def load_second(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise bitsnap.CorruptError("a bit has flipped")
        return load(*arguments, **options)

    with jobs() as checkpointer:
        saved(checkpointer, 1, state_of(1)).result()
        monkeypatch.setattr("bitsnap.checkpointer.load", load_second)
        with pytest.warns(bitsnap.RestoreWarning, match="a bit has flipped"):
            restored = checkpointer.restore()
        assert restored is not None
        assert restored.source == "store"
        assert_same(restored.state, state_of(1))


def test_a_restart_with_another_number_of_ranks_says_how_to_read_the_shards(jobs: Jobs) -> None:
    def ranks(world_size: int) -> list[bitsnap.Checkpointer]:
        places = [bitsnap.JobOptions(jobs.job, rank=rank, world_size=world_size) for rank in range(world_size)]
        return [jobs(job=place, every=2, every_memory=1) for place in places]

    def save_all(checkpointers: list[bitsnap.Checkpointer], step: int) -> None:
        for save in [saved(each, step, {"rank": each.rank, "step": step}) for each in checkpointers]:
            save.result()
        for each in checkpointers:
            each.close()

    save_all(ranks(2), 2)
    (alone,) = ranks(1)
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"saved by 2 ranks.*Store.load\(2, shard=1\)"):
        alone.restore()
    alone.close()
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert [store.load(2, shard=rank)["rank"] for rank in (0, 1)] == [0, 1]
    # A state of one rank serves any number of them.
    bitsnap.stop_agent(job=jobs.job, timeout=20)
    save_all(ranks(1), 4)
    for each in ranks(2):
        restored = each.restore()
        assert restored is not None
        assert (restored.step, restored.source, restored.state) == (4, "store", {"rank": 0, "step": 4})
        each.close()


def ranks_of(jobs: Jobs, world_size: int, absent: int = 0) -> list[bitsnap.Checkpointer]:
    """Save to memory alone."""
    places = [bitsnap.JobOptions(jobs.job, rank=rank, world_size=world_size) for rank in range(world_size - absent)]
    return [jobs(job=place, every=1000, every_memory=1) for place in places]


def save_to_memory(checkpointers: list[bitsnap.Checkpointer], step: int) -> None:
    for save in [saved(each, step, {"rank": each.rank, "step": step}) for each in checkpointers]:
        save.wait_memory()
    for each in checkpointers:
        each.close()


def test_memory_of_another_number_of_ranks_is_stored_and_restored(jobs: Jobs) -> None:
    save_to_memory(ranks_of(jobs, 1), 6)
    save_to_memory(ranks_of(jobs, 1), 7)
    for each, step in zip(ranks_of(jobs, 2), (None, 7), strict=True):
        restored = each.restore(step)
        assert restored is not None
        assert (restored.step, restored.source, restored.state) == (7, "store", {"rank": 0, "step": 7})
        each.close()
    save_to_memory(ranks_of(jobs, 2), 8)
    (alone,) = ranks_of(jobs, 1)
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"saved by 2 ranks.*Store.load\(8, shard=1\)"):
        alone.restore()
    assert alone.steps() == [7, 8]
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert [store.load(8, shard=rank)["rank"] for rank in (0, 1)] == [0, 1]


def test_memory_of_another_number_of_ranks_is_not_dropped_in_silence(jobs: Jobs) -> None:
    save_to_memory(ranks_of(jobs, 3, absent=1), 7)
    lost = "step 7 was saved with world_size = 3 .* world_size = 2: no agent that is alive has the states of ranks 2$"
    first, second = ranks_of(jobs, 2)
    with pytest.warns(bitsnap.RestoreWarning, match=lost):
        assert first.restore() is None
    with pytest.warns(bitsnap.RestoreWarning, match=lost), pytest.raises(bitsnap.InvalidArgumentError, match="step 7"):
        first.restore(7)
    saved(first, 1, {}).wait_memory()
    with pytest.warns(bitsnap.RestoreWarning, match="begun to save"):
        assert second.restore() is None
    # Ranks of several machines that cannot communicate could choose different steps.
    bitsnap.stop_agent(job=jobs.job, timeout=20)
    first.close()
    second.close()
    save_to_memory(ranks_of(jobs, 1), 7)
    apart = jobs(job=bitsnap.JobOptions(jobs.job, rank=0, world_size=2, session="s"), every_memory=1)
    with pytest.warns(bitsnap.RestoreWarning, match=r"through torch\.distributed$"):
        assert apart.restore() is None
