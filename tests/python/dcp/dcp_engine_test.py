"""dcp.async_save through an agent: in one process, and on several ranks of torch.distributed."""

from __future__ import annotations

import pickle
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import bitsnap
from bitsnap import AdamNumbers
from bitsnap.dcp import AgentSaves, StorageReader, StorageWriter, to_torch_save
from python.dcp.dcp_test import loaded, state_of
from python.engine.checkpointer_jobs import Jobs, paused
from python.processes import Start
from python.rank_processes import Ranks, ranks
from python.same_bits import assert_same
from python.states.adam_numbers_test import adam_of

# Whose functions torch does not declare as public.
dcp: Any = torch.distributed.checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")


def begin(saves: AgentSaves, step: int, state: dict[str, Any], **options: Any) -> Any:
    """A save that DCP began, and a state that the training has changed since."""
    future = dcp.async_save(state, storage_writer=saves.writer(step), no_dist=True, **options)
    for tensor in (state["model"]["w"], state["optim"]["state"][0]["exp_avg"]):
        tensor.zero_()
    state["optim"].clear()
    return future


def test_states_are_saved_as_they_were_when_async_save_returned(jobs: Jobs, tmp_path: Path) -> None:
    with jobs(keep_last=2) as checkpointer:
        saves = AgentSaves(checkpointer)
        for step in (1, 2, 3):
            begin(saves, step, state_of(step)).result()
            assert_same(loaded(state_of(step), jobs.path / f"step-{step}"), state_of(step))
    with bitsnap.Store(jobs.path, read_only=True) as store:
        while 1 in store.steps():  # which the agent removes after it has told of step 3
            time.sleep(0.01)
        assert store.steps() == [2, 3]
        second = store.checkpoint(3)
        assert second.base == 2
        assert store.tensors(3)["optim.state.0.exp_avg"].role == "exp_avg"
        assert store.tensors(3).keys() >= {"model.w", "model.tied", "values.empty"}
    to_torch_save(jobs.path / "3", tmp_path / "out.pt")
    expected = state_of(3)
    expected["optim"]["state"] = {"0": expected["optim"]["state"][0]}
    assert_same(torch.load(tmp_path / "out.pt", weights_only=False), expected)


def test_the_future_ends_when_the_agent_has_committed(jobs: Jobs) -> None:
    with jobs() as checkpointer:
        saves = AgentSaves(checkpointer)
        begin(saves, 1, state_of(1)).result()
        with paused(jobs.agent()):
            future = begin(saves, 2, state_of(2))
            with pytest.raises(TimeoutError):
                future.result(timeout=0.3)
        future.result()
        assert_same(loaded(state_of(2), jobs.path / "2"), state_of(2))


def test_a_save_survives_the_training(start: Start, jobs: Jobs) -> None:
    script = """
import os, sys
import torch.distributed.checkpoint as dcp
import bitsnap
from bitsnap.dcp import AgentSaves
from python.dcp.dcp_test import state_of
job, options = bitsnap.JobOptions(name=sys.argv[2]), bitsnap.AgentOptions(threads=1, linger=20.0)
saves = AgentSaves(bitsnap.Checkpointer(sys.argv[1], job=job, agent=options))
dcp.async_save(state_of(1), storage_writer=saves.writer(1), no_dist=True)
os.kill(os.getpid(), 9)
"""
    died = start(script, jobs.path, jobs.job)
    assert died.wait(60) == -signal.SIGKILL, died.communicate()
    bitsnap.wait_committed(jobs.path, 1, 30, job=jobs.job)
    assert_same(loaded(state_of(1), jobs.path / "1"), state_of(1))


def test_errors_are_those_of_the_future(jobs: Jobs) -> None:
    saves = AgentSaves(jobs(timeout=10.0))
    begin(saves, 5, state_of(5), checkpoint_id=jobs.path / "step-5").result()
    with pytest.raises(CheckpointException, match=r"step 4 cannot be saved: .* has the checkpoint of step 5"):
        begin(saves, 4, state_of(4)).result()
    lone = {**state_of(6), "lone": {"buffer": bytearray()}}
    with pytest.raises(CheckpointException, match=r"lone\.buffer.*bytearray"):
        begin(saves, 6, lone).result()
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"step-8' is not the checkpoint .* saves step 7 of"):
        begin(saves, 7, state_of(7), checkpoint_id=jobs.path / "step-8").result()
    with pytest.raises(CheckpointException, match="used the planner Doubled"):
        begin(saves, 9, state_of(9), planner=Doubled()).result()
    nested: Any = DefaultSavePlanner(flatten_state_dict=False)
    with pytest.raises(CheckpointException, match="entries that were not copied, such as 'model'"):
        begin(saves, 10, state_of(10), planner=nested).result()


