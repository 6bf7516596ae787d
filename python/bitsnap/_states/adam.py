"""The hyperparameters of Adam for the first moments of a state, which bitsnap never guesses, and bounded settings.

Each of betas, eps and step comes from the first source that has it: the caller; the caller's optimizer, for moments
that are its own memory; a dict in the state with the structure of ``Optimizer.state_dict()``; and the optimizer, for
all moments, if none of its own is in the state and all of its groups and steps agree.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, SupportsFloat, SupportsIndex, TypeAlias

import numpy as np

from bitsnap._bitsnap import AdamNumbers, Settings
from bitsnap._common import LARGEST, KeyPath, PathLike, brief, count_of, float_of, invalid, may_lose
from bitsnap._states.tensors import Entries, local_part, tensor_of
from bitsnap._states.typed_values import is_container, items_of
from bitsnap._tensors.arrays import NotStorableTensorError, is_tensor, source_of
from bitsnap.errors import BitsnapError, InvalidArgumentError

# Steps that were taken, or a function that returns them at each save.
AdamStep: TypeAlias = SupportsIndex | Callable[[], SupportsIndex]

_HOW_TO_SAY = (
    "save the optimizer's state_dict() with the state, or pass adam=bitsnap.Adam(optimizer=...) or "
    "adam=bitsnap.Adam(betas=..., eps=..., step=...), or keep first moments exact with "
    "settings=bitsnap.bounded(update_step=None)"
)


class OptimizerLike(Protocol):
    """The attributes of torch's optimizers that are read."""

    @property
    def param_groups(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def state(self) -> Mapping[Any, Any]: ...


@dataclass(frozen=True)
class Adam:
    """The values of Adam, for loss rules with ``update_step``, such as those of bounded().

    bitsnap takes betas, eps and step each from the first of these that has it: the argument here; the optimizer, for
    moments that are its own memory; the state, if a dict in it is the ``state_dict()`` of an optimizer; the optimizer,
    for all other moments, if none of its own is in the state and all of its groups and steps agree.

    Args:
        betas: both betas.
        eps: epsilon.
        step: the number of steps that the optimizer has taken, or a function that returns it at each save. Store and
            Checkpointer save many states and take only a function.
        optimizer: an optimizer of torch, or an object with its ``param_groups`` and ``state``; read at each save.

    Raises:
        InvalidArgumentError: a number is out of range.
        TypeError: an argument has the wrong type.
    """

    betas: tuple[float, float] | None = None
    eps: float | None = None
    step: AdamStep | None = None
    optimizer: OptimizerLike | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.betas is not None:
            object.__setattr__(self, "betas", _betas_of(self.betas))
        if self.eps is not None:
            object.__setattr__(self, "eps", _below(float_of(self.eps, "eps"), math.inf, "eps"))
        if self.step is not None and not callable(self.step):
            object.__setattr__(self, "step", _step_of(self.step))
        given = self.optimizer
        if given is not None and not (hasattr(given, "param_groups") and hasattr(given, "state")):
            raise TypeError(f"optimizer must have param_groups and state, as torch's optimizers, got {brief(given)}")


# For all first moments, or for each by the name of its tensor.
Adams: TypeAlias = Adam | Mapping[str, Adam] | Callable[[str], Adam | None]


@dataclass
class AdamSources:
    """What is known of Adam besides what lies in the states that are saved."""

    for_all: Adam = field(default_factory=Adam)
    by_name: Callable[[str], Adam | None] | None = None
    names: frozenset[str] = frozenset()  # of the tensors that must be there
    found: Mapping[str, AdamValues] = field(default_factory=dict)  # in the state, by the names of tensors

    def assign(self, other: AdamSources) -> None:
        """Makes a store that has this object use another for its next state."""
        self.for_all, self.by_name, self.names, self.found = other.for_all, other.by_name, other.names, other.found


class StateWithAdam(NamedTuple):
    """A state for a Checkpointer, with what is known of Adam in this state."""

    state: Any
    adam: AdamSources


def sources_of(adam: Adams | AdamSources | None) -> AdamSources:
    if isinstance(adam, AdamSources):
        return adam
    if adam is None:
        return AdamSources()
    if isinstance(adam, Adam):
        return AdamSources(adam)
    if isinstance(adam, Mapping):
        by_name = {name: _of_tensor(each, f"adam[{name!r}]") for name, each in adam.items()}
        return AdamSources(by_name=by_name.get, names=frozenset(by_name))
    if callable(adam):
        return AdamSources(by_name=adam)
    raise TypeError(f"adam must be bitsnap.Adam, a dict or function of names that gives it, or None, got {brief(adam)}")


def _of_tensor(adam: Adam | None, where: str) -> Adam:
    if not isinstance(adam, Adam):
        raise TypeError(f"{where} must be bitsnap.Adam, got {brief(adam)}")
    if adam.optimizer is not None:
        raise invalid("optimizer", f"says nothing of one tensor: give {where} its betas, eps and step")
    return adam


def adam_for_many(adam: Adams | AdamSources | None) -> AdamSources:
    """Refuses the step of one state as the step of all."""
    sources = sources_of(adam)
    given = [sources.for_all, *(adam.values() if isinstance(adam, Mapping) else ())]
    for step in (each.step for each in given):
        if step is not None and not callable(step):
            raise invalid(
                "step",
                f"must be a function here, such as step=lambda: steps, because many states are saved; got {step!r}",
            )
    return sources


def _betas_of(betas: Sequence[SupportsFloat]) -> tuple[float, float]:
    if isinstance(betas, str | bytes) or not isinstance(betas, Sequence):
        raise TypeError(f"betas must be a tuple of two numbers, got {brief(betas)}")
    if len(betas) != 2:
        raise invalid("betas", f"must be a tuple of two numbers, got {len(betas)}")
    first, second = (_below(float_of(beta, "betas"), 1, "betas") for beta in betas)
    return first, second


def _below(number: float, limit: float, name: str) -> float:
    if not 0 <= number < limit:
        raise invalid(name, f"must be at least 0 and {'finite' if limit == math.inf else 'below 1'}, got {number}")
    return number


def _step_of(step: SupportsIndex) -> int:
    count = count_of(step, "step")
    if count == 0:
        raise invalid("step", "must be at least 1, the number of steps that the optimizer has taken, got 0")
    return count


class AdamValues(NamedTuple):
    """The known ones among Adam's betas, eps and step."""

    betas: tuple[float, float] | None = None
    eps: float | None = None
    step: int | None = None

    def or_else(self, other: AdamValues) -> AdamValues:
        return AdamValues(
            other.betas if self.betas is None else self.betas,
            other.eps if self.eps is None else self.eps,
            other.step if self.step is None else self.step,
        )

    def native(self) -> AdamNumbers | None:
        """None unless all are known."""
        if self.betas is None or self.eps is None or self.step is None:
            return None
        return AdamNumbers(self.betas, self.eps, self.step)


_UNKNOWN = AdamValues()


class AdamOfState:
    """The values of Adam in one save. Used by the thread that saves."""

    def __init__(self, settings: Settings, adam: Adams | AdamSources | None) -> None:
        self._is_needed = may_lose(settings)
        self._sources = sources_of(adam)
        self._given = self._sources.for_all
        self._said = _UNKNOWN
        self._for_all = _UNKNOWN
        self._others = _UNKNOWN  # of tensors that `_known` does not have
        self._differing: dict[str, str] = {}  # values that differ between groups or moments of the optimizer
        self._known: dict[str, AdamValues] = {}  # by the names of tensors, where they are not those for all

    def tell(self, entries: Entries, state: Any = None) -> None:
        """Adds to each first moment among the tensors the numbers of Adam that it goes with."""
        if not self._is_needed:
            return
        self._ask_caller()
        own = self._ask_optimizer(entries)
        in_tree: dict[int, AdamValues] = {}
        for path, value in [((), state), *(content[:2] for content in entries.contents)]:
            for index, numbers in _moments(entries, value, path):
                in_tree.setdefault(index, numbers)
        self._others = self._said if own else self._said.or_else(self._for_all)
        native_of_others = self._others.native()
        found = self._sources.found
        unused = set(self._sources.names)
        for index, entry in enumerate(entries.items):
            unused.discard(entry.name)
            native = native_of_others
            said = self._ask_caller_of(entry.name)
            if said is not None or index in own or index in in_tree or entry.name in found:
                numbers = (self._said if said is None else said).or_else(own.get(index, _UNKNOWN))
                numbers = numbers.or_else(in_tree.get(index, _UNKNOWN)).or_else(found.get(entry.name, _UNKNOWN))
                if not own:
                    numbers = numbers.or_else(self._for_all)
                self._known[entry.name] = numbers
                native = numbers.native()
            if native is not None:
                entries.items[index] = entry._replace(adam=native)
        if unused:
            raise InvalidArgumentError(f"adam is given for tensors that are not there: {sorted(unused)}")

    def for_all(self) -> AdamNumbers | None:
        """The numbers for every moment of a state that is not in memory."""
        if not self._is_needed:
            return None
        if self._sources.by_name is not None:
            raise InvalidArgumentError("adam must be one bitsnap.Adam for the tensors of files, not a dict or function")
        self._ask_caller()
        self._ask_optimizer(Entries(None, None))
        self._others = self._said.or_else(self._for_all)
        return self._others.native()

    @contextmanager
    def explained(self, path: PathLike | None = None) -> Iterator[None]:
        """Around a save, of a file at `path`: explains its error."""
        try:
            yield
        except BitsnapError as error:
            raise self.explain(error, path) from None

    def explain(self, error: BitsnapError, path: PathLike | None = None) -> BitsnapError:
        """An error that says which values of Adam are missing, and how to give them; `error` if it is another one."""
        name = error.field or ""
        known = self._known.get(name, self._others)
        missing = [each for each, value in zip(known._fields, known, strict=True) if value is None]
        if error.code != "adam_needed" or not missing:
            return error
        differing = [f"{each} {self._differing[each]}" for each in missing if each in self._differing]
        why = "are neither given nor in the state"
        if differing:
            why = f"differ within optimizer= ({'; '.join(differing)}), none of whose moments is in the state"
        where = "" if path is None else f"{os.fspath(path)}: "
        explained = InvalidArgumentError(
            f"{where}tensor {name!r}: update_step needs Adam's {_and(missing)}, which {why}: {_HOW_TO_SAY}"
        )
        explained.code, explained.field = error.code, error.field
        return explained

    def _ask_caller(self) -> None:
        self._said = _said_by(self._given)

    def _ask_caller_of(self, name: str) -> AdamValues | None:
        by_name = self._sources.by_name
        adam = None if by_name is None else by_name(name)
        return None if adam is None else _said_by(_of_tensor(adam, f"adam of {name!r}"))

    def _ask_optimizer(self, entries: Entries) -> dict[int, AdamValues]:
        """The numbers of moments that are the optimizer's own, by tensor; keeps those that are the same for all."""
        if self._given.optimizer is None:
            return {}
        own: dict[int, AdamValues] = {}
        every: list[AdamValues] = []
        for moment, numbers in _moments_of(self._given.optimizer):
            every.append(numbers)
            index = _index_of(moment, entries)
            if index is not None:
                own[index] = numbers
        if not every:
            every = [values_of_group(group) for group in self._given.optimizer.param_groups]
        agreed: list[Any] = []
        for name, values in zip(AdamValues._fields, zip(*every, strict=True), strict=False):
            distinct = list(dict.fromkeys(values))
            agreed.append(distinct[0] if len(distinct) == 1 else None)
            if len(distinct) > 1:
                self._differing[name] = _and([str(value) for value in distinct[:4]])
        self._for_all = AdamValues(*agreed)
        return own


def values_of_step(step: Any) -> AdamValues:
    return AdamValues(step=_count(step))


def _said_by(adam: Adam) -> AdamValues:
    step = adam.step
    return AdamValues(adam.betas, adam.eps, None if step is None else _step_of(step() if callable(step) else step))


def _and(texts: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _moments_of(optimizer: OptimizerLike) -> Iterator[tuple[Any, AdamValues]]:
    for group in optimizer.param_groups:
        numbers = values_of_group(group)
        for parameter in group.get("params", ()):
            slots = optimizer.state.get(parameter)
            if isinstance(slots, Mapping) and "exp_avg" in slots:
                yield slots["exp_avg"], AdamValues(step=_count(slots.get("step"))).or_else(numbers)


def _index_of(moment: Any, entries: Entries) -> int | None:
    moment = tensor_of(local_part(moment, ()))
    if not is_tensor(moment) and not isinstance(moment, np.ndarray):
        return None
    try:
        identity = source_of(moment).identity
    except NotStorableTensorError:  # a tensor that no state can hold
        return None
    return None if identity is None else entries.index_of(identity)


def _moments(entries: Entries, value: Any, path: KeyPath = ()) -> Iterator[tuple[int, AdamValues]]:
    """The first moments in state dicts of optimizers anywhere in a state: the index of the tensor, and its numbers."""
    if isinstance(value, Mapping) and "state" in value and "param_groups" in value:
        yield from _moments_in(entries, value, path)
    for key, item in items_of(value):
        if is_container(item):
            yield from _moments(entries, item, (*path, key))


def _moments_in(entries: Entries, optimizer: Mapping[Any, Any], path: KeyPath) -> Iterator[tuple[int, AdamValues]]:
    groups, slots_of = optimizer["param_groups"], optimizer["state"]
    if not isinstance(groups, list | tuple) or not isinstance(slots_of, Mapping):
        return
    by_parameter: dict[Hashable, AdamValues] = {}
    for group in groups:
        parameters = group.get("params") if isinstance(group, Mapping) else None
        if isinstance(parameters, list | tuple):
            numbers = values_of_group(group)
            by_parameter.update((key, numbers) for key in parameters if isinstance(key, Hashable))
    for key, slots in slots_of.items():
        index = entries.index_at((*path, "state", key, "exp_avg"))
        if isinstance(slots, Mapping) and index is not None:
            yield index, AdamValues(step=_count(slots.get("step"))).or_else(by_parameter.get(key, _UNKNOWN))


def values_of_group(group: Mapping[str, Any]) -> AdamValues:
    betas = group.get("betas")
    # Optimizers with three betas are not Adam and use them in other ways.
    pair = [_number(beta) for beta in betas] if isinstance(betas, list | tuple) and len(betas) == 2 else []
    first, second = pair or (None, None)
    return AdamValues(
        None if first is None or second is None else (first, second),
        _number(group.get("eps")),
        _count(group.get("step")),  # some optimizers count steps by group
    )


def _number(value: Any) -> float | None:
    """A finite number, which may be a tensor or an array; None for anything else."""
    is_number = isinstance(value, int | float | np.generic | np.ndarray) and not isinstance(value, bool | np.bool_)
    if not is_number and not is_tensor(value):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # several elements, or no memory
        return None
    return number if math.isfinite(number) else None


def _count(value: Any) -> int | None:
    number = _number(value)
    if number is None or number < 0 or number > LARGEST or number != math.floor(number):
        return None
    return int(number)


def bounded(
    *,
    master_bits: SupportsIndex | None = 8,
    v_bits: SupportsIndex | None = 3,
    update_step: SupportsFloat | None = 0.02,
    rules: Iterable[str] = (),
) -> Settings:
    """Settings for bounded loss: masters and the moments of Adam become nearby numbers that take less space.

    Weights, and all tensors without a rule, keep every bit. The file states the bound and the largest error of each
    rounded tensor; inspect() shows them. None for `master_bits`, `v_bits` or `update_step` keeps these tensors exact.
    ``bounded().replace(max_depth=3)`` adds other settings.

    Args:
        master_bits: bits of mantissa that float32 masters keep beyond those of their weights, 0 to 15. The masters
            still round to the same weights.
        v_bits: bits of mantissa that second moments (``exp_avg_sq``) keep, 0 to 22.
        update_step: first moments (``exp_avg``) become multiples of this fraction of the update that they produce,
            above 0 and at most 1. The update changes by at most half of it, besides the error of the second moment.
            bitsnap computes updates with Adam's betas, eps and step; see Adam.
        rules: rules that come before these, as in Settings(loss=...).

    Raises:
        InvalidArgumentError: a number is out of range, or a text is not a rule.
        TypeError: an argument has the wrong type.
    """
    if isinstance(rules, str) or not isinstance(rules, Iterable):
        raise TypeError(f"rules must be a list of str, got {brief(rules)}")
    own = [
        "master=exact" if master_bits is None else f"master=master_bits:{count_of(master_bits, 'master_bits')}",
        "exp_avg_sq=exact" if v_bits is None else f"exp_avg_sq=mantissa_bits:{count_of(v_bits, 'v_bits')}",
        "exp_avg=exact" if update_step is None else f"exp_avg=update_step:{float_of(update_step, 'update_step')!r}",
    ]
    return Settings(policy="bounded", loss=[*rules, *own])
