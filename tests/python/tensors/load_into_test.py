"""Loading into tensors of the caller, and loading parts of a state."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import bitsnap
from python.same_bits import assert_same, random_bits


def zeros_like(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return torch.zeros_like(state)
    if isinstance(state, np.ndarray):
        return np.zeros_like(state)
    if isinstance(state, dict):
        return {key: zeros_like(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(zeros_like(value) for value in state)
    return None


@pytest.fixture
def state() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "model": {"w": random_bits(rng, torch.bfloat16, (300, 1000)), "b": random_bits(rng, torch.float32, (7,))},
        "optimizer": {
            "state": {0: {"exp_avg": random_bits(rng, torch.float32, (300, 1000)), "step": torch.tensor(3.0)}}
        },
        "list": [random_bits(rng, torch.int64, (2, 3)), (rng.standard_normal((4, 5)), "text")],
        "step": 7,
        "best": np.float32(1.5),
        "empty": torch.empty(0, 3),
    }


@pytest.fixture
def path(tmp_path: Path, state: dict[str, Any]) -> Path:
    bitsnap.save(tmp_path / "a.bsnap", state)
    return tmp_path / "a.bsnap"


def leaves(state: Any) -> list[Any]:
    if isinstance(state, dict):
        return [leaf for value in state.values() for leaf in leaves(value)]
    if isinstance(state, list | tuple):
        return [leaf for value in state for leaf in leaves(value)]
    return [state]


def test_existing_tensors_are_filled_where_they_are(path: Path, state: dict[str, Any]) -> None:
    into = zeros_like(state)
    loaded = bitsnap.load(path, into=into)
    assert_same(loaded, state)
    for mine, theirs in zip(leaves(loaded), leaves(into), strict=True):
        if isinstance(theirs, torch.Tensor | np.ndarray):
            assert mine is theirs
    assert into["step"] is None


def test_views_parameters_and_foreign_layouts_are_filled(path: Path, state: dict[str, Any]) -> None:
    whole = torch.zeros(300, 3000, dtype=torch.bfloat16)
    parameter = torch.nn.Parameter(torch.zeros(1000, 300))
    computed = torch.nn.Parameter(torch.zeros(7)) * 1
    into = zeros_like(state)
    into["model"] = {"w": whole[:, ::3], "b": computed}
    into["optimizer"]["state"][0]["exp_avg"] = parameter.t()
    into["list"][1] = (np.asfortranarray(np.zeros((4, 5))), None)
    loaded = bitsnap.load(path, into=into)
    assert_same(loaded, state)
    assert_same(whole[:, ::3], state["model"]["w"])
    assert not whole[:, 1::3].any()
    assert_same(parameter.detach(), state["optimizer"]["state"][0]["exp_avg"].t())
    assert parameter.requires_grad
    assert np.isfortran(into["list"][1][0])


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float8_e5m2, torch.float32, torch.complex64, torch.complex128], ids=str
)
def test_filling_keeps_the_bits_of_every_dtype(tmp_path: Path, dtype: torch.dtype, contiguous: bool) -> None:
    tensor = random_bits(np.random.default_rng(2), dtype, (50, 60))
    bitsnap.save(tmp_path / "a.bsnap", [tensor])
    target = torch.zeros(60, 50, dtype=dtype).t() if not contiguous else torch.zeros(50, 60, dtype=dtype)
    bitsnap.load(tmp_path / "a.bsnap", into=[target])
    assert_same(target, tensor)


def test_a_conjugated_view_is_filled_with_the_values(tmp_path: Path) -> None:
    tensor = torch.randn(5, dtype=torch.complex64)
    bitsnap.save(tmp_path / "a.bsnap", [tensor])
    memory = torch.zeros(5, dtype=torch.complex64)
    bitsnap.load(tmp_path / "a.bsnap", into=[memory.conj()])
    assert torch.equal(memory.conj(), tensor)


def test_filling_is_seen_by_autograd(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", [torch.ones(3)])
    weight = torch.full((3,), 2.0, requires_grad=True)
    loss = (weight * weight).sum()
    bitsnap.load(tmp_path / "a.bsnap", into=[weight])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


def test_filling_arrays_with_tensors_and_the_other_way_round(path: Path, state: dict[str, Any]) -> None:
    into = zeros_like(state)
    into["model"]["b"] = np.zeros(7, np.float32)
    into["list"][1] = (torch.zeros(4, 5, dtype=torch.float64), None)
    loaded = bitsnap.load(path, into=into)
    assert_same(loaded["model"]["b"], state["model"]["b"].numpy())
    assert_same(loaded["list"][1][0], torch.from_numpy(state["list"][1][0]))


def test_a_wrong_shape_or_dtype_is_named_and_nothing_is_written(path: Path, state: dict[str, Any]) -> None:
    into = zeros_like(state)
    into["optimizer"]["state"][0]["exp_avg"] = torch.zeros(300, 1001)
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.load(path, into=into)
    assert str(caught.value) == (
        "into['optimizer']['state'][0]['exp_avg'] is F32 [300, 1001], but the snapshot holds F32 [300, 1000]"
    )
    into["optimizer"]["state"][0]["exp_avg"] = torch.zeros(300, 1000, dtype=torch.float16)
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"is F16 \[300, 1000\], but the snapshot holds F32"):
        bitsnap.load(path, into=into)
    assert not any(leaf.any() for leaf in leaves(into) if isinstance(leaf, torch.Tensor))


def test_targets_that_cannot_be_written_are_named(path: Path, state: dict[str, Any]) -> None:
    into = zeros_like(state)
    into["list"][1][0].flags.writeable = False
    with pytest.raises(
        bitsnap.InvalidArgumentError, match=r"into\['list'\]\[1\]\[0\] is an array that is not writeable"
    ):
        bitsnap.load(path, into=into)
    into = zeros_like(state)
    into["model"]["b"] = torch.zeros(1).expand(7)
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"into\['model'\]\['b'\] cannot be filled in place"):
        bitsnap.load(path, into=into)
    into = zeros_like(state)
    into["model"]["b"] = torch.zeros(7, device="meta")
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"into\['model'\]\['b'\] is a meta tensor"):
        bitsnap.load(path, into=into)


def test_missing_and_unexpected_tensors_are_listed(path: Path, state: dict[str, Any]) -> None:
    into = zeros_like(state)
    into["model"]["extra"] = torch.zeros(1)
    del into["optimizer"]["state"][0]
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.load(path, into=into)
    lines = str(caught.value).splitlines()
    assert lines[1] == "  not in the snapshot: state['model']['extra']"
    assert lines[2] == (
        "  not in `into`: state['optimizer']['state'][0]['exp_avg'], state['optimizer']['state'][0]['step']"
    )
    into["model"]["extra"].fill_(5)
    loaded = bitsnap.load(path, into=into, strict=False)
    assert_same(loaded, state)
    assert loaded["model"]["w"] is into["model"]["w"]
    assert into["model"]["extra"] == 5


def test_tied_targets_are_filled_together(tmp_path: Path) -> None:
    tensor = torch.randn(50, 60)
    bitsnap.save(tmp_path / "tied.bsnap", {"a": tensor, "b": tensor})
    bitsnap.save(tmp_path / "apart.bsnap", {"a": tensor, "b": tensor.clone()})
    target = torch.zeros(50, 60)
    loaded = bitsnap.load(tmp_path / "tied.bsnap", into={"a": target, "b": target.view(50, 60)})
    assert_same(target, tensor)
    assert loaded["a"] is target
    apart = {"a": torch.zeros(50, 60), "b": torch.zeros(50, 60)}
    assert_same(bitsnap.load(tmp_path / "tied.bsnap", into=apart), {"a": tensor, "b": tensor})
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"into\['a'\] and into\['b'\] are the same memory"):
        bitsnap.load(tmp_path / "apart.bsnap", into={"a": target, "b": target})


def overlapping() -> dict[str, tuple[Any, Any]]:
    """Two places to fill with tensors of 4 x 6, which share memory without being one tensor."""
    memory = torch.zeros(100)
    array = np.zeros(100, np.float32)
    return {
        "shifted": (memory[:24].view(4, 6), memory[10:34].view(4, 6)),
        "contained": (memory[:24].view(4, 6), memory[:96].view(4, 24)[:, :6]),
        "crossing": (memory[:48].view(4, 12)[:, :6], memory[:48].view(4, 12)[:, 5:11]),
        "transposed": (memory[:24].view(4, 6), memory[:24].view(6, 4).t()),
        "array": (array[:24].reshape(4, 6), torch.from_numpy(array)[20:44].view(4, 6)),
        "backwards": (array[23::-1].reshape(4, 6), torch.from_numpy(array)[:24].view(4, 6)),
    }


@pytest.mark.parametrize("kind", ["shifted", "contained", "crossing", "transposed", "array", "backwards"])
def test_targets_that_share_memory_are_named_and_nothing_is_written(tmp_path: Path, kind: str) -> None:
    state = {"a": {"x": torch.randn(4, 6)}, "between": torch.randn(4, 6), "b": [torch.randn(4, 6)]}
    bitsnap.save(tmp_path / "a.bsnap", state)
    first, second = overlapping()[kind]
    into = {"a": {"x": first}, "between": torch.zeros(4, 6), "b": [second]}
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"into\['a'\]\['x'\] and into\['b'\]\[0\] share a part of"):
        bitsnap.load(tmp_path / "a.bsnap", into=into)
    assert not any(leaf.any() for leaf in leaves(into))
    assert_same(bitsnap.load(tmp_path / "a.bsnap", keys="b", into={"b": [second]}), {"b": state["b"]})


def test_targets_between_each_other_that_share_no_memory_are_filled(tmp_path: Path) -> None:
    state = {str(i): torch.randn(4, 6) for i in range(6)}
    state["tied"] = state["5"]
    bitsnap.save(tmp_path / "a.bsnap", state)
    columns, rows = torch.zeros(4, 18), torch.zeros(8, 6)
    mixed = np.zeros((4, 6), np.float32)
    into: dict[str, Any] = {
        "0": columns[:, 0::3],
        "1": columns[:, 1::3],
        "2": columns[:, 2::3],
        "3": rows[::2],
        "4": rows[1::2],
        "5": torch.from_numpy(mixed),
        "tied": mixed,
    }
    bitsnap.load(tmp_path / "a.bsnap", into=into)
    for name, target in into.items():
        assert_same(torch.as_tensor(target), state[name])


def test_a_module_is_restored_in_place(tmp_path: Path) -> None:
    first, second = torch.nn.Linear(30, 40), torch.nn.Linear(30, 40)
    bitsnap.save(tmp_path / "a.bsnap", {"model": first.state_dict(), "step": 3})
    loaded = bitsnap.load(tmp_path / "a.bsnap", into={"model": second.state_dict()})
    assert loaded["step"] == 3
    assert_same(dict(second.state_dict()), dict(first.state_dict()))


def test_flat_files_fill_flat_dicts(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 4)
    bitsnap.save_file(model.state_dict(), tmp_path / "a.bsnap")
    other = torch.nn.Linear(3, 4)
    bitsnap.load(tmp_path / "a.bsnap", into=other.state_dict())
    assert_same(dict(other.state_dict()), dict(model.state_dict()))
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), dict(model.state_dict()))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("step", {"step"}),
        (["model"], {"model"}),
        (["model.w", "best"], {"model", "best"}),
        ("optimizer.state.0", {"optimizer"}),
        ("list.0", {"list"}),
        (lambda name: name.endswith("exp_avg"), {"optimizer"}),
        ([], set()),
    ],
    ids=["name", "list", "two-names", "prefix", "list-item", "function", "nothing"],
)
def test_keys_select_parts_of_a_state(path: Path, state: dict[str, Any], keys: Any, expected: set[str]) -> None:
    loaded = bitsnap.load(path, keys=keys)
    assert set(loaded) == expected
    for name in expected - {"model", "optimizer"}:
        assert_same(loaded[name], state[name])
    if keys == ["model.w", "best"]:
        assert set(loaded["model"]) == {"w"}
    if callable(keys):
        assert set(loaded["optimizer"]["state"][0]) == {"exp_avg"}


_NAMES = st.sampled_from(["", "a", "b", "a.b", "a.", ".b", "b.a.a"])
_TREES: st.SearchStrategy[Any] = st.recursive(
    st.integers(0, 9),
    lambda inner: st.dictionaries(_NAMES, inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=12,
)


@given(tree=st.dictionaries(_NAMES, _TREES, max_size=3), keys=st.lists(_NAMES, max_size=3))
def test_names_select_what_a_function_of_names_selects(tree: dict[str, Any], keys: list[str]) -> None:
    def is_below(name: str) -> bool:
        return any(name == key or name.startswith(key + ".") for key in keys)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.bsnap"
        bitsnap.save(path, tree)
        try:
            by_names = bitsnap.load(path, keys=keys)
        except (bitsnap.NotFoundError, bitsnap.InvalidArgumentError):
            return  # a key that nothing is under, or that names two places
        if keys:
            assert by_names == bitsnap.load(path, keys=is_below)
        else:
            assert by_names == {}


def test_keys_that_are_not_there_are_named(path: Path) -> None:
    with pytest.raises(bitsnap.NotFoundError, match=r"nothing under 'modle', 'model.x'"):
        bitsnap.load(path, keys=["modle", "model", "model.x"])
    with pytest.raises(bitsnap.NotFoundError, match="selects nothing"):
        bitsnap.load(path, keys=lambda name: False)


def test_keys_bound_what_is_read(tmp_path: Path, path: Path, state: dict[str, Any]) -> None:
    reported: list[tuple[int, int]] = []
    bitsnap.load(path, keys="model", progress=lambda done, total: reported.append((done, total)))
    size = sum(tensor.nbytes for tensor in state["model"].values())
    assert reported[-1] == (size, size)


def test_keys_and_into_go_together(path: Path, state: dict[str, Any]) -> None:
    into = {"model": zeros_like(state["model"])}
    loaded = bitsnap.load(path, keys=["model", "step"], into=into)
    assert_same(loaded, {"model": state["model"], "step": 7})
