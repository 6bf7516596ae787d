"""Branches of bitsnap.Store, their addresses, and trainings that save to a branch."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
import bitsnap.torch
from python.engine.checkpointer_jobs import Jobs
from python.processes import run_script, start_script
from python.rank_processes import Ranks as Processes, ranks as started
from python.same_bits import assert_same


def state_of(step: int, seed: int = 0) -> dict[str, Any]:
    values = np.random.default_rng(seed).standard_normal(5000)
    values[step % 5000] = step
    return {"step": step, "w": values}


def made_run(path: Path, steps: int = 4) -> Path:
    with bitsnap.Store(path) as store:
        for step in range(1, steps + 1):
            store.save(step, state_of(step))
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made_run(tmp_path / "run")


def steps_of(path: object) -> list[int]:
    with bitsnap.Store(str(path), read_only=True) as store:
        return store.steps()


def test_a_branch_begins_with_a_step_and_goes_its_own_way(run: Path) -> None:
    with bitsnap.Store(run) as store:
        made = store.branch("lr2", 2)
        assert (made.name, made.checkpoints, made.newest, made.copied_bytes) == ("lr2", 1, 2, 0)
        assert made.origin == store.branches()[0].origin
        assert made.origin is not None
        assert (made.origin.run_id, made.origin.branch, made.origin.step) == (store.run_id, "", 2)
        store.rollback(1)
        store.save(2, state_of(2, seed=7))
    with bitsnap.Store(f"{run}:lr2") as branch:
        assert branch.path == run / "branches" / "lr2"
        assert branch.run_id != made.origin.run_id
        assert_same(branch.load(), state_of(2))
        branch.save(3, state_of(3, seed=9))
        assert branch.branch("lr3").origin.branch == "lr2"  # type: ignore[union-attr]
        assert [each.name for each in branch.branches()] == ["lr2", "lr3"]
    assert steps_of(run) == [1, 2]
    assert_same(bitsnap.load(f"{run}:lr3@3"), state_of(3, seed=9))


def test_a_read_only_store_makes_branches_beside_a_writer(run: Path) -> None:
    with bitsnap.Store(run) as writer, bitsnap.Store(run, read_only=True) as reader:
        assert reader.branch("b").newest == 4
        writer.save(5, state_of(5))
    assert steps_of(f"{run}:b") == [4]


def test_a_rollback_can_keep_what_it_removes(run: Path) -> None:
    with bitsnap.Store(run) as store:
        store.label(3, "best")
        assert store.rollback(2, keep_as="was").removed == [4, 3]
        assert store.rollback(2, keep_as="nothing").removed == []
        assert [each.name for each in store.branches()] == ["was"]
        with pytest.raises(bitsnap.InvalidArgumentError, match="exists already"):
            store.rollback(1, keep_as="was")
        assert store.steps() == [1, 2]
    assert steps_of(f"{run}:was") == [2, 3, 4]
    assert_same(bitsnap.load(f"{run}:was@best"), state_of(3))


def test_checkpoints_are_loaded_by_their_names(run: Path) -> None:
    with bitsnap.Store(run) as store:
        store.branch("b", 2)
        store.label(3, "a@b:c")
    for name, step in {
        "@4": 4,
        "@latest": 4,
        "@-1": 4,
        "@-3": 2,
        "@a@b:c": 3,
        ":b@2": 2,
        ":b@latest": 2,
    }.items():
        assert_same(bitsnap.load(f"{run}{name}"), state_of(step))
    for name, message in {
        ":c@2": "has no branch 'c'; its branches: 'b'",
        ":b@4": "nearby is 2",
        "@no": "label",
        "@-5": "the run has 4 checkpoints",
    }.items():
        with pytest.raises(bitsnap.NotFoundError, match=message):
            bitsnap.load(f"{run}{name}")


def test_an_address_is_a_path_if_that_exists(run: Path, tmp_path: Path) -> None:
    (tmp_path / "run:b").mkdir()
    with bitsnap.Store(run) as store:
        store.branch("b", 2)
    made_run(tmp_path / "run:b", 1)
    assert steps_of(f"{run}:b") == [1]


def test_mistakes_are_named(run: Path) -> None:
    with pytest.raises(bitsnap.NotFoundError, match=r"has no branch 'b' and no others; `bitsnap branch .*@STEP b`"):
        bitsnap.Store(f"{run}:b")
    with bitsnap.Store(run) as store:
        for name in ("", "5", ".b", "-b", "a/b", "a@b", "a:b", "x" * 201):
            with pytest.raises(bitsnap.InvalidArgumentError):
                store.branch(name)
        with pytest.raises(TypeError):
            store.branch(5)  # type: ignore[arg-type]
        with pytest.raises(bitsnap.NotFoundError, match="step 9 not found"):
            store.branch("b", 9)
        with pytest.raises(bitsnap.NotFoundError):
            store.remove_branch("b")
        store.branch("b", 1)
        store.remove_branch("b")
        assert store.branches() == []


def test_a_checkpointer_makes_its_branch_and_continues_it(jobs: Jobs) -> None:
    run = made_run(jobs.path)
    with pytest.raises(bitsnap.NotFoundError, match=r"has no branch 'lr2' .*branch_from=STEP makes it"):
        jobs(branch="lr2")
    for first in (2, 3):  # a job that is started twice
        with jobs(branch="lr2", branch_from=2) as checkpointer:
            assert checkpointer.path == run / "branches" / "lr2"
            restored = checkpointer.restore()
            assert restored is not None
            assert restored.step == first
            checkpointer.save(first + 1, state_of(first + 1, seed=5))
    with jobs(branch="lr2") as checkpointer:
        assert checkpointer.latest() == 4
    with jobs(path=f"{run}:lr2", branch="lr3", branch_from=3, job=bitsnap.JobOptions(name=jobs.new_job())) as other:
        assert other.steps() == [3]
    assert steps_of(run) == [1, 2, 3, 4]
    for options, message in (
        ({"branch": "lr2", "branch_from": 3}, "was made from step 2 of the run, not from step 3"),
        ({"branch": "lr3", "branch_from": 3}, "was made from step 3 of 'lr2', not from step 3"),
        ({"branch_from": 3}, "branch_from needs the name"),
        ({"branch": "a/b", "branch_from": 3}, "the name of a branch"),
    ):
        with pytest.raises(bitsnap.InvalidArgumentError, match=message):
            jobs(**options)
    with pytest.raises(bitsnap.NotFoundError, match="step 9 not found"):
        jobs(branch="new", branch_from=9)


TRAINING = """
import os, signal, sys
import torch
import bitsnap, bitsnap.torch
path, job, lr, until, dies, *branch = sys.argv[1:]
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters(), lr=float(lr))
options = {"branch": branch[0], "branch_from": int(branch[1])} if branch else {}
checkpointer = bitsnap.torch.TrainingCheckpointer(
    path, model=model, optimizer=optimizer, every=2, job=bitsnap.JobOptions(name=job),
    agent=bitsnap.AgentOptions(threads=1, linger=20.0), timeout=60.0, **options)
