"""The tensors of a checkpoint and those of a training: whether they are the same, and were divided in the same way."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from bitsnap._parts import Part
from bitsnap._pickled_values import Opaque
from bitsnap._places import Path, component
from bitsnap.errors import InvalidArgumentError
from bitsnap.snapshot import Snapshot
from bitsnap.state import load
from bitsnap.store import Store

_OPTIMIZER = "optimizer.state."


class Shard:
    """What one process saved, as another or the same one restores it."""

    def __init__(self, snapshot: Snapshot, opaque: Opaque) -> None:
        infos = snapshot._native.tensors
        self._infos = {infos[i].name: infos[i] for i in range(len(infos)) if _is_to_fill(infos[i].name)}
        self.names = set(self._infos)
        # What is no tensor to fill, and no dict of them.
        left_out = {
            name[:end]
            for name in self.names
            for end in [*(i for i, letter in enumerate(name) if letter == "."), len(name)]
        }
        self.values: dict[str, Any] = load(snapshot, keys=lambda name: name not in left_out, opaque=opaque)

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

    def __init__(self, store: Store, step: int, rank: int) -> None:
        self._store, self._step = store, step
        self.shards = store.checkpoint(step).shards
        self.shard = min(rank, self.shards - 1)
        self._tensors = {name: each for name, each in store.tensors(step).items() if _is_to_fill(_without_rank(name))}
        self.names = {_without_rank(name) for name in self._tensors}

    @property
    def differs_between_shards(self) -> bool:
        """Whether some tensors are other ones in each shard."""
        return any(_without_rank(name) != name for name in self._tensors)

    def snapshot(self) -> Snapshot:
        """The shard whose values this process takes."""
        return self._store.snapshot(self._step, self.shard)

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


def check_names(needed: set[str], known: Set[str], found: set[str]) -> set[str]:
    """Compares the tensors of a training with those of a checkpoint; the parameters of which the checkpoint has no
    optimizer state.

    Args:
        needed: the names of the tensors that the checkpoint must have.
        known: the names of those that the training has.
        found: the names of those in the checkpoint.

    Raises:
        InvalidArgumentError: they differ.
    """
    stateless = {parameter_of(name) for name in needed} - {parameter_of(name) for name in found} - {""}
    missing = {name for name in needed - found if parameter_of(name) not in stateless}
    differing = [
        f"{kind}: {', '.join(sorted(names)[:4])}{', ...' if len(names) > 4 else ''}"
        for kind, names in (("not in the checkpoint", missing), ("not in the training", found - known))
        if names
    ]
    if differing:
        raise InvalidArgumentError(f"the tensors of the training and of the checkpoint differ; {'; '.join(differing)}")
    return stateless


def parameter_of(name: str) -> str:
    """The parameter to whose optimizer state a tensor belongs; empty if it is of the model."""
    return name.removeprefix(_OPTIMIZER).rpartition(".")[0] if name.startswith(_OPTIMIZER) else ""


def name_of(place: Path) -> str:
    """The name that a tensor at a place of a state gets in the store."""
    return ".".join(map(component, place))


def _without_rank(name: str) -> str:
    before, slash, after = name.partition("/")
    return after if slash and before.startswith("rank-") and before[5:].isdigit() else name


def _is_to_fill(name: str) -> bool:
    return name.startswith(_OPTIMIZER) or (name.startswith("model.") and "_extra_state" not in name.split("."))
