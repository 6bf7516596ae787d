"""Divergences and jumps of loss curves, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from bench.loss_curves import (
    Curve,
    held_out_divergence,
    largest_jump,
    mean_at_the_end,
    rms_by_window,
    train_divergence,
)


def curve(train: list[float], held_out: list[float], resumes: tuple[int, ...] = (), seed: int = 1) -> Curve:
    return Curve(seed, "way", resumes, tuple(train), tuple(held_out), interval=2)


USUAL = curve([9, 8, 7, 6, 5, 4, 3, 2], [8, 6, 4, 2])
# Resumed behind step 2; what differs before it is none of the resume's doing.
RESUMED = curve([0, 8, 7, 9, 5, 0, 3, 2], [0, 6, 5, 0], resumes=(2,))


def test_only_steps_behind_the_first_resume_count() -> None:
    found = train_divergence([(RESUMED, USUAL)])
    assert found.rms == pytest.approx(math.sqrt((9 + 16) / 6))
    assert found.largest == 4
    found = held_out_divergence([(RESUMED, USUAL)])
    assert found.rms == pytest.approx(math.sqrt((1 + 4) / 3))
    assert found.largest == 2


def test_seeds_are_taken_together() -> None:
    other = curve(list(USUAL.train), list(USUAL.held_out), resumes=(4,), seed=2)
    found = train_divergence([(RESUMED, USUAL), (other, USUAL)])
    assert found.rms == pytest.approx(math.sqrt((9 + 16) / 10))
    assert mean_at_the_end([(RESUMED, USUAL), (other, USUAL)], 2) == pytest.approx((1 - 2) / 4)


def test_a_jump_is_looked_for_behind_every_resume_and_not_elsewhere() -> None:
    usual = curve([5.0] * 20, [5.0] * 10)
    train = [5.0] * 20
    train[2] = 100  # before any resume
    train[4] = 5.5
    train[13] = 4.75
    train[17] = 50  # the sixth step behind the second
    found = largest_jump([(curve(train, [5.0] * 10, resumes=(4, 12)), usual)])
    assert (found.rise, found.usual_rise, found.above) == (0.5, 0, 0.5)


def test_a_rise_that_the_uninterrupted_run_has_too_is_none_of_the_resume() -> None:
    usual = curve([5.0, 5.0, 7.0, 5.0, 5.0, 5.0, 5.0, 5.0], [5.0] * 4)
    found = largest_jump([(curve(list(usual.train), [5.0] * 4, resumes=(2,)), usual)])
    assert (found.rise, found.usual_rise, found.above) == (2, 2, 0)


def test_a_jump_is_counted_from_the_step_before_the_resume() -> None:
    usual = curve([5.0, 6.0, 5.0, 5.5, 5.0, 5.0, 5.0, 9.0], [5.0] * 4)
    found = largest_jump([(curve(list(usual.train), [5.0] * 4, resumes=(2,)), usual)])
    assert (found.rise, found.usual_rise) == (-0.5, -0.5)


def test_curves_of_another_length_are_no_pair() -> None:
    with pytest.raises(ValueError, match="zip"):
        train_divergence([(curve([1.0] * 7, [1.0] * 4, resumes=(2,)), USUAL)])


def test_steps_of_all_seeds_are_taken_by_windows() -> None:
    other = curve([9, 8, 7, 2, 5, 4, 3, 0], list(USUAL.held_out), resumes=(2,))
    # Behind step 2: 0, 3, 0, -4, 0 and 0; and 0, -4, 0, 0, 0 and -2.
    found = rms_by_window([(RESUMED, USUAL), (other, USUAL)], 2)
    assert [step for step, _ in found] == [4, 6, 8]
    assert [rms for _, rms in found] == pytest.approx([math.sqrt(number / 4) for number in (9 + 16, 16, 4)])
    assert [step for step, _ in rms_by_window([(RESUMED, USUAL)], 4)] == [6]
