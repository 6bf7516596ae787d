"""Removing checkpoints of a store by their steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bitsnap
from python.run_states import filled
from python.same_bits import assert_same


def test_removes_these_steps_and_keeps_all_others(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 6)
    with bitsnap.Store(tmp_path / "run") as store:
        store.label(20, "best")
        dry = store.remove([20, 60], dry_run=True)
        assert dry.dry_run
        assert len(store) == 6
        report = store.remove([20, np.int64(60)], reencode="never")
        assert report.kept == [10, 30, 40, 50]
        assert [each.step for each in report.removed] == [60]
        assert [each.step for each in report.needed] == [20]
        assert store.labels() == {}
        for step in store.steps():
            assert_same(store.load(step), states[step // 10 - 1])
        # The newest is gone, so its step can be saved again.
        assert store.save(60, states[5]).base == 50
        store.remove(60)
        assert store.latest() == 50
        store.verify()


def test_missing_steps_and_the_last_checkpoint_are_refused(tmp_path: Path) -> None:
    filled(tmp_path / "run", 3)
    with bitsnap.Store(tmp_path / "run") as store:
        with pytest.raises(bitsnap.NotFoundError, match="step 25 not found; nearby are 10, 20 and 30"):
            store.remove([10, 25])
        with pytest.raises(bitsnap.InvalidArgumentError, match="at least one undamaged checkpoint") as refused:
            store.remove(store.steps())
        assert refused.value.field == "steps"
        with pytest.raises(TypeError, match="steps must be an integer"):
            store.remove(["10"])  # type: ignore[list-item]
        assert store.remove([]).removed == []
        assert store.steps() == [10, 20, 30]
