"""The hyperparameters of Adam for the first moments of a state. bitsnap never guesses them.

Each of betas, eps and step comes from the first source that has it: the caller; the caller's optimizer, for moments
that are its own memory; a dict in the state with the structure of ``Optimizer.state_dict()``; and the optimizer, for
all moments, if none of its own is in the state and all of its groups and steps agree.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from bitsnap._arguments import LARGEST
from bitsnap._arrays import is_tensor, source_of
from bitsnap._tree import Entries, Path
from bitsnap._typed_values import items_of
from bitsnap.errors import InvalidArgumentError
from bitsnap.policy import OptimizerLike, Policy, count_of

_HOW_TO_SAY = (
    "save the optimizer's state_dict() with the state, or give bitsnap.bounded(optimizer=...) or "
    "bitsnap.bounded(betas=..., eps=..., step=...); or keep first moments exact, with bitsnap.bounded(update_step=None)"
)


class _Numbers(NamedTuple):
    """The known ones among Adam's numbers."""

    betas: tuple[float, float] | None = None
    eps: float | None = None
    step: int | None = None

    def or_else(self, other: _Numbers) -> _Numbers:
        return _Numbers(
            other.betas if self.betas is None else self.betas,
            other.eps if self.eps is None else self.eps,
            other.step if self.step is None else self.step,
        )

    def native(self) -> tuple[float, float, float, int] | None:
        """In the form of the extension; None unless all are known."""
        if self.betas is None or self.eps is None or self.step is None:
            return None
        return *self.betas, self.eps, self.step


_UNKNOWN = _Numbers()


class AdamOfState:
    """The numbers of one save. For the thread that saves."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._said = _UNKNOWN
        self._for_all = _UNKNOWN
        self._differing: list[str] = []  # numbers that differ between groups of the optimizer
        self._known: dict[str, _Numbers] = {}  # by the names of tensors

    def tell(self, entries: Entries, state: Any = None) -> None:
        """Adds to each first moment among the tensors the numbers of Adam that it goes with."""
        if not _may_lose(self._policy):
            return
        self._ask_caller()
        own = self._ask_optimizer(entries)
        in_tree: dict[int, _Numbers] = {}
        for index, numbers in _moments(entries, state):
            in_tree.setdefault(index, numbers)
        for index, entry in enumerate(entries.items):
            numbers = self._said.or_else(own.get(index, _UNKNOWN)).or_else(in_tree.get(index, _UNKNOWN))
            if not own:
                numbers = numbers.or_else(self._for_all)
            self._known[entry.name] = numbers
            native = numbers.native()
            if native is not None:
                entries.items[index] = entry._replace(adam=native)

    def for_all(self) -> tuple[float, float, float, int] | None:
        """The numbers for every moment of a state that is not in memory."""
        if not _may_lose(self._policy):
            return None
        self._ask_caller()
        self._ask_optimizer(Entries(None, None))
        return self._said.or_else(self._for_all).native()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Around a save: where numbers are missing, the error says which, and how to give them in Python."""
        try:
            yield
        except InvalidArgumentError as error:
            if error.code != "adam_needed":
                raise
            name = error.field or ""
            known = self._known.get(name, self._said.or_else(self._for_all))
            missing = [field for field, value in zip(known._fields, known, strict=True) if value is None]
            if not missing:
                raise
            differing = [text for text in self._differing if text.split()[0] in missing]
            why = (
                f", on which optimizer= does not agree with itself ({'; '.join(differing)}) while the state has none "
                "of its moments"
                if differing
                else ", which neither the caller nor the state says"
            )
            raise InvalidArgumentError(
                f"tensor {name!r}: update_step needs Adam's {_and(missing)}{why}: {_HOW_TO_SAY}"
            ) from None

    def _ask_caller(self) -> None:
        step = self._policy.step
        count = None if step is None else count_of(step() if callable(step) else step)
        self._said = _Numbers(self._policy.betas, self._policy.eps, count)

    def _ask_optimizer(self, entries: Entries) -> dict[int, _Numbers]:
        """The numbers of moments that are the optimizer's own, by tensor; keeps those that are the same for all."""
        if self._policy.optimizer is None:
            return {}
        own: dict[int, _Numbers] = {}
        every: list[_Numbers] = []
        for moment, numbers in _moments_of(self._policy.optimizer):
            every.append(numbers)
            index = _index_of(moment, entries)
            if index is not None:
                own[index] = numbers
        if not every:
            every = [_of_group(group) for group in self._policy.optimizer.param_groups]
        agreed: list[Any] = []
        for field, values in zip(_Numbers._fields, zip(*every, strict=True), strict=False):
            distinct = list(dict.fromkeys(values))
            agreed.append(distinct[0] if len(distinct) == 1 else None)
            if len(distinct) > 1:
                self._differing.append(f"{field} {_and([str(value) for value in distinct[:4]])}")
        self._for_all = _Numbers(*agreed)
        return own


def _may_lose(policy: Policy) -> bool:
    return policy.name in ("bounded", "bitsnap") or bool(policy.rules)


def _and(texts: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _moments_of(optimizer: OptimizerLike) -> Iterator[tuple[Any, _Numbers]]:
    for group in optimizer.param_groups:
        numbers = _of_group(group)
        for parameter in group.get("params", ()):
            slots = optimizer.state.get(parameter)
            if isinstance(slots, Mapping) and "exp_avg" in slots:
                yield slots["exp_avg"], _Numbers(step=_count(slots.get("step"))).or_else(numbers)


def _index_of(moment: Any, entries: Entries) -> int | None:
    if not is_tensor(moment) and not isinstance(moment, np.ndarray):
        return None
    try:
        identity = source_of(moment, "exp_avg").identity
    except InvalidArgumentError:  # a tensor that no state can hold
        return None
    return None if identity is None else entries.index_of(identity)


def _moments(entries: Entries, value: Any, path: Path = ()) -> Iterator[tuple[int, _Numbers]]:
    """The first moments in state dicts of optimizers anywhere in a state: the index of the tensor, and its numbers."""
    if isinstance(value, Mapping) and "state" in value and "param_groups" in value:
        yield from _moments_in(entries, value, path)
    for key, item in items_of(value):
        yield from _moments(entries, item, (*path, key))


def _moments_in(entries: Entries, optimizer: Mapping[Any, Any], path: Path) -> Iterator[tuple[int, _Numbers]]:
    groups, slots_of = optimizer["param_groups"], optimizer["state"]
    if not isinstance(groups, list | tuple) or not isinstance(slots_of, Mapping):
        return
    by_parameter: dict[Hashable, _Numbers] = {}
    for group in groups:
        parameters = group.get("params") if isinstance(group, Mapping) else None
        if isinstance(parameters, list | tuple):
            numbers = _of_group(group)
            by_parameter.update((key, numbers) for key in parameters if isinstance(key, Hashable))
    for key, slots in slots_of.items():
        index = entries.index_at((*path, "state", key, "exp_avg"))
        if isinstance(slots, Mapping) and index is not None:
            yield index, _Numbers(step=_count(slots.get("step"))).or_else(by_parameter.get(key, _UNKNOWN))


def _of_group(group: Mapping[str, Any]) -> _Numbers:
    betas = group.get("betas")
    # Optimizers with three betas are not Adam and use them in other ways.
    pair = [_number(beta) for beta in betas] if isinstance(betas, list | tuple) and len(betas) == 2 else []
    first, second = pair or (None, None)
    return _Numbers(
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
