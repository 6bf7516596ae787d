"""Values of registered types come back as they were, on every way of saving and loading; others are refused by name."""

from __future__ import annotations

import io
import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import bitsnap
from bitsnap._states import packing, program_values
from bitsnap._states.packing import Packer
from bitsnap._states.tree import flatten
from python.engine.checkpointer_jobs import Jobs, saved
from python.same_bits import assert_same
from python.states.state_plan_test import assert_packed_as_new
from second_reader.bsnap_builder import Parts, build


@dataclass(eq=False)
class Scale:
    """With tensors and values, as a loss scaler has them."""

    scale: float = 1.0
    window: torch.Tensor = field(default_factory=lambda: torch.zeros(3))
    parts: Any = ()

    def __eq__(self, other: object) -> bool:
        assert_same(vars(self), vars(other))
        return type(self) is type(other)


class Address(NamedTuple):
    start: int
    numel: int


class Derived(Scale):
    """Not registered."""


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registrations end with the test."""
    monkeypatch.setattr(program_values, "_by_tag", {})
    monkeypatch.setattr(program_values, "_by_type", {})
    program_values._changes += 1
    bitsnap.register_value("test.Scale", Scale, lambda value: dict(vars(value)), lambda content: Scale(**content))
    bitsnap.register_value("test.Address", Address, tuple, lambda content: Address(*content))
    yield
    program_values._changes += 1


def forget(tag: str) -> None:
    kind = program_values._by_tag.pop(tag).kind
    if kind is not None:
        del program_values._by_type[kind]
    program_values._changes += 1


def state_of(number: int) -> dict[str, Any]:
    window = torch.arange(3.0) * number
    return {
        "model": {"w": torch.arange(5000.0) + number},
        "scaler": Scale(2.0**number, window, [Address(number, 4), {"tied": window}]),
        "fragments": [Address(number, 1), Address(0, 2)],
        "step": number,
    }


def test_values_come_back_with_their_tensors_and_ties(tmp_path: Path) -> None:
    state = state_of(3)
    bitsnap.save(tmp_path / "a.bsnap", state)
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    assert_same(loaded, state)
    assert type(loaded["fragments"][0]) is Address
    assert loaded["scaler"].window is loaded["scaler"].parts[1]["tied"]
    assert set(bitsnap.load_file(tmp_path / "a.bsnap")) == {"model.w", "scaler.window", "scaler.parts.1.tied"}


def test_a_value_may_be_the_state_and_hold_others_and_be_a_tensor(tmp_path: Path) -> None:
    class Odd(torch.Tensor):
        pass

    def plain(value: Odd) -> torch.Tensor:
        return value.as_subclass(torch.Tensor)

    bitsnap.register_value("test.Odd", Odd, plain, lambda content: content.as_subclass(Odd))
    odd = torch.arange(4.0).as_subclass(Odd)
    bitsnap.save(tmp_path / "a.bsnap", Scale(parts=OrderedDict(odd=odd, inner=Scale(parts=Address(1, 2)))))
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    assert type(loaded) is Scale
    assert type(loaded.parts["odd"]) is Odd
    assert_same(plain(loaded.parts["odd"]), plain(odd))
    assert loaded.parts["inner"] == Scale(parts=Address(1, 2))
    assert bitsnap.safe_open(tmp_path / "a.bsnap", "pt").keys() == ["window", "parts.odd", "parts.inner.window"]


def test_generators_of_numpy_go_on_where_they_were(tmp_path: Path) -> None:
    def generator(content: Any) -> np.random.Generator:
        bits = np.random.PCG64()
        bits.state = content
        return np.random.Generator(bits)

    bitsnap.register_value("numpy.Generator", np.random.Generator, lambda value: value.bit_generator.state, generator)
    value = np.random.default_rng(5)
    value.random(3)
    bitsnap.save(tmp_path / "a.bsnap", [value])
    assert bitsnap.load(tmp_path / "a.bsnap")[0].random() == value.random()


def test_a_part_of_a_value_selects_all_of_it(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", state_of(1))
    for keys in ("scaler", ["scaler.window"], [("scaler", "parts", 1, "tied")], lambda name: name == "scaler.scale"):
        assert_same(bitsnap.load(tmp_path / "a.bsnap", keys=keys), {"scaler": state_of(1)["scaler"]})
    assert_same(bitsnap.load(tmp_path / "a.bsnap", keys="step"), {"step": 1})
    with pytest.raises(bitsnap.NotFoundError, match=r"nothing under 'scaler\.missing'"):
        bitsnap.load(tmp_path / "a.bsnap", keys="scaler.missing")


def test_tensors_of_values_are_filled_in_place(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", state_of(2))
    into = state_of(0)
    loaded = bitsnap.load(tmp_path / "a.bsnap", into=into)
    assert_same(loaded, state_of(2))
    assert loaded["scaler"].window is into["scaler"].window
    assert into["scaler"].scale == 1.0
    del into["scaler"]
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"not in `into`: state\['scaler'\]\['window'\]"):
        bitsnap.load(tmp_path / "a.bsnap", into=into)
    loaded = bitsnap.load(tmp_path / "a.bsnap", into=into, strict=False)
    assert loaded["scaler"] == state_of(2)["scaler"]


def test_a_tag_that_is_not_registered_is_named_with_its_place_and_can_be_left_out(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", state_of(1))
    forget("test.Address")
    into = state_of(0)
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.load(tmp_path / "a.bsnap", into=into)
    assert str(caught.value).startswith(
        "state['scaler']['parts'][0] is a value with the tag 'test.Address', which is not registered: import the module"
    )
    assert_same(into["model"], state_of(0)["model"])  # nothing was filled
    assert_same(bitsnap.load(tmp_path / "a.bsnap", keys="model"), {"model": state_of(1)["model"]})


def test_a_tag_may_be_registered_for_loading_only(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", state_of(1))
    forget("test.Address")
    bitsnap.register_value("test.Address", None, None, lambda content: content)
    assert_same(bitsnap.load(tmp_path / "a.bsnap", keys="fragments"), {"fragments": [(1, 1), (0, 2)]})
    with pytest.raises(bitsnap.InvalidArgumentError, match="Address and cannot be stored"):
        bitsnap.save(tmp_path / "b.bsnap", state_of(1))
    bitsnap.register_value("test.Address", Address, tuple, lambda content: Address(*content))
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state_of(1))


def test_only_instances_of_exactly_the_type_are_stored(tmp_path: Path) -> None:
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['a'\] is of type .*Derived and cannot be stored"):
        bitsnap.save(tmp_path / "a.bsnap", {"a": Derived()})


def test_repeated_saves_are_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flattened: list[Any] = []

    def noted(*args: Any) -> Any:
        flattened.append(args)
        return flatten(*args)

    monkeypatch.setattr(packing, "flatten", noted)
    with bitsnap.Store(tmp_path / "store") as store:
        for step in range(1, 5):
            store.save(step, state_of(step))
            assert_same(store.load(), state_of(step))
            assert_same(store.load(step, keys="scaler"), {"scaler": state_of(step)["scaler"]})
    assert len(flattened) == 1


def test_plans_follow_what_pack_returns_and_what_is_registered(tmp_path: Path) -> None:
    def state(parts: Any) -> dict[str, Any]:
        return {"s": (Scale(1.0, torch.ones(2), parts), 7), "t": Scale(parts=(1, Address(0, 0)))}

    packer = Packer()
    tied = torch.ones(4)
    variants = [1, 2.5, "x", [1], [1, (2, Address(3, 4))], [1, (2, Address(3, 5))], Address(1, 2), Address(2, 2), tied]
    for parts in [*variants, [tied, tied], [tied, tied.clone()], b"x" * 70_000, b"y" * 70_000, (b"y", 1), {"a": 1}]:
        assert_packed_as_new(packer, state(parts), tmp_path)
        assert_packed_as_new(packer, state(parts), tmp_path)
    bitsnap.register_value("test.Scale", Scale, lambda value: value.window, lambda content: Scale(window=content))
    assert_packed_as_new(packer, state(1), tmp_path)


def test_errors_of_the_functions_name_the_place(tmp_path: Path) -> None:
    def fail(_: Any) -> Any:
        raise KeyError("missing")

    bitsnap.save(tmp_path / "a.bsnap", {"a": [Address(1, 2)]})
    bitsnap.register_value("test.Address", Address, fail, fail)
    message = r"^state\['a'\]\[0\] cannot be {}: the {} function of 'test.Address' failed: KeyError: 'missing'$"
    with pytest.raises(bitsnap.InvalidArgumentError, match=message.format("stored", "pack")) as caught:
        bitsnap.save(tmp_path / "b.bsnap", {"a": [Address(1, 2)]})
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(bitsnap.InvalidArgumentError, match=message.format("loaded", "unpack")):
        bitsnap.load(tmp_path / "a.bsnap")
    with bitsnap.Store(tmp_path / "store") as store, pytest.raises(bitsnap.InvalidArgumentError, match="pack function"):
        store.save(1, {"a": [Address(1, 2)]})


def test_values_that_never_end_are_refused(tmp_path: Path) -> None:
    bitsnap.register_value("test.Address", Address, lambda value: Address(value.start + 1, 0), lambda content: content)
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['a'\] is nested deeper than 127 levels"):
        bitsnap.save(tmp_path / "a.bsnap", {"a": Address(1, 1)})
    scale = Scale()
    scale.parts = [scale]
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['parts'\]\[0\] contains itself"):
        bitsnap.save(tmp_path / "a.bsnap", scale)


def test_values_are_no_keys_and_no_metadata_of_state_dicts(tmp_path: Path) -> None:
    for bad in ({Address(1, 2): 1}, {Address(1, 2)}):
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"Address\(start=1, numel=2\) of type .*Address; keys"):
            bitsnap.save(tmp_path / "a.bsnap", bad)
    state = torch.nn.Linear(2, 2).state_dict()
    state._metadata["x"] = Address(1, 2)  # type: ignore[attr-defined]
    with pytest.raises(bitsnap.InvalidArgumentError, match="attribute _metadata of a dict holds no registered values"):
        bitsnap.save(tmp_path / "a.bsnap", state)


def test_a_registration_that_contradicts_another_is_refused() -> None:
    def register(tag: Any, kind: Any, pack: Any = dict, unpack: Any = dict) -> None:
        bitsnap.register_value(tag, kind, pack, unpack)

    for tag, kind, message in [
        ("test.Scale", Derived, r"tag 'test.Scale' is registered for .*\.Scale, not for .*\.Derived"),
        ("other", Scale, r"type .*\.Scale is registered with the tag 'test.Scale', not with 'other'"),
        ("", Derived, "tag must be 1 to 128 of the characters"),
        ("ä", Derived, "tag must be 1 to 128 of the characters"),
        ("a" * 129, Derived, "tag must be 1 to 128 of the characters"),
        ("new", dict, "type builtins.dict is a type that bitsnap stores without a registration"),
        ("new", torch.nn.Parameter, "stores without a registration"),
        ("new", np.float32, "stores without a registration"),
    ]:
        with pytest.raises(bitsnap.InvalidArgumentError, match=message):
            register(tag, kind)
    for arguments in [(1, Derived), ("new", Scale()), ("new", Derived, None), ("new", None), ("new", Derived, dict, 1)]:
        with pytest.raises(TypeError):
            register(*arguments)


def test_a_type_that_is_defined_again_takes_the_place_of_the_earlier_one(tmp_path: Path) -> None:
    def define() -> type:
        class Again:
            pass

        bitsnap.register_value("test.Again", Again, lambda _: None, lambda _: Again())
        return Again

    first, second = define(), define()
    bitsnap.save(tmp_path / "a.bsnap", second())
    assert type(bitsnap.load(tmp_path / "a.bsnap")) is second
    with pytest.raises(bitsnap.InvalidArgumentError, match="Again and cannot be stored"):
        bitsnap.save(tmp_path / "b.bsnap", first())


@pytest.mark.parametrize(
    "content", [{"tuple": ["ä", 1]}, {"tuple": [1, 1]}, {"tuple": ["a"]}, ["a", 1], "ab", None, {"tuple": ["", 1]}]
)
def test_other_content_is_corrupt(tmp_path: Path, content: Any) -> None:
    forge(tmp_path / "a.bsnap", {"typed": ["registered", content]})
    with pytest.raises(bitsnap.CorruptError, match="value of type 'registered' that is made of"):
        bitsnap.load(tmp_path / "a.bsnap")


def test_a_forged_value_comes_back_nowhere_but_in_containers(tmp_path: Path) -> None:
    value = {"typed": ["registered", {"tuple": ["test.Address", {"tuple": [1, 2]}]}]}
    for tree in [
        {"typed": ["collections.OrderedDict", {"tuple": [{"dict": []}, {"dict": [["a", [value]]]}]}]},
        {"typed": ["set", {"tuple": [value]}]},
        {"typed": ["torch.Size", {"tuple": [value]}]},
        {"typed": ["datetime.timezone", value]},
        {"typed": ["enum", value]},
    ]:
        forge(tmp_path / "a.bsnap", tree)
        with pytest.raises(bitsnap.CorruptError):
            bitsnap.load(tmp_path / "a.bsnap")
    forge(tmp_path / "a.bsnap", {"dict": [[value, 1]]})
    with pytest.raises(bitsnap.UnsupportedError, match="a key that is none in Python: PackedValue"):
        bitsnap.load(tmp_path / "a.bsnap")


def forge(path: Path, tree: Any) -> None:
    path.write_bytes(build(Parts(f'{{"tensors":[],"tree":{json.dumps(tree)}}}'.encode(), encoding={})))


def test_a_checkpointer_restores_values_and_takes_no_earlier_step_for_a_missing_tag(jobs: Jobs) -> None:
    with jobs() as checkpointer:
        for step in (1, 2):
            saved(checkpointer, step, state_of(step)).result()
        restored = checkpointer.restore()
        assert restored is not None
        assert_same(restored.state, state_of(2))
        forget("test.Scale")
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['scaler'\] is a value with the tag"):
            checkpointer.restore()
        bitsnap.register_value("test.Scale", Scale, lambda value: dict(vars(value)), lambda content: Scale(**content))
        into = state_of(0)
        restored = checkpointer.restore(1, into=into)
        assert restored is not None
        assert restored.state["scaler"].window is into["scaler"].window
        assert_same(restored.state, state_of(1))


def test_a_checkpointer_does_not_call_a_registered_value(jobs: Jobs) -> None:
    class Called(Scale):
        def __call__(self) -> dict[str, int]:
            return {"called": 1}

    bitsnap.register_value("test.Called", Called, vars, lambda content: Called(**content))
    with jobs() as checkpointer:
        saved(checkpointer, 1, Called(2.0)).result()
        restored = checkpointer.restore()
    assert restored is not None
    assert restored.state == Called(2.0)


def test_adam_is_found_in_values_when_moments_are_rounded(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.randn(64, 64))
    optimizer = torch.optim.AdamW([parameter])
    parameter.sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    bitsnap.save(tmp_path / "a.bsnap", [Scale(parts=optimizer.state_dict())], settings="bounded")
    moments = {tensor.name: tensor for tensor in bitsnap.inspect(tmp_path / "a.bsnap").tensors}
    assert moments["0.parts.state.0.exp_avg"].quantizer is not None


def test_buffers_are_stored_with_their_position_unless_they_are_registered(tmp_path: Path) -> None:
    buffer = io.BytesIO(bytes(range(256)) * 1024)
    buffer.seek(3)
    bitsnap.save(tmp_path / "a", {"buffer": buffer, "empty": io.BytesIO()})
    back = bitsnap.load(tmp_path / "a")
    assert (back["buffer"].getvalue(), back["buffer"].tell()) == (buffer.getvalue(), 3)
    assert back["empty"].getvalue() == b""
    bitsnap.register_value("test.BytesIO", io.BytesIO, io.BytesIO.getvalue, lambda content: io.BytesIO(content[1:]))
    bitsnap.save(tmp_path / "b", {"buffer": buffer})
    assert bitsnap.load(tmp_path / "b")["buffer"].getvalue() == buffer.getvalue()[1:]
    assert bitsnap.load(tmp_path / "a")["buffer"].tell() == 3
