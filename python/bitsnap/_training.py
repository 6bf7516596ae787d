"""The state of a training in PyTorch, by the conventions of torch.distributed.checkpoint.state_dict: parameters and the
states of optimizers have the names of the model, without those of wrappers."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence, Set
from typing import Any

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

from bitsnap._overlay import overlaid, tensors_in
from bitsnap._parts import Part, part_of
from bitsnap._places import Path, place_of
from bitsnap._training_tensors import EXTRA, name_of
from bitsnap.errors import InvalidArgumentError, UnsupportedError

# Modules that wrap others hold them by these names.
_WRAPPERS = frozenset(("_orig_mod", "_checkpoint_wrapped_module"))
_EXTRA_STATE = "_extra_state"


class Training:
    """What bitsnap.torch.Checkpointer was given. The other arguments are as there."""

    def __init__(
        self,
        model: torch.nn.Module | Mapping[str, torch.nn.Module],
        optimizer: Optimizer | Sequence[Optimizer] | None,
        scheduler: Any,
        dataloader: Any,
        rng: bool,
        extra: MutableMapping[str, Any] | None,
    ) -> None:
        if isinstance(model, Mapping):
            for name, each in model.items():
                _check_module(each, f"model[{name!r}]")
                if name in _WRAPPERS:  # which the names of tensors leave out
                    raise InvalidArgumentError(f"model: {name!r} is the name of a wrapper: choose another one")
            try:
                model = torch.nn.ModuleDict(dict(model))
            except KeyError as error:
                raise InvalidArgumentError(f"model: {error.args[0]}") from error
        _check_module(model, "model")
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
        self._names: dict[int, str] = {}  # of the parameters, by their identity
        self._clean_names: dict[str, str] = {}  # of the entries of the model's state_dict(), by their keys
        self._replicas: dict[str, Any] = {}  # the groups that hold the same parameter, by its name
        self._packed_extra: dict[str, Any] = {}  # as the last look at the tensors found them
        self._look()

    @property
    def has_replicas(self) -> bool:
        """Whether DistributedDataParallel keeps parameters equal on several processes."""
        return bool(self._replicas)

    def state(self, agreed: Set[Path] | None) -> dict[str, Any]:
        """The state now, as this process saves it; its tensors are those of the training.

        `agreed`: the places of the replicas of which one process saves those of all; None if the processes do not save
        together.
        """
        parts, extra_states = self._tensors(agreed, False)
        of_extra = {place: part for place, part in parts.items() if _is_extra(place)} if self._extra else {}
        state = nested(
            {
                place: part
                for place, part in parts.items()
                if (part.is_first_replica or part.is_saved) and place not in of_extra
            }
        )
        state["model"].update(extra_states)
        for name, slots in self._other_slots():
            state["optimizer"]["state"].setdefault(name, {}).update(slots)
        state["optimizer"]["param_groups"] = [
            {**group, "params": names} for group, names in zip(self._groups(), self._group_names(), strict=True)
        ]
        state["training"] = {
            "optimizer": [type(each).__name__ for each in self._optimizers],
            "scheduler": [each.state_dict() for each in self._schedulers],
            "extra": overlaid(
                self._packed_extra,
                self._packed_extra,
                {place[2:]: part.value_or_nothing for place, part in of_extra.items()},
            ),
        }
        state["rank"] = {
            "rng": _random_state() if self._rng else None,
            "dataloader": None if self._dataloader is None else self._dataloader.state_dict(),
        }
        return state

    def parts(self) -> dict[Path, Part]:
        """What this process holds of the tensors of the model and the optimizers, by their places in the state.

        What may be a replica counts as one.
        """
        return self._tensors(set(), True)[0]

    def _tensors(self, agreed: Set[Path] | None, all_replicas: bool) -> tuple[dict[Path, Part], dict[str, Any]]:
        """The parts, and the extra states of modules."""
        self._look()
        parts: dict[Path, Part] = {}
        extra_states = {}

        def add(place: Path, tensor: torch.Tensor, group: Any) -> None:
            is_agreed = all_replicas or (agreed is not None and place in agreed)
            parts[place] = part_of(tensor, place, group if is_agreed else None, shares_replicas=agreed is not None)

        for key, value in self._model.state_dict().items():
            name = self._clean(key)
            if _is_extra_state(name):
                extra_states[name] = value
            elif isinstance(value, torch.Tensor):
                add(("model", name), value, self._replicas.get(name))
        for name, parameter in self._parameters():
            for key, value in self._state_of(parameter).items():
                if isinstance(value, torch.Tensor):
                    add(("optimizer", "state", name, key), value, self._replicas.get(name))
        self._packed_extra = {name: _packed(value) for name, value in (self._extra or {}).items()}
        names: set[str] = set()
        for path, value in tensors_in(self._packed_extra, EXTRA):
            if isinstance(value, DTensor):
                if name_of(path) in names:
                    raise InvalidArgumentError(
                        f"{place_of(path, 'state')} and another DTensor are both {name_of(path)!r}"
                    )
                names.add(name_of(path))
                add(path, value, None)
        return parts, extra_states

    def whole_parts(self, names: Set[str]) -> dict[Path, Part]:
        """Tensors of `extra` that this process holds whole, of those with these names: as parts() found them."""
        return {
            path: part_of(value, path)
            for path, value in tensors_in(self._packed_extra, EXTRA)
            if not isinstance(value, DTensor) and name_of(path) in names
        }

    def make_optimizer_state(self) -> None:
        """Gives parameters that have taken no step the tensors of their states, so that these can be filled.

        Raises:
            UnsupportedError: an optimizer cannot take a step without gradients.
        """
        self._look()
        list(self._group_names())  # all parameters have names
        for optimizer in self._optimizers:
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            if all(parameter in optimizer.state for parameter in parameters if parameter.requires_grad):
                continue
            # torch makes the states of optimizers that have none, if there are no gradients.
            present, optimizer.state = optimizer.state, defaultdict(dict)
            gradients = [parameter.grad for parameter in parameters]
            for parameter in parameters:
                parameter.grad = None
            try:
                get_optimizer_state_dict(self._model, optimizer)
            except (TypeError, RuntimeError) as error:
                raise UnsupportedError(
                    f"optimizer: {type(optimizer).__name__} makes no state for its parameters before its first step: "
                    f"{error}"
                ) from error
            finally:
                made, optimizer.state = optimizer.state, present
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.grad = gradient
            for parameter in parameters:
                if parameter not in present and parameter in made:
                    present[parameter] = made[parameter]

    def forget_state(self, names: Iterable[str]) -> None:
        """Removes the optimizer states of parameters: they had none when the checkpoint was saved."""
        forgotten = set(names)
        for name, parameter in self._parameters():
            if name in forgotten:
                for optimizer in self._optimizers:
                    optimizer.state.pop(parameter, None)

    def take_values(self, values: Mapping[str, Any]) -> None:
        """Takes over what lies among the tensors of the model and the optimizers, but is none to fill."""
        extra = {name: value for name, value in values.get("model", {}).items() if _is_extra_state(name)}
        if extra:
            set_model_state_dict(self._model, extra, options=StateDictOptions(strict=False))
        slots = values["optimizer"].get("state", {})
        for name, parameter in self._parameters():
            if name in slots:
                self._state_of(parameter).update(slots[name])
        for group, saved in zip(self._groups(), values["optimizer"]["param_groups"], strict=True):
            for key, value in saved.items():
                if isinstance(value, torch.Tensor) and isinstance(group.get(key), torch.Tensor):
                    group[key].copy_(value)  # which may be on a device
                elif key != "params":
                    group[key] = value

    def frozen(self) -> set[str]:
        """The names of the parameters that the training does not change."""
        parameters = self._model.named_parameters(remove_duplicate=False)
        return {self._clean(name) for name, parameter in parameters if not parameter.requires_grad}

    def check_values(self, values: Mapping[str, Any], places: Iterable[Path]) -> tuple[set[str], set[str]]:
        """Raises InvalidArgumentError unless optimizers, schedulers and extra values are those of the checkpoint.

        `places`: of the tensors to fill, which are not among the values.

        Returns:
            the parameters that the optimizers have and those of the checkpoint had not, and the reverse; the latter are
            frozen now.
        """
        new, left = self._check_groups(values["optimizer"]["param_groups"])
        training = values["training"]
        kinds = [type(each).__name__ for each in self._optimizers]
        if kinds != training["optimizer"]:
            raise InvalidArgumentError(f"the optimizers are {kinds}, the checkpoint is of {training['optimizer']}")
        if len(training["scheduler"]) != len(self._schedulers):
            raise InvalidArgumentError(
                f"there are {len(self._schedulers)} schedulers, saved {len(training['scheduler'])}"
            )
        found = training.get("extra", {}).keys() | {place[2] for place in places if _is_extra(place)}
        if self._extra is not None and self._extra.keys() != found:
            raise InvalidArgumentError(f"extra has {sorted(self._extra)}, the checkpoint {sorted(map(str, found))}")
        return new, left

    def _check_groups(self, saved: Sequence[Mapping[str, Any]]) -> tuple[set[str], set[str]]:
        """Raises InvalidArgumentError unless the optimizers have the same parameters in the same groups, but for those
        that no optimizer of the checkpoint had, and frozen ones that none has now. Returns both."""
        groups = [list(names) for names in self._group_names()]
        found = [list(group["params"]) for group in saved]
        own, others = ({name for names in each for name in names} for each in (groups, found))
        new, left = own - others, (others - own) & self.frozen()
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

    def take_states(self, training: Mapping[str, Any], rank: Mapping[str, Any] | None, places: Iterable[Path]) -> None:
        """Takes over the states of schedulers and all else that is neither model nor optimizer.

        `places`: of the tensors that have been filled.
        """
        for scheduler, saved in zip(self._schedulers, training["scheduler"], strict=True):
            scheduler.load_state_dict(saved)
        if self._extra is not None:
            live = dict(tensors_in(self._packed_extra, EXTRA))
            filled = {place[2:]: live[place] for place in places if _is_extra(place)}
            for name, saved in overlaid(training.get("extra", {}), self._packed_extra, filled).items():
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

    def kept_by(self, rank: int, saved: int, processes: int) -> list[str]:
        """What a process keeps as it is, if another number of processes saved the checkpoint."""
        kept = []
        if self._dataloader is not None and saved != processes:
            kept.append("the state of the data loader is not restored")
        if self._rng and rank >= saved:
            kept.append("the state of random generators is not restored")
        return kept

    def _parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        for group in self._groups():
            for parameter in group["params"]:
                yield self._name_of(parameter), parameter

    def _look(self) -> None:
        """Finds the names of the parameters, which may have been replaced."""
        all_names = [
            (self._clean(name), parameter) for name, parameter in self._model.named_parameters(remove_duplicate=False)
        ]
        # Of tied parameters, the optimizer has the first.
        self._names = {id(parameter): name for name, parameter in reversed(all_names)}
        groups = _groups_of_replicas(self._model)
        self._replicas = {name: groups[id(parameter)] for name, parameter in all_names if id(parameter) in groups}

    def _name_of(self, parameter: torch.Tensor) -> str:
        name = self._names.get(id(parameter))
        if name is None:
            raise InvalidArgumentError(
                f"optimizer: a parameter of shape {list(parameter.shape)} is not in the model and has no name; was the "
                "optimizer made before fully_shard()?"
            )
        return name

    def _groups(self) -> Iterator[dict[str, Any]]:
        for optimizer in self._optimizers:
            yield from optimizer.param_groups

    def _group_names(self) -> Iterator[list[str]]:
        for group in self._groups():
            yield [self._name_of(parameter) for parameter in group["params"]]

    def _state_of(self, parameter: torch.Tensor) -> MutableMapping[str, Any]:
        for optimizer in self._optimizers:
            if parameter in optimizer.state:
                state: MutableMapping[str, Any] = optimizer.state[parameter]
                return state
        return {}

    def _clean(self, key: str) -> str:
        name = self._clean_names.get(key)
        if name is None:
            name = self._clean_names[key] = _without_wrappers(self._model, key)
        return name

    def _other_slots(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, parameter in self._parameters():
            slots = self._state_of(parameter)
            others = {key: value for key, value in slots.items() if not isinstance(value, torch.Tensor)}
            if others:
                yield name, others


def nested(parts: Mapping[Path, Part]) -> dict[str, Any]:
    """The parts as values of a state, in dicts: also where it has lists."""
    state: dict[Any, Any] = {"model": {}, "optimizer": {"state": {}}}
    for place, part in parts.items():
        items = state
        for key in place[:-1]:
            inner = items.get(key)
            if inner is None:
                inner = items[key] = {}
            items = inner
        items[place[-1]] = part.value
    return state


def _is_extra(place: Path) -> bool:
    return place[: len(EXTRA)] == EXTRA


def _is_extra_state(name: str) -> bool:
    """Whether it names what get_extra_state() of a module returned."""
    return name.rpartition(".")[2] == _EXTRA_STATE


def _several(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _check_module(value: Any, name: str) -> None:
    if not isinstance(value, torch.nn.Module):
        raise TypeError(f"{name} must be a torch.nn.Module, got {value!r}")


def _check_stateful(value: Any, name: str) -> None:
    if not (hasattr(value, "state_dict") and hasattr(value, "load_state_dict")):
        raise TypeError(f"{name} must have state_dict() and load_state_dict(), got {value!r}")


def _packed(value: Any) -> Any:
    return value.state_dict() if hasattr(value, "state_dict") else value


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


def _groups_of_replicas(model: torch.nn.Module) -> dict[int, Any]:
    """The groups of DistributedDataParallel, by the identities of the parameters that it keeps equal."""
    return {
        id(parameter): module.process_group
        for module in model.modules()
        if isinstance(module, DistributedDataParallel)
        for name, parameter in module.module.named_parameters()
        if name not in module.parameters_to_ignore
    }


def _random_state() -> dict[str, Any]:
    # As a tensor: torch.load() refuses numpy's arrays in what `bitsnap convert` writes.
    name, words, *rest = np.random.get_state()  # noqa: NPY002  what programs use
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(words), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def _set_random_state(state: Mapping[str, Any]) -> None:
    random.setstate(state["python"])
    name, words, *rest = state["numpy"]
    np.random.set_state((name, np.asarray(words), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
