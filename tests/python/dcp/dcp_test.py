"""bitsnap.dcp in one process. tests/python/dcp/dcp_ranks_test.py has several."""

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
from bitsnap._states import program_values
from bitsnap.dcp import StorageReader, StorageWriter, to_torch_save
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


def test_to_torch_save_needs_the_folder_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(bitsnap.NotFoundError, match=r"none/a\.pt: there is no folder .*none$"):
        to_torch_save(tmp_path / "run" / "1", tmp_path / "none" / "a.pt")


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
        monkeypatch.setattr(program_values, table, {})
    bitsnap.register_value("test.bytearray", bytearray, bytes, bytearray)
    state = {"losses": bytearray(b"1.5"), "buffer": io.BytesIO(b"2.5"), "w": torch.ones(3)}
    save(state, tmp_path / "run/1")
    back = loaded({**dict.fromkeys(state), "w": torch.ones(3)}, tmp_path / "run/1")
    assert (back["losses"], back["buffer"].getvalue()) == (state["losses"], b"2.5")


class Planted:
    def __reduce__(self) -> Any:
        return Path.touch, (Path(PLANTED),)


PLANTED = ""


def test_a_planted_pickle_runs_only_with_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "PLANTED", str(tmp_path / "planted"))
    state = {"w": torch.ones(3), "planted": Planted()}
    save(state, tmp_path / "run/1", allow_pickle=True)
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
    consenting = StorageReader(allow_pickle=True)
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


def test_a_branch_is_saved_to_and_loaded_by_its_path(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for step in (100, 200):
        save(state_of(step), run / f"step-{step}")
    with bitsnap.Store(run, read_only=True) as store:
        store.branch("lr2", 100)
    assert_same(loaded(state_of(100), f"{run}:lr2/step-100"), state_of(100))
    save(state_of(150), f"{run}:lr2/step-150")
    assert_same(loaded(state_of(150), f"{run}:lr2/step-150"), state_of(150))
    for path, steps in ((run, [100, 200]), (f"{run}:lr2", [100, 150])):
        with bitsnap.Store(path, read_only=True) as store:
            assert store.steps() == steps
            assert step_sizes(store)[0] > 2 * step_sizes(store)[1]
    with pytest.raises(dcp.api.CheckpointException, match="has no branch 'lr3'"):
        save(state_of(150), f"{run}:lr3/step-150")
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def step_sizes(store: bitsnap.Store) -> list[int]:
    return [checkpoint.stored_bytes for checkpoint in store.checkpoints()]
