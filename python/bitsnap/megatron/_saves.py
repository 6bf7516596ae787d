"""Saves of Megatron's checkpoints: one of its strategies on all ranks, and conversions of torch_dist, in one process.

bitsnap.megatron.convert() says how checkpoints are converted. Tensors keep the parts in which they are stored, and only
the parts that are being coded are in memory.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bitsnap._common import PathLike, Role, checkpoint_id_of
from bitsnap._engine.steps import wait_committed
from bitsnap._references import write_durably
from bitsnap._runs import path_checkpoints as paths
from bitsnap._runs.mirrored_runs import bring_back
from bitsnap._runs.opened_runs import Options
from bitsnap._runs.path_saves import RankSaves, RankShard
from bitsnap._states.tensors import LazyTensor, named_part
from bitsnap.errors import ExistsError, InvalidArgumentError, NotFoundError
from bitsnap.megatron import _versions as versions
from bitsnap.megatron._pairs import Offer, shares_of
from bitsnap.megatron._shards import (
    KEY,
    OpenFolder,
    RankPart,
    adam_values,
    destination_of,
    is_complete,
    is_ours,
    remove_stock,
    role_of,
    staged,
)
from bitsnap.megatron._torch_dist import CONFIG, StoredBox, StoredTensor, TorchDistFolder, write_torch_dist
from bitsnap.store import Store


class FolderSave:
    """The save of the checkpoint of a folder. All ranks make it, and call the same methods in the same order.

    An error of one rank is raised on all of them.
    """

    def __init__(self, saves: RankSaves, folder: PathLike, items: Iterable[Any], common: Any, options: Options) -> None:
        self._saves, self._timeout = saves, options.timeout
        place = destination_of(folder)
        self._reference = place.reference
        new = saves.begin(*place)
        part, told = saves.told(lambda: RankPart(items), lambda part: (list(part.objects), part.offer), self._reference)
        keys = {key: rank for rank, (keys, _) in enumerate(told) for key in keys}
        self._metadata = {KEY: json.dumps({"objects": keys})}

        def shard() -> RankShard:
            offers: list[Offer] = [offer for _, offer in told]
            part.take(shares_of(saves.ranks.rank, offers))
            values: dict[str, Any] = {"objects": part.objects}
            if common is not None and saves.ranks.rank == 0:
                values["common"] = common
            state = {**part.state, KEY: values}
            adam = adam_values([part.values, common])
            return saves.shard(new, state, roles=part.roles, masters=part.masters, adam=adam)

        self._shard: RankShard = saves.on_all(shard, self._reference)

    def write(self) -> None:
        """Writes the shard of this rank, and waits for the others."""
        self._saves.write(self._shard)

    def detach(self) -> RankShard:
        """The shard of this rank with copies of its tensors, for another process to write."""

        def detached() -> RankShard:
            return dataclasses.replace(self._shard, state=staged(self._shard.state))

        shard: RankShard = self._saves.on_all(detached, self._reference)
        self._shard.state = {}  # commit() does not need it, and its tensors may be free
        return shard

    def commit(self) -> None:
        """Makes a checkpoint of the shards, and lets the folder refer to it. Waits until all ranks call it."""
        # Megatron's queue of asynchronous saves may only have waited for the process of this rank.
        dist.barrier()
        self._saves.commit(self._shard.new, self._metadata)
        self._end()

    def request(self, request: Any) -> Any:
        """Copies the state for the agent; the request for Megatron's queue, whose process only waits."""
        new = self._shard.new
        pending = self._saves.stage(self._shard, self._metadata)
        self._shard.state = {}

        def commit() -> None:
            dist.barrier()
            self._saves.finish(pending)
            self._end()

        return request(wait_committed, (new.run, new.saved.step, self._timeout), [commit])

    def _end(self) -> None:
        folder = self._reference.parent
        self._saves.from_first(lambda: remove_stock(folder), self._reference)


_TRACKER = "latest_checkpointed_iteration.txt"


