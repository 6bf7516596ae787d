"""Checkpoints of several ranks as one state: what load() and the commands that read a checkpoint make of them."""

from __future__ import annotations

import json
import secrets
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import xxhash
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import bitsnap
import bitsnap.torch
from bitsnap._bitsnap import Store as NativeStore
from cli.command_line import DIFFER, INVALID_ARGUMENT, NOT_FOUND, run, run_json
from python.files.conversions import load_plain
from python.rank_processes import ranks
from python.report.report_pages import page_of

ROWS, COLUMNS = 512, 64
STEPS = (1, 2, 3)


def whole(step: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    made = {name: torch.randn(ROWS, COLUMNS, generator=generator) for name in ("model.w", "optimizer.state.w.exp_avg")}
    made["model.w"] += 1e-4 * step
    made["model.v"] = torch.randn(COLUMNS, ROWS, generator=generator)
    return {**made, "model.norm": torch.arange(2000.0)}


def state_of(step: int, rank: int, count: int) -> dict[str, Any]:
    """Of one rank: rows of w, columns of v, the same norm, and a random generator of its own."""
    tensors = whole(step)
    w: Any
    v: Any
    exp_avg: Any
    w, v, exp_avg = (tensors[name] for name in ("model.w", "model.v", "optimizer.state.w.exp_avg"))
    if count > 1:
        part = ROWS // count
        own, rows, columns = slice(rank * part, (rank + 1) * part), (rank * part, 0), (0, rank * part)
        w, exp_avg = (bitsnap.Box(each[own], global_shape=(ROWS, COLUMNS), offset=rows) for each in (w, exp_avg))
        v = bitsnap.Box(v[:, own].clone(), global_shape=(COLUMNS, ROWS), offset=columns)
    return {
        "model": {"w": w, "v": v, "norm": tensors["model.norm"], "tied": tensors["model.norm"]},
        "optimizer": {"state": {"w": {"exp_avg": exp_avg}}, "param_groups": [{"lr": 0.1}]},
        "step": step,
        "rng": {"seed": torch.full((9,), rank, dtype=torch.uint8), "name": "mt"},
    }


def save_run(path: Path, count: int) -> Path:
    with bitsnap.Store(path, shared=True) as store:
        for step in STEPS:
            for rank in range(count):
                store.save_shard(step, state_of(step, rank, count), shard=rank, shards=count, attempt=f"a{step}")
            assert store.commit(step, count, f"a{step}")
    return path


@pytest.fixture(scope="module", params=[1, 4])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    return save_run(tmp_path_factory.mktemp("whole") / "run", request.param), request.param


@pytest.fixture(scope="module")
def of_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_run(tmp_path_factory.mktemp("one") / "run", 1)


def assert_whole(tensors: dict[str, Any], step: int = 3) -> None:
    for name, expected in whole(step).items():
        assert torch.equal(tensors[name], expected), name


def names_of_seeds(count: int) -> list[str]:
    return [f"rank-{rank}/rng.seed" for rank in range(count)] if count > 1 else ["rng.seed"]


def test_inspect_lists_global_tensors(saved: tuple[Path, int]) -> None:
    path, count = saved
    document = run_json("inspect", path)
    assert document["checkpoint"]["shards"] == count
    tensors = {each["name"]: each for each in document["tensors"]}
    assert set(tensors) == {*whole(3), "model.tied", *names_of_seeds(count)}
    sizes = {name: value.nbytes for name, value in whole(3).items()}
    assert {name: tensors[name]["raw_bytes"] for name in sizes} == sizes
    text = run("inspect", path).stdout.decode()
    assert "model.w" in text
    assert document["total"]["tensors"] == len(tensors)
    assert document["total"]["stored_bytes"] == document["file_bytes"]
    assert sum(each["tensors"] for each in [*document["roles"].values(), document["pool"]]) == len(tensors)
    if count > 1:
        assert document["checkpoint"]["shard"] is None
        assert [part["offset"] for part in tensors["model.v"]["parts"]] == [[0, 128 * rank] for rank in range(4)]
        assert tensors["model.w"]["stored_bytes"] > 0
        assert "4 shards together" in text
        one = run_json("inspect", path, "--shard", 1)
        assert one["checkpoint"]["shard"] == 1
        assert one["tensors"][0]["shape"] == [128, 64]


def test_extract_writes_global_tensors(saved: tuple[Path, int], tmp_path: Path) -> None:
    path, count = saved
    run("extract", f"{path}@3", "-o", tmp_path / "a.safetensors")
    tensors = safetensors.torch.load_file(tmp_path / "a.safetensors")
    assert_whole(tensors)
    assert set(names_of_seeds(count)) <= set(tensors)
    streamed = run("extract", f"{path}@3", "-o", "-").stdout
    assert streamed == (tmp_path / "a.safetensors").read_bytes()
    run("extract", f"{path}@2", "--tensor", "model.v", "-o", tmp_path / "v.safetensors")
    (name, tensor), *rest = safetensors.torch.load_file(tmp_path / "v.safetensors").items()
    assert (name, rest) == ("model.v", [])
    assert torch.equal(tensor, whole(2)["model.v"])
    run("extract", path, "--tensor", "nothing", "-o", tmp_path / "n.safetensors", status=NOT_FOUND)
    if count > 1:
        run("extract", path, "--shard", 2, "-o", tmp_path / "s.safetensors")
        assert torch.equal(
            safetensors.torch.load_file(tmp_path / "s.safetensors")["model.w"], whole(3)["model.w"][256:384]
        )
        for option in (["--partial"], ["--file", "x"]):
            done = run("extract", path, *option, "-o", tmp_path / "p", status=INVALID_ARGUMENT)
            assert b"choose one with --shard 0 to --shard 3" in done.stderr


def test_values_come_back_with_global_tensors(saved: tuple[Path, int], tmp_path: Path) -> None:
    path, count = saved
    run("convert", f"{path}@3", tmp_path / "a.pt")
    with bitsnap.Store(path, read_only=True) as store:
        states = [load_plain(tmp_path / "a.pt"), store.load(3)]
    for state in states:
        assert state["step"] == 3
        assert state["optimizer"]["param_groups"] == [{"lr": 0.1}]
        flat = {f"model.{name}": tensor for name, tensor in state["model"].items()}
        assert_whole({**flat, "optimizer.state.w.exp_avg": state["optimizer"]["state"]["w"]["exp_avg"]})
        own = [state["rng"]] if count == 1 else [state[f"rank-{rank}/rng"] for rank in range(count)]
        assert [each["seed"].tolist() for each in own] == [[rank] * 9 for rank in range(count)]
        assert state["rng"]["name"] == "mt"
        assert state["model"]["tied"].data_ptr() == state["model"]["norm"].data_ptr()


def test_load_takes_the_arguments_of_a_single_shard(saved: tuple[Path, int]) -> None:
    path, count = saved
    with bitsnap.Store(path, read_only=True) as store:
        state = store.load(2, keys=["model.w", "step"])
        assert state.keys() == {"model", "step"}
        assert torch.equal(state["model"]["w"], whole(2)["model.w"])
        into = {"model": {"v": torch.zeros(ROWS, COLUMNS).T}}
        seen: list[tuple[int, int]] = []

        def note(done: int, total: int) -> None:
            seen.append((done, total))

        store.load(into=into, keys="model.v", progress=note)
        assert torch.equal(into["model"]["v"], whole(3)["model.v"])
        assert seen[-1] == (into["model"]["v"].nbytes, into["model"]["v"].nbytes)
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"is F32 \[3\]"):
            store.load(into={"model": {"v": torch.zeros(3)}}, keys="model.v")
        if count > 1:
            part = store.load(shard=1)["model"]["w"]
            assert part.offset == (128, 0)
            with pytest.raises(bitsnap.InvalidArgumentError, match=r"partial=True .* shard=0 to shard=3"):
                store.load(partial=True)


