"""The tensors of a checkpoint and those of a training: whether they are the same, and were divided in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from bitsnap._base import KeyPath, component
from bitsnap._bitsnap import TensorInfo
from bitsnap._states.program_values import PackedValue
from bitsnap._states.tree import references
from bitsnap._states.typed_values import decode, is_container, is_mapping, items_of
from bitsnap._tensors.boxes import Part
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
