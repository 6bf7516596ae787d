"""The shard of one rank in a checkpoint of torch.distributed.checkpoint: what a plan of DCP names, as a state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult

from bitsnap._arguments import Role
from bitsnap._states.adam import AdamSources
from bitsnap._tensors.boxes import named_part
from bitsnap.dcp._checkpoint import KEY
from bitsnap.errors import InvalidArgumentError
from bitsnap.snapshot import alike

Roles: TypeAlias = Mapping[str, Role] | Callable[[str], Role | None]


class PlannedShard(NamedTuple):
    state: dict[str, Any]
    names: dict[str, str]  # in DCP, by the keys of the state
    roles: dict[str, Role]  # by the keys of the state
    tensors: list[torch.Tensor]  # those of the caller


def shard_of(items: Iterable[WriteItem], planner: SavePlanner, planner_data: Any, roles: Roles | None) -> PlannedShard:
    shard = PlannedShard({}, {}, {}, [])
    values: dict[str, Any] = {}
    for item in items:
        name = item.index.fqn
        if item.type == WriteItemType.BYTE_IO:
            values[name] = _value_of(item, planner)
            continue
        tensor = planner.resolve_data(item)
        assert isinstance(tensor, torch.Tensor)
        shard.tensors.append(tensor)
        key, value = _entry_of(item, tensor.detach())
        shard.state[key], shard.names[key] = value, name
        role = _role_of(name, roles)
        if role is not None:
            shard.roles[key] = role
    shard.state[KEY] = {"values": values, "paths": paths_of(planner_data)}
    return shard


def check_given_names(plans: Sequence[SavePlan], roles: Roles | None, adam: AdamSources) -> None:
    """Raises InvalidArgumentError if a dict of `roles` or `adam` names what is no tensor of the plans of all ranks.

    Plans that DCP has in its cache are empty, and say nothing.
    """
    given = {"roles": roles.keys() if isinstance(roles, Mapping) else (), "adam": adam.names}
    # torch 2.6 has no such cache.
    if not any(given.values()) or not all(getattr(plan, "usable", True) for plan in plans):
        return
    names = {item.index.fqn for plan in plans for item in plan.items if item.type != WriteItemType.BYTE_IO}
    for argument, wanted in given.items():
        unknown = sorted(set(wanted) - names)
        if unknown:
            raise InvalidArgumentError(
                f"{argument}: no rank saves a tensor {unknown[0]!r}{alike(unknown[0], sorted(names))}"
                f"{f'; nor {len(unknown) - 1} others of the dict' if len(unknown) > 1 else ''}"
            )


def results_of(items: Iterable[WriteItem], shard: int) -> list[WriteResult]:
    """What write_data() returns for items that the shard of this number has."""
    return [WriteResult(item.index, _bytes_of(item), shard) for item in items]


def paths_of(planner_data: Any) -> dict[str, list[str | int]]:
    """The place of each entry in the state that the planner made flat; empty if there are none."""
    if not isinstance(planner_data, Mapping):
        return {}
    return {str(name): list(path) for name, path in planner_data.items()}


def _bytes_of(item: WriteItem) -> int:
    data = item.tensor_data
    return 0 if data is None else data.chunk.sizes.numel() * data.properties.dtype.itemsize


def _value_of(item: WriteItem, planner: SavePlanner) -> Any:
    """What is no tensor, as the planner found it in the state, instead of what it pickles of it."""
    look_up = getattr(planner, "lookup_object", None)
    if look_up is None:
        raise InvalidArgumentError(
            f"{item.index.fqn!r} is no tensor, and {type(planner).__name__} gives only its pickle: derive the planner "
            "from torch's DefaultSavePlanner"
        )
    return look_up(item.index)


def _entry_of(item: WriteItem, tensor: torch.Tensor) -> tuple[str, Any]:
    """The tensor with its key in the state of the shard, in a box if it is a part."""
    data = item.tensor_data
    if data is None:
        return item.index.fqn, tensor
    return named_part(tensor, item.index.fqn, tuple(data.size), tuple(data.chunk.offsets))


def _role_of(name: str, roles: Roles | None) -> Role | None:
    if roles is None:
        return None
    return roles(name) if callable(roles) else roles.get(name)
