"""What a save may do to a state: the codecs it may use and, where that was asked for, what tensors may lose."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat, SupportsIndex, TypeAlias

from bitsnap import _bitsnap
from bitsnap._arguments import number_of, text_of
from bitsnap._options import PolicyName
from bitsnap.errors import InvalidArgumentError

if TYPE_CHECKING:
    from bitsnap._tree import Entries

# Steps that were taken, or a function that is asked at each save.
AdamStep: TypeAlias = SupportsIndex | Callable[[], SupportsIndex]


class OptimizerLike(Protocol):
    """What is asked of an optimizer: the two attributes that those of torch have."""

    @property
    def param_groups(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def state(self) -> Mapping[Any, Any]: ...


@dataclass(frozen=True, init=False, repr=False)
class Policy:
    """A policy by its name, with rules for what tensors may lose before what it says itself. It never changes.

    Wherever a function takes the name of a policy it takes one of these; bounded() makes them for bounded loss.

    Args:
        name: "lossless", "bounded", "bitsnap", "lmc" or "raw".
        rules: which tensors lose what, as ``ROLE[:PATTERN]=WHAT``. The role is "weight", "master", "exp_avg",
            "exp_avg_sq", "other" or ``*``; in the pattern for names ``*`` stands for any letters and ``?`` for one.
            What is to become of them is ``exact``, ``mantissa_bits:N``, ``master_bits:N``, ``update_step:X`` or
            ``clusters:N``, as in ``"exp_avg_sq:*.embed*=mantissa_bits:5"``. The first rule that fits a tensor holds;
            those of the policy come last.
        betas, eps, step, optimizer: as in bounded().

    Raises:
        InvalidArgumentError: there is no such policy, a text is no rule, or a number is out of range.
        TypeError: an argument is of a wrong type.
    """

    name: PolicyName
    rules: tuple[str, ...]
    betas: tuple[float, float] | None
    eps: float | None
    step: AdamStep | None
    optimizer: OptimizerLike | None

    def __init__(
        self,
        name: PolicyName,
        rules: Iterable[str] = (),
        *,
        betas: Sequence[SupportsFloat] | None = None,
        eps: SupportsFloat | None = None,
        step: AdamStep | None = None,
        optimizer: OptimizerLike | None = None,
    ) -> None:
        if isinstance(rules, str) or not isinstance(rules, Iterable):
            raise TypeError(f"rules is a list of str, not {rules!r}")
        if optimizer is not None and not (hasattr(optimizer, "param_groups") and hasattr(optimizer, "state")):
            raise TypeError(f"optimizer has param_groups and state, as those of torch, not {optimizer!r}")
        checked = _bitsnap.check_settings(
            {"policy": text_of(name, "policy"), "loss": [text_of(rule, "a rule") for rule in rules]}
        )
        fields = {
            "name": name,
            "rules": tuple(checked["loss"]),
            "betas": None if betas is None else _betas_of(betas),
            "eps": None if eps is None else _below(_float_of(eps, "eps"), math.inf, "eps"),
            "step": step if step is None or callable(step) else count_of(step),
            "optimizer": optimizer,
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)

    def __repr__(self) -> str:
        shown = [repr(self.name)]
        if self.rules:
            shown.append(f"rules={list(self.rules)!r}")
        adam = {"betas": self.betas, "eps": self.eps, "step": self.step}
        shown += [f"{name}={value!r}" for name, value in adam.items() if value is not None]
        if self.optimizer is not None:
            shown.append(f"optimizer=<{type(self.optimizer).__name__}>")  # all of its groups would be long
        return f"Policy({', '.join(shown)})"


def bounded(
    *,
    betas: Sequence[SupportsFloat] | None = None,
    eps: SupportsFloat | None = None,
    step: AdamStep | None = None,
    optimizer: OptimizerLike | None = None,
    master_bits: SupportsIndex | None = 8,
    v_bits: SupportsIndex | None = 3,
    update_step: SupportsFloat | None = 0.02,
    rules: Iterable[str] = (),
) -> Policy:
    """Bounded loss, for `policy=`: masters and the moments of Adam become nearby numbers that take less.

    Weights, and everything that no rule is for, keep every bit. What was promised of a tensor and what was reached
    stands in the file, and inspect() shows it.

    What an update is made of (betas, eps, and the count of steps) is never guessed. Each of the three comes from the
    first that says it: the argument here; the optimizer, for moments that are its own memory; the state that is saved,
    where a dict in it is an optimizer's ``state_dict()``; and the optimizer, for all other moments, where none of the
    state is its own and where its groups, and their steps, agree.

    Args:
        betas: the two betas of Adam.
        eps: its epsilon.
        step: how many steps it has taken: an integer, or a function that is asked at each save. A Store, which saves
            many states, takes a function only.
        optimizer: one of torch, or what has its ``param_groups`` and ``state``; they are read at each save.
        master_bits: bits of mantissa that float32 masters keep beyond that of their weights, 0 to 15. They round to the
            same weights as before.
        v_bits: bits of mantissa that second moments (``exp_avg_sq``) keep, 0 to 22.
        update_step: first moments (``exp_avg``) become multiples of this part of the update that they make, above 0 and
            at most 1; beside the stored second moment the update is off by at most half of it. What inspect() gives
            as the bound has the second moment's own error in it.
        rules: other rules that come first, as in Policy.

    None for `master_bits`, `v_bits` or `update_step` keeps these tensors exact.

    Raises:
        InvalidArgumentError: a number is out of range, or a text is no rule.
        TypeError: an argument is of a wrong type.
    """
    if isinstance(rules, str) or not isinstance(rules, Iterable):
        raise TypeError(f"rules is a list of str, not {rules!r}")
    own = [
        "master=exact" if master_bits is None else f"master=master_bits:{_count_of(master_bits, 'master_bits')}",
        "exp_avg_sq=exact" if v_bits is None else f"exp_avg_sq=mantissa_bits:{_count_of(v_bits, 'v_bits')}",
        "exp_avg=exact" if update_step is None else f"exp_avg=update_step:{_float_of(update_step, 'update_step')!r}",
    ]
    return Policy("bounded", [*rules, *own], betas=betas, eps=eps, step=step, optimizer=optimizer)


def policy_of(policy: PolicyName | Policy) -> Policy:
    return policy if isinstance(policy, Policy) else Policy(policy)


def warn_of_idle_rules(policy: Policy, entries: Entries) -> None:
    """Says of each rule that fits no tensor that it does not; but for those that bounded() has for whole roles."""
    rules = [rule for rule in policy.rules if policy.name != "bounded" or ":" in rule.partition("=")[0]]
    if not rules:
        return
    for rule in _bitsnap.idle_rules(rules, [(entry.name, entry.dtype, entry.role) for entry in entries.items]):
        warnings.warn(f"the rule {rule!r} fits no tensor of the state", stacklevel=3)


def policy_for_many(policy: PolicyName | Policy, who: str) -> Policy:
    """The same for somebody who saves many states, and must not take the step of one for that of all."""
    chosen = policy_of(policy)
    if chosen.step is not None and not callable(chosen.step):
        raise InvalidArgumentError(
            f"step={chosen.step} is of one state, and {who} saves many: give a function, such as "
            "step=lambda: steps, or none where the state or optimizer= says it"
        )
    return chosen


def count_of(step: SupportsIndex) -> int:
    count = _count_of(step, "step")
    if count == 0:
        raise InvalidArgumentError("step is the number of steps that the optimizer has taken, from 1 on, not 0")
    return count


def _count_of(value: SupportsIndex, name: str) -> int:
    # Integers to Python; whoever gives one means something else.
    if isinstance(value, bool):
        raise TypeError(f"{name} is an integer, not {value!r}")
    return number_of(value, name)


def _float_of(value: SupportsFloat, name: str) -> float:
    # float() would read strings.
    if isinstance(value, str | bytes | bytearray | bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} is a number, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise InvalidArgumentError(f"{name} is a number that a float can tell, not one as large as this") from None


def _below(number: float, end: float, name: str) -> float:
    if not 0 <= number < end:
        expected = "finite" if end == math.inf else f"below {end:g}"
        raise InvalidArgumentError(f"{name} is a number from 0 on and {expected}, not {number!r}")
    return number


def _betas_of(betas: Sequence[SupportsFloat]) -> tuple[float, float]:
    if not isinstance(betas, list | tuple):
        raise TypeError(f"betas is a tuple of two numbers, not {betas!r}")
    if len(betas) != 2:
        raise InvalidArgumentError(f"betas is a tuple of two numbers, not of {len(betas)}")
    first, second = (_below(_float_of(beta, "a beta"), 1, "a beta") for beta in betas)
    return first, second