class Doubled(DefaultSavePlanner):
    def transform_object(self, write_item: Any, object: Any) -> Any:  # noqa: A002
        return 2 * object if isinstance(object, torch.Tensor) else super().transform_object(write_item, object)


def test_wrong_uses_are_refused(jobs: Jobs) -> None:
    saves = AgentSaves(jobs(every=10))
    with pytest.raises(
        bitsnap.InvalidArgumentError, match="step 7 is not stored, because the Checkpointer has every=10"
    ):
        saves.writer(7)
    writer = saves.writer(10)
    staged = writer.stage(state_of(10))
    for sent in (writer, staged):
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"use dcp.async_save with AsyncCheckpointerType.THREAD"):
            pickle.dumps(sent)
    with pytest.raises(bitsnap.InvalidArgumentError, match="each save needs its own writer"):
        writer.stage(state_of(10))
    with pytest.raises(TypeError, match=r"must be a bitsnap\.Checkpointer, got 'run'"):
        AgentSaves("run")  # type: ignore[arg-type]
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"rank 1 of 2 is not that of torch\.distributed"):
        AgentSaves(
            jobs(
                path=jobs.path.with_name("other"),
                job=bitsnap.JobOptions(name=jobs.new_job(), rank=1, world_size=2),
            )
        )


def test_synchronous_saves(jobs: Jobs) -> None:
    saves = AgentSaves(jobs())
    writer = saves.writer(1)
    dcp.save(state_of(1), storage_writer=writer, no_dist=True)
    assert_same(loaded(state_of(1), jobs.path / "1"), state_of(1))
    with pytest.raises(CheckpointException, match="each save needs its own writer"):
        dcp.save(state_of(1), storage_writer=writer, no_dist=True)


def test_bounded_loss_takes_adam_and_roles(jobs: Jobs) -> None:
    torch.manual_seed(1)
    model = nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.8, 0.95), eps=1e-7)
    model(torch.randn(8, 64)).square().sum().backward()
    optimizer.step()
    state = {"optim": get_optimizer_state_dict(model, optimizer), "lone": torch.randn(64, 64)}
    state["other"] = {"exp_avg": torch.randn(64, 64), "exp_avg_sq": torch.rand(64, 64)}
    adam = {"other.exp_avg": bitsnap.Adam((0.5, 0.6), 1e-5, lambda: 4)}
    with jobs(settings="bounded", adam=adam) as checkpointer:
        saves = AgentSaves(checkpointer, roles=lambda name: "weight" if name == "lone" else None)
        dcp.async_save(state, storage_writer=saves.writer(1), no_dist=True).result()
        assert checkpointer.save(2, {"other": state["other"]}) is not None
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert adam_of(store.snapshot(1)) == {
            "optim.state.weight.exp_avg": AdamNumbers((0.8, 0.95), 1e-7, 1),
            "other.exp_avg": AdamNumbers((0.5, 0.6), 1e-5, 4),
        }
        assert store.tensors(1)["lone"].role == "weight"


RANKS = 2


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with ranks(tmp_path_factory.mktemp("agent") / "meeting", RANKS) as started:
        yield started


def checkpointer_of(path: str, job: str) -> bitsnap.Checkpointer:
    options = bitsnap.AgentOptions(threads=1, linger=20.0)
    return bitsnap.Checkpointer(path, job=bitsnap.JobOptions(name=job), agent=options, timeout=60.0)


def parts_of(rank: int, step: int) -> dict[str, Any]:
    """Parts, replicas, tensors that differ between ranks, and some that only one of them has."""
    mesh = init_device_mesh("cpu", (RANKS,))
    whole = whole_of(step)
    tensors: dict[str, Any] = {
        "parts": distribute_tensor(whole["parts"], mesh, [Shard(0)]),
        "replicas": distribute_tensor(whole["replicas"], mesh, [Replicate()]),
        "differs": torch.full((70_000,), step + rank / 2),
        "rank": rank,
    }
    if step > 1:
        tensors["later"] = {"all": whole["later"]["all"].clone()}
    if rank == 1:
        tensors["own"] = {"tensor": torch.full((5,), float(step)), "value": ("x", step)}
    return tensors


