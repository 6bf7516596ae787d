"""Reads and writes the folders of Megatron's format torch_dist, which are checkpoints of DCP, without its strategies.

Needs no process group. Reading executes nothing that a file chooses: .metadata may name only the dataclasses of DCP,
and values are read with torch.load(weights_only=True), which makes only objects of classes that are registered with
torch; import Megatron-core first, which registers its own. Only allow_pickle=True unpickles the values without limits.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import io
import math
import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PosixPath
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

from bitsnap._common import may_pickle
from bitsnap._references import parse_json, plain_path, write_durably
from bitsnap.errors import CorruptError, NotFoundError, TruncatedError, UnsupportedError

CONFIG = "metadata.json"  # Megatron's, the last file of a checkpoint in any format
STOCK_INDEX = ".metadata"
STOCK_COMMON = "common.pt"
_ZIP = b"PK\x03\x04"

_CLASSES_OF = (
    "torch.distributed.checkpoint.metadata",
    "torch.distributed.checkpoint.planner",
    "torch.distributed.checkpoint.filesystem",
)
_MEGATRON = "megatron.core.dist_checkpointing.strategies.torch"
_OTHERS = {
    # Of Megatron-core before 0.16: subclasses with one more attribute, mcore_data.
    (_MEGATRON, "MCoreMetadata"): Metadata,
    (_MEGATRON, "MCoreSavePlan"): SavePlan,
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): {str(torch.strided): torch.strided}.__getitem__,
    ("pathlib", "PosixPath"): PosixPath,  # of storage_meta
}


class StoredBox(NamedTuple):
    """A box of a tensor. Empty for a tensor without elements."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]


class StoredTensor(NamedTuple):
    dtype: torch.dtype
    shape: tuple[int, ...]
    parts: list[StoredBox]


