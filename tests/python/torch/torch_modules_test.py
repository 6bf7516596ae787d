"""Modules whose state_dict() is more than their parameters, with TrainingCheckpointer: hooks, overridden methods,
parametrizations, quantized layers. A fresh module continues as if the training had not stopped, or it is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import bitsnap
import bitsnap.torch
from python.engine.checkpointer_jobs import Jobs
from python.same_bits import assert_same

WIDTH = 6


class Experts(nn.Module):
    """A fused weight, which is one weight for each expert in the state: as `split` makes it, and `joined` takes it."""

    def __init__(self, split: Callable[[torch.Tensor], Any], joined: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        self.fused = nn.Parameter(torch.randn(4, WIDTH, WIDTH))

        def to_names(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
            fused = state.pop(prefix + "fused")
            state.update({f"{prefix}experts.{i}": split(fused[i]) for i in range(4)})

        def from_names(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
            state[prefix + "fused"] = torch.stack([joined(state.pop(f"{prefix}experts.{i}")) for i in range(4)])

        this: Any = self  # whose methods have no types
        this.register_state_dict_post_hook(to_names)
        this.register_load_state_dict_pre_hook(from_names)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x @ self.fused.sum(0)
        return result


class WithMethods(nn.Linear):
    """A transposed weight in the state, a number, and a value that is made of the weight when it is loaded."""

    scale = 1.0

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.derived = self.weight.detach().sum()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale *= 0.5
        return super().forward(x) * self.scale

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        destination[prefix + "turned"] = self.weight.detach().t().contiguous()
        destination[prefix + "bias"] = self.bias.detach()
        destination[prefix + "scale"] = self.scale

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *_: Any) -> None:
        with torch.no_grad():
            self.weight.copy_(state_dict[prefix + "turned"].t())
            self.bias.copy_(state_dict[prefix + "bias"])
        self.scale = state_dict[prefix + "scale"]
        self.derived = self.weight.detach().sum()


class Wrapping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.inner(x)
        return result


class WholeModel(Wrapping):
    """Overrides state_dict() and load_state_dict() themselves, as wrappers of models do."""

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return {f"w:{name}": value.detach().double() for name, value in self.inner.state_dict().items()}

    def load_state_dict(self, state: Any) -> Any:  # type: ignore[override]
        return self.inner.load_state_dict({name[2:]: value.float() for name, value in state.items()})


class ExtraTensor(nn.Linear):
    """Counts in a tensor that only get_extra_state() gives."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.history = torch.zeros(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.history = torch.cat([self.history, self.history[-1:] + 1])
        return super().forward(x) / len(self.history)

    def get_extra_state(self) -> torch.Tensor:
        return self.history

    def set_extra_state(self, state: torch.Tensor) -> None:
        self.history = state


