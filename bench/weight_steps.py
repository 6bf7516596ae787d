"""Perturbations that move bfloat16 weights by one ULP: masters are moved as little as changes what they are rounded to.

A master lies between two neighbouring bfloat16 numbers, and its weight is the nearer one. Moved just beyond the middle
of the two, it has the other for its weight: no way to another weight is shorter.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LOW = 0xFFFF  # the bits of a float32 that a bfloat16 lacks
_MIDDLE = 0x8000


def beyond_the_middle(master: Tensor) -> Tensor:
    """The number nearest to each element that is rounded to the next bfloat16 on the other side; float32."""
    bits = master.view(torch.int32)
    low = bits & _LOW
    is_odd = (bits >> 16) & 1
    is_rounded_up = (low > _MIDDLE) | ((low == _MIDDLE) & (is_odd == 1))
    # The middle itself belongs to the even one of the two.
    above = _MIDDLE + is_odd.bitwise_xor(1)
    below = _MIDDLE - is_odd
    return ((bits & ~_LOW) | torch.where(is_rounded_up, below, above)).view(torch.float32)


def _way(master: Tensor, moved: Tensor) -> Tensor:
    """How far elements were moved, in float32's ULP, of which a bfloat16's has 2^16."""
    return (moved.view(torch.int32) - master.view(torch.int32)).abs()


def move_near_ones(master: Tensor, most_ulp: float) -> Tensor:
    """Only the masters that another weight is no farther from than that, in the weight's ULP."""
    moved = beyond_the_middle(master)
    return torch.where(_way(master, moved) <= most_ulp * 2**16, moved, master)


def move_one_weight(master: Tensor) -> Tensor:
    """Of all masters of a tensor only the one that has the shortest way to another weight."""
    moved = beyond_the_middle(master)
    nearest = int(_way(master, moved).argmin())
    result = master.clone()
    result.view(-1)[nearest] = moved.reshape(-1)[nearest]
    return result
