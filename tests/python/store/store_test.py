"""bitsnap.Store in one process: saving, loading, pruning, and refused calls."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from python.run_states import Run, files_of, filled, frozen
from python.same_bits import assert_same


def snapshot_files(store: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_of(store).items() if name.endswith(".bsnap")}


@pytest.mark.parametrize("policy", ["lossless", "lmc", "bitsnap", "raw"])
@pytest.mark.parametrize("base", ["previous", "keyframe"])
def test_every_state_of_a_chain_comes_back_in_every_bit(tmp_path: Path, policy: Any, base: Any) -> None:
    loss = ["*=exact"] if policy == "bitsnap" else None
    settings = bitsnap.Settings(policy=policy, base=base, max_depth=4, loss=loss)
    states = filled(tmp_path / "run", 12, settings=settings)
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        assert store.steps() == list(range(10, 130, 10))
        for step, state in zip(store.steps(), states, strict=True):
            assert_same(store.load(step), state)
        assert_same(store.load(), states[-1])
        store.verify()
        assert store.damages() == []
        found = store.checkpoints()
    # Four that are coded against another one, then one that stands by itself.
    assert [each.links for each in found] == [i % 5 for i in range(12)]
    for i, each in enumerate(found):
        before = {"previous": i - 1, "keyframe": i // 5 * 5}[base]
        assert each.base == (found[before].step if each.links else None)
        # One at least, for what has not changed at all lies where it was first stored.
        assert each.depth <= (max(1, each.links) if base == "previous" else 1)
    if policy == "lossless":
        assert sum(each.stored_bytes for each in found) < 0.9 * sum(each.raw_bytes for each in found)


def test_tied_tensors_come_back_tied(tmp_path: Path) -> None:
    filled(tmp_path / "run", 2)
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        state = store.load()
    assert state["model"]["wte"] is state["model"]["head"]


def test_a_checkpoint_says_what_it_is(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    run = Run()
    with bitsnap.Store(tmp_path / "run") as store:
        first = store.save(5, run.advance())
        second = store.save(7, run.advance(), metadata={"note": "after the merge"})
        assert store.checkpoints() == [first, second]
        assert store.checkpoint(7) == second
        assert store.snapshot(7).metadata == {"note": "after the merge"}
        assert store.snapshot(5).metadata == {}
    assert (first.step, first.base, first.links, first.depth, first.shards, first.damage) == (5, None, 0, 0, 1, None)
    assert (second.step, second.base, second.links, second.shards) == (7, 5, 1, 1)
    assert second.depth >= 1
    assert first.raw_bytes == second.raw_bytes == bitsnap.save(tmp_path / "a.bsnap", run.state()).raw_bytes
    assert second.stored_bytes == sum(
        path.stat().st_size for path in (tmp_path / "run" / "checkpoints" / "0000000007").iterdir()
    )
    assert second.ratio == second.raw_bytes / second.stored_bytes
    assert first.time.tzinfo is UTC
    assert before - timedelta(seconds=1) <= first.time <= second.time <= datetime.now(UTC) + timedelta(seconds=1)
    with pytest.raises(AttributeError):
        first.step = 6  # type: ignore[misc]


def test_a_store_counts_and_knows_its_steps(tmp_path: Path) -> None:
    run = Run()
    with bitsnap.Store(tmp_path / "run") as store:
        assert (store.steps(), store.checkpoints(), store.latest(), len(store)) == ([], [], None, 0)
        for step in (0, 3, np.int64(8), torch.tensor(9)):
            store.save(step, run.advance())
        assert (store.steps(), store.latest(), len(store)) == ([0, 3, 8, 9], 9, 4)
        assert 3 in store
        assert 4 not in store
        assert "3" not in store
        assert_same(store.load(np.int64(9)), run.state())


def test_a_store_remembers_how_it_was_made(tmp_path: Path) -> None:
    with bitsnap.Store(
        tmp_path / "run", settings=bitsnap.Settings(policy="raw", base="keyframe", max_depth=0)
    ) as store:
        run_id = store.run_id
        assert len(run_id) == 32
    run = Run()
    with bitsnap.Store(tmp_path / "run") as store:
        assert (store.settings.policy, store.run_id, store.is_durable) == ("raw", run_id, True)
        assert store.path == tmp_path / "run"
        store.save(1, run.advance())
        assert store.save(2, run.advance()).base is None
    with bitsnap.Store(
        tmp_path / "run", settings=bitsnap.Settings(policy="lossless", max_depth=8, base="previous")
    ) as store:
        assert store.settings.policy == "lossless"
        assert store.save(3, run.advance()).base == 2
    with bitsnap.Store(tmp_path / "other") as store:
        assert store.run_id != run_id
        assert (store.settings.policy, store.settings.objective) == ("lossless", "balanced")
    with bitsnap.Store(
        tmp_path / "third", settings=bitsnap.Settings(objective="speed", store_speed=10**7, codec="zstd")
    ) as store:
        store.save(1, run.advance())
        assert {codec for tensor in inspected(store) for codec in tensor.codecs} == {"zstd", "raw"}
    with bitsnap.Store(tmp_path / "third") as store:
        assert store.settings.objective == "speed"
        store.save(2, run.advance())
        assert not any("forced" in tensor.reason for tensor in inspected(store))


def inspected(store: bitsnap.Store) -> list[Any]:
    return [tensor for tensor in bitsnap.inspect(store.snapshot()).tensors if tensor.codecs]


def test_a_state_is_filled_in_place(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 3)
    target = frozen(states[0])
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        loaded = store.load(30, target)
        assert_same(loaded, states[2])
        assert loaded["master"]["wte"] is target["master"]["wte"]
        only = store.load(20, into={"master": target["master"]}, keys="master")
        assert_same(only, {"master": states[1]["master"]})
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['master'\]\['more'\]"):
            store.load(30, into={**target, "master": {**target["master"], "more": torch.ones(1)}})
        more = {"more": torch.ones(1)}
        assert_same(store.load(30, more, "master", strict=False), {"master": states[2]["master"]})


def test_a_part_of_a_state_is_loaded_by_its_keys(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 2)
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        assert_same(store.load(keys="model.frozen"), {"model": {"frozen": states[1]["model"]["frozen"]}})
        assert_same(
            store.load(10, keys=lambda name: name.endswith("exp_avg")),
            {"optimizer": {"state": {0: {"exp_avg": states[0]["optimizer"]["state"][0]["exp_avg"]}}}},
        )
        with pytest.raises(bitsnap.NotFoundError, match="nowhere"):
            store.load(keys=["model", "nowhere"])
        with pytest.raises(bitsnap.InvalidArgumentError, match="marsupial"):
            store.load(map_location="marsupial")
        assert store.load(map_location="meta", keys="master")["master"]["wte"].is_meta


def test_a_snapshot_of_a_store_works_with_all_that_takes_one(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 3)
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        newest, first = store.snapshot(), store.snapshot(10)
    with bitsnap.safe_open(newest, "pt") as opened:
        assert_same(opened.get_slice("master.wte")[5:9, ::3], states[2]["master"]["wte"][5:9, ::3])
    assert_same(bitsnap.load(newest), states[2])
    assert bitsnap.inspect(newest).id == newest.id != first.id
    assert newest.path.is_relative_to(tmp_path / "run" / "checkpoints" / "0000000030")
    bitsnap.verify(newest)
    bitsnap.decompress(newest, tmp_path / "a.safetensors")
    bitsnap.save(tmp_path / "a.bsnap", states[2], base=first)
    assert_same(bitsnap.load(tmp_path / "a.bsnap", bases=tmp_path / "run" / "checkpoints" / "0000000010"), states[2])


def test_saving_removes_what_is_not_to_be_kept(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 12, keep_last=2, keep_every=50, settings=bitsnap.Settings(max_depth=2))
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        assert store.steps() == [50, 100, 110, 120]
        for step in store.steps():
            assert_same(store.load(step), states[step // 10 - 1])
        store.verify()
        with pytest.raises(bitsnap.NotFoundError, match="40"):
            store.load(40)
    # What is on disk beyond that is what these are coded against: 50 against 40, and 110 and 120 against 100.
    directories = {int(path.name) for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert {50, 100, 110, 120} <= directories <= {10, 40, 50, 70, 100, 110, 120}


def test_pruning_says_what_it_does_and_a_dry_run_does_nothing(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 6, settings=bitsnap.Settings(max_depth=2))
    before = files_of(tmp_path / "run")
    with bitsnap.Store(tmp_path / "run") as store:
        sizes = {each.step: each.stored_bytes for each in store.checkpoints()}
        dry = store.prune(keep_last=1, keep=[20], reencode="never", dry_run=True)
        assert files_of(tmp_path / "run") == before
        report = store.prune(keep_last=1, keep=[np.int64(20)], reencode="never")
        assert dry == report
        assert report.kept == [20, 60]
        assert (dry.dry_run, report.dry_run) == (True, False)
        assert report.rewritten == []
        assert all(each.bytes == sizes[each.step] for each in report.removed)
        assert report.removed_bytes == sum(each.bytes for each in report.removed)
        assert (report.needed[0].step, report.needed[0].by) in ((10, 20), (10, 60))
        others = [each.step for each in report.removed] + [each.step for each in report.needed]
        assert sorted([*report.kept, *others]) == list(sizes)
        assert store.steps() == report.kept
        for step in store.steps():
            assert_same(store.load(step), states[step // 10 - 1])

        again = store.prune(keep=[20], reencode="always")
        assert store.steps() == again.kept == [20, 60]
        assert [each.step for each in again.removed] == [each.step for each in report.needed]
        assert again.needed == []
        assert {each.step for each in again.rewritten} <= {20, 60}
        assert all(each.bytes_after > 0 for each in again.rewritten)
        for step in store.steps():
            assert_same(store.load(step), states[step // 10 - 1])
        store.verify()


def test_a_snapshot_that_is_open_outlives_its_checkpoint(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 4)
    with bitsnap.Store(tmp_path / "run") as store:
        snapshot = store.snapshot(20)
        store.prune(keep_last=1, reencode="always")
        assert store.steps() == [40]
    assert_same(bitsnap.load(snapshot), states[1])


def test_training_goes_on_from_an_earlier_step_after_a_rollback(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 5)
    run = Run(seed=9)
    with bitsnap.Store(tmp_path / "run") as store:
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"greater than 50, .*, got 30"):
            store.save(30, run.advance())
        with pytest.raises(bitsnap.InvalidArgumentError, match="50"):
            store.save(50, run.state())
        with pytest.raises(bitsnap.NotFoundError, match="25"):
            store.rollback(25)
        assert len(store) == 5
        sizes = {each.step: each.stored_bytes for each in store.checkpoints()}
        report = store.rollback(20)
        assert (report.removed, report.removed_bytes) == ([50, 40, 30], sizes[30] + sizes[40] + sizes[50])
        assert store.rollback(20).removed == []
        saved = store.save(30, run.state())
        assert saved.base == 20
        assert store.steps() == [10, 20, 30]
        assert_same(store.load(), run.state())
        assert_same(store.load(20), states[1])


@pytest.mark.parametrize("keep_base", [True, 1 << 30, 1000])
def test_the_files_are_the_same_with_the_base_in_memory(tmp_path: Path, keep_base: int | bool) -> None:
    filled(tmp_path / "a", 6, settings=bitsnap.Settings(max_depth=3))
    filled(tmp_path / "b", 6, settings=bitsnap.Settings(max_depth=3), keep_base=keep_base)
    expected = snapshot_files(tmp_path / "a")
    assert snapshot_files(tmp_path / "b") == expected
    assert len(expected) == 6


def test_the_files_are_the_same_for_any_number_of_threads(tmp_path: Path) -> None:
    for threads in (1, 2, 5):
        filled(tmp_path / str(threads), 3, threads=threads)
    assert snapshot_files(tmp_path / "1") == snapshot_files(tmp_path / "2") == snapshot_files(tmp_path / "5")


def test_a_state_that_cannot_be_stored_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 2)
    before = files_of(tmp_path / "run")
    with bitsnap.Store(tmp_path / "run") as store:
        for bad, message in ((len, r"state\['bad'\]"), (torch.empty(1, device="meta"), r"state\['bad'\]")):
            with pytest.raises(bitsnap.InvalidArgumentError, match=message):
                store.save(30, {**states[0], "bad": bad})
        with pytest.raises(bitsnap.InvalidArgumentError, match="nobody"):
            store.save(30, states[0], roles={"nobody": "weight"})
        with pytest.raises(bitsnap.InvalidArgumentError, match="metadata"):
            store.save(30, states[0], metadata={"step": 30})  # type: ignore[dict-item]
        assert files_of(tmp_path / "run") == before
        store.save(30, states[0], roles={"model.wte": "other"})
        assert {each.name: each.role for each in bitsnap.inspect(store.snapshot()).tensors}["model.wte"] == "other"


def test_a_save_that_is_stopped_leaves_the_store_as_it_was_and_the_next_one_works(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 2)
    before = files_of(tmp_path / "run")
    large = {**states[1], "large": torch.randn(1 << 20)}

    def fail(done: int, total: int) -> None:
        raise ZeroDivisionError

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with bitsnap.Store(tmp_path / "run", keep_base=True, keep_last=1) as store:
        for stop, error in (
            (lambda done, total: False, bitsnap.CancelledError),
            (fail, ZeroDivisionError),
            (interrupt, KeyboardInterrupt),
        ):
            with pytest.raises(error):
                store.save(30, large, progress=stop)
            assert store.steps() == [10, 20]
            assert files_of(tmp_path / "run") == before
        seen: list[tuple[int, int]] = []
        store.save(30, large, progress=lambda done, total: seen.append((done, total)))
        assert seen[-1][0] == seen[-1][1] == store.checkpoint(30).raw_bytes
        assert_same(store.load(), large)
        with pytest.raises(ZeroDivisionError):
            store.load(progress=fail)
        with pytest.raises(ZeroDivisionError):
            store.verify(progress=fail)


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 2)
    with bitsnap.Store(tmp_path / "run") as store:
        snapshot = store.snapshot()
        assert repr(store) == f"Store({str(tmp_path / 'run')!r}, write)"
    assert repr(store) == f"Store({str(tmp_path / 'run')!r}, closed)"
    store.close()
    calls: list[Callable[[], Any]] = [
        store.steps,
        store.checkpoints,
        store.latest,
        store.load,
        store.snapshot,
        store.verify,
        lambda: len(store),
        lambda: store.save(30, states[0]),
        lambda: store.prune(keep_last=1),
        lambda: store.rollback(10),
        lambda: store.commit(30, 1, "a"),
        lambda: store.run_id,
    ]
    for call in calls:
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"run.*closed"):
            call()
    assert_same(bitsnap.load(snapshot), states[1])


def test_leaving_the_block_by_an_exception_closes_the_store(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), bitsnap.Store(tmp_path / "run"):
        raise ZeroDivisionError
    bitsnap.Store(tmp_path / "run").close()


def test_a_store_that_nobody_holds_any_more_lets_others_write(tmp_path: Path) -> None:
    store = bitsnap.Store(tmp_path / "run")
    del store
    bitsnap.Store(tmp_path / "run").close()


def test_one_handle_writes_at_a_time_and_any_number_read(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 2)
    with bitsnap.Store(tmp_path / "run") as store, bitsnap.Store(tmp_path / "run", read_only=True) as reader:
        with pytest.raises(bitsnap.BusyError, match="run"):
            bitsnap.Store(tmp_path / "run")
        with pytest.raises(bitsnap.BusyError):
            bitsnap.Store(tmp_path / "run", timeout=0.15)
        with pytest.raises(bitsnap.BusyError):
            bitsnap.Store.repair(tmp_path / "run")
        store.save(30, states[0])
        assert reader.steps() == [10, 20, 30]
        assert_same(reader.load(), states[0])
    with bitsnap.Store(tmp_path / "run") as store:
        assert len(store) == 3


def test_a_read_only_store_refuses_to_be_changed(tmp_path: Path) -> None:
    states = filled(tmp_path / "run", 2)
    before = files_of(tmp_path / "run")
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        assert repr(store).endswith("read_only)")
        for call in (
            lambda: store.save(30, states[0]),
            lambda: store.prune(keep_last=1),
            lambda: store.rollback(10),
            lambda: store.save_shard(30, states[0], shard=0, shards=1, attempt="a"),
            lambda: store.commit(30, 1, "a"),
        ):
            with pytest.raises(bitsnap.InvalidArgumentError, match="run"):
                call()
    assert files_of(tmp_path / "run") == before


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    for options in ({"read_only": True}, {"create": False}):
        with pytest.raises(FileNotFoundError, match="run") as caught:
            bitsnap.Store(tmp_path / "run", **options)  # type: ignore[arg-type]
        assert type(caught.value) is bitsnap.NotFoundError
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(bitsnap.NotFoundError):
        bitsnap.Store.repair(tmp_path / "run")
    with pytest.raises(bitsnap.BitsnapError, match="no/such"):
        bitsnap.Store(tmp_path / "no" / "such")
    with bitsnap.Store(tmp_path / "run") as store:
        empty: list[Callable[[], Any]] = [store.load, store.snapshot]
        for newest in empty:
            with pytest.raises(bitsnap.NotFoundError, match="run"):
                newest()
        store.save(10, {})
        other: list[Callable[[int], Any]] = [store.load, store.snapshot, store.checkpoint]
        for at in other:
            with pytest.raises(bitsnap.NotFoundError, match="20"):
                at(20)
        with pytest.raises(bitsnap.NotFoundError, match="shard"):
            store.load(10, shard=3)
        assert store.load() == {}


def test_a_directory_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for read_only in (False, True):
        with pytest.raises(bitsnap.BitsnapError, match=tmp_path.name):
            bitsnap.Store(tmp_path, read_only=read_only)
    with pytest.raises(bitsnap.BitsnapError):
        bitsnap.Store(tmp_path / "thesis.txt")
    assert os.listdir(tmp_path) == ["thesis.txt"]  # noqa: PTH208
    (tmp_path / "empty").mkdir()
    bitsnap.Store(tmp_path / "empty").close()


def test_a_store_keeps_working_when_the_process_changes_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run()
    monkeypatch.chdir(tmp_path)
    with bitsnap.Store("run") as store:
        state = frozen(run.advance())
        store.save(1, state)
        snapshot = store.snapshot()
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert store.path == tmp_path / "run"
        store.save(2, run.advance())
        assert_same(store.load(), run.state())
        assert_same(store.load(1), state)
        assert_same(bitsnap.load(snapshot), state)
        store.verify()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_name_that_is_no_text_is_a_directory_like_any_other(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/run-\xff"))
    states = filled(path, 2)
    with bitsnap.Store(path, read_only=True) as store:
        assert store.path == path
        assert_same(store.load(), states[1])
        with pytest.raises(bitsnap.NotFoundError, match="run-"):
            store.load(5)
