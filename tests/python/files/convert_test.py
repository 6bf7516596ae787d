"""`bitsnap convert` and `bitsnap diff` between the formats of torch, safetensors, snapshots and runs."""

from __future__ import annotations

import collections
import copy
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict_loader import load as load_distributed

import bitsnap
from cli.command_line import (
    CORRUPT,
    DIFFER,
    INVALID_ARGUMENT,
    NOT_FOUND,
    UNSUPPORTED,
    run,
    run_json,
)
from python.files.conversions import load_plain, quiet_save, refused
from python.processes import Start, finish_script
from python.same_bits import assert_same


def _layers() -> tuple[torch.nn.Embedding, torch.nn.Linear, torch.nn.BatchNorm1d]:
    """The first two have the same weight."""
    torch.manual_seed(3)
    layers = (torch.nn.Embedding(300, 64), torch.nn.Linear(64, 300, bias=False), torch.nn.BatchNorm1d(9))
    layers[1].weight = layers[0].weight
    return layers


def _trained() -> dict[str, Any]:
    """A state as trainers write it: module, optimizer, scheduler, random numbers."""
    embedding, linear, norm = _layers()
    model = torch.nn.Sequential(embedding, linear, norm)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    for _ in range(2):
        linear(embedding(torch.arange(300))).square().mean().backward()
        optimizer.step()
        scheduler.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": 2,
        "rng": torch.get_rng_state(),
        "seed": 2**64 - 3,
        "best": float("nan"),
        "history": [1.5, -0.0, None, True, ("a", 2**40, -(2**62))],
    }


def _everything() -> dict[Any, Any]:
    """Every type that a file with weights_only=True may hold."""
    base = torch.randn(70, 90)
    return {
        **{
            str(dtype): torch.ones(5, 3).to(dtype)
            for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.bool)
        },
        **{str(dtype): torch.arange(6).to(dtype) for dtype in (torch.int8, torch.uint8, torch.int16, torch.uint16)},
        **{str(dtype): torch.arange(6).to(dtype) for dtype in (torch.int32, torch.uint32, torch.int64, torch.uint64)},
        "float8": torch.randn(9).to(torch.float8_e4m3fn),
        "complex": torch.randn(4, dtype=torch.complex64),
        "transposed": base.t(),
        "rows": base[10:20],
        "columns": base[:, 3:50:2],
        "expanded": torch.randn(1, 40).expand(30, 40),
        "empty": torch.zeros(0, 4),
        "scalar": torch.tensor(2.5),
        3: {"tuple": (torch.ones(2), 1), None: "none", True: 1, 2.5: b"\x00\xff\x80", "": {}},
        "ordered": collections.OrderedDict([("z", 1), ("a", [])]),
        "size": torch.Size([3, 4]),
        "dtype": torch.bfloat16,
        "device": torch.device("cuda:1"),
        "set": {1, "two", (3,)},
        "counter": collections.Counter("hello"),
        "number": 3 - 2j,
        "text": "snow ☃ \x00",
    }


@pytest.mark.parametrize("make", [_trained, _everything])
@pytest.mark.parametrize("is_legacy", [False, True])
def test_torch_files_go_through_snapshots_and_runs(tmp_path: Path, make: Any, is_legacy: bool) -> None:
    state = make()
    torch.save(state, tmp_path / "a.pt", _use_new_zipfile_serialization=not is_legacy)
    run("convert", tmp_path / "a.pt", tmp_path / "a.bsnap")
    bitsnap.Store(tmp_path / "run").close()
    run("convert", tmp_path / "a.bsnap", f"{tmp_path}/run@5")
    run("convert", f"{tmp_path}/run@5", tmp_path / "b.pt")
    assert_same(load_plain(tmp_path / "b.pt"), state)
    with bitsnap.Store(tmp_path / "run", create=False) as store:
        assert_same(store.load(5), state)
    assert "equal" in run("diff", tmp_path / "a.pt", f"{tmp_path}/run@5").stdout.decode()


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    torch.save(torch.nn.Sequential(*_layers()).state_dict(), tmp_path / "a.pt")
    run("convert", tmp_path / "a.pt", tmp_path / "a.bsnap")
    run("convert", tmp_path / "a.bsnap", tmp_path / "b.pt")
    loaded = load_plain(tmp_path / "b.pt")
    assert loaded["0.weight"].data_ptr() == loaded["1.weight"].data_ptr()
    assert (tmp_path / "b.pt").stat().st_size < 300 * 64 * 4 + 5000


