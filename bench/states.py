"""The tensors of states, which are nested dicts and lists, and comparisons of their bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

State = dict[str, Any]


def tensors_in(value: Any) -> Iterator[Tensor]:
    """What this rank holds of each tensor."""
    if isinstance(value, Tensor):
        yield value.to_local() if isinstance(value, DTensor) else value.detach()
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(item)


def bytes_of(value: Any) -> int:
    return sum(tensor.nbytes for tensor in tensors_in(value))


def mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """A copy of nested dicts and lists with other tensors."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: mapped(item, function) for key, item in value.items()}
    return [mapped(item, function) for item in value] if isinstance(value, list) else value


def blank(state: State) -> State:
    """A state to load into: all tensors are NaN, and the step is none."""
    return {**mapped(state, lambda tensor: torch.full_like(tensor, math.nan)), "step": -1}


def same_bits(one: Any, other: Any) -> bool:
    pairs = zip(tensors_in(one), tensors_in(other), strict=True)
    return all(
        torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))
        for a, b in pairs
    )
