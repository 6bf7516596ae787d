"""Which rank saves which elements of weights of Megatron: beside their masters, and each element once."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

from bitsnap import Box, InvalidArgumentError
from bitsnap.megatron._pairs import Claim, Offer, WeightPart, boxes_of, element_at, note_weights, shares_of, together
from bitsnap.megatron._shards import RankPart

SHAPES = [shape for axes in range(5) for shape in itertools.product((1, 2, 3), repeat=axes)] + [(0,), (2, 0), (0, 3)]


@pytest.mark.parametrize("axes", range(5))
def test_boxes_have_the_elements_of_a_range_in_order(axes: int) -> None:
    for shape in (shape for shape in SHAPES if len(shape) == axes):
        numbers = torch.arange(math.prod(shape)).reshape(shape)
        for start, end in itertools.combinations_with_replacement(range(numbers.numel() + 1), 2):
            boxes = boxes_of(shape, start, end)
            found: list[int] = []
            for offset, extent in boxes:
                box = numbers[tuple(slice(at, at + size) for at, size in zip(offset, extent, strict=True))]
                assert tuple(box.shape) == extent
                assert box.is_contiguous()
                assert element_at(shape, offset) == start + len(found)
                found += box.flatten().tolist()
            assert found == list(range(start, end))
            assert len(boxes) <= max(2 * len(shape) - 1, 1)


PARTS = [WeightPart("a", (0, 0)), WeightPart("a", (4, 0)), WeightPart("b", (0,))]
ELEMENTS = 12


@st.composite
def offers(draw: st.DrawFn) -> list[Offer]:
    """Of some ranks: each part belongs to one of them, and any of them claim any elements."""
    ranks = draw(st.integers(1, 4))
    owners = {part: draw(st.integers(0, ranks - 1)) for part in PARTS}
    found = []
    for rank in range(ranks):
        claims = draw(
            st.lists(
                st.builds(
                    lambda part, ends, group: Claim(part, min(ends), max(ends), group),
                    st.sampled_from(PARTS),
                    st.tuples(st.integers(0, ELEMENTS), st.integers(0, ELEMENTS)),
                    st.sampled_from(["", "x", "y"]),
                ),
                max_size=4,
            )
        )
        groups = frozenset(draw(st.sets(st.sampled_from(["x", "y"]))))
        found.append(Offer({part: ELEMENTS for part in PARTS if owners[part] == rank}, groups, claims))
    return found


@given(offers())
def test_every_element_has_one_rank_which_claims_it_if_any_may(told: list[Offer]) -> None:
    savers: dict[tuple[WeightPart, int], list[int]] = defaultdict(list)
    for rank in range(len(told)):
        for part, ranges in shares_of(rank, told).items():
            for start, end in ranges:
                for element in range(start, end):
                    savers[part, element].append(rank)
    assert savers.keys() == set(itertools.product(PARTS, range(ELEMENTS)))
    for (part, element), ranks in savers.items():
        assert len(ranks) == 1
        owner = next(rank for rank, offer in enumerate(told) if part in offer.parts)
        able = {
            rank
            for rank, offer in enumerate(told)
            for claim in offer.claims
            if claim.part == part and claim.start <= element < claim.end
            if claim.group in ("", *told[owner].groups)
        }
        assert ranks[0] in (able or {owner})


def test_parts_without_elements_stay_with_their_rank() -> None:
    assert shares_of(0, [Offer({PARTS[0]: 0}, frozenset(), [])]) == {PARTS[0]: [(0, 0)]}


@dataclasses.dataclass
class Piece:
    """A ShardedTensor as Megatron makes it."""

    key: str
    data: torch.Tensor | None
    global_shape: tuple[int, ...]
    global_offset: tuple[int, ...]
    replica_id: Any
    prepend_axis_num: int = 0

    def __post_init__(self) -> None:
        assert self.data is not None
        self.dtype = self.data.dtype
        self.local_shape = tuple(self.data.shape)


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A flat buffer of weights, whose masters are divided among ranks as those of dp_reshardable."""

    shapes: list[tuple[int, ...]]
    ranks: int
    is_split: list[bool]  # the first half of the rows is a tensor of its own, as of a gated layer
    owners: list[int]  # the ranks that save the weights by Megatron's rules

    def starts(self) -> list[int]:
        """Of the weights, with padding between them."""
        return [sum(math.prod(shape) + 1 for shape in self.shapes[:i]) for i in range(len(self.shapes) + 1)]

    def masters(self) -> torch.Tensor:
        return torch.randn(self.starts()[-1], generator=torch.Generator().manual_seed(1))

    def items(self, rank: int) -> list[Piece]:
        """The ShardedTensors of a rank. All have the same weights, in memory of their own."""
        masters = self.masters()
        memory = masters.bfloat16()
        per_rank = -(-len(masters) // self.ranks)
        padding = "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.bucket_idx_0.exp_avg"
        items = [Piece(padding, torch.zeros(1), (self.ranks,), (rank,), (0, 0, 0))]
        for i, (shape, start) in enumerate(zip(self.shapes, self.starts(), strict=False)):
            end = start + math.prod(shape)
            weight = torch.nn.Parameter(memory[start:end].view(shape))
            first, last = max(start, rank * per_rank), min(end, (rank + 1) * per_rank)
            if first < last:
                key = f"optimizer.distributed.dp_group_idx_0.gbuf_idx_0.bucket_idx_0.param{i}.param"
                item = Piece(key, masters[first:last].clone(), (len(masters),), (first,), (0, 0, 0))
                note_weights(item, weight, first - start, last - start)
                items.append(item)
            rows = shape[0] // 2 if self.is_split[i] else shape[0]
            for row in range(0, shape[0], rows or 1):
                data = weight.detach()[row : row + rows]
                where = (2, row, *(0 for _ in shape[1:]))
                items.append(Piece(f"weight{i}", data, (3, *shape), where, (0, 0, rank != self.owners[i]), 1))
        return items


@st.composite
def buffers(draw: st.DrawFn) -> Buffer:
    shapes = draw(st.lists(st.lists(st.sampled_from([2, 4, 6]), min_size=1, max_size=3), min_size=1, max_size=4))
    ranks = draw(st.integers(1, 5))
    count = len(shapes)
    return Buffer(
        [tuple(shape) for shape in shapes],
        ranks,
        draw(st.lists(st.booleans(), min_size=count, max_size=count)),
        draw(st.lists(st.integers(0, ranks - 1), min_size=count, max_size=count)),
    )


@given(buffers())
@settings(deadline=None)
def test_all_bits_of_weights_are_saved_once_beside_their_masters(buffer: Buffer) -> None:
    parts = [RankPart(buffer.items(rank)) for rank in range(buffer.ranks)]
    told = [part.offer for part in parts]
    whole = {f"weight{i}": torch.zeros((3, *shape)) for i, shape in enumerate(buffer.shapes)}
    written = {key: torch.zeros_like(tensor) for key, tensor in whole.items()}
    for rank, part in enumerate(parts):
        part.take(shares_of(rank, told))
        for name, value in part.state.items():
            if part.roles[name] != "weight":
                continue
            assert isinstance(value, Box)
            key = name.partition("/")[0]
            place = tuple(slice(at, at + size) for at, size in zip(value.offset, value.tensor.shape, strict=True))
            weight: Any = value.tensor
            whole[key][place] = weight.float()
            written[key][place] += 1
            master, element = part.masters[name]
            values: Any = part.state[master].tensor
            assert torch.equal(values[element : element + weight.numel()].bfloat16(), weight.flatten())
    for i, (shape, start) in enumerate(zip(buffer.shapes, buffer.starts(), strict=False)):
        expected = buffer.masters()[start : start + math.prod(shape)].bfloat16().float().view(shape)
        assert torch.equal(whole[f"weight{i}"][2], expected)
        assert torch.equal(written[f"weight{i}"][2], torch.ones(shape))
        assert not written[f"weight{i}"][:2].any()


def test_a_weight_is_saved_where_its_whole_master_is() -> None:
    weight, master = torch.ones(2, 3).bfloat16(), torch.ones(2, 3)
    owner = RankPart([Piece("w", weight, (4, 3), (2, 0), 0)])
    other = RankPart(
        [
            Piece("chained_0.optimizer.state.fp32_param.w", master, (4, 3), (2, 0), 0),
            Piece("w", weight, (4, 3), (2, 0), 1),
        ]
    )
    for rank, part in enumerate((owner, other)):
        part.take(shares_of(rank, [owner.offer, other.offer]))
    assert owner.state == {}
    assert other.masters == {"w/2-0": ("chained_0.optimizer.state.fp32_param.w/2-0", 0)}


def test_masters_of_another_replica_or_part_are_not_used() -> None:
    weight = torch.nn.Parameter(torch.ones(2, 3).bfloat16())
    of_group = [
        Piece(f"optimizer.distributed.dp_group_idx_{i}.gbuf_idx_0.param", torch.ones(6), (6,), (0,), 0)
        for i in range(2)
    ]
    for item in of_group:
        note_weights(item, weight, 0, 6)
    owner = RankPart([of_group[0], Piece("w", weight.detach().clone(), (2, 3), (0, 0), 0)])
    other = RankPart([of_group[1], Piece("w", weight.detach(), (2, 3), (0, 0), 1)])
    assert other.offer.claims
    assert shares_of(1, [owner.offer, other.offer]) == {}
    smaller = RankPart(
        [
            Piece("optimizer.state.param.w", torch.ones(3), (3,), (0,), 0),
            Piece("w", torch.ones(6).half(), (6,), (0,), 0),
        ]
    )
    assert not smaller.offer.claims


def test_two_main_replicas_are_an_error() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        pieces = [Piece("w", torch.ones(2, dtype=dtype), (4,), (2,), 0) for _ in range(2)]
        with pytest.raises(InvalidArgumentError, match=r"'w': two main replicas have the offset \[2\]"):
            RankPart(pieces)


def test_what_belongs_to_a_weight_goes_to_one_rank() -> None:
    keys = ["w", "v", *(f"optimizer.state.{name}.{key}" for name in ("exp_avg", "param") for key in ("w", "v"))]
    shards = [(key, (0, 0), None) for key in keys]
    ranks = {shard: [0, 1] for shard in shards} | {
        ("w", (2, 0), None): [0, 1],
        ("optimizer.state.param.v", (2, 0)): [1],
    }

    def stock(ranks: dict[Any, Any], sizes: dict[Any, int], count: int, later: Any) -> dict[Any, int]:
        assert sorted(sizes.values()) == [1, 1, 3, 3]
        assert count == 2
        return dict(zip(sorted(ranks), itertools.cycle(range(count)), strict=False))

    found = together(stock)(ranks, dict.fromkeys(ranks, 1), 2, set())
    assert found.keys() == ranks.keys()
    for key in ("w", "v"):
        assert len({rank for shard, rank in found.items() if shard[0].endswith(key) and shard[1] == (0, 0)}) == 1
    assert len(set(found.values())) == 2
