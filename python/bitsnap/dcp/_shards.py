"""A checkpoint of torch.distributed.checkpoint (DCP) in a store.

The shard of one rank is what a plan of DCP names, as a state. Adam's numbers are found in a state that DCP has made
flat, as get_optimizer_state_dict() gives it: with groups of parameters, or, with flatten_optimizer_state_dict, with the
numbers of each parameter.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.distributed.checkpoint import metadata as dcp_metadata
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.storage import StorageWriter as TorchStorageWriter, WriteResult

from bitsnap._common import PathLike, Role, alike, checkpoint_id_of, is_url, object_url
from bitsnap._runs.opened_runs import OpenedStep
from bitsnap._states.adam import AdamSources, AdamValues, values_of_group, values_of_step
from bitsnap._states.tensors import named_part
from bitsnap.errors import CorruptError, InvalidArgumentError, NotFoundError

Roles: TypeAlias = Mapping[str, Role] | Callable[[str], Role | None]


class LocalWriter(TorchStorageWriter, AsyncStager):
    """What writers to stores do alike."""

    @property
    def should_synchronize_after_execute(self) -> bool:
        """False: stage() returns when it has copied everything."""
        return False

    def synchronize_staging(self) -> None:
        """Nothing is left to wait for."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Leaves the plan as it is."""
        return plan

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: PathLike) -> bool:
        """Whether the id is a path in the file system, or an address in an object store."""
        return object_url(checkpoint_id) is not None or not is_url(checkpoint_id)


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


_GROUPS, _STATE, _MOMENT = "param_groups", "state", "exp_avg"


def adam_of_shard(given: AdamSources, names: Mapping[str, str], state: Mapping[str, Any]) -> AdamSources:
    """Adam's numbers for the tensors of one rank, from the arguments and from the flat state of all.

    Args:
        names: of the tensors in DCP, by their keys in the state of the shard.
        state: as the planner made it flat.
    """
    found, by_name = adam_in(state), given.by_name
    return AdamSources(
        given.for_all,
        None if by_name is None else lambda key: by_name(names[key]) if key in names else None,
        found={key: found[name] for key, name in names.items() if name in found},
    )


def adam_in(state: Mapping[str, Any]) -> dict[str, AdamValues]:
    """What a flat state says of its first moments, by their names."""
    known: dict[str, AdamValues] = {}
    for prefix, groups in _groups_of(state).items():
        for owner, group in groups.items():
            values = values_of_group(group)
            names = group.get("params")
            for name in names if isinstance(names, list | tuple) else [owner]:
                slots = f"{prefix}{_STATE}.{name}."
                if f"{slots}{_MOMENT}" in state:
                    step = values_of_step(state.get(f"{slots}step"))
                    known[f"{slots}{_MOMENT}"] = step.or_else(values)
    return known


