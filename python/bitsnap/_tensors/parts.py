"""What a process holds of the tensors of a training: whole ones, parts of DTensors, and replicas."""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import distributed
from torch.distributed.tensor import DTensor

from bitsnap._base import KeyPath, keystr
from bitsnap._tensors.boxes import Box
from bitsnap.errors import InvalidArgumentError, UnsupportedError

# Every process saves its own replicas of smaller tensors: less than what tells which of them to leave out.
_SMALL_BYTES = 65_536
# By the bytes of an element; a complex number of 16 bytes counts as two.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


class Part(NamedTuple):
    """What this process holds of a tensor."""

    tensor: torch.Tensor  # its memory
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    replicated_in: tuple[Any, ...] = ()  # the process groups whose members hold the same
    is_first_replica: bool = True

    @property
    def is_saved(self) -> bool:
        return self.is_first_replica or self.tensor.nbytes <= _SMALL_BYTES

    @property
    def is_shared(self) -> bool:
        """Whether it is saved once for several processes."""
        return bool(self.replicated_in) and self.tensor.nbytes > _SMALL_BYTES

    @property
    def value_or_nothing(self) -> torch.Tensor | Box:
        """As a value of a state whose structure all processes save: an empty Box if another process saves it."""
        if not self.is_shared:
            return self.value
        # In a Box also if it is whole, which tells it from a tensor that each process has of its own.
        if self.is_saved:
            return Box(self.tensor, self.global_shape, self.offset)
        origin = (0,) * len(self.global_shape)
        return Box(self.tensor.new_empty(origin), self.global_shape, origin)

    @property
    def value(self) -> torch.Tensor | Box:
        """As a value of a state."""
        if self.tensor.shape == self.global_shape:
            return self.tensor
        return Box(self.tensor, self.global_shape, self.offset)


def part_of(tensor: torch.Tensor, place: KeyPath, replicas: Any = None, *, shares_replicas: bool = True) -> Part:
    """The part of a tensor in this process.

    Args:
        tensor: a DTensor, or a tensor of this process.
        place: its place in the state, for errors.
        replicas: the group whose processes hold the same, for tensors that are no DTensors.
        shares_replicas: whether one process saves the replicas of all.
    """
    if tensor.requires_grad:
        tensor = tensor.detach()
    if isinstance(tensor, DTensor):
        return _part_of_dtensor(tensor, place, shares_replicas)
    shape = tensor.shape
    if replicas is None or not shares_replicas or distributed.get_world_size(replicas) == 1:
        return Part(tensor, shape, (0,) * len(shape))
    return Part(tensor, shape, (0,) * len(shape), (replicas,), distributed.get_rank(replicas) == 0)


def _part_of_dtensor(tensor: DTensor, place: KeyPath, shares_replicas: bool) -> Part:
    mesh, placements = tensor.device_mesh, tensor.placements
    if any(placement.is_partial() for placement in placements):
        raise InvalidArgumentError(
            f"{keystr(place, 'state')} is a DTensor of partial sums ({placements}): redistribute it first"
        )
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise UnsupportedError(f"{keystr(place, 'state')} is a DTensor on {mesh}, which this process is not in")
    chunks = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call]
    local = tensor.to_local()
    shape = tuple(tensor.shape)
    splits = [(placement, mesh.size(d), coordinate[d]) for d, placement in enumerate(placements)]
    is_box = all(_is_one_range(extent, len(shape), dim, _of_dimension(splits, dim)) for dim, extent in enumerate(shape))
    if len(chunks) != 1 or tuple(chunks[0].sizes) != tuple(local.shape) or not is_box:
        raise UnsupportedError(f"{keystr(place, 'state')} is a DTensor whose part is no box: {placements} on {mesh}")
    # An empty part may begin behind the end.
    offset = tuple(min(start, size) for start, size in zip(chunks[0].offsets, shape, strict=True))
    if not shares_replicas:
        return Part(local, shape, offset)
    replicated = [d for d, placement in enumerate(placements) if placement.is_replicate() and mesh.size(d) > 1]
    is_first = all(coordinate[d] == 0 for d in replicated)
    return Part(local, shape, offset, tuple(mesh.get_group(d) for d in replicated), is_first)


def _of_dimension(splits: list[tuple[Any, int, int]], dim: int) -> tuple[tuple[Any, int, int], ...]:
    return tuple(split for split in splits if getattr(split[0], "dim", None) == dim)


@functools.lru_cache(maxsize=1024)
def _is_one_range(extent: int, dims: int, dim: int, splits: tuple[tuple[Any, int, int], ...]) -> bool:
    """Whether a part lies in one piece in a dimension. A _StridedShard may give a process several pieces, of which
    DTensor tells the beginning of the first one only.

    Args:
        extent: of the whole tensor, which has `dims` dimensions.
        splits: the placements over this dimension, with the number of processes and the number of this one.
    """
    if not any(hasattr(placement, "split_factor") for placement, _, _ in splits):
        return True
    indices = torch.arange(extent).reshape([-1 if each == dim else 1 for each in range(dims)])
    for placement, processes, number in splits:
        indices = placement._split_tensor(indices, processes, with_padding=False)[0][number]
    count = indices.numel()
    return count == 0 or int(indices.max() - indices.min()) == count - 1


def send_to_replicas(parts: list[Part]) -> None:
    """Fills replicas from the first of each. All processes must call it with the same parts."""
    for part in parts:
        # After the last group, all have what the first replica has, however the groups are nested.
        for group in part.replicated_in:
            _send(part.tensor, group)


def _send(tensor: torch.Tensor, group: Any) -> None:
    source = distributed.get_global_rank(group, 0)
    if not _can_send(tensor, group):
        held = [tensor]
        distributed.broadcast_object_list(held, source, group)
        tensor.copy_(held[0])
        return
    packed = tensor.contiguous()
    # As bytes, because not every backend knows every dtype.
    distributed.broadcast(packed.reshape(-1).view(torch.uint8), source, group)
    if packed is not tensor:
        tensor.copy_(packed)


def _can_send(tensor: torch.Tensor, group: Any) -> bool:
    """Whether the backend of the group takes tensors of this device; NCCL takes none of the CPU."""
    backend = str(distributed.get_backend_config(group))
    return f"{tensor.device.type}:" in backend


def checksums_of(parts: Mapping[KeyPath, Part]) -> dict[KeyPath, int]:
    """The sum of all elements, taken as integers, of each part that is saved once: other for almost all replicas that
    are not equal. Each device adds up its own tensors."""
    by_device: defaultdict[torch.device, dict[KeyPath, torch.Tensor]] = defaultdict(dict)
    for place, part in parts.items():
        if part.is_shared:
            elements = part.tensor.contiguous().reshape(-1).view(_INTEGERS[part.tensor.element_size()])
            by_device[part.tensor.device][place] = elements.sum(dtype=torch.int64)
    sums: dict[KeyPath, int] = {}
    for of_device in by_device.values():
        sums.update(zip(of_device, torch.stack([*of_device.values()]).tolist(), strict=True))
    return sums


def digest_of(sums: Mapping[KeyPath, int]) -> bytes:
    """The same for equal sums of the same tensors."""
    return hashlib.sha256(repr(sorted(sums.items())).encode()).digest()


def alone(part: Part) -> Part:
    """The part of a process that saves and restores for itself."""
    return part._replace(replicated_in=(), is_first_replica=True)
