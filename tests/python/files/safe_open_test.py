"""Single tensors and parts of them, as safetensors and numpy give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from hypothesis import example, given, settings, strategies as st
from safetensors.torch import save_file as save_safetensors

import bitsnap
from python.same_bits import assert_same, random_bits

CHUNK = 1 << 18


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(1)
    return {
        "small": random_bits(rng, torch.float32, (3, 4, 5)),
        "large": random_bits(rng, torch.bfloat16, (5, 7, 30_011)),
        "bytes": random_bits(rng, torch.float8_e4m3fn, (9, 10)),
        "double": random_bits(rng, torch.complex128, (6, 5)),
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, state: dict[str, torch.Tensor]) -> Path:
    """A delta, so that parts are read through the base as well."""
    folder = tmp_path_factory.mktemp("slices")
    earlier = {name: tensor.clone() for name, tensor in state.items()}
    earlier["large"].view(torch.int16)[::2, 3] += 1
    earlier["small"][1] = 0
    bitsnap.save_file(earlier, folder / "base.bsnap")
    bitsnap.save_file(state, folder / "a.bsnap", {"step": "7"}, base=folder / "base.bsnap")
    return folder / "a.bsnap"


def as_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The bits as an array that numpy can index."""
    item = tensor.element_size()
    return tensor.reshape(-1).view(torch.uint8).numpy().view(f"V{item}").reshape(tensor.shape)


def part_bits(part: torch.Tensor | np.ndarray[Any, Any]) -> bytes:
    if isinstance(part, torch.Tensor):
        return part.reshape(-1).clone().view(torch.uint8).numpy().tobytes()
    return part.tobytes()


parts = st.one_of(
    st.integers(-9, 9),
    st.builds(
        slice,
        st.none() | st.integers(-12, 12),
        st.none() | st.integers(-12, 12),
        st.none() | st.integers(-4, 4).filter(lambda step: step != 0),
    ),
)


@settings(deadline=None, max_examples=300)
@given(
    name=st.sampled_from(["small", "large", "bytes", "double", "scalar", "empty"]),
    before=st.lists(parts, max_size=3),
    after=st.none() | st.lists(parts, max_size=2),
    framework=st.sampled_from(["pt", "np"]),
)
@example("large", [], [slice(29_000, None, -1001)], "pt")
@example("large", [slice(None, None, -2), 3], [], "np")
@example("scalar", [], [], "pt")
def test_parts_are_those_that_numpy_picks(
    path: Path, state: dict[str, torch.Tensor], name: str, before: list[Any], after: list[Any] | None, framework: str
) -> None:
    key = tuple(before) if after is None else (*before, ..., *after)
    part = bitsnap.safe_open(path, framework).get_slice(name)
    try:
        expected = as_numpy(state[name])[key]
    except IndexError:
        with pytest.raises(IndexError):
            part[key]
        return
    found = part[key]
    assert tuple(found.shape) == np.shape(expected)
    assert part_bits(found) == np.asarray(expected).tobytes()


@pytest.mark.parametrize("threads", [1, 3])
def test_large_ranges_are_read_by_several_threads(tmp_path: Path, threads: int) -> None:
    tensor = random_bits(np.random.default_rng(2), torch.float32, (40, CHUNK - 17))
    bitsnap.save_file({"w": tensor}, tmp_path / "a.bsnap", settings="raw")
    part = bitsnap.safe_open(tmp_path / "a.bsnap", "pt", threads=threads).get_slice("w")
    assert_same(part[1:-1], tensor[1:-1])
    assert_same(part[3:39:5, 1000:100_000], tensor[3:39:5, 1000:100_000].contiguous())


def test_a_part_holds_no_more_memory_than_it_shows(path: Path) -> None:
    part = bitsnap.safe_open(path, "pt").get_slice("large")[1:4:2, :, 5:10]
    assert part.is_contiguous()
    assert part.untyped_storage().nbytes() == part.numel() * 2


