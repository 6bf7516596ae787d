"""States of torch's optimizers by the names of the parameters: what a restore gives has the saved bits and dtypes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import bitsnap
from bitsnap._runs.framework_objects import named, names_of, restore_optimizer
from python.same_bits import assert_same

SHAPES: dict[str, Any] = {
    "alone": lambda tensor: tensor,
    "list": lambda tensor: [tensor, 1, tensor + 1],
    "dict": lambda tensor: {"left": tensor, "right": {"deep": [tensor + 1]}},
    "tuple": lambda tensor: (tensor, (tensor + 1, None)),
    "empty": lambda tensor: [[], {}, tensor],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_nested_moments_keep_the_dtype_in_which_they_were_saved(shape: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)

    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Linear(6, 4).bfloat16()
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    model, optimizer = make()
    for parameter in model.parameters():
        optimizer.state[parameter] = {"step": 3, "GG": SHAPES[shape](torch.randn(4, 4, dtype=dtype))}
    saved = copy.deepcopy(named(optimizer, names_of([("", model)])))
    assert [*saved["state"]] == ["weight", "bias"]
    _, other = make()
    restore_optimizer(other, saved)
    assert_same(other.state_dict(), optimizer.state_dict())


class Layers(nn.Module):
    """Layers of equal shapes, in any order and under any names."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            self.add_module(name, nn.Linear(4, 4))


def trained(model: nn.Module, groups: list[list[str]] | None = None) -> torch.optim.Optimizer:
    """An AdamW whose moments tell its parameters apart. `groups`: the layers of each group, whose rates differ."""
    layers = dict(model.named_children())
    parameters: Any = model.parameters()
    if groups is not None:
        parameters = [
            {"params": [each for name in group for each in layers[name].parameters()], "lr": 0.1 * (number + 1)}
            for number, group in enumerate(groups)
        ]
    optimizer = torch.optim.AdamW(parameters, lr=0.1)
    sum((each * number).sum() for number, each in enumerate(model.parameters(), 1)).backward()  # type: ignore[union-attr]
    optimizer.step()
    return optimizer


def moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    return {name: optimizer.state[each]["exp_avg"].sum().item() for name, each in model.named_parameters()}


def test_moments_follow_the_names_of_parameters_that_come_in_another_order() -> None:
    before, after = Layers("a", "b", "c"), Layers("c", "a", "b")
    optimizer, other = trained(before, [["a"], ["b", "c"]]), trained(after, [["a"], ["c", "b"]])
    saved = copy.deepcopy(named(optimizer, names_of([("", before)])))
    restore_optimizer(other, saved, names_of([("", after)]))
    assert moments(after, other) == moments(before, optimizer)
    assert [group["lr"] for group in other.param_groups] == [0.1, 0.2]


def test_renamed_parameters_keep_their_places() -> None:
    before, after = Layers("a", "b"), Layers("x", "y")
    optimizer, other = trained(before), trained(after)
    restore_optimizer(other, named(optimizer, names_of([("", before)])), names_of([("", after)]))
    assert [*moments(after, other).values()] == [*moments(before, optimizer).values()]


def test_parameters_that_were_renamed_and_moved_or_regrouped_are_refused_by_name() -> None:
    before = Layers("a", "b")
    saved = named(trained(before, [["a"], ["b"]]), names_of([("", before)]))
    for after, groups, match in (
        (Layers("b", "x"), [["b"], ["x"]], r"parameter 'b\.weight' was at another place"),
        (Layers("a", "b"), [["a", "b"]], r"groups have other parameters .* \[4\] of them, and \[2, 2\] then"),
        (Layers("a", "b"), [["b"], ["a"]], r"groups have other parameters .* in another order"),
    ):
        with pytest.raises(bitsnap.InvalidArgumentError, match=match):
            restore_optimizer(trained(after, groups), saved, names_of([("", after)]))
