"""bitsnap.Checkpointer in one process: staging, handles and failures."""

from __future__ import annotations

import copy
import os
import pickle
import sys
import threading
import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from python.engine.checkpointer_jobs import Jobs, failed, paused, saved
from python.run_states import Run, frozen, state_of
from python.same_bits import assert_same


def test_the_state_may_change_once_save_has_returned(jobs: Jobs) -> None:
    run = Run(rows=2000)
    with jobs() as checkpointer:
        states = {}
        for step in (1, 2, 3):
            state = run.advance()
            states[step] = frozen(state)
            saved(checkpointer, step, state)
            for tensor in state["optimizer"]["state"][0].values():
                if isinstance(tensor, torch.Tensor):
                    tensor.neg_()
            state["model"]["wte"].zero_()
            state["history"].append(step)
        checkpointer.wait()
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert store.steps() == [1, 2, 3]
        for step, state in states.items():
            assert_same(store.load(step), state)
        store.verify()


def test_a_handle_says_how_far_a_save_has_come_and_what_it_cost(jobs: Jobs) -> None:
    with jobs() as checkpointer:
        for step in (1, 2):
            save = saved(checkpointer, step, state_of(step))
            assert save.step == step
            assert save.persist
            assert save.staged()
            assert save.stage in ("staged", "memory", "persisted")
            assert save.wait_memory()
            assert save.stage in ("memory", "persisted")
            assert save.wait_persisted()
            assert (save.stage, save.done(), save.error) == ("persisted", True, None)
        result = save.result()
        assert (result.step, result.base, result.raw_bytes) == (2, 1, 200_000)
        assert 0 < result.stored_bytes < 60_000
        assert result.ratio == result.raw_bytes / result.stored_bytes
        assert 0 <= result.wait_seconds <= result.stall_seconds
        assert result.encode_seconds > 0
        assert repr(save) == "Save(step=2, persisted)"
        with pytest.raises(AttributeError):
            result.step = 3  # type: ignore[misc]
    assert (save.stage, save.result()) == ("persisted", result)
    assert save.wait_persisted(timeout=0)


def test_steps_that_are_not_wanted_cost_nothing(jobs: Jobs) -> None:
    asked = []

    def state(step: int) -> dict[str, Any]:
        asked.append(step)
        return state_of(step)

    with jobs(every=6, every_memory=2, memory=bitsnap.MemoryOptions(budget=1 << 28, snapshots=8)) as checkpointer:
        saves = {step: checkpointer.save(step, lambda step=step: state(step)) for step in range(13)}
        checkpointer.wait()
        assert [step for step, save in saves.items() if save is not None] == asked == [0, 2, 4, 6, 8, 10, 12]
        assert [step for step, save in saves.items() if save is not None and save.persist] == [0, 6, 12]
        kept = saves[10]
        assert kept is not None
        assert (kept.stage, kept.wait_memory(), kept.wait_persisted()) == ("memory", True, False)
        assert kept.result().base is not None
        assert checkpointer.steps() == asked
        assert checkpointer.latest() == 12
        restored = checkpointer.restore(10)
        assert restored is not None
        assert_same(restored.state, state_of(10))
    with bitsnap.Store(jobs.path, read_only=True) as store:
        assert store.steps() == [0, 6, 12]


def test_reprs_are_short(jobs: Jobs) -> None:
    state = {"w": torch.arange(1000)}
    with jobs() as checkpointer:
        result = saved(checkpointer, 1, state).result()
        assert repr(result).startswith("SaveState(step=1, stage='persisted', raw_bytes=8000, stored_bytes=")
        assert repr(checkpointer.restore(1)) == "Restored(step=1, source='memory')"
        assert repr(checkpointer).endswith("rank 0 of 1)")


