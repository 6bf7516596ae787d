"""What a process holds of a DTensor, without importing torch where it is not used."""

from __future__ import annotations

import sys
from typing import Any

from bitsnap._base import KeyPath


def local_part(value: Any, path: KeyPath) -> Any:
    """Of a DTensor at a path of a state, what this process holds: in a Box, or the tensor if that is all of it. Any
    other value itself.

    Raises:
        InvalidArgumentError, UnsupportedError: the part of a DTensor is no box of its elements.
    """
    module = sys.modules.get("torch.distributed.tensor")
    kind = getattr(module, "DTensor", None)
    if kind is None or not isinstance(value, kind):
        return value
    from bitsnap._tensors.parts import part_of  # imports torch

    return part_of(value, path, shares_replicas=False).value
