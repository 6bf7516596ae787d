"""Reads patches that bitsnap makes with the second reader, and patches that break a rule with both."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import bitsnap
from second_reader import patch_cases
from second_reader.chunk_codecs import ELEMENT_SIZES
from second_reader.patch_cases import PatchParts
from second_reader.patch_reader import WrongBase, apply_patches, check_unchanged, read_patches
from second_reader.reader_errors import Corrupt, ReaderError, Truncated, Unsupported

Array = npt.NDArray[Any]

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "spec" / "patch.md"
DTYPES: dict[str, Any] = {
    "BF16": ml_dtypes.bfloat16,
    "F16": np.float16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F32": np.float32,
    "F64": np.float64,
    "I64": np.int64,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
SIZES = (1, 63, 65, 4097, 70_001)
FAULTS: dict[str, tuple[type[ReaderError], type[bitsnap.BitsnapError]]] = {
    "truncated": (Truncated, bitsnap.TruncatedError),
    "corrupt": (Corrupt, bitsnap.CorruptError),
    "unsupported": (Unsupported, bitsnap.UnsupportedError),
}


def random_weights(dtype: str, sizes: tuple[int, ...] = SIZES) -> dict[str, Array]:
    random = np.random.default_rng(len(dtype))
    if dtype in ("I64", "U8", "BOOL"):
        return {f"{dtype} {n}": random.integers(0, 2, n).astype(DTYPES[dtype]) for n in sizes}
    return {f"{dtype} {n}": (random.normal(size=n) / 50).astype(DTYPES[dtype]) for n in sizes}


def moved(weights: Mapping[str, Array], share: float) -> dict[str, Array]:
    """A share of the elements moves by a bit, and some of them by more; in each third tensor, nothing does."""
    random = np.random.default_rng(1)
    result = {}
    for number, (name, old) in enumerate(weights.items()):
        new = old.copy()
        bits = new.view(f"u{old.itemsize}")
        if number % 3 != 2:
            chosen = random.random(len(bits)) < share
            steps = random.integers(0, 2, len(bits)).astype(bits.dtype)
            if old.dtype == np.bool_:
                bits[chosen] ^= 1
            else:
                bits[chosen] += 1 - 2 * steps[chosen]
                bits[chosen & (random.random(len(bits)) < 0.05)] += 9
        result[name] = new
    return result


def dtype_of(array: Array) -> str:
    return next(name for name, dtype in DTYPES.items() if array.dtype == np.dtype(dtype))


def plain(weights: Mapping[str, Array]) -> dict[str, tuple[str, bytes]]:
    return {name: (dtype_of(array), array.tobytes()) for name, array in weights.items()}


def content(weights: Mapping[str, Array]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in weights.items()}


def arrays(parts: PatchParts | bytes) -> dict[str, Array]:
    own = PatchParts() if isinstance(parts, bytes) else parts
    return {name: np.frombuffer(data, DTYPES[dtype]).copy() for name, (dtype, data) in own.weights.items()}


def bytes_of(parts: PatchParts | bytes) -> bytes:
    return parts if isinstance(parts, bytes) else parts.build()


@pytest.mark.parametrize("share", [0.0005, 0.02, 0.3, 0.9])
@pytest.mark.parametrize("dtype", DTYPES)
def test_reads_patches_of_bitsnap(dtype: str, share: float) -> None:
    base = random_weights(dtype)
    weights = moved(base, share)
    patch = bitsnap.make_patch(weights, base, hash_unchanged=True)
    assert apply_patches(patch, plain(base)) == content(weights)
    check_unchanged(read_patches(patch)[0], plain(base))


def test_reads_a_patch_of_many_dtypes_and_several_slabs() -> None:
    base: dict[str, Array] = {}
    for dtype in DTYPES:
        base |= random_weights(dtype, (300_001, 17, 250_000))
    weights = moved(base, 0.4)
    patch = bitsnap.make_patch(
        weights, base, from_version="one", to_version="two", metadata={"k": "v"}, hash_unchanged=True
    )
    [read] = read_patches(patch)
    assert (read.origin, read.target, read.metadata) == ("one", "two", [("k", "v")])
    assert {stream.dtype for stream in read.streams} == set(DTYPES)
    assert len(read.slabs) > len(DTYPES)
    assert apply_patches(patch, plain(base)) == content(weights)
    check_unchanged(read, plain(base))
    opened = bitsnap.Patch(patch)
    assert (opened.expected_id, opened.result_id) == (f"{read.expected:032x}", f"{read.result:032x}")


@pytest.mark.parametrize("spread", [0, 3, 12])
def test_reads_all_ways_to_code_a_slab(spread: int) -> None:
    """Elements of many exponents, of which the small ones change more often and farther than the large ones."""
    random = np.random.default_rng(spread)
    old = (random.normal(size=600_000) * np.exp2(-random.integers(0, spread + 1, 600_000))).astype(ml_dtypes.bfloat16)
    new = old.copy()
    bits = new.view(np.uint16)
    size = np.abs(old.astype(np.float64))
    chosen = random.random(len(bits)) < np.minimum(0.9, 0.0005 / (size + 1e-6))
    bits[chosen] += np.where(random.random(len(bits)) < 0.1, 5, 1).astype(np.uint16)[chosen]
    patch = bitsnap.make_patch({"a": new}, {"a": old})
    assert apply_patches(patch, {"a": ("BF16", old.tobytes())}) == {"a": new.tobytes()}


def test_reads_a_patch_of_tied_tensors() -> None:
    base = random_weights("BF16")
    weights = moved(base, 0.1)
    for tensors in (base, weights):
        tensors["tied"] = tensors[next(reversed(tensors))]
        tensors["also tied"] = tensors[list(tensors)[1]]
    patch = bitsnap.make_patch(weights, base, hash_unchanged=True)
    [read] = read_patches(patch)
    assert any(len(tensor.names) == 2 for tensor in read.tensors)
    assert apply_patches(patch, plain(base)) == content(weights)
    check_unchanged(read, plain(base))


def test_reads_joined_patches() -> None:
    versions = [random_weights("F16")]
    for share in (0.01, 0.5, 0.1):
        versions.append(moved(versions[-1], share))
    steps = [bitsnap.make_patch(new, old) for old, new in itertools.pairwise(versions)]
    assert apply_patches(b"".join(steps), plain(versions[0])) == content(versions[-1])


def test_a_patch_without_changes_has_no_streams() -> None:
    base = random_weights("F32")
    patch = bitsnap.make_patch(base, base, hash_unchanged=True)
    [read] = read_patches(patch)
    assert read.streams == []
    assert apply_patches(patch, plain(base)) == content(base)
    check_unchanged(read, plain(base))
    with pytest.raises(WrongBase):
        check_unchanged(read, plain(moved(base, 0.5)))


def test_the_example_of_the_document_is_what_it_says() -> None:
    blocks = re.findall(r"```\n((?:[0-9A-F ]+\n)+)```", DOCUMENT.read_text())
    payload, patch = (bytes.fromhex(block) for block in blocks[-2:])
    assert payload == patch_cases.Changes().payload()
    assert payload in patch
    assert apply_patches(patch, PatchParts().weights) == {"w": patch_cases.RESULT}
    weights = arrays(PatchParts())
    bitsnap.apply_patch(weights, patch)
    assert content(weights) == {"w": patch_cases.RESULT}


@pytest.mark.parametrize("parts", patch_cases.ALLOWED.values(), ids=patch_cases.ALLOWED)
def test_both_readers_accept_what_the_specification_allows(parts: PatchParts) -> None:
    patch = parts.build()
    assert apply_patches(patch, parts.weights) == parts.results()
    weights = arrays(parts)
    bitsnap.apply_patch(weights, patch)
    assert content(weights) == parts.results()


@pytest.mark.parametrize(
    ("fault", "parts"), [pytest.param(fault, parts, id=name) for fault, name, parts in patch_cases.rejected()]
)
def test_both_readers_reject_what_the_specification_forbids(
    fault: str, parts: PatchParts | bytes, request: pytest.FixtureRequest
) -> None:
    patch, weights = bytes_of(parts), arrays(parts)
    before = content(weights)
    own, error = FAULTS[fault]
    with pytest.raises(ReaderError) as caught:
        apply_patches(patch, plain(weights))
    assert type(caught.value) is own, caught.value
    assert "another hash" not in str(caught.value) or "another hash" in request.node.callspec.id
    verify_all = not isinstance(parts, bytes) and parts.verify_all
    with pytest.raises(bitsnap.BitsnapError) as of_bitsnap:
        bitsnap.apply_patch(weights, patch, verify="all" if verify_all else "changed")
    assert type(of_bitsnap.value) is error, of_bitsnap.value
    assert content(weights) == before


@pytest.mark.parametrize("parts", patch_cases.NESTED_KEYS.values(), ids=patch_cases.NESTED_KEYS)
def test_unknown_keys_are_unsupported_at_any_depth(parts: PatchParts) -> None:
    with pytest.raises(Unsupported):
        apply_patches(parts.build(), parts.weights)
    with pytest.raises(bitsnap.UnsupportedError):
        bitsnap.Patch(parts.build())


@pytest.mark.parametrize("parts", patch_cases.WRONG_BASES.values(), ids=patch_cases.WRONG_BASES)
def test_weights_that_are_not_the_base_are_no_fault_of_the_patch(parts: PatchParts) -> None:
    with pytest.raises(WrongBase):
        apply_patches(parts.build(), parts.weights)
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.apply_patch(arrays(parts), parts.build())
    assert caught.value.code == "wrong_base"


@pytest.mark.parametrize("size", range(0, len(PatchParts().build()), 7))
def test_both_readers_reject_every_shorter_patch(size: int) -> None:
    patch = PatchParts().build()[:size]
    with pytest.raises(Truncated):
        read_patches(patch)
    with pytest.raises(bitsnap.TruncatedError):
        bitsnap.Patch(patch)


def test_sizes_of_elements_are_those_of_the_arrays() -> None:
    assert {name: np.dtype(dtype).itemsize for name, dtype in DTYPES.items()}.items() <= ELEMENT_SIZES.items()
