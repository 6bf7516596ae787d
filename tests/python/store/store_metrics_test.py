"""Numbers of the training that checkpoints keep, such as the loss, and the best checkpoint by them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import bitsnap
from python.engine.checkpointer_jobs import Jobs

LOSSES = {1: 3.5, 2: 0.1 + 0.2, 3: math.nan, 4: 0.1 + 0.2, 5: math.inf}


def test_metrics_are_kept_with_each_checkpoint_and_name_the_best(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        for step, loss in LOSSES.items():
            saved = store.save(step, {"w": np.arange(step)}, metadata={"note": "x"}, metrics={"loss": loss, "k": step})
            assert saved.metrics["k"] == step
        store.save(6, {"w": np.arange(6)})
        found = {each.step: each.metrics.get("loss") for each in store.checkpoints()}
        assert str(found) == str({**LOSSES, 6: None})  # NaN is not equal to itself
        assert store.best("loss") == 4
        assert store.best("loss", highest=True) == store.best("k", highest=True) == 5
        assert store.load(2)["w"].tolist() == [0, 1]
        assert store.snapshot(2).metadata["note"] == "x"
        with pytest.raises(bitsnap.NotFoundError, match="has the metric 'lost'; did you mean 'loss'"):
            store.best("lost")


def test_rewriting_a_checkpoint_keeps_its_metrics(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        for step in range(1, 5):
            store.save(step, {"w": np.arange(100_000) + step}, metrics={"loss": 1 / step})
        store.prune(keep_last=1, reencode="always")
        assert [each.metrics for each in store.checkpoints()] == [{"loss": 0.25}]


def test_of_several_shards_the_first_one_with_metrics_counts(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run", shared=True) as store:
        for shard, metrics in enumerate([None, {"loss": 1.0}, {"loss": 2.0}]):
            state = {f"w{shard}": np.arange(3)}
            store.save_shard(7, state, shard=shard, shards=3, attempt="a", metrics=metrics)
        assert store.commit(7, 3, "a")
        assert store.checkpoint(7).metrics == {"loss": 1.0}


@pytest.mark.parametrize(
    ("metrics", "kind", "message"),
    [
        ({"loss": "2.5"}, TypeError, r"metrics\['loss'\] must be a number, got '2.5'"),
        ({"": 1.0}, bitsnap.InvalidArgumentError, "names that are str and not empty, got ''"),
        ({3: 1.0}, bitsnap.InvalidArgumentError, "got 3"),
        ([1.0], TypeError, r"metrics must be a dict of str to numbers, got \[1.0\]"),
    ],
)
def test_other_metrics_are_refused_by_name(tmp_path: Path, metrics: object, kind: type, message: str) -> None:
    with bitsnap.Store(tmp_path / "run") as store, pytest.raises(kind, match=message):
        store.save(1, {"w": np.arange(3)}, metrics=metrics)  # type: ignore[arg-type]


def test_an_agent_stores_metrics(jobs: Jobs) -> None:
    with jobs() as checkpointer:
        checkpointer.save(1, {"w": np.arange(3)}, metrics={"loss": np.float32(0.5)})
        checkpointer.wait()
    assert bitsnap.Store(jobs.path, read_only=True).checkpoint(1).metrics == {"loss": 0.5}


def test_steps_are_stored_when_the_clock_says_so(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("bitsnap._engine.steps._now", lambda: now)
    with jobs(every=2, every_minutes=1) as checkpointer:
        stored = []
        for step in range(1, 21):
            now += 20
            if checkpointer.save(step, {"w": np.arange(3)}) is not None:
                stored.append(step)
        checkpointer.wait()
        assert stored == [4, 8, 12, 16, 20]
        assert checkpointer.steps() == stored
    jobs2 = jobs(every_minutes=1, path=jobs.path.parent / "other", job=bitsnap.JobOptions(name=jobs.new_job()))
    with jobs2 as checkpointer:
        now += 120
        with pytest.raises(bitsnap.InvalidArgumentError):
            checkpointer.save(1, {"w": lambda: 0})
        assert checkpointer.save(2, {"w": np.arange(3)}) is not None  # the one that failed did not count
    with pytest.raises(bitsnap.InvalidArgumentError, match="every_minutes must not be negative, got -1"):
        jobs(every_minutes=-1)
