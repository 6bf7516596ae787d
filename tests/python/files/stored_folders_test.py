"""Checkpoint folders in stores: everything comes back, tensors and files can be read without extracting them."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file as save_safetensors

import bitsnap
from python.files.checkpoint_folders import SmallTraining, assert_comes_back, listing
from python.processes import in_fork
from python.same_bits import assert_same, random_bits


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of several formats, with links and permissions."""
    made = tmp_path / "checkpoint-7"
    (made / "empty").mkdir(parents=True)
    (made / "config.json").write_text('{"a": 1}')
    shared = torch.arange(100.0)
    state = {
        "w": torch.randn(30, 20).bfloat16(),
        "t": torch.arange(12).view(3, 4).t(),
        "first": shared[:60],
        "last": shared[40:],
        "scalar": torch.tensor(5),
        "none": torch.empty(0, 3),
    }
    torch.save(state, made / "model.pt")
    torch.save(state, made / "legacy.pt", _use_new_zipfile_serialization=False)
    np.savez(made / "arrays.npz", c=np.arange(6).reshape(2, 3), f=np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    np.save(made / "array.npy", np.arange(4, dtype=np.int16))
    (made / "link.pt").symlink_to("model.pt")
    (made / "outside").symlink_to("/etc/passwd")
    os.link(made / "model.pt", made / "again.pt")
    (made / "empty").chmod(0o700)
    (made / "config.json").chmod(0o640)
    os.utime(made / "config.json", ns=(0, 1_234_567_890_123_456_789))
    os.utime(made, ns=(0, 999))
    return made


def test_everything_in_a_folder_comes_back(tmp_path: Path, folder: Path) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        saved = store.add_folder(7, folder, threads=2)
        assert saved.step == 7
        assert saved == store.checkpoint(7)
        assert_comes_back(store, 7, folder, tmp_path / "out")
        store.extract_file(None, "again.pt", tmp_path / "one.pt")
        assert (tmp_path / "one.pt").read_bytes() == (folder / "model.pt").read_bytes()
        store.verify()


def test_entries_say_what_is_in_a_folder(tmp_path: Path, folder: Path) -> None:
    store = bitsnap.Store(tmp_path / "run")
    store.add_folder(7, folder)
    opened = store.open_folder()
    assert opened.name == "checkpoint-7"
    kinds = {entry.path: (entry.kind, entry.target, entry.container) for entry in opened.entries}
    assert kinds == {
        "": ("directory", None, None),
        "again.pt": ("file", None, "torch-zip"),
        "array.npy": ("file", None, "npy"),
        "arrays.npz": ("file", None, "npz"),
        "config.json": ("file", None, None),
        "empty": ("directory", None, None),
        "legacy.pt": ("file", None, "torch-legacy"),
        "link.pt": ("symlink", "model.pt", None),
        "model.pt": ("hardlink", "again.pt", "torch-zip"),
        "outside": ("symlink", "/etc/passwd", None),
    }
    entry = opened["config.json"].entry
    assert (entry.mode, entry.modified_ns, entry.size) == (0o640, 1_234_567_890_123_456_789, 8)
    assert "outside" not in opened
    assert "model.pt" in opened
    assert len(opened) == 6
    with pytest.raises(KeyError, match=r"there is no file 'modle\.pt'; did you mean 'model\.pt'"):
        opened["modle.pt"]


def test_tensors_are_those_that_torch_loads(tmp_path: Path, folder: Path) -> None:
    store = bitsnap.Store(tmp_path / "run")
    store.add_folder(7, folder)
    opened = store.open_folder()
    state = torch.load(folder / "model.pt")
    for path in ("model.pt", "again.pt", "legacy.pt"):
        file = opened[path]
        for name in ("w", "t", "first", "last", "scalar"):
            assert name in file
            assert_same(file[name], state[name], name)
            assert file[name].stride() == state[name].stride()
        assert_same(torch.load(file.open(), weights_only=True), state)
    with pytest.raises(bitsnap.NotFoundError, match=r"model\.pt.*there is no tensor 'x'"):
        opened["model.pt"]["x"]
    arrays = store.open_folder(framework="np")["arrays.npz"]
    assert_same(arrays["c"], np.arange(6).reshape(2, 3))
    assert arrays["f"].flags.f_contiguous
    assert_same(arrays["f"], np.arange(6.0).reshape(2, 3))
    with np.load(opened["arrays.npz"].open()) as loaded:
        assert_same(loaded["f"], arrays["f"])
    assert_same(np.load(opened["array.npy"].open()), np.arange(4, dtype=np.int16))
    assert json.load(opened["config.json"].open()) == {"a": 1}


def test_tensors_of_all_dtypes_are_given_out(tmp_path: Path) -> None:
    names = ["bool", "uint8", "int16", "uint32", "float8_e4m3fn", "float8_e5m2fnuz", "bfloat16", "float64", "complex64"]
    rng = np.random.default_rng(1)
    state = {name: random_bits(rng, getattr(torch, name), (3, 4)) for name in [*names, "float4_e2m1fn_x2"]}
    torch.save(state, tmp_path / "a.pt")
    save_safetensors(state, tmp_path / "a.safetensors")
    torch.save(torch.arange(5, dtype=torch.int32).untyped_storage(), tmp_path / "storage.pt")
    store = bitsnap.Store(tmp_path / "run")
    for step, name in enumerate(["a.pt", "a.safetensors"], 1):
        store.add_folder(step, tmp_path / name)
        file = store.open_folder()[""]
        assert_same({each: file[each] for each in state}, state)
        assert file.tensors()["bfloat16"].shape == (3, 4)
    store.add_folder(3, tmp_path / "storage.pt")
    assert_same(store.open_folder()[""]["data/0"].view(torch.int32), torch.arange(5, dtype=torch.int32))


def test_files_can_be_read_anywhere(tmp_path: Path) -> None:
    data = np.random.default_rng(1).integers(0, 50, 10_000_000, np.uint8).tobytes()
    (tmp_path / "data.bin").write_bytes(data)
    bitsnap.save_folder(tmp_path / "data.bin", tmp_path / "data.bsnap")
    file = bitsnap.open_folder(tmp_path / "data.bsnap")[""]
    assert file.size == len(data)
    assert file.read() == data
    assert file.read(9_999_990) == data[-10:]
    assert file.read(9_999_990, 100) == data[-10:]
    assert file.read(20_000_000) == b""
    assert file.read(300_000, 5_000_000) == data[300_000:5_300_000]
    with file.open() as opened:
        assert opened.readable()
        assert opened.seekable()
        assert not opened.writable()
        assert opened.read(10) == data[:10]
        assert opened.seek(-5, os.SEEK_END) == len(data) - 5
        assert opened.read() == data[-5:]
        assert opened.read() == b""
        assert opened.seek(20_000_000) == 20_000_000
        assert opened.read(1) == b""
        opened.seek(1_000_000)
        assert opened.seek(48_575, os.SEEK_CUR) == 1_048_575
        assert opened.read(3) == data[1_048_575:1_048_578]
        assert opened.seek(0) == 0
        buffer = bytearray(7_000_000)
        assert opened.readinto(buffer) == len(buffer)
        assert bytes(buffer) == data[: len(buffer)]
        with pytest.raises(ValueError, match="before the beginning"):
            opened.seek(-1)
    with pytest.raises(ValueError, match="closed"):
        opened.read(1)


def test_a_snapshot_of_one_file_gives_that_file(tmp_path: Path, folder: Path) -> None:
    bitsnap.save_folder(folder / "model.pt", tmp_path / "a.bsnap")
    opened = bitsnap.open_folder(tmp_path / "a.bsnap")
    assert (opened.name, list(opened), [entry.kind for entry in opened.entries]) == ("model.pt", [""], ["file"])
    opened.extract(tmp_path / "b.pt")
    assert (tmp_path / "b.pt").read_bytes() == (folder / "model.pt").read_bytes()
    assert (tmp_path / "b.pt").stat().st_mtime_ns == (folder / "model.pt").stat().st_mtime_ns
    with bitsnap.Store(tmp_path / "run") as store:
        store.add_folder(1, folder / "model.pt")
        store.extract_folder(1, tmp_path / "c.pt")
    assert (tmp_path / "c.pt").read_bytes() == (folder / "model.pt").read_bytes()


def test_folders_and_states_are_told_apart(tmp_path: Path, folder: Path) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        store.add_folder(1, folder)
        store.save(2, {"w": torch.ones(3)})
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"open_folder\(\).*extract_folder\(\)"):
            store.load(1)
        with pytest.raises(bitsnap.InvalidArgumentError, match="folder"):
            store.open_folder(2)
        assert_same(store.load(), {"w": torch.ones(3)})
        store.add_folder(3, folder)
        assert_comes_back(store, 3, folder, tmp_path / "out")