def test_files_are_mapped_by_torch(tmp_path: Path) -> None:
    torch.save(_trained(), tmp_path / "a.pt")
    run("convert", tmp_path / "a.pt", tmp_path / "b.pth")
    mapped = torch.load(tmp_path / "b.pth", mmap=True, weights_only=True)
    assert_same(mapped["model"], load_plain(tmp_path / "a.pt")["model"])


def test_torch_files_become_distributed_checkpoints(tmp_path: Path) -> None:
    state = _trained()
    torch.save(state, tmp_path / "a.pt")
    run("convert", tmp_path / "a.pt", tmp_path / "dcp", "--to", "dcp")
    target = {
        "model": {name: torch.zeros_like(value) for name, value in state["model"].items()},
        "step": 0,
        "best": 0.0,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load_distributed(target, checkpoint_id=tmp_path / "dcp", no_dist=True)
    assert_same(target, {"model": dict(state["model"]), "step": 2, "best": state["best"]})
    dcp_to_torch_save(tmp_path / "dcp", tmp_path / "b.pt")
    theirs = torch.load(tmp_path / "b.pt", weights_only=False)
    # What torch itself makes of the same state.
    dcp_to_torch_save(quiet_save(state, tmp_path / "torch-dcp"), tmp_path / "c.pt")
    assert_same(theirs, torch.load(tmp_path / "c.pt", weights_only=False))
    run("convert", tmp_path / "dcp", tmp_path / "d.pt")
    assert_same(load_plain(tmp_path / "d.pt"), theirs)
    assert "equal" in run("diff", tmp_path / "a.pt", tmp_path / "dcp").stdout.decode()


# Three ranks that save tensors in rows, in columns, in blocks of unequal size, and whole.
RANKS = """
import os, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=3)
mesh = init_device_mesh("cpu", (3,))
torch.manual_seed(1)
state = {
    "model": {
        "rows": distribute_tensor(torch.randn(100, 70), mesh, [Shard(0)]),
        "columns": distribute_tensor(torch.randn(50, 100), mesh, [Shard(1)]),
        "middle": distribute_tensor(torch.randn(4, 7, 300).bfloat16(), mesh, [Shard(1)]),
        "few": distribute_tensor(torch.randn(2, 9), mesh, [Shard(0)]),
        "whole": distribute_tensor(torch.randn(300), mesh, [Replicate()]),
    },
    "list": [torch.ones(3), {"x": 1}],
    "step": 7,
}
dcp.save(state, checkpoint_id=f"{folder}/dcp")
dist.barrier()
os._exit(0)  # gloo's threads may still run when the interpreter ends, which then aborts
"""


@pytest.mark.slow
def test_boxes_of_ranks_are_put_together(tmp_path: Path, start: Start) -> None:
    for process in [start(RANKS, rank, tmp_path) for rank in range(3)]:
        finish_script(process)
    run("convert", tmp_path / "dcp", tmp_path / "whole.pt")
    dcp_to_torch_save(tmp_path / "dcp", tmp_path / "expected.pt")
    expected = torch.load(tmp_path / "expected.pt", weights_only=False)
    assert_same(load_plain(tmp_path / "whole.pt"), expected)
    torch.manual_seed(1)
    assert_same(expected["model"]["rows"], torch.randn(100, 70))

    # The same from a run, and against files of another kind.
    bitsnap.Store(tmp_path / "run").add_folder(7, tmp_path / "dcp")
    run("convert", f"{tmp_path}/run@7", tmp_path / "b.pt")
    assert_same(load_plain(tmp_path / "b.pt"), expected)
    assert run_json("diff", tmp_path / "dcp", tmp_path / "whole.pt")["equal"] is True
    expected["model"]["columns"][20, 71] += 1
    torch.save(expected, tmp_path / "whole.pt")
    report = run_json("diff", f"{tmp_path}/run@7", tmp_path / "whole.pt", status=DIFFER)
    changed = {each["name"]: each["changed"] for each in report["tensors"] if each["kind"] != "equal"}
    assert changed == {"model.columns": 1}

    # A file of a rank is missing.
    (tmp_path / "dcp" / "__1_0.distcp").unlink()
    message = refused(tmp_path / "dcp", tmp_path / "c.pt", status=NOT_FOUND)
    assert "there is no file '__1_0.distcp'" in message


def test_states_in_different_formats_are_analyzed_together(tmp_path: Path) -> None:
    state = {"model": {"w": torch.randn(300, 400), "v": torch.randn(5000)}}
    torch.save(state, tmp_path / "a.pt")
    quiet_save(state, tmp_path / "dcp")
    state["model"]["v"][7] += 1
    torch.save(state, tmp_path / "b.pt")
    bitsnap.Store(tmp_path / "run").add_folder(1, tmp_path / "b.pt")
    for later, changed in ((tmp_path / "dcp", 0.0), (f"{tmp_path}/run@1", 1 / 5000)):
        found = run_json("analyze", tmp_path / "a.pt", later, "-v")["states"][1]["tensors"]
        assert {each["name"]: each["change"]["changed"] for each in found} == {"model.w": 0.0, "model.v": changed}


def test_safetensors_are_divided_and_joined(tmp_path: Path) -> None:
    torch.manual_seed(1)
    weights = {f"layer.{i}.weight": torch.randn(50, 40).bfloat16() for i in range(9)}
    weights |= {"flags": torch.tensor([True, False, True]), "norm": torch.randn(7), "empty": torch.zeros(0, 2)}
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    run("convert", tmp_path / "model.safetensors", tmp_path / "parts", "--max-file-size", "10KB", "--to", "safetensors")
    index = json.loads((tmp_path / "parts" / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": sum(w.nbytes for w in weights.values())}
    assert set(index["weight_map"]) == set(weights)
    files = sorted((tmp_path / "parts").glob("*.safetensors"))
    assert len(files) == 5
    joined: dict[str, torch.Tensor] = {}
    for file in files:
        assert sum(w.nbytes for w in safetensors.torch.load_file(file).values()) <= 10_000
        for name, tensor in safetensors.torch.load_file(file).items():
            assert index["weight_map"][name] == file.name
            joined[name] = tensor
        with safetensors.safe_open(file, "pt") as opened:
            assert opened.metadata() == {"format": "pt"}
    assert_same(dict(sorted(joined.items())), dict(sorted(weights.items())))
    run("convert", tmp_path / "parts", tmp_path / "whole.safetensors")
    whole = safetensors.torch.load_file(tmp_path / "whole.safetensors")
    assert_same(dict(sorted(whole.items())), dict(sorted(weights.items())))
    run("convert", tmp_path / "parts", tmp_path / "whole.pt")
    assert_same(dict(sorted(load_plain(tmp_path / "whole.pt").items())), dict(sorted(weights.items())))


def test_values_go_through_safetensors(tmp_path: Path) -> None:
    state = _trained()
    torch.save(state, tmp_path / "a.pt")
    run("convert", tmp_path / "a.pt", tmp_path / "a.safetensors")
    names = safetensors.torch.load_file(tmp_path / "a.safetensors")
    assert_same(names["model.0.weight"], state["model"]["0.weight"])
    run("convert", tmp_path / "a.safetensors", tmp_path / "b.pt")
    assert_same(load_plain(tmp_path / "b.pt"), state)


def test_pairs_of_4_bit_floats_are_what_safetensors_calls_f4(tmp_path: Path) -> None:
    raw = torch.arange(256, dtype=torch.uint8).reshape(16, 16)
    torch.save({"t": raw.view(torch.float4_e2m1fn_x2), "s": raw.view(torch.float8_e8m0fnu)}, tmp_path / "a.pt")
    run("convert", tmp_path / "a.pt", tmp_path / "a.safetensors")
    loaded = safetensors.torch.load_file(tmp_path / "a.safetensors")
    assert loaded["t"].dtype is torch.float4_e2m1fn_x2
    assert torch.equal(loaded["t"].view(torch.uint8), raw)
    safetensors.torch.save_file({"t": raw.view(torch.float4_e2m1fn_x2)}, tmp_path / "b.safetensors")
    run("convert", tmp_path / "b.safetensors", tmp_path / "b.pt")
    back = torch.load(tmp_path / "b.pt", weights_only=True)["t"]
    assert back.dtype is torch.float4_e2m1fn_x2
    assert torch.equal(back.view(torch.uint8), raw)


def test_what_tensors_only_leaves_out_of_one_file_is_named(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(3), "epoch": 3, "o": {"lr": 0.5, "m": [torch.ones(2), "x"]}}, tmp_path / "a.pt")
    message = refused(tmp_path / "a.pt", tmp_path / "b.pt", "--tensors-only", status=0)
    assert [line.split("left out: ")[1].split(" [")[0] for line in message.splitlines() if "left out" in line] == [
        "value epoch",
        "value o.lr",
        "value o.m[1]",
    ]


def test_files_of_a_folder_become_one_state(tmp_path: Path) -> None:
    state = _trained()
    folder = tmp_path / "checkpoint-2"
    folder.mkdir()
    torch.save(torch.nn.Sequential(*_layers()).state_dict(), folder / "pytorch_model.bin")
    run("convert", folder, tmp_path / "model.pt")  # only versions of modules are dropped
    torch.save(state["optimizer"], folder / "optimizer.pt")
    np.save(folder / "order.npy", np.asfortranarray(np.arange(12.0).reshape(3, 4)))
    (folder / "trainer_state.json").write_text("{}")
    message = refused(folder, tmp_path / "all.pt", status=UNSUPPORTED)
    assert "optimizer.pt: its values besides tensors" in message
    assert "--tensors-only" in message
    run("convert", folder, tmp_path / "all.pt", "--tensors-only")
    loaded = load_plain(tmp_path / "all.pt")
    assert_same(loaded["state.0.exp_avg"], state["optimizer"]["state"][0]["exp_avg"])
    assert_same(loaded["array"], torch.arange(12.0, dtype=torch.float64).reshape(3, 4))
    assert "2.running_mean" in loaded
    torch.save({"w": torch.ones(3)}, folder / "a.pt")
    torch.save({"w": torch.zeros(3)}, folder / "b.pt")
    run("convert", folder, tmp_path / "two.safetensors", "--tensors-only")
    assert {"a.pt/w", "b.pt/w", "array"} <= set(safetensors.torch.load_file(tmp_path / "two.safetensors"))


def test_metadata_of_several_files_is_kept_or_named(tmp_path: Path) -> None:
    for name, metadata in {"a": {"format": "pt", "x": "1"}, "b": {"format": "pt", "y": "2"}}.items():
        (tmp_path / "m").mkdir(exist_ok=True)
        safetensors.torch.save_file({name: torch.ones(3)}, tmp_path / "m" / f"{name}.safetensors", metadata=metadata)
    run("convert", tmp_path / "m", tmp_path / "m.safetensors")
    with safetensors.safe_open(tmp_path / "m.safetensors", "pt") as opened:
        assert opened.metadata() == {"format": "pt", "x": "1", "y": "2"}
    safetensors.torch.save_file({"c": torch.ones(3)}, tmp_path / "m" / "c.safetensors", metadata={"x": "3"})
    message = refused(tmp_path / "m", tmp_path / "n.safetensors", status=UNSUPPORTED)
    assert "this would be lost: c.safetensors: metadata 'x'" in message


def test_shards_of_ranks_are_one_state(tmp_path: Path) -> None:
    store = bitsnap.Store(tmp_path / "run")
    for rank in range(2):
        state = {f"part{rank}": torch.arange(2000.0) + rank, "both": torch.ones(3) * rank}
        store.save_shard(1, state, shard=rank, shards=2, attempt="a")
    store.commit(1, 2, "a")
    run("convert", f"{tmp_path}/run@1", tmp_path / "a.pt")
    expected = {"part0": torch.arange(2000.0), "part1": torch.arange(2000.0) + 1}
    expected |= {"rank-0/both": torch.zeros(3), "rank-1/both": torch.ones(3)}
    assert_same(load_plain(tmp_path / "a.pt"), expected)
    run("convert", f"{tmp_path}/run@1", tmp_path / "b.pt", "--shard", 1)
    assert_same(load_plain(tmp_path / "b.pt"), {"part1": torch.arange(2000.0) + 1, "both": torch.ones(3)})


class Callback:
    """An object of the program that trains."""


class Marked(torch.Tensor):
    """A tensor of a program's own class."""


def _with_attribute() -> torch.Tensor:
    tensor = torch.ones(2)
    tensor.note = {"scale": 2.0}  # type: ignore[attr-defined]
    return tensor


def _with_extra() -> collections.OrderedDict[str, Any]:
    state = collections.OrderedDict(a=torch.ones(3))
    state.extra = {"k": 3}  # type: ignore[attr-defined]
    return state


def _quantized() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.randn(8), 0.1, 3, torch.quint8)


def _conjugate() -> torch.Tensor:
    return torch.randn(3, dtype=torch.cfloat).conj()


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: {"b": [1, Callback()]}, "x.b.1"),
        (_quantized, "x (a quantized tensor)"),
        (lambda: torch.eye(3).to_sparse(), "x"),
        (_conjugate, "x (a conjugate view)"),
        (lambda: _conjugate().imag, "x (a negative view)"),
        (_with_attribute, "x"),
        (lambda: torch.ones(3).as_subclass(Marked), "x"),
        (_with_extra, "x"),
    ],
)
@pytest.mark.parametrize("is_legacy", [False, True])
def test_what_cannot_be_converted_is_named(tmp_path: Path, make: Any, place: str, is_legacy: bool) -> None:
    path = tmp_path / "a.pt"
    torch.save({"w": torch.ones(3), "x": make()}, path, _use_new_zipfile_serialization=not is_legacy)
    message = refused(path, tmp_path / "out.pt", status=UNSUPPORTED)
    assert f"a.pt: this would be lost: {place}; --tensors-only" in message.replace(", and 1 more", "")
    assert not (tmp_path / "out.pt").exists()
    assert "this would be lost" not in refused(path, tmp_path / "out.pt", "--tensors-only", status=0)
    kept = load_plain(tmp_path / "out.pt")
    assert_same(kept["w"], torch.ones(3))
    if "(" in place:
        assert "x" not in kept