def test_a_save_that_fails_is_warned_of_once_and_raised_by_wait(jobs: Jobs) -> None:
    with jobs() as checkpointer:
        saved(checkpointer, 5, state_of(5)).result()
        save = failed(checkpointer)
        assert save.stage == "failed"
        assert isinstance(save.error, bitsnap.InvalidArgumentError)
        assert save.done()
        with pytest.raises(bitsnap.InvalidArgumentError):
            save.wait_persisted()
        with pytest.warns(bitsnap.BackgroundSaveWarning, match="step 5 was not saved: .*") as caught:
            checkpointer.save(6, state_of(6))
        assert len(caught) == 1
        assert caught[0].filename == __file__  # of the line that saved
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            saved(checkpointer, 7, state_of(7)).result()
        with pytest.raises(bitsnap.InvalidArgumentError, match="step 5"):
            checkpointer.wait()
        checkpointer.wait()
        assert checkpointer.latest() == 7


def test_close_raises_what_failed_unless_something_else_does(jobs: Jobs) -> None:
    checkpointer = jobs()
    saved(checkpointer, 1, state_of(1)).result()
    failed(checkpointer)
    with pytest.raises(bitsnap.InvalidArgumentError, match="step 1"):
        checkpointer.close()
    checkpointer.close()

    def end_badly() -> None:
        with jobs() as again:
            assert again.restore() is not None
            saved(again, 2, state_of(2)).result()
            failed(again)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        end_badly()


