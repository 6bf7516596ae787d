"""Descriptions of DCP checkpoints in stores that are damaged or hostile: CorruptError, whatever they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

import bitsnap
from bitsnap.dcp import StorageReader, to_torch_save
from bitsnap.dcp._shards import KEY, OpenStep
from python.dcp.dcp_test import dcp

DEEP = "[" * 100_000 + "]" * 100_000
DAMAGED: dict[str, Any] = {
    "nested too deeply": DEEP,
    "no dict": "[]",
    "no names": "{}",
    "values are a list": '{"save_id": "", "values": [], "paths": {}}',
    "a shard that does not exist": '{"save_id": "", "values": {"a": 1}, "paths": {}}',
    "an infinite shard": '{"save_id": "", "values": {"a": Infinity}, "paths": {}}',
    "a shard that is a fraction": '{"save_id": "", "values": {"a": 0.5}, "paths": {}}',
    "a path of lists": '{"save_id": "", "values": {}, "paths": {"a": [["x"]]}}',
    "an empty path": '{"save_id": "", "values": {}, "paths": {"a": []}}',
    "a number of many digits": '{"save_id": "", "values": {"a": ' + "9" * 5000 + '}, "paths": {}}',
    "a value that is nowhere": '{"save_id": "", "values": {"a": 0}, "paths": {"a": ["a"]}}',
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_a_description_that_is_damaged_is_corrupt(tmp_path: Path, text: str) -> None:
    with bitsnap.Store(tmp_path / "run", shared=True) as store:
        state = {KEY: {"values": {}, "paths": {}}, "w": torch.ones(2)}
        store.save_shard(1, state, shard=0, shards=1, attempt="a")
        store.commit(1, 1, "a", metadata={KEY: text})
    with pytest.raises(bitsnap.CorruptError):
        OpenStep(tmp_path / "run" / "1", False, 0).value("a")


@pytest.mark.parametrize(
    "part", [None, [], {"values": {}}, {"values": [], "paths": {}}, {"values": {}, "paths": {"a": [None]}}], ids=str
)
def test_a_description_of_a_shard_that_is_damaged_is_corrupt(tmp_path: Path, part: Any) -> None:
    with bitsnap.Store(tmp_path / "run", shared=True) as store:
        store.save_shard(1, {KEY: part, "w": torch.ones(2)}, shard=0, shards=1, attempt="a")
        store.commit(1, 1, "a")
    with pytest.raises(bitsnap.CorruptError, match=r"shard 0: .* is damaged"):
        OpenStep(tmp_path / "run" / "1", False, 0)


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_a_tensor_of_which_a_part_is_absent_is_not_filled_in_part(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        part = bitsnap.Box(torch.ones(2, 2), (4, 2), (0, 0))
        store.save(1, {"w": part, KEY: {"values": {}, "paths": {"w": ["w"]}}})
    state = {"w": torch.full((4, 2), 7.0)}
    with pytest.raises(CheckpointException, match="the shards hold 4 of 8 elements of tensor 'w'"):
        dcp.load(state, checkpoint_id=tmp_path / "run" / "1", storage_reader=StorageReader(), no_dist=True)
    assert torch.equal(state["w"], torch.full((4, 2), 7.0))
    with pytest.raises(CheckpointException, match="the shards hold 4 of 8 elements of tensor 'w'"):
        to_torch_save(tmp_path / "run" / "1", tmp_path / "a.pt")
    assert not (tmp_path / "a.pt").exists()
