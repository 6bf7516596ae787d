"""The sharded state dicts of Megatron-core as shards of a store: what a rank saves, and where it is read into.

ShardedTensor and ShardedObject are used by their attributes, so that nothing of a certain version is needed.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from bitsnap._common import Role
from bitsnap._states.adam import AdamValues
from bitsnap._states.tensors import Box, named_part
from bitsnap.errors import InvalidArgumentError, UnsupportedError
from bitsnap.megatron._pairs import (
    Master,
    Masters,
    Offer,
    Range,
    WeightPart,
    boxes_of,
    element_at,
    is_half,
    is_quantized,
)

_STATES = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "param": "master", "fp32_param": "master"}


class RankPart:
    """What a rank saves of a state: its objects, by their unique keys, and its tensors.

    `offer` is for all ranks. The tensors are complete after take() with the shares that follow from all offers.
    """

    def __init__(self, items: Iterable[Any]) -> None:
        self.state: dict[str, Any] = {}
        self.roles: dict[str, Role] = {}
        self.masters: dict[str, tuple[str, int]] = {}
        self.objects: dict[str, Any] = {}
        self.values: list[Any] = []  # of all objects, also of those that other ranks save
        self._held: dict[
            WeightPart, tuple[torch.Tensor, tuple[int, ...]]
        ] = {}  # weights, with the shapes of the whole ones
        self._claimed: dict[WeightPart, list[Master]] = {}
        masters, parts, claims = Masters(), dict[WeightPart, int](), []
        for item in items:
            if hasattr(item, "global_offset") and hasattr(item, "dtype"):
                masters.see(item)
                self._add(item, parts, masters)
                continue
            self.values.append(item.data)
            if _is_main(item.replica_id):
                self.objects[item.unique_key] = item.data
        for claim, master in masters.claims({part: tensor for part, (tensor, _) in self._held.items()}):
            claims.append(claim)
            self._claimed.setdefault(claim.part, []).append(master)
        self.offer = Offer(parts, frozenset(masters.groups), claims)

    def take(self, shares: Mapping[WeightPart, Iterable[Range]]) -> None:
        """Adds the elements of weights that this rank saves."""
        for part, ranges in shares.items():
            tensor, shape = self._held[part]
            for taken in ranges:
                masters = (each for each in self._claimed.get(part, ()) if each.start <= taken.start < each.end)
                master = next(masters, None)
                whole = ((0,) * tensor.ndim, tuple(tensor.shape))
                is_all = taken == (0, tensor.numel())
                for start, extent in [whole] if is_all else boxes_of(tensor.shape, *taken):
                    box = tensor[tuple(slice(at, at + size) for at, size in zip(start, extent, strict=True))]
                    offset = tuple(at + by for at, by in zip(part.offset, start, strict=True))
                    name = self._put(part.key, box, shape, offset)
                    if master is not None:
                        self.masters[name] = (master.name, element_at(tensor.shape, start) + master.shift)

    def _add(self, item: Any, parts: dict[WeightPart, int], masters: Masters) -> None:
        """A tensor that this rank saves, or a weight that it may save."""
        is_main = _is_main(item.replica_id)
        is_weight = item.data is not None and is_half(item.data) and role_of(item.key, item.dtype) == "weight"
        if not is_main and not is_weight:
            return
        tensor = inside(item, _view(item))
        if tensor is None:
            return
        part, shape = WeightPart(item.key, tuple(item.global_offset)), tuple(item.global_shape)
        if not is_weight:
            masters.add(item, self._put(part.key, tensor, shape, part.offset), tensor)
        elif is_main:
            if part in parts:
                raise _doubled(part)
            parts[part] = tensor.numel()
            self._held[part] = (tensor, shape)
        else:
            self._held.setdefault(part, (tensor, shape))

    def _put(self, key: str, tensor: torch.Tensor, shape: tuple[int, ...], offset: tuple[int, ...]) -> str:
        """Adds a tensor to the state; returns its name."""
        name, value = named_part(tensor, key, shape, offset)
        if name in self.state:
            raise _doubled(WeightPart(key, offset))
        self.state[name] = value
        role = role_of(key, tensor.dtype)
        if role is not None:
            self.roles[name] = role
        return name


def _doubled(part: WeightPart) -> InvalidArgumentError:
    return InvalidArgumentError(f"tensor {part.key!r}: two main replicas have the offset {list(part.offset)}")


def role_of(key: str, dtype: torch.dtype) -> Role | None:
    """The role of a tensor of Megatron; None: its name tells."""
    if not dtype.is_floating_point:
        return None
    if "optimizer." not in key:
        return "weight"
    for part in reversed(key.split(".")):
        role = _STATES.get(part)
        if role is not None:
            return None if role == "master" and dtype != torch.float32 else role  # type: ignore[return-value]
    return None


def adam_values(values: Any) -> AdamValues | None:
    """Adam's betas, eps and step of the optimizer's groups in a state; None if they are not there or differ."""
    found = set()
    for group in _groups_of(values):
        betas, eps, step = group.get("betas"), group.get("eps"), group.get("step")
        if isinstance(betas, tuple | list) and len(betas) == 2 and eps is not None and step is not None:
            found.add(AdamValues((float(betas[0]), float(betas[1])), float(eps), int(step)))
    return found.pop() if len(found) == 1 else None


def staged(state: dict[str, Any]) -> dict[str, Any]:
    """The state with copies of all tensors on the CPU."""
    return {key: _copy(value) for key, value in state.items()}


def _copy(value: Any) -> Any:
    if isinstance(value, Box):
        return dataclasses.replace(value, tensor=_copy(value.tensor))
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if type(value) in (dict, OrderedDict, defaultdict):
        copied = copy.copy(value)  # with its factory, or the attributes of a state_dict()
        copied.update((key, _copy(item)) for key, item in value.items())
        return copied
    if type(value) in (list, tuple):
        return type(value)(map(_copy, value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_copy, value))
    return value


def _view(item: Any) -> torch.Tensor:
    """The data of a ShardedTensor with all axes of the whole tensor."""
    if item.data is None:
        raise InvalidArgumentError(f"tensor {item.key!r} has no data to save")
    if getattr(item, "flattened_range", None) is not None:
        raise UnsupportedError(
            f"tensor {item.key!r} has a flattened_range: choose the sharding dp_reshardable or fully_reshardable of "
            "the distributed optimizer"
        )
    tensor: torch.Tensor = item.data.detach()
    if is_quantized(tensor):
        tensor = tensor.dequantize()  # as its copy to the CPU would
    return tensor.reshape((1,) * item.prepend_axis_num + tuple(item.local_shape))


def prepared(item: Any) -> torch.Tensor:
    if item.data is None:
        item.init_data("cuda" if torch.cuda.is_available() else "cpu")
    place: torch.Tensor = item.data.detach()
    item.data = place
    if item.allow_shape_mismatch:
        place.zero_()
    for _ in range(item.prepend_axis_num):
        place = place.unsqueeze(0)
    return place


def inside(item: Any, tensor: torch.Tensor, shape: tuple[int, ...] | None = None) -> torch.Tensor | None:
    """The part of a tensor that lies in the whole tensor; None: nothing does.

    The last piece of a flat buffer may reach into padding that does not belong to the buffer.
    """
    for axis, (start, size) in enumerate(zip(item.global_offset, shape or item.global_shape, strict=True)):
        length = max(min(tensor.shape[axis], size - start), 0)
        if length != tensor.shape[axis]:
            tensor = tensor.narrow(axis, 0, length)
    whole = math.prod(shape or item.global_shape)
    return None if tensor.numel() == 0 and whole > 0 else tensor


def _is_main(replica: int | tuple[int, ...]) -> bool:
    return replica == 0 if isinstance(replica, int) else all(number == 0 for number in replica)


def _groups_of(values: Any) -> Iterable[Mapping[str, Any]]:
    if isinstance(values, Mapping):
        groups = values.get("param_groups")
        if isinstance(groups, list):
            yield from (group for group in groups if isinstance(group, Mapping))
        for key, value in values.items():
            if key != "param_groups":
                yield from _groups_of(value)
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _groups_of(value)
