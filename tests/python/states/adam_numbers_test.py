"""Where Adam's betas, eps and step come from: the caller, the optimizer or the state, and never a guess."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from python.same_bits import assert_same

FIRST, SECOND = (0.9, 0.95), (0.8, 0.999)


def adam_of(path: Path | bitsnap.Snapshot) -> dict[str, bitsnap.AdamNumbers | None]:
    """By the names of all tensors that lost something as first moments."""
    tensors = bitsnap.inspect(path).tensors
    return {each.name: each.quantizer.adam for each in tensors if each.quantizer and each.role == "exp_avg"}


def trained(groups: int = 2, steps: int = 3, **options: Any) -> torch.optim.Optimizer:
    """Of groups of one parameter each, of different betas; the last one is a step behind where there are several."""
    torch.manual_seed(1)
    parameters = [torch.randn(40, 40) for _ in range(groups)]
    betas = [FIRST, SECOND]
    optimizer = torch.optim.Adam(
        [{"params": [each], "betas": betas[i]} for i, each in enumerate(parameters)], eps=1e-7, **options
    )
    for step in range(steps):
        for i, parameter in enumerate(parameters):
            parameter.grad = None if step == 0 and i == 1 else torch.randn(40, 40)
        optimizer.step()
    return optimizer


def moments_of(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Flat, without anything that says what they are of."""
    slots = optimizer.state_dict()["state"]
    return {f"{i}.{name}": slots[i][name].clone() for i in slots for name in ("exp_avg", "exp_avg_sq")}


@pytest.mark.parametrize("step_is_a_number", [False, True])
def test_a_state_dict_has_the_betas_of_each_group_and_the_step_of_each_parameter(
    tmp_path: Path, step_is_a_number: bool
) -> None:
    optimizer = trained(foreach=False)
    state: dict[str, Any] = {"deep": [{"optimizer": optimizer.state_dict()}]}
    if step_is_a_number:
        state["deep"][0]["optimizer"]["state"][0]["step"] = 3
    bitsnap.save(tmp_path / "a.bsnap", state, settings="bounded")
    assert adam_of(tmp_path / "a.bsnap") == {
        "deep.0.optimizer.state.0.exp_avg": bitsnap.AdamNumbers(FIRST, 1e-7, 3),
        "deep.0.optimizer.state.1.exp_avg": bitsnap.AdamNumbers(SECOND, 1e-7, 2),
    }


def test_the_optimizer_is_asked_about_its_own_moments_under_any_name(tmp_path: Path) -> None:
    optimizer = trained()
    slots = optimizer.state_dict()["state"]
    flat = {f"{name}.{i}": slots[i][name] for i in (1, 0) for name in ("exp_avg_sq", "exp_avg")}
    bitsnap.save_file(flat, tmp_path / "a.bsnap", settings="bounded", adam=bitsnap.Adam(optimizer=optimizer))
    assert adam_of(tmp_path / "a.bsnap") == {
        "exp_avg.0": bitsnap.AdamNumbers(FIRST, 1e-7, 3),
        "exp_avg.1": bitsnap.AdamNumbers(SECOND, 1e-7, 2),
    }


def test_an_optimizer_with_equal_groups_is_asked_about_copies(tmp_path: Path) -> None:
    optimizer = trained(groups=1, steps=5)
    adam = bitsnap.Adam(optimizer=optimizer)
    bitsnap.save_file(moments_of(optimizer), tmp_path / "a.bsnap", settings="bounded", adam=adam)
    assert adam_of(tmp_path / "a.bsnap") == {"0.exp_avg": bitsnap.AdamNumbers(FIRST, 1e-7, 5)}
    # It is read at each save.
    optimizer.step()
    bitsnap.save_file(moments_of(optimizer), tmp_path / "b.bsnap", settings="bounded", adam=adam)
    assert adam_of(tmp_path / "b.bsnap") == {"0.exp_avg": bitsnap.AdamNumbers(FIRST, 1e-7, 6)}


