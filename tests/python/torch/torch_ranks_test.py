"""TrainingCheckpointer with several real processes: DDP, FSDP2, tensor parallel, HSDP, and from each to each."""

from __future__ import annotations

import functools
import importlib
import multiprocessing as mp
import secrets
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Shard
from torch.distributed.tensor.placement_types import _StridedShard

import bitsnap
import bitsnap.torch
from bitsnap.dcp import StorageWriter
from python.states.adam_numbers_test import adam_of
from python.torch.divided_trainings import (
    HIDDEN,
    WIDTH,
    Divide,
    Net,
    Run,
    alone,
    ddp,
    end_agent,
    fsdp,
    fsdp_and_tp,
    full,
    hsdp,
    local,
    same,
)

# Whose functions torch does not declare as public.
dcp: Any = torch.distributed.checkpoint


def saved_and_restored(path: Path, job: str, divide: Divide, rank: int) -> None:
    """Saves on the ranks of the present group, and restores on them from memory and from the store."""
    options: dict[str, Any] = {"every": 2, "every_memory": 1}
    run = Run(path, divide, f"{job}a", **options)
    assert run.checkpointer.restore() is None
    run.train(2)
    run.checkpointer.save(2)
    run.train(1)
    run.checkpointer.save(3)  # to memory alone
    assert run.checkpointer._training.state(None)["model"].keys() <= get_model_state_dict(run.model).keys()
    noise = torch.rand(2)
    expected = run.whole()
    run.train(1)
    after = run.whole()
    run.checkpointer.close()

    alike = Run(path, divide, f"{job}a", **options)
    before = {name: value.data_ptr() for name, value in alike.model.state_dict().items() if type(value) is torch.Tensor}
    assert alike.checkpointer.restore() == 3
    assert before == {
        name: value.data_ptr() for name, value in alike.model.state_dict().items() if type(value) is torch.Tensor
    }
    assert same(alike.whole(), expected)
    assert torch.equal(torch.rand(2), noise)
    assert alike.extra["seen"] == 3
    alike.train(1)
    assert same(alike.whole(), after)
    assert alike.checkpointer.restore(2) == 2  # from the store
    alike.train(2)
    assert same(alike.whole(), after)
    # The store has what another training needs.
    alike.checkpointer.save(4)
    alike.checkpointer.close()
    if rank == 0:
        torch.save(after, path.with_suffix(".pt"))
    end_agent(f"{job}a")


def restored(path: Path, job: str, divide: Divide) -> None:
    run = Run(path, divide, f"{job}b")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", bitsnap.RestoreWarning)
        assert run.checkpointer.restore() == 4
    # Those that are equal on all processes, such as buffers, belong to none.
    assert not [each for each in caught if "has of its own" in str(each.message)]
    assert same(run.whole(), torch.load(path.with_suffix(".pt")))
    assert run.extra["seen"] == 4
    assert int(run.model.state_dict()[next(name for name in run.model.state_dict() if name.endswith("calls"))]) == 4
    run.checkpointer.close()
    end_agent(f"{job}b")


def each_has_its_own(path: Path, job: str) -> None:
    """Tensors with equal names and shapes that nothing says to be replicas are not."""
    rank = dist.get_rank()
    options: dict[str, Any] = {"rng": False, "job": bitsnap.JobOptions(name=job), "timeout": 60}
    torch.manual_seed(rank)
    model = nn.Linear(WIDTH, HIDDEN)
    expected = model.weight.detach().clone()
    with bitsnap.torch.TrainingCheckpointer(path, model=model, **options) as checkpointer:
        checkpointer.save(1)
        checkpointer.wait()
    end_agent(job)
    model.weight.data.zero_()
    with bitsnap.torch.TrainingCheckpointer(path, model=model, **options) as checkpointer:
        assert checkpointer.restore() == 1
        assert torch.equal(model.weight, expected)
        # One rank has another model, and all of them hear of it.
        checkpointer._training._model = nn.Linear(WIDTH + rank, HIDDEN)
        try:
            checkpointer.restore()
        except bitsnap.InvalidArgumentError as error:
            assert "weight" in str(error)  # noqa: PT017
        else:
            raise AssertionError("restored a model that does not fit")
    end_agent(job)