class TorchDistFolder:
    """A checkpoint of torch_dist, for reading. Threads may call part() at the same time."""

    def __init__(self, folder: Path, allow_pickle: bool) -> None:
        self._folder = folder
        self._may_unpickle = may_pickle(allow_pickle)
        backend = _backend_of(folder / CONFIG)
        if backend != "torch_dist":
            raise UnsupportedError(f"{folder / CONFIG}: the format is {backend!r}, expected 'torch_dist'")
        self._metadata = _metadata_of(folder / STOCK_INDEX)
        # All but tensors, by their unique keys.
        self.object_keys = [key for key, each in self._metadata.state_dict_metadata.items() if not _is_tensor(each)]

    def tensors(self) -> Iterator[tuple[str, StoredTensor]]:
        """The whole tensors by their keys."""
        for key, each in self._metadata.state_dict_metadata.items():
            if isinstance(each, TensorStorageMetadata):
                yield key, self._described(key, each)

    def part(self, key: str, tensor: StoredTensor, part: StoredBox) -> torch.Tensor:
        """The elements of one part of a tensor, on the CPU."""
        found = self._item(MetadataIndex(key, torch.Size(part.offset)), may_unpickle=False)
        if not isinstance(found, torch.Tensor) or (found.dtype, tuple(found.shape)) != (tensor.dtype, part.shape):
            what = f"{found.dtype} {list(found.shape)}" if isinstance(found, torch.Tensor) else type(found).__name__
            raise CorruptError(
                f"{self._folder}: tensor {key!r} at {list(part.offset)} is {what}, but {STOCK_INDEX} says "
                f"{tensor.dtype} {list(part.shape)}"
            )
        return found

    def object(self, key: str) -> Any:
        """The value of a ShardedObject, by its unique key."""
        found = self._item(MetadataIndex(key), self._may_unpickle)
        # A list with the data of each ShardedObject of this key that the rank had.
        if not isinstance(found, list) or not found:
            raise CorruptError(f"{self._folder}: {key!r} is a {type(found).__name__}, expected a list")
        return found[0]

    def common(self) -> Any:
        """What Megatron calls the common state; None if there is no such file, as from 0.19 on."""
        path = self._folder / STOCK_COMMON
        return _loaded(path.read_bytes(), str(path), self._may_unpickle) if path.exists() else None

    def _described(self, key: str, tensor: TensorStorageMetadata) -> StoredTensor:
        if (getattr(self._metadata, "mcore_data", None) or {}).get(key):
            raise UnsupportedError(
                f"{self._folder / STOCK_INDEX}: tensor {key!r} has a flattened_range, which Megatron-core from 0.16 on "
                "does not load"
            )
        shape = tuple(tensor.size)
        parts = list(dict.fromkeys(StoredBox(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in tensor.chunks))
        elements = math.prod(shape)
        if elements > 0:
            # A part without elements may have the offset of another one.
            parts = [part for part in parts if math.prod(part.shape) > 0]
        is_doubled = len({part.offset for part in parts}) < len(parts)
        # The store checks that they do not overlap otherwise.
        if is_doubled or sum(math.prod(part.shape) for part in parts) != elements:
            raise CorruptError(
                f"{self._folder / STOCK_INDEX}: the parts of tensor {key!r} are not all of {list(shape)}"
            )
        return StoredTensor(tensor.properties.dtype, shape, parts)

    def _item(self, index: MetadataIndex, may_unpickle: bool) -> Any:
        where = f"{self._folder}: {index.fqn!r}"
        info = self._metadata.storage_data.get(index)
        if info is None:
            raise CorruptError(f"{where} has no place in a file")
        if info.transform_descriptors:
            raise UnsupportedError(f"{where} is compressed by DCP: {info.transform_descriptors}")
        if info.offset < 0 or info.length < 0:
            raise CorruptError(f"{where} is at {info.offset} and has {info.length} bytes")
        path = self._folder / plain_path(info.relative_path, where)
        try:
            with path.open("rb") as file:
                if info.offset + info.length > file.seek(0, io.SEEK_END):
                    raise TruncatedError(f"{path}: {where} ends at {info.offset + info.length}, but the file does not")
                file.seek(info.offset)
                content = file.read(info.length)
        except FileNotFoundError:
            raise NotFoundError(f"{where}: there is no file {path}") from None
        return _loaded(content, where, may_unpickle)


def write_torch_dist(
    folder: Path,
    tensors: Mapping[str, StoredTensor],
    part: Callable[[str, StoredTensor, StoredBox], torch.Tensor],
    values: Mapping[str, Any],
    common: Any,
    config: bytes,
) -> None:
    """Writes a checkpoint of torch_dist; its last file is metadata.json. `part` gives the elements of a part."""
    writer = FileSystemWriter(folder, sync_files=True)
    planner = _Planner(tensors, part, values)
    planner.set_up_planner({}, is_coordinator=True)
    writer.set_up_storage_writer(True)
    plan = writer.prepare_local_plan(planner.create_local_plan())
    plans, metadata = planner.create_global_plan([plan])
    written = writer.write_data(writer.prepare_global_plan(plans)[0], planner).wait()
    writer.finish(metadata, [written])
    if common is not None:
        content = io.BytesIO()
        torch.save(common, content)
        write_durably(folder / STOCK_COMMON, content.getvalue())
    write_durably(folder / CONFIG, config)


class _Planner(DefaultSavePlanner):
    """Writes tensors in the given parts. Makes each of them when it is written."""

    def __init__(
        self,
        tensors: Mapping[str, StoredTensor],
        part: Callable[[str, StoredTensor, StoredBox], torch.Tensor],
        values: Mapping[str, Any],
    ) -> None:
        super().__init__(flatten_state_dict=False)
        self._tensors, self._part, self._values = tensors, part, values

    def create_local_plan(self) -> SavePlan:
        items = [WriteItem(MetadataIndex(key), WriteItemType.BYTE_IO) for key in self._values]
        for key, tensor in self._tensors.items():
            items += [_item_of(key, tensor, part, number) for number, part in enumerate(tensor.parts)]
        self.plan = SavePlan(items)
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        key, data = write_item.index.fqn, write_item.tensor_data
        if data is None:
            content = io.BytesIO()
            torch.save([self._values[key]], content)
            return content
        return self._part(key, self._tensors[key], StoredBox(tuple(data.chunk.offsets), tuple(data.chunk.sizes)))


def _item_of(key: str, tensor: StoredTensor, part: StoredBox, number: int) -> WriteItem:
    chunk = ChunkStorageMetadata(torch.Size(part.offset), torch.Size(part.shape))
    data = TensorWriteData(chunk, TensorProperties(dtype=tensor.dtype), torch.Size(tensor.shape))
    return WriteItem(MetadataIndex(key, chunk.offsets, number), WriteItemType.SHARD, tensor_data=data)


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = _OTHERS.get((module, name))
        if known is not None:
            return known
        if module in _CLASSES_OF:
            found = getattr(importlib.import_module(module), name, None)
            if isinstance(found, type) and (dataclasses.is_dataclass(found) or issubclass(found, enum.Enum)):
                return found
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is no class of DCP's metadata")


def _metadata_of(path: Path) -> Metadata:
    try:
        with path.open("rb") as file:
            found = _MetadataUnpickler(file).load()
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file, so the folder is no checkpoint of torch_dist") from None
    except Exception as error:  # whatever a damaged pickle leads to
        raise CorruptError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, Metadata):
        raise CorruptError(f"{path} holds a {type(found).__name__}, expected the Metadata of DCP")
    return found


def _backend_of(path: Path) -> str:
    try:
        return str(parse_json(path.read_bytes())["sharded_backend"])
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file, so the folder is no complete checkpoint") from None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"{path} is damaged: {error}") from None


def _loaded(content: bytes, where: str, may_unpickle: bool) -> Any:
    try:
        if not content.startswith(_ZIP):
            raise ValueError("it is no ZIP archive of torch.save")
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=not may_unpickle)
    except pickle.UnpicklingError as error:
        named = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(content))
        reason = ", ".join(named) or str(error).partition("\n")[0]
        raise UnsupportedError(
            f"{where} holds more than torch.load(weights_only=True) reads: {reason}; if you trust the checkpoint, "
            "unpickle it with allow_pickle=True (--allow-pickle)"
        ) from None
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        raise CorruptError(f"{where} cannot be read: {error}") from error


def _is_tensor(stored: Any) -> bool:
    return isinstance(stored, TensorStorageMetadata)
