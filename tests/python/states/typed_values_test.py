"""Values of the types of docs/spec/typed_tree.md come back as they were; other types and forged files are refused."""

from __future__ import annotations

import argparse
import datetime
import enum
import json
import signal
import sys
import types
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import bitsnap
from python.same_bits import assert_same
from second_reader.bsnap_builder import Parts, build


class Colour(enum.Enum):
    RED = 1
    CRIMSON = RED


class Paint:
    class Shade(enum.IntEnum):
        DARK = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


def round_trip(value: Any, folder: Path) -> Any:
    bitsnap.save(folder / "a.bsnap", {"value": value}, overwrite=True)
    return bitsnap.load(folder / "a.bsnap")["value"]


def load_tree(tree: Any, folder: Path) -> Any:
    """What bitsnap makes of a file with this JSON as its tree."""
    path = folder / "forged.bsnap"
    path.write_bytes(build(Parts(f'{{"tensors":[],"tree":{json.dumps(tree)}}}'.encode(), encoding={})))
    return bitsnap.load(path)


PLUS_ONE = datetime.timezone(datetime.timedelta(hours=1))
VALUES: dict[str, Any] = {
    "OrderedDict": OrderedDict(b=1, a=OrderedDict(), c=torch.ones(2)),
    "defaultdict": defaultdict(list, {1: [torch.ones(1)]}),
    "defaultdict without a factory": defaultdict(None, a=1),
    "defaultdict of sets": defaultdict(frozenset),
    "Counter": Counter({5: 2, "x": -1, (1, 2): 0}),
    "deque": deque([torch.ones(2), {"a": deque()}, 0.5], maxlen=5),
    "deque without a limit": deque([1, "a"]),
    "deque of one place": deque([1, 2], maxlen=1),
    "Namespace": argparse.Namespace(lr=0.1, layers=[1, 2], inner=argparse.Namespace(), weight=torch.ones(3)),
    "set": {1, "a", b"b", None, 2.5, (1, "x"), frozenset({1, frozenset()})},
    "empty set": set(),
    "frozenset": frozenset({1, 2, 3}),
    "Size": torch.Size([3, 0, 5]),
    "dtypes": [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.int64, torch.bool],
    "devices": [torch.device("cpu"), torch.device("cuda:3"), torch.device("meta")],
    "paths": [PurePosixPath("/a/b"), PurePosixPath("."), PureWindowsPath("c:/x"), Path("ä/b"), Path("//x")],
    "datetime": datetime.datetime(2026, 11, 23, 9, 30, 1, 5),
    "datetime with a zone": datetime.datetime(1, 1, 1, tzinfo=datetime.UTC),
    "datetime with an offset": datetime.datetime(2026, 1, 1, 2, 30, tzinfo=PLUS_ONE, fold=1),
    "date": datetime.date(9999, 12, 31),
    "time": datetime.time(23, 59, 59, 999999, tzinfo=datetime.timezone(datetime.timedelta(hours=-5), "EST")),
    "timedelta": [datetime.timedelta.min, datetime.timedelta.max, datetime.timedelta(microseconds=-1)],
    "timezones": [datetime.UTC, PLUS_ONE, datetime.timezone(datetime.timedelta(0), "GMT")],
    "complex": [complex(-0.0, float("nan")), 1j],
    "enum members": [Colour.RED, Colour.CRIMSON, Paint.Shade.DARK, Rights.WRITE, signal.SIGTERM],
    "keys": {torch.float32: 1, Colour.RED: 2, PurePosixPath("a"): 3, frozenset({1}): 4, (PLUS_ONE, 1): 5},
    "empty containers": [OrderedDict(), defaultdict(int), Counter(), argparse.Namespace(), torch.Size([])],
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back_as_it_was(tmp_path: Path, name: str) -> None:
    assert_same(round_trip(VALUES[name], tmp_path), VALUES[name])


def test_the_utc_zone_and_enum_members_come_back_as_the_same_objects(tmp_path: Path) -> None:
    assert round_trip(datetime.UTC, tmp_path) is datetime.UTC
    assert round_trip(Colour.CRIMSON, tmp_path) is Colour.RED


times = st.datetimes() | st.dates() | st.times() | st.timedeltas()
hashable = st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=3) | st.binary(max_size=3) | times


@settings(deadline=None, max_examples=100)
@given(st.recursive(times | st.frozensets(hashable) | st.sets(hashable, max_size=5), lambda inner: st.lists(inner)))
def test_any_times_and_sets_come_back(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    assert_same(round_trip(value, tmp_path_factory.mktemp("any")), value)


def test_equal_sets_give_equal_files(tmp_path: Path) -> None:
    items = [8, 0, 16, "b", "a", b"c", (2, "x"), (1, "y")]
    ids = {
        bitsnap.save(tmp_path / "a.bsnap", {"value": set(order)}, overwrite=True).id
        for order in (items, items[::-1], items[3:] + items[:3])
    }
    assert len(ids) == 1


def test_plain_states_are_stored_as_before(tmp_path: Path) -> None:
    plain = {"step": 1, "lr": 0.1, "betas": (0.9, 0.95), "rest": [None, b"x", {"a": torch.ones(2)}]}
    bitsnap.save(tmp_path / "a.bsnap", plain)
    assert b"typed" not in (tmp_path / "a.bsnap").read_bytes()


def test_state_dicts_keep_their_metadata_and_tensors_their_names(tmp_path: Path) -> None:
    state = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).state_dict()
    assert "1" in state._metadata  # type: ignore[attr-defined]
    loaded = round_trip(state, tmp_path)
    assert_same(loaded, state)
    assert bitsnap.safe_open(tmp_path / "a.bsnap", "pt").keys() == [f"value.{name}" for name in state]


