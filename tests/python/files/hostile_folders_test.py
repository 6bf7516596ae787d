"""Folders with files that were made to do harm: they are stored and come back, and nothing in them runs."""

from __future__ import annotations

import io
import os
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

import bitsnap
from python.files.checkpoint_folders import add_quietly, assert_comes_back


class Canary:
    """Whoever unpickles it makes a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    made = Canary(tmp_path / "canary")
    pickle.loads(pickle.dumps(made))
    made.path.rmdir()  # raises if it did not sing
    return made


def _zipped(path: Path, canary: Canary) -> None:
    torch.save({"w": torch.ones(50), "evil": canary, "list": [canary, torch.zeros(3)]}, path / "evil.pt")


def _legacy(path: Path, canary: Canary) -> None:
    torch.save({"w": torch.ones(50), "evil": canary}, path / "evil.pt", _use_new_zipfile_serialization=False)


def _distributed(path: Path, canary: Canary) -> None:
    with pytest.warns(UserWarning, match="single process"):
        save_distributed({"w": torch.ones(50), "extra": [1, 2]}, checkpoint_id=path, no_dist=True)
    metadata = pickle.loads((path / ".metadata").read_bytes())
    metadata.planner_data = {"w": canary, "evil": canary}
    (path / ".metadata").write_bytes(pickle.dumps(metadata))


def _distributed_item(path: Path, canary: Canary) -> None:
    with pytest.warns(UserWarning, match="single process"):
        save_distributed({"w": torch.ones(50), "evil": canary}, checkpoint_id=path, no_dist=True)


def _only_metadata(path: Path, canary: Canary) -> None:
    (path / ".metadata").write_bytes(pickle.dumps(canary))
    torch.save({"w": torch.ones(50)}, path / "__0_0.distcp")


def _arrays(path: Path, canary: Canary) -> None:
    evil = np.array([canary, None], dtype=object)
    np.savez(path / "evil.npz", w=np.ones(50), evil=evil)
    np.save(path / "evil.npy", evil, allow_pickle=True)


def _plain(path: Path, canary: Canary) -> None:
    for name in ("evil.pkl", "evil.pt", "evil.bin", "training_args.bin", ".metadata"):
        (path / name).write_bytes(pickle.dumps(canary))


KINDS = [_zipped, _legacy, _distributed, _distributed_item, _only_metadata, _arrays, _plain]


@pytest.mark.parametrize("write", KINDS, ids=lambda write: write.__name__[1:])
def test_nothing_in_a_file_is_executed(tmp_path: Path, canary: Canary, write: Callable[[Path, Canary], None]) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    write(folder, canary)
    if canary.path.exists():  # by what wrote the folder
        canary.path.rmdir()
    store = bitsnap.Store(tmp_path / "run")
    for step in (1, 2):
        add_quietly(store, step, folder)
        opened = assert_comes_back(store, step, folder, tmp_path / f"out-{step}")
        for file in opened.values():
            for name in file:
                try:
                    file[name]
                except bitsnap.UnsupportedError:
                    assert "evil" in name  # arrays of objects have no dtype
    store.verify()
    assert not canary.path.exists()


def _archive(write: Callable[[zipfile.ZipFile], None]) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that stand twice
        with zipfile.ZipFile(file, "w") as archive:
            write(archive)
    return file.getvalue()


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _with_flag(archive: bytes, flag: int) -> bytes:
    """Sets a flag in all headers of an archive, as of encrypted entries."""
    changed = bytearray(archive)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = changed.find(signature)
        while at >= 0:
            (flags,) = struct.unpack_from("<H", changed, at + offset)
            struct.pack_into("<H", changed, at + offset, flags | flag)
            at = changed.find(signature, at + 4)
    return bytes(changed)


def _overlapping(archive: bytes) -> bytes:
    """All entries of the directory are the same local entry."""
    changed = bytearray(archive)
    at = changed.find(b"PK\x01\x02")
    while at >= 0:
        struct.pack_into("<I", changed, at + 42, 0)
        at = changed.find(b"PK\x01\x02", at + 4)
    return bytes(changed)


def _zip64() -> bytes:
    def write(archive: zipfile.ZipFile) -> None:
        for name in ("a.npy", "b.npy"):
            with archive.open(name, "w", force_zip64=True) as entry:
                entry.write(_npy(np.arange(500.0)))

    return _archive(write)


def _named(*names: str) -> bytes:
    def write(archive: zipfile.ZipFile) -> None:
        for i, name in enumerate(names):
            archive.writestr(zipfile.ZipInfo(name), _npy(np.arange(300.0) + i))

    return _archive(write)


def _deflated() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, a=np.arange(3000), b=np.ones(5))
    return file.getvalue()


_TWO = _named("a.npy", "b.npy")
ARCHIVES = {
    "up": _named("../a.npy", "../../etc/passwd", "..", "a/../../b.npy"),
    "absolute": _named("/etc/passwd", "/tmp/a.npy", "C:\\a.npy"),
    "same_names": _named("a.npy", "a.npy", "A.npy"),
    "odd_names": _named("", "a\nb.npy", "ünï.npy", "x" * 5000 + ".npy"),
    "torch_up": _named("archive/data.pkl", "archive/../data/0", "archive/version"),
    "overlapping": _overlapping(_TWO),
    "encrypted": _with_flag(_TWO, 1),
    "strong_encryption": _with_flag(_TWO, 64),
    "descriptors": _with_flag(_TWO, 8),
    "zip64": _zip64(),
    "deflated": _deflated(),
    "empty": _archive(lambda archive: None),
    "twice": _TWO + _TWO,
    "before": b"PK\x03\x04" + b"\0" * 100 + _TWO,
    "after": _TWO + b"more",
    "comment": _TWO[:-2] + struct.pack("<H", 5) + b"hello",
    "cut": _TWO[:-30],
    "head": _TWO[:40],
    "bomb": _archive(lambda archive: archive.writestr("a.npy", bytes(20_000_000), zipfile.ZIP_DEFLATED)),
}


@pytest.mark.parametrize("suffix", ["npz", "pt", "distcp", "zip"])
def test_odd_archives_come_back(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name, archive in ARCHIVES.items():
        (folder / f"{name}.{suffix}").write_bytes(archive)
    store = bitsnap.Store(tmp_path / "run")
    add_quietly(store, 1, folder)
    opened = assert_comes_back(store, 1, folder, tmp_path / "out")
    for file in opened.values():
        for name in file:
            file[name]
    if suffix == "npz":
        kinds = {path: file.entry.container for path, file in opened.items()}
        assert kinds["zip64.npz"] == "npz"
        assert len(opened["zip64.npz"]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "out", "run"]


def test_links_out_of_the_folder_are_neither_followed_nor_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "up").symlink_to("../outside")
    (folder / "file").symlink_to(outside / "secret")
    (folder / "loop").symlink_to("loop")
    store = bitsnap.Store(tmp_path / "run")
    store.add_folder(1, folder)
    opened = assert_comes_back(store, 1, folder, tmp_path / "out")
    assert len(opened) == 0
    with pytest.raises(bitsnap.NotFoundError):
        opened["up/secret"]
    assert b"secret" not in b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*.bsnap"))
    assert [path.name for path in outside.iterdir()] == ["secret"]
