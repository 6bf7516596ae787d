"""`convert --to hf`: the model of a checkpoint as a folder that Transformers loads without a warning."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import bitsnap
from cli.command_line import INVALID_ARGUMENT, NOT_FOUND, run, run_json
from python.forked_calls import Calls
from python.runs.training_folders import names

TRAININGS = "python.transformers.model_folder_trainings"  # for the fixture `call`


def header_of(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(size))
    return header


@pytest.mark.parametrize("kind", ["gpt2", "llama", "tied"])
@pytest.mark.parametrize("weights", [False, True])
def test_checkpoints_of_the_trainer_become_models(call: Calls, tmp_path: Path, kind: str, weights: bool) -> None:
    call("train", folder=str(tmp_path / "out"), kind=kind, weights=weights)
    run("convert", tmp_path / "out" / "checkpoint-2", tmp_path / "model", "--to", "hf")
    assert names(tmp_path / "model") == ["config.json", "generation_config.json", "model.safetensors"]
    assert call("load", folder=str(tmp_path / "model"), expected=str(tmp_path / "out" / "final.pt")) == []
    header = header_of(tmp_path / "model" / "model.safetensors")
    assert header["__metadata__"] == {"format": "pt"}
    assert ("lm_head.weight" in header) == (kind == "llama")
    run("convert", tmp_path / "out" / "checkpoint-2", tmp_path / "model", "--to", "hf", status=INVALID_ARGUMENT)


@pytest.fixture(scope="module")
def divided(call: Calls, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of two ranks with FSDP2."""
    folder = tmp_path_factory.mktemp("divided")
    assert call("train_on_ranks", folder=str(folder), meeting=str(folder / "meeting")) == [0, 0]
    return folder


@pytest.mark.parametrize(
    ("dtype", "torch_name"), [(None, "float32"), ("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")]
)
def test_shards_of_ranks_become_a_model(
    call: Calls, divided: Path, tmp_path: Path, dtype: str | None, torch_name: str
) -> None:
    options = [] if dtype is None else ["--dtype", dtype]
    run("convert", divided / "run", tmp_path / "model", "--to", "hf", "--like", divided / "original", *options)
    assert json.loads((tmp_path / "model" / "config.json").read_bytes())["dtype"] == torch_name
    expected = str(divided / "final.pt")
    assert call("load", folder=str(tmp_path / "model"), expected=expected, dtype=torch_name) == []


def test_large_models_are_divided(call: Calls, divided: Path, tmp_path: Path) -> None:
    options = ("--to", "hf", "--like", divided / "original", "--max-file-size", "40kB")
    run("convert", divided / "run", tmp_path / "model", *options)
    index = json.loads((tmp_path / "model" / "model.safetensors.index.json").read_bytes())
    assert len(set(index["weight_map"].values())) == 4
    assert call("load", folder=str(tmp_path / "model"), expected=str(divided / "final.pt")) == []
    # The index tells the names, too.
    run("convert", divided / "run", tmp_path / "again", "--to", "hf", "--like", tmp_path / "model")
    assert call("load", folder=str(tmp_path / "again"), expected=str(divided / "final.pt")) == []


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("is_like", [False, True])
@pytest.mark.parametrize(
    ("places", "prefix"),
    [
        (["model"], ""),
        (["model"], "module._orig_mod."),
        (["state_dict"], "net."),
        (["state_dict"], "model._orig_mod."),
        ([], ""),
    ],
)
def test_names_of_states_become_those_of_the_model(
    call: Calls, tmp_path: Path, kind: str, is_like: bool, places: list[str], prefix: str
) -> None:
    call("save_state", folder=str(tmp_path), kind=kind, places=places, prefix=prefix)
    options: list[Any] = ["--to", "hf"]
    if is_like:
        options += ["--like", tmp_path / "original"]
    else:  # the files of the model were saved with the checkpoint
        with bitsnap.Store(tmp_path / "run") as store:
            files = {"config.json": (tmp_path / "original" / "config.json").read_bytes(), "vocab.txt": b"a", "x": b""}
            store.save(2, store.load(), files=files)
    run("convert", tmp_path / "run", tmp_path / "model", *options)
    assert call("load", folder=str(tmp_path / "model"), expected=str(tmp_path / "final.pt")) == []
    beside = ["config.json", "generation_config.json"] if is_like else ["config.json", "vocab.txt"]
    assert names(tmp_path / "model") == sorted([*beside, "model.safetensors"])


def test_casts_round_as_torch_does(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (300_000,), generator=generator, dtype=torch.int64).to(torch.int32)
    edges = torch.tensor(
        [0.0, -0.0, 65519.99, 65520.0, 2**-14, 2**-24, 2**-25, 3 * 2**-26, 1e-40, torch.inf, -torch.inf]
    )
    halves = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    state = {
        "f32": torch.cat([bits.view(torch.float32), edges, torch.randn(100_000, generator=generator)]),
        "f16": halves.view(torch.float16),
        "bf16": halves.view(torch.bfloat16),
        "f64": torch.randn(70_000, generator=generator, dtype=torch.float64),
        "i64": torch.arange(5),
    }
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(1, state, files={"config.json": b"{}"})
    for option, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)):
        run("convert", tmp_path / "run", tmp_path / option, "--to", "hf", "--dtype", option)
        found = safetensors.torch.load_file(tmp_path / option / "model.safetensors")
        assert torch.equal(found.pop("i64"), state["i64"])
        for name, tensor in found.items():
            assert tensor.dtype == dtype
            expected = state[name].to(dtype)
            assert torch.equal(tensor.isnan(), expected.isnan()), name
            same = tensor.nan_to_num().view(torch.uint8) == expected.nan_to_num().view(torch.uint8)
            assert same.all(), (option, name)


