"""Loading what can be read of damaged snapshots and checkpoints."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from python.run_states import filled
from python.same_bits import assert_same

ROWS = 100


def damage(path: Path, wanted: set[str]) -> None:
    """Flips a byte so that exactly these tensors cannot be read."""
    whole = path.read_bytes()
    size = len(whole)
    for at in [*range(70, size, max(1, size // 50)), *range(size - 100, max(size - 3000, 70), -8)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            if bitsnap.Snapshot(path).damaged_tensors().keys() == wanted:
                return
        except bitsnap.BitsnapError:
            continue
    raise AssertionError(f"no byte of {path} damages {wanted}")


def tensors(step: int = 0) -> dict[str, Any]:
    """Two large tensors and small ones, which are in the pool."""
    rng = np.random.default_rng(step)
    large = {name: torch.from_numpy(rng.standard_normal((ROWS, 200), np.float32)) for name in ("a", "b")}
    return {**large, "small": torch.arange(step, step + 5), "tiny": torch.tensor(step)}


def file_of(run: Path, step: int) -> Path:
    return next((run / "checkpoints" / f"{step:010}").glob("*.bsnap"))


def test_flat_files_are_loaded_without_damaged_tensors(tmp_path: Path) -> None:
    saved = tensors()
    path = tmp_path / "a.bsnap"
    bitsnap.save_file(saved, path)
    assert_same(bitsnap.load_file(path, partial=True), saved)
    whole = path.read_bytes()
    for lost in ({"a"}, {"small", "tiny"}):
        damage(path, lost)
        with pytest.raises(bitsnap.CorruptError):
            bitsnap.load_file(path)
        with pytest.warns(bitsnap.DamageWarning, match="left out") as warned:
            found = bitsnap.load_file(path, partial=True)
        assert_same(found, {name: each for name, each in saved.items() if name not in lost})
        (warning,) = (each.message for each in warned)
        assert isinstance(warning, bitsnap.DamageWarning)
        assert warning.damaged.keys() == lost
        assert all(isinstance(each, bitsnap.CorruptError) for each in warning.damaged.values())
        assert "chunk 0" in str(warning)
        assert pickle.loads(pickle.dumps(warning)).damaged.keys() == lost
        path.write_bytes(whole)


def names_of_tied(path: Path, name: str) -> set[str]:
    """The tensor of that name, and those that share its bytes."""
    summaries = bitsnap.inspect(path).tensors
    return {each.name for each in summaries if name in (each.name, each.alias_of)}


def test_nested_states_lose_entries_of_dicts_and_hold_none_in_lists(tmp_path: Path) -> None:
    a, b, small, tiny = tensors().values()
    state = {"model": {"a": a, "b": b}, "list": [1, a, (b, a)], "step": 5, "small": small, "tied": tiny}
    path = tmp_path / "a.bsnap"
    bitsnap.save(path, state)
    damage(path, names_of_tied(path, "model.a"))
    with pytest.warns(bitsnap.DamageWarning, match=r"state\['model'\]\['a'\]"):
        found = bitsnap.load(path, partial=True)
    assert_same(found, {"model": {"b": b}, "list": [1, None, (b, None)], "step": 5, "small": small, "tied": tiny})
    assert found["model"]["b"] is found["list"][2][0]
    with pytest.warns(bitsnap.DamageWarning):
        assert_same(bitsnap.load(path, keys=["model"], partial=True), {"model": {"b": b}})
    with pytest.raises(bitsnap.CorruptError):
        bitsnap.load(path, keys=[("model", "a")], partial=True)
    into = {"model": {"a": torch.full_like(a, 7), "b": torch.zeros_like(b)}}
    with pytest.warns(bitsnap.DamageWarning):
        bitsnap.load(path, into=into, keys=["model"], partial=True)
    assert_same(into, {"model": {"a": torch.full_like(a, 7), "b": b}})


def test_nothing_is_left_of_a_file_with_a_damaged_index(tmp_path: Path) -> None:
    path = tmp_path / "a.bsnap"
    bitsnap.save(path, tensors())
    data = bytearray(path.read_bytes())
    data[-60] ^= 1
    path.write_bytes(data)
    with pytest.raises(bitsnap.CorruptError):
        bitsnap.load(path, partial=True)


def test_a_repaired_store_keeps_what_can_be_read(tmp_path: Path) -> None:
    run = tmp_path / "run"
    states = filled(run, 4, settings=bitsnap.Settings(max_depth=8))
    lost: set[str] = set()
    whole = file_of(run, 30).read_bytes()
    for at in range(70, len(whole), max(1, len(whole) // 50)):
        file_of(run, 30).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with bitsnap.Store(run, read_only=True) as store:
            lost = set(store.snapshot(30, partial=True).damaged_tensors())
        if lost and len(lost) < 4:
            break
    report = bitsnap.Store.repair(run)
    assert [each.step for each in report.damaged] == [30, 40]
    assert report.dropped == []
    assert report.checkpoints == 2
    assert report.damaged[0].damaged_tensors == len(lost)
    with bitsnap.Store(run) as store:
        assert store.steps() == [10, 20, 30, 40]
        assert store.latest() == 20
        assert_same(store.load(), states[1])
        with pytest.raises(bitsnap.CorruptError):
            store.load(30)
        assert [each.damage is None for each in store.checkpoints()] == [True, True, False, False]
        assert store.checkpoint(30).raw_bytes == store.checkpoint(10).raw_bytes
        for step in (30, 40):
            with pytest.warns(bitsnap.DamageWarning) as warned:
                found = store.load(step, partial=True)
            (warning,) = (each.message for each in warned)
            assert isinstance(warning, bitsnap.DamageWarning)
            expected = states[step // 10 - 1]
            assert_same(found["rng"], expected["rng"])
            for part in ("model", "master"):
                for name, tensor in expected[part].items():
                    place = f"state[{part!r}][{name!r}]"
                    assert (name in found.get(part, {})) != (place in warning.damaged), place
                    if name in found.get(part, {}):
                        assert_same(found[part][name], tensor)
        saved = store.save(50, states[3])
        assert saved.base == 20
        assert saved.damage is None
        store.remove([30, 40])
        assert_same(store.load(), states[3])
        store.verify()


def test_a_training_resumes_from_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    states = filled(run, 2, settings=bitsnap.Settings(max_depth=0))
    for step in (20, 10):
        file = file_of(run, step)
        whole = file.read_bytes()
        file.write_bytes(whole[:70] + bytes([whole[70] ^ 1]) + whole[71:])
        assert bitsnap.Store.repair(run).newest == (10 if step == 20 else None)
        with bitsnap.Checkpointer(run) as checkpointer:
            if step == 20:
                restored = checkpointer.restore()
                assert restored is not None
                assert restored.step == 10
                assert_same(restored.state, states[0])
            else:  # not as if nothing was saved yet
                with pytest.warns(bitsnap.RestoreWarning), pytest.raises(bitsnap.CorruptError):
                    checkpointer.restore()


@pytest.mark.filterwarnings("ignore::bitsnap.DamageWarning")
def test_folders_lose_damaged_files_only(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    saved = tensors()
    for name in ("a", "b"):
        np.save(folder / f"{name}.npy", saved[name].numpy())
    (folder / "notes.txt").write_text("notes")
    with bitsnap.Store(tmp_path / "run") as store:
        store.add_folder(1, folder)
        names = [each.name for each in bitsnap.inspect(store.snapshot(1)).tensors]
        damage(file_of(tmp_path / "run", 1), {next(each for each in names if each.startswith("a.npy/"))})
    with bitsnap.Store(tmp_path / "run") as store:
        with pytest.raises(bitsnap.CorruptError):
            store.extract_folder(1, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        for passes in (0, 1):  # finding what is damaged, and then writing the rest
            totals: set[int] = set()

            def goes_on(done: int, total: int, totals: set[int] = totals, passes: int = passes) -> bool:
                totals.add(total)
                return len(totals) <= passes

            with pytest.raises(bitsnap.CancelledError):
                store.extract_folder(1, tmp_path / "out", partial=True, progress=goes_on)
            assert not (tmp_path / "out").exists()
        with pytest.warns(bitsnap.DamageWarning, match=r"a\.npy"):
            store.extract_folder(1, tmp_path / "out", partial=True)
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["b.npy", "notes.txt"]
    for name in ("b.npy", "notes.txt"):
        assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes()
