"""A checkpoint of torch.distributed.checkpoint in a store, opened for reading."""

from __future__ import annotations

import math
import re
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlanner, ReadItem

from bitsnap._arguments.naming import checkpoint_id_of
from bitsnap._arguments.options import PathLike
from bitsnap._base.text import parse_json
from bitsnap._bitsnap import GlobalTensor
from bitsnap._tensors.dtypes import torch_dtype
from bitsnap.errors import CorruptError, InvalidArgumentError, NotFoundError
from bitsnap.state import load
from bitsnap.store import Store

# The key of the commit's metadata, and of the state of each shard, that has what is no tensor.
KEY = "torch.distributed.checkpoint"
# The tensors of values have names below this one.
_VALUES = f"{KEY}.values."

_OF_ONE_RANK = re.compile(r"rank-[0-9]+/")


class OpenStep:
    """One step of a store, as DCP sees it."""

    def __init__(self, checkpoint_id: PathLike, allow_pickle: bool, threads: int) -> None:
        run, step = checkpoint_id_of(checkpoint_id)
        self._allow_pickle = allow_pickle
        self._id = checkpoint_id
        self._store = Store(run, read_only=True, threads=threads)
        newest = self._store.latest() if step is None else step
        if newest is None:
            raise NotFoundError(f"{run}: the store has no checkpoints")
        self._step: int = newest
        info = self._store.checkpoint(self._step)
        self._tensors: dict[str, GlobalTensor] = {
            name: tensor for name, tensor in self._store.tensors(self._step).items() if not name.startswith(_VALUES)
        }
        self._save_id: str | None = None
        self._values: dict[str, int] = {}  # the shard of each
        self._paths: dict[str, tuple[str | int, ...]] = {}
        self._read: dict[int, dict[str, Any]] = {}  # values of the shards that were opened
        described = info.metadata.get(KEY)
        if described is not None:
            self._describe(described, info.shards)
        else:
            for shard in range(info.shards):
                part = self._part(shard)
                for name in part["values"]:
                    self._values.setdefault(name, shard)
                self._paths.update(part["paths"])

    def metadata(self) -> Metadata:
        entries: dict[str, Any] = {name: dcp_metadata.BytesStorageMetadata() for name in self._values}
        for name, tensor in self._tensors.items():
            self._check_is_whole(name, tensor)
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

    def _check_is_whole(self, name: str, tensor: GlobalTensor) -> None:
        """DCP would leave what no part holds as it is in the tensor to fill."""
        held, needed = sum(math.prod(part.shape) for part in tensor.parts), math.prod(tensor.shape)
        # What is one rank's alone is loaded by the rank that saved it, as far as it had it.
        if held < needed and not _OF_ONE_RANK.match(name):
            raise CorruptError(
                f"{self._store.path}: step {self._step}: the shards hold {held} of {needed} elements of tensor "
                f"{name!r}; Store.load(shard=...) loads what is there"
            )

    def value(self, name: str) -> Any:
        shard = self._values.get(name)
        if shard is None:
            raise NotFoundError(f"{self._store.path}: step {self._step} has no value {name!r}")
        values = self._part(shard)["values"]
        if name not in values:
            raise CorruptError(f"{self._store.path}: step {self._step}: shard {shard} should have the value {name!r}")
        return values[name]

    def read_tensors(self, items: list[ReadItem], planner: LoadPlanner) -> None:
        targets = [(item, planner.resolve_tensor(item)) for item in items]
        requests = []
        converted: list[tuple[torch.Tensor, torch.Tensor]] = []
        for item, target in targets:
            tensor = self._tensors.get(item.storage_index.fqn)
            if tensor is None:
                raise NotFoundError(f"{self._store.path}: step {self._step} has no tensor {item.storage_index.fqn!r}")
            begin = item.storage_index.offset or torch.Size([0] * len(item.storage_offsets))
            offset = tuple(a + b for a, b in zip(begin, item.storage_offsets, strict=True))
            if tuple(target.shape) != tuple(item.lengths):
                raise InvalidArgumentError(
                    f"tensor {item.storage_index.fqn!r}: the tensor to fill has shape {list(target.shape)}, expected "
                    f"{list(item.lengths)}"
                )
            place = target.detach()
            dtype = torch_dtype(tensor.dtype, item.storage_index.fqn)
            if place.dtype != dtype:
                staged = torch.empty(place.shape, dtype=dtype)
                converted.append((place, staged))
                place = staged
            requests.append((item.storage_index.fqn, offset, place))
        self._store._read_into(self._step, requests, may_share=True)
        for place, staged in converted:
            place.copy_(staged)
        for item, target in targets:
            planner.commit_tensor(item, target)

    def _describe(self, text: str, shards: int) -> None:
        try:
            described = parse_json(text)
            self._save_id = described["save_id"]
            self._values = dict(described["values"].items())
            self._paths = {name: _path(path) for name, path in described["paths"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptError(f"{self._store.path}: step {self._step}: metadata {KEY!r} is damaged: {error}") from None
        if any(type(shard) is not int or not 0 <= shard < shards for shard in self._values.values()):
            raise CorruptError(
                f"{self._store.path}: step {self._step}: metadata {KEY!r} names shards that do not exist"
            )

    def _part(self, shard: int) -> dict[str, Any]:
        if shard not in self._read:
            state = load(self._store.snapshot(self._step, shard), keys=[(KEY,)], allow_pickle=self._allow_pickle)
            try:
                values, paths = dict(state[KEY]["values"].items()), state[KEY]["paths"]
                self._read[shard] = {"values": values, "paths": {name: _path(path) for name, path in paths.items()}}
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                where = f"{self._store.path}: step {self._step}, shard {shard}"
                raise CorruptError(f"{where}: {KEY!r} is damaged: {error}") from None
        return self._read[shard]


def _path(path: Any) -> tuple[str | int, ...]:
    """Of a value in the state that was saved, which DCP builds again from all of them."""
    keys = tuple(path)
    if isinstance(path, str) or not keys or not all(type(key) in (str, int) for key in keys):
        raise ValueError(f"{ascii(path)[:80]} is no path of a value")
    return keys
