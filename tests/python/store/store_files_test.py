"""Small files that a checkpoint of a store keeps beside its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bitsnap
from python.run_states import Run

FILES = {"config.json": b'{"layers": 2}', ".metadata": bytes(range(256)) * 300, "é b": b""}


def test_files_come_back_with_their_checkpoint(tmp_path: Path) -> None:
    run = Run()
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(1, run.advance())
        store.save(2, run.advance(), files={**FILES, "view": memoryview(b"abc"), "array": bytearray(b"d")})
        assert store.files(1) == {}
        assert store.files(2) == {**FILES, "view": b"abc", "array": b"d"}
        store.save(2, run.advance(), files={"config.json": b"{}"}, replace=True)
        with pytest.raises(bitsnap.NotFoundError, match="step 3 not found"):
            store.files(3)
        store.verify()
    with bitsnap.Store(tmp_path / "run", read_only=True) as reader:
        assert reader.files(2) == {"config.json": b"{}"}


def test_a_commit_of_shards_keeps_files_and_a_repair_finds_them(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with bitsnap.Store(path, shared=True) as store:
        for shard in (0, 1):
            store.save_shard(5, {"x": np.arange(9) + shard}, shard=shard, shards=2, attempt="a")
        assert store.commit(5, 2, "a", files=FILES, metadata={"epoch": "3"})
    record = path / "checkpoints" / "0000000005" / "commit.json"
    record.write_bytes(record.read_bytes()[:-20])
    bitsnap.Store.repair(path)
    with bitsnap.Store(path, read_only=True) as store:
        assert store.files(5) == FILES
        assert store.checkpoint(5).metadata == {"epoch": "3"}


def test_damaged_files_are_reported_and_the_state_loads(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with bitsnap.Store(path) as store:
        store.save(1, {"x": np.arange(9)}, files=FILES)
    (stored,) = (path / "checkpoints" / "0000000001").glob("files-*.bsnap")
    content = bytearray(stored.read_bytes())
    content[40] ^= 1
    stored.write_bytes(content)
    with bitsnap.Store(path, read_only=True) as store:
        assert np.array_equal(store.load(1)["x"], np.arange(9))
        with pytest.raises(bitsnap.CorruptError, match="files-"):
            store.verify()
        with pytest.raises(bitsnap.CorruptError, match="files-"):
            store.files(1)
    assert "its files were lost" in bitsnap.Store.repair(path).mended[0].what
    with bitsnap.Store(path) as store:
        assert store.files(1) == {}
        store.verify()


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ([("a", b"")], TypeError, "files must be a dict of str to bytes"),
        ({"a": "text"}, TypeError, r"files\['a'\] must be bytes"),
        ({1: b""}, TypeError, "the name of a file must be a str"),
        ({"a/b": b""}, bitsnap.InvalidArgumentError, "the name of a file must have"),
        ({"..": b""}, bitsnap.InvalidArgumentError, "the name of a file must have"),
        ({"\ud800": b""}, bitsnap.InvalidArgumentError, "surrogates"),
        ({"a": bytes(64 << 20), "b": b"1"}, bitsnap.InvalidArgumentError, "at most 67108864 bytes in all"),
    ],
)
def test_what_is_no_file_is_refused_and_nothing_is_saved(
    tmp_path: Path, files: Any, error: type[Exception], message: str
) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        with pytest.raises(error, match=message):
            store.save(1, {"x": 1}, files=files)
        assert store.steps() == []
