"""Replicas: tensors that several processes hold alike, and one saves for all of them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import distributed

from bitsnap._base import KeyPath
from bitsnap._tensors.boxes import Part

# By the bytes of an element; a complex number of 16 bytes counts as two.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


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
