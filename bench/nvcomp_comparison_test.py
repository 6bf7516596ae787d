"""The comparison with nvCOMP, with a stand-in for it: there is no GPU here."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bench import nvcomp_coders, nvcomp_comparison
from bench.gpu_report import PinnedCopy
from bench.gpu_training import ROLES
from bench.nvcomp_coders import CODERS, joined, pieces_of, planes_of
from bench.nvcomp_comparison import KINDS, check_coder, measure_nvcomp, pipelines_of, roles_of, state_of, xor_of

CPU = torch.device("cpu")


class Array:
    """As nvcomp.Array: some bytes with their size."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def buffer_size(self) -> int:
        return len(self.data)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return np.frombuffer(bytearray(self.data), np.uint8)


class Codec:
    """As nvcomp.Codec, which refuses arguments that it does not know."""

    lose = False

    def __init__(self, *, algorithm: str, data_type: str = "|u1") -> None:
        assert algorithm in {"ANS", "Zstd", "Bitcomp"}
        self._type = np.dtype(data_type)

    def encode(self, array: np.ndarray[Any, Any]) -> Array:
        assert array.dtype == self._type
        return Array(zlib.compress(array.tobytes(), 0))

    def decode(self, array: Array) -> Array:
        data = bytearray(zlib.decompress(array.data))
        data[-1] ^= self.lose
        return Array(bytes(data))


STAND_IN = SimpleNamespace(Codec=Codec, as_array=lambda array: array, __version__="0", __cuda_version__=0)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The tensors are so small that threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def some_state(step: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(step)
    masters = {f"w{i}": torch.randn(33, i + 5, generator=generator) for i in range(3)}
    return {
        "step": step,
        "model": {name: master.bfloat16() for name, master in masters.items()},
        "master": masters,
        "exp_avg": {name: master * 1e-3 for name, master in masters.items()},
        "exp_avg_sq": {name: master.square() for name, master in masters.items()},
    }


def test_planes_of_pieces_join_to_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcomp_coders, "PIECE_BYTES", 100)
    bits = torch.arange(1000).to(torch.uint8)
    for width in (2, 4):
        pieces = pieces_of(bits, width)
        assert {piece.numel() % width for piece in pieces} == {0}
        assert torch.equal(torch.cat([joined(planes_of(piece, width)) for piece in pieces]), bits)
        assert planes_of(pieces[0], width)[1][:2].tolist() == [1, width + 1]


def test_every_coder_gives_back_what_it_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcomp_coders, "PIECE_BYTES", 256)
    first, later = roles_of(some_state(1)), roles_of(some_state(2))
    roles = {"alone": first, "later": xor_of(later, first)}
    copy = PinnedCopy(CPU, sum(bits.numel() for bits in first.values()), 1 << 10)
    found, failures = measure_nvcomp(STAND_IN, roles, copy, 2, CPU)
    assert failures == {}
    assert set(found) == {(coder.name, kind) for coder in CODERS for kind in KINDS}
    for measured in found.values():
        assert set(measured.sizes) == set(ROLES)
        assert len(measured.stalls) == len(measured.copied) == 2


def test_a_coder_that_loses_a_bit_is_left_out_and_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Codec, "lose", True)
    roles = roles_of(some_state(1))
    with pytest.raises(AssertionError, match="gANS on model: decoding gives other bytes"):
        check_coder(CODERS[0], pipelines_of(STAND_IN, CODERS[0], CPU), roles, CPU)
    copy = PinnedCopy(CPU, 1000, 1000)
    found, failures = measure_nvcomp(STAND_IN, dict.fromkeys(KINDS, roles), copy, 1, CPU)
    assert found == {}
    assert failures.keys() == {coder.name for coder in CODERS}


def test_views_of_the_bytes_of_a_state_are_its_tensors() -> None:
    state = some_state(3)
    again = state_of(roles_of(state), state)
    assert again["step"] == 3
    for role in ROLES:
        assert all(torch.equal(again[role][name], tensor) for name, tensor in state[role].items())


def test_the_program_reports_all_coders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcomp_comparison, "load_nvcomp", lambda: STAND_IN)
    arguments = "--device cpu --gigabytes 0.002 --width 64 --block 16 --first 2 --steps 1 --rounds 1 --buffer-gib 1"
    monkeypatch.setattr("sys.argv", ["nvcomp_comparison", *arguments.split(), "--results", str(tmp_path)])
    assert nvcomp_comparison.main() == 0
    text = (tmp_path / "results.md").read_text()
    assert all(f"| {coder.name} " in text for coder in CODERS)
    assert (tmp_path / "results.jsonl").read_text().count("\n") == 1