def test_what_a_format_cannot_hold_is_named(tmp_path: Path) -> None:
    # Values of a snapshot that weights_only=True refuses.
    bitsnap.save(tmp_path / "a.bsnap", {"w": torch.ones(3), "path": {"here": Path("/tmp")}})
    message = refused(tmp_path / "a.bsnap", tmp_path / "b.pt", status=UNSUPPORTED)
    assert "'path.here' is a value of the type pathlib.PosixPath" in message
    torch.save({"c": torch.ones(3, dtype=torch.complex128)}, tmp_path / "c.pt")
    message = refused(tmp_path / "c.pt", tmp_path / "c.safetensors", status=UNSUPPORTED)
    assert "safetensors has no dtype C128" in message
    torch.save({"w": torch.ones(300), "step": 5}, tmp_path / "d.pt")
    parts = (tmp_path / "d.pt", tmp_path / "parts", "--to", "safetensors", "--max-file-size", "500")
    assert "cannot hold values besides tensors" in refused(*parts, status=UNSUPPORTED)
    run("convert", *parts, "--tensors-only")
    safetensors.torch.save_file({"w": torch.ones(3)}, tmp_path / "e.safetensors", metadata={"lr": "1e-3"})
    message = refused(tmp_path / "e.safetensors", tmp_path / "e.pt", status=UNSUPPORTED)
    assert "metadata 'lr'" in message


