"""Bounded loss from Python: bounds that hold in double precision, and what a file and a store say of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from python.processes import run_script
from python.same_bits import assert_same, bits

BETAS = (0.9, 0.95)
EPS = 1e-6
STEP = 0.02


class Training:
    """Masters of two matrices trained with AdamW, and their bf16 roundings; one matrix is too small for loss."""

    def __init__(self, betas: tuple[float, float] = BETAS, **options: Any) -> None:
        self._generator = torch.Generator().manual_seed(3)
        self.masters = [self._random(120, 100), self._random(50, 400), self._random(10, 10)]
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-3, betas=betas, eps=EPS, foreach=False, **options)

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self._generator)

    def advance(self, steps: int = 1) -> Training:
        for _ in range(steps):
            for master in self.masters:
                # Gradients of many magnitudes, some of them 0.
                master.grad = self._random(*master.shape).mul_(self._random(*master.shape).mul_(4).exp2_()).relu_()
            self.optimizer.step()
        return self

    def state(self) -> dict[str, Any]:
        return {
            "model": {f"w{i}": master.bfloat16() for i, master in enumerate(self.masters)},
            "master": {f"w{i}": master for i, master in enumerate(self.masters)},
            "optimizer": self.optimizer.state_dict(),
        }


def double(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return tensor.double().numpy()


def updates_of(moment: torch.Tensor, square: torch.Tensor, step: int) -> np.ndarray[Any, Any]:
    """What the moments make of a step, but for the learning rate."""
    root = np.sqrt(double(square) / (1 - BETAS[1] ** step))
    with np.errstate(divide="ignore", invalid="ignore"):
        updates: np.ndarray[Any, Any] = double(moment) / (1 - BETAS[0] ** step) / (root + EPS)
    return updates


def quantizers_of(path: Path | bitsnap.Snapshot) -> dict[str, bitsnap.LossReport]:
    return {each.name: each.quantizer for each in bitsnap.inspect(path).tensors if each.quantizer is not None}


def rule_of(report: bitsnap.LossReport) -> tuple[str, float]:
    return report.name, report.amount


def test_each_tensor_stays_within_its_bound_and_the_file_says_what_was_reached(tmp_path: Path) -> None:
    state = Training().advance(7).state()
    bitsnap.save(tmp_path / "a.bsnap", state, settings="bounded")
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    found = quantizers_of(tmp_path / "a.bsnap")
    assert_same(loaded["model"], state["model"])
    assert_same(loaded["optimizer"]["param_groups"], state["optimizer"]["param_groups"])

    for i in range(2):
        master, stored = state["master"][f"w{i}"], loaded["master"][f"w{i}"]
        assert bits(stored.bfloat16()) == bits(master.bfloat16())
        relative = np.abs(double(stored) - double(master)) / np.abs(double(master))
        report = found[f"master.w{i}"]
        assert (report.bound, report.bound_of) == (2.0**-16, "relative")
        assert (report.adam, report.updates, report.next_update_bound) == (None, None, None)
        assert 0 < relative.max() == report.reached.max_relative <= 2.0**-15
        assert report.reached.changed == np.count_nonzero(double(stored) != double(master))
        assert report.reached.kept_exact == master.numel() - report.reached.changed

        slots, kept = state["optimizer"]["state"][i], loaded["optimizer"]["state"][i]
        square, stored_square = slots["exp_avg_sq"], kept["exp_avg_sq"]
        assert torch.equal(square == 0, stored_square == 0)
        error = np.abs(double(stored_square) - double(square))
        relative = error[double(square) > 0] / double(square)[double(square) > 0]
        report = found[f"optimizer.state.{i}.exp_avg_sq"]
        assert rule_of(report) == ("mantissa_bits", 3)
        assert report.bound is not None
        assert 0 < relative.max() == report.reached.max_relative <= report.bound == 2.0**-4
        assert report.reached.mean_square == pytest.approx(np.mean(error**2))
        assert report.reached.mean_relative == pytest.approx(relative.mean())

        before = updates_of(slots["exp_avg"], stored_square, 7)
        after = updates_of(kept["exp_avg"], stored_square, 7)
        assert np.all(np.abs(after - before) <= STEP / 2 * (1 + 2.0**-21) + np.abs(before) * 2.0**-22)
        report = found[f"optimizer.state.{i}.exp_avg"]
        assert rule_of(report) == ("update_step", STEP)
        assert report.bound_of == "of the update"
        assert report.adam == bitsnap.AdamNumbers(BETAS, EPS, 7)
        assert report.bound is not None
        assert report.all_updates_bound is not None
        assert report.updates is not None
        moved = np.abs(after - updates_of(slots["exp_avg"], square, 7)).ravel()
        assert moved.max() <= report.bound < 0.05  # the second moment's own error counts
        moved = moved[::16]  # those that are looked at
        assert report.updates.largest == pytest.approx(moved.max())
        assert report.updates.mean == pytest.approx(moved.mean())
        assert report.updates.mean_square == pytest.approx(np.mean(moved**2))
        assert report.updates.elements == moved.size
        assert report.updates.mean_of_updates > report.updates.mean

    # Below 4 KiB nothing is lost.
    assert len(found) == 6
    assert_same(loaded["master"]["w2"], state["master"]["w2"])
    assert_same(loaded["optimizer"]["state"][2], state["optimizer"]["state"][2])


def test_training_goes_on_from_what_was_loaded_within_the_bound_of_the_next_update(tmp_path: Path) -> None:
    training = Training().advance(30)
    bitsnap.save(tmp_path / "a.bsnap", training.state(), settings=bitsnap.bounded(master_bits=None))
    resumed = copy.deepcopy(training)
    into = {"optimizer": resumed.optimizer.state_dict()}
    bitsnap.load(tmp_path / "a.bsnap", into=into, keys="optimizer")
    resumed.optimizer.load_state_dict(into["optimizer"])
    bits_before = bits(resumed.optimizer.state_dict()["state"][0]["exp_avg"])
    assert bits_before != bits(training.optimizer.state_dict()["state"][0]["exp_avg"])

    resumed._generator.set_state(training._generator.get_state())
    training.advance()
    resumed.advance()
    for i in range(2):
        report = quantizers_of(tmp_path / "a.bsnap")[f"optimizer.state.{i}.exp_avg"]
        assert report.next_update_bound is not None
        moved = np.abs(double(resumed.masters[i]) - double(training.masters[i])).max() / 1e-3
        assert 0 < moved <= report.next_update_bound + 1e-3  # of rounding the masters
    assert bits(resumed.masters[2]) == bits(training.masters[2])


@pytest.mark.parametrize("settings", [bitsnap.bounded(), bitsnap.bounded(update_step=0.1, v_bits=0, master_bits=0)])
def test_a_loaded_state_loses_nothing_more(tmp_path: Path, settings: bitsnap.Settings) -> None:
    bitsnap.save(tmp_path / "a.bsnap", Training().advance(5).state(), settings=settings)
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    bitsnap.save(tmp_path / "b.bsnap", loaded, settings=settings)
    assert_same(bitsnap.load(tmp_path / "b.bsnap"), loaded)
    assert bitsnap.snapshot_id(tmp_path / "a.bsnap") == bitsnap.snapshot_id(tmp_path / "b.bsnap")
    assert {report.reached.changed for report in quantizers_of(tmp_path / "b.bsnap").values()} == {0}


def test_more_loss_makes_smaller_files(tmp_path: Path) -> None:
    state = Training().advance(20).state()
    choices: list[Any] = ["lossless", "bounded", bitsnap.bounded(update_step=0.2, v_bits=1, master_bits=2)]
    sizes = [bitsnap.save(tmp_path / f"{i}.bsnap", state, settings=each).stored_bytes for i, each in enumerate(choices)]
    assert sizes[1] < 0.7 * sizes[0]
    assert sizes[2] < 0.8 * sizes[1]
    assert quantizers_of(tmp_path / "0.bsnap") == {}
    assert_same(bitsnap.load(tmp_path / "0.bsnap"), state)


def test_none_keeps_a_role_exact(tmp_path: Path) -> None:
    state = Training().advance(3).state()
    settings = bitsnap.bounded(master_bits=None, v_bits=None, update_step=None)
    bitsnap.save(tmp_path / "a.bsnap", state, settings=settings)
    assert quantizers_of(tmp_path / "a.bsnap") == {}
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)
    bitsnap.save(tmp_path / "b.bsnap", state, settings=bitsnap.bounded(master_bits=None, update_step=None))
    assert {rule_of(report) for report in quantizers_of(tmp_path / "b.bsnap").values()} == {("mantissa_bits", 3)}


def test_rules_come_first_under_any_policy(tmp_path: Path) -> None:
    state = Training().advance(3).state()
    rules = ["exp_avg_sq:*state.1.*=mantissa_bits:5", "exp_avg=exact"]
    bitsnap.save(tmp_path / "a.bsnap", state, settings=bitsnap.bounded(rules=rules))
    found = quantizers_of(tmp_path / "a.bsnap")
    assert {name: rule_of(report) for name, report in found.items()} == {
        "master.w0": ("master_bits", 8),
        "master.w1": ("master_bits", 8),
        "optimizer.state.0.exp_avg_sq": ("mantissa_bits", 3),
        "optimizer.state.1.exp_avg_sq": ("mantissa_bits", 5),
    }
    bitsnap.save(
        tmp_path / "b.bsnap", state, settings=bitsnap.Settings(policy="lmc", loss=["exp_avg:*0*=update_step:0.1"])
    )
    found = quantizers_of(tmp_path / "b.bsnap")
    assert list(found) == ["optimizer.state.0.exp_avg"]
    assert found["optimizer.state.0.exp_avg"].adam == bitsnap.AdamNumbers(BETAS, EPS, 3)
    assert bitsnap.inspect(tmp_path / "b.bsnap").policy == "lmc"
    # Where the role is said, the rules are those of that role.
    bitsnap.save(tmp_path / "c.bsnap", state, settings=bitsnap.bounded(), roles={"master.w0": "other"})
    assert "master.w0" not in quantizers_of(tmp_path / "c.bsnap")


def test_the_loss_of_clusters_is_measured_by_updates(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", Training().advance(9).state(), settings="bitsnap")
    report = quantizers_of(tmp_path / "a.bsnap")["optimizer.state.0.exp_avg"]
    assert rule_of(report) == ("clusters", 16)
    assert report.bound_of == "absolute"
    assert report.bound is not None
    assert 0 < report.reached.max_absolute <= report.bound
    assert report.updates is not None
    assert report.updates.largest > STEP
    assert report.next_update_bound is None


@pytest.mark.parametrize("order", [("master", "model"), ("model", "master")])
def test_a_master_that_is_tied_to_a_weight_keeps_every_bit(tmp_path: Path, order: tuple[str, str]) -> None:
    weight = torch.randn(100, 100)
    state = {role: {"w": weight} for role in order}
    bitsnap.save(tmp_path / "a.bsnap", state, settings="bounded")
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)
    assert quantizers_of(tmp_path / "a.bsnap") == {}


def test_a_tied_tensor_says_what_it_lost(tmp_path: Path) -> None:
    master = torch.randn(100, 100)
    bitsnap.save(tmp_path / "a.bsnap", {"master": {"a": master, "b": master}}, settings="bounded")
    found = quantizers_of(tmp_path / "a.bsnap")
    assert found["master.a"] == found["master.b"]


def test_a_rule_that_fits_no_tensor_is_warned_of(tmp_path: Path) -> None:
    state = {"exp_avg_sq": {"w": torch.rand(100, 100)}}
    settings = bitsnap.bounded(rules=["exp_avg_sq:*.embde=exact", "exp_avg_sq:*.w=exact"])
    said = r"the rule 'exp_avg_sq:\*\.embde=exact' matches no tensor"
    with pytest.warns(UserWarning, match=said) as caught:
        bitsnap.save(tmp_path / "a.bsnap", state, settings=settings)
    assert len(caught) == 1
    with pytest.warns(UserWarning, match=said):
        bitsnap.save_file({"exp_avg_sq.w": state["exp_avg_sq"]["w"]}, tmp_path / "b.bsnap", settings=settings)
    with bitsnap.Store(tmp_path / "run", settings=settings) as store, pytest.warns(UserWarning, match=said):
        store.save(1, state)
    with pytest.warns(UserWarning, match="'master=mantissa_bits:5' matches no tensor"):
        bitsnap.save(tmp_path / "c.bsnap", state, settings=bitsnap.Settings(loss=["master=mantissa_bits:5"]))


def test_a_store_keeps_the_rules_with_its_policy(tmp_path: Path) -> None:
    training = Training()
    settings = bitsnap.bounded(v_bits=5, rules=["master:*w1=exact"])
    with bitsnap.Store(tmp_path / "run", settings=settings) as store:
        assert (store.settings.policy, store.settings.loss) == ("bounded", settings.loss)
        store.save(1, training.advance().state())
    with bitsnap.Store(tmp_path / "run") as store:
        assert (store.settings.policy, store.settings.loss) == ("bounded", settings.loss)
        store.save(2, training.advance().state())
        found = quantizers_of(store.snapshot(2))
        assert list(found) == ["master.w0", *(f"optimizer.state.{i}.exp_avg{sq}" for i in (0, 1) for sq in ("", "_sq"))]
        assert rule_of(found["optimizer.state.0.exp_avg_sq"]) == ("mantissa_bits", 5)
        assert found["optimizer.state.0.exp_avg"].adam == bitsnap.AdamNumbers(BETAS, EPS, 2)
        store.verify()
    # The name alone says nothing of rules; another policy, and one with rules, comes with its own while it is open.
    with bitsnap.Store(tmp_path / "run", settings="bounded") as store:
        assert (store.settings.policy, store.settings.loss) == ("bounded", settings.loss)
    with bitsnap.Store(tmp_path / "run", settings=bitsnap.Settings(policy="bounded", loss=[])) as store:
        assert (store.settings.policy, store.settings.loss) == ("bounded", [])
    with bitsnap.Store(tmp_path / "run", settings="lossless") as store:
        assert (store.settings.policy, store.settings.loss) == ("lossless", [])
        state = training.advance().state()
        store.save(3, state)
        assert_same(store.load(), state)
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        assert (store.settings.policy, store.settings.loss) == ("bounded", settings.loss)


def test_a_store_asks_for_the_step_at_each_save(tmp_path: Path) -> None:
    training = Training()
    steps = iter([10, 20])
    with bitsnap.Store(tmp_path / "run", settings="bounded", adam=bitsnap.Adam(step=lambda: next(steps))) as store:
        store.save(1, training.advance().state())
        store.save_shard(2, training.advance().state(), shard=0, shards=1, attempt="a")
        assert store.commit(2, 1, "a")
        for step in (1, 2):
            adam = quantizers_of(store.snapshot(step))["optimizer.state.0.exp_avg"].adam
            assert adam == bitsnap.AdamNumbers(BETAS, EPS, 10 * step)
    with pytest.raises(bitsnap.InvalidArgumentError, match="step must be a function here, such as step=lambda: steps"):
        bitsnap.Store(tmp_path / "other", settings="bounded", adam=bitsnap.Adam(step=5))
    assert not (tmp_path / "other").exists()


def test_a_file_without_a_tree_needs_all_values_of_adam(tmp_path: Path) -> None:
    slots = Training().advance(4).optimizer.state_dict()["state"][0]
    flat = {"w.exp_avg": slots["exp_avg"], "w.exp_avg_sq": slots["exp_avg_sq"]}
    options: dict[str, Any] = {"settings": "bounded", "adam": bitsnap.Adam(betas=BETAS, eps=EPS, step=4)}
    saved = bitsnap.save_file(flat, tmp_path / "a.bsnap", **options)
    assert quantizers_of(tmp_path / "a.bsnap")["w.exp_avg"].adam == bitsnap.AdamNumbers(BETAS, EPS, 4)

    bitsnap.save_file(flat, tmp_path / "lossless.bsnap")
    bitsnap.decompress(tmp_path / "lossless.bsnap", tmp_path / "a.safetensors")
    again = bitsnap.compress(tmp_path / "a.safetensors", tmp_path / "b.bsnap", **options)
    assert again.raw_bytes == saved.raw_bytes
    assert_same(bitsnap.load(tmp_path / "b.bsnap"), bitsnap.load(tmp_path / "a.bsnap"))
    assert quantizers_of(tmp_path / "a.bsnap") == quantizers_of(tmp_path / "b.bsnap")
    options["adam"] = bitsnap.Adam(betas=BETAS, eps=EPS)
    with pytest.raises(bitsnap.InvalidArgumentError, match="update_step needs Adam's step, which are neither"):
        bitsnap.compress(tmp_path / "a.safetensors", tmp_path / "c.bsnap", **options)


def test_numpy_alone_is_enough(tmp_path: Path) -> None:
    run_script(
        """
import sys
sys.modules["torch"] = None
import numpy as np, bitsnap
rng = np.random.default_rng(1)
moment = rng.standard_normal((50, 100), np.float32)
state = {
    "state": {0: {"step": np.float32(6), "exp_avg": moment, "exp_avg_sq": moment * moment}},
    "param_groups": [{"betas": (0.9, 0.99), "eps": np.float64(1e-8), "params": [0]}],
}
bitsnap.save(sys.argv[1], state, settings=bitsnap.bounded())
found = {each.name: each.quantizer for each in bitsnap.inspect(sys.argv[1]).tensors}
assert found["state.0.exp_avg"].adam == bitsnap.AdamNumbers((0.9, 0.99), 1e-8, 6), found
assert found["state.0.exp_avg_sq"].name == "mantissa_bits"
loaded = bitsnap.load(sys.argv[1])
assert 0 < np.abs(loaded["state"][0]["exp_avg"] - moment).max() < 0.05 * np.abs(moment).max()
""",
        tmp_path / "a.bsnap",
    )
