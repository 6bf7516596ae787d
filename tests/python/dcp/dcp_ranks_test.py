"""bitsnap.dcp on several ranks of torch.distributed with FSDP2 and DTensor."""

from __future__ import annotations

from pathlib import Path

import pytest

import bitsnap
from python.processes import run_script

RANKS = """
import os, sys
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from bitsnap.dcp import StorageReader, StorageWriter

path, RANKS = sys.argv[1], 4
WEIGHT = torch.arange(13 * 10, dtype=torch.float32).reshape(13, 10)

class Training:
    def __init__(self, mesh):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(9, 33), torch.nn.GELU(), torch.nn.Linear(33, 1))
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}
    def load_state_dict(self, state):
        set_state_dict(
            self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
    def train(self, first, last):
        losses = []
        for step in range(first, last):
            x = torch.randn(8, 9, generator=torch.Generator().manual_seed(step))
            loss = (self.model(x) - x.sum(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses

def fsdp_is_resumed(rank, mesh):
    training = Training(mesh)
    training.train(0, 3)
    for step in (3, 4):
        dcp.save({"app": training, "step": step}, checkpoint_id=f"{path}/step-{step}", storage_writer=StorageWriter())
        training.train(step, step + 1)
    losses = training.train(5, 8)
    again = Training(mesh)
    again.train(0, 1)
    state = {"app": again, "step": 0}
    dcp.load(state, checkpoint_id=f"{path}/step-4", storage_reader=StorageReader())
    assert state["step"] == 4
    again.train(4, 5)
    assert again.train(5, 8) == losses
    if rank == 0:
        whole = {"app": {"model": {"0.weight": torch.zeros(33, 9)}}}
        dcp.load(whole, checkpoint_id=f"{path}/step-4", storage_reader=StorageReader(), no_dist=True)
        assert whole["app"]["model"]["0.weight"].abs().sum() > 0

LAYOUTS = {
    "rows": ((4,), [Shard(0)]), "columns": ((4,), [Shard(1)]), "whole": ((4,), [Replicate()]),
    "grid": ((2, 2), [Shard(0), Shard(1)]), "replicas": ((2, 2), [Replicate(), Shard(0)]),
    "twice": ((2, 2), [Shard(0), Shard(0)]),
}

def every_layout_is_read_in_every_other(rank):
    def tensor_in(layout, values):
        shape, placements = LAYOUTS[layout]
        return distribute_tensor(values, init_device_mesh("cpu", shape), placements)
    for step, saved in enumerate(LAYOUTS):
        state = {"w": tensor_in(saved, WEIGHT)}
        dcp.save(state, checkpoint_id=f"{path}-layouts/{step}", storage_writer=StorageWriter())
        for layout in LAYOUTS:
            into = {"w": tensor_in(layout, torch.zeros_like(WEIGHT))}
            dcp.load(into, checkpoint_id=f"{path}-layouts/{step}", storage_reader=StorageReader())
            assert torch.equal(into["w"].full_tensor(), WEIGHT), (saved, layout)

class FailingWriter(StorageWriter):
    fails_in = ""
    def write_data(self, plan, planner):
        if self.fails_in == "before" and dist.get_rank() == 2:
            raise OSError("planted")
        written = super().write_data(plan, planner)
        if self.fails_in == "after" and dist.get_rank() == 1:
            raise OSError("planted")
        return written
    def finish(self, metadata, results):
        if self.fails_in == "finish":
            raise OSError("planted")
        super().finish(metadata, results)

def a_failed_save_leaves_the_step_before(rank, mesh):
    values = lambda step: {"w": distribute_tensor(WEIGHT + step, mesh, [Shard(0)]), "step": step}
    writer = FailingWriter()
    dcp.save(values(1), checkpoint_id=f"{path}-failing/1", storage_writer=writer)
    for step, phase in enumerate(("before", "after", "finish"), 2):
        writer.fails_in = phase
        try:
            dcp.save(values(100), checkpoint_id=f"{path}-failing/{step}", storage_writer=writer)
        except dcp.api.CheckpointException as error:
            assert "planted" in str(error)
        else:
            raise AssertionError(f"rank {rank} did not hear of the failure in {phase}")
        dist.barrier()
        into = {"w": distribute_tensor(torch.zeros_like(WEIGHT), mesh, [Shard(0)]), "step": 0}
        dcp.load(into, checkpoint_id=f"{path}-failing", storage_reader=StorageReader())
        assert into["step"] == step - 1
        assert torch.equal(into["w"].full_tensor(), WEIGHT + step - 1)
        writer.fails_in = ""
        dcp.save(values(step), checkpoint_id=f"{path}-failing/{step}", storage_writer=writer)

def without_a_coordinator(rank, mesh):
    state = {"w": distribute_tensor(WEIGHT, mesh, [Shard(0)]), "values": {"x": (1, 2)}}
    dcp.save(state, checkpoint_id=f"{path}-alone/7", storage_writer=StorageWriter(), use_collectives=False)
    into = {"w": distribute_tensor(torch.zeros_like(WEIGHT), mesh, [Shard(1)]), "values": {"x": None}}
    dcp.load(into, checkpoint_id=f"{path}-alone/7", storage_reader=StorageReader())
    assert torch.equal(into["w"].full_tensor(), WEIGHT)
    assert into["values"]["x"] == (1, 2)

def tries_without_a_coordinator_never_mix(rank, mesh, id_of_writer, another_writer):
    run = f"{path}-tries-{id_of_writer}-{another_writer}"
    checkpoint = f"{run}/7"
    checkpoint_id = None if id_of_writer else checkpoint
    first, second = ({"w": distribute_tensor(WEIGHT + number, mesh, [Shard(0)])} for number in (1, 2))
    writer = FailingWriter(checkpoint if id_of_writer else None)
    writer.fails_in = "before"  # rank 2, while the others write their shards
    try:
        dcp.save(first, checkpoint_id=checkpoint_id, storage_writer=writer, use_collectives=False)
    except OSError:
        dist.barrier()  # the others wait in it
    writer.fails_in = ""
    if another_writer:
        writer = FailingWriter(checkpoint if id_of_writer else None)
    dist.barrier()
    # Rank 2 comes first: the shards of the others must not be those of the first try.
    if rank != 2:
        dist.barrier()
        dcp.save(second, checkpoint_id=checkpoint_id, storage_writer=writer, use_collectives=False)
    else:
        if not id_of_writer:
            writer.reset(checkpoint_id)
        planner = dcp.DefaultSavePlanner()
        planner.set_up_planner(second, is_coordinator=False)
        writer.set_up_storage_writer(False, rank=rank, use_collectives=False)
        plan, = writer.prepare_global_plan(planner.create_global_plan([planner.create_local_plan()])[0])
        writer.write_data(planner.finish_plan(plan), planner)
        from bitsnap import Store
        assert 7 not in Store(run, read_only=True)
        dist.barrier()
        dist.barrier()
    into = {"w": distribute_tensor(torch.zeros_like(WEIGHT), mesh, [Replicate()])}
    dcp.load(into, checkpoint_id=checkpoint, storage_reader=StorageReader())
    assert torch.equal(into["w"].full_tensor(), WEIGHT + 2)

class BrokenPlanner(dcp.DefaultSavePlanner):
    def set_up_planner(self, *args, **kwargs):
        raise OSError("planted")

class BrokenState:
    def state_dict(self):
        raise OSError("planted")
    def load_state_dict(self, state):
        pass

def a_rank_counts_a_save_that_fails_early(rank, mesh, in_planner):
    run = f"{path}-early-{in_planner}"
    state = lambda step: {"w": distribute_tensor(WEIGHT + step, mesh, [Shard(0)])}
    first, options = state(1), {}
    if rank == 2 and in_planner:
        options = {"planner": BrokenPlanner()}
    elif rank == 2:
        first = {"w": BrokenState()}
    for step, values in ((1, first), (2, state(2))):
        more = {"storage_writer": StorageWriter(), "use_collectives": False, **options}
        try:
            dcp.save(values, checkpoint_id=f"{run}/{step}", **more)
        except OSError:
            dist.barrier()  # the others wait in it
        options = {}
    into = {"w": distribute_tensor(torch.zeros_like(WEIGHT), mesh, [Replicate()])}
    dcp.load(into, checkpoint_id=f"{run}/2", storage_reader=StorageReader())
    assert torch.equal(into["w"].full_tensor(), WEIGHT + 2)

def run(rank):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}-meeting", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    every_layout_is_read_in_every_other(rank)
    a_failed_save_leaves_the_step_before(rank, mesh)
    without_a_coordinator(rank, mesh)
    for id_of_writer, another_writer in ((False, False), (True, False), (False, True)):
        tries_without_a_coordinator_never_mix(rank, mesh, id_of_writer, another_writer)
    for in_planner in (False, True):
        a_rank_counts_a_save_that_fails_early(rank, mesh, in_planner)
    fsdp_is_resumed(rank, mesh)
    dist.destroy_process_group()

if __name__ == "__main__":
    processes = [mp.get_context("fork").Process(target=run, args=(rank,)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * RANKS
    print("all held")
"""


@pytest.mark.slow
def test_ranks_save_and_load_in_any_layout(tmp_path: Path) -> None:
    assert "all held" in run_script(RANKS, tmp_path / "run", timeout=240)
    with bitsnap.Store(tmp_path / "run-layouts", read_only=True) as store:
        parts = [len(store.tensors(step)["w"].parts) for step in store.steps()]
    # Replicas are stored once.
    assert parts == [4, 4, 1, 4, 2, 4]
