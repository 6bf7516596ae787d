"""Which rank saves which elements of a weight: the rank that saves their masters, if it holds the weight, too.

A weight that is saved beside its master takes almost no bytes, but Megatron lets different ranks save the two. Each
rank offers the elements of weights whose masters it saves. All ranks see all offers and compute the same division, in
which every element that Megatron has somebody save has one rank. Elements that nobody offers stay where they were.

For example, ranks 0 and 1 hold the weight w of 10 elements. Megatron has rank 0 save w, and rank 1 save the masters of
elements 6 to 10. Rank 0 offers w with 10 elements, and rank 1 claims 6 to 10 of w. So rank 0 saves elements 0 to 6, its
shares are {w: [Range(0, 6)]}, and rank 1 saves elements 6 to 10 beside their masters: {w: [Range(6, 10)]}.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

_STATE_KEY = re.compile(r"(?:^|\.)optimizer\.state\.([^.]+)\.(.+)$")  # what the optimizer has of a weight
_MASTERS = ("param", "fp32_param")
# A piece of a buffer. What is before it names the group of ranks among which the buffer is divided.
_BUCKET_KEY = re.compile(r"(.*)\.gbuf_idx_\d+\.")
_WEIGHTS = "bitsnap_weights"  # the attribute of a ShardedTensor with masters: the weights that they belong to


class WeightPart(NamedTuple):
    """A part of a whole tensor, as Megatron divides it. It may be held by several ranks."""

    key: str
    offset: tuple[int, ...]


class Claim(NamedTuple):
    """Elements of a part, from `start` to `end` in row-major order, whose masters a rank saves."""

    part: WeightPart
    start: int
    end: int
    group: str  # of the ranks among which the masters are divided; empty: one rank has all


class Offer(NamedTuple):
    """What a rank tells the others."""

    parts: dict[WeightPart, int]  # that it saves by Megatron's rules, with their elements
    groups: frozenset[str]  # that it belongs to
    claims: list[Claim]


class Master(NamedTuple):
    """Where the masters of elements of a part are saved."""

    start: int
    end: int
    name: str  # of a tensor in the state
    shift: int  # the master of element i is element i + shift


class Range(NamedTuple):
    start: int
    end: int


Box = tuple[tuple[int, ...], tuple[int, ...]]  # offset and extent


def shares_of(rank: int, offers: Sequence[Offer]) -> dict[WeightPart, list[Range]]:
    """The elements of parts that a rank saves."""
    claims: dict[WeightPart, list[tuple[int, int, Claim]]] = {}
    for claimant, offer in enumerate(offers):
        for claim in offer.claims:
            claims.setdefault(claim.part, []).append((claim.start, claimant, claim))
    found: dict[WeightPart, list[Range]] = {}
    for owner, offer in enumerate(offers):
        for part, elements in offer.parts.items():
            for saver, taken in _division(owner, elements, sorted(claims.get(part, ())), offer.groups):
                if saver == rank:
                    found.setdefault(part, []).append(taken)
    return found


def _division(
    owner: int, elements: int, claims: Iterable[tuple[int, int, Claim]], groups: frozenset[str]
) -> Iterator[tuple[int, Range]]:
    """Ranks with the elements that each of them saves, in order and without gaps."""
    done = 0
    for _, claimant, claim in claims:
        start, end = max(claim.start, done), min(claim.end, elements)
        # The masters of another group belong to a replica of the weight.
        if start >= end or (claim.group and claim.group not in groups):
            continue
        if done < start:
            yield owner, Range(done, start)
        yield claimant, Range(start, end)
        done = end
    if done < elements or elements == 0:
        yield owner, Range(done, elements)


def boxes_of(shape: Sequence[int], start: int, end: int) -> list[Box]:
    """The boxes that hold the elements from `start` to `end` of a tensor in row-major order.

    The elements of each box follow one another in that order, and those of the next box follow them. A tensor of n
    axes has at most 2n - 1 boxes.
    """
    if start >= end:
        return []
    if not shape:
        return [((), ())]
    row, inner = math.prod(shape[1:]), shape[1:]
    first, head = divmod(start, row)
    last, tail = divmod(end, row)
    if first == last:
        return _in_row(first, inner, head, tail)
    boxes = []
    if head:
        boxes += _in_row(first, inner, head, row)
        first += 1
    if first < last:
        boxes.append(((first, *(0 for _ in inner)), (last - first, *inner)))
    return boxes + (_in_row(last, inner, 0, tail) if tail else [])


def _in_row(row: int, shape: Sequence[int], start: int, end: int) -> list[Box]:
    return [((row, *offset), (1, *extent)) for offset, extent in boxes_of(shape, start, end)]


def element_at(shape: Sequence[int], offset: Sequence[int]) -> int:
    """The number of an element in row-major order."""
    number = 0
    for size, at in zip(shape, offset, strict=True):
        number = number * size + at
    return number


def is_half(tensor: torch.Tensor) -> bool:
    """Whether it may be rounded from masters."""
    return tensor.dtype in (torch.bfloat16, torch.float16) and not is_quantized(tensor)


def is_quantized(tensor: torch.Tensor) -> bool:
    return type(tensor).__module__.startswith("transformer_engine")


def note_weights(item: Any, weight: torch.Tensor, start: int, end: int) -> None:
    """Notes that a ShardedTensor has the masters of the elements from `start` to `end` of a weight of this rank."""
    if is_half(weight) and weight.is_contiguous():
        setattr(item, _WEIGHTS, weight.detach().view(-1)[start:end])


class Masters:
    """The masters that a rank saves, and where the weights that they belong to are."""

    def __init__(self) -> None:
        self.groups: set[str] = set()
        self._by_part: dict[WeightPart, tuple[int, str]] = {}  # elements and names
        self._by_device: dict[torch.device, list[tuple[int, int, str, str]]] = {}  # of weights: from, to; name, group

    def see(self, item: Any) -> None:
        """Of any ShardedTensor of this rank, saved or not."""
        found = _BUCKET_KEY.match(item.key)
        if found:
            self.groups.add(found[1])

    def add(self, item: Any, name: str, tensor: torch.Tensor) -> None:
        """Takes a ShardedTensor that this rank saves under a name."""
        if tensor.dtype != torch.float32:
            return
        weights, group = getattr(item, _WEIGHTS, None), _BUCKET_KEY.match(item.key)
        found = _STATE_KEY.search(item.key)
        if weights is not None and group:
            start = weights.data_ptr()
            end = start + min(weights.numel(), tensor.numel()) * weights.element_size()
            self._by_device.setdefault(weights.device, []).append((start, end, name, group[1]))
        elif found and found[1] in _MASTERS:
            self._by_part[WeightPart(found[2], tuple(item.global_offset))] = (tensor.numel(), name)

    def claims(self, held: Mapping[WeightPart, torch.Tensor]) -> Iterator[tuple[Claim, Master]]:
        """Of parts of weights that this rank holds, the elements whose masters it saves."""
        for places in self._by_device.values():
            places.sort()
        for part, tensor in held.items():
            elements, name = self._by_part.get(part, (0, ""))
            if elements == tensor.numel() > 0:
                yield Claim(part, 0, elements, ""), Master(0, elements, name, 0)
            elif tensor.is_contiguous():
                yield from self._beside(part, tensor)

    def _beside(self, part: WeightPart, tensor: torch.Tensor) -> Iterator[tuple[Claim, Master]]:
        """By the memory: Megatron's masters belong to ranges of it, in which parts of weights lie."""
        places = self._by_device.get(tensor.device, [])
        size = tensor.element_size()
        first = tensor.data_ptr()
        for start, end, name, group in places[bisect.bisect_right(places, first, key=lambda place: place[1]) :]:
            if start >= first + tensor.numel() * size:
                return
            begin = max(start - first, 0) // size
            stop = min((end - first) // size, tensor.numel())
            yield Claim(part, begin, stop, group), Master(begin, stop, name, (first - start) // size)


def together(stock: Callable[..., dict[Any, int]]) -> Callable[..., dict[Any, int]]:
    """Megatron's division of shards among ranks, but what belongs to one weight goes to one rank, if all hold it.

    A shard is a tuple of the key and the place in the whole tensor.
    """

    def distribute(ranks: dict[Any, Any], sizes: dict[Any, int], count: int, later: Any) -> dict[Any, int]:
        families: dict[Any, list[Any]] = {}
        for shard, holders in ranks.items():
            key, *place = shard
            found = _STATE_KEY.search(key)
            family = (found[2] if found else key, tuple(place), tuple(holders), shard in later)
            families.setdefault(family, []).append(shard)
        heads = {min(members): members for members in families.values()}
        chosen = stock(
            {head: ranks[head] for head in heads},
            {head: sum(sizes[each] for each in members) for head, members in heads.items()},
            count,
            later,
        )
        return {shard: chosen[head] for head, members in heads.items() for shard in members}

    return distribute
