"""Trainings that go on at once after save() has returned: what is saved is the state of the call, whatever follows.

Streams, compiled steps and captured graphs change the tensors while a slow or careless copy would still read them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bitsnap
from gpu.conftest import Gpu, Saves, frozen
from python.same_bits import assert_same


def make_state(gpu: Gpu, count: int = 6) -> dict[str, Tensor]:
    elements = gpu.size(1 << 24, 1 << 12)
    torch.manual_seed(1)
    state = {f"w{i}": torch.randn(elements + 17 * i, device=gpu.device) for i in range(count)}
    return state | {"transposed": torch.randn(512, elements // 512, device=gpu.device).t()}


def change(state: dict[str, Tensor]) -> None:
    for tensor in state.values():
        tensor.mul_(0.5).add_(1.0)


def test_a_state_may_be_overwritten_as_soon_as_save_returns(gpu: Gpu, saves: Saves) -> None:
    state, expected = make_state(gpu), {}
    for step in range(1, 5):
        change(state)
        expected[step] = frozen(state)
        saves.save(step, state)
        change(state)
        for tensor in state.values():
            tensor.add_(1e6)
        change(state)
    saves.check(expected)


def test_a_save_waits_for_what_the_current_stream_has_to_do(gpu: Gpu, saves: Saves) -> None:
    """Also if that is not the default stream, and if other streams overwrite the tensors after the save."""
    state, expected = make_state(gpu), make_state(gpu)
    for _ in range(3):
        change(expected)
    frozen_state = frozen(expected)
    with gpu.side_stream() as stream:
        for _ in range(3):
            gpu.delay()
            change(state)
        saves.save(1, state)
        gpu.delay()
        change(state)
    gpu.wait_for(stream)
    with gpu.side_stream():
        change(state)
    gpu.synchronize()
    saves.check({1: frozen_state})


def test_a_save_sees_other_streams_that_the_current_one_has_waited_for(gpu: Gpu, saves: Saves) -> None:
    state, expected = make_state(gpu, 4), make_state(gpu, 4)
    for tensor in expected.values():
        tensor.mul_(3.0)
    streams = []
    for tensor in state.values():
        with gpu.side_stream() as stream:
            gpu.delay()
            tensor.mul_(3.0)
        streams.append(stream)
    for stream in streams:
        gpu.wait_for(stream)
    saves.save(1, state)
    change(state)
    saves.check({1: frozen(expected)})


def test_a_save_that_does_not_wait_copies_the_state_of_the_call(gpu: Gpu, saves: Saves) -> None:
    """Behind the work that its stream had then; what reads the tensors later runs beside the copy."""
    state, reference, expected = make_state(gpu), make_state(gpu), {}
    for step in range(1, 5):
        gpu.delay()
        change(state)
        save = saves.save(step, state, blocking=False)
        sums = [tensor.sum() for tensor in state.values()]
        assert save.wait_staged(60)
        change(reference)
        expected[step] = frozen(reference)
        assert len(frozen(sums)) == len(state)
    saves.check(expected)


class Training:
    """A model with an optimizer, and the tensors that a checkpoint of it has."""

    def __init__(self, gpu: Gpu) -> None:
        torch.manual_seed(1)
        width = gpu.size(1024, 32)
        with torch.device(gpu.device):
            self.model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            self._batch = torch.randn(16, width)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, capturable=gpu.is_real, foreach=True)
        self.run: Callable[[Tensor], Tensor] = self.model

    def step(self) -> None:
        self._optimizer.zero_grad(set_to_none=False)
        loss: Any = (self.run(self._batch) - self._batch).square().mean()
        loss.backward()
        self._optimizer.step()

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self._optimizer.state_dict()}


def train_and_check(step: Callable[[], None], training: Training, saves: Saves, *, blocking: bool = True) -> None:
    """Saves after each of four steps and goes on at once. The steps are deterministic, but for the sums of matrix
    products, so the expected states are copies that torch made before each save."""
    expected = {}
    for number in range(1, 5):
        step()
        state = training.state()
        expected[number] = frozen(dict(state["model"]))
        saves.save(number, state, blocking=blocking)
        step()
        step()
    saves.checkpointer.wait()
    restored = saves.checkpointer.restore()
    assert restored is not None
    assert_same(dict(restored.state["model"]), expected[4])


@pytest.mark.parametrize("blocking", [True, False])
def test_a_plain_training_goes_on_at_once(gpu: Gpu, saves: Saves, blocking: bool) -> None:
    training = Training(gpu)
    train_and_check(training.step, training, saves, blocking=blocking)


@pytest.mark.filterwarnings("ignore")  # advice of the compiler
def test_a_compiled_training_goes_on_at_once(gpu: Gpu, saves: Saves) -> None:
    training = Training(gpu)
    training.run = torch.compile(training.model, backend="inductor" if gpu.is_real else "eager")
    train_and_check(training.step, training, saves)


def test_a_training_in_a_captured_graph_goes_on_at_once(gpu: Gpu, saves: Saves) -> None:
    training = Training(gpu)
    with gpu.side_stream() as stream:
        training.step()  # makes the gradients and the moments, whose memory the graph uses
    gpu.wait_for(stream)
    train_and_check(gpu.captured(training.step), training, saves)


@pytest.mark.filterwarnings("ignore::bitsnap.BackgroundSaveWarning")
def test_a_save_without_memory_for_temporaries_fails_alone_or_succeeds(gpu: Gpu, saves: Saves) -> None:
    """A view that is not in row-major order may need a copy on the device, for which there is no memory."""
    first = torch.randn(1000, device=gpu.device)
    saves.save(1, {"w": first})
    saves.checkpointer.wait()
    elements = gpu.size(1 << 28, 1 << 12)
    large = torch.randn(512, elements // 512, device=gpu.device).t()
    stored = {1: {"w": frozen(first)}, 2: {"w": frozen(large)}}
    with gpu.with_memory_for(large.nbytes // 4):
        try:
            error: Exception | None = saves.save(2, {"w": large}).error
        except torch.OutOfMemoryError as raised:
            error = raised
    large.zero_()
    if error is not None:
        del stored[2]
        with contextlib.suppress(bitsnap.BitsnapError):
            saves.checkpointer.wait()  # raises the error of the save once
    saves.check(stored)
    saves.save(3, {"w": first})
    saves.check({**stored, 3: {"w": frozen(first)}})
