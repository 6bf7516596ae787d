"""Saving the newest step of a store again as another attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

import bitsnap
from python.run_states import Run, filled
from python.same_bits import assert_same


def test_the_newest_step_is_replaced_if_asked(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 3)
    run = Run()
    with bitsnap.Store(tmp_path / "run", keep_base=True) as store:
        store.label(30, "epoch=3")
        with pytest.raises(bitsnap.InvalidArgumentError, match="step must be greater than 30"):
            store.save(30, run.state())
        with pytest.raises(bitsnap.InvalidArgumentError, match="step must be greater than 30"):
            store.save(20, run.state(), replace=True)
        before = store.snapshot(30)
        again = store.save(30, run.advance(), labels="last", replace=True)
        assert (again.step, again.base, again.labels) == (30, 20, ["epoch=3", "last"])
        assert_same(store.load(30), run.state())
        assert_same(bitsnap.load(before), states[2])
        assert store.save(40, run.advance(), replace=True).base == 30
        assert store.steps() == [10, 20, 30, 40]
        assert store.verify().strays == []


def test_processes_replace_with_another_attempt(tmp_path: Path) -> None:
    run = Run()
    with bitsnap.Store(tmp_path / "run", shared=True) as store:
        for attempt in ("a", "b"):
            for shard in range(2):
                store.save_shard(1, run.advance(), shard=shard, shards=2, attempt=attempt, replace=True)
            if attempt == "b":
                with pytest.raises(bitsnap.InvalidArgumentError, match="committed by attempt 'a', not 'b'"):
                    store.commit(1, 2, attempt)
            assert store.commit(1, 2, attempt, replace=True)
        assert_same(store.load(1, shard=1), run.state())
        with pytest.raises(bitsnap.InvalidArgumentError, match="another attempt"):
            store.save_shard(1, run.state(), shard=0, shards=2, attempt="b", replace=True)
