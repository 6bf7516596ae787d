"""States of torch's optimizers by the names of the parameters: what a restore gives has the saved bits and dtypes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from bitsnap._optimizer_states import named, names_of, restore_optimizer
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