def test_an_optimizer_with_different_groups_is_not_asked_about_copies(tmp_path: Path) -> None:
    optimizer = trained()
    adam = bitsnap.Adam(optimizer=optimizer)
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.save_file(moments_of(optimizer), tmp_path / "a.bsnap", settings="bounded", adam=adam)
    assert str(caught.value).startswith(
        f"{tmp_path / 'a.bsnap'}: tensor '0.exp_avg': update_step needs Adam's betas and step, which differ within "
        "optimizer= (betas (0.9, 0.95) and (0.8, 0.999); step 3 and 2), none of whose moments is in the state: save the"
    )
    assert (caught.value.code, caught.value.field) == ("adam_needed", "0.exp_avg")
    assert list(tmp_path.iterdir()) == []
    # Copies that stand in a state dict have it there.
    state = copy.deepcopy(optimizer.state_dict())
    bitsnap.save(tmp_path / "a.bsnap", state, settings="bounded", adam=adam)
    assert adam_of(tmp_path / "a.bsnap") == {
        "state.0.exp_avg": bitsnap.AdamNumbers(FIRST, 1e-7, 3),
        "state.1.exp_avg": bitsnap.AdamNumbers(SECOND, 1e-7, 2),
    }


def test_an_optimizer_is_not_asked_about_moments_of_another_one(tmp_path: Path) -> None:
    mine, other = trained(groups=1), trained(groups=1, steps=7)
    other.param_groups[0]["betas"] = SECOND
    both = {"mine": mine.state_dict(), "other": other.state_dict()}
    bitsnap.save(tmp_path / "a.bsnap", both, settings="bounded", adam=bitsnap.Adam(optimizer=mine))
    assert adam_of(tmp_path / "a.bsnap") == {
        "mine.state.0.exp_avg": bitsnap.AdamNumbers(FIRST, 1e-7, 3),
        "other.state.0.exp_avg": bitsnap.AdamNumbers(SECOND, 1e-7, 7),
    }
    with pytest.raises(bitsnap.InvalidArgumentError, match="needs Adam's betas, eps and step, which are neither"):
        bitsnap.save(
            tmp_path / "b.bsnap",
            {"mine": mine.state_dict(), "other": moments_of(other)},
            settings="bounded",
            adam=bitsnap.Adam(optimizer=mine),
        )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"step": 9}, bitsnap.AdamNumbers(FIRST, 1e-7, 9)),
        ({"step": np.int64(9), "eps": np.float64(0.5)}, bitsnap.AdamNumbers(FIRST, 0.5, 9)),
        ({"betas": [0.5, 0]}, bitsnap.AdamNumbers((0.5, 0.0), 1e-7, 3)),
        ({"betas": (0.5, 0.6), "eps": 0, "step": lambda: 8}, bitsnap.AdamNumbers((0.5, 0.6), 0.0, 8)),
    ],
)
@pytest.mark.parametrize("with_optimizer", [False, True])
def test_arguments_come_first(
    tmp_path: Path, said: dict[str, Any], expected: bitsnap.AdamNumbers, with_optimizer: bool
) -> None:
    optimizer = trained(groups=1)
    adam = bitsnap.Adam(**said, optimizer=optimizer if with_optimizer else None)
    bitsnap.save(tmp_path / "a.bsnap", optimizer.state_dict(), settings="bounded", adam=adam)
    assert adam_of(tmp_path / "a.bsnap") == {"state.0.exp_avg": expected}


