"""Functions that a handle calls once when its save has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import bitsnap
from python.engine.checkpointer_jobs import Jobs, failed, paused, saved
from python.run_states import state_of


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_done_callback_is_called_once_at_the_end_and_at_once_after_it(jobs: Jobs) -> None:
    told: list[tuple[int, str, str]] = []

    def tell(save: bitsnap.Save) -> None:
        told.append((save.step, save.stage, threading.current_thread().name))

    with jobs(every=2, every_memory=1) as checkpointer:
        checkpointer.reserve(state_of(2))
        with paused(jobs.agent()):
            save = saved(checkpointer, 2, state_of(2))
            save.add_done_callback(tell)
            save.add_done_callback(tell)
            time.sleep(0.3)
            assert told == []
        until(lambda: len(told) == 2)
        assert told == [(2, "persisted", "bitsnap-progress")] * 2
        save.add_done_callback(tell)
        assert told[2:] == [(2, "persisted", "MainThread")]
        in_memory = saved(checkpointer, 3, state_of(3))
        in_memory.add_done_callback(tell)
        in_memory.result()
        until(lambda: len(told) == 4)
        assert told[3][:2] == (3, "memory")
        saved(checkpointer, 4, state_of(4)).add_done_callback(tell)
    assert [step for step, _, _ in told] == [2, 2, 2, 3, 4]
    save.add_done_callback(tell)
    assert len(told) == 6


def test_failed_and_skipped_saves_have_ended(jobs: Jobs) -> None:
    told: list[tuple[int, str]] = []

    def tell(save: bitsnap.Save) -> None:
        told.append((save.step, save.stage))

    with jobs(memory=bitsnap.MemoryOptions(slots=1, when_busy="skip")) as checkpointer:
        saved(checkpointer, 5, state_of(5)).result()
        save = failed(checkpointer)
        save.add_done_callback(tell)
        assert told == [(5, "failed")]
        with paused(jobs.agent()):
            with pytest.warns(bitsnap.BackgroundSaveWarning, match="step 5 was not saved"):
                first = saved(checkpointer, 6, state_of(6))
            second = saved(checkpointer, 7, state_of(7))
            first.add_done_callback(tell)
            second.add_done_callback(tell)
            assert told[1:] == [(7, "skipped")]
        first.result()
        until(lambda: len(told) == 3)
        assert told[2] == (6, "persisted")
        with pytest.raises(bitsnap.InvalidArgumentError):
            checkpointer.wait()


def test_exceptions_of_callbacks_become_warnings(jobs: Jobs) -> None:
    def fail(save: bitsnap.Save) -> Any:
        raise SystemExit(f"no more of {save.step}")

    def refuse(save: bitsnap.Save) -> Any:
        raise OSError(f"no paper for {save.step}")

    told: list[int] = []
    with jobs(on_progress=lambda save: told.append(save.step)) as checkpointer:
        save = saved(checkpointer, 1, state_of(1))
        for function in (fail, refuse, lambda save: told.append(-save.step)):
            save.add_done_callback(function)
        until(lambda: -1 in told)
        until(lambda: len(checkpointer._saves._unwarned) == 2)
        with pytest.warns(bitsnap.BackgroundSaveWarning, match="a done callback failed for step 1: OSError: no paper"):
            save.add_done_callback(refuse)
        with pytest.raises(SystemExit):
            save.add_done_callback(fail)
        with pytest.warns(bitsnap.BackgroundSaveWarning) as caught:
            saved(checkpointer, 2, state_of(2)).result()
        assert [str(each.message) for each in caught] == [
            "a done callback failed for step 1: SystemExit: no more of 1",
            "a done callback failed for step 1: OSError: no paper for 1",
        ]
        with pytest.raises(TypeError, match="function must be a function, got None"):
            save.add_done_callback(None)  # type: ignore[arg-type]


def test_a_save_that_is_left_tells_nobody(jobs: Jobs) -> None:
    told: list[bitsnap.Save] = []
    checkpointer = jobs()
    checkpointer.reserve(state_of(1))
    with paused(jobs.agent()):
        save = saved(checkpointer, 1, state_of(1))
        save.add_done_callback(told.append)
        checkpointer.__exit__(KeyError, KeyError(), None)
    save.add_done_callback(told.append)
    assert told == []
