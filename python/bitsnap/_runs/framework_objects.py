"""Objects of frameworks: what adapters put in their place and give back, and the states of optimizers by the names of
parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from bitsnap.errors import InvalidArgumentError

_MISSING = object()


class Replacing:
    """Attributes that were replaced, to be given back in the other order."""

    def __init__(self) -> None:
        self._stock: list[tuple[Any, str, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._stock)

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """What the object or its class had is given back by undo()."""
        self._stock.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def undo(self) -> None:
        while self._stock:
            owner, name, stock = self._stock.pop()
            if stock is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, stock)


def give_class(host: Any, base: type) -> None:
    """Makes an object one of a class that is derived from `base`, an adapter's, and from its own class."""
    if not isinstance(host, base):
        kind = type(host)
        host.__class__ = type(kind.__name__, (base, kind), {"__module__": kind.__module__, "_stock_class": kind})


def give_class_back(host: Any, *attributes: str) -> bool:
    """Undoes give_class(), and deletes attributes that the object has; whether there was anything to undo."""
    kind = vars(type(host)).get("_stock_class")
    if kind is None:
        return False
    host.__class__ = kind
    for name in attributes:
        vars(host).pop(name, None)
    return True


def names_of(models: Iterable[tuple[str, torch.nn.Module]]) -> dict[int, str]:
    """The names of the parameters of modules, by their identity. Each module has a prefix."""
    names: dict[int, str] = {}
    for prefix, model in models:
        for name, parameter in model.named_parameters():
            names.setdefault(id(parameter), prefix + name)
    return names


def named(optimizer: Any, names: Mapping[int, str]) -> dict[str, Any]:
    """The state of an optimizer, with the names of its parameters instead of their numbers.

    As it is, if a parameter has no name, or the optimizer has another kind of state.
    """
    state: dict[str, Any] = optimizer.state_dict()
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    known = [names.get(id(each)) for each in parameters]
    if None in known or len(set(known)) < len(known) or not _is_numbered(state, len(parameters)):
        return state
    name_of = dict(enumerate(known))
    return {
        **state,
        "state": {name_of.get(key, key): slots for key, slots in state["state"].items()},
        "param_groups": [
            {**group, "params": [name_of[number] for number in group["params"]]} for group in state["param_groups"]
        ],
    }


def numbered(state: Mapping[str, Any]) -> dict[str, Any]:
    """What named() was made of: as ``Optimizer.load_state_dict()`` takes it."""
    if not _has_parameters(state):
        return dict(state)
    number_of: dict[Any, int] = {}
    for group in state["param_groups"]:
        for name in group["params"]:
            number_of.setdefault(name, len(number_of))
    return {
        **state,
        "state": {number_of.get(key, key): slots for key, slots in state["state"].items()},
        "param_groups": [
            {**group, "params": [number_of[name] for name in group["params"]]} for group in state["param_groups"]
        ],
    }


def restore_optimizer(optimizer: Any, saved: Mapping[str, Any], names: Mapping[int, str] | None = None) -> None:
    """Loads a state, and gives it the values and dtypes in which it was saved.

    ``Optimizer.load_state_dict()`` converts tensors, also those in lists and dicts, to the dtype of their parameter, so
    that float32 moments of bfloat16 parameters would lose bits.

    Args:
        saved: what named() returned.
        names: those of the optimizer's parameters now, as names_of() gives them. A model may have been changed so that
            its parameters come in another order.

    Raises:
        InvalidArgumentError: parameters have other names and another order, or are in other groups.
    """
    state = numbered(saved if names is None else _reordered(saved, optimizer, names))
    optimizer.load_state_dict(state)
    if not _has_parameters(state):
        return
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        slots = optimizer.state.get(parameter, {})
        for key, value in state["state"].get(number, {}).items():
            if key in slots:
                slots[key] = _as_saved(value, slots[key])


def _reordered(saved: Mapping[str, Any], optimizer: Any, names: Mapping[int, str]) -> Mapping[str, Any]:
    """The state with its parameters in the order in which the optimizer has them, by their names."""
    if not _has_parameters(saved):
        return saved
    before = [list(group["params"]) for group in saved["param_groups"]]
    now = [[names.get(id(each)) for each in group["params"]] for group in optimizer.param_groups]
    old, new = [name for group in before for name in group], [name for group in now for name in group]
    if before == now or None in new or not all(isinstance(name, str) for name in old):
        return saved
    if set(old) != set(new) or len(old) != len(new):
        # Renamed parameters keep their places, unless others have moved.
        moved = [name for place, name in enumerate(new) if name in old and old.index(name) != place]
        if moved:
            raise InvalidArgumentError(
                f"the optimizer's parameter {moved[0]!r} was at another place when it was saved, and others had other "
                "names: give the parameters the names that they had"
            )
        return saved
    if [set(group) for group in before] != [set(group) for group in now]:
        raise InvalidArgumentError(
            f"the optimizer's groups have other parameters than when it was saved: {[len(each) for each in now]} of "
            f"them, and {[len(each) for each in before]} then, or in another order"
        )
    groups = [{**group, "params": names} for group, names in zip(saved["param_groups"], now, strict=True)]
    return {**saved, "param_groups": groups}


def _as_saved(value: Any, loaded: Any) -> Any:
    """A value of a state with the dtypes in which it was saved, on the devices on which an optimizer has it."""
    if isinstance(value, torch.Tensor) and isinstance(loaded, torch.Tensor):
        return loaded if value.dtype == loaded.dtype else value.to(loaded.device, copy=True)
    if type(value) is not type(loaded):
        return loaded  # the optimizer has made something else of it
    if isinstance(value, dict):
        return {key: _as_saved(value[key], item) if key in value else item for key, item in loaded.items()}
    if isinstance(value, list | tuple) and len(value) == len(loaded):
        items = [_as_saved(item, own) for item, own in zip(value, loaded, strict=True)]
        return type(value)._make(items) if hasattr(value, "_make") else type(value)(items)
    return loaded if isinstance(value, list | tuple) else value


def _has_parameters(state: Mapping[str, Any]) -> bool:
    groups = state.get("param_groups")
    return "state" in state and isinstance(groups, list) and all("params" in group for group in groups)


def _is_numbered(state: Mapping[str, Any], parameters: int) -> bool:
    """Whether a state has the structure that torch's optimizers give it."""
    groups = state.get("param_groups")
    if not isinstance(groups, list) or not isinstance(state.get("state"), Mapping):
        return False
    return _has_parameters(state) and [number for group in groups for number in group["params"]] == list(
        range(parameters)
    )
