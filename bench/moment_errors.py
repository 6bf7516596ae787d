"""What it costs to have other moments: errors of the moments themselves, and of the updates that Adam makes of them.

The update is what a parameter moves by but for the learning rate, with bias correction, in float64:
u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon). Its errors are given as shares of the root mean square of
the exact ones. The *next* update is of both moments after a step with the same gradient. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Elements = NDArray[np.float32]


@dataclass(frozen=True)
class Adam:
    """Hyperparameters, and the steps that were taken."""

    beta1: float
    beta2: float
    epsilon: float
    step: int


@dataclass(frozen=True)
class Moments:
    exp_avg: Elements
    exp_avg_sq: Elements


@dataclass(frozen=True)
class ElementErrors:
    """mre: mean relative error of elements that are not 0; mse: mean square error of all."""

    mre: float
    mse: float


@dataclass(frozen=True)
class UpdateErrors:
    """Shares of the root mean square of the exact updates: the mean, root mean square and median error."""

    mean: float
    rms: float
    median: float


_SLICE = 1 << 18  # elements that are looked at together: few enough to stay in the cache


def _slices(count: int) -> list[slice]:
    return [slice(first, min(first + _SLICE, count)) for first in range(0, count, _SLICE)]


def element_errors(before: Elements, after: Elements) -> ElementErrors:
    relative = square = 0.0
    nonzero = 0
    for part in _slices(before.size):
        exact = before[part].astype(np.float64)
        error = np.abs(after[part] - exact)
        square += float((error**2).sum())
        counted = exact != 0
        nonzero += int(counted.sum())
        relative += float((error[counted] / np.abs(exact[counted])).sum())
    return ElementErrors(relative / max(nonzero, 1), square / max(before.size, 1))


def updates(exp_avg: NDArray[np.float64], exp_avg_sq: NDArray[np.float64], adam: Adam) -> NDArray[np.float64]:
    upper = exp_avg / (1 - adam.beta1**adam.step)
    lower: NDArray[np.float64] = np.sqrt(exp_avg_sq / (1 - adam.beta2**adam.step)) + adam.epsilon
    return upper / lower


def _compare(
    before: Moments, after: Moments, update_of: Callable[[Moments, slice], NDArray[np.float64]]
) -> UpdateErrors:
    count = before.exp_avg.size
    errors = np.empty(count, dtype=np.float64)
    square_of_exact = 0.0
    for part in _slices(count):
        exact = update_of(before, part)
        square_of_exact += float((exact**2).sum())
        np.abs(update_of(after, part) - exact, out=errors[part])
    unit = float(np.sqrt(square_of_exact / count))
    rms = float(np.sqrt((errors @ errors) / count))
    return UpdateErrors(float(errors.mean()) / unit, rms / unit, float(np.median(errors)) / unit)


def update_errors(before: Moments, after: Moments, adam: Adam) -> UpdateErrors:
    def update_of(moments: Moments, part: slice) -> NDArray[np.float64]:
        return updates(moments.exp_avg[part].astype(np.float64), moments.exp_avg_sq[part].astype(np.float64), adam)

    return _compare(before, after, update_of)


def gradient_between(earlier: Elements, later: Elements, beta1: float) -> NDArray[np.float64]:
    """The gradient, clipped as the optimizer saw it, that made the second exp_avg of the first."""
    return (later - beta1 * earlier.astype(np.float64)) / (1 - beta1)


def next_update_errors(before: Moments, after: Moments, gradient: NDArray[np.float64], adam: Adam) -> UpdateErrors:
    """Of the update of the step `adam.step` + 1, where `gradient` is that step's, whatever the moments are."""
    following = Adam(adam.beta1, adam.beta2, adam.epsilon, adam.step + 1)

    def update_of(moments: Moments, part: slice) -> NDArray[np.float64]:
        return updates(
            adam.beta1 * moments.exp_avg[part].astype(np.float64) + (1 - adam.beta1) * gradient[part],
            adam.beta2 * moments.exp_avg_sq[part].astype(np.float64) + (1 - adam.beta2) * gradient[part] ** 2,
            following,
        )

    return _compare(before, after, update_of)