def test_errors_of_the_caller_are_raised_at_once(jobs: Jobs, tmp_path: Path) -> None:
    with jobs() as checkpointer:
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['x'\]"):
            checkpointer.save(1, {"x": object()})
        with pytest.raises(bitsnap.InvalidArgumentError, match="state_dict"):
            checkpointer.save(1, torch.nn.Linear(2, 2))
        with pytest.raises(TypeError, match="step must be an integer"):
            checkpointer.save("1", {})  # type: ignore[arg-type]
        with pytest.raises(bitsnap.InvalidArgumentError, match="roles"):
            checkpointer.save(1, {}, roles={"nowhere": "weight"})
        with pytest.raises(ZeroDivisionError):
            checkpointer.save(1, lambda: 1 // 0)
        for copying in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                copying(checkpointer)
        assert checkpointer.steps() == []
    for options, match in (
        ({"every": 0}, "every"),
        ({"job": bitsnap.JobOptions("a/b")}, "job must have .*, got 'a/b'"),
        ({"job": bitsnap.JobOptions(rank=2, world_size=2)}, "rank 2 of 2"),
        ({"job": bitsnap.JobOptions(session="A")}, "session"),
        ({"memory": bitsnap.MemoryOptions(slots=3)}, "slots"),
        ({"memory": bitsnap.MemoryOptions(snapshots=0)}, "snapshots must be at least 1"),
        ({"memory": bitsnap.MemoryOptions(when_busy="maybe")}, "when_busy"),  # type: ignore[arg-type]
        ({"settings": "best"}, "settings must be"),
        ({"adam": bitsnap.Adam(step=3)}, "step must be a function here"),
        ({"timeout": -1}, "timeout"),
        ({"path": ""}, "path"),
    ):
        with pytest.raises(bitsnap.InvalidArgumentError, match=match):
            jobs(**options)
    with pytest.raises(TypeError, match="on_progress"):
        jobs(on_progress=3)
    with pytest.raises(bitsnap.NotFoundError, match="not an executable program"):
        jobs(agent=bitsnap.AgentOptions(command=tmp_path / "nowhere"))


def test_a_second_trainer_of_a_rank_is_turned_away(jobs: Jobs) -> None:
    with jobs(), pytest.raises(bitsnap.BusyError, match=str(os.getpid())):
        jobs()


def test_too_small_a_budget_ends_no_training(jobs: Jobs) -> None:
    with jobs(memory=bitsnap.MemoryOptions(budget=1 << 20)) as checkpointer:
        with pytest.warns(bitsnap.BackgroundSaveWarning, match="step 1 was not saved: .*budget"):
            save = saved(checkpointer, 1, {"w": np.zeros(1 << 20)})
        assert save.stage == "failed"
        assert not save.staged()
        assert isinstance(save.error, bitsnap.ResourceExhaustedError)
        with pytest.raises(bitsnap.ResourceExhaustedError):
            save.wait_memory()
        with pytest.raises(bitsnap.ResourceExhaustedError):
            checkpointer.reserve({"w": np.zeros(1 << 20)})
        with pytest.raises(bitsnap.ResourceExhaustedError):
            checkpointer.wait()


def test_where_nobody_may_write_saves_fail_and_training_and_memory_go_on(jobs: Jobs) -> None:
    checkpointer = jobs(every=2, every_memory=1)
    # Not even root makes a directory there.
    jobs.path.rename(jobs.path.with_name("elsewhere"))
    jobs.path.symlink_to("/sys/fs/bitsnap-of-a-test")
    save = saved(checkpointer, 2, state_of(2))
    assert save.staged()
    with pytest.raises(bitsnap.BitsnapError, match=str(jobs.path)):
        save.wait_persisted()
    with pytest.warns(bitsnap.BackgroundSaveWarning, match=str(jobs.path)):
        kept = saved(checkpointer, 3, state_of(3))
    assert kept.wait_memory()
    restored = checkpointer.restore(3)
    assert restored is not None
    assert_same(restored.state, state_of(3))
    with pytest.raises(bitsnap.BitsnapError, match=str(jobs.path)):
        checkpointer.close()


def test_a_store_that_can_no_longer_be_made_fails_in_the_background(jobs: Jobs) -> None:
    checkpointer = jobs()
    jobs.path.rename(jobs.path.with_name("elsewhere"))
    jobs.path.write_text("this is no store")
    save = saved(checkpointer, 1, state_of(1))
    with pytest.raises(bitsnap.BitsnapError):
        save.result()
    with pytest.warns(bitsnap.BackgroundSaveWarning, match="step 1"):
        saved(checkpointer, 2, state_of(2))
    # Nor is it taken for a fresh run.
    with pytest.raises(bitsnap.BitsnapError, match=str(jobs.path)):
        checkpointer.restore()
    with pytest.raises(bitsnap.BitsnapError, match="step 2"):
        checkpointer.close()


def test_a_step_is_skipped_or_waited_for_where_nothing_is_free(jobs: Jobs) -> None:
    state = {"w": torch.randn(1 << 21)}
    with jobs(memory=bitsnap.MemoryOptions(slots=1, when_busy="skip")) as checkpointer:
        checkpointer.reserve(state)
        with paused(jobs.agent()):
            saves = [saved(checkpointer, step, state) for step in range(1, 5)]
        skipped = [save for save in saves if save.stage == "skipped"]
        assert skipped == saves[1:]
        for save in skipped:
            assert (save.staged(), save.done(), save.error) == (False, True, None)
            assert not save.wait_memory()
            assert not save.wait_persisted()
            with pytest.raises(bitsnap.BusyError, match="skipped"):
                save.result()
    with jobs(memory=bitsnap.MemoryOptions(slots=1)) as checkpointer:
        checkpointer.reserve(state)
        with ThreadPoolExecutor(1) as trainer:
            with paused(jobs.agent()):
                trained = trainer.submit(lambda: [saved(checkpointer, step, state) for step in (11, 12)])
                with pytest.raises(TimeoutError):
                    trained.result(timeout=0.3)
            saves = trained.result(timeout=30)
        assert all(save.wait_persisted() for save in saves)
        assert saves[1].result().wait_seconds > 0


def test_a_wait_that_is_too_short_ends_no_training(jobs: Jobs) -> None:
    states = [{"w": torch.randn(1 << 22)} for _ in range(3)]
    with jobs(memory=bitsnap.MemoryOptions(slots=1)) as first:
        saved(first, 1, states[0]).result()
    checkpointer = jobs(memory=bitsnap.MemoryOptions(slots=1), timeout=2)
    checkpointer.reserve(states[1])
    with paused(jobs.agent()):
        early = saved(checkpointer, 2, states[1])
        with pytest.warns(bitsnap.BackgroundSaveWarning, match=r"step 3 was not saved: .*slot"):
            late = saved(checkpointer, 3, states[2])
        assert isinstance(late.error, bitsnap.BusyError)
        assert not early.wait_persisted(timeout=0)
        with pytest.raises(bitsnap.BusyError, match="not finished yet"):
            early.result(timeout=0.001)
        with pytest.raises(bitsnap.BusyError, match="unfinished"):
            checkpointer.wait(timeout=0)
    assert early.wait_persisted(timeout=30)
    with pytest.raises(bitsnap.BusyError, match="slot"):
        checkpointer.close()


def test_moments_are_bounded_by_the_values_of_adam_in_the_state(jobs: Jobs) -> None:
    rng = np.random.default_rng(1)
    moments = {
        "exp_avg": torch.from_numpy(rng.standard_normal((300, 300), np.float32)),
        "exp_avg_sq": torch.from_numpy(rng.random((300, 300), np.float32)),
    }
    group = {"params": [0], "betas": (0.8, 0.95), "eps": 1e-8}
    state = {"optimizer": {"state": {0: moments | {"step": 2}}, "param_groups": [group]}}
    with jobs(settings="bounded") as checkpointer:
        saved(checkpointer, 2, state).result()
        restored = checkpointer.restore()
        assert restored is not None
        kept = restored.state["optimizer"]["state"][0]
        assert not torch.equal(kept["exp_avg"], moments["exp_avg"])
        torch.testing.assert_close(kept["exp_avg_sq"], moments["exp_avg_sq"], rtol=0.1, atol=0)
        # Without their optimizer, moments have no values of Adam.
        bare = saved(checkpointer, 3, moments)
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"are neither given nor in the state.*bitsnap\.Adam\("):
            bare.result()
        with pytest.raises(bitsnap.InvalidArgumentError):
            checkpointer.wait()
    with bitsnap.Store(jobs.path, read_only=True) as store:
        (summary,) = [t for t in bitsnap.inspect(store.snapshot(2)).tensors if t.role == "exp_avg"]
        assert summary.quantizer is not None
        assert summary.quantizer.adam == bitsnap.AdamNumbers((0.8, 0.95), 1e-8, 2)
    # Without settings, those of the store hold.
    with jobs() as checkpointer:
        saved(checkpointer, 4, state).result()


