"""The best baselines of whole states."""

from __future__ import annotations

import pytest

from bench.benchmark_results import Measurement
from bench.whole_states import best_baselines


def measured(role: str, distance: int, ratio: float, method: str = "baseline", kind: str = "baseline") -> Measurement:
    return Measurement(
        run="run",
        phase="middle",
        step=10 + distance,
        distance=distance,
        role=role,
        method=method,
        kind=kind,
        is_slow=False,
        threads=1,
        role_bytes=1000,
        raw_bytes=1000,
        encoded_bytes=round(1000 / ratio),
        encode_s=1.0,
        decode_s=1.0,
        runs=1,
    )


ROLES = ("weight", "master", "exp_avg", "exp_avg_sq")


def test_each_role_uses_its_best_baseline() -> None:
    results = [measured(role, 0, 2.0) for role in ROLES]
    results += [measured("weight", 0, 4.0, "other"), measured("master", 0, 100.0, "ours", "ours")]
    assert best_baselines(results) == {("run", 10, 0): pytest.approx(14 / (2 / 4 + 12 / 2))}


def test_a_role_is_coded_alone_if_its_difference_is_larger() -> None:
    results = [measured(role, 0, 2.0) for role in ROLES] + [measured(role, 1, 4.0) for role in ROLES[:3]]
    results.append(measured("exp_avg_sq", 1, 1.25))
    assert best_baselines(results)["run", 11, 1] == pytest.approx(14 / (10 / 4 + 4 / 2))


def test_a_state_is_left_out_if_a_role_has_no_measured_baseline() -> None:
    assert best_baselines([measured(role, 0, 2.0) for role in ROLES[1:]]) == {}
