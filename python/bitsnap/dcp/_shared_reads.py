"""Tensors that several ranks load: one of them reads and decodes, and the others receive.

The first rank that needs a box of a tensor is its reader. Ranks that need the same boxes are a *group*: those that
hold replicas. What a group needs goes from its reader to the others in pieces, by a broadcast if these are all ranks,
or else from rank to rank along the group, so that no rank sends more than once.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem

from bitsnap.torch._training_tensors import can_send

Group: TypeAlias = tuple[int, ...]
# A tensor's name, where the box of the checkpoint begins, where the wanted part of it begins, and its shape.
_Key: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
Target: TypeAlias = tuple[ReadItem, torch.Tensor]  # to fill

_PIECE_BYTES = 64 << 20


class SharedReads(NamedTuple):
    """What the plan of a rank says of reads that others need, too."""

    groups: tuple[Group, ...]  # of all ranks
    of_items: dict[_Key, int]  # those of this rank: the number of the group


class _Status(NamedTuple):
    """What a rank tells the others before tensors are sent."""

    has_failed: bool
    signatures: dict[int, str]  # of the tensors to fill, by the number of the group; "" if they cannot be sent


def plans_with_readers(plans: list[LoadPlan]) -> list[LoadPlan]:
    """The plans of all ranks, with what they share; as they are if the ranks cannot communicate."""
    if len(plans) == 1 or not dist.is_initialized() or dist.get_world_size() != len(plans):
        return plans
    readers: defaultdict[_Key, list[int]] = defaultdict(list)
    for rank, plan in enumerate(plans):
        for item in plan.items:
            if item.type == LoadItemType.TENSOR:
                readers[_key_of(item)].append(rank)
    # A rank may need a box twice, for two of its tensors: then each rank reads for itself.
    shared = {key: tuple(ranks) for key, ranks in readers.items() if 1 < len(ranks) == len(set(ranks))}
    groups = tuple(sorted(set(shared.values())))
    numbers = {group: number for number, group in enumerate(groups)}
    if not groups:
        return plans
    return [
        dataclasses.replace(
            plan,
            storage_data=SharedReads(
                groups,
                {
                    key: numbers[shared[key]]
                    for key in map(_key_of, (item for item in plan.items if item.type == LoadItemType.TENSOR))
                    if key in shared
                },
            ),
        )
        for plan in plans
    ]


def read_shared(
    shared: SharedReads,
    items: Sequence[ReadItem],
    planner: LoadPlanner,
    fill: Callable[[Sequence[Target]], None],
) -> None:
    """Fills all tensors of a rank: reads those that are its own to read with `fill`, and receives the others.

    All ranks must call it. If one fails to read, it raises the error, and the others return with nothing committed.
    """
    rank = dist.get_rank()
    by_group: defaultdict[int | None, list[Target]] = defaultdict(list)
    signatures: dict[int, str] = {}
    error: Exception | None = None
    try:
        # Once for each item: a planner may give another tensor each time.
        for item in sorted(items, key=_key_of):
            by_group[shared.of_items.get(_key_of(item))].append((item, planner.resolve_tensor(item)))
        signatures = {number: _signature(targets) for number, targets in by_group.items() if number is not None}
        fill(
            [
                target
                for number, targets in by_group.items()
                if number is None or shared.groups[number][0] == rank
                for target in targets
            ]
        )
    except Exception as raised:  # which is raised when the others know that there is one
        error = raised
    statuses: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(statuses, _Status(error is not None, signatures))
    if error is not None:
        raise error
    if any(each.has_failed for each in statuses):
        return
    left: list[Target] = []
    for number in sorted(signatures):
        group = shared.groups[number]
        found = {statuses[other].signatures.get(number, "") for other in group}
        if len(found) == 1 and found != {""}:
            for piece in _pieces(by_group[number]):
                _send(piece, group, rank)
        elif rank != group[0]:
            left += by_group[number]
    # Nobody waits for this rank any more.
    fill(left)
    for item, tensor in (target for targets in by_group.values() for target in targets):
        planner.commit_tensor(item, tensor)


def _key_of(item: ReadItem) -> _Key:
    index = item.storage_index
    return index.fqn, tuple(index.offset or ()), tuple(item.storage_offsets), tuple(item.lengths)


def _signature(tensors: Sequence[Target]) -> str:
    """The same on ranks whose tensors have equal dtypes, shapes and kinds of devices; empty if some cannot be sent."""
    known = [
        (str(tensor.dtype), tuple(tensor.shape), tensor.device.type, tensor.device == before.device)
        for (_, tensor), (_, before) in zip(tensors, [tensors[0], *tensors], strict=False)
    ]
    if not all(can_send(tensor, None) for _, tensor in tensors):
        return ""
    return hashlib.sha256(repr(known).encode()).hexdigest()


def _pieces(tensors: Iterable[Target]) -> Iterator[list[torch.Tensor]]:
    """Tensors that are sent at once. A large one alone is a piece."""
    piece: list[torch.Tensor] = []
    size = 0
    for _, tensor in tensors:
        if piece and (size + tensor.nbytes > _PIECE_BYTES or tensor.device != piece[0].device):
            yield piece
            piece, size = [], 0
        piece.append(tensor)
        size += tensor.nbytes
    if piece:
        yield piece


def _send(tensors: list[torch.Tensor], group: Group, rank: int) -> None:
    flat = [tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
    packed = flat[0] if len(flat) == 1 else torch.cat(flat)
    if len(group) == dist.get_world_size():
        dist.broadcast(packed, group[0])
    else:
        place = group.index(rank)
        if place > 0:
            dist.recv(packed, group[place - 1])
        if place + 1 < len(group):
            dist.send(packed, group[place + 1])
    if rank == group[0]:
        return
    for tensor, received in zip(tensors, torch.split(packed, [each.numel() for each in flat]), strict=True):
        if received.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(received.view(tensor.dtype).reshape(tensor.shape))