def test_analyze_studies_global_tensors(saved: tuple[Path, int], of_one: Path) -> None:
    path, _ = saved
    options = ("--full", "--steps", 2)
    found, expected = (run_json("analyze", each, *options)["states"][-1]["roles"] for each in (path, of_one))
    for mine, other in zip(found, expected, strict=True):
        for key in ("role", "dtype", "elements", "entropy", "change"):
            assert mine[key] == other[key], key
    done = run("analyze", path, "--tensor", "model.w").stdout.decode()
    assert "model.w" in done


def test_diff_compares_global_tensors(saved: tuple[Path, int], of_one: Path) -> None:
    path, count = saved
    found = run_json("diff", f"{path}@3", f"{of_one}@3", status=DIFFER if count > 1 else 0)
    kinds = {each["name"]: each["kind"] for each in found["tensors"]}
    assert {kinds[name] for name in whole(3)} == {"equal"}
    if count > 1:
        only = dict.fromkeys(names_of_seeds(count), "only_in_a") | {"rng.seed": "only_in_b"}
        assert {name: kind for name, kind in kinds.items() if kind != "equal"} == only
    changed = run_json("diff", f"{path}@2", f"{path}@3", status=DIFFER)
    assert [each["name"] for each in changed["tensors"] if each["kind"] == "changed"] == ["model.w"]


