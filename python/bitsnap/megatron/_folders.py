"""The folders of checkpoints that Megatron-LM names: saved by a strategy on all ranks, opened, brought back,
and converted from and to torch_dist, in one process.

Each folder has a reference to a step of the run that lies beside it. The reference is written when the step has been
committed, and before Megatron writes metadata.json, so a folder with both of them is a complete checkpoint.
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
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from bitsnap._bitsnap import GlobalTensor
from bitsnap._common import PathLike, Role, checkpoint_id_of
from bitsnap._engine.steps import wait_committed
from bitsnap._references import FOLDER_REFERENCE, StepOfRun, absolute, reference_in, write_durably
from bitsnap._runs import path_checkpoints as paths
from bitsnap._runs.mirrored_runs import bring_back
from bitsnap._runs.opened_runs import OpenedStep, Options
from bitsnap._runs.path_saves import RankSaves, RankShard
from bitsnap._states.tensors import LazyTensor, named_part
from bitsnap.errors import ExistsError, InvalidArgumentError, NotFoundError
from bitsnap.megatron import _versions as versions
from bitsnap.megatron._pairs import Offer, shares_of
from bitsnap.megatron._shards import RankPart, adam_values, inside, prepared, role_of, staged
from bitsnap.megatron._torch_dist import (
    CONFIG,
    STOCK_COMMON,
    STOCK_INDEX,
    StoredBox,
    StoredTensor,
    TorchDistFolder,
    write_torch_dist,
)
from bitsnap.store import Store

# The key of a commit's metadata, and of the state of each shard, that has what is no tensor.
KEY = "megatron.dist_checkpointing"


class Destination(NamedTuple):
    """Where the checkpoint of a folder goes: see path_checkpoints.begin()."""

    reference: Path
    step: int
    run: Path


def destination_of(folder: PathLike) -> Destination:
    """The step is the iteration in the folder's name. A folder with another name has a run of its own inside."""
    reference = absolute(folder) / FOLDER_REFERENCE
    step = checkpoint_id_of(folder).step
    parent = reference.parent if step is None else reference.parent.parent
    return Destination(reference, step or 0, parent / paths.RUN)


def is_complete(folder: Path) -> bool:
    """Whether Megatron has written its last file, in any format."""
    return (folder / CONFIG).is_file()


def is_ours(folder: PathLike) -> bool:
    """Whether the folder refers to a run, and torch_dist has not saved another checkpoint over it since.

    Raises:
        NotFoundError: the folder is complete, but its reference is gone.
    """
    reference = reference_in(absolute(folder))
    if (reference.parent / STOCK_INDEX).is_file():
        return False
    if not reference.is_file():
        if (reference.parent / CONFIG).is_file():
            paths.check_is_not_lost(reference)
        return False
    return True


def step_of(folder: PathLike) -> StepOfRun:
    """What the reference of a folder leads to. Raises as path_checkpoints.step_of() does."""
    return paths.step_of(reference_in(absolute(folder)))


def remove_stock(folder: Path) -> None:
    """Removes what torch_dist had saved in a folder that has a reference now: its index first, which counts."""
    for stale in (folder / STOCK_INDEX, folder / STOCK_COMMON, *folder.glob("*.distcp")):
        stale.unlink(missing_ok=True)


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


class OpenFolder(OpenedStep):
    """The checkpoint of a folder, opened for reading. The tensors have Megatron's keys."""

    def __init__(self, folder: PathLike, options: Options) -> None:
        super().__init__(*step_of(folder), KEY, options.allow_pickle, options.threads)
        self._folder = str(folder)
        # An agent commits without metadata: each shard has them then.
        text = self.info.metadata.get(KEY) or self.store.snapshot(self.step, 0).metadata.get(KEY)
        self._objects: dict[str, int] = self.described(
            text, lambda found: {key: self.shard_of(shard) for key, shard in found["objects"].items()}
        )

    def __enter__(self) -> OpenFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def object_keys(self) -> list[str]:
        """The unique keys of all objects."""
        return list(self._objects)

    def common(self) -> Any:
        """What Megatron calls the common state; None if it was saved elsewhere."""
        return self.values(0, lambda found: found.get("common"), ("common",))

    def objects(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values of objects, by their unique keys."""
        by_shard: dict[int, list[str]] = {}
        for key in dict.fromkeys(keys):
            shard = self._objects.get(key)
            if shard is None:
                raise NotFoundError(f"{self._folder}: there is no object {key!r}")
            by_shard.setdefault(shard, []).append(key)
        found: dict[str, Any] = {}
        for shard, wanted in by_shard.items():
            found |= self.values(shard, lambda each: dict(each["objects"]), *(("objects", key) for key in wanted))
        return found

    def read(self, items: Iterable[Any]) -> None:
        """Reads the parts of ShardedTensors into their data, which is made where there is none."""
        requests = []
        for item in items:
            tensor = self.tensors.get(item.key)
            if tensor is None:
                raise NotFoundError(f"{self._folder}: there is no tensor {item.key!r}")
            self._check_shape(item, tensor)
            place = inside(item, prepared(item), tuple(tensor.shape))
            if place is not None:
                requests.append((item.key, tuple(item.global_offset), place))
        self.fill(requests)

    def _check_shape(self, item: Any, tensor: GlobalTensor) -> None:
        expected, found = tuple(item.global_shape), tuple(tensor.shape)
        if len(expected) != len(found) or (expected != found and not item.allow_shape_mismatch):
            raise InvalidArgumentError(
                f"{self._folder}: tensor {item.key!r} has the global shape {list(found)}, expected {list(expected)}"
            )


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
