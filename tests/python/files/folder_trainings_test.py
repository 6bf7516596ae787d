"""Checkpoints of trainings, as frameworks write them: small in a store, and the same bytes when they come back."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_safetensors
from torch.distributed.checkpoint.state_dict_loader import load as load_distributed
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

import bitsnap
from python.files.checkpoint_folders import SmallTraining, assert_comes_back
from python.processes import Start, finish_script
from python.same_bits import assert_same

STEPS = (9, 10, 11)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _sorted(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """By name: files have their tensors in another order than the state."""
    return dict(sorted(tensors.items()))


def test_a_training_is_small_and_comes_back(tmp_path: Path) -> None:
    training = SmallTraining()
    own = bitsnap.Store(tmp_path / "own")
    store = bitsnap.Store(tmp_path / "run")
    for step in STEPS:
        training.train(step - training.step)
        folder = tmp_path / f"checkpoint-{step}"
        training.write(folder)
        # The same files below a name that changes from step to step, as DeepSpeed's.
        (folder / f"global_step{step}").mkdir()
        torch.save(training.model.state_dict(), folder / f"global_step{step}" / "model_states.pt")
        state = {**training.state(), "model_states": {k: v.clone() for k, v in training.model.state_dict().items()}}
        saved, own_saved = store.add_folder(step, folder), own.save(step, state)
        if step > STEPS[0]:
            # One step of AdamW, which only tensors of the same name give.
            assert saved.base == step - 1
            assert saved.stored_bytes < saved.raw_bytes / 3.5
        else:
            assert saved.stored_bytes > saved.raw_bytes / 2
        assert saved.stored_bytes < 1.02 * own_saved.stored_bytes

    for step in STEPS:
        folder = tmp_path / f"checkpoint-{step}"
        opened = assert_comes_back(store, step, folder, tmp_path / f"out-{step}")
        for name in ("optimizer.pt", "scheduler.pt"):
            assert_same(torch.load(opened[name].open(), weights_only=True), torch.load(folder / name))
        assert_same(_sorted(load_safetensors(opened["model.safetensors"].read())), _sorted(opened["model.safetensors"]))
        rng = torch.load(opened["rng_state.pth"].open(), weights_only=False)
        assert torch.equal(rng["cpu"], torch.load(folder / "rng_state.pth", weights_only=False)["cpu"])
    assert_same(_sorted(opened["model.safetensors"]), _sorted(training.model.state_dict()))


def test_older_formats_of_torch_come_back(tmp_path: Path) -> None:
    linear = torch.nn.Linear(30, 40)
    module = torch.nn.Sequential(linear, torch.nn.Linear(40, 30))
    store = bitsnap.Store(tmp_path / "run")
    for step in (1, 2):
        folder = tmp_path / f"{step}"
        folder.mkdir()
        with torch.no_grad():
            linear.weight.mul_(1.001)
        torch.save(module.state_dict(), folder / "legacy.pt", _use_new_zipfile_serialization=False)
        torch.save(module, folder / "whole.pt")
        with pytest.warns(DeprecationWarning, match=r"torch\.jit"):
            torch.jit.script(module).save(str(folder / "script.pt"))  # type: ignore[no-untyped-call]
        np.savez(folder / "arrays.npz", w=linear.weight.detach().numpy(), step=np.int64(step))
        store.add_folder(step, folder)
        opened = assert_comes_back(store, step, folder, tmp_path / f"out-{step}")
        assert [entry.container for entry in opened.entries[1:]] == ["npz", "torch-legacy", "torch-zip", "torch-zip"]
        assert_same(_sorted(opened["legacy.pt"]), _sorted(module.state_dict()))
        assert_same(dict(torch.load(opened["legacy.pt"].open(), weights_only=True)), dict(module.state_dict()))
        assert_same(opened["whole.pt"]["0.weight"], linear.weight.detach())
        with pytest.warns(DeprecationWarning, match=r"torch\.jit"):
            script = torch.jit.load(opened["script.pt"].open())  # type: ignore[no-untyped-call]
        assert_same(dict(script.state_dict()), dict(module.state_dict()))


def test_names_in_the_older_format_do_not_depend_on_addresses(tmp_path: Path) -> None:
    store = bitsnap.Store(tmp_path / "run")
    kept = []
    for protocol in (2, 3, 4, 5):
        whole = torch.arange(50.0) + protocol
        kept.append(whole)  # so that the next one has another address
        path, state = tmp_path / "a.pt", {"part": whole[10:20]}
        torch.save(state, path, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
        store.add_folder(protocol, tmp_path / "a.pt")
        file = store.open_folder()[""]
        assert file.entry.container == "torch-legacy"
        assert set(file) == {"part", "data/0", "data/0#2"}
        assert_same(file["part"], whole[10:20].clone())
        assert_same(file["data/0#2"], whole[20:].clone())
        assert file.read() == (tmp_path / "a.pt").read_bytes()


# Two ranks that train with sharded tensors, and save each step with torch.distributed.checkpoint.
DCP = """
import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(1)
state = {
    "model": {f"w{i}": distribute_tensor(torch.randn(256, 200), mesh, [Shard(i % 2)]) for i in range(4)},
    "bias": distribute_tensor(torch.randn(300), mesh, [Replicate()]),
    "plain": torch.arange(5.0),
    "step": 0,
}
for step in (1, 2):
    for w in state["model"].values():
        w.to_local().mul_(1 + 2.0**-20)
    state["step"] = step
    dcp.save(state, checkpoint_id=f"{folder}/step-{step}")
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_distributed_checkpoints_come_back(tmp_path: Path, start: Start) -> None:
    for process in [start(DCP, rank, tmp_path) for rank in range(2)]:
        finish_script(process)
    store = bitsnap.Store(tmp_path / "run")
    sizes = []
    for step in (1, 2):
        folder = tmp_path / f"step-{step}"
        assert {".metadata", "__0_0.distcp", "__1_0.distcp"} <= set(_names(folder))
        sizes.append(store.add_folder(step, folder).stored_bytes)
        opened = assert_comes_back(store, step, folder, tmp_path / f"out-{step}")
        assert [opened[f"__{rank}_0.distcp"].entry.container for rank in range(2)] == ["dcp", "dcp"]
    assert sizes[1] < sizes[0] / 3
    shapes = {name: tuple(tensor.shape) for rank in range(2) for name, tensor in opened[f"__{rank}_0.distcp"].items()}
    assert any("model.w0" in name and shape == (128, 200) for name, shape in shapes.items())

    loaded = {"plain": torch.zeros(5), "model": {"w1": torch.zeros(256, 200)}, "step": 0}
    with pytest.warns(UserWarning, match="single process"):
        load_distributed(loaded, checkpoint_id=tmp_path / "out-2", no_dist=True)
    torch.manual_seed(1)
    expected = [torch.randn(256, 200) for _ in range(2)][1].mul_(1 + 2.0**-20).mul_(1 + 2.0**-20)
    assert_same(loaded, {"plain": torch.arange(5.0), "model": {"w1": expected}, "step": 2})