def what_differs_is_saved_by_each(path: Path, job: str) -> None:
    """Parameters that DistributedDataParallel ignores, and those that a training has changed on each rank alone."""
    rank = dist.get_rank()
    options: dict[str, Any] = {"job": bitsnap.JobOptions(name=job), "timeout": 60}

    def make() -> nn.Module:
        torch.manual_seed(1)
        model = nn.ModuleDict(
            {"expert": nn.Linear(300, 300), "local": nn.Linear(300, 300), "rest": nn.Linear(300, 300)}
        )
        nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
            model, ["expert.weight", "expert.bias"]
        )
        return nn.parallel.DistributedDataParallel(model)

    model = make()
    for name, parameter in model.named_parameters():
        if "expert" in name:
            parameter.data.fill_(rank + 1)
        if "local.weight" in name:
            parameter.data[150, 150] = rank + 1
    with bitsnap.torch.TrainingCheckpointer(path, model=model, **options) as checkpointer:
        checkpointer.save(1)
        checkpointer.wait()
    again = make()
    with bitsnap.torch.TrainingCheckpointer(path, model=again, **options) as checkpointer:
        assert checkpointer.restore() == 1
        for left, right in zip(model.parameters(), again.parameters(), strict=True):
            assert torch.equal(left, right)
        # All ranks hear of what one of them did.
        wrong: Any
        for wrong in (1 + rank, "1" if rank else 1):
            try:
                checkpointer.restore(wrong)
            except (bitsnap.BitsnapError, TypeError):
                continue
            raise AssertionError("restored different steps")
    with bitsnap.torch.TrainingCheckpointer(path, model=again, **options) as checkpointer:
        checkpointer.engine._restoring._timeout_ms = 500
        if rank == 0:
            try:
                checkpointer.restore()
            except bitsnap.BusyError as error:
                assert "ranks (1) did not call restore()" in str(error)  # noqa: PT017
            else:
                raise AssertionError("restored alone")
        dist.barrier()
    end_agent(job)


def the_step_before_is_taken(path: Path, job: str) -> None:
    """Also by ranks that did not save it."""
    run = Run(path, fsdp if dist.get_world_size() == 2 else alone, job)
    if dist.get_world_size() == 2:
        run.train(1)
        run.checkpointer.save(1)
        run.checkpointer.save(2)
        run.checkpointer.close()
    else:
        bitsnap.stop_agent(job=job, timeout=30)
        file = next(path.glob("checkpoints/*2/*.bsnap"))
        file.write_bytes(file.read_bytes()[:100])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bitsnap.RestoreWarning)
            assert run.checkpointer.restore() == 1
        run.checkpointer.close()


class NetWithUnused(Net):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.ones(300, 300))
        self.tied = self.up.weight


def unused_parameters_have_no_state(path: Path, job: str) -> None:
    def make() -> tuple[nn.Module, torch.optim.Optimizer, bitsnap.torch.TrainingCheckpointer]:
        model = nn.parallel.DistributedDataParallel(NetWithUnused(), find_unused_parameters=True)
        optimizer = torch.optim.Adam([*model.parameters()], lr=torch.tensor(1e-2), capturable=False, foreach=False)
        options: dict[str, Any] = {"job": bitsnap.JobOptions(name=job), "timeout": 60}
        return model, optimizer, bitsnap.torch.TrainingCheckpointer(path, model=model, optimizer=optimizer, **options)

    model, optimizer, checkpointer = make()
    model(torch.ones(2, WIDTH)).sum().backward()
    optimizer.step()
    optimizer.param_groups[0]["lr"].fill_(0.5)
    with checkpointer:
        checkpointer.save(1)
        checkpointer.wait()
    with bitsnap.Store(path, read_only=True) as store:
        saved = {tensor.name for tensor in bitsnap.inspect(store.snapshot(1, dist.get_rank())).tensors}
    assert ("model.up.weight" in saved) == ("model.tied" in saved) == (dist.get_rank() == 0)
    again, other, checkpointer = make()
    rate = other.param_groups[0]["lr"]
    with checkpointer:
        assert checkpointer.restore() == 1
    assert rate is other.param_groups[0]["lr"]
    assert rate == 0.5
    assert len(other.state) == len(optimizer.state) == 4
    for a, b in zip(again.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)
        slots = zip(other.state.get(a, {}).values(), optimizer.state.get(b, {}).values(), strict=True)
        assert all(torch.equal(left, right) for left, right in slots)
    end_agent(job)


