"""What a rank saves of Megatron's states, without Megatron."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import bitsnap
from bitsnap.megatron._shards import staged


class Pair(NamedTuple):
    first: Any
    second: Any


def with_metadata(items: dict[str, Any]) -> OrderedDict[str, Any]:
    result = OrderedDict(items)
    result._metadata = {"": {"version": 1}}  # type: ignore[attr-defined]
    return result


@pytest.mark.parametrize(
    "make",
    [
        lambda tensor: tensor,
        lambda tensor: bitsnap.Box(tensor, (8,), (4,)),
        lambda tensor: [1, (tensor, "a")],
        lambda tensor: {"a": {"b": tensor}},
        lambda tensor: with_metadata({"a": tensor}),
        lambda tensor: defaultdict(list, {"a": [tensor]}),
        lambda tensor: Pair(1, [tensor]),
    ],
)
def test_copies_of_a_shard_share_no_memory_with_it(make: Callable[[Any], Any]) -> None:
    def tensors_in(value: Any) -> list[Any]:
        if isinstance(value, torch.Tensor):
            return [value]
        if isinstance(value, bitsnap.Box):
            return [value.tensor]
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        return [tensor for item in items for tensor in tensors_in(item)]

    tensor = torch.arange(4.0)
    state = {"a": make(tensor)}
    copied = staged(state)
    (found,) = tensors_in(copied)
    tensor.zero_()
    assert found.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert tensors_in(state)[0] is tensor
    assert type(copied["a"]) is type(state["a"])
    for name in ("_metadata", "default_factory"):
        assert getattr(copied["a"], name, None) == getattr(state["a"], name, None)
