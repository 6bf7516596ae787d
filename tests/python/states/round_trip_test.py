"""Tensors and arrays come back bit for bit: every dtype, any layout, alone and against a base."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import bitsnap
from python.same_bits import assert_same, bits, random_bits

# Every dtype that this torch has, each under one name.
ALL_DTYPES = sorted({value for name in dir(torch) if isinstance(value := getattr(torch, name), torch.dtype)}, key=str)
STORED = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.uint16,
    torch.int16,
    torch.uint32,
    torch.int32,
    torch.uint64,
    torch.int64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
    torch.float4_e2m1fn_x2,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
]
NUMPY_STORED: list[Any] = [
    *(np.dtype(code) for code in ["?", "B", "b", "H", "h", "I", "i", "L", "l", "e", "f", "d", "F", "D"]),
    np.dtype(ml_dtypes.bfloat16),
    np.dtype(ml_dtypes.float8_e4m3fn),
    np.dtype(ml_dtypes.float8_e5m2),
    np.dtype(ml_dtypes.float8_e4m3fnuz),
    np.dtype(ml_dtypes.float8_e5m2fnuz),
    np.dtype(ml_dtypes.float8_e8m0fnu),
]
SHAPES: list[tuple[int, ...]] = [(), (0,), (3, 0, 2), (1,), (7,), (2, 3, 4), (1 << 18,), ((1 << 18) + 6,)]
POLICIES: list[Any] = ["lossless", "bounded", "lmc", "bitsnap", "raw"]


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="ComplexHalf support is experimental")
        warnings.filterwarnings("ignore", message="torch.quantize_per_tensor")
        yield


def random_array(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if dtype == np.bool_:
        return rng.integers(0, 2, shape, np.uint8).view(np.bool_)
    count = int(np.prod(shape, dtype=np.int64))
    return rng.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_every_dtype_of_torch_keeps_its_bits(tmp_path: Path, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(1)
    state = {str(shape): random_bits(rng, dtype, shape) for shape in SHAPES if shape or dtype != torch.float4_e2m1fn_x2}
    bitsnap.save_file(state, tmp_path / "a.bsnap")
    assert_same(bitsnap.load_file(tmp_path / "a.bsnap"), state)
    bitsnap.save(tmp_path / "b.bsnap", state)
    assert_same(bitsnap.load(tmp_path / "b.bsnap"), state)


@pytest.mark.parametrize("dtype", [dtype for dtype in ALL_DTYPES if dtype not in STORED], ids=str)
def test_dtypes_without_whole_bytes_are_refused_by_name(tmp_path: Path, dtype: torch.dtype) -> None:
    try:
        tensor = torch.empty(4, dtype=dtype)
    except (RuntimeError, NotImplementedError, TypeError):
        pytest.skip(f"torch makes no tensor of {dtype}")
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"tensors\['w'\] is a tensor of dtype|quantized"):
        bitsnap.save_file({"w": tensor}, tmp_path / "a.bsnap")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", NUMPY_STORED, ids=str)
def test_every_dtype_of_numpy_keeps_its_bits(tmp_path: Path, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(2)
    state: dict[str, Any] = {str(shape): random_array(rng, dtype, shape) for shape in SHAPES}
    state["scalar"] = random_array(rng, dtype, (1,))[0]
    bitsnap.save(tmp_path / "a.bsnap", state)
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)
    state["scalar"] = np.asarray(state["scalar"])
    assert_same(bitsnap.load_file(tmp_path / "a.bsnap", framework="np"), state)


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.array([None]), np.zeros(2, "M8[s]"), np.zeros(2, "i4,f4")], ids=str
)
def test_arrays_that_are_not_numbers_are_refused_by_name(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['x'\]\[1\] is an array of dtype"):
        bitsnap.save(tmp_path / "a.bsnap", {"x": [0, array]})


def test_a_masked_array_is_refused_because_its_mask_would_be_lost(tmp_path: Path) -> None:
    with pytest.raises(bitsnap.InvalidArgumentError, match="MaskedArray"):
        bitsnap.save(tmp_path / "a.bsnap", {"x": np.ma.array([1.0, 2.0], mask=[False, True])})


def test_big_endian_arrays_come_back_equal_and_native(tmp_path: Path) -> None:
    array = np.arange(10, dtype=">f4")
    bitsnap.save(tmp_path / "a.bsnap", {"x": array})
    loaded = bitsnap.load(tmp_path / "a.bsnap")["x"]
    assert loaded.dtype == np.dtype("=f4")
    assert np.array_equal(loaded, array)


def test_a_file_mapped_array_is_taken(tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "raw", np.int16, "w+", shape=(5, 6))
    array[:] = np.arange(30).reshape(5, 6)
    bitsnap.save_file({"x": array}, tmp_path / "a.bsnap")
    assert_same(bitsnap.load_file(tmp_path / "a.bsnap", framework="np")["x"], np.array(array))


def views(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    tensor = random_bits(np.random.default_rng(3), dtype, (6, 8, 10))
    return {
        "transposed": tensor.transpose(0, 2),
        "strided": tensor[::2, 1::3],
        "narrow": tensor.narrow(1, 2, 3),
        "expanded": tensor[:1].expand(5, 8, 10),
        "overlapping": tensor.reshape(-1).as_strided((10, 4), (2, 1)),
        "expanded scalar": tensor[0, 0, 0].expand(3, 3),
        "one column": tensor[:, :, 4],
    }


@pytest.mark.parametrize("dtype", [t for t in STORED if t != torch.float4_e2m1fn_x2], ids=str)
def test_views_are_stored_as_what_they_show(tmp_path: Path, dtype: torch.dtype) -> None:
    state = views(dtype)
    bitsnap.save_file(state, tmp_path / "a.bsnap")
    loaded = bitsnap.load_file(tmp_path / "a.bsnap")
    assert_same(loaded, state)
    assert all(tensor.is_contiguous() for tensor in loaded.values())


def test_conjugated_and_negated_views_are_resolved(tmp_path: Path) -> None:
    tensor = torch.randn(5, 7, dtype=torch.complex64)
    state = {"conj": tensor.conj(), "neg": tensor.conj().imag, "plain": tensor, "transposed": tensor.mH}
    assert state["neg"].is_neg()
    bitsnap.save_file(state, tmp_path / "a.bsnap")
    assert_same(bitsnap.load_file(tmp_path / "a.bsnap"), state)


def test_numpy_views_are_stored_as_what_they_show(tmp_path: Path) -> None:
    array = np.arange(120, dtype=np.float32).reshape(4, 5, 6)
    state: dict[str, Any] = {
        "columns first": np.asfortranarray(array),
        "reversed": array[::-1, ::2, ::-3],
        "broadcast": np.broadcast_to(array[0], (3, 5, 6)),
        "transposed": array.T,
        "field": np.zeros((3, 4), "f2,i4,c16")["f2"],
        "unaligned": np.frombuffer(bytes(range(81)), np.uint8)[1:].view("f8"),
    }
    bitsnap.save(tmp_path / "a.bsnap", state)
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)


def test_parameters_come_back_as_tensors_that_need_no_gradient(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.randn(3, 4))
    computed = parameter.t() * 2
    assert not computed.is_leaf
    bitsnap.save(tmp_path / "a.bsnap", {"leaf": parameter, "computed": computed})
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    assert_same(loaded, {"leaf": parameter.detach(), "computed": computed.detach()})
    assert type(loaded["leaf"]) is torch.Tensor
    assert not loaded["leaf"].requires_grad


def test_tied_tensors_are_stored_once_and_come_back_tied(tmp_path: Path) -> None:
    weight = torch.randn(400, 300)
    state = {
        "wte": weight,
        "lm_head": weight.detach(),
        "nested": [weight.view(400, 300)],
        "column": weight[:, :1],
        "column again": weight[:, :1],
        "transposed": weight.t(),
        "other dtype": weight.view(torch.int32),
        "copy": weight.clone(),
    }
    summary = bitsnap.save(tmp_path / "a.bsnap", state)
    assert summary.raw_bytes == 4 * weight.nbytes + 400 * 4
    held = bitsnap.snapshot_id(tmp_path / "a.bsnap")
    stored = (tmp_path / "a.bsnap").stat().st_size
    assert (
        repr(summary)
        == f"SaveSummary(id={held!r}, raw_bytes={summary.raw_bytes}, stored_bytes={stored}, chunks={summary.chunks})"
    )
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    assert_same(loaded, state)
    assert loaded["wte"] is loaded["lm_head"] is loaded["nested"][0]
    assert loaded["column"] is loaded["column again"]
    pointers = {loaded[name].data_ptr() for name in ("wte", "transposed", "other dtype", "copy", "column")}
    assert len(pointers) == 5
    aliases = {tensor.name: tensor.alias_of for tensor in bitsnap.inspect(tmp_path / "a.bsnap").tensors}
    assert aliases["lm_head"] == "wte"
    assert aliases["copy"] is None


def test_empty_tensors_are_never_tied(tmp_path: Path) -> None:
    state: dict[str, Any] = {"a": torch.empty(0, 5), "b": torch.empty(0, 5), "c": np.empty((2, 0))}
    bitsnap.save(tmp_path / "a.bsnap", state)
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    assert_same(loaded, state)
    assert loaded["a"] is not loaded["b"]


def test_a_nested_state_without_any_tensor_is_stored(tmp_path: Path) -> None:
    states: list[Any] = [{}, [], (), None, 3, {"a": {}}, [None]]
    for i, state in enumerate(states):
        bitsnap.save(tmp_path / f"{i}.bsnap", state)
        assert_same(bitsnap.load(tmp_path / f"{i}.bsnap"), state)
    bitsnap.save_file({}, tmp_path / "flat.bsnap")
    assert bitsnap.load_file(tmp_path / "flat.bsnap") == {}


def test_a_lone_tensor_is_a_state(tmp_path: Path) -> None:
    tensor = torch.randn(3)
    bitsnap.save(tmp_path / "a.bsnap", tensor)
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), tensor)


def unstorable() -> dict[str, tuple[Any, str]]:
    freed = torch.randn(8)
    freed.untyped_storage().resize_(0)
    return {
        "meta": (torch.empty(3, device="meta"), "a meta tensor"),
        "sparse": (torch.eye(3).to_sparse(), "layout torch.sparse_coo"),
        "csr": (torch.eye(3).to_sparse_csr(), "layout torch.sparse_csr"),
        "lazy": (torch.nn.LazyLinear(3).weight, "uninitialized parameter"),
        "freed": (freed, "storage has been freed"),
    }


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("kind", ["meta", "sparse", "csr", "lazy", "freed"])
def test_tensors_without_plain_data_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    value, message = unstorable()[kind]
    with pytest.raises(bitsnap.InvalidArgumentError, match=message) as caught:
        bitsnap.save(tmp_path / "a.bsnap", {"model": [0, {"w": value}]})
    assert str(caught.value).startswith("state['model'][1]['w'] is ")
    with pytest.raises(bitsnap.InvalidArgumentError, match=message) as caught:
        bitsnap.save_file({"w": value}, tmp_path / "a.bsnap")
    assert str(caught.value).startswith("tensors['w'] is ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("transform", "rows"), [("vmap", 3), ("vmap", 0), ("grad", 3), ("functionalize", 3)])
def test_tensors_inside_a_transform_are_refused_by_name(tmp_path: Path, transform: str, rows: int) -> None:
    def transformed(inner: torch.Tensor) -> torch.Tensor:
        weights = {"model": [0, {"w": inner[:rows]}]}
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['model'\]\[1\]\['w'\] is a tensor inside a tr"):
            bitsnap.save(tmp_path / "a.bsnap", weights)
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"into\['model'\]\[1\]\['w'\] is a tensor inside a tra"):
            bitsnap.load(tmp_path / "sound.bsnap", into=weights)
        return (inner * inner).sum()

    bitsnap.save(tmp_path / "sound.bsnap", {"model": [0, {"w": torch.zeros(rows)}]})
    getattr(torch.func, transform)(transformed)(torch.ones(4, 5) if transform == "vmap" else torch.ones(5))
    assert not (tmp_path / "a.bsnap").exists()


def test_wrapped_tensors_are_refused_by_the_name_of_their_class(tmp_path: Path) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(4)
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['w'\] is a .*FakeTensor"):
        bitsnap.save(tmp_path / "a.bsnap", {"w": fake})


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64, torch.complex128], ids=str)
def test_a_delta_gives_the_same_bits_under_every_policy(tmp_path: Path, policy: Any, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(4)
    first = {"w": random_bits(rng, dtype, (300, 1000)), "same": random_bits(rng, dtype, (300_000,))}
    second = {"w": first["w"].clone(), "same": first["same"], "new": random_bits(rng, dtype, (5,))}
    second["w"][::7, ::3] = random_bits(rng, dtype, second["w"][::7, ::3].shape)
    bitsnap.save(tmp_path / "1.bsnap", first, settings=policy)
    bitsnap.save(tmp_path / "2.bsnap", second, base=tmp_path / "1.bsnap", settings=policy)
    bitsnap.save(tmp_path / "3.bsnap", first, base=bitsnap.Snapshot(tmp_path / "2.bsnap"), settings=policy)
    assert_same(bitsnap.load(tmp_path / "2.bsnap"), second)
    assert_same(bitsnap.load(tmp_path / "3.bsnap"), first)
    bitsnap.verify(tmp_path / "3.bsnap")


def test_an_unchanged_tensor_costs_almost_nothing_beside_its_base(tmp_path: Path) -> None:
    state = {"w": random_bits(np.random.default_rng(5), torch.bfloat16, (4096, 1024))}
    bitsnap.save(tmp_path / "1.bsnap", state)
    summary = bitsnap.save(tmp_path / "2.bsnap", state, base=tmp_path / "1.bsnap")
    assert summary.stored_bytes < 0.001 * summary.raw_bytes
    assert_same(bitsnap.load(tmp_path / "2.bsnap"), state)


def test_equal_states_give_equal_files_for_any_number_of_threads(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    state = {f"w{i}": random_bits(rng, torch.bfloat16, (700, 600)) for i in range(3)}
    state["view"] = random_bits(rng, torch.float32, (900, 800)).t()
    ids = set()
    for threads in (0, 1, 2, 5):
        ids.add(bitsnap.save(tmp_path / f"{threads}.bsnap", state, threads=threads).id)
    assert len({(tmp_path / f"{threads}.bsnap").read_bytes() for threads in (0, 1, 2, 5)}) == 1
    assert ids == {bitsnap.snapshot_id(tmp_path / "0.bsnap")}
    contiguous = {name: tensor.contiguous() for name, tensor in state.items()}
    assert bitsnap.save(tmp_path / "contiguous.bsnap", contiguous).id in ids


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Any bits in any layout that torch's basic views make."""
    dtype = draw(st.sampled_from([t for t in STORED if t != torch.float4_e2m1fn_x2]))
    shape = tuple(draw(st.lists(st.integers(0, 7), max_size=4)))
    tensor = random_bits(np.random.default_rng(draw(st.integers(0, 2**32))), dtype, shape)
    for _ in range(draw(st.integers(0, 3))):
        if tensor.ndim == 0:
            break
        axis = draw(st.integers(0, tensor.ndim - 1))
        length = tensor.shape[axis]
        move = draw(st.sampled_from(["transpose", "step", "narrow", "select", "expand"]))
        if move == "transpose":
            tensor = tensor.transpose(axis, draw(st.integers(0, tensor.ndim - 1)))
        elif move == "step":
            tensor = tensor[(slice(None),) * axis + (slice(draw(st.integers(0, 3)), None, draw(st.integers(1, 3))),)]
        elif move == "narrow":
            start = draw(st.integers(0, length))
            tensor = tensor.narrow(axis, start, draw(st.integers(0, length - start)))
        elif move == "select" and length > 0:
            tensor = tensor.select(axis, draw(st.integers(0, length - 1)))
        elif move == "expand":
            tensor = tensor.unsqueeze(axis).expand(*tensor.shape[:axis], 3, *tensor.shape[axis:])
    return tensor


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@settings(deadline=None, max_examples=60)
@given(first=st.dictionaries(st.text(max_size=4), tensors(), max_size=4), data=st.data())
def test_any_tensors_come_back_and_so_do_their_deltas(
    tmp_path_factory: pytest.TempPathFactory, first: dict[str, torch.Tensor], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("any")
    second = {}
    for name, tensor in first.items():
        change = data.draw(st.sampled_from(["keep", "flip", "replace", "drop"]))
        if change == "keep":
            second[name] = tensor
        elif change == "flip" and tensor.numel() and tensor.dtype != torch.bool:
            changed = bytearray(bits(tensor))
            for place in data.draw(st.lists(st.integers(0, len(changed) - 1), max_size=5)):
                changed[place] ^= data.draw(st.integers(1, 255))
            second[name] = torch.frombuffer(changed, dtype=torch.uint8).view(tensor.dtype).reshape(tensor.shape)
        elif change == "replace":
            second[name] = data.draw(tensors())
    policy = data.draw(st.sampled_from(POLICIES))
    bitsnap.save_file(first, folder / "1.bsnap", settings=policy)
    bitsnap.save_file(second, folder / "2.bsnap", base=folder / "1.bsnap", settings=policy)
    assert_same(bitsnap.load_file(folder / "1.bsnap"), first)
    assert_same(bitsnap.load_file(folder / "2.bsnap"), second)