def test_tied_moments_outside_of_the_state_dict_have_its_values(tmp_path: Path) -> None:
    state = trained(groups=1).state_dict()
    bitsnap.save(
        tmp_path / "a.bsnap",
        {
            "first.exp_avg": state["state"][0]["exp_avg"],
            "first.exp_avg_sq": state["state"][0]["exp_avg_sq"],
            "optimizer": state,
        },
        settings="bounded",
    )
    expected = bitsnap.AdamNumbers(FIRST, 1e-7, 3)
    assert adam_of(tmp_path / "a.bsnap") == {"first.exp_avg": expected, "optimizer.state.0.exp_avg": expected}


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    state = trained(groups=1).state_dict()
    change(state)
    return state


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (lambda state: state.pop("param_groups"), "betas, eps and step"),
        (lambda state: state["param_groups"][0].pop("betas"), "betas"),
        (lambda state: state["param_groups"][0].update(betas=(0.9, 0.95, 0.99)), "betas"),
        (lambda state: state["param_groups"][0].update(betas=(0.9, None)), "betas"),
        (lambda state: state["param_groups"][0].update(betas=0.9), "betas"),
        (lambda state: state["param_groups"][0].update(eps="1e-8"), "eps"),
        (lambda state: state["param_groups"][0].update(eps=(1e-30, 1e-3)), "eps"),
        (lambda state: state["param_groups"][0].update(params=[1]), "betas and eps"),
        (lambda state: state["param_groups"][0].update(params="0"), "betas and eps"),
        (lambda state: state.update(param_groups={"params": [0]}), "betas, eps and step"),
        (lambda state: state["state"][0].pop("step"), "step"),
        (lambda state: state["state"][0].update(step=True), "step"),
        (lambda state: state["state"][0].update(step=-1), "step"),
        (lambda state: state["state"][0].update(step=1.5), "step"),
        (lambda state: state["state"][0].update(step=torch.tensor(float("nan"))), "step"),
        (lambda state: state["state"][0].update(step=torch.tensor([3, 3])), "step"),
        (lambda state: state.update(state=[state["state"][0]]), "betas, eps and step"),
    ],
)
def test_a_missing_value_is_named_and_nothing_is_written(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], missing: str
) -> None:
    state = changed(change)
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.save(tmp_path / "a.bsnap", state, settings="bounded")
    assert str(caught.value) == (
        f"{tmp_path / 'a.bsnap'}: tensor 'state.0.exp_avg': update_step needs Adam's {missing}, which are neither "
        "given nor in the state: save the optimizer's state_dict() with the state, or pass adam=bitsnap.Adam("
        "optimizer=...) or adam=bitsnap.Adam(betas=..., eps=..., step=...), or keep first moments exact with "
        "settings=bitsnap.bounded(update_step=None)"
    )
    with bitsnap.Store(tmp_path / "run", settings="bounded") as store:
        with pytest.raises(
            bitsnap.InvalidArgumentError, match=f"update_step needs Adam's {missing}, which are neither"
        ):
            store.save(1, state)
        assert store.steps() == []
    assert not (tmp_path / "a.bsnap").exists()
    # No other policy asks for them.
    bitsnap.save(tmp_path / "a.bsnap", state)
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)
    bitsnap.save(tmp_path / "a.bsnap", state, settings="bitsnap", overwrite=True)


def test_a_group_may_have_the_step(tmp_path: Path) -> None:
    def count_for_the_group(state: dict[str, Any]) -> None:
        state["param_groups"][0]["step"] = int(state["state"][0].pop("step"))

    bitsnap.save(tmp_path / "a.bsnap", changed(count_for_the_group), settings="bounded")
    assert adam_of(tmp_path / "a.bsnap") == {"state.0.exp_avg": bitsnap.AdamNumbers(FIRST, 1e-7, 3)}


def test_values_out_of_range_are_named(tmp_path: Path) -> None:
    for change, message in (
        (lambda state: state["param_groups"][0].update(betas=(-0.1, 0.95)), "beta1 must be at least 0 and below 1"),
        (lambda state: state["param_groups"][0].update(betas=(0.9, 1.5)), "beta2 must be at least 0 and below 1"),
    ):
        with pytest.raises(bitsnap.InvalidArgumentError, match=f"tensor 'state.0.exp_avg': Adam's {message}"):
            bitsnap.save(tmp_path / "a.bsnap", changed(change), settings="bounded")
    with pytest.raises(bitsnap.InvalidArgumentError, match="step must be at least 1"):
        bitsnap.save(tmp_path / "a.bsnap", changed(id), settings="bounded", adam=bitsnap.Adam(step=lambda: 0))

    def bad() -> Any:
        return 2.5

    with pytest.raises(TypeError, match=r"step must be an integer, got 2\.5"):
        bitsnap.save(tmp_path / "a.bsnap", changed(id), settings="bounded", adam=bitsnap.Adam(step=bad))
    assert list(tmp_path.iterdir()) == []


def test_moments_before_the_first_step_are_kept(tmp_path: Path) -> None:
    state = changed(lambda state: state["state"][0].update(step=0))
    bitsnap.save(tmp_path / "a.bsnap", state, settings="bounded")
    stored = bitsnap.load(tmp_path / "a.bsnap")
    assert torch.equal(stored["state"][0]["exp_avg"], state["state"][0]["exp_avg"])


