"""Tensors of a GPU, with streams in its place that write down what they are told: no test here has one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import bitsnap
from bitsnap import _arrays, _device_copies
from python.same_bits import assert_same


class FakeStream:
    def __init__(self, cuda: Cuda, name: str) -> None:
        self._cuda, self._name = cuda, name

    def wait_stream(self, other: FakeStream) -> None:
        self._cuda.note(self._name, f"wait for {other._name}")

    def synchronize(self) -> None:
        self._cuda.note(self._name, "synchronize")


class Cuda:
    """Notes are of a thread: stream, what it was told, and the stream that was current then."""

    def __init__(self) -> None:
        self.notes: dict[int, list[tuple[str, str, str]]] = {}
        self._current: dict[int, str] = {}

    def note(self, stream: str, what: str) -> None:
        thread = threading.get_ident()
        self.notes.setdefault(thread, []).append((stream, what, self._current.get(thread, "default")))

    def current_stream(self, device: torch.device) -> FakeStream:
        return FakeStream(self, "computing")

    def Stream(self, device: torch.device) -> FakeStream:  # noqa: N802
        return FakeStream(self, "side")

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        self._current[threading.get_ident()] = "side"
        yield
        del self._current[threading.get_ident()]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """Tensors on the CPU are taken for such of a GPU."""
    made = Cuda()
    pinned_like = _device_copies.pinned_like

    def note_pinned(source: torch.Tensor) -> torch.Tensor:
        made.note("side", "copy")
        return pinned_like(source)

    monkeypatch.setattr(_arrays, "is_on_gpu", lambda tensor: True)
    monkeypatch.setattr(_arrays, "copier", lambda tensor, plain: _device_copies.copier(tensor, plain, made))
    monkeypatch.setattr(_device_copies, "pinned_like", note_pinned)
    return made


def test_a_copy_waits_for_what_was_computed_and_is_over_before_its_bytes_are_read(tmp_path: Path, cuda: Cuda) -> None:
    state: dict[str, Any] = {
        "plain": torch.randn(1000, 30),
        "transposed": torch.randn(300, 70).t(),
        "half": torch.randn(5000).bfloat16(),
        "conj": torch.randn(200, dtype=torch.complex64).conj(),
        "empty": torch.zeros(0),
        "scalar": torch.tensor(3.5),
    }
    bitsnap.save(tmp_path / "a.bsnap", state)
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)
    of_one = [("side", "wait for computing", "side"), ("side", "copy", "side"), ("side", "synchronize", "default")]
    copies = 0
    for notes in cuda.notes.values():
        copies += len(notes) // 3
        assert notes == of_one * (len(notes) // 3)
    # All but the empty one, and each as often as it is read: for what may be found in it, and for itself.
    assert copies >= 5


def test_tied_tensors_are_known_by_their_memory_on_the_device(tmp_path: Path, cuda: Cuda) -> None:
    weight = torch.randn(64, 64)
    bitsnap.save(tmp_path / "a.bsnap", {"head": weight, "embedding": weight})
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    assert loaded["head"] is loaded["embedding"]


def test_what_fails_on_the_device_is_raised_by_the_save(
    tmp_path: Path, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(_device_copies, "pinned_like", fail)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        bitsnap.save(tmp_path / "a.bsnap", {"w": torch.randn(1000)})
    assert list(tmp_path.iterdir()) == []


def test_memory_that_cannot_be_pinned_is_plain() -> None:
    source = torch.randn(10, 3)
    made = _device_copies.pinned_like(source)
    assert (made.shape, made.dtype, made.device.type) == (source.shape, source.dtype, "cpu")
