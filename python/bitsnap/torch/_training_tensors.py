"""The tensors of a checkpoint and those of a training: whether they are the same, and were divided in the same way.

What a training was given is compared with what a checkpoint has. Replicas are tensors that several processes hold
alike, and one saves for all of them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import torch
from torch import distributed

from bitsnap._bitsnap import TensorInfo
from bitsnap._common import KeyPath, component
from bitsnap._states.program_values import PackedValue
from bitsnap._states.tensors import Part
from bitsnap._states.tree import references
from bitsnap._states.typed_values import decode, is_container, is_mapping, items_of
from bitsnap.errors import InvalidArgumentError
from bitsnap.snapshot import Snapshot
from bitsnap.state import load
from bitsnap.store import Store

_OPTIMIZER = "optimizer.state."
# The place of the values of the program.
EXTRA: KeyPath = ("training", "extra")


class SavedShard:
    """What one process saved, as another or the same one restores it.

    Args:
        dtensors: the names of the DTensors among the values of the program, as they are now.
    """

    def __init__(self, snapshot: Snapshot, allow_pickle: bool, dtensors: Set[str]) -> None:
        infos = snapshot._native.tensors
        all_infos = [infos[i] for i in range(len(infos))]
        self._infos = {info.name: info for info in all_infos if _is_filled(info, dtensors)}
        self.names = set(self._infos)
        tree = snapshot._native.tree(decode)
        if not is_container(tree) or not is_mapping(tree):
            tree = {}  # the state of another program
        left_out: set[KeyPath] = set()  # what is a tensor to fill, or holds one
        for path, reference in references(tree):
            if all_infos[reference.index].name in self._infos:
                left_out.update(path[:end] for end in range(len(path) + 1))
        self.values: dict[str, Any] = load(snapshot, keys=[*_kept(tree, left_out)], allow_pickle=allow_pickle)

    @property
    def names_of_extra(self) -> set[str]:
        """Of the tensors to fill among the values of the program."""
        return {name for name in self.names if _is_of_extra(name)}

    @property
    def slots(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The dtypes and whole shapes of the tensors of optimizer states, by name."""
        return {
            name: (info.dtype, tuple(info.global_shape or info.shape))
            for name, info in self._infos.items()
            if name.startswith(_OPTIMIZER)
        }

    def holds(self, name: str) -> bool:
        """Whether it has elements of a tensor."""
        return name in self._infos and self._infos[name].size_bytes > 0

    def has(self, name: str, part: Part) -> bool:
        """Whether it has the part that a process would save now."""
        info = self._infos.get(name)
        if info is None or tuple(info.shape) != tuple(part.tensor.shape):
            return False
        if info.offset is None:
            return tuple(info.shape) == part.global_shape
        return (tuple(info.global_shape or ()), tuple(info.offset)) == (part.global_shape, part.offset)


