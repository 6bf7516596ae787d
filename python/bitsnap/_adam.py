"""Which numbers of Adam the first moments of a state go with, by who says them. Nothing is guessed.

Each of betas, eps and step comes from the first that says it: the caller; the optimizer that he gave, for moments that
are its own memory; a dict in the state that is shaped as ``Optimizer.state_dict()`` makes it; and that optimizer, for
all, where none of its moments is in the state and all that it has agree.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from bitsnap._arguments import LARGEST
from bitsnap._arrays import is_tensor, source_of
from bitsnap._bitsnap import TensorRef
from bitsnap._tree import Entries
from bitsnap.errors import InvalidArgumentError
from bitsnap.policy import OptimizerLike, Policy, count_of

# The library's words for an update_step without numbers; what follows them is said anew, for Python.
_MISSING = ": update_step needs Adam's "
_HOW_TO_SAY = (
    "save the optimizer's state_dict() with the state, or give bitsnap.bounded(optimizer=...) or "
    "bitsnap.bounded(betas=..., eps=..., step=...); or keep first moments exact, with bitsnap.bounded(update_step=None)"
)


class _Numbers(NamedTuple):
    """What is known of Adam's numbers."""

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
        """As the extension takes them; None unless all are known."""
        if self.betas is None or self.eps is None or self.step is None:
            return None
        return *self.betas, self.eps, self.step


_UNKNOWN = _Numbers()


class AdamOfState:
    """The numbers of one save. To be made and used by the thread that saves."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._said = _UNKNOWN
        self._for_all = _UNKNOWN
        self._differing: list[str] = []  # what the optimizer does not agree on
        self._known: dict[str, _Numbers] = {}  # by the names of tensors

    def tell(self, entries: Entries, state: Any = None, tree: Any = None) -> None:
        """Adds to each tensor the numbers that it goes with, if it is a first moment. `tree` is flatten()'s."""
        if not _may_lose(self._policy):
            return
        self._ask_caller()
        own = self._ask_optimizer(entries)
        in_tree: dict[int, _Numbers] = {}
        for index, numbers in _moments(state, tree):
            in_tree.setdefault(entries.canonical(index), numbers)
        for index, entry in enumerate(entries.items):
            numbers = self._said.or_else(own.get(index, _UNKNOWN)).or_else(in_tree.get(index, _UNKNOWN))
            if not own:
                numbers = numbers.or_else(self._for_all)
            self._known[entry.name] = numbers
            native = numbers.native()
            if native is not None:
                entries.items[index] = entry._replace(adam=native)

    def for_all(self) -> tuple[float, float, float, int] | None:
        """Of a state that is not in memory."""
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
            where, found, _ = str(error).partition(_MISSING)
            if not found:
                raise
            name = where[where.rfind("tensor '") + len("tensor '") : -1]
            known = self._known.get(name, self._said.or_else(self._for_all))
            missing = [field for field, value in zip(known._fields, known, strict=True) if value is None]
            if not missing:  # of a tensor whose name stands in messages in another form
                raise
            differing = [text for text in self._differing if text.split()[0] in missing]
            why = (
                f", on which optimizer= does not agree with itself ({'; '.join(differing)}) while the state has none "
                "of its moments"
                if differing
                else ", which neither the caller nor the state says"
            )
            raise InvalidArgumentError(f"{where}{_MISSING}{_and(missing)}{why}: {_HOW_TO_SAY}") from None

    def _ask_caller(self) -> None:
        step = self._policy.step
        count = None if step is None else count_of(step() if callable(step) else step)
        self._said = _Numbers(self._policy.betas, self._policy.eps, count)

    def _ask_optimizer(self, entries: Entries) -> dict[int, _Numbers]:
        """The numbers of moments that are the optimizer's own, by tensor; keeps those that it says of all."""
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
    except InvalidArgumentError:  # of a kind that no state can hold
        return None
    return None if identity is None else entries.index_of(identity)


def _moments(state: Any, tree: Any) -> Iterator[tuple[int, _Numbers]]:
    """The first moments in state dicts of optimizers, wherever they stand: the index of the tensor, and its numbers."""
    if isinstance(tree, dict):
        if "state" in tree and "param_groups" in tree:
            yield from _moments_in(state, tree)
        for item, stored in zip(state.values(), tree.values(), strict=True):
            yield from _moments(item, stored)
    elif isinstance(tree, list | tuple):
        for item, stored in zip(state, tree, strict=True):
            yield from _moments(item, stored)


def _moments_in(state: Any, tree: dict[Any, Any]) -> Iterator[tuple[int, _Numbers]]:
    groups, slots_of = state["param_groups"], tree["state"]
    if not isinstance(groups, list | tuple) or not isinstance(slots_of, dict):
        return
    by_parameter: dict[Hashable, _Numbers] = {}
    for group in groups:
        parameters = group.get("params") if isinstance(group, Mapping) else None
        if isinstance(parameters, list | tuple):
            numbers = _of_group(group)
            by_parameter.update((key, numbers) for key in parameters if isinstance(key, Hashable))
    for key, slots in slots_of.items():
        moment = slots.get("exp_avg") if isinstance(slots, dict) else None
        if isinstance(moment, TensorRef):
            step = _count(state["state"][key].get("step"))
            yield moment.index, _Numbers(step=step).or_else(by_parameter.get(key, _UNKNOWN))


def _of_group(group: Mapping[str, Any]) -> _Numbers:
    betas = group.get("betas")
    # Three betas are of other optimizers than Adam, which mean other things by them.
    pair = [_number(beta) for beta in betas] if isinstance(betas, list | tuple) and len(betas) == 2 else []
    first, second = pair or (None, None)
    return _Numbers(
        None if first is None or second is None else (first, second),
        _number(group.get("eps")),
        _count(group.get("step")),  # where an optimizer counts for a whole group
    )


def _number(value: Any) -> float | None:
    """A finite number, as a tensor or not; None for anything else."""
    is_number = isinstance(value, int | float | np.generic | np.ndarray) and not isinstance(value, bool | np.bool_)
    if not is_number and not is_tensor(value):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # of several elements, or without memory
        return None
    return number if math.isfinite(number) else None


def _count(value: Any) -> int | None:
    number = _number(value)
    if number is None or number < 0 or number > LARGEST or number != math.floor(number):
        return None
    return int(number)
