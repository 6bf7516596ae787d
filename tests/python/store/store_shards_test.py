"""Ranks that save a checkpoint of a bitsnap.Store together, each its shard."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import bitsnap
from python.processes import STORE_IMPORTS, Start, finish_script
from python.run_states import state_of
from python.same_bits import assert_same

RANK = (
    STORE_IMPORTS
    + """
rank, ranks, steps = map(int, sys.argv[2:5])
with bitsnap.Store(path, shared=True, timeout=60, settings=bitsnap.Settings(max_depth=3)) as store:
    for step in range(1, steps + 1):
        moving = 7 if rank == step % ranks else None
        store.save_shard(step, state_of(step, rank, moving), shard=rank, shards=ranks, attempt=f"try-{step}")
        outcome = store.commit(step, ranks, f"try-{step}")
        assert bool(outcome) == (not outcome.missing)
        deadline = time.monotonic() + 60
        while step not in store:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        if outcome:
            checkpoint = outcome.checkpoint
            assert (checkpoint.step, checkpoint.shards) == (step, ranks)
            print(step)
"""
)


@pytest.mark.slow
def test_several_processes_save_a_checkpoint_together(tmp_path: Path, start: Start) -> None:
    bitsnap.Store(tmp_path / "run", shared=True).close()
    ranks, steps = 3, 6
    processes = [start(RANK, tmp_path / "run", rank, ranks, steps) for rank in range(ranks)]
    committed = [line for process in processes for line in finish_script(process).split()]
    assert {int(step) for step in committed} == set(range(1, steps + 1))
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        assert store.steps() == list(range(1, steps + 1))
        store.verify()
        for checkpoint in store.checkpoints():
            step = checkpoint.step
            assert checkpoint.shards == ranks
            assert checkpoint.raw_bytes == 4 * 50_000 * 4
            for rank in range(ranks):
                moving = 7 if rank == step % ranks else None
                assert_same(store.load(step, shard=rank), state_of(step, rank, moving))
            with pytest.raises(bitsnap.NotFoundError, match="3"):
                store.load(step, shard=ranks)
            if checkpoint.base is not None:
                # The tensor lay in another shard at the step before, and was found there.
                tensors = {each.name: each for each in bitsnap.inspect(store.snapshot(step, step % ranks)).tensors}
                assert tensors["expert7"].chunks_with_base > 0
                stored = tensors["expert7"].stored_bytes
                assert stored is not None
                assert stored < 0.2 * tensors["expert7"].raw_bytes
    with bitsnap.Store(tmp_path / "run") as store:
        with pytest.raises(bitsnap.BusyError):
            bitsnap.Store(tmp_path / "run", shared=True).save_shard(9, {}, shard=0, shards=1, attempt="a")
        store.prune(keep_last=1, reencode="always")
        assert_same(store.load(shard=1), state_of(steps, 1, 7 if steps % ranks == 1 else None))


def test_shards_of_two_attempts_are_never_mixed(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run", shared=True, keep_last=1, settings=bitsnap.Settings(max_depth=0)) as store:
        store.save_shard(1, {"a": 1}, shard=0, shards=2, attempt="first")
        outcome = store.commit(1, 2, "first")
        assert not outcome
        assert (outcome.checkpoint, outcome.missing) == (None, [1])
        store.save_shard(1, {"b": 2}, shard=1, shards=2, attempt="second")
        assert store.commit(1, 2, "first").missing == [1]
        assert store.commit(1, 2, "second").missing == [0]
        with pytest.raises(bitsnap.InvalidArgumentError, match="is to have 3 shards, but there is shard 0 of 2; all"):
            store.commit(1, 3, "first")
        assert store.steps() == []
        store.save_shard(1, {"a": "wrong"}, shard=0, shards=2, attempt="second")
        store.save_shard(1, {"a": 3}, shard=0, shards=2, attempt="second", metadata={"who": "rank 0"})
        outcome = store.commit(1, 2, "second")
        assert outcome
        assert outcome.missing == []
        assert outcome.checkpoint is not None
        assert outcome.checkpoint.shards == 2
        assert store.commit(1, 2, "second") == outcome
        assert store.load(1, shard=0) == store.load(shard=0) == {"a": 3}
        assert store.load(1, shard=1) == {"b": 2}
        assert store.snapshot(1, 0).metadata == {"who": "rank 0"}
        for shard in (0, 1):
            store.save_shard(2, {"shard": shard}, shard=shard, shards=2, attempt="third")
        assert store.commit(2, 2, "third")
        assert store.steps() == [2]
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"greater than 2, .*, got 1; .*pruned since"):
            store.commit(1, 2, "second")


def test_a_checkpoint_of_several_shards_is_loaded_as_one_or_by_the_shard(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run", shared=True) as store:
        store.save_shard(1, {"alone": 1}, shard=0, shards=1, attempt="a")
        assert store.commit(1, 1, "a")
        assert store.load() == store.load(1) == store.load(1, shard=0) == {"alone": 1}
        for shard in range(3):
            store.save_shard(2, {"shard": shard}, shard=shard, shards=3, attempt="b")
        assert store.commit(2, 3, "b")
        unclear: list[Callable[[], Any]] = [store.snapshot, lambda: store.snapshot(2)]
        for call in unclear:
            with pytest.raises(bitsnap.InvalidArgumentError, match=r"step 2 has 3 shards.* shard=0 to shard=2"):
                call()
        assert store.load() == store.load(2) == {f"rank-{shard}/shard": shard for shard in range(3)}
        assert store.load(shard=2) == {"shard": 2}
        assert store.load(1) == {"alone": 1}


def test_the_newest_is_loaded_while_it_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bitsnap.Store(tmp_path / "run", keep_last=1, settings=bitsnap.Settings(max_depth=0)) as writer:
        writer.save(1, {"step": 1})
        reader = bitsnap.Store(tmp_path / "run", read_only=True)
        latest = bitsnap.Store.latest

        def then_saved(store: bitsnap.Store) -> int | None:
            found = latest(store)
            if found == 1:
                writer.save(2, {"step": 2})
            return found

        monkeypatch.setattr(bitsnap.Store, "latest", then_saved)
        assert reader.load() == {"step": 2}


def test_other_handles_in_a_shared_store_save_meanwhile(tmp_path: Path) -> None:
    first = bitsnap.Store(tmp_path / "run", shared=True)
    second = bitsnap.Store(tmp_path / "run", shared=True)
    seen: list[bitsnap.SaveSummary] = []

    def meanwhile(done: int, total: int) -> None:
        if not seen:
            seen.append(second.save_shard(1, {"b": 2}, shard=1, shards=2, attempt="a"))

    first.save_shard(1, {"w": torch.randn(3 << 20)}, shard=0, shards=2, attempt="a", progress=meanwhile)
    assert seen
    assert second.commit(1, 2, "a")
    assert first.load(shard=1) == {"b": 2}
    assert os.listdir(tmp_path) == ["run"]  # noqa: PTH208
