"""safetensors files become snapshots and come back byte for byte."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file as load_safetensors, save_file as save_safetensors

import bitsnap
from python.same_bits import assert_same, random_bits


def test_a_safetensors_file_comes_back_byte_for_byte(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    dtypes = [torch.bool, torch.uint8, torch.float8_e4m3fn, torch.bfloat16, torch.float32, torch.float64, torch.int64]
    state = {
        f"{dtype}.{shape}": random_bits(rng, dtype, shape) for dtype in dtypes for shape in ((), (0, 3), (300, 2000))
    }
    save_safetensors(state, tmp_path / "a.safetensors", {"format": "pt"})
    summary = bitsnap.compress(tmp_path / "a.safetensors", tmp_path / "a.bsnap")
    assert summary.stored_bytes == (tmp_path / "a.bsnap").stat().st_size
    size = bitsnap.decompress(tmp_path / "a.bsnap", tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == (tmp_path / "a.safetensors").read_bytes()
    assert size == (tmp_path / "a.safetensors").stat().st_size
    assert bitsnap.safe_open(tmp_path / "a.bsnap", "pt").metadata() == {"format": "pt"}
    loaded = bitsnap.load_file(tmp_path / "a.bsnap")
    assert_same({name: loaded[name] for name in state}, state)


def test_deltas_between_safetensors_files(tmp_path: Path) -> None:
    first = {"w": torch.randn(500, 1000).bfloat16(), "v": torch.randn(200)}
    second = {"w": first["w"].clone(), "v": first["v"] + 1}
    second["w"][::50] += 1
    for name, state in (("1", first), ("2", second)):
        save_safetensors(state, tmp_path / f"{name}.safetensors")
    bitsnap.compress(tmp_path / "1.safetensors", tmp_path / "1.bsnap")
    summary = bitsnap.compress(tmp_path / "2.safetensors", tmp_path / "2.bsnap", base=tmp_path / "1.bsnap")
    assert summary.stored_bytes < summary.raw_bytes / 10
    bitsnap.decompress(bitsnap.Snapshot(tmp_path / "2.bsnap"), tmp_path / "3.safetensors")
    assert (tmp_path / "3.safetensors").read_bytes() == (tmp_path / "2.safetensors").read_bytes()


def test_what_save_file_wrote_becomes_a_file_that_safetensors_reads(tmp_path: Path) -> None:
    state = {"w": torch.randn(30, 40).bfloat16(), "t": torch.randn(5, 6).t(), "e": torch.empty(0)}
    bitsnap.save_file(state, tmp_path / "a.bsnap", {"format": "pt"})
    bitsnap.decompress(tmp_path / "a.bsnap", tmp_path / "a.safetensors")
    loaded = load_safetensors(tmp_path / "a.safetensors")
    assert_same({name: loaded[name] for name in state}, state)


def test_dtypes_that_nobody_knows_travel_but_are_not_given_out(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F3_NEW", "shape": [5], "data_offsets": [0, 3]}}).encode()
    data = struct.pack("<Q", len(header)) + header + b"xyz"
    (tmp_path / "a.safetensors").write_bytes(data)
    bitsnap.compress(tmp_path / "a.safetensors", tmp_path / "a.bsnap")
    bitsnap.decompress(tmp_path / "a.bsnap", tmp_path / "b.safetensors")
    assert (tmp_path / "b.safetensors").read_bytes() == data
    for framework in ("pt", "np"):
        opened = bitsnap.safe_open(tmp_path / "a.bsnap", framework)
        assert opened.get_slice("a").get_dtype() == "F3_NEW"
        with pytest.raises(bitsnap.UnsupportedError, match=r"tensor 'a': .* has no dtype for 'F3_NEW'"):
            opened.get_tensor("a")


def test_packed_dtypes_come_back_from_safetensors(tmp_path: Path) -> None:
    packed = random_bits(np.random.default_rng(2), torch.float4_e2m1fn_x2, (4, 6))
    save_safetensors({"a": packed}, tmp_path / "a.safetensors")
    bitsnap.compress(tmp_path / "a.safetensors", tmp_path / "a.bsnap")
    loaded = bitsnap.load_file(tmp_path / "a.bsnap")["a"]
    assert_same(loaded, packed)
    opened = bitsnap.safe_open(tmp_path / "a.bsnap", "pt").get_slice("a")
    assert opened.get_shape() == [4, 12]
    with pytest.raises(bitsnap.UnsupportedError, match="not whole bytes"):
        opened[0]


def test_a_file_that_is_not_safetensors_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(bitsnap.BitsnapError, match=r"a\.safetensors"):
        bitsnap.compress(tmp_path / "a.safetensors", tmp_path / "a.bsnap")
    assert not (tmp_path / "a.bsnap").exists()
