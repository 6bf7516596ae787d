"""States of tensors that are divided over ranks in drawn layouts: what each rank holds, computed without DTensor.

The functions that take a rank run in processes of python.rank_processes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from bitsnap.dcp import StorageReader, StorageWriter
from python.same_bits import assert_same, random_bits

# Whose functions torch does not declare as public.
dcp: Any = torch.distributed.checkpoint

RANKS = 4
MESHES = [(1,), (2,), (3,), (4,), (1, 2), (2, 1), (3, 1), (1, 4), (2, 2)]


@dataclass(frozen=True)
class Drawn:
    """A tensor: its elements follow from the seed."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    seed: int

    def whole(self) -> torch.Tensor:
        return random_bits(np.random.default_rng(self.seed), self.dtype, self.shape)


@dataclass(frozen=True)
class Layout:
    """How the tensors lie on the ranks of a mesh. For each dimension of the mesh, a placement for each tensor: the
    dimension of the tensor that it divides, None for replicas, or "strided": dimension 0 as FSDP2 divides what tensor
    parallel has divided already. A tensor with the placement "plain" is no DTensor."""

    mesh: tuple[int, ...]
    placements: tuple[Any, ...]

    @property
    def ranks(self) -> int:
        return int(np.prod(self.mesh))


def placements_of(layout: Layout, which: Any) -> list[Placement]:
    if which == "strided":
        return [_StridedShard(0, split_factor=layout.mesh[1]), Shard(0)]
    return [Replicate() if dim is None else Shard(dim) for dim in which]


def local_part(layout: Layout, which: Any, rank: int, whole: torch.Tensor) -> torch.Tensor:
    """What a rank holds: as many rows as torch.chunk() gives, and none at the end if they do not suffice."""
    coordinate = np.unravel_index(rank, layout.mesh)
    dims = list(range(len(layout.mesh)))
    if which == "strided":
        which, dims = (0, 0), [1, 0]
    for i in dims:
        if which[i] is None:
            continue
        chunks = whole.chunk(layout.mesh[i], which[i])
        at = int(coordinate[i])
        whole = chunks[at] if at < len(chunks) else whole.narrow(which[i], 0, 0)
    return whole


def state_on(rank: int, layout: Layout, tensors: tuple[Drawn, ...], *, filled: bool) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for i, (drawn, which) in enumerate(zip(tensors, layout.placements, strict=True)):
        whole = drawn.whole()
        if which == "plain":
            state[f"t{i}"] = whole if filled else other_bits(whole)
            continue
        local = local_part(layout, which, rank, whole).contiguous()
        state[f"t{i}"] = DTensor.from_local(
            local if filled else other_bits(local),
            mesh_of(layout.mesh),
            placements_of(layout, which),
            run_check=False,
            shape=whole.shape,
            stride=whole.stride(),
        )
    return {"model": state, "step": len(tensors) if filled else None}


def other_bits(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of this kind, every byte of which differs from that of the given one."""
    if tensor.dtype == torch.bool:
        return ~tensor
    flat = tensor.reshape(-1).view(torch.uint8)
    return (flat ^ 0xFF).view(tensor.dtype).reshape(tensor.shape)


@functools.cache
def mesh_of(shape: tuple[int, ...]) -> DeviceMesh:
    return DeviceMesh("cpu", torch.arange(int(np.prod(shape))).reshape(shape))


@functools.cache
def group_of(count: int) -> Any:
    return dist.new_group(list(range(count)))


def make_groups(rank: int) -> None:
    """Every rank takes part in making every group and mesh, in one order."""
    for count in range(1, RANKS + 1):
        group_of(count)
    for shape in MESHES:
        mesh_of(shape)


def save_layout(rank: int, checkpoint_id: str, layout: Layout, tensors: tuple[Drawn, ...]) -> None:
    if rank < layout.ranks:
        state = state_on(rank, layout, tensors, filled=True)
        dcp.save(
            state,
            checkpoint_id=checkpoint_id,
            storage_writer=StorageWriter(threads=1),
            process_group=group_of(layout.ranks),
        )


def load_layout(rank: int, checkpoint_id: str, layout: Layout, tensors: tuple[Drawn, ...]) -> None:
    if rank >= layout.ranks:
        return
    state = state_on(rank, layout, tensors, filled=False)
    reader = StorageReader(threads=1)
    dcp.load(state, checkpoint_id=checkpoint_id, storage_reader=reader, process_group=group_of(layout.ranks))
    expected = state_on(rank, layout, tensors, filled=True)
    assert state["step"] == expected["step"]
    for name, value in state["model"].items():
        wanted = expected["model"][name]
        if isinstance(value, DTensor):
            value, wanted = value.to_local(), wanted.to_local()
        assert_same(value, wanted, f"rank {rank}: {name}")
