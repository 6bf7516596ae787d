"""bitsnap.dcp in one process, and on several ranks of torch.distributed with FSDP2 and DTensor."""

from __future__ import annotations

import enum
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

import bitsnap
from bitsnap import _registry
from bitsnap.dcp import StorageReader, StorageWriter, to_torch_save
from python.processes import run_script
from python.same_bits import assert_same

# Whose functions torch does not declare as public.
dcp: Any = torch.distributed.checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")


class Colour(enum.Enum):
    RED = 1


def state_of(step: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(7)
    weight = torch.randn(300, 40, generator=generator)
    return {
        "model": {"w": weight + step / 100, "tied": weight, "again": weight, "scalar": torch.tensor(step)},
        "optim": {"state": {0: {"exp_avg": weight / 7, "step": torch.tensor(float(step))}}, "groups": [1, 2.5]},
        "values": {"name": "run", "pair": (step, "x"), "none": None, "colour": Colour.RED, "empty": torch.empty(0, 3)},
    }


def zeros_like(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: zeros_like(item) for key, item in value.items()}
    if isinstance(value, list):
        return [zeros_like(item) for item in value]
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else None


def save(state: dict[str, Any], checkpoint_id: Path | str | None = None, **options: Any) -> None:
    dcp.save(state, checkpoint_id=checkpoint_id, storage_writer=StorageWriter(**options), no_dist=True)


def loaded(state: dict[str, Any], checkpoint_id: Path | str) -> dict[str, Any]:
    into: dict[str, Any] = zeros_like(state)
    dcp.load(into, checkpoint_id=checkpoint_id, storage_reader=StorageReader(), no_dist=True)
    return into


def test_a_state_comes_back_with_all_bits_and_types(tmp_path: Path) -> None:
    for step in (10, 20):
        save(state_of(step), tmp_path / f"run/step-{step}")
    for step in (10, 20):
        assert_same(loaded(state_of(step), tmp_path / f"run/step-{step}"), state_of(step))
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        assert store.steps() == [10, 20]
        first, second = store.checkpoints()
        assert second.base == 10
        assert second.stored_bytes < first.stored_bytes / 3
        assert store.tensors(20)["optim.state.0.exp_avg"].role == "exp_avg"


def test_a_path_without_a_step_is_a_run(tmp_path: Path) -> None:
    for step in (1, 2):
        save(state_of(step), path=tmp_path / "run", keep_last=1)
    assert_same(loaded(state_of(2), tmp_path / "run"), state_of(2))
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        assert store.steps() == [1]


def test_saves_in_the_background(tmp_path: Path) -> None:
    writer = StorageWriter()
    for step in (1, 2):
        dcp.async_save(
            state_of(step), checkpoint_id=tmp_path / f"run/{step}", storage_writer=writer, no_dist=True
        ).result()
    assert_same(loaded(state_of(2), tmp_path / "run/2"), state_of(2))
    copy = pickle.loads(pickle.dumps(writer))
    dcp.save(state_of(3), checkpoint_id=tmp_path / "run/3", storage_writer=copy, no_dist=True)
    assert_same(loaded(state_of(3), tmp_path / "run/3"), state_of(3))


def test_asynchronous_saves_use_the_memory_of_the_last_copy(tmp_path: Path) -> None:
    writer = StorageWriter()
    for step in (1, 2, 3):
        state = state_of(step)
        future = dcp.async_save(state, checkpoint_id=tmp_path / f"run/{step}", storage_writer=writer, no_dist=True)
        for tensor in (state["model"]["w"], state["model"]["tied"], state["optim"]["state"][0]["exp_avg"]):
            tensor.zero_()
        future.result()
        assert_same(loaded(state_of(step), tmp_path / f"run/{step}"), state_of(step))
    plain = {"w": torch.ones(1000), "row": (1, [torch.zeros(3)])}
    first = writer.stage(plain)
    writer._copies.release([first["w"]])
    second = writer.stage({"w": torch.full((1000,), 2.0), "row": (2, [torch.ones(3)])})
    assert second["w"].data_ptr() == first["w"].data_ptr()
    assert_same(second, {"w": torch.full((1000,), 2.0), "row": (2, [torch.ones(3)])})


def test_memory_of_a_copy_that_a_save_reads_or_of_another_layout_is_not_used() -> None:
    writer = StorageWriter()
    first = writer.stage({"w": torch.ones(1000)})
    second = writer.stage({"w": torch.zeros(1000)})
    assert_same(first, {"w": torch.ones(1000)})
    writer._copies.release([first["w"]])  # is not that of the newest copy
    third = writer.stage({"w": torch.full((1000,), 3.0)})
    assert_same(second, {"w": torch.zeros(1000)})
    for other in ({"w": torch.ones(10, 100)}, {"v": torch.ones(1000)}, {"w": torch.ones(1000).to(torch.float64)}):
        writer._copies.release([third["w"]])
        assert_same(writer.stage(other), other)
        third = writer.stage({"w": torch.full((1000,), 3.0)})
    shared = torch.ones(1000)
    writer.stage({"a": shared, "b": shared.clone()})
    staged = writer.stage({"a": shared, "b": shared})
    assert staged["a"].data_ptr() == staged["b"].data_ptr()
    assert StorageWriter(keep_copy=False).stage({"w": shared})["w"].data_ptr() != shared.data_ptr()


def test_to_torch_save_gives_what_the_stock_function_gives(tmp_path: Path) -> None:
    state = state_of(5)
    dcp.save(state, checkpoint_id=tmp_path / "stock", no_dist=True)
    save(state_of(4), tmp_path / "run/step-4")
    save(state, tmp_path / "run/step-5")
    dcp_to_torch_save(tmp_path / "stock", tmp_path / "stock.pt")
    expected = torch.load(tmp_path / "stock.pt", weights_only=False)
    for checkpoint_id in ("run/step-5", "run"):
        to_torch_save(tmp_path / checkpoint_id, tmp_path / "ours.pt")
        assert_same(torch.load(tmp_path / "ours.pt", weights_only=False), expected)
    with pytest.raises(dcp.CheckpointException, match="step 6 not found"):
        to_torch_save(tmp_path / "run/step-6", tmp_path / "ours.pt")
    with pytest.raises(FileNotFoundError):
        to_torch_save(tmp_path / "run", tmp_path / "none/ours.pt")
    assert_same(torch.load(tmp_path / "ours.pt", weights_only=False), expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours.pt", "run", "stock", "stock.pt"]


def test_the_metadata_are_those_of_a_stock_checkpoint_also_after_a_repair(tmp_path: Path) -> None:
    state = state_of(5)
    dcp.save(state, checkpoint_id=tmp_path / "stock", no_dist=True)
    writer = StorageWriter()
    dcp.save(state, checkpoint_id=tmp_path / "run/step-5", storage_writer=writer, no_dist=True)
    stock = FileSystemReader(tmp_path / "stock").read_metadata()
    record = tmp_path / "run/checkpoints/0000000005/commit.json"
    for repaired in (False, True):
        if repaired:
            record.write_bytes(record.read_bytes()[:-9])
            assert "rebuilt" in bitsnap.Store.repair(tmp_path / "run").mended[0].what
        found = StorageReader(tmp_path / "run/step-5").read_metadata()
        assert list(found.state_dict_metadata) == list(stock.state_dict_metadata)
        for name, entry in stock.state_dict_metadata.items():
            ours = found.state_dict_metadata[name]
            assert type(ours) is type(entry)
            if isinstance(entry, TensorStorageMetadata) and isinstance(ours, TensorStorageMetadata):
                assert ours.size == entry.size
                assert ours.chunks == (entry.chunks if entry.size.numel() else [])  # bitsnap lists no empty boxes
                assert ours.properties.dtype == entry.properties.dtype
        assert found.planner_data == stock.planner_data
        meta, written = found.storage_meta, writer.storage_meta()
        assert meta is not None
        assert written is not None
        assert meta.save_id == written.save_id


def test_plans_may_be_cached(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        planner = DefaultSavePlanner(enable_plan_caching=True)
        writer = StorageWriter()
        dcp.save(
            state_of(step), checkpoint_id=tmp_path / f"run/{step}", storage_writer=writer, planner=planner, no_dist=True
        )
    for step in (1, 2, 3):
        assert_same(loaded(state_of(step), tmp_path / f"run/{step}"), state_of(step))


def test_a_checkpoint_is_loaded_without_knowing_its_keys(tmp_path: Path) -> None:
    save(state_of(5), tmp_path / "run/step-5")
    everything = _load_state_dict_from_keys(
        checkpoint_id=tmp_path / "run/step-5", storage_reader=StorageReader(tmp_path / "run/step-5")
    )
    # DCP turns the keys of dicts into strings.
    assert_same(everything["model"], state_of(5)["model"])
    assert_same(everything["optim"]["state"]["0"], state_of(5)["optim"]["state"][0])
    assert everything["values"]["pair"] == (5, "x")


def test_dtypes_are_converted_on_load(tmp_path: Path) -> None:
    save(state_of(5), tmp_path / "run/step-5")
    into = {"model": {"w": torch.zeros(300, 40, dtype=torch.bfloat16)}}
    dcp.load(into, checkpoint_id=tmp_path / "run/step-5", storage_reader=StorageReader(), no_dist=True)
    assert torch.equal(into["model"]["w"], state_of(5)["model"]["w"].bfloat16())


def test_the_ids_of_a_save_and_a_load_are_told(tmp_path: Path) -> None:
    save(state_of(5), tmp_path / "run/step-5")
    reader = StorageReader(tmp_path / "run/step-5")
    ids = []
    for _ in range(2):
        reader.reset()
        meta = reader.read_metadata().storage_meta
        assert meta is not None
        assert meta.save_id
        ids.append((meta.save_id, meta.load_id))
    assert ids[0][0] == ids[1][0]
    assert ids[0][1] != ids[1][1]


def test_a_writer_and_a_reader_are_used_again_without_a_checkpoint_id(tmp_path: Path) -> None:
    writer, reader = StorageWriter(tmp_path / "run"), StorageReader(tmp_path / "run")
    ids = set()
    for step in (1, 2):
        dcp.save(state_of(step), storage_writer=writer, no_dist=True)
        into = zeros_like(state_of(step))
        dcp.load(into, storage_reader=reader, no_dist=True)
        assert_same(into, state_of(step))
        saved, read = writer.storage_meta(), reader.read_metadata().storage_meta
        assert saved is not None
        assert read is not None
        assert saved.save_id == read.save_id
        assert read.load_id
        ids.add(read.save_id)
    assert len(ids) == 2


def test_the_newest_step_may_be_saved_again(tmp_path: Path) -> None:
    for step in (1, 2):
        save(state_of(step), tmp_path / f"run/{step}")
    for again in (20, 30):
        save(state_of(again), tmp_path / "run/2")
        assert_same(loaded(state_of(again), tmp_path / "run/2"), state_of(again))
    with pytest.raises(dcp.api.CheckpointException, match="step must be greater than 2"):
        save(state_of(1), tmp_path / "run/1")
    assert_same(loaded(state_of(1), tmp_path / "run/1"), state_of(1))


class Unknown:
    pass


def test_what_cannot_be_stored_is_named(tmp_path: Path) -> None:
    save(state_of(1), tmp_path / "run/1")
    with pytest.raises(dcp.api.CheckpointException, match=r"'extra'.*Unknown and cannot be stored"):
        save({**state_of(2), "extra": Unknown()}, tmp_path / "run/2")
    assert_same(loaded(state_of(1), tmp_path / "run/1"), state_of(1))
    save(state_of(2), tmp_path / "run/2")
    assert_same(loaded(state_of(2), tmp_path / "run/2"), state_of(2))


def test_values_of_registered_types_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("_by_tag", "_by_type"):
        monkeypatch.setattr(_registry, table, {})
    bitsnap.register_value("test.BytesIO", io.BytesIO, io.BytesIO.getvalue, io.BytesIO)
    save({"losses": io.BytesIO(b"1.5"), "w": torch.ones(3)}, tmp_path / "run/1")
    back = loaded({"losses": None, "w": torch.ones(3)}, tmp_path / "run/1")
    assert back["losses"].getvalue() == b"1.5"


class Planted:
    def __reduce__(self) -> Any:
        return Path.touch, (Path(PLANTED),)


PLANTED = ""


def test_a_planted_pickle_runs_only_with_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "PLANTED", str(tmp_path / "planted"))
    state = {"w": torch.ones(3), "planted": Planted()}
    save(state, tmp_path / "run/1", opaque="pickle")
    assert not (tmp_path / "planted").exists()
    with pytest.raises(dcp.api.CheckpointException, match="planted"):
        loaded(state, tmp_path / "run/1")
    reader = StorageReader(tmp_path / "run/1")
    assert "planted" in reader.read_metadata().state_dict_metadata
    only_tensors = {"w": torch.zeros(3)}
    dcp.load(only_tensors, checkpoint_id=tmp_path / "run/1", storage_reader=reader, no_dist=True)
    assert torch.equal(only_tensors["w"], torch.ones(3))
    assert not (tmp_path / "planted").exists()
    into = {"w": torch.zeros(3), "planted": None}
    consenting = StorageReader(opaque="pickle")
    dcp.load(into, checkpoint_id=tmp_path / "run/1", storage_reader=consenting, no_dist=True)
    assert (tmp_path / "planted").exists()


def test_wrong_uses_are_explained(tmp_path: Path) -> None:
    save(state_of(5), tmp_path / "run/5")
    with pytest.raises(dcp.api.CheckpointException, match=r"Checkpoint already exists: .* has step 5"):
        save(state_of(5), tmp_path / "run/5", overwrite=False)
    with pytest.raises(dcp.api.CheckpointException, match="needs a checkpoint id"):
        save(state_of(5))
    with pytest.raises(dcp.api.CheckpointException, match="step 6 not found"):
        loaded(state_of(5), tmp_path / "run/6")
    with pytest.raises(dcp.api.CheckpointException, match="Missing key"):
        loaded({"other": torch.zeros(2)}, tmp_path / "run/5")


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

def run(rank):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}-meeting", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    every_layout_is_read_in_every_other(rank)
    a_failed_save_leaves_the_step_before(rank, mesh)
    without_a_coordinator(rank, mesh)
    for id_of_writer, another_writer in ((False, False), (True, False), (False, True)):
        tries_without_a_coordinator_never_mix(rank, mesh, id_of_writer, another_writer)
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


def test_ranks_save_and_load_in_any_layout(tmp_path: Path) -> None:
    assert "all held" in run_script(RANKS, tmp_path / "run", timeout=240)
    with bitsnap.Store(tmp_path / "run-layouts", read_only=True) as store:
        parts = [len(store.tensors(step)["w"].parts) for step in store.steps()]
    # Replicas are stored once.
    assert parts == [4, 4, 1, 4, 2, 4]