start = checkpointer.restore() or 0
for group in optimizer.param_groups:
    group["lr"] = float(lr)
for step in range(start + 1, int(until) + 1):
    torch.manual_seed(step)
    loss = (model(torch.randn(8, 64)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    checkpointer.save(step)
    print(step, loss.item().hex(), flush=True)
    if step == int(dies):
        os.kill(os.getpid(), signal.SIGKILL)
checkpointer.engine.close()
"""


@pytest.mark.slow
def test_a_killed_training_on_a_branch_resumes_it_bit_for_bit(jobs: Jobs, tmp_path: Path) -> None:
    losses = run_script(TRAINING, jobs.path, jobs.job, 0.01, 12, 0)
    # Never interrupted, from a copy of the run.
    shutil.copytree(jobs.path, tmp_path / "copy")
    with bitsnap.Store(tmp_path / "copy") as store:
        store.rollback(4)
    expected = run_script(TRAINING, tmp_path / "copy", jobs.new_job(), 0.1, 12, 0).splitlines()
    branch_job = jobs.new_job()
    found = []
    for dies in (7, 10, 0):
        process = start_script(TRAINING, jobs.path, branch_job, 0.1, 12, dies, "lr2", 4)
        out, error = process.communicate(timeout=120)
        assert process.returncode == (-signal.SIGKILL if dies else 0), error
        found.append(out.splitlines())
    assert {line for lines in found for line in lines} == set(expected)
    assert found[1][0].split()[0] == "7"  # after the checkpoint of step 6, which the killed process had staged
    assert steps_of(f"{jobs.path}:lr2") == [4, 6, 8, 10, 12]
    assert steps_of(jobs.path) == [2, 4, 6, 8, 10, 12]
    last = bitsnap.load(f"{jobs.path}:lr2@12")["model"]
    assert_same(last, bitsnap.load(f"{tmp_path / 'copy'}@12")["model"])
    assert not torch.equal(last["weight"], bitsnap.load(f"{jobs.path}@12")["model"]["weight"])
    assert run_script(TRAINING, jobs.path, jobs.job, 0.01, 12, 0) == ""
    assert losses.splitlines()[:4] != expected[:4]


def _branch_on_all(rank: int, path: Path, branch: str, step: int) -> tuple[str, str]:
    agent = bitsnap.AgentOptions(threads=1, linger=1.0)
    try:
        with bitsnap.Checkpointer(path, branch=branch, branch_from=step, agent=agent, timeout=30.0) as checkpointer:
            restored = checkpointer.restore(step)
            return str(checkpointer.path), "" if restored is None else str(restored.state["rank"])
    except bitsnap.BitsnapError as error:
        return type(error).__name__, str(error)


def test_one_of_several_ranks_makes_the_branch(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with bitsnap.Store(run, shared=True) as store:
        for rank in range(2):
            store.save_shard(1, state_of(1) | {"rank": rank}, shard=rank, shards=2, attempt="a")
        store.commit(1, 2, "a")
    with started(tmp_path / "meeting", 2) as processes:
        made: list[Any] = Processes.run(processes, _branch_on_all, run, "b", 1)
        assert made == [(str(run / "branches" / "b"), str(rank)) for rank in range(2)]
        wrong: list[Any] = Processes.run(processes, _branch_on_all, run, "b", 2)
        assert [kind for kind, _ in wrong] == ["InvalidArgumentError"] * 2
        missing: list[Any] = Processes.run(processes, _branch_on_all, run, "c", 7)
        assert [kind for kind, _ in missing] == ["NotFoundError"] * 2
    assert sorted(each.name for each in (run / "branches").iterdir()) == [".lock", "b"]
