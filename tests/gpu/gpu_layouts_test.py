"""Tensors of a GPU in all sizes, dtypes and layouts: bit for bit what torch itself copies, from every way to save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint
from torch import Tensor

import bitsnap
from bitsnap.dcp import StorageReader, StorageWriter
from gpu.conftest import Gpu, Saves, frozen
from python.same_bits import assert_same, random_bits

dcp: Any = torch.distributed.checkpoint

DTYPES = (
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.complex64,
    torch.complex128,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)


def bits_on(gpu: Gpu, dtype: torch.dtype, *shape: int, seed: int = 0) -> Tensor:
    return random_bits(np.random.default_rng(seed), dtype, shape).to(gpu.device)


def layouts(gpu: Gpu) -> dict[str, Tensor]:
    """Views that are not in row-major order, begin inside of their storage, or read it in another way."""
    base = bits_on(gpu, torch.float32, 300, 70)
    half = bits_on(gpu, torch.bfloat16, 129, 65)
    images = bits_on(gpu, torch.float16, 5, 7, 9, 11)
    numbers = bits_on(gpu, torch.complex64, 40, 30)
    return {
        "transposed": base.t(),
        "every third": base[::3, 1::2],
        "behind an odd number of elements": half.reshape(-1)[1:4000],
        "expanded": base[:1].expand(50, 70),
        "first and last row": base[::299],
        "channels last": images.contiguous(memory_format=torch.channels_last),
        "permuted": images.permute(3, 1, 0, 2),
        "narrowed": base.narrow(1, 3, 64),
        "conjugated": numbers.conj(),
        "conjugated and transposed": numbers.conj().t(),
        "negated": numbers.conj().imag,
        "scalar": base[3, 4],
        "empty": base[:0],
        "one element": base[5:6, 7:8],
        "plain": base,
    }


def test_every_dtype_with_every_bit_pattern_is_saved(gpu: Gpu, saves: Saves) -> None:
    state = {f"{dtype}": bits_on(gpu, dtype, 200, 33, seed=i) for i, dtype in enumerate(DTYPES)}
    state |= {f"{dtype} scalar": bits_on(gpu, dtype, 1, seed=i)[0] for i, dtype in enumerate(DTYPES)}
    saves.save(1, state)
    saves.check({1: frozen(state)})


def test_every_layout_is_saved_in_row_major_order(gpu: Gpu, saves: Saves) -> None:
    state = layouts(gpu)
    saves.save(1, state)
    saves.check({1: frozen(state)})


def test_many_small_tensors_are_saved(gpu: Gpu, saves: Saves) -> None:
    count = gpu.size(5000, 500)
    state = {f"w{i}": bits_on(gpu, DTYPES[i % len(DTYPES)], i % 97, seed=i) for i in range(count)}
    saves.save(1, state)
    saves.check({1: frozen(state)})


def test_few_large_tensors_are_saved_with_small_ones_between_them(gpu: Gpu, saves: Saves) -> None:
    elements = gpu.size(1 << 27, 1 << 20)
    state: dict[str, Any] = {}
    for i in range(3):
        torch.manual_seed(i)
        state[f"large{i}"] = torch.randn(elements + i, device=gpu.device)
        state[f"small{i}"] = torch.randn(3, device=gpu.device)
    saves.save(1, state)
    saves.check({1: frozen(state)})


def test_tied_tensors_are_restored_as_tied(gpu: Gpu, saves: Saves) -> None:
    weight = torch.randn(500, 40, device=gpu.device)
    saves.save(1, {"embedding": weight, "head": weight, "rows": weight[10:20]})
    saves.checkpointer.wait()
    restored = saves.checkpointer.restore()
    assert restored is not None
    assert restored.state["embedding"] is restored.state["head"]
    assert_same(restored.state["rows"], frozen(weight[10:20]))


def test_files_and_stores_take_the_same_tensors(gpu: Gpu, tmp_path: Path) -> None:
    state = layouts(gpu)
    expected = frozen(state)
    bitsnap.save(tmp_path / "a.bsnap", state)
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), expected)
    loaded = bitsnap.load(tmp_path / "a.bsnap", map_location=gpu.device)
    assert {tensor.device for tensor in loaded.values()} == {gpu.device}
    assert_same(loaded, expected)
    with bitsnap.Store(tmp_path / "store") as store:
        store.save(1, state)
        assert_same(store.load(1), expected)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_dcp_saves_and_fills_them(gpu: Gpu, tmp_path: Path) -> None:
    state = {"model": {name: tensor for name, tensor in layouts(gpu).items() if not tensor.is_neg()}}
    expected = frozen(state)
    dcp.save(state, checkpoint_id=tmp_path / "run/step-1", storage_writer=StorageWriter(), no_dist=True)
    filled = {"model": {name: torch.zeros_like(tensor.resolve_conj()) for name, tensor in state["model"].items()}}
    dcp.load(filled, checkpoint_id=tmp_path / "run/step-1", storage_reader=StorageReader(), no_dist=True)
    assert_same(frozen(filled), expected)


def test_a_restore_fills_tensors_of_the_gpu_where_they_are(gpu: Gpu, saves: Saves) -> None:
    names = layouts(gpu).keys() - {"expanded"}  # several of its elements are the same memory
    state = {name: layouts(gpu)[name] for name in sorted(names)}  # each in memory of its own
    expected = frozen(state)
    saves.save(1, state)
    saves.checkpointer.wait()
    places = {name: tensor.data_ptr() for name, tensor in state.items()}
    with bitsnap.Store(saves.path, read_only=True) as store:
        for fill in (lambda: saves.checkpointer.restore(into=state), lambda: store.load(1, into=state)):
            for tensor in state.values():
                tensor.zero_()
            fill()
            assert_same(frozen(state), expected)
    assert {name: tensor.data_ptr() for name, tensor in state.items()} == places
