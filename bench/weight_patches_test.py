"""The ways to send what changed are decoded here, also where gaps and shares are at their edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from bench import weight_patches
from bench.weight_patches import (
    BITS,
    MODELS,
    RATES,
    SHARES,
    WAYS,
    Listed,
    Pair,
    Way,
    escape,
    flat,
    is_same,
    like,
    pairs_of,
    parse,
    sizes_of,
    table_of,
    unescape,
)

Weights = dict[str, torch.Tensor]


def weights(seed: int, count: int = 300_000) -> Weights:
    values = torch.randn(count, generator=torch.Generator().manual_seed(seed)) * 0.02
    return {"b": values[:1000].to(torch.bfloat16), "a": values[1000:].to(torch.bfloat16).reshape(-1, 1)}


def changed(old: Weights, places: np.ndarray) -> Weights:
    elements = flat(old)
    elements[places] ^= 1
    return like(old, elements)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("share", [0.0, 1e-5, 0.001, 0.02, 0.3, 1.0])
def test_each_way_gives_back_the_weights(way: Way, share: float) -> None:
    old = weights(1)
    places = np.flatnonzero(np.random.default_rng(2).random(flat(old).size) < share)
    new = changed(old, places)
    before = flat(old)
    assert is_same(way.decode(way.encode(new, old), old), new)
    assert np.array_equal(flat(old), before)
    assert is_same(new, old) == (places.size == 0)


@pytest.mark.parametrize("way", [way for way in WAYS if isinstance(way, Listed)], ids=lambda way: way.name)
def test_gaps_at_the_edges_of_their_types(way: Way) -> None:
    gaps = [0, 1, 252, 253, 254, 255, 256, 509, 510, 511, 65534, 65535, 65536, 131069, 131070, 131071]
    places = np.cumsum(np.array(gaps) + 1) - 1
    old = weights(3, int(places[-1]) + 10)
    for own in (places, places[:1], places[-1:]):
        new = changed(old, own)
        assert is_same(way.decode(way.encode(new, old), old), new)


@pytest.mark.parametrize("dtype", ["<u1", "<u2", "<u4"])
def test_escapes_are_read_back(dtype: str) -> None:
    most = int(np.iinfo(dtype).max)
    gaps = np.array([0, 1, most - 1, most, most + 1, 2, 2 * most, 5])
    assert unescape(escape(gaps, dtype)).tolist() == gaps.tolist()
    assert escape(gaps, dtype).size == gaps.size + 4


def test_sizes_are_those_of_the_formats() -> None:
    old = weights(1)
    places = np.flatnonzero(np.random.default_rng(2).random(flat(old).size) < 0.02)
    sizes = sizes_of(Pair("pair", old, changed(old, places)))
    assert list(sizes) == [way.name for way in WAYS]
    assert sizes["index 32 + value 16"] == 6 * places.size
    assert sizes["gap 16 + value 16"] == 4 * places.size
    assert sizes["TRL-like safetensors"] == pytest.approx(6 * places.size, abs=400)
    assert sizes["bitsnap"] < min(size for name, size in sizes.items() if name != "bitsnap")


def test_a_way_that_loses_bits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    old = weights(1)
    monkeypatch.setattr(type(WAYS[0]), "decode", lambda self, parts, old: old)
    with pytest.raises(AssertionError, match="bitsnap does not give back the weights"):
        sizes_of(Pair("pair", old, changed(old, np.array([5]))))


def test_pairs_are_files_of_consecutive_numbers(tmp_path: Path) -> None:
    for name in ("a-1", "a-2", "a-10", "a-9", "b-x-2", "b-x-3", "c-1", "d-2"):
        save_file(weights(1), tmp_path / f"{name}.safetensors")
    assert [name for name, _, _ in pairs_of(tmp_path)] == ["a 1 to 2", "a 9 to 10", "b-x 2 to 3"]


@pytest.mark.parametrize("mode", [[], ["--speed", "--repeat", "2", "--rounds", "1"]])
def test_the_program_prints_a_row_for_each_pair(
    mode: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = weights(1)
    save_file(old, tmp_path / "run-1.safetensors")
    save_file(changed(old, np.arange(0, 300_000, 70)), tmp_path / "run-2.safetensors")
    monkeypatch.setattr("sys.argv", ["weight_patches", str(tmp_path), *mode])
    threads = torch.get_num_threads()
    try:
        weight_patches.main()
    finally:
        torch.set_num_threads(threads)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| run 1 to 2 ")]
    assert len(rows) == 1
    cells = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert len(cells) == (9 if mode else 2 + len(WAYS))
    if not mode:
        assert cells[1] == "1.429 %"
        assert cells[3] == "48.00"


def test_weights_of_other_dtypes_are_refused(tmp_path: Path) -> None:
    for number in (1, 2):
        save_file({"w": torch.ones(5)}, tmp_path / f"run-{number}.safetensors")
    with pytest.raises(SystemExit, match=r"tensor 'w' is torch\.float32, expected torch\.bfloat16"):
        weight_patches.read_pair(*pairs_of(tmp_path)[0])


def test_the_table_of_large_models_has_sizes_and_times() -> None:
    header, rows = table_of([8.0, 8.0, 8.0], [1.0, 2.0, 4.0], 2)
    assert len(rows) == len(MODELS) * len(SHARES)
    assert all(len(row) == len(header) for row in rows)
    # A byte a change: 1 % of 8e9 elements, so 0.08 of 16 GB; 10 Gbit/s are 1.25 GB/s.
    expected = ["8 B", "1 %", "16", "0.08", "200", "12.8 / 0.064", "1.28 / 0.0064", "0.32 / 0.0016", "8", "4", "2"]
    assert rows[1] == expected


def test_options() -> None:
    assert parse(["--table"]).bits == BITS
    assert parse(["--table", "--rates", "1", "2", "3"]).rates == [1.0, 2.0, 3.0]
    assert parse(["folder"]).rates == RATES
    with pytest.raises(SystemExit):
        parse([])
