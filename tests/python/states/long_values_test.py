"""Long bytes and strings are stored as streams, and come back from everywhere as the values that they were."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from bitsnap._bitsnap import NativeState, TensorRef, TensorTable, TypedValue, ValueTree
from bitsnap._common import settings_of
from bitsnap._states.adam import AdamOfState
from bitsnap._states.packing import PackedState
from bitsnap._states.tensors import Entries
from bitsnap._states.tree import MAX_VALUE_BYTES
from bitsnap._tensors.arrays import source_of
from bitsnap.files import write_packed
from cli.command_line import run, run_json
from python.engine.checkpointer_jobs import Jobs, saved
from python.same_bits import assert_same

LONG = MAX_VALUE_BYTES + 1
NOISE = np.random.default_rng(1).bytes(LONG)


def names_in(path: Path) -> list[str]:
    return [tensor["name"] for tensor in run_json("inspect", path)["tensors"]]


@pytest.mark.parametrize(
    ("value", "is_stream"),
    [
        (NOISE[:-1], False),
        (NOISE, True),
        ("x" * (LONG - 1), False),
        ("x" * LONG, True),
        ("ä" * (LONG // 2), False),
        ("ä" * (LONG // 2 + 1), True),
        ("\U0001f600" * (LONG // 4 + 1), True),
        ("\0" * LONG, True),
    ],
)
def test_values_become_streams_above_the_limit(tmp_path: Path, value: Any, is_stream: bool) -> None:
    path = tmp_path / "a.bsnap"
    state = {"data": [1, value], "weight": torch.ones(3)}
    bitsnap.save(path, state)
    assert_same(bitsnap.load(path), state)
    assert names_in(path) == [*(["data.1"] if is_stream else []), "weight"]


def test_long_values_come_back_from_every_container(tmp_path: Path) -> None:
    first: Any = OrderedDict(a=NOISE, b=("x" * LONG,))
    inner: Any = OrderedDict()
    inner._metadata = {"": 1}
    first._metadata = {"": {"version": NOISE}, "inner": inner, "more": NOISE}
    state = {
        "exp_avg": first,
        "twice": [NOISE, NOISE],
        b"key" + NOISE: 1,
        ("k" * LONG, 2): {"in": "short"},
        "set": {NOISE},
    }
    path = tmp_path / "a.bsnap"
    bitsnap.save(path, state)
    loaded = bitsnap.load(path)
    assert_same(loaded, state)
    assert loaded["exp_avg"]._metadata == first._metadata


def test_a_value_alone_is_a_state(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", NOISE)
    assert bitsnap.load(tmp_path / "a.bsnap") == NOISE


def test_a_long_string_that_is_no_unicode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['a'\] is a string that is not valid Unicode"):
        bitsnap.save(tmp_path / "a.bsnap", {"a": "x" * LONG + "\ud800"})


def test_inspect_names_it_by_its_place_with_role_other(tmp_path: Path) -> None:
    path = tmp_path / "a.bsnap"
    bitsnap.save(path, {"optimizer": {"exp_avg": NOISE}})
    (tensor,) = run_json("inspect", path)["tensors"]
    assert (tensor["name"], tensor["dtype"], tensor["shape"], tensor["role"]) == (
        "optimizer.exp_avg",
        "U8",
        [LONG],
        "other",
    )


def test_files_of_300_megabytes_of_bytes_are_small_and_come_back(tmp_path: Path) -> None:
    data = bytearray(300_000_000)
    for at in range(0, len(data), 10_000_000):
        data[at : at + LONG] = NOISE
    value = bytes(data)
    path = tmp_path / "a.bsnap"
    bitsnap.save(path, {"data": value})
    assert path.stat().st_size < 5_000_000
    assert bitsnap.load(path)["data"] == value


def test_the_same_value_in_the_next_checkpoint_costs_nothing(tmp_path: Path) -> None:
    first, second = tmp_path / "a.bsnap", tmp_path / "b.bsnap"
    state = {"data": NOISE, "text": "".join(map(str, range(50_000)))}
    bitsnap.save(first, state)
    bitsnap.save(second, state, base=first)
    assert second.stat().st_size < 2_000
    assert_same(bitsnap.load(second), state)


def test_keys_select_long_values_and_into_does_not_fill_them(tmp_path: Path) -> None:
    path = tmp_path / "a.bsnap"
    bitsnap.save(path, {"data": NOISE, "other": "x" * LONG, "weight": torch.ones(3)})
    assert bitsnap.load(path, keys="data") == {"data": NOISE}
    target = torch.zeros(3)
    into = {"data": b"", "weight": target}
    loaded = bitsnap.load(path, into=into)
    assert loaded["weight"] is target
    assert loaded["data"] == NOISE
    assert loaded["other"] == "x" * LONG
    # An array in the place of bytes is not filled either.
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"not in the snapshot: state\['data'\]"):
        bitsnap.load(path, into={"data": np.zeros(LONG, np.uint8), "weight": target})


def test_files_of_tensors_show_it_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.bsnap"
    bitsnap.save(path, {"model": {"data": NOISE, "text": "ä" * LONG}})
    flat = bitsnap.load_file(path, framework="np")
    assert flat["model.data"].tobytes() == NOISE
    assert flat["model.text"].dtype == np.uint8
    with bitsnap.safe_open(path, framework="np") as file:
        assert file.get_tensor("model.text").tobytes().decode() == "ä" * LONG
    run("decompress", path, "-o", tmp_path / "a.safetensors")
    assert NOISE in (tmp_path / "a.safetensors").read_bytes()


def test_a_checkpointer_saves_and_restores_it(jobs: Jobs) -> None:
    state = {"data": NOISE, "text": "ä" * LONG, "weight": torch.ones(3)}
    checkpointer = jobs()
    saved(checkpointer, 1, state).result()
    restored = checkpointer.restore()
    assert restored is not None
    assert_same(restored.state, state)


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("bytes", np.ones(4, np.float32), r"is a bytes stored as a tensor of dtype F32 and shape \(4,\)"),
        ("str", np.ones((2, 2), np.uint8), r"is a str stored as a tensor of dtype U8 and shape \(2, 2\)"),
        ("str", np.full(4, 0xFF, np.uint8), "is a str that is not stored as UTF-8"),
    ],
)
def test_streams_that_hold_no_such_value_are_corrupt(
    tmp_path: Path, kind: str, content: np.ndarray[Any, Any], message: str
) -> None:
    entries = Entries(None, None)
    entries.add("a", source_of(content))
    tree = {"x": TypedValue(kind, TensorRef(0, "tensor"))}
    chosen = settings_of(None)
    native = NativeState(TensorTable(entries.items), entries.data, ValueTree(tree), [])
    packed = PackedState(AdamOfState(chosen, None), entries.items, entries.owners, native)
    path = tmp_path / "a.bsnap"
    write_packed(path, packed, chosen, base=None, bases=(), overwrite=False, threads=1, progress=None)
    with pytest.raises(bitsnap.CorruptError, match=r"state\['x'\] " + message):
        bitsnap.load(path)


@pytest.mark.parametrize("digits", [4300, 4301, 9000])
def test_integer_keys_have_any_size(tmp_path: Path, digits: int) -> None:
    key = -(10**digits)
    path = tmp_path / "a.bsnap"
    bitsnap.save(path, {key: torch.ones(2), "nested": {(key, "a"): {"b": NOISE}}})
    loaded = bitsnap.load(path)
    # Not assert_same(), which prints keys.
    assert loaded.keys() == {key, "nested"}
    assert loaded[key].tolist() == [1, 1]
    assert loaded["nested"] == {(key, "a"): {"b": NOISE}}
    assert bitsnap.load(path, keys=[(key,)]).keys() == {key}
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\[-0x.* is of type bytearray"):
        bitsnap.save(tmp_path / "b.bsnap", {-(10**4400): bytearray()})


def test_names_of_two_places_are_ambiguous_and_paths_are_not(tmp_path: Path) -> None:
    state = {"a.b": 1, "a": {"b": torch.ones(2), "c": 3}, "l": [{"x": 4}, 5], 7: "seven", "7": 8, "": {"d": 9}}
    path = tmp_path / "a.bsnap"
    bitsnap.save(path, state)
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.load(path, keys=["l", "a.b"])
    assert caught.value.field == "keys"
    assert str(caught.value) == (
        "keys holds 'a.b', which names both state['a.b'] and state['a']['b']; give the path of one as a tuple, as in "
        "keys=[('a', 'b')]"
    )
    assert bitsnap.load(path, keys=[("a.b",)]) == {"a.b": 1}
    assert_same(bitsnap.load(path, keys=[("a", "b")]), {"a": {"b": torch.ones(2)}})
    assert_same(bitsnap.load(path, keys=[("a",), "l.0.x"]), {"a": state["a"], "l": state["l"]})
    assert bitsnap.load(path, keys=[("l", 1)]) == {"l": state["l"]}
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"both state\[7\] and state\['7'\]"):
        bitsnap.load(path, keys="7")
    assert bitsnap.load(path, keys=[(7,), ("",)]) == {7: "seven", "": {"d": 9}}
    assert bitsnap.load(path, keys=".d") == {"": {"d": 9}}
    with pytest.raises(bitsnap.NotFoundError, match=r"nothing under \('a', 'd'\), 'x'"):
        bitsnap.load(path, keys=["a.c", ("a", "d"), "x"])
    # What is below a name of one place only is not ambiguous.
    assert_same(bitsnap.load(path, keys="a"), {"a.b": 1, "a": state["a"]})
