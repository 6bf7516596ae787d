"""Values that only pickle can store: pickled and unpickled with consent, and never run without it."""

from __future__ import annotations

import base64
import contextlib
import datetime
import fractions
import json
import pickle
import zoneinfo
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from bitsnap._states import packing
from bitsnap._states.packing import Packer, StatePlan
from bitsnap._states.tree import flatten
from cli.command_line import UNSUPPORTED, run
from python.engine.checkpointer_jobs import Jobs, saved
from python.same_bits import assert_same
from python.states.state_plan_test import EXACT, saved as written
from second_reader.bsnap_builder import Parts, build


@dataclass
class Own:
    x: Any = 0


class Canary:
    """Whoever unpickles it makes a directory."""

    def __init__(self, path: Path, padding: int = 0) -> None:
        self.path, self.padding = path, padding

    def __reduce__(self) -> tuple[Any, ...]:
        return _touch, (self.path, b"x" * self.padding)


def _touch(path: Path, _: bytes) -> Path:
    path.mkdir()
    return path


def factory() -> Any:
    return 7


def sparse() -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0]), (3,), check_invariants=True)


VALUES: dict[str, tuple[Any, str]] = {
    "an object": (Own([1, torch.ones(2)]), f"{__name__}.Own"),
    "a fraction": (fractions.Fraction(1, 3), "fractions.Fraction"),
    "a function": (factory, "function"),
    "a bytearray": (bytearray(b"abc"), "bytearray"),
    "a generator": (np.random.default_rng(3), "numpy.random._generator.Generator"),
    "a named zone": (datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")), "datetime.datetime"),
    "a factory": (defaultdict(factory, a=torch.ones(2)), "collections.defaultdict"),
    "a dict with other keys": ({"a": torch.ones(2), fractions.Fraction(1): 1}, "dict"),
    "a set of others": ({fractions.Fraction(1)}, "set"),
    "no Unicode": ("\udc80", "str"),
    "a sparse tensor": (sparse(), "torch.Tensor"),
    "an array of objects": (np.array([None, "a"]), "numpy.ndarray"),
    "metadata": (torch.nn.Linear(2, 2).state_dict(), "collections.OrderedDict"),
    "a long one": (Own(b"x" * 100_000), f"{__name__}.Own"),
}
VALUES["metadata"][0]._metadata["x"] = Own(1)


def same(loaded: Any, value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return torch.equal(loaded.to_dense(), value.to_dense())
    if isinstance(value, np.ndarray):
        return bool(np.array_equal(loaded, value))
    if isinstance(value, np.random.Generator):
        return bool(loaded.bit_generator.state == value.bit_generator.state)
    return repr(loaded) == repr(value) and type(loaded) is type(value)


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_pickled_and_unpickled_with_consent_only(tmp_path: Path, name: str) -> None:
    value, type_name = VALUES[name]
    state: dict[str, Any] = {"w": torch.arange(5.0), "a": [value, {"step": 1}]}
    path = tmp_path / "a.bsnap"
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.save(path, state)
    assert caught.value.code == "not_storable"
    bitsnap.save(path, state, allow_pickle=True)
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.load(path)
    assert f"state['a'][0] is a pickled value of type {type_name!r}: pass allow_pickle=True" in str(caught.value)
    loaded = bitsnap.load(path, allow_pickle=True)
    assert same(loaded["a"][0], value)
    assert_same(loaded["w"], state["w"])
    assert_same(loaded["a"][1], state["a"][1])
    assert_same(bitsnap.load(path, keys="w"), {"w": state["w"]})


def test_only_what_no_other_way_can_store_is_pickled(tmp_path: Path) -> None:
    plain = {"w": torch.arange(5.0), "a": OrderedDict(b=(1, b"x" * 70_000)), "s": {1, "a"}}
    for allow_pickle in (False, True):
        bitsnap.save(tmp_path / f"{allow_pickle}.bsnap", plain, allow_pickle=allow_pickle)
    assert (tmp_path / "False.bsnap").read_bytes() == (tmp_path / "True.bsnap").read_bytes()
    bitsnap.save(tmp_path / "a.bsnap", {"a": {"b": [torch.ones(3), Own()]}}, allow_pickle=True)
    assert [tensor.name for tensor in bitsnap.inspect(tmp_path / "a.bsnap").tensors] == ["a.b.0"]


def test_what_pickle_cannot_store_is_refused_by_its_place(tmp_path: Path) -> None:
    with pytest.raises(
        bitsnap.InvalidArgumentError,
        match=r"^state\['a'\]\[0\] is of type function and cannot be stored,"
        " not even pickled: .*lambda",
    ):
        bitsnap.save(tmp_path / "a.bsnap", {"a": [lambda: 1]}, allow_pickle=True)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(bitsnap.InvalidArgumentError, match="contains itself"):
        bitsnap.save(tmp_path / "a.bsnap", loop, allow_pickle=True)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_unpickled_is_named_by_its_place(tmp_path: Path) -> None:
    forge(tmp_path / "a.bsnap", [pickle_tree("a.B", b"ca_missing_module\nB\n.")])
    message = r"^state\[0\] is a pickled value of type 'a\.B' and cannot be unpickled: ModuleNotFoundError"
    with pytest.raises(bitsnap.InvalidArgumentError, match=message):
        bitsnap.load(tmp_path / "a.bsnap", allow_pickle=True)


BITS = torch.arange(16, dtype=torch.uint8).repeat(8)
NEW_DTYPES = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2", "complex32"]
NEW_DTYPES += ["uint16", "uint32", "uint64", "bits8", "bits16"]
HELD: dict[str, Any] = {
    **{name: BITS.view(getattr(torch, name)) for name in NEW_DTYPES if hasattr(torch, name)},
    "a parameter": torch.nn.Parameter(BITS.view(torch.float8_e5m2), requires_grad=False),
    "no bytes": torch.empty(2, 3, dtype=torch.uint16, device="meta"),
    "a storage": BITS.untyped_storage(),
    "conjugated": torch.view_as_complex(torch.arange(8.0).reshape(4, 2)).conj(),
    "fields": np.array([(1, 2)], dtype=[("a", "<f4"), ("b", "<i8")]),
}


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
@pytest.mark.parametrize("name", HELD)
def test_tensors_in_pickled_objects_are_read_again_in_every_dtype(tmp_path: Path, name: str) -> None:
    bitsnap.save(tmp_path / "a.bsnap", {"a": Own([HELD[name], HELD[name]])}, allow_pickle=True)
    first, second = bitsnap.load(tmp_path / "a.bsnap", allow_pickle=True)["a"].x
    assert first is second
    assert type(first) is type(HELD[name])
    assert getattr(first, "dtype", None) == getattr(HELD[name], "dtype", None)
    if name in NEW_DTYPES or name == "a parameter":
        assert torch.equal(first.view(torch.uint8), BITS)
    elif isinstance(first, torch.Tensor):
        assert (first.layout, first.device) == (HELD[name].layout, HELD[name].device)
        assert repr(first) == repr(HELD[name])
    else:
        assert bytes(first) == bytes(HELD[name])


def test_views_in_a_pickled_object_share_their_memory_again(tmp_path: Path) -> None:
    whole = BITS.view(torch.float8_e5m2)
    bitsnap.save(tmp_path / "a.bsnap", {"a": Own([whole[:64], whole[64:]])}, allow_pickle=True)
    first, second = bitsnap.load(tmp_path / "a.bsnap", allow_pickle=True)["a"].x
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    assert torch.equal(torch.cat([first.view(torch.uint8), second.view(torch.uint8)]), BITS)


@pytest.mark.parametrize("value", ["no", 1, None])
def test_only_a_bool_is_consent(tmp_path: Path, value: Any) -> None:
    expected = rf"allow_pickle must be True or False, got {value!r}"
    with pytest.raises(TypeError, match=expected):
        bitsnap.save(tmp_path / "a.bsnap", 1, allow_pickle=value)
    with pytest.raises(TypeError, match=expected):
        bitsnap.load(tmp_path / "a.bsnap", allow_pickle=value)
    with bitsnap.Store(tmp_path / "run") as store, pytest.raises(TypeError, match=expected):
        store.save(1, {}, allow_pickle=value)


def test_tensors_are_filled_beside_pickled_values_and_not_in_them(tmp_path: Path) -> None:
    class Output(OrderedDict[str, Any]):
        pass

    globals()["Output"] = Output
    Output.__qualname__ = "Output"

    def state(value: float) -> dict[str, Any]:
        return {"w": torch.full((3,), value), "out": Output(logits=torch.full((2,), value)), "s": sparse() * value}

    bitsnap.save(tmp_path / "a.bsnap", state(2.0), allow_pickle=True)
    into = state(0.0)
    loaded = bitsnap.load(tmp_path / "a.bsnap", into=into, allow_pickle=True)
    assert loaded["w"] is into["w"]
    assert_same(loaded["w"], torch.full((3,), 2.0))
    assert_same(loaded["out"]["logits"], torch.full((2,), 2.0))
    assert_same(into["out"]["logits"], torch.zeros(2))


def assert_packed_as_new(packer: Packer, state: Any, folder: Path) -> None:
    again = packer.pack(state, EXACT, None, may_pickle=True)
    new = Packer(plans=False).pack(state, EXACT, None, may_pickle=True)
    assert written(again, folder / "again.bsnap") == written(new, folder / "new.bsnap")


def test_plans_follow_pickled_values(tmp_path: Path) -> None:
    packer = Packer()
    long = [Own(bytes([i]) * 70_000) for i in range(2)]
    variants = [
        1,
        Own(1),
        Own(2),
        *long,
        Own(b"z" * 80_000),
        sparse(),
        torch.ones(3),
        [long[0], long[0]],
        "a",
        "\udc80",
    ]
    big = torch.sparse_coo_tensor(torch.arange(20_000)[None], torch.ones(20_000), (20_000,), check_invariants=True)
    for value in [*variants, big, big * 2, torch.ones(20_000), {"a": 1}, {fractions.Fraction(1): 1}]:
        for _ in range(2):
            assert_packed_as_new(packer, {"w": torch.ones(4), "x": (value, 1)}, tmp_path)


def test_repeated_saves_are_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Any] = []

    def noted(*args: Any) -> StatePlan:
        plans.append(args)
        return StatePlan(*args)

    monkeypatch.setattr(packing, "StatePlan", noted)
    with bitsnap.Store(tmp_path / "run") as store:
        for step in range(1, 4):
            state = {"w": torch.arange(5.0) * step, "a": Own(step), "b": Own(bytes([step]) * 70_000)}
            store.save(step, state, allow_pickle=True)
            assert repr(store.load(step, allow_pickle=True)) == repr(state)
        assert len(plans) == 1
        with pytest.raises(bitsnap.InvalidArgumentError, match="Own and cannot be stored"):
            store.save(4, state)


def test_shards_and_checkpointers_take_the_same_consent(tmp_path: Path, jobs: Jobs) -> None:
    state = {"w": torch.arange(5.0), "a": Own(1)}
    with bitsnap.Store(tmp_path / "shared", shared=True) as store:
        store.save_shard(1, state, shard=0, shards=1, attempt="a", allow_pickle=True)
        store.commit(1, 1, "a")
        assert repr(store.load(allow_pickle=True)) == repr(state)
    with jobs() as checkpointer:
        with pytest.raises(bitsnap.InvalidArgumentError, match="Own and cannot be stored"):
            checkpointer.save(1, state)
        checkpointer.reserve(state, allow_pickle=True)
        for step in (1, 2):
            saved(checkpointer, step, state, allow_pickle=True).result()
        for wanted in (None, 2):
            with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['a'\] is a pickled value of type"):
                checkpointer.restore(wanted)
        restored = checkpointer.restore(allow_pickle=True)
        assert restored is not None
        assert restored.step == 2
        assert repr(restored.state) == repr(state)


# --- without consent


def pickle_tree(type_name: Any, content: bytes) -> Any:
    return {"typed": ["pickle", {"tuple": [type_name, {"bytes": base64.b64encode(content).decode()}]}]}


def forge(path: Path, tree: Any) -> None:
    path.write_bytes(build(Parts(f'{{"tensors":[],"tree":{json.dumps(tree)}}}'.encode(), encoding={})))


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """What exists if anything was unpickled; the test is then told."""
    path = tmp_path / "canary"
    yield path
    assert not path.exists()


def planted(canary: Path, number: int, padding: int) -> dict[str, Any]:
    return {"w": torch.arange(5000.0) + number, "n": {"evil": Canary(canary, padding), "v": torch.ones(3)}}


def into(canary: Path) -> dict[str, Any]:
    return {"w": torch.zeros(5000), "n": {"evil": None, "v": torch.zeros(3)}}


READERS: dict[str, Callable[[Path, Path], Any]] = {
    "load": lambda path, _: bitsnap.load(path),
    "load into": lambda path, canary: bitsnap.load(path, into=into(canary)),
    "load into, not strict": lambda path, canary: bitsnap.load(path, into=into(canary), strict=False),
    "load the value": lambda path, _: bitsnap.load(path, keys="n.evil"),
    "load by a path": lambda path, _: bitsnap.load(path, keys=[("n", "evil")]),
    "load by a function": lambda path, _: bitsnap.load(path, keys=lambda name: name != "w"),
    "load beside the value": lambda path, _: bitsnap.load(path, keys=["w", "n.v"]),
    "load an open snapshot": lambda path, _: bitsnap.load(bitsnap.Snapshot(path)),
    "load_file": lambda path, _: bitsnap.load_file(path),
    "inspect": lambda path, _: repr(bitsnap.inspect(path)),
    "verify": lambda path, _: bitsnap.verify(path),
    "decompress": lambda path, _: bitsnap.decompress(path, path.with_suffix(".safetensors")),
    "open_folder": lambda path, _: bitsnap.open_folder(path),
    "save against it": lambda path, _: bitsnap.save(path.with_suffix(".next"), {"w": torch.ones(3)}, base=path),
}


@pytest.mark.parametrize("padding", [0, 100_000], ids=["short", "long"])
@pytest.mark.parametrize("name", READERS)
def test_no_reader_of_a_file_runs_a_pickle(tmp_path: Path, canary: Path, name: str, padding: int) -> None:
    path = tmp_path / "a.bsnap"
    bitsnap.save(path, planted(canary, 0, padding), allow_pickle=True)
    with contextlib.suppress(bitsnap.InvalidArgumentError):
        READERS[name](path, canary)
    with bitsnap.safe_open(path, "pt") as file:
        names = file.keys()
        for tensor in names:
            file.get_tensor(tensor)


def test_the_planted_pickle_would_run_with_consent(tmp_path: Path) -> None:
    for padding in (0, 100_000):
        path = tmp_path / f"canary-{padding}"
        bitsnap.save(tmp_path / "a.bsnap", planted(path, 0, padding), allow_pickle=True, overwrite=True)
        assert bitsnap.load(tmp_path / "a.bsnap", allow_pickle=True)["n"]["evil"] == path
        assert path.exists()


@pytest.mark.parametrize("padding", [0, 100_000], ids=["short", "long"])
def test_no_reader_of_a_store_runs_a_pickle(tmp_path: Path, canary: Path, padding: int) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        for step in (1, 2):
            store.save(step, planted(canary, step, padding), allow_pickle=True)
        for options in ({}, {"step": 1}, {"into": into(canary)}, {"keys": "n"}):
            with pytest.raises(
                bitsnap.InvalidArgumentError, match=r"state\['n'\]\['evil'\] is a pickled value of type"
            ):
                store.load(**options)
        assert_same(store.load(keys="n.v"), {"n": {"v": torch.ones(3)}})
        store.verify()
        bitsnap.load_file(store.snapshot())
        store.prune(keep_last=1, reencode="always")
    bitsnap.Store.repair(tmp_path / "run")


@pytest.mark.parametrize("padding", [0, 100_000], ids=["short", "long"])
def test_no_restore_runs_a_pickle(jobs: Jobs, canary: Path, padding: int) -> None:
    with jobs(every=2, every_memory=1) as checkpointer:
        for step in (2, 3):
            saved(checkpointer, step, planted(canary, step, padding), allow_pickle=True).result()
        for restored_step in (None, 2, 3):
            for options in ({}, {"into": into(canary)}, {"keys": "n"}, {"fallback": False}):
                with pytest.raises(bitsnap.InvalidArgumentError, match=r"\['evil'\] is a pickled value of type"):
                    checkpointer.restore(restored_step, **options)


def test_no_subcommand_runs_a_pickle(tmp_path: Path, canary: Path) -> None:
    a, b = tmp_path / "a.bsnap", tmp_path / "b.bsnap"
    with bitsnap.Store(tmp_path / "run") as store:
        for number, path in enumerate((a, b), 1):
            bitsnap.save(path, planted(canary, number, 100_000 * number), allow_pickle=True)
            store.save(number, planted(canary, number, 0), allow_pickle=True)
    for source in (str(a), f"{tmp_path}/run@2"):
        run("inspect", source)
        run("inspect", source, "--json", "-v")
        run("verify", source)
        run("analyze", source)
        for form in ("torch", "dcp"):
            run("convert", source, tmp_path / f"{Path(source).name}-{form}", "--to", form, status=UNSUPPORTED)
            run("convert", source, tmp_path / f"{Path(source).name}-{form}", "--to", form, "--tensors-only")
        run("convert", source, tmp_path / f"{Path(source).name}.safetensors")
    run("diff", a, b, status=1)
    run("diff", a, f"{tmp_path}/run@1", status=1)
    run("analyze", a, b)
    run("decompress", a, "-o", tmp_path / "a.safetensors")
    run("add", tmp_path / "run", "--step", 3, tmp_path / "a.safetensors")
    run("log", tmp_path / "run")
    run("du", tmp_path / "run")
    run("report", tmp_path / "run", "-o", tmp_path / "report.html")


CONTENTS: list[Any] = [
    None,
    "AA==",
    {"tuple": []},
    {"tuple": ["a"]},
    {"tuple": ["a", "b"]},
    {"tuple": [1, {"bytes": "AA=="}]},
    ["a", {"bytes": "AA=="}],
    {"tuple": ["a", {"bytes": "AA=="}, 1]},
]


@pytest.mark.parametrize("content", CONTENTS)
def test_other_content_is_corrupt(tmp_path: Path, content: Any) -> None:
    forge(tmp_path / "a.bsnap", {"typed": ["pickle", content]})
    with pytest.raises(bitsnap.CorruptError, match="value of type 'pickle' that is made of"):
        bitsnap.load(tmp_path / "a.bsnap", allow_pickle=True)


def test_a_forged_pickle_runs_nowhere(tmp_path: Path, canary: Path) -> None:
    evil = pickle_tree("int", pickle.dumps(Canary(canary)))
    for tree in [
        evil,
        [evil],
        {"typed": ["registered", {"tuple": ["a", evil]}]},
        {"typed": ["collections.OrderedDict", {"tuple": [{"dict": []}, {"dict": [["a", evil]]}]}]},
        {"typed": ["set", {"tuple": [evil]}]},
        {"typed": ["torch.Size", {"tuple": [evil]}]},
        {"typed": ["torch.dtype", evil]},
        {"typed": ["enum", evil]},
        {"dict": [[evil, 1]]},
    ]:
        forge(tmp_path / "a.bsnap", tree)
        with pytest.raises(bitsnap.BitsnapError):
            bitsnap.load(tmp_path / "a.bsnap")


def test_flatten_leaves_no_tensor_of_a_pickled_value_behind() -> None:
    state = [{"a": torch.ones(2), fractions.Fraction(1): 1}, defaultdict(factory, a=torch.ones(2)), torch.ones(3)]
    entries, _ = flatten(state, None, None, True)
    assert [entry.name for entry in entries.items] == ["2"]