def test_a_range_of_rows_reads_only_its_chunks(tmp_path: Path) -> None:
    tensor = random_bits(np.random.default_rng(3), torch.bfloat16, (16, CHUNK))
    bitsnap.save_file({"w": tensor}, tmp_path / "a.bsnap", settings="raw")
    damaged = bytearray((tmp_path / "a.bsnap").read_bytes())
    damaged[64 + 2 * CHUNK * 5 + 1000] ^= 1  # in row 5, which is chunk 5
    (tmp_path / "b.bsnap").write_bytes(damaged)
    part = bitsnap.safe_open(tmp_path / "b.bsnap", "pt").get_slice("w")
    assert_same(part[:5], tensor[:5])
    assert_same(part[6:], tensor[6:])
    assert_same(part[15, 100:200], tensor[15, 100:200])
    with pytest.raises(bitsnap.CorruptError, match=r"tensor 'w'.*chunk 5"):
        part[5, :1]


@pytest.mark.parametrize("key", [[0, 1], None, True, "0", 1.0, torch.tensor([0]), np.array([True]), (0, [1])], ids=repr)
def test_other_kinds_of_index_are_refused(path: Path, key: Any) -> None:
    with pytest.raises(TypeError, match="indexed by integers, slices and an ellipsis"):
        bitsnap.safe_open(path, "pt").get_slice("small")[key]


@pytest.mark.parametrize("key", [3, -4, (0, 0, 5), (0, 0, 0, 0), (..., ...)], ids=repr)
def test_indices_out_of_bounds_are_index_errors(path: Path, key: Any) -> None:
    with pytest.raises(IndexError):
        bitsnap.safe_open(path, "np").get_slice("small")[key]


def test_safe_open_is_used_as_that_of_safetensors(tmp_path: Path, path: Path, state: dict[str, torch.Tensor]) -> None:
    storable = {name: tensor for name, tensor in state.items() if name != "double"}
    save_safetensors(storable, tmp_path / "a.safetensors", {"step": "7"})
    with (
        safetensors.safe_open(tmp_path / "a.safetensors", framework="pt", device="cpu") as theirs,
        bitsnap.safe_open(path, framework="pt", device="cpu") as ours,
    ):
        assert sorted(ours.keys()) == sorted([*theirs.keys(), "double"])
        assert ours.metadata() == theirs.metadata() == {"step": "7"}
        for name in storable:
            assert_same(ours.get_tensor(name), theirs.get_tensor(name))
            assert ours.get_slice(name).get_shape() == theirs.get_slice(name).get_shape()
            assert ours.get_slice(name).get_dtype() == theirs.get_slice(name).get_dtype()
        assert_same(ours.get_tensors(["small", "bytes"]), {name: state[name] for name in ("small", "bytes")})


def test_a_snapshot_that_was_closed_says_so(path: Path) -> None:
    with bitsnap.safe_open(path, "pt") as opened:
        part = opened.get_slice("small")
    with pytest.raises(bitsnap.InvalidArgumentError, match="closed"):
        opened.get_tensor("small")
    assert part[0].shape == (4, 5)


def test_a_name_that_is_not_there_is_not_found(path: Path) -> None:
    opened = bitsnap.safe_open(path, "pt")
    with pytest.raises(bitsnap.NotFoundError, match=r"no tensor 'smal'; did you mean 'small'"):
        opened.get_tensor("smal")
    with pytest.raises(KeyError):
        opened.get_slice("nothing")


def test_metadata_is_none_where_there_is_none(tmp_path: Path) -> None:
    bitsnap.save_file({"a": torch.ones(1)}, tmp_path / "a.bsnap")
    assert bitsnap.safe_open(tmp_path / "a.bsnap", "pt").metadata() is None


def test_unknown_frameworks_and_devices_are_refused(path: Path) -> None:
    with pytest.raises(bitsnap.InvalidArgumentError, match="'tf'"):
        bitsnap.safe_open(path, "tf")
    with pytest.raises(bitsnap.InvalidArgumentError, match="no device but 'cpu'"):
        bitsnap.safe_open(path, "np", "cuda")
    with pytest.raises(bitsnap.InvalidArgumentError, match="not a device"):
        bitsnap.safe_open(path, "pt", "abacus")


def test_tensors_go_to_the_device_that_is_asked_for(path: Path, state: dict[str, torch.Tensor]) -> None:
    loaded = bitsnap.load_file(path, "meta")
    assert {name: tensor.device.type for name, tensor in loaded.items()} == dict.fromkeys(state, "meta")
    assert bitsnap.safe_open(path, "pt", "meta").get_slice("small")[0].device.type == "meta"
    assert bitsnap.load(path, map_location=torch.device("meta"))["small"].is_meta
