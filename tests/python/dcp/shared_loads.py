"""What ranks do that load replicas with planners of their own; see dcp_shared_reads_test.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed.checkpoint
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner

from bitsnap.dcp import StorageReader, StorageWriter

# Whose functions torch does not declare as public.
dcp: Any = torch.distributed.checkpoint


def state(seed: int, **dtypes: torch.dtype) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    made = {name: torch.randn(1000, generator=generator) for name in ("a", "b", "c")}
    return {name: value.to(dtypes.get(name, value.dtype)) for name, value in made.items()}


def save(rank: int, run: str) -> None:
    dcp.save(state(1), checkpoint_id=f"{run}/step-1", storage_writer=StorageWriter())


class Staging(DefaultLoadPlanner):
    """Gives tensors of its own to fill, and takes them over when they are filled, as torch's documentation has it."""

    def resolve_tensor(self, read_item: Any) -> torch.Tensor:
        return torch.full_like(super().resolve_tensor(read_item), 7)

    def commit_tensor(self, read_item: Any, tensor: torch.Tensor) -> None:
        super().resolve_tensor(read_item).copy_(tensor)
        tensor.fill_(8)


class Refusing(DefaultLoadPlanner):
    """Fails for one tensor, when it asks for it or takes it over, on one rank."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self._call = call

    def _check(self, call: str, read_item: Any) -> None:
        if call == self._call and read_item.dest_index.fqn == "b" and torch.distributed.get_rank() == 1:
            raise ValueError("not this one")

    def resolve_tensor(self, read_item: Any) -> torch.Tensor:
        self._check("resolve_tensor", read_item)
        tensor: torch.Tensor = super().resolve_tensor(read_item)
        return tensor

    def commit_tensor(self, read_item: Any, tensor: torch.Tensor) -> None:
        self._check("commit_tensor", read_item)
        super().commit_tensor(read_item, tensor)


def load(rank: int, run: str, kind: str) -> None:
    """Every rank needs "a", two of them "b" and "c", and rank 1 has another dtype for "c"."""
    found = state(2, **({"c": torch.float64} if rank == 1 else {}))
    if rank == 0:
        del found["b"], found["c"]
    planner = Staging() if kind == "staging" else DefaultLoadPlanner() if kind == "plain" else Refusing(kind)
    dcp.load(found, checkpoint_id=f"{run}/step-1", storage_reader=StorageReader(), planner=planner)
    for name, value in found.items():
        assert torch.equal(value, state(1)[name].to(value.dtype)), name
