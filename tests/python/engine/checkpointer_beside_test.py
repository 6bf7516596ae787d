"""Saves that return before the state is copied: what waits for the copy, and what becomes of it."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.optim.optimizer import _global_optimizer_pre_hooks

import bitsnap
from python.engine.checkpointer_jobs import Jobs, saved
from python.same_bits import assert_same


class Gate:
    """A tensor of a state whose copy waits until the gate is opened."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self.tensor = bitsnap.LazyTensor((3,), torch.float32, self._make)

    def _make(self) -> torch.Tensor:
        assert self._opened.wait(120)
        return torch.ones(3)

    def open(self) -> None:
        self._opened.set()

    @contextmanager
    def opened_in(self, seconds: float) -> Iterator[None]:
        timer = threading.Timer(seconds, self.open)
        timer.start()
        yield
        timer.join()


def restored(checkpointer: bitsnap.Checkpointer, step: int) -> Any:
    found = checkpointer.restore(step=step)
    assert found is not None
    return found.state


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = torch.nn.Linear(300, 200)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.randn(8, 300)).sum().backward()
    optimizer.step()
    return model, optimizer


def copy_of(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: copy_of(value) for key, value in state.items()}
    return state.clone() if isinstance(state, torch.Tensor) else state


def test_a_step_of_an_optimizer_waits_until_the_state_is_copied(jobs: Jobs) -> None:
    gate = Gate()
    model, optimizer = trained()
    state = {"gate": gate.tensor, "model": dict(model.state_dict()), "optimizer": optimizer.state_dict()["state"]}
    expected = copy_of(state) | {"gate": torch.ones(3)}
    with jobs() as checkpointer:
        save = saved(checkpointer, 1, state, blocking=False)
        assert (save.step, save.persist, save.stage) == (1, True, "copying")
        assert not save.done()
        assert not save.staged()
        assert not save.wait_staged(0.05)
        assert repr(save) == "Save(step=1, copying)"
        model(torch.randn(8, 300)).sum().backward()
        step = threading.Thread(target=optimizer.step)
        step.start()
        step.join(0.3)
        assert step.is_alive()
        before = save._stall_seconds
        gate.open()
        step.join()
        assert save.staged()
        assert save.wait_staged(0)
        assert save.result().stall_seconds > before
        assert not torch.equal(model.state_dict()["weight"], expected["model"]["weight"])
        assert_same(restored(checkpointer, 1), expected)
        optimizer.step()


def test_what_needs_the_copy_waits_for_it(jobs: Jobs) -> None:
    checkpointer = jobs()
    waits: list[Callable[[bitsnap.Save], object]] = [
        lambda save: save.result(),
        lambda save: save.state(),
        lambda save: save.wait_memory(),
        lambda save: checkpointer.wait(),
        lambda save: saved(checkpointer, save.step + 1, {}),
        lambda save: checkpointer.close(),
    ]
    for step, wait in enumerate(waits):
        gate = Gate()
        save = saved(checkpointer, 2 * step, {"gate": gate.tensor, "step": step}, blocking=False)
        assert save.stage == "copying"
        with gate.opened_in(0.1):
            wait(save)
        assert save.staged()
    steps = [0, 2, 4, 6, 8, 9, 10]
    assert bitsnap.Store(jobs.path, read_only=True).steps() == steps


def test_callbacks_are_called_as_for_other_saves(jobs: Jobs) -> None:
    gate = Gate()
    stages, called = [], []
    checkpointer = jobs(on_progress=lambda save: stages.append(save.stage))
    save = saved(checkpointer, 1, {"gate": gate.tensor}, blocking=False)
    for number in (1, 2):
        save.add_done_callback(lambda done, number=number: called.append((number, done.stage)))  # type: ignore[misc]
    with gate.opened_in(0.2):
        save.result()
    checkpointer.close()
    assert called == [(1, "persisted"), (2, "persisted")]
    assert stages[-1] == "persisted"
    assert len(stages) == len(set(stages)) <= 2


def test_leaving_by_an_exception_gives_the_agent_the_state(jobs: Jobs) -> None:
    gate = Gate()
    checkpointer = jobs()
    save = saved(checkpointer, 1, {"gate": gate.tensor}, blocking=False)
    with gate.opened_in(0.2):
        checkpointer.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert save.staged()
    bitsnap.wait_committed(jobs.path, 1, 30, job=jobs.job)


