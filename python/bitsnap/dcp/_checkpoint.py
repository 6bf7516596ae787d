"""A checkpoint of torch.distributed.checkpoint in a store, opened for reading."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlanner, ReadItem

from bitsnap._arguments import PathLike, checkpoint_id_of
from bitsnap._runs.opened_step import OpenedStep
from bitsnap._tensors.arrays import torch_dtype
from bitsnap.errors import CorruptError, InvalidArgumentError, NotFoundError

# The key of the commit's metadata, and of the state of each shard, that has what is no tensor.
KEY = "torch.distributed.checkpoint"
_OF_ONE_RANK = re.compile(r"rank-[0-9]+/")


class OpenStep(OpenedStep):
    """One step of a store, as DCP sees it."""

    def __init__(self, checkpoint_id: PathLike, allow_pickle: bool, threads: int) -> None:
        super().__init__(*checkpoint_id_of(checkpoint_id), KEY, allow_pickle, threads)
        self._id = checkpoint_id
        self._save_id: str | None = None
        self._values: dict[str, int] = {}  # the shard of each
        self._paths: dict[str, tuple[str | int, ...]] = {}
        self._read: dict[int, dict[str, Any]] = {}  # values of the shards that were opened
        text = self.info.metadata.get(KEY)
        if text is not None:
            self.described(text, self._describe)
        else:
            for shard in range(self.info.shards):
                part = self._part(shard)
                for name in part["values"]:
                    self._values.setdefault(name, shard)
                self._paths.update(part["paths"])

    def metadata(self) -> Metadata:
        entries: dict[str, Any] = {name: dcp_metadata.BytesStorageMetadata() for name in self._values}
        for name, tensor in self.tensors.items():
            # What is one rank's alone (bitsnap.torch) is loaded by the rank that saved it, as far as it had it.
            if not _OF_ONE_RANK.match(name):
                self.check_is_whole(name, tensor)
            entries[name] = dcp_metadata.TensorStorageMetadata(
                properties=dcp_metadata.TensorProperties(dtype=torch_dtype(tensor.dtype, name)),
                size=torch.Size(tensor.shape),
                chunks=[
                    dcp_metadata.ChunkStorageMetadata(torch.Size(part.offset), torch.Size(part.shape))
                    for part in tensor.parts
                ],
            )
        # In the order of the state that was saved, in which a load without a state puts its keys, too.
        order = {name: number for number, name in enumerate(self._paths)}
        return Metadata(
            state_dict_metadata={
                name: entries[name] for name in sorted(entries, key=lambda name: order.get(name, len(order)))
            },
            planner_data=dict(self._paths),
            storage_meta=StorageMeta(checkpoint_id=self._id, save_id=self._save_id),
        )

    def value(self, name: str) -> Any:
        shard = self._values.get(name)
        if shard is None:
            raise NotFoundError(f"{self.where} has no value {name!r}")
        values = self._part(shard)["values"]
        if name not in values:
            raise CorruptError(f"{self.where}: shard {shard} should have the value {name!r}")
        return values[name]

    def read_tensors(self, items: list[ReadItem], planner: LoadPlanner) -> None:
        targets = [(item, planner.resolve_tensor(item)) for item in items]
        requests = []
        for item, target in targets:
            name = item.storage_index.fqn
            if name not in self.tensors:
                raise NotFoundError(f"{self.where} has no tensor {name!r}")
            begin = item.storage_index.offset or torch.Size([0] * len(item.storage_offsets))
            offset = tuple(a + b for a, b in zip(begin, item.storage_offsets, strict=True))
            if tuple(target.shape) != tuple(item.lengths):
                raise InvalidArgumentError(
                    f"tensor {name!r}: the tensor to fill has shape {list(target.shape)}, expected {list(item.lengths)}"
                )
            requests.append((name, offset, target.detach()))
        self.fill(requests)
        for item, target in targets:
            planner.commit_tensor(item, target)

    def _describe(self, described: Any) -> None:
        self._save_id = described["save_id"]
        self._values = {name: self.shard_of(shard) for name, shard in described["values"].items()}
        self._paths = {name: _path(path) for name, path in described["paths"].items()}

    def _part(self, shard: int) -> dict[str, Any]:
        if shard not in self._read:
            self._read[shard] = self.values(
                shard,
                lambda part: {
                    "values": dict(part["values"].items()),
                    "paths": {name: _path(path) for name, path in part["paths"].items()},
                },
            )
        return self._read[shard]


def _path(path: Any) -> tuple[str | int, ...]:
    """Of a value in the state that was saved, which DCP builds again from all of them."""
    keys = tuple(path)
    if isinstance(path, str) or not keys or not all(type(key) in (str, int) for key in keys):
        raise ValueError(f"{ascii(path)[:80]} is no path of a value")
    return keys
