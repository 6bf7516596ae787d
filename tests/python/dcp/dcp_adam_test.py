"""Bounded loss of DCP checkpoints: roles that the user names, and Adam's numbers in what DCP hands over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

import bitsnap
from bitsnap import AdamNumbers
from python.dcp.dcp_test import loaded, save
from python.states.adam_numbers_test import adam_of

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is")


def test_bounded_loss_keeps_its_bound(tmp_path: Path) -> None:
    torch.manual_seed(1)
    moment = torch.randn(400, 300)
    rule = bitsnap.bounded(update_step=None)
    state = {"optim": {"exp_avg_sq": moment.square()}, "lone": moment}
    save(state, tmp_path / "run/1", settings=rule, roles=lambda name: "weight" if name == "lone" else None)
    back = loaded(state, tmp_path / "run/1")
    assert torch.equal(back["lone"], moment)
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        assert store.tensors(1)["lone"].role == "weight"


@pytest.mark.parametrize("is_flat", [False, True])
def test_adams_numbers_are_found_in_the_states_of_optimizers(tmp_path: Path, is_flat: bool) -> None:
    torch.manual_seed(1)
    model = torch.nn.ModuleDict({"first": torch.nn.Linear(64, 64), "second": torch.nn.Linear(64, 64)})
    groups = [
        {"params": list(layer.parameters()), "betas": (0.8 + i / 10, 0.95)} for i, layer in enumerate(model.values())
    ]
    optimizer = torch.optim.Adam(groups, eps=1e-7)
    for _ in range(3):
        model["second"](model["first"](torch.randn(8, 64))).square().sum().backward()
        optimizer.step()
    options = StateDictOptions(flatten_optimizer_state_dict=is_flat)
    state = {"optim": get_optimizer_state_dict(model, optimizer, options=options)}
    lone: dict[str, Any] = {**state, "lone": {"exp_avg": torch.randn(64, 64), "exp_avg_sq": torch.rand(64, 64)}}
    writer: dict[str, Any] = {"settings": "bounded"}
    save(state, tmp_path / "run/1", **writer)
    with pytest.raises(CheckpointException, match=r"'lone.exp_avg': update_step needs Adam's betas, eps and st"):
        save(lone, tmp_path / "run/2", **writer)
    given = bitsnap.Adam((0.5, 0.6), 1e-5, lambda: 4)
    save(lone, tmp_path / "run/2", adam={"lone.exp_avg": given}, **writer)
    moments = {f"optim.state.{name}.weight.exp_avg": AdamNumbers((beta, 0.95), 1e-7, 3) for name, beta in BETAS.items()}
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        assert adam_of(store.snapshot(1)) == moments
        assert adam_of(store.snapshot(2)) == {**moments, "lone.exp_avg": AdamNumbers((0.5, 0.6), 1e-5, 4)}
    save(lone, tmp_path / "all/1", adam=given, **writer)
    with bitsnap.Store(tmp_path / "all", read_only=True) as store:
        assert {*adam_of(store.snapshot(1)).values()} == {AdamNumbers((0.5, 0.6), 1e-5, 4)}
    for argument, given_names in (
        ("adam", {"lone.exp_av": given}),
        ("roles", {"lone.exp_avg": "exp_avg", "lone.exp_av": "exp_avg"}),
    ):
        with pytest.raises(CheckpointException, match=rf"{argument}: no rank saves a tensor 'lone.exp_av'; did you "):
            save(lone, tmp_path / "all/2", **writer | {"adam": given, argument: given_names})
    with bitsnap.Store(tmp_path / "all", read_only=True) as store:
        assert store.steps() == [1]


BETAS = {"first": 0.8, "second": 0.9}
