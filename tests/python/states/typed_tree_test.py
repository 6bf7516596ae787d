"""Values of a state come back with their types and bits, and what cannot be stored is refused by its place."""

from __future__ import annotations

import math
import sys
from collections import UserDict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st

import bitsnap
from python.same_bits import assert_same

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
big = (
    st.integers(-(2**70), 2**70)
    | st.integers(-(10**600), 10**600)
    | st.sampled_from([2**63, -(2**63), 2**53, 1 - 2**53])
)
numbers = st.booleans() | big | st.floats(width=64) | st.complex_numbers()
plain_keys = st.none() | st.booleans() | big | st.floats(allow_nan=False) | text | st.binary(max_size=8)
keys = plain_keys | st.tuples(plain_keys, st.tuples(plain_keys))
arrays = st.builds(
    lambda dtype, shape, seed: np.random.default_rng(seed).integers(0, 200, shape).astype(dtype),
    st.sampled_from(["u1", "f4", "f8", "i8", "c8", "?"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 1000),
)
leaves = (
    st.none()
    | numbers
    | text
    | st.binary(max_size=20)
    | arrays
    | arrays.map(torch.from_numpy)
    | arrays.filter(lambda array: array.size > 0).map(lambda array: array.reshape(-1)[0])
)
states = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=25,
)


@settings(deadline=None, max_examples=150)
@given(states)
@example({float("nan"): 1, 0.0: 2, "": 3, b"": 4, (): 5, None: 6})
@example({"a.b": torch.ones(2), "a": {"b": torch.zeros(3)}, "a.b#2": torch.ones(1)})
@example([math.nan, -math.nan, math.inf, -math.inf, -0.0, 5e-324, sys.float_info.max, complex(-0.0, math.nan)])
def test_any_state_comes_back(tmp_path_factory: pytest.TempPathFactory, state: Any) -> None:
    path = tmp_path_factory.mktemp("any") / "a.bsnap"
    bitsnap.save(path, state)
    assert_same(bitsnap.load(path), state)


@pytest.mark.parametrize("digits", [18, 19, 20, 4299, 4300, 4301, 8000, 50_000])
def test_integers_have_any_size(tmp_path: Path, digits: int) -> None:
    state = [10**digits, -(10**digits), 10**digits - 1, 7 * 10 ** (digits - 1) + 3]
    bitsnap.save(tmp_path / "a.bsnap", state)
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)


def test_names_of_tensors_are_their_places(tmp_path: Path) -> None:
    one = torch.ones
    state = {
        "model": {"wte.weight": one(1)},
        "optimizer": {"state": {0: {"exp_avg": one(2), "step": np.float32(3)}}},
        "list": [one(3), (one(4), {b"k": one(5), (1, "x"): one(6), None: one(7), True: one(8), 2.5: one(9)})],
        "list.0": one(10),
    }
    bitsnap.save(tmp_path / "a.bsnap", state)
    assert bitsnap.safe_open(tmp_path / "a.bsnap", "pt").keys() == [
        "model.wte.weight",
        "optimizer.state.0.exp_avg",
        "optimizer.state.0.step",
        "list.0",
        "list.1.0",
        "list.1.1.b'k'",
        "list.1.1.(1, 'x')",
        "list.1.1.None",
        "list.1.1.True",
        "list.1.1.2.5",
        "list.0#2",
    ]
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)


def test_the_version_of_torch_comes_back_as_a_string(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", {"version": torch.__version__})
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), {"version": str(torch.__version__)})