def test_a_state_of_arrays_is_saved_while_torch_is_being_imported(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    half = ModuleType("torch")  # as another thread has it in sys.modules meanwhile
    half.__spec__ = ModuleSpec("torch", None)
    half.__spec__._initializing = True  # type: ignore[attr-defined]
    state = {"w": np.arange(5000, dtype=np.float32), "history": [1, (2, "three")]}
    with jobs() as checkpointer:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "torch", half)
            saved(checkpointer, 1, state)
            with pytest.raises(bitsnap.InvalidArgumentError, match="cannot be stored"):
                checkpointer.save(2, {"w": object()})
            jobs(path=jobs.path.with_name("other"), job=bitsnap.JobOptions(jobs.new_job()))
        checkpointer.wait()
        restored = checkpointer.restore()
        assert restored is not None
        assert_same(restored.state, state)


def test_a_path_that_no_agent_could_be_told_is_refused(tmp_path: Path, jobs: Jobs) -> None:
    path = tmp_path / os.fsdecode(b"run\xff")
    with pytest.raises(bitsnap.InvalidArgumentError, match="must be valid UTF-8"):
        jobs(path=path)
    assert list(tmp_path.iterdir()) == []


def test_a_closed_checkpointer_says_so(jobs: Jobs) -> None:
    checkpointer = jobs()
    save = saved(checkpointer, 1, state_of(1))
    checkpointer.close()
    assert save.result().step == 1
    assert "closed" in repr(checkpointer)
    for call in (
        lambda: checkpointer.save(2, {}),
        lambda: checkpointer.restore(),
        lambda: checkpointer.steps(),
        lambda: checkpointer.wait(),
        lambda: checkpointer.reserve({}),
        lambda: checkpointer.arena_bytes,
    ):
        with pytest.raises(bitsnap.InvalidArgumentError, match="has been closed"):
            call()


