"""Trainings that save to a bucket of a real server, and go on from it on another machine: an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bitsnap
from bitsnap.agents import find_program
from python.processes import run_script, start_script


def state(step: int) -> dict[str, Any]:
    weights = np.random.default_rng(5).standard_normal(300_000).astype(np.float32)
    return {"w": weights + np.float32(step) * 1e-4, "step": step}


def test_an_agent_saves_to_a_bucket_and_the_next_job_goes_on(run: str) -> None:
    with bitsnap.Checkpointer(run, keep_last=2, every_memory=1, every=2) as checkpointer:
        assert checkpointer.path == run
        assert checkpointer.restore() is None
        for step in range(5):
            checkpointer.save(step, state(step))
        checkpointer.wait()
        assert checkpointer.agent_status()["store"] == run
        assert {2, 3, 4} <= set(checkpointer.steps())
    with bitsnap.Checkpointer(run) as checkpointer:
        restored = checkpointer.restore()
        assert restored is not None
        assert (restored.step, restored.source) == (4, "memory")
    bitsnap.stop_agent(run)
    with bitsnap.Checkpointer(run, keep_last=2) as checkpointer:
        restored = checkpointer.restore()
        assert restored is not None
        assert (restored.step, restored.source) == (4, "store")
        assert np.array_equal(restored.state["w"], state(4)["w"])
        bitsnap.wait_committed(run, 4, timeout=10)
        save = checkpointer.save(5, state(5))
        assert save is not None
        assert save.result(60).step == 5
    bitsnap.stop_agent(run)
    with bitsnap.Store(run, read_only=True) as store:
        assert store.steps() == [4, 5]
        assert store.checkpoint(4).base == 5  # the chain was kept in memory: nothing was read to save
        assert not store.verify().damages


def test_an_agent_keeps_to_its_rate(run: str) -> None:
    """20 MB at 10 MB each second, in two files: the second waits for the first."""
    values = np.random.default_rng(1).integers(0, 256, 10_000_000, dtype=np.uint8)
    options = bitsnap.AgentOptions(rate=10)
    with bitsnap.Checkpointer(run, agent=options, settings=bitsnap.Settings(base="keyframe")) as checkpointer:
        begin = time.monotonic()
        for step in range(2):
            checkpointer.save(step, {"w": values ^ step})
        checkpointer.wait()
        assert time.monotonic() - begin > 0.9
    bitsnap.stop_agent(run)


TRAINING = """
import os, signal, sys, torch
from bitsnap.torch import TrainingCheckpointer

run, last, dies = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "dies"
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(9, 300), torch.nn.GELU(), torch.nn.Linear(300, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
checkpointer = TrainingCheckpointer(run, model=model, optimizer=optimizer, every=2, keep_last=2)
restored = checkpointer.restore()
for step in range(0 if restored is None else restored + 1, last):
    x = torch.randn(8, 9)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())
    checkpointer.save(step)
checkpointer.engine.wait()
sys.stdout.flush()
if dies:
    os.kill(checkpointer.engine.agent_process, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
checkpointer.close()
"""


def losses(out: str) -> list[str]:
    return [line for line in out.splitlines() if line[0].isdigit()]


@pytest.mark.slow
def test_a_training_goes_on_from_a_bucket_to_the_last_digit(run: str) -> None:
    expected = losses(run_script(TRAINING, f"{run}-whole", 9, "lives"))
    first = start_script(TRAINING, run, 5, "dies")
    before = losses(first.communicate(timeout=120)[0])
    assert first.returncode == -signal.SIGKILL
    assert before == expected[:5]
    # Step 4 was saved. Nothing of the first process is left but the bucket.
    assert losses(run_script(TRAINING, run, 9, "lives")) == expected[5:]
    with bitsnap.Store(run, read_only=True) as store:
        assert store.steps() == [6, 8]
    for path in (run, f"{run}-whole"):
        bitsnap.stop_agent(path)


RANKS = """
import sys
import torch, torch.distributed as dist, torch.multiprocessing as mp
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from bitsnap.dcp import StorageReader, StorageWriter

run, file = sys.argv[1:]

def made(ranks):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(9, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).double()
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)