def _groups_of(state: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """The values of groups, or of parameters, by the prefix of the optimizer, and the number or the name."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for name, value in state.items():
        for prefix, owner, key in _splits(name):
            groups.setdefault(prefix, defaultdict(dict))[owner][key] = value
    return groups


def _splits(name: str) -> Iterator[tuple[str, str, str]]:
    before, found, after = name.partition(f"{_GROUPS}.")
    if found and (not before or before.endswith(".")):
        owner, _, key = after.rpartition(".")
        yield before, owner, key


# The key of the commit's metadata, and of the state of each shard, that has what is no tensor.
KEY = "torch.distributed.checkpoint"
_OF_ONE_RANK = re.compile(r"rank-[0-9]+/")


class OpenStep(OpenedStep):
    """One step of a store, as DCP sees it."""

    def __init__(self, checkpoint_id: PathLike, allow_pickle: bool, threads: int) -> None:
        super().__init__(*checkpoint_id_of(checkpoint_id), KEY, allow_pickle, threads)
        self._id = checkpoint_id
        self._save_id: str | None = None
        self._values: dict[str, int] = {}  # the shard of each
        self._paths: dict[str, tuple[str | int, ...]] = {}
        self._read: dict[int, dict[str, Any]] = {}  # values of the shards that were opened
        text = self.info.metadata.get(KEY)
        if text is not None:
            self.described(text, self._describe)
        else:
            for shard in range(self.info.shards):
                part = self._part(shard)
                for name in part["values"]:
                    self._values.setdefault(name, shard)
                self._paths.update(part["paths"])

    def metadata(self) -> Metadata:
        entries: dict[str, Any] = {name: dcp_metadata.BytesStorageMetadata() for name in self._values}
        for name, tensor in self.tensors.items():
            # What is one rank's alone (bitsnap.torch) is loaded by the rank that saved it, as far as it had it.
            if not _OF_ONE_RANK.match(name):
                self.check_is_whole(name, tensor)
            entries[name] = dcp_metadata.TensorStorageMetadata(
                properties=dcp_metadata.TensorProperties(dtype=self.dtype_of(name)),
                size=torch.Size(tensor.shape),
                chunks=[
                    dcp_metadata.ChunkStorageMetadata(torch.Size(part.offset), torch.Size(part.shape))
                    for part in tensor.parts
                ],
            )
        # In the order of the state that was saved, in which a load without a state puts its keys, too.
        order = {name: number for number, name in enumerate(self._paths)}
        return Metadata(
            state_dict_metadata={
                name: entries[name] for name in sorted(entries, key=lambda name: order.get(name, len(order)))
            },
            planner_data=dict(self._paths),
            storage_meta=StorageMeta(checkpoint_id=self._id, save_id=self._save_id),
        )

    def value(self, name: str) -> Any:
        shard = self._values.get(name)
        if shard is None:
            raise NotFoundError(f"{self.where} has no value {name!r}")
        values = self._part(shard)["values"]
        if name not in values:
            raise CorruptError(f"{self.where}: shard {shard} should have the value {name!r}")
        return values[name]

    def read_tensors(self, items: Sequence[ReadItem], planner: LoadPlanner) -> None:
        targets = [(item, planner.resolve_tensor(item)) for item in items]
        self.fill_targets(targets)
        for item, target in targets:
            planner.commit_tensor(item, target)

    def fill_targets(self, targets: Sequence[tuple[ReadItem, torch.Tensor]]) -> None:
        requests = []
        for item, target in targets:
            name = item.storage_index.fqn
            if name not in self.tensors:
                raise NotFoundError(f"{self.where} has no tensor {name!r}")
            begin = item.storage_index.offset or torch.Size([0] * len(item.storage_offsets))
            offset = tuple(a + b for a, b in zip(begin, item.storage_offsets, strict=True))
            if tuple(target.shape) != tuple(item.lengths):
                raise InvalidArgumentError(
                    f"tensor {name!r}: the tensor to fill has shape {list(target.shape)}, expected {list(item.lengths)}"
                )
            requests.append((name, offset, target.detach()))
        self.fill(requests)

    def _describe(self, described: Any) -> None:
        self._save_id = described["save_id"]
        self._values = {name: self.shard_of(shard) for name, shard in described["values"].items()}
        self._paths = {name: _path(path) for name, path in described["paths"].items()}

    def _part(self, shard: int) -> dict[str, Any]:
        if shard not in self._read:
            self._read[shard] = self.values(
                shard,
                lambda part: {
                    "values": dict(part["values"].items()),
                    "paths": {name: _path(path) for name, path in part["paths"].items()},
                },
            )
        return self._read[shard]


def _path(path: Any) -> tuple[str | int, ...]:
    """Of a value in the state that was saved, which DCP builds again from all of them."""
    keys = tuple(path)
    if isinstance(path, str) or not keys or not all(type(key) in (str, int) for key in keys):
        raise ValueError(f"{ascii(path)[:80]} is no path of a value")
    return keys