def whole_of(step: int) -> dict[str, Any]:
    """What is loaded: of what ranks have in common, that of the lowest one."""
    weight = torch.randn(301, 500, generator=torch.Generator().manual_seed(step))
    whole: dict[str, Any] = {
        "parts": weight,
        "replicas": weight[:200] / 3,
        "differs": torch.full((70_000,), float(step)),
    }
    whole["rank"] = 0
    if step > 1:
        whole["later"] = {"all": weight[:7].clone()}
    whole["own"] = {"tensor": torch.full((5,), float(step)), "value": ("x", step)}
    return whole


def save_steps(rank: int, path: str, job: str) -> list[int]:
    """The bytes that this rank copied in each step."""
    copied = []
    with checkpointer_of(path, job) as checkpointer:
        saves = AgentSaves(checkpointer)
        futures = []
        for step in (1, 2, 3):
            state = parts_of(rank, step)
            writer = saves.writer(step)
            futures.append(dcp.async_save(state, storage_writer=writer))
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    (value.to_local() if isinstance(value, DTensor) else value).zero_()
            futures[-1].result()
            assert writer._save is not None
            copied.append(writer._save.result().raw_bytes)
    return copied


def test_ranks_save_parts_and_each_replica_once(pool: Ranks, jobs: Jobs) -> None:
    copied = pool.run(save_steps, str(jobs.path), jobs.job)
    for step in (1, 2, 3):
        assert_same(loaded(whole_of(step), jobs.path / f"step-{step}"), whole_of(step))
    half, replica = 151 * 500 * 4, (200 * 500 + 70_000) * 4
    assert half + replica <= copied[0][0] < half + replica + 1000
    assert half - 2000 <= copied[1][0] < half + 1000
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert store.checkpoint(3).shards == RANKS
        assert not [name for name in store.tensors(3) if name.startswith("rank-")]


def train_and_save(rank: int, path: str, job: str) -> Any:
    torch.manual_seed(1)
    weights: Any
    state: dict[str, Any] = {}
    model = nn.Sequential(nn.Linear(37, 64), nn.Linear(64, 5))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    with checkpointer_of(path, job) as checkpointer:
        saves = AgentSaves(checkpointer)
        for step in (1, 2):
            model(torch.ones(4, 37) * (rank + 1)).square().sum().backward()
            optimizer.step()
            weights, moments = get_state_dict(model, optimizer)
            state = {"model": weights, "optim": moments, "step": step}
            dcp.async_save(state, storage_writer=saves.writer(step)).result()
    saved = {name: tensor.full_tensor().clone() for name, tensor in weights.items()}
    for tensor in weights.values():
        tensor.to_local().zero_()
    dcp.load(state, checkpoint_id=f"{path}/step-2", storage_reader=StorageReader())
    assert all(torch.equal(saved[name], tensor.full_tensor()) for name, tensor in state["model"].items())
    return saved


def test_fsdp2_saves_and_loads(pool: Ranks, jobs: Jobs) -> None:
    saved = pool.run(train_and_save, str(jobs.path), jobs.job)[0]
    back = {"model": {name: torch.zeros_like(tensor) for name, tensor in saved.items()}, "step": 0}
    dcp.load(back, checkpoint_id=jobs.path / "2", storage_reader=StorageReader(), no_dist=True)
    assert_same(back, {"model": saved, "step": 2})


def fail_on_one_rank(rank: int, path: str, job: str) -> list[str]:
    checkpointer = checkpointer_of(path, job)
    saves = AgentSaves(checkpointer)
    errors = []
    for step, value in enumerate((bytearray(), 1)):
        own = {"own": value} if rank == 1 else {}
        try:
            dcp.async_save({**parts_of(0, 1), **own}, storage_writer=saves.writer(step)).result()
        except CheckpointException as error:
            errors.append(str(error))
    checkpointer._leave()
    return errors


def test_if_one_rank_fails_all_raise_and_the_next_step_is_saved(pool: Ranks, jobs: Jobs) -> None:
    for errors in pool.run(fail_on_one_rank, str(jobs.path), jobs.job):
        assert len(errors) == 1
        assert "bytearray" in errors[0]
        assert "rank 1" in errors[0].lower() or "rank:1" in errors[0].lower()
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert store.steps() == [1]


