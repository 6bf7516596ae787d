"""The plan of a state: a state of the same structure is packed as a new one would be, and any other is planned anew."""

from __future__ import annotations

import argparse
import gc
import random
import tracemalloc
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import bitsnap
from bitsnap._common import Role, settings_of
from bitsnap._states import packing
from bitsnap._states.packing import Packer, StatePlan, StructureChangedError
from bitsnap._states.tree import flatten
from bitsnap.files import write_packed
from python.same_bits import assert_same

EXACT = settings_of(None)


def saved(packed: packing.PackedState, path: Path) -> bytes:
    write_packed(path, packed, EXACT, base=None, bases=(), overwrite=True, threads=1, progress=None)
    return path.read_bytes()


def assert_packed_as_new(packer: Packer, state: Any, folder: Path) -> None:
    again = packer.pack(state, EXACT, None, metadata={"a": "b"})
    new = Packer(plans=False).pack(state, EXACT, None, metadata={"a": "b"})
    assert saved(again, folder / "again.bsnap") == saved(new, folder / "new.bsnap")


def filled(before: Any, after: Any) -> bool:
    """Whether the plan of one state serves for the other."""
    entries, tree = flatten(before, None, None)
    plan = StatePlan(before, entries, tree)
    try:
        plan.fill(after)
    except StructureChangedError:
        return False
    return True


def training_state() -> dict[str, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1, "rng": torch.get_rng_state()}


def test_steps_of_a_training_have_one_plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 3))
    model[1].bias = model[0].bias  # tied
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    flattened: list[Any] = []

    def noted(*args: Any) -> Any:
        flattened.append(args)
        return flatten(*args)

    monkeypatch.setattr(packing, "flatten", noted)
    with bitsnap.Store(tmp_path / "store") as store:
        for step in range(1, 6):
            optimizer.zero_grad()
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
            scheduler.step()
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "lr": scheduler.state_dict()}
            store.save(step, state, metadata={"step": str(step)})
            assert_same(store.load(step), state)
    # The second step has a learning rate where the first one has an initial value of another type.
    assert len(flattened) <= 2


SHARED = torch.arange(4.0).reshape(2, 2)
LEAVES: list[Callable[[], Any]] = [
    lambda: None,
    lambda: True,
    lambda: 1,
    lambda: 1.0,
    lambda: 0.0,
    lambda: -0.0,
    lambda: float("nan"),
    lambda: 10**30,
    lambda: 1j,
    lambda: complex(-0.0, 1),
    lambda: complex(1, 0.0),
    lambda: complex(1, -0.0),
    lambda: "text",
    lambda: "täxt",
    lambda: "",
    lambda: b"bytes",
    lambda: "x" * 70_000,
    lambda: "y" * 70_000,
    lambda: b"z" * 70_000,
    lambda: {1, 2},
    lambda: {2, 3},
    lambda: frozenset("a"),
    lambda: torch.Size((2, 3)),
    lambda: torch.float16,
    lambda: torch.ones(2),
    lambda: torch.ones(2).double(),
    lambda: torch.zeros(2, 2),
    lambda: torch.zeros(2, 2).t(),
    lambda: torch.nn.Parameter(torch.ones(2)),
    lambda: torch.zeros(0),
    lambda: torch.ones(2, dtype=torch.complex64).conj(),
    lambda: np.ones(2, np.float32),
    lambda: np.ones(2, ">f4"),
    lambda: np.float32(3),
    lambda: SHARED,
    lambda: SHARED.view(4),
    lambda: SHARED[0],
    lambda: SHARED.numpy(),
]
KEYS = st.sampled_from(["a", "b", "a.b", 0, 1, 1.0, 0.0, -0.0, True, None, b"a", (1,), (True,), (1.0,)])


def counter_of(items: list[Any]) -> Counter[Any]:
    made: Counter[Any] = Counter()
    dict.update(made, {str(i): item for i, item in enumerate(items)})
    return made


def ordered_of(items: list[tuple[Any, Any]], metadata: Any) -> OrderedDict[Any, Any]:
    made = OrderedDict(items)
    if metadata is not None:
        made._metadata = metadata  # type: ignore[attr-defined]
    return made


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.lists(st.tuples(KEYS, inner), max_size=3)
    plain = st.sampled_from([None, {"version": 1}, {"version": 2}, {"version": [1]}])
    return st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.builds(deque, st.lists(inner, max_size=3), st.sampled_from([None, 2, 9])),
        items.map(dict),
        st.builds(ordered_of, items, plain),
        st.builds(lambda made, factory: defaultdict(factory, made), items, st.sampled_from([None, int, list])),
        st.lists(inner, max_size=2).map(counter_of),
        st.lists(inner, max_size=2).map(lambda made: argparse.Namespace(**{f"n{i}": x for i, x in enumerate(made)})),
    )


STATES = st.recursive(st.sampled_from(LEAVES).map(lambda make: make()), containers, max_leaves=6)


