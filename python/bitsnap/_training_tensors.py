"""The tensors of a checkpoint and those of a training: whether they are the same, and were divided in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from bitsnap._bitsnap import GlobalTensor
from bitsnap._boxes import Box
from bitsnap._parts import Part
from bitsnap._pickled_values import Opaque
from bitsnap._places import Path, component
from bitsnap._store_tensors import BoxRequest
from bitsnap._training import Training
from bitsnap.errors import InvalidArgumentError
from bitsnap.snapshot import Snapshot, names_of
from bitsnap.state import load
from bitsnap.store import Store

_OPTIMIZER = "optimizer.state."


def is_divided_like(snapshot: Snapshot, parts: Mapping[Path, Part]) -> bool:
    """Whether the shard of a process has the parts that the process would save now."""
    infos = snapshot._native.tensors
    found = {infos[i].name: infos[i] for i in range(len(infos))}
    for place, part in parts.items():
        if not part.is_saved:
            continue
        info = found.get(name_of(place))
        if info is None or tuple(info.shape) != tuple(part.tensor.shape):
            return False
        if info.offset is None:
            if tuple(info.shape) != part.global_shape:
                return False
        elif (tuple(info.global_shape or ()), tuple(info.offset)) != (part.global_shape, part.offset):
            return False
    return True


class PartReading:
    """The parts of a process in a checkpoint that was divided otherwise, and what else it takes over."""

    def __init__(self, store: Store, step: int, rank: int, parts: Mapping[Path, Part], opaque: Opaque) -> None:
        self._store, self._step = store, step
        tensors = store.tensors(step)
        self.shards = store.checkpoint(step).shards
        shard = min(rank, self.shards - 1)
        self._requests: dict[str, BoxRequest] = {}
        for name, part in ((name_of(place), part) for place, part in parts.items()):
            listed = _listed(name, shard, tensors)
            if listed in tensors and tuple(tensors[listed].shape) != part.global_shape:
                raise InvalidArgumentError(
                    f"tensor {name!r} has shape {list(part.global_shape)}, the checkpoint has {tensors[listed].shape}"
                )
            self._requests[name] = (listed, part.offset, part.tensor)
        self.ours = dict.fromkeys(self._requests, True)
        self.found = {name for name in map(_without_rank, tensors) if _is_of_training(name)}
        self.stateless: set[str] = set()
        snapshot = store.snapshot(step, shard)
        # What is no tensor to fill, and no dict of them.
        left_out = {
            name[:end]
            for name in filter(_is_of_training, names_of(snapshot._native))
            for end in [*(i for i, letter in enumerate(name) if letter == "."), len(name)]
        }
        self.values = load(snapshot, keys=lambda name: name not in left_out, opaque=opaque)

    def fill(self) -> None:
        """Fills the tensors of the training."""
        wanted = [request for name, request in self._requests.items() if _parameter_of(name) not in self.stateless]
        self._store._read_into(self._step, wanted, may_share=True)


def stateless_parameters(
    ours: Mapping[str, bool], found: set[str], training: Training, optimizer: Mapping[str, Any]
) -> set[str]:
    """Compares the tensors of a training with those of a checkpoint; the parameters of which the checkpoint has no
    optimizer state.

    Args:
        ours: the names of the tensors that this process holds, and whether it saves them.
        found: the names of the tensors in the checkpoint.
        optimizer: the state of the optimizers in the checkpoint.

    Raises:
        InvalidArgumentError: they differ.
    """
    training.check_groups(optimizer["param_groups"])
    needed = {name for name, is_saved in ours.items() if is_saved}
    stateless = {_parameter_of(name) for name in needed} - {_parameter_of(name) for name in found} - {""}
    missing = {name for name in needed - found if _parameter_of(name) not in stateless}
    differing = [
        f"{kind}: {', '.join(sorted(names)[:4])}{', ...' if len(names) > 4 else ''}"
        for kind, names in (("not in the checkpoint", missing), ("not in the training", found - ours.keys()))
        if names
    ]
    if differing:
        raise InvalidArgumentError(f"the tensors of the training and of the checkpoint differ; {'; '.join(differing)}")
    return stateless


def _parameter_of(name: str) -> str:
    """The parameter to whose optimizer state a tensor belongs; empty if it is of the model."""
    return name.removeprefix(_OPTIMIZER).rpartition(".")[0] if name.startswith(_OPTIMIZER) else ""


def names_in(state: Mapping[str, Any]) -> Iterator[str]:
    """The names of the tensors in a state of a model and optimizers."""
    for name, value in state["model"].items():
        if isinstance(value, torch.Tensor | Box):
            yield f"model.{name}"
    for name, slots in state["optimizer"]["state"].items():
        for key, value in slots.items():
            if isinstance(value, torch.Tensor | Box):
                yield f"{_OPTIMIZER}{name}.{key}"


def _listed(name: str, shard: int, tensors: Mapping[str, GlobalTensor]) -> str:
    """The name of a tensor in the list; one that is another tensor in each shard is listed for each of them."""
    own = f"rank-{shard}/{name}"
    return own if own in tensors and name not in tensors else name


def name_of(place: Path) -> str:
    """The name that a tensor at a place of a state gets in the store."""
    return ".".join(map(component, place))


def _without_rank(name: str) -> str:
    before, slash, after = name.partition("/")
    return after if slash and before.startswith("rank-") and before[5:].isdigit() else name


def _is_of_training(name: str) -> bool:
    return name.startswith(("model.", _OPTIMIZER))