def test_nothing_is_written_over_anything(tmp_path: Path, folder: Path) -> None:
    store = bitsnap.Store(tmp_path / "run")
    store.add_folder(1, folder)
    before = listing(folder)
    for target in (folder, folder / "config.json", folder / "outside"):
        with pytest.raises(FileExistsError):
            store.extract_folder(1, target)
        with pytest.raises(FileExistsError):
            store.extract_file(1, "array.npy", target)
        with pytest.raises(FileExistsError):
            bitsnap.save_folder(folder / "array.npy", target)
    assert listing(folder) == before
    store.extract_file(1, "array.npy", folder / "config.json", overwrite=True)
    assert (folder / "config.json").read_bytes() == (folder / "array.npy").read_bytes()


def test_a_folder_that_changes_is_not_committed(tmp_path: Path, folder: Path) -> None:
    def change(done: int, total: int) -> None:
        (folder / "config.json").write_text("other")

    store = bitsnap.Store(tmp_path / "run")
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"config\.json: changed while it was being saved"):
        store.add_folder(1, folder, progress=change)
    assert store.steps() == []
    (folder / "config.json").write_text("old")
    with pytest.raises(bitsnap.InvalidArgumentError, match="changed"):
        bitsnap.save_folder(folder, tmp_path / "a.bsnap", progress=change)
    assert not (tmp_path / "a.bsnap").exists()
    store.add_folder(1, folder)


