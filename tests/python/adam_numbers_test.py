"""Who says Adam's numbers: the caller, the optimizer or the state, each for its own tensors, and never a guess."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from python.same_bits import assert_same

FIRST, SECOND = (0.9, 0.95), (0.8, 0.999)


def adam_of(path: Path) -> dict[str, bitsnap.AdamNumbers | None]:
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
def test_the_state_says_betas_of_each_group_and_the_step_of_each_parameter(
    tmp_path: Path, step_is_a_number: bool
) -> None:
    optimizer = trained(foreach=False)
    state: dict[str, Any] = {"deep": [{"optimizer": optimizer.state_dict()}]}
    if step_is_a_number:
        state["deep"][0]["optimizer"]["state"][0]["step"] = 3
    bitsnap.save(tmp_path / "a.bsnap", state, policy="bounded")
    assert adam_of(tmp_path / "a.bsnap") == {
        "deep.0.optimizer.state.0.exp_avg": bitsnap.AdamNumbers(FIRST, 1e-7, 3),
        "deep.0.optimizer.state.1.exp_avg": bitsnap.AdamNumbers(SECOND, 1e-7, 2),
    }


def test_the_optimizer_says_them_of_its_own_moments_whatever_they_are_called(tmp_path: Path) -> None:
    optimizer = trained()
    slots = optimizer.state_dict()["state"]
    flat = {f"{name}.{i}": slots[i][name] for i in (1, 0) for name in ("exp_avg_sq", "exp_avg")}
    bitsnap.save_file(flat, tmp_path / "a.bsnap", policy=bitsnap.bounded(optimizer=optimizer))
    assert adam_of(tmp_path / "a.bsnap") == {
        "exp_avg.0": bitsnap.AdamNumbers(FIRST, 1e-7, 3),
        "exp_avg.1": bitsnap.AdamNumbers(SECOND, 1e-7, 2),
    }


def test_an_optimizer_that_agrees_says_them_of_copies(tmp_path: Path) -> None:
    optimizer = trained(groups=1, steps=5)
    policy = bitsnap.bounded(optimizer=optimizer)
    bitsnap.save_file(moments_of(optimizer), tmp_path / "a.bsnap", policy=policy)
    assert adam_of(tmp_path / "a.bsnap") == {"0.exp_avg": bitsnap.AdamNumbers(FIRST, 1e-7, 5)}
    # It is read at each save.
    optimizer.step()
    bitsnap.save_file(moments_of(optimizer), tmp_path / "b.bsnap", policy=policy)
    assert adam_of(tmp_path / "b.bsnap") == {"0.exp_avg": bitsnap.AdamNumbers(FIRST, 1e-7, 6)}


def test_an_optimizer_that_does_not_agree_says_nothing_of_copies(tmp_path: Path) -> None:
    optimizer = trained()
    policy = bitsnap.bounded(optimizer=optimizer)
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.save_file(moments_of(optimizer), tmp_path / "a.bsnap", policy=policy)
    assert str(caught.value).startswith(
        f"{tmp_path / 'a.bsnap'}: tensor '0.exp_avg': update_step needs Adam's betas and step, on which optimizer= "
        "does not agree with itself (betas (0.9, 0.95) and (0.8, 0.999); step 3 and 2) while the state has none of its "
        "moments: save the"
    )
    assert list(tmp_path.iterdir()) == []
    # Copies that stand in a state dict have it there.
    state = copy.deepcopy(optimizer.state_dict())
    bitsnap.save(tmp_path / "a.bsnap", state, policy=policy)
    assert adam_of(tmp_path / "a.bsnap") == {
        "state.0.exp_avg": bitsnap.AdamNumbers(FIRST, 1e-7, 3),
        "state.1.exp_avg": bitsnap.AdamNumbers(SECOND, 1e-7, 2),
    }


def test_an_optimizer_says_nothing_of_moments_of_another_one(tmp_path: Path) -> None:
    mine, other = trained(groups=1), trained(groups=1, steps=7)
    other.param_groups[0]["betas"] = SECOND
    both = {"mine": mine.state_dict(), "other": other.state_dict()}
    bitsnap.save(tmp_path / "a.bsnap", both, policy=bitsnap.bounded(optimizer=mine))
    assert adam_of(tmp_path / "a.bsnap") == {
        "mine.state.0.exp_avg": bitsnap.AdamNumbers(FIRST, 1e-7, 3),
        "other.state.0.exp_avg": bitsnap.AdamNumbers(SECOND, 1e-7, 7),
    }
    with pytest.raises(bitsnap.InvalidArgumentError, match="needs Adam's betas, eps and step, which neither"):
        bitsnap.save(
            tmp_path / "b.bsnap",
            {"mine": mine.state_dict(), "other": moments_of(other)},
            policy=bitsnap.bounded(optimizer=mine),
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
def test_what_the_caller_says_comes_first(
    tmp_path: Path, said: dict[str, Any], expected: bitsnap.AdamNumbers, with_optimizer: bool
) -> None:
    optimizer = trained(groups=1)
    policy = bitsnap.bounded(**said, optimizer=optimizer if with_optimizer else None)
    bitsnap.save(tmp_path / "a.bsnap", optimizer.state_dict(), policy=policy)
    assert adam_of(tmp_path / "a.bsnap") == {"state.0.exp_avg": expected}


def test_moments_that_stand_elsewhere_first_have_the_numbers_of_their_state_dict(tmp_path: Path) -> None:
    state = trained(groups=1).state_dict()
    bitsnap.save(
        tmp_path / "a.bsnap",
        {
            "first.exp_avg": state["state"][0]["exp_avg"],
            "first.exp_avg_sq": state["state"][0]["exp_avg_sq"],
            "optimizer": state,
        },
        policy="bounded",
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
def test_what_nobody_says_is_named_and_nothing_is_written(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], missing: str
) -> None:
    state = changed(change)
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.save(tmp_path / "a.bsnap", state, policy="bounded")
    assert str(caught.value) == (
        f"{tmp_path / 'a.bsnap'}: tensor 'state.0.exp_avg': update_step needs Adam's {missing}, which neither the "
        "caller nor the state says: "
        "save the optimizer's state_dict() with the state, or give bitsnap.bounded(optimizer=...) or "
        "bitsnap.bounded(betas=..., eps=..., step=...); or keep first moments exact, with "
        "bitsnap.bounded(update_step=None)"
    )
    with bitsnap.Store(tmp_path / "run", policy="bounded") as store:
        with pytest.raises(bitsnap.InvalidArgumentError, match=f"update_step needs Adam's {missing}, which neither"):
            store.save(1, state)
        assert store.steps() == []
    assert not (tmp_path / "a.bsnap").exists()
    # No other policy asks for them.
    bitsnap.save(tmp_path / "a.bsnap", state)
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)
    bitsnap.save(tmp_path / "a.bsnap", state, policy="bitsnap")


def test_an_optimizer_that_counts_for_a_group_says_the_step_there(tmp_path: Path) -> None:
    def count_for_the_group(state: dict[str, Any]) -> None:
        state["param_groups"][0]["step"] = int(state["state"][0].pop("step"))

    bitsnap.save(tmp_path / "a.bsnap", changed(count_for_the_group), policy="bounded")
    assert adam_of(tmp_path / "a.bsnap") == {"state.0.exp_avg": bitsnap.AdamNumbers(FIRST, 1e-7, 3)}


def test_numbers_that_cannot_be_are_named(tmp_path: Path) -> None:
    for change, message in (
        (lambda state: state["param_groups"][0].update(betas=(-0.1, 0.95)), "beta1 must be at least 0 and below 1"),
        (lambda state: state["param_groups"][0].update(betas=(0.9, 1.5)), "beta2 must be at least 0 and below 1"),
    ):
        with pytest.raises(bitsnap.InvalidArgumentError, match=f"tensor 'state.0.exp_avg': Adam's {message}"):
            bitsnap.save(tmp_path / "a.bsnap", changed(change), policy="bounded")
    with pytest.raises(bitsnap.InvalidArgumentError, match="step is the number of steps that"):
        bitsnap.save(tmp_path / "a.bsnap", changed(id), policy=bitsnap.bounded(step=lambda: 0))
    with pytest.raises(TypeError, match=r"step is an integer, not 2\.5"):
        bitsnap.save(tmp_path / "a.bsnap", changed(id), policy=bitsnap.bounded(step=lambda: 2.5))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_moments_before_the_first_step_are_kept(tmp_path: Path) -> None:
    state = changed(lambda state: state["state"][0].update(step=0))
    bitsnap.save(tmp_path / "a.bsnap", state, policy="bounded")
    stored = bitsnap.load(tmp_path / "a.bsnap")
    assert torch.equal(stored["state"][0]["exp_avg"], state["state"][0]["exp_avg"])


def test_optimizers_without_betas_have_nothing_to_say(tmp_path: Path) -> None:
    weight = torch.randn(50, 50)
    optimizer = torch.optim.SGD([weight], momentum=0.9)
    weight.grad = torch.randn(50, 50)
    optimizer.step()
    state = {"optimizer": optimizer.state_dict()}
    bitsnap.save(tmp_path / "a.bsnap", state, policy=bitsnap.bounded(optimizer=optimizer))
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)
    with pytest.raises(bitsnap.InvalidArgumentError, match="update_step needs Adam's betas, eps and step"):
        bitsnap.save(tmp_path / "b.bsnap", moments_of(trained(groups=1)), policy=bitsnap.bounded(optimizer=optimizer))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bitsnap.Policy("zip"), "unknown policy 'zip', expected 'lossless', 'bounded'"),  # type: ignore[arg-type]
        (lambda: bitsnap.Policy("lmc", ["v=exact"]), "rule 'v=exact': expected ROLE"),
        (lambda: bitsnap.bounded(rules=["exp_avg=clusters:17"]), "clusters is 17, expected 16 or 256"),
        (lambda: bitsnap.bounded(master_bits=16), "master_bits is 16, expected a whole number from 0 to 15"),
        (lambda: bitsnap.bounded(master_bits=-1), "master_bits is an integer from 0 to"),
        (lambda: bitsnap.bounded(v_bits=23), "mantissa_bits is 23, expected a whole number from 0 to 22"),
        (lambda: bitsnap.bounded(update_step=0), "update_step is 0, expected a number above 0 and at most 1"),
        (lambda: bitsnap.bounded(update_step=1.5), "update_step is 1.5, expected a number above 0"),
        (lambda: bitsnap.bounded(update_step=float("nan")), "update_step"),
        (lambda: bitsnap.bounded(betas=(0.9,)), "betas is a tuple of two numbers, not of 1"),
        (lambda: bitsnap.bounded(betas=(0.9, 1)), "a beta is a number from 0 on and below 1, not 1.0"),
        (lambda: bitsnap.bounded(eps=-1), "eps is a number from 0 on and finite, not -1.0"),
        (lambda: bitsnap.bounded(eps=float("inf")), "eps is a number from 0 on and finite, not inf"),
        (lambda: bitsnap.bounded(eps=10**400), "eps is a number that a float can tell"),
        (lambda: bitsnap.bounded(v_bits=10**5000), "v_bits is an integer .* not a number of 16610 bits"),
        (lambda: bitsnap.bounded(step=0), "step is the number of steps .* from 1 on, not 0"),
        (lambda: bitsnap.bounded(step=-1), "step is an integer from 0"),
    ],
)
def test_a_wrong_value_of_a_policy_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(bitsnap.InvalidArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bitsnap.Policy(5), "policy is a str, not 5"),  # type: ignore[arg-type]
        (lambda: bitsnap.Policy("lmc", "a=exact"), "rules is a list of str, not 'a=exact'"),
        (lambda: bitsnap.bounded(rules="a=exact"), "rules is a list of str, not 'a=exact'"),
        (lambda: bitsnap.bounded(rules=[5]), "a rule is a str, not 5"),  # type: ignore[list-item]
        (lambda: bitsnap.bounded(v_bits=2.5), r"v_bits is an integer, not 2\.5"),  # type: ignore[arg-type]
        (lambda: bitsnap.bounded(update_step="0.1"), "update_step is a number, not '0.1'"),  # type: ignore[arg-type]
        (lambda: bitsnap.bounded(betas=0.9), r"betas is a tuple of two numbers, not 0\.9"),  # type: ignore[arg-type]
        (lambda: bitsnap.bounded(betas=("a", 0.9)), "a beta is a number, not 'a'"),  # type: ignore[arg-type]
        (lambda: bitsnap.bounded(eps="x"), "eps is a number, not 'x'"),  # type: ignore[arg-type]
        (lambda: bitsnap.bounded(step="x"), "step is an integer, not 'x'"),  # type: ignore[arg-type]
        (lambda: bitsnap.bounded(v_bits=False), "v_bits is an integer, not False"),
        (lambda: bitsnap.bounded(master_bits=True), "master_bits is an integer, not True"),
        (lambda: bitsnap.bounded(step=True), "step is an integer, not True"),
        (lambda: bitsnap.bounded(update_step=False), "update_step is a number, not False"),
        (lambda: bitsnap.bounded(optimizer=5), "optimizer has param_groups and state, as"),  # type: ignore[arg-type]
        (lambda: bitsnap.save("a.bsnap", {}, policy=5), "policy is a str, not 5"),  # type: ignore[arg-type]
    ],
)
def test_an_argument_of_a_policy_of_another_type_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


def test_policies_are_values() -> None:
    policy = bitsnap.bounded(rules=["exp_avg:*.embed*=update_step:0.020"])
    assert policy == bitsnap.bounded(rules=("exp_avg:*.embed*=update_step:0.02",), master_bits=8)
    assert policy != bitsnap.bounded()
    assert len({policy, copy.copy(policy), pickle.loads(pickle.dumps(policy)), bitsnap.bounded()}) == 2
    assert policy.rules[0] == "exp_avg:*.embed*=update_step:0.02"
    assert policy.rules[1:] == ("master=master_bits:8", "exp_avg_sq=mantissa_bits:3", "exp_avg=update_step:0.02")
    with pytest.raises(AttributeError):
        policy.name = "raw"  # type: ignore[misc]
    assert repr(bitsnap.Policy("raw")) == "Policy('raw')"
    shown = repr(bitsnap.bounded(betas=FIRST, eps=1e-8, step=3, optimizer=trained(groups=1), v_bits=None))
    assert re.fullmatch(
        r"Policy\('bounded', rules=\['master=master_bits:8', 'exp_avg_sq=exact', 'exp_avg=update_step:0.02'\], "
        r"betas=\(0.9, 0.95\), eps=1e-08, step=3, optimizer=<Adam>\)",
        shown,
    )
