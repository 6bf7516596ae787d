"""What is looked for among the settings, and a state of random moments measured from end to end in blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from bench.bitsnap_command import BitsnapCommand
from bench.corpus_runs import state_path
from bench.moment_quantizers import (
    Measured,
    Quantizer,
    StateMeasurement,
    answers_table,
    least_error_at_no_more_bytes,
    quantizers,
    smallest_at_no_higher_error,
    worst_share,
)


def measured(
    name: str, size: float, error: float, *, mre: tuple[float, float] = (0.1, 0.1), nominal: float = 0
) -> Measured:
    sizes = {"exp_avg": size / 2, "exp_avg_sq": size / 2}
    both = dict(zip(("exp_avg", "exp_avg_sq"), mre, strict=True))
    kind = "clusters" if nominal else "ours"
    return Measured("state", name, kind, nominal, sizes, sizes, both, both, error, error, error, error, error)


OURS = [measured("fine", 4, 0.01), measured("middle", 2, 0.1), measured("coarse", 1, 1)]


def test_the_smallest_of_no_higher_error_and_the_most_exact_of_no_more_bytes() -> None:
    other = measured("other", 3, 0.1)
    small = smallest_at_no_higher_error(OURS, other, "update, RMS")
    exact = least_error_at_no_more_bytes(OURS, other, "update, RMS")
    assert small is not None
    assert small.name == "middle"
    assert exact is not None
    assert exact.name == "middle"
    assert smallest_at_no_higher_error(OURS, measured("other", 3, 0.001), "update, RMS") is None
    assert least_error_at_no_more_bytes(OURS, measured("other", 0.5, 0.1), "update, RMS") is None


def test_neither_moment_may_be_worse() -> None:
    other = measured("other", 2, 0.1, mre=(0.2, 0.05))
    assert worst_share(OURS[0], other, "MRE of m and v") == pytest.approx(2)
    assert smallest_at_no_higher_error(OURS, other, "MRE of m and v") is None


def test_a_published_format_counts_as_published_where_a_file_takes_more() -> None:
    assert measured("clusters", 5, 1, nominal=1.5).least_bytes() == 3
    assert measured("clusters", 2, 1, nominal=1.5).least_bytes() == 2


def test_the_table_says_what_was_found_and_what_it_gains() -> None:
    table = answers_table(
        [*OURS, measured("clusters", 5, 0.1, nominal=1.5)],
        smallest_at_no_higher_error,
        lambda mine, other, _: other.least_bytes() / mine.least_bytes(),
    )
    row = next(line for line in table if "update, RMS" in line)
    assert [cell.strip() for cell in row.split("|")[1:-1]] == ["clusters", "update, RMS", "1.5 (middle)"]


def test_the_first_setting_is_the_policy_and_the_published_formats_have_their_sizes() -> None:
    found = quantizers()
    assert found[0].options == ("--policy", "bounded")
    assert {one.name: one.nominal_bytes for one in found if one.kind == "clusters"} == {
        "16 clusters": 1.5,
        "256 clusters": 2.0,
    }


def test_blocks_of_a_state_are_measured_over_all_its_elements(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    gradients = {"large": generator.normal(size=(80, 80)), "small": generator.normal(size=100)}
    (tmp_path / "beta95").mkdir()
    for step in (300, 301, 310):
        tensors = {f"exp_avg.{name}": x.astype(np.float32) for name, x in gradients.items()}
        tensors |= {f"exp_avg_sq.{name}": (x**2).astype(np.float32) for name, x in gradients.items()}
        save_file(tensors, state_path(tmp_path, "beta95", step))
    state = StateMeasurement(tmp_path, "beta95", "middle", BitsnapCommand(Path("none")), tmp_path)
    found = state.measure(Quantizer("blocks", "blockwise"))
    assert found.state == "beta95, middle (310)"
    assert found.alone["exp_avg"] == pytest.approx((6400 + 4 * 25 + 400) / 6500)
    assert 0.001 < found.mre["exp_avg"] < 0.1
    assert 0.001 < found.update_median < 0.1
    assert found.next_rms > 0
