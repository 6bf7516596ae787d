"""Fixtures of the tests that are about a GPU: the device, and states that are saved and compared.

Without a GPU, these tests run with tensors on the CPU, so that their own code is tested; only a GPU makes them say
something about streams and about memory of the device.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import bitsnap
from python.same_bits import assert_same

_cuda: Any = torch.cuda


class Gpu:
    """A GPU, or the CPU in its place. Work on the CPU is over when its call returns."""

    def __init__(self) -> None:
        self.is_real = torch.cuda.is_available()
        self.device = torch.device("cuda", 0) if self.is_real else torch.device("cpu")

    def size(self, on_gpu: int, on_cpu: int) -> int:
        return on_gpu if self.is_real else on_cpu

    def synchronize(self) -> None:
        if self.is_real:
            _cuda.synchronize()

    def delay(self) -> None:
        """Work for the current stream that takes some tens of milliseconds."""
        if self.is_real:
            _cuda._sleep(100_000_000)

    @contextlib.contextmanager
    def side_stream(self) -> Iterator[Any]:
        """A stream that waits for what the caller's stream has to do."""
        if not self.is_real:
            yield None
            return
        stream = _cuda.Stream()
        stream.wait_stream(_cuda.current_stream())
        with _cuda.stream(stream):
            yield stream

    def wait_for(self, stream: Any) -> None:
        """The current stream waits for the other one."""
        if self.is_real:
            _cuda.current_stream().wait_stream(stream)

    def captured(self, work: Callable[[], None]) -> Callable[[], None]:
        """Runs `work` some times, and captures it in a graph; returns what replays it."""
        if not self.is_real:
            work()
            return work
        with self.side_stream() as stream:
            for _ in range(3):
                work()
        self.wait_for(stream)
        graph = _cuda.CUDAGraph()
        with _cuda.graph(graph):
            work()
        replay: Callable[[], None] = graph.replay
        return replay

    @contextlib.contextmanager
    def with_memory_for(self, size_bytes: int) -> Iterator[None]:
        """Leaves the allocator of torch about this much."""
        if not self.is_real:
            yield
            return
        _cuda.empty_cache()
        total = _cuda.get_device_properties(self.device).total_memory
        _cuda.set_per_process_memory_fraction((_cuda.memory_reserved(self.device) + size_bytes) / total, self.device)
        try:
            yield
        finally:
            _cuda.set_per_process_memory_fraction(1.0, self.device)


class Saves:
    """Saves states with a Checkpointer and compares what the agent and the store have of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpointer = bitsnap.Checkpointer(
            path,
            job=bitsnap.JobOptions(name=f"test-{secrets.token_hex(4)}"),
            agent=bitsnap.AgentOptions(threads=2, linger=10.0),
            timeout=60,
        )

    def save(self, step: int, state: Any, *, blocking: bool = True) -> bitsnap.Save:
        save = self.checkpointer.save(step, state, blocking=blocking)
        assert save is not None
        return save

    def check(self, expected: dict[int, Any]) -> None:
        """Compares the newest step in memory, and all steps in the store."""
        self.checkpointer.wait()
        restored = self.checkpointer.restore()
        assert restored is not None
        assert restored.source == "memory"
        assert restored.step == max(expected)
        assert_same(restored.state, expected[restored.step])
        with bitsnap.Store(self.path, read_only=True) as store:
            for step, state in expected.items():
                assert_same(store.load(step), state)

    def end(self) -> None:
        self.checkpointer.close()
        bitsnap.stop_agent(job=self.checkpointer.job, timeout=20)


def frozen(state: Any) -> Any:
    """A copy on the CPU, made by torch alone, when all work of the device is done."""
    if isinstance(state, torch.Tensor):
        if state.is_cuda:
            torch.cuda.synchronize(state.device)
        return state.detach().clone().resolve_conj().resolve_neg().cpu().contiguous()
    if isinstance(state, dict):
        return {key: frozen(value) for key, value in state.items()}
    return [frozen(value) for value in state] if isinstance(state, list) else state


@pytest.fixture(scope="session")
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture
def saves(tmp_path: Path) -> Iterator[Saves]:
    """What a test saves. Its agent ends with the test."""
    made = Saves(tmp_path / "run")
    yield made
    made.end()