def test_an_error_of_the_copy_is_that_of_the_save(jobs: Jobs) -> None:
    def fail() -> torch.Tensor:
        raise ValueError("no such file")

    wrong = bitsnap.LazyTensor((3,), torch.float32, lambda: torch.ones(4))
    lost = bitsnap.LazyTensor((3,), torch.float32, fail)
    with jobs() as checkpointer:
        save = saved(checkpointer, 1, {"wrong": wrong}, blocking=False)
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"is to be F32 \[3\], but make\(\) returned F32 \[4\]"):
            save.result()
        assert (save.stage, save.staged(), save.done()) == ("failed", False, True)
        with pytest.warns(bitsnap.BackgroundSaveWarning, match=r"step 1 was not saved: .*\[3\]"):
            save = saved(checkpointer, 1, {"lost": lost}, blocking=False)
        assert save.wait_staged()
        assert isinstance(save.error, bitsnap.BitsnapError)
        assert "ValueError: no such file" in str(save.error)
        with pytest.raises(bitsnap.BitsnapError, match="no such file"):
            checkpointer.wait()
        with pytest.warns(bitsnap.BackgroundSaveWarning, match="no such file"):
            saved(checkpointer, 1, {"a": torch.ones(2)}, blocking=False).result()


def test_no_error_is_lost_between_the_copy_and_a_wait(jobs: Jobs) -> None:
    def fail() -> torch.Tensor:
        raise ValueError("no such file")

    checkpointer = jobs()
    for step in range(100):
        with pytest.warns(bitsnap.BackgroundSaveWarning) if step > 0 else contextlib.nullcontext():
            saved(checkpointer, step, {"a": bitsnap.LazyTensor((3,), torch.float32, fail)}, blocking=False)
        with pytest.raises(bitsnap.BitsnapError, match="no such file") as raised:
            checkpointer.wait()
        assert isinstance(raised.value.__cause__, ValueError)
    with pytest.warns(bitsnap.BackgroundSaveWarning):
        saved(checkpointer, 100, {"a": torch.ones(3)})
    checkpointer.close()


def test_waits_end_when_their_time_is_over(jobs: Jobs) -> None:
    gate = Gate()
    checkpointer = jobs()
    save = saved(checkpointer, 1, {"gate": gate.tensor}, blocking=False)
    begin = time.monotonic()
    assert not save.wait_memory(0.05)
    assert not save.wait_persisted(0.05)
    with pytest.raises(bitsnap.BusyError, match="step 1 is copying"):
        save.result(0.05)
    with pytest.raises(bitsnap.BusyError, match="still being copied after 50 ms"):
        checkpointer.wait(0.05)
    assert time.monotonic() - begin < 60  # the copy does not end
    gate.open()
    assert save.wait_persisted()
    checkpointer.close()


def test_a_checkpointer_that_nobody_knows_is_collected_after_its_copy(jobs: Jobs) -> None:
    gate = Gate()
    checkpointer = jobs()
    jobs.forget(checkpointer)
    cycle: list[Any] = [checkpointer]
    cycle.append(cycle)
    known = weakref.ref(checkpointer)
    save = saved(checkpointer, 1, {"gate": gate.tensor}, blocking=False)
    del checkpointer, cycle
    gc.collect()
    assert known() is not None
    gate.open()
    assert save.wait_staged()
    deadline = time.monotonic() + 10
    while known() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert known() is None
    bitsnap.wait_committed(jobs.path, 1, 30, job=jobs.job)


def test_a_copy_without_a_thread_is_made_by_what_waits_for_it(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a signal handler that comes before the thread has begun."""
    with jobs() as checkpointer:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", lambda thread: None)
            save = saved(checkpointer, 1, {"a": torch.ones(2)}, blocking=False)
        assert save.stage == "copying"
        assert save.wait_staged()
        assert save.wait_persisted()

        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            save = saved(checkpointer, 2, {"a": torch.ones(2)}, blocking=False)
        assert save.staged()


def test_optimizers_wait_for_nothing_when_the_checkpointer_is_closed(jobs: Jobs) -> None:
    before = len(_global_optimizer_pre_hooks)
    with jobs() as checkpointer:
        saved(checkpointer, 1, {"a": torch.ones(2)})
        assert len(_global_optimizer_pre_hooks) == before
        for step in (2, 3):
            saved(checkpointer, step, {"a": torch.ones(2)}, blocking=False)
        assert len(_global_optimizer_pre_hooks) == before + 1
    assert len(_global_optimizer_pre_hooks) == before


def _in_child(save: bitsnap.Save, found: Any) -> None:
    for wait in (save.wait_staged, save.result):
        try:
            wait()
        except bitsnap.InvalidArgumentError as error:
            found.put(str(error))


def test_a_forked_child_does_not_wait_for_a_copy(jobs: Jobs) -> None:
    gate = Gate()
    with jobs() as checkpointer:
        save = saved(checkpointer, 1, {"gate": gate.tensor}, blocking=False)
        context = multiprocessing.get_context("fork")
        found = context.SimpleQueue()
        child = context.Process(target=_in_child, args=(save, found))
        child.start()
        child.join(100)
        gate.open()
        assert child.exitcode == 0
        for _ in range(2):
            assert "forked from" in found.get()