def test_optimizers_without_betas_give_no_values(tmp_path: Path) -> None:
    weight = torch.randn(50, 50)
    optimizer = torch.optim.SGD([weight], momentum=0.9)
    weight.grad = torch.randn(50, 50)
    optimizer.step()
    state = {"optimizer": optimizer.state_dict()}
    bitsnap.save(tmp_path / "a.bsnap", state, settings="bounded", adam=bitsnap.Adam(optimizer=optimizer))
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)
    with pytest.raises(bitsnap.InvalidArgumentError, match="update_step needs Adam's betas, eps and step"):
        bitsnap.save(
            tmp_path / "b.bsnap",
            moments_of(trained(groups=1)),
            settings="bounded",
            adam=bitsnap.Adam(optimizer=optimizer),
        )


@pytest.mark.parametrize(
    ("make", "message", "field"),
    [
        (lambda: bitsnap.bounded(rules=["exp_avg=clusters:17"]), "clusters must be 16 or 256, got 17", "loss"),
        (lambda: bitsnap.bounded(master_bits=16), "master_bits must be an integer from 0 to 15, got 16", "loss"),
        (lambda: bitsnap.bounded(master_bits=-1), "master_bits must be 0 to", "master_bits"),
        (lambda: bitsnap.bounded(v_bits=23), "mantissa_bits must be an integer from 0 to 22, got 23", "loss"),
        (lambda: bitsnap.bounded(update_step=0), "update_step must be a number above 0 and at most 1, got 0", "loss"),
        (lambda: bitsnap.bounded(update_step=1.5), "above 0 and at most 1, got 1.5", "loss"),
        (lambda: bitsnap.bounded(update_step=float("nan")), "update_step", "loss"),
        (lambda: bitsnap.bounded(v_bits=10**5000), "v_bits must be 0 to .*, got a number of 16610 bits", "v_bits"),
        (lambda: bitsnap.Adam(betas=(0.9,)), "betas must be a tuple of two numbers, got 1", "betas"),  # type: ignore[arg-type]
        (lambda: bitsnap.Adam(betas=(0.9, 1)), "betas must be at least 0 and below 1, got 1.0", "betas"),
        (lambda: bitsnap.Adam(eps=-1), "eps must be at least 0 and finite, got -1.0", "eps"),
        (lambda: bitsnap.Adam(eps=float("inf")), "eps must be at least 0 and finite, got inf", "eps"),
        (lambda: bitsnap.Adam(eps=10**400), "eps is too large for a float", "eps"),
        (lambda: bitsnap.Adam(step=0), "step must be at least 1, .* got 0", "step"),
        (lambda: bitsnap.Adam(step=-1), "step must be 0 to", "step"),
    ],
)
def test_a_value_out_of_range_is_named(make: Callable[[], object], message: str, field: str) -> None:
    with pytest.raises(bitsnap.InvalidArgumentError, match=message) as caught:
        make()
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bitsnap.bounded(rules="a=exact"), "rules must be a list of str, got 'a=exact'"),
        (lambda: bitsnap.bounded(rules=[5]), "loss must be a list of str, got 5"),  # type: ignore[list-item]
        (lambda: bitsnap.bounded(v_bits=2.5), r"v_bits must be an integer, got 2\.5"),  # type: ignore[arg-type]
        (lambda: bitsnap.bounded(update_step="0.1"), "update_step must be a number, got '0.1'"),  # type: ignore[arg-type]
        (lambda: bitsnap.bounded(v_bits=False), "v_bits must be an integer, got False"),
        (lambda: bitsnap.bounded(master_bits=True), "master_bits must be an integer, got True"),
        (lambda: bitsnap.bounded(update_step=False), "update_step must be a number, got False"),
        (lambda: bitsnap.Adam(betas=0.9), r"betas must be a tuple of two numbers, got 0\.9"),  # type: ignore[arg-type]
        (lambda: bitsnap.Adam(betas=("a", 0.9)), "betas must be a number, got 'a'"),  # type: ignore[arg-type]
        (lambda: bitsnap.Adam(eps="x"), "eps must be a number, got 'x'"),  # type: ignore[arg-type]
        (lambda: bitsnap.Adam(step="x"), "step must be an integer, got 'x'"),  # type: ignore[arg-type]
        (lambda: bitsnap.Adam(step=True), "step must be an integer, got True"),
        (lambda: bitsnap.Adam(optimizer=5), "optimizer must have param_groups and state"),  # type: ignore[arg-type]
        (lambda: bitsnap.save("a.bsnap", {}, adam=5), "adam must be bitsnap.Adam, a dict .* got 5"),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_the_wrong_type_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


