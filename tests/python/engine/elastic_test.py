"""Trainings that are killed and go on with another number of processes, or other tensors in each of them, from steps
that only memory has."""

from __future__ import annotations

import importlib
import multiprocessing as mp
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import bitsnap
import bitsnap.torch
from python.engine.checkpointer_jobs import Jobs
from python.torch.divided_trainings import WIDTH, Divide, Run, alone, fsdp, tp


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in the processes that are killed: sums depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def losses_of(run: Run, steps: int, after_each: Callable[[], object]) -> list[float]:
    losses = []
    for _ in range(steps):
        run.optimizer.zero_grad()
        x = torch.linspace(-1, 1, 8 * WIDTH).reshape(8, WIDTH)
        loss = (run.model(x) - x).square().mean()
        loss.backward()
        run.optimizer.step()
        run.extra["seen"] += 1
        losses.append(loss.item())
        after_each()
    return losses


def train(
    rank: int,
    size: int,
    folder: Path,
    jobs: list[str],
    start: int | None,
    stop: int,
    warned: str = "",
    divide: Divide = fsdp,
) -> None:
    """Goes on from step `start`, saves each step to memory alone, and is killed. Ranks take turns on the machines."""
    torch.set_num_threads(1)
    meeting = folder / f"meeting-{size}-{start}-{stop}"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    run = Run(folder / "run", divide, jobs[rank % len(jobs)], every=100, every_memory=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert run.checkpointer.restore() == start
    lost = [str(each.message) for each in caught if "cannot be restored" in str(each.message)]
    assert len(lost) == bool(warned)
    assert all(warned in each for each in lost), lost
    assert run.extra["seen"] == (start or 0)
    step = start or 0

    def save() -> None:
        nonlocal step
        step += 1
        made = run.checkpointer.save(step)
        assert made is not None
        made.wait_memory()

    losses = losses_of(run, stop - step, save)
    if rank == 0:
        torch.save(losses, folder / f"{size}-{start}.pt")
        save()  # a step that the others did not save
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def run_killed(size: int, *arguments: object) -> None:
    importlib.import_module("torch._dynamo")  # once, and not in each process with its first optimizer
    processes = [mp.get_context("fork").Process(target=train, args=(rank, size, *arguments)) for rank in range(size)]
    for process in processes:
        process.start()
    deadline = time.monotonic() + 100
    while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
        if any(process.exitcode not in (None, -signal.SIGKILL) for process in processes):
            break  # the others would wait for it
        time.sleep(0.02)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
        process.join()
    assert codes == [-signal.SIGKILL] * size


@pytest.mark.slow
def test_another_number_of_processes_goes_on_from_memory(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    here, there = jobs.new_job(), jobs.new_job()  # two machines, each with its agent
    try:
        run_killed(4, tmp_path, [here], None, 3)
        assert bitsnap.Store(jobs.path, read_only=True).steps() == []
        run_killed(2, tmp_path, [here, there], 3, 5)
        run_killed(8, tmp_path, [here, there], 5, 7)
        # Without the agent of one machine, step 7 is incomplete.
        os.kill(bitsnap.agent_status(job=there)["process"], signal.SIGKILL)
        run_killed(2, tmp_path, [here], 5, 7, "no agent that is alive has the states of ranks 1, 3, 5, 7")
        assert bitsnap.Store(jobs.path, read_only=True).steps() == [3, 5]
    finally:
        jobs.end()
    uninterrupted = losses_of(Run(tmp_path / "alone", alone, jobs.new_job()), 7, lambda: None)
    parts = {name: torch.load(tmp_path / f"{name}.pt") for name in ("4-None", "2-3", "8-5", "2-5")}
    assert parts["4-None"] + parts["2-3"] + parts["2-5"] == uninterrupted
    # The mean of eight equal gradients is rounded on its way.
    assert parts["8-5"][0] == uninterrupted[5]
    assert parts["8-5"][1] == pytest.approx(uninterrupted[6], rel=1e-6)
    jobs.end()


@pytest.mark.slow
def test_another_division_goes_on_from_memory(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    machines = [jobs.new_job(), jobs.new_job()]
    try:
        run_killed(2, tmp_path, machines, None, 2)
        run_killed(2, tmp_path, machines, 2, 4, "", tp)
        assert bitsnap.Store(jobs.path, read_only=True).steps() == [2]
        run_killed(2, tmp_path, machines, 4, 5)
        assert bitsnap.Store(jobs.path, read_only=True).steps() == [2, 4]
    finally:
        jobs.end()
    uninterrupted = losses_of(Run(tmp_path / "alone", alone, jobs.new_job()), 5, lambda: None)
    losses = [loss for name in ("2-None", "2-2", "2-4") for loss in torch.load(tmp_path / f"{name}.pt")]
    assert losses == pytest.approx(uninterrupted, rel=1e-5)  # sums of parts are rounded
    jobs.end()