def averages_and_second_models_are_divided(path: Path, job: str) -> None:
    rank = dist.get_rank()
    torch.manual_seed(1)
    model, critic = fsdp(Net()), fsdp(nn.Linear(WIDTH, 3))
    average = torch.optim.swa_utils.AveragedModel(Net())
    fsdp(average.module)
    options: dict[str, Any] = {
        "model": {"model": model, "critic": critic},
        "optimizer": [torch.optim.Adam(model.parameters()), torch.optim.Adam(critic.parameters())],
        "extra": {"average": average},
        "job": bitsnap.JobOptions(name=job),
        "timeout": 60,
    }
    local(next(average.parameters())).fill_(rank + 3)
    tensors = [*model.parameters(), *critic.parameters(), *average.parameters()]
    before = [full(tensor) for tensor in tensors]
    with bitsnap.torch.TrainingCheckpointer(path, **options) as checkpointer:
        checkpointer.save(1)
        checkpointer.wait()
        for tensor in tensors:
            local(tensor).zero_()
        average.n_averaged += 1
        assert checkpointer.restore() == 1
    assert all(torch.equal(full(a), b) for a, b in zip(tensors, before, strict=True))
    assert average.n_averaged == 0
    assert all(a is b for a, b in zip(tensors[-4:], average.parameters(), strict=True))
    with bitsnap.Store(path, read_only=True) as store:
        found = store.tensors(1)
        assert found["training.extra.average.module.up.weight"].shape == (HIDDEN, WIDTH)
        assert found["model.critic.weight"].shape == (3, WIDTH)
    end_agent(job)


def any_state_may_have_dtensors(path: Path) -> None:
    rank = dist.get_rank()
    weights = fsdp(nn.Linear(WIDTH, 8)).state_dict()
    before = {name: full(value) for name, value in weights.items()}
    with bitsnap.Store(path, shared=True) as store:
        for step in (1, 2):  # the second one by the plan of the first
            store.save_shard(step, {"ema": weights}, shard=rank, shards=2, attempt="a")
            dist.barrier()
            store.commit(step, 2, "a")
        rows = torch.empty(8, WIDTH)
        store.read_into(2, [("ema.weight", (0, 0), rows)])
        assert torch.equal(rows, before["weight"])
        box = store.load(1, shard=rank)["ema"]["weight"]
        assert (box.global_shape, box.offset) == ((8, WIDTH), (4 * rank, 0))
        for value in weights.values():
            local(value).zero_()
        assert store.load(2, into={"ema": weights}, shard=rank)["ema"]["weight"] is weights["weight"]
        assert all(torch.equal(full(value), before[name]) for name, value in weights.items())
        try:
            store.load(2, into={"ema": weights}, shard=1 - rank)
        except bitsnap.InvalidArgumentError as error:
            assert "is a box at" in str(error)  # noqa: PT017
        else:
            raise AssertionError("filled a part with another one")
        mesh, *alone_in = init_device_mesh("cpu", (2,)), DeviceMesh("cpu", [0]), DeviceMesh("cpu", [1])
        for placement, on, what in (
            (Partial(), mesh, "of partial sums"),
            (_StridedShard(0, split_factor=2), mesh, "whose part is no box"),  # it has rows of both halves
            (Shard(0), alone_in[1 - rank], "on DeviceMesh"),
        ):
            value = DTensor.from_local(torch.ones(4), on, [placement], shape=torch.Size((8,)), stride=(1,))
            with pytest.raises(bitsnap.BitsnapError, match=rf"state\['v'\] is a DTensor {what}"):
                store.save_shard(3, {"v": value}, shard=rank, shards=2, attempt="a")