def test_report_studies_global_tensors(saved: tuple[Path, int], tmp_path: Path) -> None:
    path, _ = saved
    texts = page_of(path).document["reasons"]["texts"]
    assert "model.w" in texts
    assert any(text.endswith("512×64") for text in texts)


def test_states_that_are_no_dicts_are_loaded_by_the_shard(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run", shared=True) as store:
        for rank in range(2):
            store.save_shard(1, [rank, torch.ones(3)], shard=rank, shards=2, attempt="a")
        store.commit(1, 2, "a")
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"cannot be put together .* shard=0 to shard=1"):
            store.load()
        assert store.load(shard=1)[0] == 1


def test_boxes_with_the_name_of_their_tensor_are_one(tmp_path: Path) -> None:
    expected = torch.arange(4000.0).reshape(40, 100)
    with bitsnap.Store(tmp_path / "run", shared=True) as store:
        for rank in range(2):
            boxes = {
                f"w/{row}": bitsnap.Box(expected[row : row + 10], global_shape=(40, 100), offset=(row, 0), name="w")
                for row in (20 * rank, 20 * rank + 10)
            }
            store.save_shard(1, {**boxes, "step": 1}, shard=rank, shards=2, attempt="a")
        store.commit(1, 2, "a")
        state = store.load()
    assert state.keys() == {"w", "step"}
    assert torch.equal(state["w"], expected)


def train(rank: int, path: Path, job: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(48, 130), torch.nn.BatchNorm1d(130), torch.nn.Linear(130, 50))
    fully_shard(model, mesh=init_device_mesh("cpu", (4,)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 48)).sum().backward()
    optimizer.step()
    torch.manual_seed(rank)
    options: dict[str, Any] = {
        "job": bitsnap.JobOptions(name=job),
        "agent": bitsnap.AgentOptions(threads=1, linger=1.0),
        "timeout": 60,
    }
    with bitsnap.torch.TrainingCheckpointer(path, model=model, optimizer=optimizer, **options) as saves:
        saves.save(1)
        saves.wait()
    moments = {f"exp_avg of {name}": optimizer.state[each]["exp_avg"] for name, each in model.named_parameters()}
    return {name: each.detach().full_tensor() for name, each in (*model.named_parameters(), *moments.items())}


def test_a_training_with_fsdp_is_loaded_as_one_state(tmp_path: Path) -> None:
    with ranks(tmp_path / "meeting", 4) as started:
        expected, *_ = started.run(train, tmp_path / "run", secrets.token_hex(8))
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        state = store.load()
    assert state.keys() == {"model", "optimizer", "training", "rank", *(f"rank-{rank}/rank" for rank in range(4))}
    for name, tensor in expected.items():
        moment = name.removeprefix("exp_avg of ")
        found = state["model"][name] if moment == name else state["optimizer"]["state"][moment]["exp_avg"]
        assert torch.equal(found, tensor), name
    assert set(state["optimizer"]["param_groups"][0]["params"]) == {name for name in expected if " " not in name}
    torch.manual_seed(2)
    assert torch.equal(state["rank-2/rank"]["rng"]["torch"], torch.get_rng_state())


def of_two(path: Path, *states: Any) -> Path:
    with bitsnap.Store(path, shared=True) as store:
        for shard, state in enumerate(states):
            store.save_shard(1, state, shard=shard, shards=2, attempt="a")
        assert store.commit(1, 2, "a")
    return path