LOSSY = bitsnap.Settings(loss=["exp_avg_sq=mantissa_bits:3"])


def test_loss_changes_only_the_tensors_of_its_rules(tmp_path: Path) -> None:
    training = SmallTraining(width=64)
    training.train(3)
    folder = tmp_path / "checkpoint-3"
    training.write(folder)
    store = bitsnap.Store(tmp_path / "run", settings=LOSSY)
    store.add_folder(3, folder)
    store.extract_folder(3, tmp_path / "out")
    changed = {
        name for name in _names(folder) if (folder / name).read_bytes() != (tmp_path / "out" / name).read_bytes()
    }
    assert changed == {"optimizer.pt"}
    original, lossy = torch.load(folder / "optimizer.pt"), store.open_folder()["optimizer.pt"]
    for index, slots in original["state"].items():
        assert_same(lossy[f"state.{index}.exp_avg"], slots["exp_avg"])
        rounded = lossy[f"state.{index}.exp_avg_sq"]
        assert torch.equal(rounded, slots["exp_avg_sq"]) == (rounded.dim() == 1)  # small tensors keep every bit
        assert torch.allclose(rounded, slots["exp_avg_sq"], rtol=2.0**-4, atol=0)


@pytest.mark.parametrize("is_extracted", [True, False])
def test_files_that_lost_something_can_be_loaded(tmp_path: Path, is_extracted: bool) -> None:
    training = SmallTraining(width=64)
    training.train(3)
    folder = tmp_path / "checkpoint-3"
    training.write(folder)
    np.savez(folder / "moments.npz", exp_avg_sq=training.optimizer.state_dict()["state"][0]["exp_avg_sq"].numpy())
    store = bitsnap.Store(tmp_path / "run", settings=LOSSY)
    store.add_folder(3, folder)
    store.extract_folder(3, tmp_path / "out")
    opened = store.open_folder()

    def source(name: str) -> Any:
        return tmp_path / "out" / name if is_extracted else opened[name].open()

    for name in ("optimizer.pt", "moments.npz"):
        with zipfile.ZipFile(source(name)) as archive:
            assert archive.testzip() is None  # all checksums are those of the entries
    lossy = torch.load(source("optimizer.pt"), weights_only=True)
    assert_same(lossy["state"][0]["exp_avg_sq"], opened["optimizer.pt"]["state.0.exp_avg_sq"])
    with np.load(source("moments.npz")) as loaded:
        assert_same(torch.from_numpy(loaded["exp_avg_sq"]), opened["moments.npz"]["exp_avg_sq"])


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_a_dcp_folder_that_lost_something_is_extracted(tmp_path: Path) -> None:
    state = {"exp_avg_sq": torch.rand(50_000), "weight": torch.randn(50_000)}
    save_distributed(state, checkpoint_id=tmp_path / "step-1", no_dist=True)
    store = bitsnap.Store(tmp_path / "run", settings=LOSSY)
    store.add_folder(1, tmp_path / "step-1")
    store.extract_folder(1, tmp_path / "out")
    loaded = {"exp_avg_sq": torch.zeros(50_000), "weight": torch.zeros(50_000)}
    load_distributed(loaded, checkpoint_id=tmp_path / "out", no_dist=True)
    assert_same(loaded["weight"], state["weight"])
    assert not torch.equal(loaded["exp_avg_sq"], state["exp_avg_sq"])
    assert torch.allclose(loaded["exp_avg_sq"], state["exp_avg_sq"], rtol=0.07)


@pytest.mark.parametrize("adam", [None, bitsnap.Adam(betas=(0.9, 0.999), eps=1e-8, step=lambda: 3)])
def test_bounded_loss_needs_the_values_of_adam(tmp_path: Path, adam: bitsnap.Adam | None) -> None:
    training = SmallTraining(width=32)
    training.train(3)
    training.write(tmp_path / "checkpoint-3")
    store = bitsnap.Store(tmp_path / "run", settings=bitsnap.bounded(master_bits=None), adam=adam)
    if adam is None:
        with pytest.raises(bitsnap.InvalidArgumentError, match="Adam's betas, eps and step"):
            store.add_folder(3, tmp_path / "checkpoint-3")
        return
    store.add_folder(3, tmp_path / "checkpoint-3")
    before = torch.load(tmp_path / "checkpoint-3" / "optimizer.pt")["state"][0]["exp_avg"]
    after = store.open_folder()["optimizer.pt"]["state.0.exp_avg"]
    assert not torch.equal(before, after)
    assert torch.allclose(before, after, atol=float(before.abs().max()) / 10)