class AllShards:
    """A checkpoint that was divided otherwise."""

    def __init__(self, store: Store, step: int, rank: int, allow_pickle: bool, dtensors: Set[str]) -> None:
        self._store, self._step = store, step
        self.shards = store.checkpoint(step).shards
        self.shard = min(rank, self.shards - 1)
        # Whose values this process takes.
        self.own = SavedShard(store.snapshot(step, self.shard), allow_pickle, dtensors)
        of_extra = self.own.names_of_extra | dtensors
        self._tensors = {
            name: each
            for name, each in store.tensors(step).items()
            if _is_to_fill(_without_rank(name)) or _without_rank(name) in of_extra
        }
        self.names = {_without_rank(name) for name in self._tensors}

    @property
    def values(self) -> dict[str, Any]:
        return self.own.values

    @property
    def names_of_extra(self) -> set[str]:
        return self.own.names_of_extra

    @property
    def slots(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The dtypes and whole shapes of the tensors of optimizer states, by name; those of this process first."""
        found = {name: (each.dtype, tuple(each.shape)) for name, each in self._tensors.items()}
        return {
            name: found.get(f"rank-{self.shard}/{name}") or found[name]
            for name in self.names
            if name.startswith(_OPTIMIZER) and (name in found or f"rank-{self.shard}/{name}" in found)
        }

    @property
    def differs_between_shards(self) -> bool:
        """Whether some tensors are other ones in each shard."""
        return any(_without_rank(name) != name for name in self._tensors)

    def is_common(self, name: str) -> bool:
        """Whether all shards have the same tensor of this name."""
        return name in self._tensors

    def fill(self, parts: Mapping[str, Part]) -> None:
        """Reads parts, by their names, from whatever shards hold them."""
        requests = []
        for name, part in parts.items():
            own = f"rank-{self.shard}/{name}"
            listed = own if own in self._tensors and name not in self._tensors else name
            found = list(self._tensors[listed].shape) if listed in self._tensors else None
            if found is not None and found != list(part.global_shape):
                raise InvalidArgumentError(
                    f"tensor {name!r} has shape {list(part.global_shape)}, the checkpoint has {found}"
                )
            requests.append((listed, part.offset, part.tensor))
        self._store._read_into(self._step, requests, may_share=True)


def check_names(needed: set[str], known: Set[str], found: set[str], frozen: Set[str]) -> tuple[set[str], set[str]]:
    """Compares the tensors of a training with those of a checkpoint; the parameters of which the checkpoint has no
    optimizer state, and the frozen ones of which the training has none.

    Args:
        needed: the names of the tensors that the checkpoint must have.
        known: the names of those that the training has.
        found: the names of those in the checkpoint.
        frozen: the names of the parameters that the training does not change.

    Raises:
        InvalidArgumentError: they differ.
    """
    stateless = {parameter_of(name) for name in needed} - {parameter_of(name) for name in found} - {""}
    unknown = found - known
    aside = {name for name in unknown if parameter_of(name) in frozen}
    missing = {name for name in needed - found if parameter_of(name) not in stateless}
    differing = [
        f"{kind}: {', '.join(sorted(names)[:4])}{', ...' if len(names) > 4 else ''}"
        for kind, names in (("not in the checkpoint", missing), ("not in the training", unknown - aside))
        if names
    ]
    if differing:
        raise InvalidArgumentError(f"the tensors of the training and of the checkpoint differ; {'; '.join(differing)}")
    return stateless, {parameter_of(name) for name in aside}


def parameter_of(name: str) -> str:
    """The parameter to whose optimizer state a tensor belongs; empty if it is of the model."""
    return name.removeprefix(_OPTIMIZER).rpartition(".")[0] if name.startswith(_OPTIMIZER) else ""


def name_of(place: KeyPath) -> str:
    """The name that a tensor at a place of a state gets in the store."""
    return ".".join(map(component, place))


def _without_rank(name: str) -> str:
    before, slash, after = name.partition("/")
    return after if slash and before.startswith("rank-") and before[5:].isdigit() else name


def _is_to_fill(name: str) -> bool:
    return name.startswith(_OPTIMIZER) or (name.startswith("model.") and "_extra_state" not in name.split("."))


def _is_of_extra(name: str) -> bool:
    return name.startswith(name_of(EXTRA) + ".")


def _is_filled(info: TensorInfo, dtensors: Set[str]) -> bool:
    is_divided = info.offset is not None or info.name in dtensors
    return _is_to_fill(info.name) or (is_divided and _is_of_extra(info.name))


def _kept(tree: Any, left_out: Set[KeyPath], path: KeyPath = ()) -> Iterator[KeyPath]:
    """The paths of the values without tensors to fill."""
    for key, item in items_of(tree):
        at = (*path, key)
        if at not in left_out or isinstance(item, PackedValue):
            yield at
        elif is_container(item):
            yield from _kept(item, left_out, at)


class Given(NamedTuple):
    """How much there is of each argument of bitsnap.torch.TrainingCheckpointer; the names, of `extra`."""

    optimizer: int
    scheduler: int
    dataloader: bool
    extra: list[str]
    rng: bool


def given_in(values: Mapping[str, Any], extra: Iterable[str]) -> Given:
    """What a checkpoint has. `extra`: names of values of the program that are not among the values."""
    training, rank = values["training"], values["rank"]
    return Given(
        len(training["optimizer"]),
        len(training["scheduler"]),
        rank["dataloader"] is not None,
        [*dict.fromkeys([*map(str, training.get("extra") or {}), *extra])],
        rank["rng"] is not None,
    )


def compared(own: Given, saved: Given, optional: Set[str]) -> tuple[set[str], list[str]]:
    """The arguments that only one of both has, and notes about those that do not make the training go on wrongly.

    Random generators, and a data loader of which no state was saved, begin anew without harm to what was learned.

    Raises:
        InvalidArgumentError: one has an argument that the other has not, and it is not in `optional`.
    """
    one_sided = {name for name, mine, other in zip(Given._fields, own, saved, strict=True) if bool(mine) != bool(other)}
    notes = []
    for name in sorted(one_sided - optional):
        if name == "rng" or (name == "dataloader" and own.dataloader):
            notes.append(
                f"{name}: the checkpoint has no state of it, and it stays as it is"
                if getattr(own, name)
                else f"{name}: its state in the checkpoint is not restored"
            )
            continue
        what = "which would begin anew" if getattr(own, name) else "whose state would be left out"
        raise InvalidArgumentError(
            f"{_difference(name, own, saved)}, {what}: make the Checkpointer with the {name} of the checkpoint, or "
            f"call restore(optional=[{name!r}])"
        )
    return one_sided, notes


def compared_groups(
    groups: Sequence[Sequence[str]], found: Sequence[Sequence[str]], frozen: Set[str]
) -> tuple[set[str], set[str]]:
    """Compares the groups of parameters of the optimizers with those of a checkpoint, by names.

    Args:
        frozen: the parameters that the training does not change.

    Returns:
        the parameters that no optimizer of the checkpoint had, and the frozen ones that none has now.

    Raises:
        InvalidArgumentError: the groups differ otherwise.
    """
    own, others = ({name for names in each for name in names} for each in (groups, found))
    new, left = own - others, (others - own) & frozen
    common = [[name for name in names if name not in new] for names in groups]
    if common == [[name for name in names if name not in left] for names in found]:
        return new, left
    if len(groups) != len(found):
        raise InvalidArgumentError(f"the optimizers have {len(groups)} groups of parameters, saved {len(found)}")
    number = next(i for i, (a, b) in enumerate(zip(groups, found, strict=True)) if a != b)
    differing = [*dict.fromkeys(groups[number]).keys() ^ dict.fromkeys(found[number]).keys()][:4]
    raise InvalidArgumentError(
        f"group {number} of the optimizers has other parameters, or in another order, than the checkpoint: "
        f"{len(groups[number])}, saved {len(found[number])}{', differing in ' if differing else ''}"
        f"{', '.join(sorted(differing))}"
    )


def _difference(name: str, own: Given, saved: Given) -> str:
    if name == "extra":
        return f"extra has {sorted(own.extra)}, the checkpoint {sorted(saved.extra)}"
    if name == "dataloader":
        return "there is no data loader, saved one"
    return f"there are {getattr(own, name)} {name}s, saved {getattr(saved, name)}"


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
    if not can_send(tensor, group):
        held = [tensor]
        distributed.broadcast_object_list(held, source, group)
        tensor.copy_(held[0])
        return
    packed = tensor.contiguous()
    # As bytes, because not every backend knows every dtype.
    distributed.broadcast(packed.reshape(-1).view(torch.uint8), source, group)
    if packed is not tensor:
        tensor.copy_(packed)


def can_send(tensor: torch.Tensor, group: Any) -> bool:
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