def test_progress_rises_to_its_total(tmp_path: Path, folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    store = bitsnap.Store(tmp_path / "run", threads=1)
    store.add_folder(1, folder, progress=lambda done, total: seen.append((done, total)))
    assert seen
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
    with pytest.raises(bitsnap.CancelledError):
        store.add_folder(2, folder, progress=lambda *_: False)
    assert store.steps() == [1]


def test_plain_bytes_are_a_warning(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "broken.pt").write_bytes(b"PK\x03\x04no archive")
    store = bitsnap.Store(tmp_path / "run")
    with pytest.warns(bitsnap.PlainBytesWarning, match=r"1 file looks like a known format.*\n.*broken\.pt: "):
        store.add_folder(1, folder)
    assert store.open_folder()["broken.pt"].entry.note is not None
    assert_comes_back(store, 1, folder, tmp_path / "out")
    with pytest.raises(bitsnap.PlainBytesWarning):  # warnings are errors here
        store.add_folder(2, folder)
    assert store.steps() == [1]


def test_what_is_no_folder_is_an_error(tmp_path: Path) -> None:
    store = bitsnap.Store(tmp_path / "run")
    with pytest.raises(bitsnap.NotFoundError, match="nowhere"):
        store.add_folder(1, tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(bitsnap.UnsupportedError, match="pipe"):
        store.add_folder(1, tmp_path / "pipe")
    with pytest.raises(TypeError):
        store.add_folder("1", tmp_path)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.add_folder(1, 5)  # type: ignore[arg-type]
    with pytest.raises(bitsnap.NotFoundError):
        store.open_folder()


def test_deltas_between_snapshots_of_folders(tmp_path: Path) -> None:
    training = SmallTraining(width=64)
    for step in (1, 2):
        training.train(1)
        training.write(tmp_path / f"checkpoint-{step}")
    first = bitsnap.save_folder(tmp_path / "checkpoint-1", tmp_path / "1.bsnap")
    second = bitsnap.save_folder(tmp_path / "checkpoint-2", tmp_path / "2.bsnap", base=tmp_path / "1.bsnap")
    assert second.stored_bytes < 0.6 * first.stored_bytes
    bitsnap.open_folder(tmp_path / "2.bsnap", bases=tmp_path).extract(tmp_path / "out")
    assert listing(tmp_path / "out") == listing(tmp_path / "checkpoint-2")


def test_names_that_are_no_text_come_back(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    names = ["ünï", "with\nnewline", os.fsdecode(b"not\xffutf8")]
    for name in names:
        torch.save({"w": torch.ones(4)}, folder / name)
    store = bitsnap.Store(tmp_path / "run")
    store.add_folder(1, folder)
    opened = assert_comes_back(store, 1, folder, tmp_path / "out")
    for name in names:
        assert_same(opened[name]["w"], torch.ones(4))


def test_many_small_files_come_back_soon(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    for i in range(2000):
        if i % 100 == 0:
            (folder / f"{i // 100}").mkdir(parents=True)
        (folder / f"{i // 100}" / f"{i}.json").write_text(json.dumps({"name": random.randbytes(400).hex()}))
    start = time.process_time()
    with bitsnap.Store(tmp_path / "run") as store:
        first = store.add_folder(1, folder)
        assert_comes_back(store, 1, folder, tmp_path / "out")
        again = store.add_folder(2, folder)
    assert again.stored_bytes < first.stored_bytes / 10
    assert time.process_time() - start < 60


def test_arrays_are_given_out_without_torch(tmp_path: Path, folder: Path) -> None:
    bitsnap.save_folder(folder, tmp_path / "a.bsnap")
    script = """
import sys, bitsnap, numpy as np
folder = bitsnap.open_folder(sys.argv[1])
assert "torch" not in sys.modules
t = folder["model.pt"]["t"]
assert type(t) is np.ndarray and t.strides == (8, 32) and (t == np.arange(12).reshape(3, 4).T).all()
assert folder["legacy.pt"]["none"].shape == (0, 3) if "none" in folder["legacy.pt"] else True
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a.bsnap")], check=True)


def test_a_forked_child_reads_a_folder(tmp_path: Path, folder: Path) -> None:
    bitsnap.save_folder(folder, tmp_path / "a.bsnap")
    file = bitsnap.open_folder(tmp_path / "a.bsnap", framework="np")["array.npy"]
    assert in_fork(lambda: assert_same(file["array"], np.arange(4, dtype=np.int16))) == 0


def test_folders_are_not_pickled(tmp_path: Path, folder: Path) -> None:
    bitsnap.save_folder(folder, tmp_path / "a.bsnap")
    with pytest.raises(TypeError):
        pickle.dumps(bitsnap.open_folder(tmp_path / "a.bsnap"))
