"""Reads what bitsnap writes with the second reader: random states of all dtypes, every policy, bases and chains."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest
import torch

import bitsnap
from cli import command_line
from golden.state_description import describe
from second_reader.bsnap_reader import open_file
from second_reader.chunk_codecs import CODEC_IDS, ELEMENT_SIZES
from second_reader.described_state import describe_state
from second_reader.ordinal_delta_cases import coarsenesses

Policy = Literal["lossless", "bounded", "lmc", "bitsnap", "raw"]
POLICIES = get_args(Policy)
# By size of an element; a dtype of torch, and one of the same size without a known name.
DTYPES = {
    1: [torch.bool, torch.uint8, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu],
    2: [torch.uint16, torch.int16, torch.float16, torch.bfloat16],
    4: [torch.uint32, torch.int32, torch.float32],
    8: [torch.uint64, torch.int64, torch.float64, torch.complex64],
    16: [torch.complex128],
}
# Around the size of the pool's tensors, of a Huffman block, of a group.
ELEMENTS = [0, 1, 3, 511, 1025, 2048, 4100, 9001, 65_535, 65_537]
PATTERNS = ["random", "few", "constant", "floats", "positive", "sparse", "rounded"]


def random_bits(generator: np.random.Generator, pattern: str, elements: int, width: int) -> np.ndarray[Any, Any]:
    """One row of bytes for each element."""
    if pattern == "random":
        return generator.integers(0, 256, (elements, width), np.uint8)
    if pattern in ("few", "constant"):
        patterns = generator.integers(0, 256, (5 if pattern == "few" else 1, width), np.uint8)
        return patterns[generator.integers(0, len(patterns), elements)]
    if pattern == "sparse":
        rows = np.zeros((elements, width), np.uint8)
        marked = generator.random(elements) < 0.01
        rows[marked] = generator.integers(0, 256, (int(marked.sum()), width), np.uint8)
        return rows
    values = (generator.standard_normal(elements) * 0.02).astype(np.float64 if width == 8 else np.float32)
    values = np.abs(values) if pattern == "positive" else values
    size = values.dtype.itemsize
    if pattern == "rounded":
        words = values.view(f"<u{size}")
        words &= ~np.array((1 << int(generator.integers(1, 24))) - 1, words.dtype)
    upper = values.view(np.uint8).reshape(elements, size)[:, size - min(width, size) :]
    return np.ascontiguousarray(np.resize(upper, (elements, width)) if width > size else upper)


def to_tensor(rows: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        rows = rows & 1
    data = torch.from_numpy(np.ascontiguousarray(rows).reshape(-1).copy())
    return data.view(dtype) if data.numel() else torch.empty(0, dtype=dtype)


def random_state(seed: int) -> dict[str, torch.Tensor]:
    generator = np.random.default_rng(seed)
    state = {}
    for width, dtypes in DTYPES.items():
        for dtype in dtypes:
            elements = int(generator.choice(ELEMENTS)) // (2 if width > 4 else 1)
            rows = random_bits(generator, str(generator.choice(PATTERNS)), elements, width)
            state[str(dtype).removeprefix("torch.")] = to_tensor(rows, dtype)
    return state


def changed_state(state: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """A state with tensors that are unchanged, new, of another size, or changed in few elements or low bits."""
    generator = np.random.default_rng(seed)
    changed = {}
    for name, tensor in state.items():
        width = tensor.element_size()
        rows = tensor.view(torch.uint8).numpy().reshape(-1, width).copy() if tensor.numel() else None
        if rows is not None:
            how = generator.choice(["keep", "few", "low", "new", "shorter"], p=[0.3, 0.2, 0.3, 0.1, 0.1])
            if how == "few":
                rows[generator.random(len(rows)) < 0.005] ^= 0x41
            elif how == "low":
                rows[:, 0] ^= (generator.random(len(rows)) < 0.2).astype(np.uint8)
            elif how == "new":
                rows = random_bits(generator, "floats", len(rows), width)
            elif how == "shorter":
                rows = rows[: len(rows) // 2 + 1]
        changed[name] = tensor if rows is None else to_tensor(rows, tensor.dtype)
    return changed


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("policy", POLICIES)
def test_a_chain_of_states_is_read_bit_for_bit(policy: Policy, seed: int, tmp_path: Path) -> None:
    state = random_state(seed)
    base: Path | None = None
    for step in range(3):
        path = tmp_path / f"step-{step}.bsnap"
        bitsnap.save(path, state, base=base, settings=policy, metadata={"step": str(step)})
        snapshot = open_file(path)
        snapshot.verify()
        assert describe_state(snapshot) == describe(state)
        assert snapshot.metadata == {"step": str(step)}
        base = path
        state = changed_state(state, 100 * seed + step)


def moments(rows: int, columns: int, dtype: torch.dtype = torch.float32, power: int = 2) -> torch.Tensor:
    """A matrix whose rows and columns have scales of their own; some rows are 0."""
    generator = np.random.default_rng([rows, columns])
    scales = 2.0 ** (generator.normal(0, 2, (rows, 1)) + generator.normal(0, 2, columns))
    scales[::9] = 0
    return torch.from_numpy(1e-3 * scales * generator.standard_normal((rows, columns)) ** power).to(dtype)


@pytest.mark.parametrize("shape", [(90, 100), (300, 1000), (40, 10_001), (3, 100_000), (200_000, 7)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_moments_with_scales_are_read_bit_for_bit(dtype: torch.dtype, shape: tuple[int, int], tmp_path: Path) -> None:
    state = {"exp_avg": moments(*shape, dtype, power=1), "exp_avg_sq": moments(*shape, dtype)}
    path = tmp_path / "moments.bsnap"
    bitsnap.save(path, state)
    snapshot = open_file(path)
    snapshot.verify()
    assert describe_state(snapshot) == describe(state)
    assert dtype != torch.float32 or shape[1] < 64 or "factored_split" in snapshot.codec_names()


def adam_states(
    elements: int,
    steps: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
    *,
    fused: bool = False,
    gradients: torch.dtype | None = None,
) -> list[dict[str, torch.Tensor]]:
    """A parameter with its moments, step by step. `gradients`: what they are rounded to before they are clipped."""
    generator = torch.Generator().manual_seed(seed)
    parameter = torch.nn.Parameter((0.02 * torch.randn(elements, generator=generator)).to(dtype))
    optimizer = torch.optim.AdamW([parameter], lr=3e-4, betas=(0.9, 0.95), foreach=False, fused=fused)
    scales = torch.logspace(-6, -2, elements)
    states = []
    for _ in range(steps + 1):
        drawn = scales * torch.randn(elements, generator=generator)
        parameter.grad = (drawn if gradients is None else 0.3556 * drawn.to(gradients).float()).to(dtype)
        optimizer.step()
        moments = optimizer.state[parameter]
        states.append(
            {
                "master.w": parameter.detach().clone(),
                "exp_avg.w": moments["exp_avg"].clone(),
                "exp_avg_sq.w": moments["exp_avg_sq"].clone(),
            }
        )
    return states


@pytest.mark.parametrize("elements", [1_100, 40_000, 262_144 + 9_001])
@pytest.mark.parametrize("name", ["bounded", "bitsnap"])
def test_rounded_tensors_are_read_as_stored(name: str, elements: int, tmp_path: Path) -> None:
    base = None
    for step, state in enumerate(adam_states(elements, 2, elements)):
        path = tmp_path / f"{step}.bsnap"
        state["model.w"] = state["master.w"].to(torch.bfloat16)
        adam = bitsnap.Adam((0.9, 0.95), 1e-8, step + 1) if name == "bounded" else None
        bitsnap.save(path, state, base=base, settings=name, adam=adam)
        snapshot = open_file(path)
        snapshot.verify()
        stored = bitsnap.load(path)
        assert describe_state(snapshot) == describe(stored) != describe(state)
        assert torch.equal(stored["model.w"], state["model.w"])
        assert ("scaled_by" if name == "bounded" else "clustered") in snapshot.codec_names()
        base = path


@pytest.mark.parametrize("elements", [1_100, 40_000, 262_144 + 9_001])
def test_steps_of_an_optimizer_are_read_bit_for_bit(elements: int, tmp_path: Path) -> None:
    check_steps(adam_states(elements, 2, elements), tmp_path)


@pytest.mark.parametrize("elements", [2_200, 40_000, 262_144 + 9_001])
@pytest.mark.parametrize("fused", [False, True])
def test_steps_in_bf16_are_read_bit_for_bit(elements: int, fused: bool, tmp_path: Path) -> None:
    check_steps(adam_states(elements, 2, elements, torch.bfloat16, fused=fused), tmp_path)


@pytest.mark.parametrize("elements", [1_100, 40_000, 262_144 + 9_001])
@pytest.mark.parametrize("gradients", [torch.bfloat16, torch.float16])
def test_steps_with_short_gradients_are_read_bit_for_bit(elements: int, gradients: torch.dtype, tmp_path: Path) -> None:
    check_steps(adam_states(elements, 2, elements, gradients=gradients), tmp_path, "gradient_step")


def check_steps(states: list[dict[str, torch.Tensor]], tmp_path: Path, codec: str = "optimizer_step") -> None:
    base = None
    for step, state in enumerate(states):
        path = tmp_path / f"{step}.bsnap"
        bitsnap.save(path, state, base=base)
        snapshot = open_file(path)
        snapshot.verify()
        assert describe_state(snapshot) == describe(state)
        assert (codec in snapshot.codec_names()) == (step > 0)
        base = path


def test_the_random_states_use_every_codec(tmp_path: Path) -> None:
    used: set[str] = set()
    weights = random_bits(np.random.default_rng(5), "floats", 9001, 2)
    for policy in POLICIES:
        adam = bitsnap.Adam((0.9, 0.95), 1e-8, 3) if policy == "bounded" else None
        state = random_state(1) | {"weight": to_tensor(weights, torch.bfloat16), "exp_avg_sq": moments(60, 300)}
        state |= {"rounded": moments(60, 300).to(torch.bfloat16), "master.rounded": moments(60, 300)}
        before, after = adam_states(3000, 1, 1, gradients=torch.bfloat16)
        bitsnap.save(tmp_path / "base.bsnap", state | before, settings=policy, adam=adam, overwrite=True)
        changed = changed_state(state, 2) | after
        options: dict[str, Any] = {"settings": policy, "adam": adam, "overwrite": True}
        bitsnap.save(tmp_path / "next.bsnap", changed, base=tmp_path / "base.bsnap", **options)
        for name in ("base", "next"):
            used |= open_file(tmp_path / f"{name}.bsnap").codec_names()
    assert used == set(CODEC_IDS)


def moved_floats(rows: np.ndarray[Any, Any], how: str, seed: int) -> np.ndarray[Any, Any]:
    """Floats of which few or all elements moved by some ULPs, and the smallest changed places and signs."""
    generator = np.random.default_rng(seed)
    width = rows.shape[1]
    words: np.ndarray[Any, np.dtype[Any]] = rows.reshape(-1).view(f"<u{width}")
    by = generator.laplace(0, 5, len(words)).astype(np.int64)
    if how == "few":
        by[generator.random(len(words)) > 0.004] = 0
    moved = words + by.astype(words.dtype)
    if how == "crossed":
        magnitudes = words << 1
        small = np.flatnonzero(magnitudes < np.quantile(magnitudes, 0.3))
        moved[small] = words[generator.permutation(small)]
        moved[small] ^= (small % 2 << (8 * width - 1)).astype(words.dtype)
    bits: np.ndarray[Any, Any] = moved.view(np.uint8).reshape(-1, width)
    return bits


FLOATS = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32]


@pytest.mark.parametrize("how", ["all", "few", "crossed"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats_that_moved_are_read_bit_for_bit(dtype: torch.dtype, how: str, tmp_path: Path) -> None:
    used = set()
    for elements in (6_000, 66_001, 262_144 + 9_001):
        rows = random_bits(np.random.default_rng(elements), "floats", elements, dtype.itemsize)
        for step in range(2):
            state = {"float": to_tensor(rows, dtype)}
            path, base = tmp_path / f"{elements}-{step}.bsnap", tmp_path / f"{elements}-{step - 1}.bsnap"
            bitsnap.save(path, state, base=base if step else None)
            snapshot = open_file(path)
            snapshot.verify()
            assert describe_state(snapshot) == describe(state)
            used |= snapshot.codec_names()
            rows = moved_floats(rows, how, elements)
    # Of elements of one byte that have all moved, planes are as small.
    assert "ordinal_delta" in used or (how != "few" and dtype.itemsize == 1)


@pytest.mark.parametrize("beta", [0.95, 0.999])
def test_second_moments_are_read_bit_for_bit(beta: float, tmp_path: Path) -> None:
    for elements in (6_000, 262_144 + 9_001):
        generator = torch.Generator().manual_seed(elements)
        moments = torch.rand(elements, generator=generator) * torch.rand(elements, generator=generator) ** 4
        for step in range(2):
            path, base = tmp_path / f"{elements}-{step}.bsnap", tmp_path / f"{elements}-{step - 1}.bsnap"
            state = {"exp_avg_sq": moments}
            bitsnap.save(path, state, base=base if step else None)
            snapshot = open_file(path)
            snapshot.verify()
            assert describe_state(snapshot) == describe(state)
            gradients = moments.sqrt() * torch.randn(elements, generator=generator)
            gradients[::50] = 0
            moments = moments * beta + (1 - beta) * gradients * gradients
        file = path.read_bytes()
        rows = [row for row in snapshot.rows if row.codec == CODEC_IDS["ordinal_delta"]]
        payloads = [file[row.offset : row.offset + row.size] for row in rows]
        assert {payload[0] for payload in payloads} == {2}  # above a floor
        counts = [min(262_144, elements - first) for first in range(0, elements, 262_144)]
        assert all(coarsenesses(payload, count) - {0} for payload, count in zip(payloads, counts, strict=True))


def test_chunks_beyond_the_first_are_read_bit_for_bit(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    rows = random_bits(generator, "sparse", 262_144 + 1000, 2)
    state = {"long": to_tensor(rows, torch.bfloat16), "step": 1}
    bitsnap.save(tmp_path / "a.bsnap", state)
    rows[[0, 262_143, 262_144, -1]] ^= 1
    changed = {"long": to_tensor(rows, torch.bfloat16), "step": 2}
    bitsnap.save(tmp_path / "b.bsnap", changed, base=tmp_path / "a.bsnap")
    for name, expected in (("a", state), ("b", changed)):
        snapshot = open_file(tmp_path / f"{name}.bsnap")
        snapshot.verify()
        assert describe_state(snapshot) == describe(expected)


def test_a_chain_as_deep_as_is_allowed_is_read(tmp_path: Path) -> None:
    value = torch.zeros(3000, dtype=torch.int32)
    base: Path | None = None
    depths = []
    for step in range(12):
        value = value.clone()
        value[:: step + 7] += 1
        path = tmp_path / f"{step}.bsnap"
        bitsnap.save(path, {"value": value}, base=base, settings=bitsnap.Settings(policy="bitsnap", max_depth=5))
        snapshot = open_file(path)
        snapshot.verify()
        depths.append(snapshot.rows[0].depth)
        assert describe_state(snapshot) == describe({"value": value})
        base = path
    assert max(depths) == 5


def test_a_state_saved_again_unchanged_finds_its_base(tmp_path: Path) -> None:
    state = {"a": torch.arange(5000)}
    for name, base in (("first", None), ("second", "first"), ("third", "second")):
        bitsnap.save(tmp_path / f"{name}.bsnap", state, base=base and tmp_path / f"{base}.bsnap")
    snapshots = [open_file(tmp_path / f"{name}.bsnap") for name in ("first", "second", "third")]
    assert len({snapshot.snapshot_id for snapshot in snapshots}) == 1
    for snapshot in snapshots:
        snapshot.verify()
        assert describe_state(snapshot) == describe(state)


def test_long_values_are_read(tmp_path: Path) -> None:
    state = {"bytes": np.random.default_rng(1).bytes(65_537), "texts": ["ä" * 40_000, "short"]}
    bitsnap.save(tmp_path / "a.bsnap", state)
    snapshot = open_file(tmp_path / "a.bsnap")
    assert [tensor.dtype for tensor in snapshot.tensors] == ["U8", "U8"]
    assert describe_state(snapshot) == describe(state)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_safetensors_file_that_the_command_compressed_is_read(policy: str, seed: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(seed)
    originals = []
    for step in range(2):
        header: dict[str, Any] = {"__metadata__": {"step": str(step)}}
        data = b""
        for dtype in [*ELEMENT_SIZES, "F4", "F6_E2M3"]:
            elements = int(generator.choice([0, 40, 4096]))
            piece = random_bits(np.random.default_rng(seed), "floats", elements, ELEMENT_SIZES.get(dtype, 1)).tobytes()
            piece = bytes(byte & 1 for byte in piece) if dtype == "BOOL" else piece
            bits = {"F4": 4, "F6_E2M3": 6}.get(dtype, 8)
            shape = [len(piece) * 8 // bits if bits < 8 else elements]
            if dtype == "F6_E2M3":
                shape, piece = [len(piece) // 3 * 4], piece[: len(piece) // 3 * 3]
            header[dtype] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(piece)]}
            data += piece
        text = json.dumps(header).encode() + b" " * (step * 3)
        originals.append(struct.pack("<Q", len(text)) + text + data)
    base: list[object] = []
    for step, original in enumerate(originals):
        source, path = tmp_path / f"{step}.safetensors", tmp_path / f"{step}.bsnap"
        source.write_bytes(original)
        command_line.run("compress", source, "-o", path, "--policy", policy, *base)
        snapshot = open_file(path)
        snapshot.verify()
        assert snapshot.safetensors_file() == original
        base = ["--base", path]