def test_closing_ends_the_calls_of_other_threads(jobs: Jobs) -> None:
    # Alone of two ranks: it will never be committed.
    checkpointer = jobs(job=bitsnap.JobOptions(jobs.job, world_size=2))
    save = saved(checkpointer, 1, state_of(1))
    assert save.wait_memory()
    with ThreadPoolExecutor(2) as pool:
        waiting: list[Future[Any]] = [pool.submit(save.wait_persisted), pool.submit(checkpointer.wait)]
        time.sleep(0.2)
        checkpointer._end()
        for each in waiting:
            with pytest.raises(bitsnap.InvalidArgumentError, match="closed during this call"):
                each.result(120)
    assert save.stage == "memory"


def test_threads_share_a_checkpointer(jobs: Jobs) -> None:
    with jobs() as checkpointer, ThreadPoolExecutor(4) as pool:
        lock = threading.Lock()
        numbers = iter(range(1, 17))

        def save_one(_: int) -> bool:
            with lock:
                step = next(numbers)
                save = saved(checkpointer, step, state_of(step))
            return save.wait_persisted()

        assert all(pool.map(save_one, range(16)))
        assert checkpointer.latest() == 16


def test_the_memory_can_be_taken_before_the_first_save(jobs: Jobs) -> None:
    with jobs() as checkpointer:
        assert checkpointer.arena_bytes == 0
        checkpointer.reserve(lambda: {"w": torch.zeros(1 << 20)})
        size = checkpointer.arena_bytes
        assert size > 2 * (4 << 20)
        saved(checkpointer, 1, {"w": torch.ones(1 << 20)}).result()
        assert checkpointer.arena_bytes == size


def test_thousands_of_tensors_take_few_descriptors(jobs: Jobs) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    state = {f"w{i}": torch.full((10,), float(i)) for i in range(4000)}
    with jobs() as checkpointer:
        for step in (1, 2, 3):
            saved(checkpointer, step, state).result()
        restored = checkpointer.restore()
        assert restored is not None
        assert_same(restored.state, state)
        assert open_files() < before + 16
    assert open_files() <= before + 1


def test_the_agent_says_what_it_does(jobs: Jobs) -> None:
    with jobs() as checkpointer:
        saved(checkpointer, 1, state_of(1)).result()
        status = checkpointer.agent_status()
        assert status["process"] == checkpointer.agent_process == jobs.agent()
        assert status["store"] == str(jobs.path)
        assert status["ranks"][0]["last_persisted_step"] == 1
    with pytest.raises(bitsnap.InvalidArgumentError, match="which agent"):
        bitsnap.agent_status()
    with pytest.raises(bitsnap.NotFoundError, match="no agent"):
        bitsnap.agent_status(jobs.path)
    with jobs(job=None) as unnamed:
        jobs.path.with_name("link").symlink_to(jobs.path)
        for path in (jobs.path, f"{jobs.path}//", jobs.path.parent / "none/../run", jobs.path.with_name("link")):
            assert bitsnap.agent_status(path)["job"] == unnamed.job
        with paused(jobs.agent()):
            for call in (lambda: bitsnap.stop_agent(job=jobs.job, timeout=0.1), lambda: jobs.agent(timeout=0.1)):
                with pytest.raises(bitsnap.BusyError):
                    call()
        bitsnap.stop_agent(jobs.path, timeout=20)


def test_a_rank_whose_trainer_is_another_object_of_this_process_is_told_so(jobs: Jobs) -> None:
    first = jobs()
    first.save(1, state_of(1))
    own = (
        r"already has a running trainer.*: it is another Checkpointer of this process, such as .* or close\(\) it first"
    )
    with pytest.raises(bitsnap.BusyError, match=own):
        jobs()
    first.close()
    with jobs() as again:
        assert again.latest() == 1