@settings(max_examples=60, deadline=None)
@given(states=st.lists(STATES, min_size=2, max_size=4))
def test_any_states_in_turn_are_packed_as_new_ones(tmp_path_factory: pytest.TempPathFactory, states: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("turns")
    packer = Packer()
    for state in states:
        assert_packed_as_new(packer, state, folder)


@settings(max_examples=60, deadline=None)
@given(leaves=st.lists(st.sampled_from(LEAVES), min_size=2, max_size=4), data=st.data())
def test_states_that_differ_in_some_values_are_packed_as_new_ones(
    tmp_path_factory: pytest.TempPathFactory, leaves: list[Callable[[], Any]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("values")
    packer = Packer()
    for _ in range(3):
        inner = {"a": [make() for make in leaves], "b": tuple(make() for make in leaves)}
        assert_packed_as_new(packer, ordered_of([("x", inner)], {"version": 1}), folder)
        leaves = list(leaves)
        leaves[data.draw(st.integers(0, len(leaves) - 1))] = data.draw(st.sampled_from(LEAVES))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": torch.ones(2)}, {"b": torch.ones(2)}),
        ({"a": torch.ones(2)}, {"a": torch.ones(3)}),
        ({"a": torch.ones(2)}, {"a": torch.ones(2).int()}),
        ({"a": torch.ones(2)}, {"a": np.ones(2, np.float32)}),
        ({"a": SHARED, "b": SHARED}, {"a": SHARED, "b": SHARED.clone()}),
        ({"a": SHARED, "b": SHARED.clone()}, {"a": SHARED, "b": SHARED}),
        ({"a": [SHARED]}, {"a": (SHARED,)}),
        ({"a": [SHARED]}, {"a": deque([SHARED])}),
        ({"a": deque([SHARED], 2)}, {"a": deque([SHARED], 3)}),
        ({1: SHARED}, {True: SHARED}),
        ({0.0: SHARED}, {-0.0: SHARED}),
        ({"a": SHARED, "b": 2}, {"b": 2, "a": SHARED}),
        ({"a": [1], "b": SHARED}, {"a": [SHARED], "b": SHARED}),
        ({"a": "x"}, {"a": object()}),
        ({"a": torch.ones(2)}, {"a": torch.ones(2, device="meta")}),
        (defaultdict(None, {"a": SHARED}), defaultdict(int, {"a": SHARED})),  # type: ignore[arg-type]
    ],
)
def test_another_structure_needs_another_plan(before: Any, after: Any) -> None:
    assert filled(before, before)
    assert not filled(before, after)


def test_states_of_one_structure_have_one_plan() -> None:
    assert filled(training_state(), training_state())
    assert filled({"a": [1, 0.5, "x", None]}, {"a": [None, 7, "yy", 2.5]})
    assert filled({"a": ((1, 2), [SHARED], 3)}, {"a": (("x", 2, {}), [SHARED], 4)})
    assert filled({"a": SHARED, "rng": random.Random(1).getstate()}, {"a": SHARED, "rng": random.Random(2).getstate()})
    assert filled({"a": torch.zeros(2, 2)}, {"a": torch.zeros(2, 2).t()})
    assert filled({"a": b"x" * 70_000}, {"a": b"y" * 70_000})


def test_a_part_of_a_state_without_tensors_takes_no_more_memory_than_its_text() -> None:
    state = {"order": list(range(100_000)), "of": {"a": [0.5] * 100_000}, "w": SHARED}
    entries, tree = flatten(state, None, None)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    plan = StatePlan(state, entries, tree)
    assert tracemalloc.get_traced_memory()[0] - before < 3_000_000  # of which the text is 1.4 MB
    tracemalloc.stop()
    plan.fill(state)


def test_arrays_are_tied_alike_with_and_without_a_plan(tmp_path: Path) -> None:
    array = np.arange(4.0).reshape(1, 4)
    other = np.lib.stride_tricks.as_strided(array, (1, 4), (8, 8))  # the same elements
    packer = Packer()
    assert_packed_as_new(packer, {"a": array, "b": array}, tmp_path)
    assert_packed_as_new(packer, {"a": array, "b": other}, tmp_path)


def test_a_plan_keeps_no_tensor_alive() -> None:
    packer = Packer()
    state: dict[str, Any] = {
        "a": torch.ones(100),
        "b": np.ones(100),
        "c": torch.ones(4, 4).t(),
        "d": torch.ones(2).to(torch.cfloat).conj(),
    }
    for _ in range(2):
        packer.pack(state, EXACT, None)
    kept = [weakref.ref(state["a"].untyped_storage()), weakref.ref(state["b"]), weakref.ref(state["d"])]
    assert all(each() is not None for each in kept)
    del state
    gc.collect()
    assert all(each() is None for each in kept)


def test_a_state_that_is_refused_leaves_the_packer_usable(tmp_path: Path) -> None:
    packer = Packer()
    assert_packed_as_new(packer, {"a": 1, "b": torch.ones(2)}, tmp_path)
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['b'\] is a meta tensor"):
        packer.pack({"a": 2, "b": torch.ones(2, device="meta")}, EXACT, None)
    assert_packed_as_new(packer, {"a": 3, "b": torch.ones(2)}, tmp_path)


def test_other_roles_or_masters_need_another_plan(tmp_path: Path) -> None:
    packer = Packer()
    state = {"a": torch.ones(2048), "m": torch.ones(2048)}
    names: list[str | None] = []
    every: list[dict[str, Role] | None] = [None, {"a": "exp_avg"}, {"a": "exp_avg_sq"}, None]
    for roles in every:
        packed = packer.pack(state, EXACT, None, roles=roles)
        names.append(packed.entries[0].role)
    assert names == [None, "exp_avg", "exp_avg_sq", None]
    with pytest.raises(bitsnap.InvalidArgumentError, match="not there"):
        packer.pack(state, EXACT, None, roles={"x": "weight"})
    state = {"a": torch.ones(2048).bfloat16(), "m": torch.ones(2048)}
    for masters in (None, {"a": "m"}):
        packed = packer.pack(state, EXACT, None, roles=None, masters=masters, metadata=None)
        assert packed.entries[0].master == (None if masters is None else ("m", 0))