def test_what_is_no_model_is_named(call: Calls, tmp_path: Path) -> None:
    call("save_state", folder=str(tmp_path), kind="gpt2", places=["net"], prefix="")
    path, target, like = tmp_path / "run", tmp_path / "model", tmp_path / "original"

    def refused(*options: Any, status: int = INVALID_ARGUMENT) -> str:
        return run("convert", path, target, "--to", "hf", *options, status=status).stderr.decode()

    assert "no config.json beside the tensors; --like FOLDER" in refused()
    assert "has no config.json" in refused("--like", tmp_path, status=NOT_FOUND)
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_bytes((like / "config.json").read_bytes())
    error = refused("--like", tmp_path / "bare", status=NOT_FOUND)
    assert "no tensors of a model under 'model', 'state_dict' or 'module'; --like names a folder of the same" in error
    assert error.rstrip().endswith(
        "--only chooses tensors, and --strip removes what their names begin with [not_found]"
    )
    other = tmp_path / "of-another-model"
    other.mkdir()
    (other / "config.json").write_bytes((like / "config.json").read_bytes())
    safetensors.torch.save_file({"a.w": torch.ones(2), "b.w": torch.ones(2)}, other / "model.safetensors")
    error = refused("--like", other, status=NOT_FOUND)
    assert "the state has none of the 2 tensors of the model, such as 'a.w'; it has tensors such as 'net." in error
    assert f"--like names a folder of the same model, got {other}; --only chooses tensors" in error
    run("convert", path, target, "--to", "hf", "--like", tmp_path / "bare", "--only", "net.*", "--strip", "net.")
    assert call("load", folder=str(target), expected=str(tmp_path / "final.pt")) == []
    with bitsnap.Store(path) as store:
        state = store.load()
        store.save(2, {**state, "net": {**state["net"], "adapter": torch.ones(3)}})
        store.save(3, {**state, "ema": state["net"]})
        del state["net"]["transformer.ln_f.bias"]
        store.save(4, state)
        state["net"]["transformer.ln_f.bias"] = torch.ones(3)
        store.save(5, state)
    target = tmp_path / "other"
    path = f"{path}@2"  # type: ignore[assignment]
    assert "the state has the tensor 'adapter', which the model has not; --like" in refused("--like", like)
    path = f"{tmp_path}/run@3"  # type: ignore[assignment]
    assert "the model several times, with the prefixes 'ema.' and 'net.'; --like" in refused("--like", like)
    path = f"{tmp_path}/run@4"  # type: ignore[assignment]
    missing = "the state lacks 1 of the 28 tensors of the model, such as 'transformer.ln_f.bias'; --like"
    assert missing in refused("--like", like)
    path = f"{tmp_path}/run@5"  # type: ignore[assignment]
    assert "'transformer.ln_f.bias' of the state is [3], in the model it is [" in refused("--like", like)
    assert not target.exists()
    assert (
        b"goes with --to hf"
        in run("convert", path, tmp_path / "a.pt", "--dtype", "bf16", status=INVALID_ARGUMENT).stderr
    )


def test_a_state_with_a_tensor_at_the_top_is_the_model_itself_unless_a_section_is(tmp_path: Path) -> None:
    (tmp_path / "like").mkdir()
    (tmp_path / "like" / "config.json").write_text("{}")
    weights = {"w": torch.randn(2000), "b": torch.ones(3)}
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(1, {**weights, "step": 3})
        store.save(2, {"scale": torch.ones(2), "model": weights, "step": 3})
    for step in (1, 2):
        target = tmp_path / f"model-{step}"
        run("convert", f"{tmp_path}/run@{step}", target, "--to", "hf", "--like", tmp_path / "like")
        found = safetensors.torch.load_file(target / "model.safetensors")
        assert found.keys() == weights.keys()
        assert all(torch.equal(found[name], weights[name]) for name in weights)


def test_tensors_are_chosen_and_renamed(tmp_path: Path) -> None:
    state = {"model": {"a.w": torch.randn(2000), "b": torch.ones(3)}, "optimizer": {"m": torch.ones(3)}, "step": 3}
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(1, state)
        store.save(2, {"net": state["model"], "step": 4})
    for target, options in (("a.safetensors", []), ("b.pt", []), ("c", ["--to", "dcp"]), ("d.bsnap", [])):
        run("convert", f"{tmp_path}/run@1", tmp_path / target, "--only", "model.*", "--strip", "model.", *options)
        done = run_json("diff", f"{tmp_path}/run@2", tmp_path / target, "--map", "net.=")
        assert [each["name"] for each in done["tensors"]] == ["a.w", "b"]
    run("convert", f"{tmp_path}/run@1", tmp_path / "e.pt", "--only", "*.a.w", "--only", "optimizer.*")
    assert sorted(torch.load(tmp_path / "e.pt")) == ["model.a.w", "optimizer.m"]

    def refused(command: str, *options: str, status: int = INVALID_ARGUMENT) -> str:
        second = f"{tmp_path}/run@2" if command == "diff" else str(tmp_path / "x.pt")
        return run(command, f"{tmp_path}/run@1", second, *options, status=status).stderr.decode()

    assert "no tensor 'nothing'" in refused("convert", "--only", "nothing", status=NOT_FOUND)
    assert "'optimizer.m' does not begin with 'model.'" in refused("convert", "--strip", "model.")
    assert "expected OLD=NEW" in refused("diff", "--map", "model")
    assert "--map x=y: no tensor" in refused("diff", "--map", "x=y", status=NOT_FOUND)
    assert "would have the name" in refused("diff", "--map", "model.b=x", "--map", "optimizer.m=x")