def loads(path: Path) -> list[Any]:
    return [lambda: bitsnap.Store(path, read_only=True).load(1), lambda: bitsnap.load(f"{path}@1")]


@pytest.mark.parametrize("shards", [1, 2])
def test_a_checkpoint_that_is_named_opens_its_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    path = tmp_path / "run"
    if shards == 1:
        with bitsnap.Store(path) as store:
            store.save(1, {"w": torch.ones(5000)})
    else:
        of_two(path, {"w": torch.ones(5000)}, {"v": torch.ones(5000)})
    opened = []

    class Counted:
        @staticmethod
        def open(*arguments: Any) -> Any:
            opened.append(arguments)
            return NativeStore.open(*arguments)

    monkeypatch.setattr("bitsnap.snapshot.NativeStore", Counted)
    for name in ("1", "latest", "-1"):
        opened.clear()
        assert bitsnap.load(f"{path}@{name}")
        assert len(opened) == 1


def test_ranks_that_disagree_about_a_box_are_an_error_everywhere(tmp_path: Path) -> None:
    boxes = [bitsnap.Box(torch.full((2048, 4), float(k)), global_shape=(2048, 4), offset=(0, 0)) for k in (1, 2)]
    path = of_two(tmp_path / "run", *({"w": each} for each in boxes))
    for load in loads(path):
        with pytest.raises(bitsnap.CorruptError, match="shards 0 and 1 hold different values of the same elements"):
            load()
    assert b"hold different values" in run("convert", f"{path}@1", tmp_path / "a.safetensors", status=15).stderr


def test_values_that_cannot_be_joined_are_not_dropped(tmp_path: Path) -> None:
    path = of_two(tmp_path / "run", [torch.ones(2048), 1], [torch.zeros(2048), 2])
    for load in loads(path):
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"cannot be put together \(rank-0: its values"):
            load()


def test_a_shard_that_holds_a_folder_is_no_state(tmp_path: Path) -> None:
    """A forged store: the record has a hash, but no signature."""
    path = of_two(tmp_path / "run", {"w": torch.ones(5000)}, {"v": torch.ones(5000)})
    (tmp_path / "folder").mkdir()
    safetensors.torch.save_file({"a": torch.ones(9000), "b": torch.ones(10)}, tmp_path / "folder" / "m.safetensors")
    with bitsnap.Store(tmp_path / "other") as store:
        store.add_folder(1, tmp_path / "folder")
    forged = tmp_path / "other" / "checkpoints" / "0000000001" / "shard-00000-of-00001.bsnap"
    step = path / "checkpoints" / "0000000001"
    body = json.loads((step / "commit.json").read_text())["commit"]
    shard = body["shards"][0]
    (step / shard["file"]).write_bytes(forged.read_bytes())
    shard["bytes"], shard["id"] = forged.stat().st_size, bitsnap.snapshot_id(forged)
    text = json.dumps(body, separators=(",", ":"))
    (step / "commit.json").write_text(f'{{"commit":{text},"hash":"{xxhash.xxh3_64_hexdigest(text.encode())}"}}\n')
    (step / "tensors.json").unlink()
    for load in loads(path):
        with pytest.raises(bitsnap.UnsupportedError, match="a shard holds a folder, and no state"):
            load()


def test_a_whole_read_is_of_one_version_of_a_step(tmp_path: Path) -> None:
    path, ended = tmp_path / "run", threading.Event()

    def save(version: int) -> None:
        for shard in range(4):
            box = bitsnap.Box(torch.full((500, 4), float(version)), global_shape=(2000, 4), offset=(500 * shard, 0))
            store.save_shard(1, {"w": box}, shard=shard, shards=4, attempt=f"a{version}", replace=version > 0)
        store.commit(1, 4, f"a{version}", replace=version > 0)

    with bitsnap.Store(path, shared=True) as store:
        save(0)

        def write() -> None:
            for version in range(1, 60):
                save(version)
            ended.set()

        writer = threading.Thread(target=write)
        writer.start()
        while not ended.is_set():
            with suppress(bitsnap.BusyError, bitsnap.NotFoundError):
                assert len(set(bitsnap.load(f"{path}@1")["w"].flatten().tolist())) == 1
        writer.join()
