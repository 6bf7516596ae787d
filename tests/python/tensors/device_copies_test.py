"""Tensors of a GPU, with streams, events and a runtime in CUDA's place that write down what they are told: no machine
that runs these tests needs a GPU. tests/gpu has those that do."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import bitsnap
from bitsnap._tensors import arrays, device_copies, reading
from python.engine.checkpointer_jobs import Jobs, saved
from python.same_bits import assert_same


class FakeStream:
    def __init__(self, cuda: Cuda, name: str, device: torch.device) -> None:
        self._cuda, self.name, self.device = cuda, name, device

    def wait_stream(self, other: FakeStream) -> None:
        self._cuda.notes.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event: FakeEvent) -> None:
        self._cuda.notes.append(f"{self.name} waits for the {event.name}")


class FakeEvent:
    def __init__(self, cuda: Cuda) -> None:
        self._cuda, self.name = cuda, ""

    def record(self, stream: FakeStream) -> None:
        self.name = f"event of {stream.name}"
        self._cuda.pending.append(self)
        self._cuda.notes.append(f"event of {stream.name}")

    def synchronize(self) -> None:
        if self in self._cuda.pending:
            self._cuda.pending.remove(self)
        assert self.name == "event of computing" or self._cuda.devices > 0
        self._cuda.notes.append("wait for event")


class Cuda:
    """torch.cuda, and the CUDA runtime, of one device."""

    OutOfMemoryError = torch.cuda.OutOfMemoryError

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.pending: list[FakeEvent] = []  # not waited for
        self.most_pending = 0
        self.registered: dict[int, int] = {}  # sizes by address
        self.error: int | Exception = 0  # of the next cudaHostRegister
        self.devices = 0  # how many times a device was chosen
        self.current = self.computing = FakeStream(self, "computing", torch.device("cpu"))

    def current_stream(self, device: torch.device) -> FakeStream:
        return self.computing

    def Stream(self, device: torch.device) -> FakeStream:  # noqa: N802
        return FakeStream(self, "copying", device)

    def Event(self, blocking: bool = False) -> FakeEvent:  # noqa: N802
        self.most_pending = max(self.most_pending, len(self.pending) + 1)
        return FakeEvent(self)

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        assert self.devices > 0  # or torch would choose the first one afterwards
        self.current = stream
        yield
        self.current = self.computing

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        self.devices += 1
        yield
        self.devices -= 1

    def cudart(self) -> Cuda:
        return self

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        assert flags == 1
        if isinstance(self.error, Exception):
            raise self.error
        if self.error == 0:
            assert address not in self.registered
            self.registered[address] = size
        return self.error

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        del self.registered[address]
        return 0


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """Tensors on the CPU are taken for such of a GPU."""
    made = Cuda()
    for module in (arrays, device_copies):
        monkeypatch.setattr(module, "is_on_gpu", lambda tensor: True)
    monkeypatch.setattr(device_copies, "_cuda", lambda: made)
    monkeypatch.setattr(device_copies, "_streams", {})
    copy_into = device_copies.DeviceTensor._copy_into

    def note_copy(tensor: Any, out: torch.Tensor) -> None:
        made.notes.append(f"copy on {made.current.name}")
        copy_into(tensor, out)

    monkeypatch.setattr(device_copies.DeviceTensor, "_copy_into", note_copy)
    return made


def state_of(seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    weight = torch.randn(1000, 30)
    return {
        "plain": weight,
        "tied": weight,
        "transposed": torch.randn(300, 70).t(),
        "strided": torch.randn(300, 70)[:, ::3],
        "half": torch.randn(5001).bfloat16(),
        "conj": torch.randn(200, dtype=torch.complex64).conj(),
        "wide": torch.randn(20, dtype=torch.complex128),
        "flags": torch.randn(77) > 0,
        "empty": torch.zeros(0),
        "scalar": torch.tensor(3.5),
        "step": 7,
    }


def restored(checkpointer: bitsnap.Checkpointer, step: int) -> Any:
    found = checkpointer.restore(step=step)
    assert found is not None
    return found.state


_COPIED = 8  # of these: all but the tied and the empty one


def test_a_copy_waits_for_what_was_computed_and_is_over_before_its_bytes_are_read(tmp_path: Path, cuda: Cuda) -> None:
    state = state_of(1)
    bitsnap.save(tmp_path / "a.bsnap", state, threads=1)
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)
    of_one = ["copying waits for computing", "copy on copying", "event of copying", "wait for event"]
    copies = len(cuda.notes) // len(of_one)
    assert cuda.notes == of_one * copies
    assert copies >= _COPIED  # each as often as it is read: for what may be found in it, and for itself


def test_a_checkpointer_copies_all_tensors_and_then_waits_once(jobs: Jobs, cuda: Cuda) -> None:
    with jobs() as checkpointer:
        for step in (1, 2, 3):
            cuda.notes.clear()
            state = state_of(step)
            saved(checkpointer, step, state).result()
            assert cuda.notes == [
                "copying waits for computing",
                *["copy on copying"] * _COPIED,
                "event of copying",
                "wait for event",
            ]
            assert_same(restored(checkpointer, step), state)


def test_a_save_that_does_not_wait_copies_behind_the_work_that_there_was(jobs: Jobs, cuda: Cuda) -> None:
    with jobs() as checkpointer:
        state = state_of(1)
        saved(checkpointer, 1, state, blocking=False).result()
        assert cuda.notes == [
            "event of computing",
            "copying waits for the event of computing",
            *["copy on copying"] * _COPIED,
            "event of copying",
            "wait for event",
        ]
        assert_same(restored(checkpointer, 1), state)


def test_a_save_that_does_not_wait_fails_if_a_tensor_was_changed_before_it_was_copied(
    jobs: Jobs, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, state = arrays._plain, state_of(1)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype == torch.bool:
            state["half"].add_(1)
        return plain(tensor)

    with jobs() as checkpointer:
        with monkeypatch.context() as patch:
            patch.setattr(arrays, "_plain", change)
            save = saved(checkpointer, 1, state, blocking=False)
            assert save.wait_staged()
            with pytest.raises(bitsnap.InvalidArgumentError, match=r"tensor 'half' was changed before it was copied"):
                save.result()
            with pytest.raises(bitsnap.InvalidArgumentError, match="'half' was changed"):
                checkpointer.wait()
        with pytest.warns(bitsnap.BackgroundSaveWarning, match="'half' was changed"):
            saved(checkpointer, 1, state, blocking=False).result()
        assert_same(restored(checkpointer, 1), state)
        with torch.inference_mode():
            state["half"] = state["half"].clone()
        saved(checkpointer, 2, state, blocking=False).result()


def test_a_storage_that_is_freed_before_it_was_copied_is_noticed(cuda: Cuda) -> None:
    tensor = torch.randn(100)
    source = device_copies.DeviceTensor(tensor.detach(), arrays._plain)
    device_copies.note_computed([("w", source)])
    source._check_unchanged()
    tensor.untyped_storage().resize_(0)
    with pytest.raises(bitsnap.InvalidArgumentError, match="'w' was changed"):
        source._check_unchanged()


def test_all_copies_are_waited_for_if_one_wait_fails(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [device_copies.DeviceTensor(torch.randn(10), arrays._plain) for _ in range(2)]
    sources[1]._computing = FakeStream(cuda, "other", torch.device("cpu"))
    out = torch.empty(20)
    waits = []

    def fail(event: FakeEvent) -> None:
        waits.append(event)
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeEvent, "synchronize", fail)
    with pytest.raises(KeyboardInterrupt):
        device_copies.copy_all(sources, [(out.data_ptr(), 40), (out.data_ptr() + 40, 40)])
    assert len(waits) == 2


def test_the_memory_that_states_are_copied_into_is_registered_once_for_each_slot(jobs: Jobs, cuda: Cuda) -> None:
    checkpointer = jobs()
    saved(checkpointer, 1, state_of(1)).result()
    first = dict(cuda.registered)
    assert len(first) == 1
    for step in (2, 3, 4):
        saved(checkpointer, step, state_of(step)).result()
    assert len(cuda.registered) == 2
    assert cuda.registered.items() >= first.items()
    # Another arena.
    large = {"large": torch.randn(1_000_000)}
    saved(checkpointer, 5, large).result()
    assert min(cuda.registered.values()) >= 4_000_000
    assert_same(restored(checkpointer, 5), large)
    checkpointer.close()
    del checkpointer
    gc.collect()
    assert cuda.registered == {}


def test_reserving_registers_all_slots(jobs: Jobs, cuda: Cuda) -> None:
    with jobs() as checkpointer:
        checkpointer.reserve(state_of(1))
        assert len(cuda.registered) == 2
        before = dict(cuda.registered)
        saved(checkpointer, 1, state_of(1)).result()
        assert cuda.registered == before


def test_states_on_the_cpu_register_nothing(jobs: Jobs, cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "is_on_gpu", lambda tensor: False)
    with jobs() as checkpointer:
        saved(checkpointer, 1, state_of(1)).result()
    assert (cuda.registered, cuda.notes) == ({}, [])


@pytest.mark.parametrize("text", ["error 2", "RuntimeError: CUDA is not there"])
def test_memory_that_cuda_does_not_register_is_used_all_the_same(jobs: Jobs, cuda: Cuda, text: str) -> None:
    cuda.error = 2 if text == "error 2" else RuntimeError("CUDA is not there")
    with jobs() as checkpointer:
        with pytest.warns(bitsnap.MemoryWarning, match=f"cudaHostRegister: {text}"):
            saved(checkpointer, 1, state_of(1)).result()
        with pytest.warns(bitsnap.MemoryWarning, match=f"cudaHostRegister: {text}"):
            saved(checkpointer, 2, state_of(2)).result()
        saved(checkpointer, 3, state_of(3)).result()  # no slot is tried again, so nothing is warned of
        assert_same(restored(checkpointer, 3), state_of(3))


def test_a_tensor_for_whose_copy_on_the_device_there_is_no_memory_is_copied_in_parts(
    jobs: Jobs, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, sizes = arrays._plain, []

    def limited(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_contiguous() and tensor.numel() > 3000:
            raise torch.cuda.OutOfMemoryError
        sizes.append(tensor.numel())
        return plain(tensor)

    monkeypatch.setattr(arrays, "_plain", limited)
    state = {"transposed": torch.randn(301, 70).t(), "row": torch.randn(1, 9000, 3)[:, :, 1], "plain": torch.randn(9)}
    with jobs() as checkpointer:
        saved(checkpointer, 1, state).result()
        assert_same(restored(checkpointer, 1), state)
    assert len(sizes) == 8 + 4 + 1
    assert sum(sizes) == 301 * 70 + 9000 + 9


def test_a_failed_copy_fails_the_save_when_no_other_copy_runs_any_more(
    jobs: Jobs, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = arrays._plain

    def fail(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype == torch.bool:
            raise RuntimeError("an illegal memory access was encountered")
        return plain(tensor)

    with jobs() as checkpointer:
        with monkeypatch.context() as patch:
            patch.setattr(arrays, "_plain", fail)
            with pytest.raises(RuntimeError, match="illegal memory access"):
                checkpointer.save(1, state_of(1))
            assert cuda.notes[-2:] == ["event of copying", "wait for event"]
        saved(checkpointer, 1, state_of(1)).result()
        assert_same(restored(checkpointer, 1), state_of(1))


def test_tied_tensors_are_known_by_their_memory_on_the_device(tmp_path: Path, cuda: Cuda) -> None:
    weight = torch.randn(64, 64)
    bitsnap.save(tmp_path / "a.bsnap", {"head": weight, "embedding": weight})
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    assert loaded["head"] is loaded["embedding"]


def test_what_fails_on_the_device_is_raised_by_the_save(
    tmp_path: Path, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(tensor: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(arrays, "_plain", fail)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        bitsnap.save(tmp_path / "a.bsnap", {"w": torch.randn(1000)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("whole", [True, False])
def test_two_batches_are_on_their_way_to_a_gpu_at_a_time(
    tmp_path: Path, cuda: Cuda, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(reading, "_STAGED_BYTES", 30_000)
    state = {str(i): torch.randn(5000 + i).bfloat16() for i in range(9)} | {"strided": torch.randn(100, 30)}
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(1, state)
        wanted: dict[str, Any] = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
        wanted["strided"] = torch.zeros(30, 100).t()
        cuda.notes.clear()
        if whole:
            store.load(1, into=wanted)
        else:
            store.read_into(1, [(name, (0,) * tensor.dim(), tensor) for name, tensor in wanted.items()])
    assert_same(wanted, state)
    assert cuda.notes.count("event of computing") >= 5  # batches
    assert cuda.most_pending == device_copies._BATCHES
    assert cuda.pending == []


def test_memory_that_cannot_be_pinned_is_plain() -> None:
    made = device_copies.pinned_bytes(30)
    assert (made.shape, made.dtype, made.device.type) == ((30,), torch.uint8, "cpu")
