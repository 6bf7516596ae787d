"""compress and decompress restore every file byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cli.command_line import run, run_json
from cli.tensor_file import ELEMENT_BYTES, Tensor, random_bytes, to_bytes, weights, write

POLICIES = ["lossless", "bounded", "lmc", "bitsnap", "raw"]
CHUNK = 1 << 18


def round_trip(folder: Path, original: bytes, *options: str) -> int:
    """Returns the size of the snapshot."""
    source = folder / "in.safetensors"
    source.write_bytes(original)
    snapshot = folder / "out.bsnap"
    again = folder / "again.safetensors"
    run("compress", source, "-o", snapshot, "-f", *options)
    run("verify", snapshot)
    run("decompress", snapshot, "-o", again, "-f")
    assert again.read_bytes() == original
    return snapshot.stat().st_size


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", ELEMENT_BYTES)
def test_every_dtype_comes_back(tmp_path: Path, dtype: str, policy: str) -> None:
    size = ELEMENT_BYTES[dtype]
    tensors = [
        Tensor(f"{dtype}.{elements}", dtype, (elements,), random_bytes(elements * size, seed=elements))
        for elements in (1, 7, 1000, CHUNK + 3)
    ]
    round_trip(tmp_path, to_bytes(tensors), "--policy", policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_unknown_and_sub_byte_dtypes_come_back_as_opaque_bytes(tmp_path: Path, policy: str) -> None:
    tensors = [
        Tensor("four_bits", "F4", (6,), random_bytes(3, 1)),
        Tensor("six_bits", "F6_E2M3", (8, 4), random_bytes(24, 2)),
        Tensor("scales", "F8_E8M0", (1000,), random_bytes(1000, 3)),
        Tensor("unheard_of", "Q7_K", (300_001,), random_bytes(300_001, 4)),
    ]
    round_trip(tmp_path, to_bytes(tensors), "--policy", policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_shapes_at_the_edges_come_back(tmp_path: Path, policy: str) -> None:
    tensors = [
        Tensor("scalar", "F32", (), random_bytes(4, 1)),
        Tensor("empty", "BF16", (0,), b""),
        Tensor("empty_matrix", "F64", (3, 0, 5), b""),
        Tensor("zeros", "F32", (300, 1000), bytes(1_200_000)),
        Tensor("ones", "BF16", (2, 200_000), b"\x80\x3f" * 400_000),
        Tensor("deep", "U8", (1,) * 20, b"\x07"),
        Tensor("", "U8", (2,), b"\x01\x02"),
        weights("whole_chunk", CHUNK, 5, "BF16"),
        weights("last_is_one", 2 * CHUNK + 1, 6, "F16"),
    ]
    round_trip(tmp_path, to_bytes(tensors), "--policy", policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_nan_payloads_and_signs_of_zero_come_back(tmp_path: Path, policy: str) -> None:
    every_16_bits = np.arange(1 << 16, dtype=np.uint16).tobytes()
    nans = np.random.default_rng(1).integers(0x7F800001, 0x7FFFFFFF, 300_000, dtype=np.uint32)
    signed = nans | np.where(np.arange(300_000) % 3 == 0, 0x80000000, 0).astype(np.uint32)
    every_8_bits = np.arange(256, dtype=np.uint8).tobytes()
    tensors = [
        Tensor("bf16", "BF16", (1 << 16,), every_16_bits),
        Tensor("f16", "F16", (1 << 16,), every_16_bits),
        Tensor("f32", "F32", (300_000,), signed.tobytes()),
        Tensor("e4m3", "F8_E4M3", (256,), every_8_bits),
        Tensor("e5m2", "F8_E5M2", (25_600,), every_8_bits * 100),
        Tensor("zeros", "F32", (100_000,), b"\0\0\0\0\0\0\0\x80" * 50_000),
    ]
    round_trip(tmp_path, to_bytes(tensors), "--policy", policy)


def test_the_header_comes_back_verbatim(tmp_path: Path) -> None:
    metadata = {"format": "pt", "umlaut ä": 'quotes " and \\', "empty": "", "": "no key"}
    tensors = [Tensor("z", "U8", (3,), b"abc"), Tensor("a.β", "I16", (2,), b"\1\2\3\4")]
    for padding in ("", "   ", " " * 4096):
        round_trip(tmp_path, to_bytes(tensors, metadata, padding))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("metadata", [None, {}, {"note": "nothing here"}])
def test_a_file_without_tensors_comes_back(tmp_path: Path, metadata: dict[str, str] | None, policy: str) -> None:
    round_trip(tmp_path, to_bytes([], metadata), "--policy", policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_ten_thousand_tiny_tensors_do_not_expand(tmp_path: Path, policy: str) -> None:
    tensors = [
        Tensor(f"state.{i}.step", "F32", (), np.float32(1000 + i % 3).tobytes())
        if i % 2
        else Tensor(f"layers.{i}.norm.bias", "BF16", (1 + i % 5,), random_bytes(2 * (1 + i % 5), i))
        for i in range(10_000)
    ]
    original = to_bytes(tensors)
    assert round_trip(tmp_path, original, "--policy", policy) <= len(original)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_delta_comes_back_and_unchanged_tensors_take_almost_no_space(tmp_path: Path, policy: str) -> None:
    frozen = weights("frozen", 3 * CHUNK, 1)
    first = [frozen, weights("trained", 2 * CHUNK + 5, 2, "BF16"), weights("only_in_the_first", 5000, 3)]
    trained = np.frombuffer(first[1].data, np.uint16).copy()
    trained[::7] += 1
    second = [
        Tensor("trained", "BF16", first[1].shape, trained.tobytes()),
        frozen,
        weights("new", 70_000, 4),
        Tensor("only_in_the_first", "F32", (4999,), random_bytes(4999 * 4, 5)),
    ]
    base_file = write(tmp_path / "first.safetensors", first)
    base = tmp_path / "first.bsnap"
    run("compress", base_file, "--policy", policy)
    size = round_trip(tmp_path, to_bytes(second), "--policy", policy, "--base", str(base))
    if policy == "lossless":
        alone = sum(len(tensor.data) for tensor in second) - len(frozen.data)
        assert size < alone
        report = run_json("inspect", tmp_path / "out.bsnap")
        stored = {tensor["name"]: tensor.get("stored_bytes") for tensor in report["tensors"]}
        assert stored["frozen"] < len(frozen.data) / 1000
        assert report["bases"][0]["id"] == run_json("inspect", base)["id"]


def test_a_chain_of_deltas_comes_back(tmp_path: Path) -> None:
    values = np.frombuffer(weights("w", 400_000, 1).data, np.uint32).copy()
    originals = []
    for step in range(12):
        values[step::11] += 1
        originals.append(to_bytes([Tensor("w", "F32", (400_000,), values.tobytes())], {"step": str(step)}))
        source = tmp_path / f"{step}.safetensors"
        source.write_bytes(originals[-1])
        base = ["--base", tmp_path / f"{step - 1}.bsnap"] if step else []
        run("compress", source, *base)
        source.unlink()
    for step, original in enumerate(originals):
        assert run("decompress", "-c", tmp_path / f"{step}.bsnap").stdout == original
    run("verify", *sorted(tmp_path.glob("*.bsnap")))


@pytest.mark.parametrize("policy", POLICIES)
def test_threads_and_cpu_levels_give_equal_bytes(tmp_path: Path, policy: str) -> None:
    tensors = [
        weights("a", 3 * CHUNK + 17, 1, "BF16"),
        weights("b", 2 * CHUNK - 1, 2),
        weights("c", CHUNK, 3, "F16"),
        Tensor("d", "F8_E4M3", (500_000,), random_bytes(500_000, 4)),
        Tensor("small", "I64", (), random_bytes(8, 5)),
    ]
    changed = [Tensor(t.name, t.dtype, t.shape, t.data[:-2] + b"\1\2") for t in tensors]
    base_source = write(tmp_path / "base.safetensors", tensors)
    source = write(tmp_path / "in.safetensors", changed)
    original = source.read_bytes()
    variants = [["-T", "1"], ["-T2"], ["--threads=7"], ["-T0"]]
    detected = run("--version").stdout.decode().split("detected: ")[1].rstrip(")\n")
    levels = ["scalar", "avx2", "avx512"]
    variants += [["--cpu-level", level] for level in levels[: levels.index(detected) + 1]]
    results = set()
    for number, variant in enumerate(variants):
        folder = tmp_path / str(number)
        folder.mkdir()
        base = folder / "base.bsnap"
        out = folder / "out.bsnap"
        run("compress", base_source, "-o", base, "--policy", policy, *variant)
        run("compress", source, "-o", out, "--base", base, "--policy", policy, *variant)
        results.add((base.read_bytes(), out.read_bytes()))
        assert run("decompress", "-c", out, *variant).stdout == original
    assert len(results) == 1