def bring_back_to(directory: Path, options: Options) -> None:
    """Brings the newest iteration back from the copy of the run, if there is no run, and lets Megatron find it."""
    rank = dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))
    bring_back(directory.absolute() / paths.RUN, options, is_first=rank == 0, write=_write_folder)


def _write_folder(store: Store, step: int, folder: Path) -> bool:
    """Writes what Megatron writes into and beside the folder of an iteration."""
    origin = paths.origin_of(store, step)
    iteration = None if origin is None else checkpoint_id_of(Path(origin.reference).parent).step
    core = importlib.import_module("megatron.core.dist_checkpointing.core")
    core.save_config(core.CheckpointingConfig("torch_dist", 1), str(folder))
    write_durably(folder.parent / _TRACKER, str(step if iteration is None else iteration).encode())
    return True


def convert_all(source: Path, target: Path, options: Options) -> list[Path]:
    """The folders that were written: that of one checkpoint, or those of a directory that are not there yet."""
    if target.resolve().is_relative_to(source.resolve()):
        raise InvalidArgumentError(f"{target} must not lie in {source}")
    if is_complete(source):
        if is_complete(target):
            raise ExistsError(f"{target} holds a checkpoint already")
        _convert(source, target, options)
        return [target]
    found = [path for path in source.iterdir() if is_complete(path)] if source.is_dir() else []
    if not found:
        raise NotFoundError(
            f"{source}: expected the folder of a checkpoint, which has a {CONFIG}, or a directory of such folders"
        )
    written = []
    for folder in sorted(found, key=_order):
        if not is_complete(target / folder.name):
            _convert(folder, target / folder.name, options)
            written.append(target / folder.name)
    tracker = source / _TRACKER
    if tracker.is_file() and not (target / _TRACKER).exists():
        write_durably(target / _TRACKER, tracker.read_bytes())
    return written


def _order(folder: Path) -> tuple[float, str]:
    step = checkpoint_id_of(folder).step
    return (math.inf if step is None else step), folder.name


def _convert(source: Path, target: Path, options: Options) -> None:
    versions.core()  # imports the classes of values
    (_to_torch_dist if is_ours(source) else _to_run)(source, target, options)


def _to_run(source: Path, target: Path, options: Options) -> None:
    folder = TorchDistFolder(source, options.allow_pickle)
    state: dict[str, Any] = {}
    roles: dict[str, Role] = {}
    for key, tensor in folder.tensors():
        role = role_of(key, tensor.dtype)
        for part in tensor.parts:
            lazy = LazyTensor(part.shape, tensor.dtype, partial(folder.part, key, tensor, part))
            name, value = named_part(lazy, key, tensor.shape, part.offset)
            state[name] = value
            if role is not None:
                roles[name] = role
    values: dict[str, Any] = {"objects": {key: folder.object(key) for key in folder.object_keys}}
    common = folder.common()
    if common is not None:
        values["common"] = common
    state[KEY] = values
    saves = RankSaves(options)
    new = saves.begin(*destination_of(target))
    saves.write(saves.shard(new, state, roles=roles, adam=adam_values(values)))
    saves.commit(new, {KEY: json.dumps({"objects": dict.fromkeys(folder.object_keys, 0)})})
    remove_stock(target)
    write_durably(target / CONFIG, (source / CONFIG).read_bytes())


def _to_torch_dist(source: Path, target: Path, options: Options) -> None:
    with OpenFolder(source, options) as checkpoint:
        tensors = {}
        for key, tensor in checkpoint.tensors.items():
            parts = [StoredBox(part.offset, part.shape) for part in tensor.parts]
            empty = StoredBox((0,) * len(tensor.shape), tensor.shape)
            tensors[key] = StoredTensor(checkpoint.dtype_of(key), tensor.shape, parts or [empty])

        def read(key: str, tensor: StoredTensor, part: StoredBox) -> torch.Tensor:
            elements = torch.empty(part.shape, dtype=tensor.dtype)
            checkpoint.fill([(key, part.offset, elements)])
            return elements

        values = checkpoint.objects(checkpoint.object_keys())
        write_torch_dist(target, tensors, read, values, checkpoint.common(), (source / CONFIG).read_bytes())