def test_values_of_adam_are_values() -> None:
    adam = bitsnap.Adam(betas=[0.9, 0.95], eps=1, step=3)  # type: ignore[arg-type]
    assert adam == bitsnap.Adam((0.9, 0.95), 1.0, 3) == pickle.loads(pickle.dumps(adam))
    assert repr(bitsnap.Adam(step=3, optimizer=trained(groups=1))) == "Adam(betas=None, eps=None, step=3)"


def test_each_tensor_may_have_numbers_of_its_own(tmp_path: Path) -> None:
    optimizer = trained()
    state: dict[str, Any] = {"deep": {"optimizer": optimizer.state_dict()}, **moments_of(optimizer)}
    given = {"0.exp_avg": bitsnap.Adam((0.5, 0.6), 1e-3, 7), "1.exp_avg": bitsnap.Adam((0.7, 0.8), 1e-4, lambda: 9)}
    own = {
        "0.exp_avg": bitsnap.AdamNumbers((0.5, 0.6), 1e-3, 7),
        "1.exp_avg": bitsnap.AdamNumbers((0.7, 0.8), 1e-4, 9),
        "deep.optimizer.state.0.exp_avg": bitsnap.AdamNumbers(FIRST, 1e-7, 3),
        "deep.optimizer.state.1.exp_avg": bitsnap.AdamNumbers(SECOND, 1e-7, 2),
    }
    bitsnap.save(tmp_path / "a.bsnap", state, settings="bounded", adam=given)
    assert adam_of(tmp_path / "a.bsnap") == own
    with bitsnap.Store(tmp_path / "run", settings="bounded", adam=given.get) as store:
        store.save(1, state)
        assert adam_of(store.snapshot(1)) == own
    # What the caller leaves out comes from the state.
    state = {"optimizer": optimizer.state_dict()}
    partly = {"optimizer.state.0.exp_avg": bitsnap.Adam(eps=1e-3)}
    bitsnap.save(tmp_path / "b.bsnap", state, settings="bounded", adam=partly)
    assert adam_of(tmp_path / "b.bsnap")["optimizer.state.0.exp_avg"] == bitsnap.AdamNumbers(FIRST, 1e-3, 3)


def test_numbers_for_tensors_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    optimizer = trained()
    state, adam = moments_of(optimizer), bitsnap.Adam(FIRST, 1e-7, 3)
    path = tmp_path / "a.bsnap"
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"adam is given for tensors that are not there: \['x'\]"):
        bitsnap.save(path, state, settings="bounded", adam={"0.exp_avg": adam, "1.exp_avg": adam, "x": adam})
    with pytest.raises(
        bitsnap.InvalidArgumentError, match=r"tensor '1.exp_avg': update_step needs Adam's betas and st"
    ):
        bitsnap.save(path, state, settings="bounded", adam={"0.exp_avg": adam, "1.exp_avg": bitsnap.Adam(eps=1e-7)})
    with pytest.raises(TypeError, match=r"adam of '0.exp_avg' must be bitsnap.Adam, got 5"):
        bitsnap.save(path, state, settings="bounded", adam=lambda _: 5)  # type: ignore[arg-type]
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"adam\['a'\] its betas, eps and step"):
        bitsnap.save(path, state, settings="bounded", adam={"a": bitsnap.Adam(optimizer=optimizer)})
    with pytest.raises(bitsnap.InvalidArgumentError, match="step must be a function here"):
        bitsnap.Store(tmp_path / "run", adam={"a": adam})
    with bitsnap.Store(tmp_path / "run", settings="bounded", adam=lambda _: None) as store:
        (tmp_path / "folder").mkdir()
        with pytest.raises(bitsnap.InvalidArgumentError, match="for the tensors of files, not a dict or function"):
            store.add_folder(1, tmp_path / "folder")
    assert not path.exists()