def test_a_part_of_a_state_keeps_its_types(tmp_path: Path) -> None:
    state = {"a": OrderedDict(x=torch.ones(1), y=torch.ones(2)), "b": argparse.Namespace(x=[1], y={2}), "c": Counter()}
    bitsnap.save(tmp_path / "a.bsnap", state)
    part = bitsnap.load(tmp_path / "a.bsnap", keys=["a.x", "b.y"])
    assert_same(part, {"a": OrderedDict(x=torch.ones(1)), "b": argparse.Namespace(y={2})})


def test_tensors_in_typed_containers_are_filled_in_place(tmp_path: Path) -> None:
    def state(value: float) -> dict[str, Any]:
        return {
            "a": OrderedDict(x=torch.full((3,), value)),
            "b": argparse.Namespace(y=np.full(2, value)),
            "c": deque([torch.full((2,), value)], maxlen=4),
        }

    bitsnap.save(tmp_path / "a.bsnap", state(1.0))
    into = state(0.0)
    loaded = bitsnap.load(tmp_path / "a.bsnap", into=into)
    assert_same(loaded, state(1.0))
    assert loaded["a"]["x"] is into["a"]["x"]
    assert loaded["b"].y is into["b"].y
    assert loaded["c"][0] is into["c"][0]
    assert loaded["c"].maxlen == 4


def member_of_a_local_class() -> enum.Enum:
    class Local(enum.Enum):
        A = 1

    return Local.A