def agent_writer(path: Path, **options: Any) -> StorageWriter:
    return StorageWriter(path, agent=bitsnap.AgentOptions(threads=1, linger=2.0), timeout=60.0, **options)


def test_a_storage_writer_with_an_agent_gives_each_save_the_next_step(tmp_path: Path) -> None:
    run = tmp_path / "run"
    writer = agent_writer(run, keep_last=2)
    futures = []
    for step in range(4):
        state = state_of(step)
        futures.append(dcp.async_save(state, storage_writer=writer, no_dist=True))
        state["model"]["w"].zero_()
    for future in futures:
        future.result()
    dcp.save(state_of(4), storage_writer=writer, no_dist=True)
    dcp.save(state_of(7), checkpoint_id=run / "step-7", storage_writer=writer, no_dist=True)
    writer.close()
    for step in (4, 7):
        assert_same(loaded(state_of(step), run / f"step-{step}"), state_of(step))
    again = agent_writer(run / "step-9", keep_last=2)
    dcp.async_save(state_of(9), checkpoint_id=run / "step-9", storage_writer=again, no_dist=True).result()
    with pytest.raises(bitsnap.InvalidArgumentError, match="is not the checkpoint of this writer, which saves step 9"):
        dcp.async_save(state_of(9), checkpoint_id=run / "step-8", storage_writer=again, no_dist=True).result()
    again.close()
    assert_same(loaded(state_of(9), run / "step-9"), state_of(9))


def test_writers_of_a_run_share_its_agent_and_close_for_other_options(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for step in (1, 2):
        dcp.async_save(state_of(step), storage_writer=agent_writer(run / f"step-{step}"), no_dist=True).result()
    dcp.async_save(state_of(3), storage_writer=agent_writer(run / "3", keep_last=1), no_dist=True).result()
    assert bitsnap.Store(run, read_only=True).steps()[-1] == 3
    with pytest.raises(bitsnap.InvalidArgumentError, match="needs a checkpoint id"):
        StorageWriter(agent=bitsnap.AgentOptions()).stage(state_of(4))
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"AsyncCheckpointerType\.THREAD"):
        pickle.dumps(agent_writer(run))
    with pytest.raises(TypeError, match="agent must be"):
        StorageWriter(run, agent=True)  # type: ignore[arg-type]


def save_next_steps(rank: int, path: str) -> list[int]:
    writer = agent_writer(Path(path))
    for step in (0, 1, 2):
        dcp.async_save(parts_of(rank, step), storage_writer=writer).result()
    writer.close()
    return bitsnap.Store(path, read_only=True).steps()


def test_ranks_agree_on_the_next_step_of_a_storage_writer_with_an_agent(pool: Ranks, tmp_path: Path) -> None:
    assert pool.run(save_next_steps, str(tmp_path / "run")) == [[0, 1, 2]] * RANKS
    for step in (0, 1, 2):
        assert_same(loaded(whole_of(step), tmp_path / f"run/step-{step}"), whole_of(step))


class Refusing(DefaultSavePlanner):
    def set_up_planner(self, *args: Any, **kwargs: Any) -> None:
        raise ValueError("refused")


def test_a_save_that_fails_before_it_begins_leaves_no_state_for_the_next(tmp_path: Path) -> None:
    run = tmp_path / "run"
    writer = agent_writer(run)
    writer.metadata = {"note": "kept"}
    for planner, checkpoint_id in ((Refusing(), None), (None, run / "step-77")):
        with pytest.raises((CheckpointException, bitsnap.InvalidArgumentError)):
            dcp.async_save(
                state_of(1), checkpoint_id=checkpoint_id, storage_writer=writer, planner=planner, no_dist=True
            ).result()
    dcp.save(state_of(5), storage_writer=writer, no_dist=True)
    newest = bitsnap.Store(run, read_only=True).steps()[-1]
    assert_same(loaded(state_of(5), run / f"step-{newest}"), state_of(5))
    writer.close()
    again = agent_writer(run)
    dcp.async_save(state_of(6), storage_writer=again, no_dist=True).result()
    again.close()
    with bitsnap.Store(run, read_only=True) as store:
        assert store.steps()[-1] == newest + 1
        assert store.snapshot(0).metadata["note"] == "kept"
    assert_same(loaded(state_of(6), run / f"step-{newest + 1}"), state_of(6))