Point = namedtuple("Point", "x y")
REFUSED: dict[str, tuple[Any, str]] = {
    "dict of a class of its own": (type("Own", (dict,), {})(a=1), r"Own and cannot be stored: pass dict"),
    "function": (len, r"is of type builtin_function_or_method"),
    "object": (object(), r"is of type object"),
    "named tuple": (Point(1, 2), r"Point and cannot be stored: pass tuple"),
    "mapping": (UserDict(a=1), r"collections.UserDict .*: pass dict"),
    "bytearray": (bytearray(b"x"), r"bytearray and cannot be stored: pass bytes"),
    "surrogate": ("\ud800", r"is a string that is not valid Unicode"),
    "numpy string": (np.str_("x"), r"dtype <U1"),
    "module": (torch.nn.Linear(1, 1), r"Linear and cannot be stored: pass its state_dict\(\)"),
    "generator": (np.random.default_rng(1), r"pass its bit_generator.state"),
    "torch generator": (torch.Generator(), r"pass its get_state\(\)"),
    "layout": (torch.strided, r"torch.layout"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_stored_is_refused_by_its_place(tmp_path: Path, kind: str) -> None:
    value, message = REFUSED[kind]
    with pytest.raises(bitsnap.InvalidArgumentError, match=message) as caught:
        bitsnap.save(tmp_path / "a.bsnap", {"optimizer": {"state": [1, (2, {0: value})]}})
    assert str(caught.value).startswith("state['optimizer']['state'][1][1][0] is ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "key", [np.int64(3), "\udc80", (1, {}.keys), 1j], ids=["np.int64", "surrogate", "method", "complex"]
)
def test_keys_that_cannot_be_stored_are_refused_by_their_place(tmp_path: Path, key: Any) -> None:
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['a'\]"):
        bitsnap.save(tmp_path / "a.bsnap", {"a": {key: 1}})


def test_nesting_that_has_no_end_is_refused(tmp_path: Path) -> None:
    cycle: dict[str, Any] = {"a": [1]}
    cycle["a"].append(cycle)
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['a'\]\[1\] contains itself"):
        bitsnap.save(tmp_path / "a.bsnap", cycle)


def test_a_container_that_stands_twice_is_not_a_cycle(tmp_path: Path) -> None:
    shared = [1, 2]
    bitsnap.save(tmp_path / "a.bsnap", {"a": shared, "b": [shared, shared]})
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), {"a": [1, 2], "b": [[1, 2], [1, 2]]})


@pytest.mark.parametrize("container", [list, tuple, dict])
def test_nesting_is_bounded(tmp_path: Path, container: type) -> None:
    def nested(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = {"k": value} if container is dict else container([value])
        return value

    bitsnap.save(tmp_path / "a.bsnap", nested(127))
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), nested(127))
    with pytest.raises(bitsnap.InvalidArgumentError, match="nested deeper than 127 levels"):
        bitsnap.save(tmp_path / "b.bsnap", nested(128))
    with pytest.raises(bitsnap.InvalidArgumentError, match="nested deeper"):
        bitsnap.save(tmp_path / "b.bsnap", nested(5000))


def test_roles_are_guessed_from_names_unless_given(tmp_path: Path) -> None:
    state = {
        "model": {"w": torch.randn(20_000).bfloat16()},
        "optimizer": {"state": {0: {"exp_avg": torch.randn(20_000), "exp_avg_sq": torch.randn(20_000)}}},
        "shadow": torch.randn(20_000),
    }
    bitsnap.save(tmp_path / "a.bsnap", state, roles={"shadow": "master"})
    roles = {tensor.name: tensor.role for tensor in bitsnap.inspect(tmp_path / "a.bsnap").tensors}
    assert roles["optimizer.state.0.exp_avg"] == "exp_avg"
    assert roles["optimizer.state.0.exp_avg_sq"] == "exp_avg_sq"
    assert roles["shadow"] == "master"
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"\['shadows'\]"):
        bitsnap.save(tmp_path / "a.bsnap", state, roles={"shadows": "master"}, overwrite=True)
    with pytest.raises(bitsnap.InvalidArgumentError, match="unknown role 'boss'"):
        bitsnap.save(tmp_path / "a.bsnap", state, roles={"shadow": "boss"}, overwrite=True)  # type: ignore[dict-item]