def adams_numbers_of_dtensors_are_found(path: Path) -> None:
    rank = dist.get_rank()
    model = fsdp(Net())
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.5, 0.75), eps=1e-5)
    model(torch.ones(2, WIDTH)).sum().backward()
    optimizer.step()
    state = {"optim": get_optimizer_state_dict(model, optimizer)}
    dcp.save(state, checkpoint_id=path / "dcp/1", storage_writer=StorageWriter(settings="bounded"))
    moments = [{key: value for key, value in optimizer.state[p].items() if key != "step"} for p in model.parameters()]
    adam = bitsnap.Adam(optimizer=optimizer)
    with bitsnap.Store(path / "moments", shared=True, settings="bounded", adam=adam) as store:
        store.save_shard(1, moments, shard=rank, shards=2, attempt="a")
        dist.barrier()
        store.commit(1, 2, "a")
    for name in ("dcp", "moments"):
        with bitsnap.Store(path / name, read_only=True) as store:
            numbers = {*adam_of(store.snapshot(1, rank)).values()}
        assert numbers == {bitsnap.AdamNumbers((0.5, 0.75), 1e-5, 1)}


def work(rank: int, folder: Path, job: str) -> None:
    torch.set_num_threads(1)
    saving: list[tuple[str, int, Divide]] = [
        ("fsdp", 4, fsdp),
        ("hsdp", 4, hsdp),
        ("tp", 4, fsdp_and_tp),
        ("ddp", 2, ddp),
    ]
    to_each: list[tuple[int, Divide]] = [(2, ddp), (4, fsdp_and_tp), (4, hsdp)]
    from_each: list[tuple[int, Divide]] = [(1, alone), (3, fsdp)]
    groups = 0

    def in_group(size: int, task: Callable[[], None]) -> None:
        nonlocal groups
        groups += 1
        if rank < size:
            place = folder / f"meeting-{groups}"
            dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=size)
            try:
                task()
            finally:
                dist.destroy_process_group()
        arrive(folder / f"done-{groups}", rank)

    in_group(2, functools.partial(each_has_its_own, folder / "own", f"{job}own"))
    in_group(2, functools.partial(what_differs_is_saved_by_each, folder / "differs", f"{job}differs"))
    for size in (2, 1):
        in_group(size, functools.partial(the_step_before_is_taken, folder / "before", f"{job}before"))
    in_group(2, functools.partial(unused_parameters_have_no_state, folder / "unused", f"{job}unused"))
    in_group(2, functools.partial(averages_and_second_models_are_divided, folder / "models", f"{job}models"))
    in_group(2, functools.partial(any_state_may_have_dtensors, folder / "states"))
    in_group(2, functools.partial(adams_numbers_of_dtensors_are_found, folder))
    for name, size, divide in saving:
        in_group(size, functools.partial(saved_and_restored, folder / name, f"{job}{name}", divide, rank))
        for target, other in from_each + (to_each if divide is fsdp else []):
            in_group(target, functools.partial(restored, folder / name, f"{job}{name}{groups}", other))


def arrive(place: Path, rank: int) -> None:
    """Waits until all processes are here."""
    store = dist.FileStore(str(place), 4)  # type: ignore[attr-defined]
    store.add("arrived", 1)
    store.set(f"rank-{rank}", "here")
    store.wait([f"rank-{each}" for each in range(4)])


@pytest.mark.slow
def test_any_division_is_restored_by_any_other(tmp_path: Path) -> None:
    job = f"test-{secrets.token_hex(4)}"
    importlib.import_module("torch._dynamo")  # once, and not in each process with its first optimizer
    processes = [mp.get_context("fork").Process(target=work, args=(rank, tmp_path, job)) for rank in range(4)]
    for process in processes:
        process.start()
    deadline = time.monotonic() + 240
    while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
        if any(process.exitcode for process in processes):
            break  # the others would wait for it
        time.sleep(0.05)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0] * 4
    # One of the replicas has the tensors.
    assert sizes(tmp_path / "ddp")[1] < sizes(tmp_path / "ddp")[0] / 4
    first, second, third, fourth = sizes(tmp_path / "hsdp")
    assert max(third, fourth) < min(first, second) / 2


def sizes(run: Path) -> list[int]:
    """The bytes of the shards of step 4."""
    return [file.stat().st_size for file in sorted(run.glob("checkpoints/*4/*.bsnap"))]