def train(model, optimizer, first, last):
    losses = []
    for step in range(first, last):
        x = torch.randn(8, 9, generator=torch.Generator().manual_seed(step)).double()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

def state_of(model, optimizer):
    parts = get_state_dict(model, optimizer)
    return {"model": parts[0], "optimizer": parts[1]}

def saves(rank, model, optimizer):
    train(model, optimizer, 0, 3)
    dcp.save(state_of(model, optimizer), checkpoint_id=f"{run}/step-3", storage_writer=StorageWriter())
    if rank == 0:
        torch.save(train(model, optimizer, 3, 6), file)
    else:
        train(model, optimizer, 3, 6)

def loads(rank, model, optimizer):
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=f"{run}/step-3", storage_reader=StorageReader())
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    found = train(model, optimizer, 3, 6)
    assert torch.allclose(torch.tensor(found), torch.tensor(torch.load(file)), rtol=1e-12), found

def rank_of(rank, ranks, work):
    dist.init_process_group("gloo", init_method=f"file://{file}.{ranks}", rank=rank, world_size=ranks)
    work(rank, *made(ranks))
    dist.destroy_process_group()

if __name__ == "__main__":
    for ranks, work in ((4, saves), (2, loads)):
        mp.start_processes(rank_of, (ranks, work), nprocs=ranks, start_method="fork")
"""


@pytest.mark.slow
def test_a_checkpoint_of_four_ranks_in_a_bucket_is_loaded_on_two(run: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run_script(RANKS, run, tmp_path / "losses.pt", timeout=300)
    with bitsnap.Store(run, read_only=True) as store:
        assert store.checkpoint(3).shards == 4


def test_a_copy_follows_a_training_and_brings_it_back_on_another_machine(run: str, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    with bitsnap.Checkpointer(here, mirror=run) as checkpointer:
        assert checkpointer.restore() is None
        for step in range(3):
            checkpointer.save(step, state(step))
        checkpointer.wait()
        bitsnap.wait_mirrored(here, 2, timeout=120)
        status = bitsnap.mirror_status(here)
        assert status is not None
        assert (status.copy, status.newest, status.waiting, status.error) == (run, 2, (), None)
        shown = subprocess.run([find_program(), "agent", "status", here], capture_output=True, text=True, check=True)
        assert f"copy {run}, newest 2, 0 steps waiting" in shown.stdout
        assert bitsnap.agent_status(here)["mirror"]["newest"] == 2
    end_of(here)
    shutil.rmtree(here)  # the machine is lost
    with bitsnap.Checkpointer(there, mirror=run) as checkpointer:
        restored = checkpointer.restore()
        assert restored is not None
        assert restored.step == 2
        assert np.array_equal(restored.state["w"], state(2)["w"])
        checkpointer.save(3, state(3))
        checkpointer.wait()
        bitsnap.wait_mirrored(there, 3, timeout=120)
    end_of(there)
    with bitsnap.Store(run, read_only=True) as store:
        assert store.steps() == [0, 1, 2, 3]
        assert not store.verify().damages
    with pytest.raises(bitsnap.InvalidArgumentError, match="follows the run of a directory"):
        bitsnap.Checkpointer(run, mirror=tmp_path / "copy")
    for place in ("s3://bucket", "s3://bucket/a//run"):
        with pytest.raises(bitsnap.InvalidArgumentError, match=f"with single slashes; found {place}"):
            bitsnap.Checkpointer(there, mirror=place)


def end_of(run: Path) -> None:
    """Ends the agent of a run, and the process that copies it."""
    bitsnap.stop_agent(run)
    process = json.loads((run / "mirror.json").read_bytes())["process"]
    os.kill(process, signal.SIGTERM)
    while Path(f"/proc/{process}").exists():
        time.sleep(0.05)
