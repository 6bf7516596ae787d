"""Samples of roles, and the pairs of the corpus."""

from __future__ import annotations

import numpy as np
import pytest

from bench.baselines.method import Sample
from bench.corpus_runs import DISTANCES, RUNS, all_pairs, run_named
from bench.state_samples import CHUNK_ELEMENTS, part_of, repeat, spread

CHUNK = 2 * CHUNK_ELEMENTS


def chunks_of(data: np.ndarray) -> list[int]:
    return [int(data[begin]) for begin in range(0, data.size, CHUNK)]


def test_a_part_consists_of_whole_chunks_spread_evenly() -> None:
    data = np.repeat(np.arange(9, dtype=np.uint8), CHUNK)
    assert chunks_of(spread(data, 2, 3 * CHUNK)) == [1, 4, 7]
    assert spread(data, 2, 2 * CHUNK + 1).size == 3 * CHUNK


def test_a_part_as_large_as_the_role_is_the_whole_role() -> None:
    data = np.arange(2 * CHUNK + 10, dtype=np.uint32).astype(np.uint8)
    assert spread(data, 2, 2 * CHUNK) is data
    assert spread(data[:100], 2, 1).size == 100


def test_the_same_share_of_a_part_changes_as_of_the_pair() -> None:
    base = np.zeros(20 * CHUNK + 6, np.uint8)
    data = base.copy()
    data[7 * CHUNK : 11 * CHUNK] = 1  # a fifth, all of it in one place
    part = part_of(Sample("weight", "BF16", data, base), 5 * CHUNK, 0)
    assert part.base is not None
    assert part.data.size == part.base.size == 5 * CHUNK
    assert (part.data != part.base).mean() == pytest.approx(0.2)


def test_small_roles_are_repeated_whole() -> None:
    data = np.arange(10, dtype=np.uint8)
    assert repeat(data, 25).tolist() == data.tolist() * 3
    assert repeat(data, 10) is data


def test_every_phase_has_pairs_of_every_distance_that_its_run_reaches() -> None:
    pairs = all_pairs()
    assert len({pair.name for pair in pairs}) == len(pairs)
    for run in RUNS:
        for phase, first in run.phases.items():
            assert {pair.distance for pair in pairs if (pair.run, pair.phase) == (run.name, phase)} == set(DISTANCES)
            assert first >= 1
        assert run.written_steps()[-1] <= run.steps


def test_the_phases_are_warm_up_middle_and_decayed_end() -> None:
    for name in ("beta95", "beta999"):
        run = run_named(name)
        assert run.phases["warm-up"] + DISTANCES[-1] <= run.warmup
        assert run.phases["end"] + DISTANCES[-1] == run.steps
    assert {run_named("beta95").beta2, run_named("beta999").beta2} == {0.95, 0.999}


def test_an_unknown_run_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no run 'other'; the runs are beta95"):
        run_named("other")
