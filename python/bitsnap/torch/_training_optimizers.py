"""What the state_dict() of an optimizer has, by the names of the parameters: tensors to fill, plain values, and the
rest, which only its load_state_dict() knows."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer, optimizer as _torch_optimizer

from bitsnap._common import keystr
from bitsnap._runs.framework_objects import named, restore_optimizer
from bitsnap._states.typed_values import is_container, items_of
from bitsnap._tensors.arrays import name_of_torch, torch_dtype
from bitsnap.errors import BitsnapError, InvalidArgumentError, UnsupportedError
from bitsnap.torch._model_states import same_bits, tensors_in

_HOOKS = (
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)
_PLAIN = (type(None), bool, int, float, complex)
# The key of a state_dict() that does not have the structure of torch's.
_WHOLE = ""
_FILLED = (torch.Tensor, torch.nn.Parameter, DTensor)


@dataclass
class OptimizerState:
    """One optimizer's state_dict(), taken apart.

    Attributes:
        tensors: by parameter and slot, those that a restore may fill.
        values: by parameter and slot, numbers and None.
        rest: the other slots and keys, as the state_dict() has them.
        groups: its "param_groups", with names.
        slots: the names of all slots, in the order in which the parameters have them.
    """

    tensors: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)
    groups: list[dict[str, Any]] = field(default_factory=list)
    slots: list[Any] = field(default_factory=list)

    def of(self, name: str) -> dict[Any, Any]:
        """All slots of a parameter, but for those that are nested."""
        return self.ordered({**self.tensors.get(name, {}), **self.values.get(name, {})})

    def ordered(self, slots: Mapping[Any, Any]) -> dict[Any, Any]:
        places = {slot: place for place, slot in enumerate(self.slots)}
        return dict(sorted(slots.items(), key=lambda item: places.get(item[0], len(places))))


def state_of(optimizer: Optimizer, names: Mapping[int, str]) -> OptimizerState:
    """Takes the state apart. `names`: of all of its parameters, by their identity.

    Raises:
        UnsupportedError: the optimizer gives no state, or one that a restore could not give back.
    """
    kind = type(optimizer).__name__
    try:
        state = _plain_state(optimizer, names) if _is_plain(optimizer) else named(optimizer, names)
    except BitsnapError:
        raise
    except Exception as error:
        raise UnsupportedError(
            f"optimizer: state_dict() of {kind} raises {type(error).__name__}: {error}. A checkpoint needs it on every "
            "process; with parameters divided by fully_shard(), any optimizer of torch has it"
        ) from error
    own = {names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]}
    taken = OptimizerState()
    others: dict[Any, Any] = {}
    seen: dict[Any, None] = {}
    is_named = _has_names(state, own)
    for name, slots in (state["state"] if is_named else {}).items():
        if name not in own or not isinstance(slots, Mapping):
            others[name] = slots
            continue
        seen.update(dict.fromkeys(slots))
        for slot, value in slots.items():
            if _is_filled(slot, value):
                taken.tensors.setdefault(name, {})[slot] = value
            elif isinstance(slot, str) and type(value) in _PLAIN:
                taken.values.setdefault(name, {})[slot] = value
            else:
                others.setdefault(name, {})[slot] = value
        if not slots:
            taken.values.setdefault(name, {})
    if is_named:
        taken.rest = {key: value for key, value in state.items() if key not in ("state", "param_groups")}
    else:
        taken.rest = {_WHOLE: state}
    if others:
        taken.rest["state"] = others
    for path, value in tensors_in(taken.rest, ()):
        if isinstance(value, DTensor):
            raise UnsupportedError(
                f"optimizer: {keystr(path, 'state_dict()')} of {kind} is a DTensor inside another value, which a "
                "restore cannot fill: keep it as a tensor of its own in the state of its parameter"
            )
    taken.slots = [*seen]
    taken.groups = [
        {**group, "params": [names[id(each)] for each in group["params"]]} for group in optimizer.param_groups
    ]
    return taken


def take_state(
    optimizer: Optimizer, saved: OptimizerState, names: Mapping[int, str], *, verify: bool = True
) -> list[str]:
    """Gives an optimizer a state: in place if its class and its hooks add nothing to what torch's optimizers do, and
    through its load_state_dict() otherwise.

    Returns:
        what differs afterwards: with `verify`, no tensors.

    Raises:
        InvalidArgumentError: tensors of its state_dict() differ afterwards, and `verify`.
    """
    if _is_plain(optimizer) and not saved.rest:
        for group, other in zip(optimizer.param_groups, saved.groups, strict=True):
            for parameter in group["params"]:
                name = names[id(parameter)]
                slots = saved.of(name)
                if slots or name in saved.values:
                    own = optimizer.state[parameter]
                    own.clear()
                    own.update(slots)
                else:
                    optimizer.state.pop(parameter, None)
            _take_group(group, other)
        return []
    whole = _whole(optimizer, saved, names)
    held = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    restore_optimizer(optimizer, whole)
    for group, before in zip(optimizer.param_groups, held, strict=True):
        for key, value in group.items():  # on the device where the optimizer had it
            if isinstance(value, torch.Tensor) and isinstance(before.get(key), torch.Tensor):
                group[key] = value.to(before[key].device)
    return _differences(type(optimizer).__name__, whole, named(optimizer, names), verify)


def empty_slot(group: Mapping[str, Any], parameter: torch.Tensor, slot: str, dtype: str, shape: Any) -> Any:
    """A tensor to fill for a parameter that has no such slot, on the device that torch chooses; None if it is part of a
    DTensor in a way that nobody can tell."""
    kind = torch_dtype(dtype, slot)
    if isinstance(parameter, DTensor):
        return torch.empty_like(parameter, dtype=kind) if tuple(shape) == tuple(parameter.shape) else None
    is_on_cpu = slot == "step" and not (group.get("capturable") or group.get("fused"))
    return torch.empty(tuple(shape), dtype=kind, device="cpu" if is_on_cpu else parameter.device)


def make_state(model: torch.nn.Module, optimizer: Optimizer) -> None:
    """Gives the parameters of an optimizer that have no state the tensors of one, as a first step would.

    Raises:
        UnsupportedError: the optimizer cannot take a step without gradients.
    """
    # torch makes the states of optimizers that have none, if there are no gradients.
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    present, optimizer.state = optimizer.state, defaultdict(dict)
    gradients = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        with _without_step_hooks(optimizer):
            get_optimizer_state_dict(model, optimizer)
    except (TypeError, RuntimeError) as error:
        raise UnsupportedError(
            f"optimizer: {type(optimizer).__name__} makes no state for its parameters before its first step: {error}"
        ) from error
    finally:
        made, optimizer.state = optimizer.state, present
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
    for parameter in parameters:
        if parameter not in present and parameter in made:
            present[parameter] = made[parameter]


@contextlib.contextmanager
def _without_step_hooks(optimizer: Optimizer) -> Iterator[None]:
    """Steps of the optimizer run no hooks meanwhile, which may change what is outside of it."""
    hooks: tuple[Any, ...] = (
        optimizer._optimizer_step_pre_hooks,
        optimizer._optimizer_step_post_hooks,
        _torch_optimizer._global_optimizer_pre_hooks,
        _torch_optimizer._global_optimizer_post_hooks,
    )
    kept = [dict(each) for each in hooks]
    for each in hooks:
        each.clear()
    try:
        yield
    finally:
        for each, registered in zip(hooks, kept, strict=True):
            each.update(registered)


def _plain_state(optimizer: Optimizer, names: Mapping[int, str]) -> dict[str, Any]:
    """As named(), but also if groups of parameters were removed, whose states are left."""
    state: dict[Any, Any] = {}
    for group in optimizer.param_groups:
        state.update((names[id(each)], optimizer.state[each]) for each in group["params"] if each in optimizer.state)
    for key, slots in cast("Mapping[Any, Any]", optimizer.state).items():
        if not isinstance(key, torch.Tensor):
            state[key] = slots
        elif not isinstance(key, torch.nn.Parameter) and id(key) not in names:
            raise UnsupportedError(
                f"optimizer: the state of {type(optimizer).__name__} has a tensor of shape {list(key.shape)} as a key, "
                "which is no parameter: use a string"
            )
    groups = [{**group, "params": [names[id(each)] for each in group["params"]]} for group in optimizer.param_groups]
    return {"state": state, "param_groups": groups}


def _has_names(state: Mapping[str, Any], own: set[str]) -> bool:
    groups = state.get("param_groups")
    return (
        isinstance(state.get("state"), Mapping)
        and isinstance(groups, list)
        and {name for group in groups for name in group.get("params", ())} == own
    )


def _is_filled(slot: object, value: Any) -> bool:
    """Whether a slot is one tensor with a name that tells the parameter."""
    return (
        isinstance(slot, str)
        and bool(slot)
        and "." not in slot
        and type(value) in _FILLED
        and value.layout == torch.strided
        and not value.is_quantized
        and name_of_torch(value.dtype) is not None
    )


def _is_plain(optimizer: Optimizer) -> bool:
    kind = type(optimizer)
    methods = ("state_dict", "load_state_dict")
    return (
        all(getattr(kind, name) is getattr(Optimizer, name) and name not in vars(optimizer) for name in methods)
        and kind.__setstate__.__module__.startswith("torch.optim.")
        and not any(getattr(optimizer, name, None) for name in _HOOKS)
    )


def _take_group(group: dict[str, Any], saved: Mapping[str, Any]) -> None:
    for key, value in saved.items():
        if isinstance(value, torch.Tensor) and isinstance(group.get(key), torch.Tensor):
            group[key].copy_(value)  # which may be on a device
        elif key != "params":
            group[key] = value


def _whole(optimizer: Optimizer, saved: OptimizerState, names: Mapping[int, str]) -> dict[str, Any]:
    """As named() gave it when the state was saved, for the parameters that the optimizer has now."""
    if _WHOLE in saved.rest:
        whole: dict[str, Any] = saved.rest[_WHOLE]
        return whole
    state: dict[Any, dict[Any, Any]] = {}
    groups = []
    for group, other in zip(optimizer.param_groups, saved.groups, strict=True):
        own = [names[id(parameter)] for parameter in group["params"]]
        groups.append({**other, "params": own})
        for name in own:
            if name in saved.tensors or name in saved.values:
                state[name] = saved.of(name)
    known = set(names.values())
    for name, slots in saved.rest.get("state", {}).items():
        if name in state:
            state[name] = saved.ordered({**state[name], **slots})
        elif name not in known or any(name in group["params"] for group in groups):
            state[name] = slots
    return {**saved.rest, "state": state, "param_groups": groups}


def _differences(kind: str, expected: Mapping[str, Any], found: Mapping[str, Any], verify: bool) -> list[str]:
    wrong: list[str] = []
    others: list[str] = []
    _compare(expected, found, (), wrong.append, others.append)
    if wrong and verify:
        raise InvalidArgumentError(
            f"the optimizer does not take back what its state_dict() gave: after load_state_dict() of {kind}, "
            f"{', '.join(wrong[:4])}{', ...' if len(wrong) > 4 else ''} differ from the checkpoint; "
            "restore(verify=False) allows it"
        )
    return wrong + others


def _compare(
    expected: Any, found: Any, path: tuple[object, ...], wrong: Callable[[str], None], other: Callable[[str], None]
) -> None:
    where = keystr(path, "state_dict()")
    if isinstance(expected, torch.Tensor):
        if not isinstance(found, torch.Tensor) or not same_bits(expected, found):
            wrong(where)
    elif is_container(expected) and is_container(found):
        items, others = dict(items_of(expected)), dict(items_of(found))
        for key, item in items.items():
            if key in others:
                _compare(item, others[key], (*path, key), wrong, other)
            elif any(True for _ in tensors_in(item, (key,))):
                wrong(keystr((*path, key), "state_dict()"))
            else:
                other(keystr((*path, key), "state_dict()"))
    elif isinstance(expected, (str, bytes, *_PLAIN)) and expected == expected and expected != found:  # NaN is not
        other(where)
