"""What tensors lost before they were stored: what was promised, and what was reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# The unit that a bound is in, where it is not a part of the element.
_BOUND_OF = {"update_step": "of the update", "clusters": "absolute"}


@dataclass(frozen=True)
class AdamNumbers:
    """What Adam's next update is computed with."""

    betas: tuple[float, float]
    eps: float
    step: int  # steps that were taken


@dataclass(frozen=True)
class ErrorTally:
    """How far elements moved. Relative errors are parts of the element itself, absolute ones in the tensor's unit."""

    elements: int
    changed: int  # have other bits than before
    finite: int  # neither infinite nor NaN
    nonzero: int  # finite and not 0
    past_nearest: int  # not at what was nearest, within twice the bound
    max_relative: float
    mean_relative: float  # over those that are not 0
    max_absolute: float
    mean_square: float  # of absolute errors, over those that are finite

    @property
    def kept_exact(self) -> int:
        """Elements with the bits that they had."""
        return self.elements - self.changed


@dataclass(frozen=True)
class UpdateErrors:
    """How far the updates moved that moments make: u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps).

    From both moments as they were and as they are stored.
    """

    elements: int  # that were looked at, a part of all, and whose update is finite
    largest: float  # of the differences
    mean: float
    mean_square: float
    mean_of_updates: float  # of the updates as they were, by magnitude
    mean_square_of_updates: float


@dataclass(frozen=True)
class LossReport:
    """What became of a tensor before it was stored."""

    name: str  # "mantissa_bits", "master_bits", "update_step" or "clusters"
    amount: float  # bits, part of an update, or the number of clusters
    bound: float | None  # most that an element is off (past nearest, twice that); None where nothing bounds it
    bound_of: str  # what `bound` is in: "relative" to the element, "absolute", or "of the update" that it makes
    # Of update_step: most that the next update is off, and all later ones together; None where that is not known.
    next_update_bound: float | None
    all_updates_bound: float | None
    adam: AdamNumbers | None  # of a first moment
    reached: ErrorTally
    updates: UpdateErrors | None  # of a first moment whose AdamNumbers are known


def quantizer_of(found: dict[str, Any] | None) -> LossReport | None:
    if found is None:
        return None
    adam, updates = found["adam"], found["updates"]
    return LossReport(
        name=found["name"],
        amount=found["amount"],
        bound=found["bound"],
        bound_of=_BOUND_OF.get(found["name"], "relative"),
        next_update_bound=found["next_update_bound"],
        all_updates_bound=found["all_updates_bound"],
        adam=None if adam is None else AdamNumbers((adam[0], adam[1]), adam[2], adam[3]),
        reached=ErrorTally(**found["reached"]),
        updates=_updates_of(updates) if updates["elements"] else None,
    )


def _updates_of(found: dict[str, Any]) -> UpdateErrors:
    count = found["elements"]
    return UpdateErrors(
        elements=count,
        largest=found["largest"],
        mean=found["sum"] / count,
        mean_square=found["sum_square"] / count,
        mean_of_updates=found["sum_update"] / count,
        mean_square_of_updates=found["sum_update_square"] / count,
    )