def test_values_in_the_metadata_of_safetensors_are_found_in_snapshots(tmp_path: Path) -> None:
    state = {"w": torch.ones(300), "step": 5}
    torch.save(state, tmp_path / "a.pt")
    run("convert", tmp_path / "a.pt", tmp_path / "a.safetensors")
    run("compress", tmp_path / "a.safetensors")
    run("convert", tmp_path / "a.bsnap", tmp_path / "b.pt")
    assert_same(load_plain(tmp_path / "b.pt"), state)
    run("convert", tmp_path / "a.safetensors", tmp_path / "c.safetensors", "--tensors-only")
    with safetensors.safe_open(tmp_path / "c.safetensors", "pt") as opened:
        assert not opened.metadata()


def test_damaged_and_missing_files_are_errors(tmp_path: Path) -> None:
    torch.manual_seed(1)
    torch.save({f"w{i}": torch.randn(50, 40) for i in range(6)}, tmp_path / "a.pt")
    parts = tmp_path / "parts"
    run("convert", tmp_path / "a.pt", parts, "--to", "safetensors", "--max-file-size", "20KB")
    second = parts / "model-00002-of-00003.safetensors"
    whole = second.read_bytes()
    second.write_bytes(whole[:-10])
    assert second.name in refused(parts, tmp_path / "b.pt", status=CORRUPT)
    second.unlink()
    message = refused(parts, tmp_path / "b.pt", status=NOT_FOUND)
    assert f"'model.safetensors.index.json' names the file '{second.name}', which is not there" in message
    (tmp_path / "elsewhere").write_bytes(whole)
    second.symlink_to(tmp_path / "elsewhere")
    assert "symbolic link out of the folder" in refused(parts, tmp_path / "b.pt", status=UNSUPPORTED)
    second.unlink()
    second.write_bytes(whole)
    (parts / "last.safetensors").symlink_to(second.name)
    run("convert", parts, tmp_path / "b.pt")
    assert_same(load_plain(tmp_path / "b.pt"), load_plain(tmp_path / "a.pt"))

    (tmp_path / "cut.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:-30])
    assert "cut.pt: " in refused(tmp_path / "cut.pt", tmp_path / "c.pt", status=CORRUPT)
    np.savez_compressed(parts / "c.npz", a=np.ones(5))
    assert "c.npz (of a format that is not read)" in refused(parts, tmp_path / "c.pt", status=UNSUPPORTED)

    dcp = quiet_save({"w": torch.ones(300), "v": torch.ones(3)}, tmp_path / "dcp")
    metadata = pickle.loads((dcp / ".metadata").read_bytes())
    (index,) = [each for each in metadata.storage_data if each.fqn == "v"]
    del metadata.storage_data[index]
    (dcp / ".metadata").write_bytes(pickle.dumps(metadata))
    assert "no file holds item 'v'" in refused(dcp, tmp_path / "c.pt", status=CORRUPT)
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a").write_text(folder)
    assert "holds no tensors" in run("diff", tmp_path / "x", tmp_path / "y", status=INVALID_ARGUMENT).stderr.decode()


def test_distributed_checkpoints_have_the_items_of_torch(tmp_path: Path) -> None:
    model = torch.nn.Linear(9, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    model(torch.ones(2, 9)).sum().backward()
    optimizer.step()
    state: dict[str, Any] = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "lists": [[1, 2], [[{"a": 1}]], [], (torch.ones(2), 1)],
        "keys": {True: 1, None: 2, 3: {}},
        "counter": collections.Counter("hello"),
    }
    torch.save(state, tmp_path / "a.pt")
    run("convert", tmp_path / "a.pt", tmp_path / "ours", "--to", "dcp")
    quiet_save(state, tmp_path / "theirs")
    ours, theirs = (pickle.loads((tmp_path / name / ".metadata").read_bytes()) for name in ("ours", "theirs"))
    # torch drops empty dicts.
    assert ours.state_dict_metadata.keys() - {"keys.3"} == theirs.state_dict_metadata.keys()
    assert {name: path for name, path in ours.planner_data.items() if name != "keys.3"} == theirs.planner_data
    for name, described in theirs.state_dict_metadata.items():
        assert type(ours.state_dict_metadata[name]) is type(described)
        assert getattr(ours.state_dict_metadata[name], "size", None) == getattr(described, "size", None)
    target = copy.deepcopy(state)
    target["model"]["weight"].zero_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load_distributed(target, checkpoint_id=tmp_path / "ours", no_dist=True)
    assert_same(target["model"], state["model"])
