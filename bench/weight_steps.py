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


def move_one_weight(master: Tensor) -> Tensor:
    """Of all masters of a tensor only the one that has the shortest way to another weight, counted in float32's ULP."""
    moved = beyond_the_middle(master)
    way = (moved.view(torch.int32) - master.view(torch.int32)).abs().reshape(-1)
    nearest = int(way.argmin())
    result = master.clone()
    result.view(-1)[nearest] = moved.reshape(-1)[nearest]
    return result