class Lora(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.down, self.up = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)
        self.register_buffer("mask", torch.ones(WIDTH), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.base(x) + self.up(self.down(x)) * self.mask
        return result


class Shared(nn.Linear):
    """Buffers whose elements lie in one place of memory, in that of a parameter, or in that of another buffer."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.register_buffer("scale", torch.rand(1, 1).expand(3, WIDTH))
        self.register_buffer("row", self.weight.detach()[1:3])
        self.register_buffer("turned", self.weight.detach().t())
        both = torch.rand(WIDTH, 2)
        self.register_buffer("left", both[:, 0])
        self.register_buffer("right", both[:, 1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        this: Any = self  # whose buffers have no types
        # The buffers see what the optimizer makes of the weight.
        more = this.row.sum() * this.turned[0].sum() + (this.left * this.right).sum()
        result: torch.Tensor = super().forward(x) * this.scale + more
        return result


class Assigning(Wrapping):
    """Loads with assign=True, which makes parameters that no optimizer knows."""

    def load_state_dict(self, state: Any, strict: bool = True, assign: bool = False) -> Any:
        return super().load_state_dict({key: value.clone() for key, value in state.items()}, strict, True)


class Replacing(Wrapping):
    """Makes other parameters of the state."""

    def load_state_dict(self, state: Any, strict: bool = True, assign: bool = False) -> Any:
        del strict, assign
        self.inner = nn.Linear(WIDTH, WIDTH)
        return self.inner.load_state_dict({key.removeprefix("inner."): value for key, value in state.items()})


def quantized() -> nn.Module:
    """A layer of 8 bits whose state has a quantized tensor, before a layer that is trained."""
    with torch.no_grad():
        layer = nn.Linear(WIDTH, WIDTH)
        packed = nn.ParameterDict({"trained": torch.randn(WIDTH, WIDTH)})

    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.values = packed
            weight = (layer.weight.detach() * 100).to(torch.int8)
            self.register_buffer("weight", weight)
            self.register_buffer("scale", torch.rand(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = x @ (self.weight * self.scale) @ self.values["trained"]  # type: ignore[operator]
            return result

    return Quantized()


def with_post_hook() -> nn.Module:
    """Keeps a copy of the weight that only a hook after loading makes."""
    layer: Any = nn.Linear(WIDTH, WIDTH)

    def keep(module: nn.Module, _: Any) -> None:
        layer.kept = layer.weight.detach().clone()

    layer.register_load_state_dict_post_hook(keep)
    layer.register_state_dict_pre_hook(lambda *_: None)
    found: nn.Module = layer
    return found


MODULES: dict[str, Callable[[], nn.Module]] = {
    "views": lambda: Experts(lambda t: t, lambda t: t),
    "transposed": lambda: Experts(lambda t: t.t().contiguous(), torch.t),
    "transposed views": lambda: Experts(lambda t: t.t(), torch.t),
    "float64": lambda: Experts(lambda t: t.double(), lambda t: t.float()),
    "halves in lists": lambda: Experts(
        lambda t: [t[:2].clone(), (t[2:].clone(), 7)], lambda p: torch.cat([p[0], p[1][0]])
    ),
    "methods of a module": WithMethods,
    "methods of the model": WholeModel,
    "an extra state": ExtraTensor,
    "hooks that change nothing": with_post_hook,
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
    "spectral norm by hooks": lambda: nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH)),
    "orthogonal": lambda: nn.utils.parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH)),
    "low rank": Lora,
    "memory that is shared": Shared,
    "parameters that are replaced": Assigning,
    "batch norm": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)),
    "quantized": quantized,
    "recurrent": lambda: Recurrent(),
}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.cell(x)[0]
        return result


def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> list[float]:
    losses = []
    for step in range(first, last):
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss = (model(torch.randn(3, WIDTH)) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def made(make: Callable[[], nn.Module], seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = make()
    return model, torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=0.01)


def checkpointer(jobs: Jobs, model: Any, **options: Any) -> bitsnap.torch.TrainingCheckpointer:
    return bitsnap.torch.TrainingCheckpointer(jobs.path, model=model, job=bitsnap.JobOptions(name=jobs.job), **options)


@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
@pytest.mark.parametrize("kind", MODULES)
def test_a_fresh_module_continues_bit_for_bit(jobs: Jobs, kind: str, several: bool) -> None:
    model, optimizer = made(MODULES[kind], 0)
    train(model, optimizer, 0, 3)
    with checkpointer(jobs, {"a": model} if several else model, optimizer=optimizer) as saving:
        saving.save(3)
        saving.wait()
    losses = train(model, optimizer, 3, 6)
    again, other = made(MODULES[kind], 9)
    with checkpointer(jobs, {"a": again} if several else again, optimizer=other) as restoring:
        assert restoring.restore() == 3
    assert train(again, other, 3, 6) == losses
    assert_same(dict(again.state_dict()), dict(model.state_dict()))
    if kind == "hooks that change nothing":
        assert hasattr(again, "kept")


def test_a_module_that_does_not_take_back_its_state_is_an_error(jobs: Jobs) -> None:
    def make() -> nn.Module:
        return Experts(lambda t: t.double(), lambda t: t.float() * 2)

    model, optimizer = made(make, 0)
    with checkpointer(jobs, model, optimizer=optimizer) as it:
        it.save(1)
        it.wait()
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"does not take back .* experts\.0, experts\.1"):
            it.restore()


def test_a_module_may_change_what_it_loads_if_the_user_says_so(jobs: Jobs) -> None:
    def make() -> nn.Module:
        layer: Any = nn.Linear(WIDTH, WIDTH)

        def change(module: nn.Module, _: Any) -> None:
            layer.weight.data.round_(decimals=1)

        layer.register_load_state_dict_post_hook(change)
        found: nn.Module = layer
        return found

    model, optimizer = made(make, 0)
    with checkpointer(jobs, model, optimizer=optimizer) as it:
        it.save(1)
        it.wait()
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"weight .* differ .* restore\(verify=False\)"):
            it.restore()
        with pytest.warns(bitsnap.RestoreWarning, match="has other values than the checkpoint: weight"):
            assert it.restore(verify=False) == 1
    weight: Any = model.weight
    assert torch.equal(weight, weight.round(decimals=1))


def test_parameters_that_no_optimizer_trains_any_more_are_an_error(jobs: Jobs) -> None:
    model, optimizer = made(Replacing, 0)
    with checkpointer(jobs, model, optimizer=optimizer) as it:
        it.save(1)
        it.wait()
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"replaced 'inner\.\w+', which the optimizer has"):
            it.restore()


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8], ids=str)
def test_a_state_with_fewer_bits_than_the_module_is_named_at_the_first_save(jobs: Jobs, dtype: torch.dtype) -> None:
    layer: Any = nn.Linear(WIDTH, WIDTH)
    layer.register_state_dict_post_hook(lambda module, state, *_: state.update(bias=module.bias.detach().to(dtype)))
    with checkpointer(jobs, layer) as it:
        with pytest.warns(bitsnap.RestoreWarning, match=rf"gives bias in {dtype}, the module .* torch\.float32"):
            it.save(1)
        it.save(2)  # once
        it.wait()


def test_values_of_a_state_that_only_one_side_has_are_named(jobs: Jobs) -> None:
    with checkpointer(jobs, nn.Sequential(ExtraTensor())) as it:
        it.save(1)
        it.wait()
    with (
        checkpointer(jobs, nn.Sequential(nn.Linear(WIDTH, WIDTH))) as it,
        pytest.raises(bitsnap.InvalidArgumentError, match=r"do not both have 0\._extra_state"),
    ):
        it.restore()


def test_lazy_modules_are_refused_by_name_until_they_have_a_shape(jobs: Jobs) -> None:
    model: Any = nn.Sequential(nn.LazyLinear(WIDTH))
    with checkpointer(jobs, model) as it:
        with pytest.raises(bitsnap.UnsupportedError, match=r"'0\.weight' is a parameter of a lazy module"):
            it.save(1)
        model(torch.ones(2, WIDTH))
        it.save(1)
        it.wait()
        weight = model[0].weight.detach().clone()
        model[0].weight.data.zero_()
        assert it.restore() == 1
        assert torch.equal(model[0].weight, weight)


class Derived(torch.Tensor):
    """A class of a user's own, whose elements lie in memory like those of any tensor."""


class WithDerived(nn.Linear):
    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.weight = nn.Parameter(self.weight.detach().as_subclass(Derived))
        self.register_buffer("seen", torch.randn(WIDTH).as_subclass(Derived))


class WithQuantized(nn.Linear):
    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.register_buffer("table", torch.quantize_per_tensor(torch.randn(WIDTH), 0.1, 0, torch.qint8))


@pytest.mark.parametrize("make", [WithDerived, WithQuantized])
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated", "ignore:.*quantiz.*")
def test_tensors_of_other_classes_and_kinds_are_restored_also_in_plain_modules(
    jobs: Jobs, make: Callable[[], nn.Module]
) -> None:
    torch.manual_seed(1)
    model, other = make(), make()
    options = {"allow_pickle": True} if make is WithQuantized else {}
    with checkpointer(jobs, model, **options) as it:
        it.save(1)
        it.wait()
    with checkpointer(jobs, other, **options) as it:
        assert it.restore() == 1
    for name, value in model.state_dict().items():
        found = other.state_dict()[name]
        assert type(found) is type(value), name
        plain = [each.dequantize() if each.is_quantized else each.as_subclass(torch.Tensor) for each in (value, found)]
        assert torch.equal(plain[0], plain[1]), name


class Raising(nn.Linear):
    """Raises when it is loaded, before the modules behind it are."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        this: Any = self
        this.register_load_state_dict_pre_hook(self._raise)

    @staticmethod
    def _raise(*_: Any) -> None:
        raise RuntimeError("this module cannot be loaded")


def test_an_error_of_load_state_dict_is_an_error_of_the_restore(jobs: Jobs) -> None:
    with checkpointer(jobs, nn.Sequential(Raising())) as it:
        it.save(1)
        it.wait()
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"RuntimeError: this module cannot be loaded"):
            it.restore()


class Forgetful(nn.Linear):
    """Gives a tensor in its extra state, and takes none."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.kept = torch.randn(3)

    def get_extra_state(self) -> dict[str, torch.Tensor]:
        return {"kept": self.kept}

    def set_extra_state(self, state: Any) -> None:
        pass


def test_a_tensor_inside_of_a_value_that_is_not_taken_back_is_an_error(jobs: Jobs) -> None:
    with checkpointer(jobs, nn.Sequential(Forgetful())) as it:
        it.save(1)
        it.wait()
    with (
        checkpointer(jobs, nn.Sequential(Forgetful())) as it,
        pytest.raises(bitsnap.InvalidArgumentError, match=r"does not take back .*_extra_state'\]\['kept'\]"),
    ):
        it.restore()
