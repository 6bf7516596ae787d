"""Errors of moments and of updates, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bench.moment_errors import (
    Adam,
    Moments,
    element_errors,
    gradient_between,
    next_update_errors,
    update_errors,
    updates,
)


def floats(*numbers: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(numbers, dtype=np.float32)


# The first step: m = 0.5 g and v = 0.25 g^2, so that the bias correction gives back g and g^2.
FIRST = Adam(beta1=0.5, beta2=0.75, epsilon=0.0, step=1)


def test_the_relative_error_is_of_elements_that_are_not_0_and_the_square_of_all() -> None:
    errors = element_errors(floats(2, -4, 0, 0), floats(1, -5, 1, 0))
    assert errors.mre == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert errors.mse == pytest.approx(3 / 4)


def test_the_first_update_is_the_sign_of_the_gradient() -> None:
    gradient = np.array([3.0, -0.25])
    assert updates(0.5 * gradient, 0.25 * gradient**2, FIRST) == pytest.approx([1, -1])


def test_epsilon_is_added_to_the_corrected_root() -> None:
    adam = Adam(beta1=0.5, beta2=0.75, epsilon=1.0, step=1)
    assert updates(np.array([1.0]), np.array([1.0]), adam) == pytest.approx([2 / 3])


def test_errors_of_updates_are_shares_of_the_root_mean_square() -> None:
    # Updates 2, -2, 2 and -2 become 3, -2, 2 and -4 (v of 1/4 is what one of 1 becomes).
    before = Moments(floats(1, -1, 1, -1), floats(0.25, 0.25, 0.25, 0.25))
    after = Moments(floats(1.5, -1, 1, -1), floats(0.25, 0.25, 0.25, 0.0625))
    errors = update_errors(before, after, FIRST)
    assert errors.mean == pytest.approx((1 + 2) / 4 / 2)
    assert errors.rms == pytest.approx(np.sqrt((1 + 4) / 4) / 2)
    assert errors.median == pytest.approx(0.5 / 2)


def test_the_gradient_follows_from_two_first_moments() -> None:
    assert gradient_between(floats(1, -2), floats(2, 1), 0.5) == pytest.approx([3, 4])


def test_the_next_update_forgets_a_part_of_an_error() -> None:
    # m = 1 becomes 1/2 * 1 + 1/2 * 2 = 3/2; v = 4 becomes 3/4 * 4 + 1/4 * 4 = 4. After two steps 1 - 1/4 and 1 - 9/16.
    before, after = Moments(floats(1), floats(4)), Moments(floats(2), floats(4))
    errors = next_update_errors(before, after, np.array([2.0]), FIRST)
    assert errors.rms == pytest.approx(0.5 / 1.5)
    # Corrected: 3/2 / (3/4) = 2 and 4 / (7/16), whose root is 3.0237; with 1 for epsilon there is less to lose.
    with_epsilon = Adam(beta1=0.5, beta2=0.75, epsilon=1.0, step=1)
    after = Moments(floats(1), floats(20))
    errors = next_update_errors(before, after, np.array([2.0]), with_epsilon)
    assert errors.mean == pytest.approx(1 - (1 + 3.0237158) / (1 + 2 * 3.0237158))
    # With v = 20 in place of 4, it becomes 16: half of the update.
    errors = next_update_errors(before, Moments(floats(1), floats(20)), np.array([2.0]), FIRST)
    assert errors.mean == pytest.approx(0.5)
