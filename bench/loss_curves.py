"""Loss curves of trainings that were resumed, held against the one that was not: divergence, and jumps after a resume.

Curves are compared in pairs: the same seed, the same batches, the same dropout, so that the difference of two losses of
a step is what the resume made of it. No torch here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

WATCHED_STEPS = 5  # after a resume, for jumps


@dataclass(frozen=True)
class Curve:
    """`train[i]` is the loss of step i + 1; `held_out[i]` is of the model after step (i + 1) * `interval`."""

    seed: int
    way: str
    resumes: tuple[int, ...]  # the steps after which it was stored and loaded; none: it ran through
    train: tuple[float, ...]
    held_out: tuple[float, ...]
    interval: int


@dataclass(frozen=True)
class Divergence:
    """Of the differences of two curves behind the first resume, of one pair or of several together."""

    rms: float
    largest: float


@dataclass(frozen=True)
class Jump:
    """The largest that any resume was followed by.

    `rise` is the largest loss of the watched steps behind a resume less that of the step before it; `usual_rise` is the
    same of the steps of the uninterrupted run; `above` is by how much a loss was above the uninterrupted run's.
    """

    rise: float
    usual_rise: float
    above: float


def _train_differences(curve: Curve, uninterrupted: Curve) -> list[float]:
    first = curve.resumes[0]
    pairs = zip(curve.train[first:], uninterrupted.train[first:], strict=True)
    return [one - other for one, other in pairs]


def _held_out_differences(curve: Curve, uninterrupted: Curve) -> list[float]:
    # What was evaluated at the step of the resume itself is still the same model.
    first = curve.resumes[0] // curve.interval
    pairs = zip(curve.held_out[first:], uninterrupted.held_out[first:], strict=True)
    return [one - other for one, other in pairs]


def _divergence(differences: Sequence[float]) -> Divergence:
    magnitudes = np.abs(np.array(differences))
    return Divergence(float(np.sqrt((magnitudes**2).mean())), float(magnitudes.max()))


def train_divergence(pairs: Sequence[tuple[Curve, Curve]]) -> Divergence:
    return _divergence([difference for pair in pairs for difference in _train_differences(*pair)])


def held_out_divergence(pairs: Sequence[tuple[Curve, Curve]]) -> Divergence:
    return _divergence([difference for pair in pairs for difference in _held_out_differences(*pair)])


def mean_at_the_end(pairs: Sequence[tuple[Curve, Curve]], count: int) -> float:
    """By how much the last `count` held-out losses are above the uninterrupted run's; below 0 where they are lower."""
    last = [difference for pair in pairs for difference in _held_out_differences(*pair)[-count:]]
    return float(np.mean(last))


def largest_jump(pairs: Sequence[tuple[Curve, Curve]]) -> Jump:
    rises, usual_rises, aboves = [], [], []
    for curve, uninterrupted in pairs:
        for resume in curve.resumes:
            watched = slice(resume, resume + WATCHED_STEPS)
            after, usual = np.array(curve.train[watched]), np.array(uninterrupted.train[watched])
            rises.append(after.max() - curve.train[resume - 1])
            usual_rises.append(usual.max() - uninterrupted.train[resume - 1])
            aboves.append((after - usual).max())
    return Jump(float(max(rises)), float(max(usual_rises)), float(max(aboves)))


def rms_by_window(pairs: Sequence[tuple[Curve, Curve]], width: int) -> list[tuple[int, float]]:
    """Of the train loss behind the first resume, by `width` steps of all pairs together: the last step, and the RMS."""
    first = pairs[0][0].resumes[0]
    differences = np.array([_train_differences(*pair) for pair in pairs])
    lasts = range(width, differences.shape[1] + 1, width)
    return [(first + last, float(np.sqrt((differences[:, last - width : last] ** 2).mean()))) for last in lasts]
