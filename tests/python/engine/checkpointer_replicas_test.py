"""Ranks of a bitsnap.Checkpointer that save equal states: the store has one file for all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import bitsnap
from cli.command_line import run, run_json
from python.engine.checkpointer_jobs import Jobs, saved
from python.engine.checkpointer_processes_test import IMPORTS
from python.processes import finish_script, start_script
from python.same_bits import assert_same

RANKS = 4


def on_disk(path: Path) -> tuple[int, int]:
    """The sizes of all files of a store, with each name counted, and with each file counted once."""
    sizes = [(file.stat().st_ino, file.stat().st_size) for file in path.rglob("*") if file.is_file()]
    return sum(size for _, size in sizes), sum(size for _, size in set(sizes))


def state_of(step: int) -> dict[str, object]:
    values = np.random.default_rng(1).standard_normal(200_000)
    values[step::5] += step
    return {"step": step, "w": values}


def test_equal_states_of_all_ranks_are_stored_once(jobs: Jobs) -> None:
    script = (
        IMPORTS
        + """
rank = int(sys.argv[3])
def state(step):
    values = np.random.default_rng(1).standard_normal(200_000)
    values[step::5] += step
    return {"step": step, "w": values}
settings = bitsnap.Settings(max_depth=2)
with attach(job=bitsnap.JobOptions(job, rank, 4), settings=settings, keep_last=4) as checkpointer:
    for step in range(1, 8):
        checkpointer.save(step, state(step)).wait_persisted()
"""
    )
    for process in [start_script(script, jobs.path, jobs.job, rank) for rank in range(RANKS)]:
        finish_script(process, 60)
    bitsnap.stop_agent(job=jobs.job, timeout=20)
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert store.steps() == [4, 5, 6, 7]
        store.verify()
        for step in store.steps():
            for rank in range(RANKS):
                assert_same(store.load(step, shard=rank), state_of(step))
        logged = sum(each.stored_bytes for each in store.checkpoints())
    with_names, stored = on_disk(jobs.path)
    assert stored < 1.02 * with_names / RANKS
    assert 0.98 * stored < logged + sum(each["bytes"] for each in run_json("du", jobs.path)["needed"]) < stored
    sizes = run_json("du", jobs.path)
    assert sum(role["stored_bytes"] for role in sizes["roles"].values()) + sizes["pool"]["stored_bytes"] < stored
    assert sizes["raw_bytes"] == RANKS * 4 * 200_000 * 8


def test_shards_do_not_name_their_bases(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run", shared=True) as store:
        for step in (1, 2):
            for rank in range(2):
                store.save_shard(step, state_of(step), shard=rank, shards=2, attempt="a1")
            assert store.commit(step, 2, "a1")
    (base,) = run_json("inspect", f"{tmp_path}/run@2", "--shard", 1)["bases"]
    assert base["name"] == ""
    lines = run("inspect", f"{tmp_path}/run@2", "--shard", 1).stdout.decode().splitlines()
    assert [line.split() for line in lines if line.startswith("base")] == [["base", base["id"]]]
    assert not any(line.endswith(" ") for line in lines)


def test_states_that_are_not_equal_are_stored_apart(jobs: Jobs) -> None:
    ranks = [jobs(job=bitsnap.JobOptions(jobs.job, rank, 2)) for rank in range(2)]
    states = [state_of(1) | {"rank": rank} for rank in range(2)]
    for save in [saved(each, 1, state) for each, state in zip(ranks, states, strict=True)]:
        assert save.wait_persisted()
    with_names, stored = on_disk(jobs.path)
    assert with_names == stored
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert [store.load(shard=rank)["rank"] for rank in range(2)] == [0, 1]
