"""The state of a training in PyTorch, by the conventions of torch.distributed.checkpoint.state_dict: parameters and the
states of optimizers have the names of the model, without those of wrappers."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from bitsnap._boxes import Box
from bitsnap._parts import Part, part_of
from bitsnap._places import Path
from bitsnap.errors import InvalidArgumentError, UnsupportedError

# Modules that wrap others hold them by these names.
_WRAPPERS = frozenset(("_orig_mod", "_checkpoint_wrapped_module"))
_EXTRA_STATE = "_extra_state"


class Saved(NamedTuple):
    """The state of a training at one moment, as this process saves it."""

    state: dict[str, Any]  # with the parts that this process saves
    parts: dict[Path, Part]  # all that it holds


class Training:
    """What bitsnap.torch.Checkpointer was given. The other arguments are as there."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: Optimizer | Sequence[Optimizer] | None,
        scheduler: Any,
        dataloader: Any,
        rng: bool,
        extra: MutableMapping[str, Any] | None,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {model!r}")
        for name, module in model.named_modules():
            if isinstance(module, FullyShardedDataParallel):
                raise UnsupportedError(
                    f"model: {name or 'it'} is a FullyShardedDataParallel, whose parameters are no tensors of the "
                    "model; use fully_shard() of FSDP2, or bitsnap.dcp"
                )
        self._model = model
        self._optimizers = _several(optimizer)
        for each in self._optimizers:
            if not isinstance(each, Optimizer):
                raise TypeError(f"optimizer must be a torch.optim.Optimizer or several, got {each!r}")
        self._schedulers = _several(scheduler)
        self._dataloader = dataloader
        for name, given in (("scheduler", self._schedulers), ("dataloader", _several(dataloader))):
            for each in given:
                _check_stateful(each, name)
        if extra is not None and not isinstance(extra, MutableMapping):
            raise TypeError(f"extra must be a dict of names to values, got {extra!r}")
        self._rng, self._extra = bool(rng), extra
        self._names = _names_of(model)
        self._clean_names: dict[str, str] = {}  # of the entries of the model's state_dict(), by their keys
        self._replicas = _replicas_of(model)
        self.shares_replicas = False  # whether the processes save and restore together

    def saved(self) -> Saved:
        """The state now. Its tensors are those of the training."""
        parts: dict[Path, Part] = {}
        state = {
            "model": self._model_state(parts),
            "optimizer": self._optimizer_state(parts),
            "training": {
                "scheduler": [each.state_dict() for each in self._schedulers],
                "extra": {name: _packed(value) for name, value in (self._extra or {}).items()},
            },
            "rank": {
                "rng": _random_state() if self._rng else None,
                "dataloader": None if self._dataloader is None else self._dataloader.state_dict(),
            },
        }
        return Saved(state, parts)

    def make_optimizer_state(self) -> None:
        """Gives optimizers that have taken no step the tensors of their states, so that these can be filled."""
        for optimizer in self._optimizers:
            if optimizer.state:
                continue
            # With gradients, torch makes no state.
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            gradients = [parameter.grad for parameter in parameters]
            for parameter in parameters:
                parameter.grad = None
            get_optimizer_state_dict(self._model, optimizer)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient

    def forget_state(self, names: Iterable[str]) -> None:
        """Removes the optimizer states of parameters: they had none when the checkpoint was saved."""
        forgotten = set(names)
        for name, parameter in self._parameters():
            if name in forgotten:
                for optimizer in self._optimizers:
                    optimizer.state.pop(parameter, None)

    def take_tensors(self, state: Mapping[str, Any]) -> None:
        """Takes over what lies among the tensors of the model and the optimizers, but is none."""
        extra = {name: value for name, value in state["model"].items() if name.endswith(_EXTRA_STATE)}
        if extra:
            set_model_state_dict(self._model, extra, options=StateDictOptions(strict=False))
        for name, parameter in self._parameters():
            slots = state["optimizer"]["state"].get(name, {})
            values = {key: value for key, value in slots.items() if not isinstance(value, torch.Tensor | Box)}
            self._state_of(parameter).update(values)
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        for group, saved in zip(groups, state["optimizer"]["param_groups"], strict=True):
            for key, value in saved.items():
                if isinstance(value, torch.Tensor) and isinstance(group.get(key), torch.Tensor):
                    if group[key] is not value:
                        group[key].copy_(value)  # which may be on a device
                elif key != "params":
                    group[key] = value

    def check_groups(self, saved: Sequence[Mapping[str, Any]]) -> None:
        """Raises InvalidArgumentError unless the optimizers have the same parameters in the same groups."""
        groups = [list(names) for names in self._group_names()]
        found = [list(group["params"]) for group in saved]
        if groups == found:
            return
        if len(groups) != len(found):
            raise InvalidArgumentError(f"the optimizers have {len(groups)} groups of parameters, saved {len(found)}")
        number = next(i for i, (a, b) in enumerate(zip(groups, found, strict=True)) if a != b)
        differing = [*dict.fromkeys(groups[number]).keys() ^ dict.fromkeys(found[number]).keys()][:4]
        raise InvalidArgumentError(
            f"group {number} of the optimizers has other parameters, or in another order, than the checkpoint: "
            f"{len(groups[number])}, saved {len(found[number])}{', differing in ' if differing else ''}"
            f"{', '.join(sorted(differing))}"
        )

    def take_values(self, training: Mapping[str, Any], rank: Mapping[str, Any] | None) -> None:
        """Takes over the states of schedulers and all else that is neither model nor optimizer."""
        schedulers = training["scheduler"]
        if len(schedulers) != len(self._schedulers):
            raise InvalidArgumentError(f"there are {len(self._schedulers)} schedulers, saved {len(schedulers)}")
        extra = training["extra"]
        if self._extra is not None and self._extra.keys() != extra.keys():
            raise InvalidArgumentError(f"extra has {sorted(self._extra)}, the checkpoint {sorted(extra)}")
        for scheduler, saved in zip(self._schedulers, schedulers, strict=True):
            scheduler.load_state_dict(saved)
        if self._extra is not None:
            for name, saved in extra.items():
                if hasattr(self._extra[name], "load_state_dict"):
                    self._extra[name].load_state_dict(saved)
                else:
                    self._extra[name] = saved
        if rank is None:
            return
        if self._dataloader is not None and rank["dataloader"] is not None:
            self._dataloader.load_state_dict(rank["dataloader"])
        if self._rng and rank["rng"] is not None:
            _set_random_state(rank["rng"])

    def kept_by(self, rank: int, saved: int, processes: int) -> str:
        """What a process keeps as it is, if another number of processes saved the checkpoint; empty if nothing."""
        kept = []
        if self._dataloader is not None and saved != processes:
            kept.append("the state of the data loader")
        if self._rng and rank >= saved:
            kept.append("the state of random generators")
        return f"{' and '.join(kept)} {'is' if len(kept) == 1 else 'are'}" if kept else ""

    def _parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    yield self._name_of(parameter), parameter

    def _name_of(self, parameter: torch.Tensor) -> str:
        name = self._names.get(id(parameter))
        if name is None:
            self._names = _names_of(self._model)  # which may have got new parameters
            name = self._names.get(id(parameter))
        if name is None:
            raise InvalidArgumentError(
                f"optimizer: a parameter of shape {list(parameter.shape)} is not in the model and has no name"
            )
        return name

    def _group_names(self) -> Iterator[list[str]]:
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                yield [self._name_of(parameter) for parameter in group["params"]]

    def _state_of(self, parameter: torch.Tensor) -> MutableMapping[str, Any]:
        for optimizer in self._optimizers:
            if parameter in optimizer.state:
                state: MutableMapping[str, Any] = optimizer.state[parameter]
                return state
        return {}

    def _model_state(self, parts: dict[Path, Part]) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for key, value in self._model.state_dict().items():
            name = self._clean_names.get(key)
            if name is None:
                name = self._clean_names[key] = _without_wrappers(self._model, key)
            if not isinstance(value, torch.Tensor) or name.endswith(_EXTRA_STATE):
                state[name] = value
                continue
            self._add(state, ("model", name), value, self._group_of(value), parts)
        return state

    def _optimizer_state(self, parts: dict[Path, Part]) -> dict[str, Any]:
        # Optimizers that divide their states among the processes do not hold those of all parameters.
        are_complete = all(
            self._state_of(parameter) for parameter in self._model.parameters() if parameter.requires_grad
        )
        state: dict[str, Any] = {}
        for name, parameter in self._parameters():
            slots = self._state_of(parameter)
            if not slots:
                continue
            replicas = self._group_of(parameter) if are_complete else None
            state[name] = {}
            for key, value in slots.items():
                if isinstance(value, torch.Tensor):
                    self._add(state[name], ("optimizer", "state", name, key), value, replicas, parts)
                else:
                    state[name][key] = value
        groups = []
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                names = [self._name_of(parameter) for parameter in group["params"]]
                groups.append({**group, "params": names})
        return {"state": state, "param_groups": groups}

    def _group_of(self, parameter: torch.Tensor) -> Any:
        """The processes that DistributedDataParallel keeps this parameter equal on."""
        if not self._replicas or isinstance(parameter, DTensor):
            return None
        return self._replicas.get(parameter.untyped_storage().data_ptr())

    def _add(
        self, state: dict[str, Any], place: Path, tensor: torch.Tensor, replicas: Any, parts: dict[Path, Part]
    ) -> None:
        part = parts[place] = part_of(tensor, place, replicas, shares_replicas=self.shares_replicas)
        if part.is_saved:
            state[str(place[-1])] = part.value