REFUSED: dict[str, tuple[Any, str]] = {
    "lambda": (lambda: 0, r"leave it out: a function within another one, such as a lambda"),
    "factory": (defaultdict(lambda: 0), r"defaultdict and cannot be stored: its default_factory is not a builtin"),
    "named zone": (
        datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
        r"datetime.datetime and cannot be stored: its time zone has no fixed offset",
    ),
    "several flags": (Rights.READ | Rights.WRITE, r"Rights and cannot be stored: it is not a named member"),
    "local enum": (member_of_a_local_class(), r"Local and cannot be stored: it is not a named member"),
    "set of functions": (
        {(1, (len,))},
        r"has the item <built-in function len> of type builtin_function_or_method; keys and",
    ),
    "set of tensors": ({torch.ones(1)}, r"has the item tensor\(.*\) of type torch.Tensor"),
    "surrogate path": (Path("\udc80"), r"is a string that is not valid Unicode"),
    "a class": (torch.nn.Linear, r"of type type and cannot be stored: pass the name of the class as a str"),
    "a class with a state of its own": (torch.optim.AdamW, r"type and cannot be stored: pass the name of the class"),
    "subclass of deque": (type("Own", (deque,), {})(), r"Own and cannot be stored: pass collections.deque\(...\)"),
    "subclass": (type("Own", (OrderedDict,), {})(), r"Own and cannot be stored: pass dict\(...\)"),
    "set of a class of its own": (type("Own", (set,), {})(), r"Own and cannot be stored: pass set\(...\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_cannot_come_back_is_refused_by_its_place(tmp_path: Path, name: str) -> None:
    value, message = REFUSED[name]
    with pytest.raises(bitsnap.InvalidArgumentError, match=message) as caught:
        bitsnap.save(tmp_path / "a.bsnap", {"a": [value]})
    assert str(caught.value).startswith("state['a'][0] ")
    assert list(tmp_path.iterdir()) == []


def test_tensors_in_the_metadata_of_a_state_dict_are_refused(tmp_path: Path) -> None:
    state = torch.nn.Linear(2, 2).state_dict()
    state._metadata["x"] = torch.ones(1)  # type: ignore[attr-defined]
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['m'\]\._metadata holds a tensor"):
        bitsnap.save(tmp_path / "a.bsnap", {"m": state})


def test_containers_that_contain_themselves_are_refused(tmp_path: Path) -> None:
    inner: OrderedDict[str, Any] = OrderedDict()
    inner["again"] = argparse.Namespace(inner=inner)
    with pytest.raises(bitsnap.InvalidArgumentError, match="contains itself"):
        bitsnap.save(tmp_path / "a.bsnap", inner)


def test_a_name_of_a_type_that_is_not_known_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(bitsnap.UnsupportedError, match=r"value of type 'os\.system', which this version does not know"):
        load_tree({"typed": ["os.system", "true"]}, tmp_path)


FORGED: dict[str, Any] = {
    "collections.OrderedDict": [1, {"tuple": [{"dict": []}]}, {"tuple": [[], {"dict": []}]}, [["a", 1]]],
    "collections.defaultdict": [{"dict": []}, {"tuple": ["eval", {"dict": []}]}, {"tuple": ["int", []]}],
    "collections.Counter": ["abc", None],
    "collections.deque": [
        *([1], {"tuple": [None]}, {"tuple": [None, {"tuple": []}]}, {"tuple": ["1", []]}, {"tuple": [True, []]}),
        *({"tuple": [1, [1, 2]]}, {"tuple": [-1, []]}, {"tuple": [1.0, []]}),
    ],
    "argparse.Namespace": [{"dict": [[1, 2]]}, []],
    "set": ["abc", [1], {"tuple": [[]]}, {"tuple": [1, 1]}],
    "frozenset": [{"dict": [[1, 2]]}],
    "torch.Size": [[1], {"tuple": ["1"]}, {"tuple": [1.5]}, 3],
    "torch.dtype": [3, ["float32"]],
    "torch.device": [{"tuple": []}, 1.5],
    "pathlib.PurePosixPath": [1, {"bytes": "AA=="}, "a//b"],
    "datetime.date": [{"tuple": [2026, 2, 30]}, {"tuple": [2026, 1]}, "2026-01-01"],
    "datetime.time": [{"tuple": [24, 0, 0, 0, 0, None]}, {"tuple": [1, 0, 0, 0, 2, None]}, {"tuple": []}],
    "datetime.datetime": [{"tuple": [2026, 1, 1]}, {"tuple": [0, 1, 1, 0, 0, 0, 0, 0, None]}],
    "datetime.timedelta": [{"tuple": [0, 86400, 0]}, {"tuple": [1.0, 0, 0]}, {"tuple": [10**10, 0, 0]}],
    "datetime.timezone": [{"tuple": [1, 0, 0]}, {"tuple": [0, 0, 0, 5]}, None],
    "bytes": ["AA==", [1]],
    "str": ["text", {"tuple": []}],
    "enum": ["signal", {"tuple": ["signal", "Signals"]}, {"tuple": [1, 2, 3]}],
}


@pytest.mark.parametrize(("name", "content"), [(name, content) for name in FORGED for content in FORGED[name]])
def test_content_that_no_value_is_made_of_is_corrupt(tmp_path: Path, name: str, content: Any) -> None:
    with pytest.raises(bitsnap.CorruptError, match=f"value of type '{name}' that is made of"):
        load_tree([{"typed": [name, content]}], tmp_path)


def test_dtypes_and_devices_that_torch_does_not_know_are_unsupported(tmp_path: Path) -> None:
    for name in ("float7", "Tensor", "float"):
        with pytest.raises(bitsnap.BitsnapError, match=f"torch.dtype|the dtype '{name}'") as caught:
            load_tree({"typed": ["torch.dtype", name]}, tmp_path)
        assert isinstance(caught.value, bitsnap.UnsupportedError)
    with pytest.raises(bitsnap.UnsupportedError, match="the device 'abacus:0', which torch does not know"):
        load_tree({"typed": ["torch.device", "abacus:0"]}, tmp_path)
    with pytest.raises(bitsnap.UnsupportedError, match=r"pathlib\.WindowsPath"):
        load_tree({"typed": ["pathlib.WindowsPath", "c:"]}, tmp_path)


def test_an_enum_is_looked_up_and_never_imported(tmp_path: Path) -> None:
    def member(module: str, qualname: str, name: str) -> Any:
        return load_tree({"typed": ["enum", {"tuple": [module, qualname, name]}]}, tmp_path)

    assert member(__name__, "Paint.Shade", "DARK") is Paint.Shade.DARK
    unused = "turtledemo.colormixer"
    for module, qualname, name, message in [
        (unused, "Mode", "A", r"Mode\.A, but the module 'turtledemo\.colormixer' is not imported"),
        (__name__, "Missing", "A", "has no such enum class"),
        (__name__, "PLUS_ONE", "A", "has no such enum class"),
        (__name__, "round_trip.__globals__.Colour", "RED", "has no such enum class"),
        (__name__, "Colour", "BLUE", "has no member 'BLUE'"),
        (__name__, "Colour", "mro", "has no member 'mro'"),
    ]:
        with pytest.raises(bitsnap.InvalidArgumentError, match=message):
            member(module, qualname, name)
    assert unused not in sys.modules


def test_no_code_of_a_lazy_module_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lazy = types.ModuleType("lazy_module")
    lazy.__getattr__ = lambda name: pytest.fail(f"asked for {name}")  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "lazy_module", lazy)
    with pytest.raises(bitsnap.InvalidArgumentError, match="'lazy_module' has no such enum class"):
        load_tree({"typed": ["enum", {"tuple": ["lazy_module", "Mode", "A"]}]}, tmp_path)


def test_without_torch_its_values_come_back_as_what_they_are_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bitsnap.save(tmp_path / "a.bsnap", [torch.Size([1, 2]), torch.float32, torch.device("cuda:1")])
    for module in ("bitsnap._states.typed_values", "bitsnap.state"):
        monkeypatch.setattr(f"{module}.has_torch", lambda: False)
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), [(1, 2), "float32", "cuda:1"])
