"""The state of a training in PyTorch, by the conventions of torch.distributed.checkpoint.state_dict: parameters and the
states of optimizers have the names of the model, without those of wrappers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence, Set
from typing import Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.optim import Optimizer

from bitsnap._common import KeyPath, brief, keystr
from bitsnap._states.tensors import Part, part_of
from bitsnap.errors import InvalidArgumentError, UnsupportedError
from bitsnap.torch._model_states import (
    WRAPPERS,
    as_plain,
    fills_in_place,
    groups_of_replicas,
    has_plain_memory,
    load_back,
    overlaid,
    random_state,
    set_random_state,
    tensors_in,
    warn_of_lost_bits,
    with_own_memory,
    without_wrappers,
)
from bitsnap.torch._training_optimizers import OptimizerState, empty_slot, make_state, state_of, take_state
from bitsnap.torch._training_tensors import EXTRA, Given, compared, compared_groups, given_in, name_of, parameter_of

_EXTRA_STATE = "_extra_state"


class Training:
    """What bitsnap.torch.TrainingCheckpointer was given. The other arguments are as there."""

    def __init__(
        self,
        model: torch.nn.Module | Mapping[str, torch.nn.Module],
        optimizer: Optimizer | Sequence[Optimizer] | None,
        scheduler: Any,
        dataloader: Any,
        rng: bool,
        extra: MutableMapping[str, Any] | None,
    ) -> None:
        self._has_several_models = isinstance(model, Mapping)
        if isinstance(model, Mapping):
            for name, each in model.items():
                _check_module(each, f"model[{name!r}]")
                if name in WRAPPERS:  # which the names of tensors leave out
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
                hint = ": pass the optimizer, not its state_dict()" if isinstance(each, Mapping) else ""
                raise TypeError(f"optimizer must be a torch.optim.Optimizer or several, got {brief(each)}{hint}")
        self._schedulers = _several(scheduler)
        self._dataloader = dataloader
        for name, given in (("scheduler", self._schedulers), ("dataloader", _several(dataloader))):
            for each in given:
                _check_stateful(each, name)
        if extra is not None and not isinstance(extra, MutableMapping):
            raise TypeError(f"extra must be a dict of names to values, got {brief(extra)}")
        self._rng, self._extra = bool(rng), extra
        self._names: dict[int, str] = {}  # of the parameters, by their identity
        self._clean_names: dict[str, str] = {}  # of the entries of the model's state_dict(), by their keys
        self._replicas: dict[str, Any] = {}  # the groups that hold the same parameter, by its name
        # As the last look at the tensors found them.
        self._packed_extra: dict[str, Any] = {}
        self._live_models: list[tuple[torch.nn.Module, dict[str, str], dict[str, Any]]] = []  # with names by key
        self._model_values: dict[str, Any] = {}  # what their states have besides tensors to fill
        self._live: list[OptimizerState] = []
        self._has_saved = False
        self._one_sided: Set[str] = frozenset()  # the arguments that a restore leaves alone
        self._look()

    @property
    def has_replicas(self) -> bool:
        """Whether DistributedDataParallel keeps parameters equal on several processes."""
        return bool(self._replicas)

    def state(self, agreed: Set[KeyPath] | None) -> dict[str, Any]:
        """The state now, as this process saves it; its tensors are those of the training.

        `agreed`: the places of the replicas of which one process saves those of all; None if the processes do not save
        together.
        """
        parts = self._tensors(agreed, False)
        if not self._has_saved:
            self._has_saved = True
            for module, _, live_model in self._live_models:
                warn_of_lost_bits(module, live_model)
        of_extra = {place: part for place, part in parts.items() if _is_extra(place)} if self._extra else {}
        state = nested(
            {
                place: part
                for place, part in parts.items()
                if (part.is_first_replica or part.is_saved) and place not in of_extra
            }
        )
        extra_states = {name: value for name, value in self._model_values.items() if _is_extra_state(name)}
        state["model"].update(extra_states)
        for live in self._live:
            for name, slots in live.values.items():
                state["optimizer"]["state"].setdefault(name, {}).update(slots)
        state["optimizer"]["param_groups"] = [group for live in self._live for group in live.groups]
        state["training"] = {
            "optimizer": [type(each).__name__ for each in self._optimizers],
            "scheduler": [each.state_dict() for each in self._schedulers],
            "extra": overlaid(
                self._packed_extra,
                self._packed_extra,
                {place[2:]: part.value_or_nothing for place, part in of_extra.items()},
            ),
        }
        # Under names of their own, so that names of tensors tell which are filled.
        others = {name: value for name, value in self._model_values.items() if name not in extra_states}
        if others:
            state["training"]["model"] = others
        state["training"]["optimizer_slots"] = [live.slots for live in self._live]
        if any(live.rest for live in self._live):
            state["training"]["optimizer_rest"] = [live.rest for live in self._live]
        state["rank"] = {
            "rng": random_state() if self._rng else None,
            "dataloader": None if self._dataloader is None else self._dataloader.state_dict(),
        }
        return state

    def parts(self) -> dict[KeyPath, Part]:
        """What this process holds of the tensors of the model and the optimizers, by their places in the state.

        What may be a replica counts as one.
        """
        return self._tensors(set(), True)

    def with_slots(self, found: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[KeyPath, Part]:
        """The parts as parts() found them, and those of the optimizer states that parameters do not have yet.

        `found`: the dtypes and shapes of the tensors of a checkpoint, by name.
        """
        parameters = {
            name: (live, group, parameter)
            for optimizer, live in zip(self._optimizers, self._live, strict=True)
            for group in optimizer.param_groups
            for name, parameter in ((self._name_of(each), each) for each in group["params"])
            if parameter.requires_grad
        }
        for full, (dtype, shape) in found.items():
            name = parameter_of(full)
            slot = full.rpartition(".")[2]
            if name not in parameters:
                continue
            live, group, parameter = parameters[name]
            if slot not in live.tensors.get(name, {}):
                made = empty_slot(group, parameter, slot, dtype, shape)
                if made is not None:
                    live.tensors.setdefault(name, {})[slot] = made
        parts = self._parts_of_live(set(), True)
        return {place: part for place, part in parts.items() if not self.is_left(name_of(place))}

    def is_left(self, name: str) -> bool:
        """Whether a tensor of the training or of the checkpoint stays out of a restore, with its argument."""
        if name.startswith(name_of(EXTRA) + "."):
            return "extra" in self._one_sided
        return "optimizer" in self._one_sided and bool(parameter_of(name))

    def check_presence(self, values: Mapping[str, Any], names_of_extra: Set[str], optional: Set[str]) -> list[str]:
        """Compares what the training was given with what the checkpoint has, as compared() does."""
        extra = {name.split(".")[len(EXTRA)] for name in names_of_extra}
        saved = given_in(values, extra)
        own = Given(
            len(self._optimizers),
            len(self._schedulers),
            self._dataloader is not None,
            [*(self._extra or {})],
            self._rng,
        )
        self._one_sided, notes = compared(own, saved, optional)
        return notes

    def _tensors(self, agreed: Set[KeyPath] | None, all_replicas: bool) -> dict[KeyPath, Part]:
        """The parts as they are now."""
        self._look()
        for _ in self._group_names():  # all parameters have names
            pass
        self._live_models = []
        for prefix, module in self._roots():
            live = module.state_dict()
            if all_replicas:
                live = with_own_memory(live)
            self._live_models.append((module, {key: self._clean(prefix + key) for key in live}, live))
        self._live = [state_of(optimizer, self._names) for optimizer in self._optimizers]
        self._packed_extra = {name: _packed(value) for name, value in (self._extra or {}).items()}
        return self._parts_of_live(agreed, all_replicas)

    def _parts_of_live(self, agreed: Set[KeyPath] | None, all_replicas: bool) -> dict[KeyPath, Part]:
        parts: dict[KeyPath, Part] = {}
        self._model_values = {}

        def add(place: KeyPath, tensor: torch.Tensor, group: Any) -> None:
            is_agreed = all_replicas or (agreed is not None and place in agreed)
            parts[place] = part_of(tensor, place, group if is_agreed else None, shares_replicas=agreed is not None)

        for _, keys, live_model in self._live_models:
            for key, value in live_model.items():
                name = keys[key]
                if not _is_extra_state(name) and _is_filled(value, name):
                    add(("model", name), as_plain(value), self._replicas.get(name))
                else:
                    self._model_values[name] = value
        for live in self._live:
            for name in (name for group in live.groups for name in group["params"]):
                for key, value in live.tensors.get(name, {}).items():
                    add(("optimizer", "state", name, key), value, self._replicas.get(name))
        names: set[str] = set()
        for path, value in tensors_in(self._packed_extra, EXTRA):
            if isinstance(value, DTensor):
                if name_of(path) in names:
                    raise InvalidArgumentError(
                        f"{keystr(path, 'state')} and another DTensor are both {name_of(path)!r}"
                    )
                names.add(name_of(path))
                add(path, value, None)
        return parts

    def whole_parts(self, names: Set[str]) -> dict[KeyPath, Part]:
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
            # Others get theirs as the checkpoint has them; of DTensors, it does not tell how they are divided.
            lacking = [
                parameter
                for parameter in parameters
                if parameter.requires_grad
                and parameter not in optimizer.state
                and (isinstance(parameter, DTensor) or self._name_of(parameter) in self._replicas)
            ]
            if not lacking:
                continue
            make_state(self._model, optimizer)

    def forget_state(self, names: Iterable[str]) -> None:
        """Leaves out the optimizer states of parameters: they had none when the checkpoint was saved."""
        for name in names:
            for live in self._live:
                live.tensors.pop(name, None)

    def take_values(self, values: Mapping[str, Any], verify: bool) -> list[str]:
        """Takes over the tensors that have been filled, and what lies among them. Returns notes about what differs.

        Raises:
            InvalidArgumentError: the model or an optimizer does not give afterwards what it was given, and `verify`; or
                the model has replaced a parameter that an optimizer has.
        """
        others = _model_values_of(values)
        for module, keys, live_model in self._live_models:
            has_others = any(name in self._model_values for name in keys.values())
            if has_others or not fills_in_place(module, live_model):
                live_model.update((key, others[name]) for key, name in keys.items() if name in others)
                load_back(module, live_model, verify=verify)
        self._check_parameters()
        notes: list[str] = []
        if "optimizer" in self._one_sided:
            return notes
        saved = values["optimizer"].get("state", {})
        groups = [*values["optimizer"]["param_groups"]]
        rests = values["training"].get("optimizer_rest") or [{}] * len(self._live)
        orders = values["training"].get("optimizer_slots") or [[]] * len(self._live)
        for optimizer, live, rest, order in zip(self._optimizers, self._live, rests, orders, strict=True):
            count = len(optimizer.param_groups)
            # Frozen ones that have no state keep none.
            kept = {
                self._name_of(parameter)
                for group in optimizer.param_groups
                for parameter in group["params"]
                if parameter.requires_grad or self._name_of(parameter) in live.tensors
            }
            plain = {name: slots for name, slots in saved.items() if name in kept}
            state = OptimizerState(live.tensors, plain, rest, groups[:count], order)
            differing = take_state(optimizer, state, self._names, verify=verify)
            if differing:
                notes.append(f"{type(optimizer).__name__} has other values than the checkpoint: {differing[0]}")
            del groups[:count]
        return notes

    def frozen(self) -> set[str]:
        """The names of the parameters that the training does not change."""
        parameters = self._model.named_parameters(remove_duplicate=False)
        return {self._clean(name) for name, parameter in parameters if not parameter.requires_grad}

    def check_values(self, values: Mapping[str, Any], places: Iterable[KeyPath]) -> tuple[set[str], set[str]]:
        """Raises InvalidArgumentError unless optimizers, schedulers and extra values are those of the checkpoint.

        `places`: of the tensors to fill, which are not among the values.

        Returns:
            the parameters that the optimizers have and those of the checkpoint had not, and the reverse; the latter are
            frozen now.
        """
        differing = sorted(self._model_values.keys() ^ _model_values_of(values).keys())
        if differing:
            raise InvalidArgumentError(
                f"state_dict() of the model and the checkpoint do not both have {', '.join(differing[:4])}"
            )
        training = values["training"]
        new: set[str] = set()
        left: set[str] = set()
        if "optimizer" not in self._one_sided:
            own = [list(names) for names in self._group_names()]
            found = [list(group["params"]) for group in values["optimizer"]["param_groups"]]
            new, left = compared_groups(own, found, self.frozen())
            kinds = [type(each).__name__ for each in self._optimizers]
            if kinds != training["optimizer"]:
                raise InvalidArgumentError(f"the optimizers are {kinds}, the checkpoint is of {training['optimizer']}")
        if "scheduler" not in self._one_sided and len(training["scheduler"]) != len(self._schedulers):
            raise InvalidArgumentError(
                f"there are {len(self._schedulers)} schedulers, saved {len(training['scheduler'])}"
            )
        saved = training.get("extra", {}).keys() | {place[2] for place in places if _is_extra(place)}
        if self._extra is not None and "extra" not in self._one_sided and self._extra.keys() != saved:
            raise InvalidArgumentError(f"extra has {sorted(self._extra)}, the checkpoint {sorted(map(str, saved))}")
        return new, left

    def take_states(
        self, training: Mapping[str, Any], rank: Mapping[str, Any] | None, places: Iterable[KeyPath]
    ) -> None:
        """Takes over the states of schedulers and all else that is neither model nor optimizer.

        `places`: of the tensors that have been filled.
        """
        if "scheduler" not in self._one_sided:
            for scheduler, saved in zip(self._schedulers, training["scheduler"], strict=True):
                scheduler.load_state_dict(saved)
        if self._extra is not None and "extra" not in self._one_sided:
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
            set_random_state(rank["rng"])

    def kept_by(self, rank: int, saved: int, processes: int) -> list[str]:
        """What a process keeps as it is, if another number of processes saved the checkpoint."""
        kept = []
        if self._dataloader is not None and saved != processes:
            kept.append("the state of the data loader is not restored")
        if self._rng and rank >= saved:
            kept.append("the state of random generators is not restored")
        return kept

    def _roots(self) -> list[tuple[str, torch.nn.Module]]:
        """The models, with what begins the names of their tensors."""
        if not self._has_several_models:
            return [("", self._model)]
        return [(f"{name}.", module) for name, module in self._model.named_children()]

    def _look(self) -> None:
        """Finds the names of the parameters, which may have been replaced."""
        all_names = [
            (self._clean(name), parameter) for name, parameter in self._model.named_parameters(remove_duplicate=False)
        ]
        # Of tied parameters, the optimizer has the first.
        self._names = {id(parameter): name for name, parameter in reversed(all_names)}
        groups = groups_of_replicas(self._model)
        self._replicas = {name: groups[id(parameter)] for name, parameter in all_names if id(parameter) in groups}

    def _check_parameters(self) -> None:
        """Raises InvalidArgumentError unless the optimizers still have parameters of the model."""
        names = dict(self._names)
        self._look()
        for group in self._groups():
            for each in group["params"]:
                if id(each) not in self._names:
                    raise InvalidArgumentError(
                        f"load_state_dict() of the model replaced {names.get(id(each), 'a parameter')!r}, which the "
                        "optimizer has: it would train nothing. Copy into the parameter instead"
                    )

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

    def _clean(self, key: str) -> str:
        name = self._clean_names.get(key)
        if name is None:
            name = self._clean_names[key] = without_wrappers(self._model, key)
        return name


def nested(parts: Mapping[KeyPath, Part]) -> dict[str, Any]:
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


def _is_extra(place: KeyPath) -> bool:
    return place[: len(EXTRA)] == EXTRA


def _is_extra_state(name: str) -> bool:
    """Whether it names what get_extra_state() of a module returned."""
    return name.rpartition(".")[2] == _EXTRA_STATE


def _model_values_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the model had in its state besides tensors to fill, by name."""
    extra_states = {name: value for name, value in values.get("model", {}).items() if _is_extra_state(name)}
    return {**extra_states, **values["training"].get("model", {})}


def _is_filled(value: Any, name: str) -> bool:
    if isinstance(value, UninitializedParameter | UninitializedBuffer):
        raise UnsupportedError(
            f"model: {name!r} is a parameter of a lazy module, which has no shape yet: run the model once before"
        )
    return isinstance(value, DTensor) or has_plain_memory(value)


def _several(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _check_module(value: Any, name: str) -> None:
    if isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a torch.nn.Module, got a tensor: pass the module, not its state_dict()")
    if not isinstance(value, torch.nn.Module):
        raise TypeError(f"{name} must be a torch.nn.Module, got {brief(value)}")


def _check_stateful(value: Any, name: str) -> None:
    if not (hasattr(value, "state_dict") and hasattr(value, "load_state_dict")):
        hint = "; torchdata's StatefulDataLoader has them" if isinstance(value, torch.utils.data.DataLoader) else ""
        raise TypeError(f"{name} must have state_dict() and load_state_dict(), got {brief(value)}{hint}")


def _packed(value: Any) -> Any:
    return value.state_dict() if hasattr(value, "state_dict") else value