def _several(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _check_stateful(value: Any, name: str) -> None:
    if not (hasattr(value, "state_dict") and hasattr(value, "load_state_dict")):
        raise TypeError(f"{name} must have state_dict() and load_state_dict(), got {value!r}")


def _packed(value: Any) -> Any:
    return value.state_dict() if hasattr(value, "state_dict") else value


def _names_of(model: torch.nn.Module) -> dict[int, str]:
    """The names of the parameters, by their identity."""
    names: dict[int, str] = {}
    for name, parameter in model.named_parameters():
        names[id(parameter)] = _without_wrappers(model, name)
    return names


def _without_wrappers(model: torch.nn.Module, name: str) -> str:
    """The name of a parameter or buffer in the model that was wrapped."""
    module: Any = model
    components = []
    for component in name.split("."):
        is_wrapped = component in _WRAPPERS or (component == "module" and isinstance(module, DistributedDataParallel))
        if not is_wrapped:
            components.append(component)
        module = getattr(module, component, None)
    return ".".join(components)


def _replicas_of(model: torch.nn.Module) -> dict[int, Any]:
    """The groups of DistributedDataParallel, by the memory of the parameters that it keeps equal."""
    return {
        parameter.untyped_storage().data_ptr(): module.process_group
        for module in model.modules()
        if isinstance(module, DistributedDataParallel)
        for parameter in module.parameters()
        if parameter.numel() > 0
    }


def _random_state() -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002  what programs use
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def _set_random_state(state: Mapping[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
