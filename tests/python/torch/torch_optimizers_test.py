"""Every optimizer with TrainingCheckpointer: train, save, restore into a fresh one, and continue bit for bit."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

import bitsnap
import bitsnap.torch
from python.engine.checkpointer_jobs import Jobs
from python.same_bits import assert_same

Parameters = Iterable[nn.Parameter]
Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class Lookahead(torch.optim.Optimizer):
    """Has the state of another optimizer and slow weights of its own, which no `state` has."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner, self.param_groups, self.defaults = inner, inner.param_groups, inner.defaults
        self.state: Any = {}
        self.slow: dict[int, torch.Tensor] = {}
        self.steps = 0

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inner.step()
        self.steps += 1
        parameters = [each for group in self.param_groups for each in group["params"]]
        for number, parameter in enumerate(parameters):
            slow = self.slow.setdefault(number, parameter.detach().clone())
            if self.steps % 2 == 0:
                parameter.copy_(slow.lerp_(parameter, 0.5))

    def state_dict(self) -> dict[str, Any]:
        return {**self.inner.state_dict(), "slow": self.slow, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict({key: state[key] for key in ("state", "param_groups")})
        self.slow = {key: value.clone() for key, value in state["slow"].items()}
        self.steps, self.param_groups = state["steps"], self.inner.param_groups


class Wrapped(Lookahead):
    """Its state_dict() does not have the structure of torch's."""

    def state_dict(self) -> dict[str, Any]:
        return {"wrapped": [super().state_dict()], "version": 2}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state["wrapped"][0])


class Counted(torch.optim.AdamW):
    """Adds a key to its state_dict(), on which its learning rate depends."""

    seen = 0

    def step(self, closure: Any = None) -> Any:
        self.seen += 1
        self.param_groups[0]["lr"] = 0.01 / self.seen
        return super().step(closure)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]
        super().load_state_dict({key: state[key] for key in ("state", "param_groups")})


class Nested(torch.optim.Optimizer):
    """Its states have lists, dicts and tuples of tensors in float32, and one belongs to no parameter."""

    def __init__(self, parameters: Parameters, lr: float = 0.01) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        common: Any = self.state["common"]  # type: ignore[index]
        common["norm"] = common.get("norm", torch.zeros(())) + 1
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    make = torch.zeros(parameter.shape)
                    state.update(step=0, a=[make, [make.clone()]], b={"left": make.clone()}, c=(make.clone(), None))
                state["step"] += 1
                tensors = [state["a"][0], state["a"][1][0], state["b"]["left"], state["c"][0]]
                for tensor in tensors:
                    tensor.mul_(0.9).add_(parameter.grad.float())
                parameter.sub_((group["lr"] * sum(tensors) / common["norm"]).to(parameter.dtype))


OWN: dict[str, Make] = {
    "Lookahead": lambda them: Lookahead(torch.optim.AdamW(them, lr=0.05)),
    "Wrapped": lambda them: Wrapped(torch.optim.SGD(them, lr=0.05, momentum=0.9)),
    "Counted": lambda them: Counted(them, lr=0.01),
    "Nested": Nested,
    "groups": lambda them: torch.optim.AdamW([{"params": them[:1], "lr": torch.tensor(0.1)}, {"params": them[1:]}]),  # type: ignore[arg-type,unused-ignore]
    "fused": lambda them: torch.optim.AdamW(them, lr=0.01, fused=True),
    "amsgrad": lambda them: torch.optim.AdamW(them, lr=0.01, amsgrad=True, foreach=False),
    "momentum": lambda them: torch.optim.SGD(them, lr=0.1, momentum=0.9),
    "initial values": lambda them: torch.optim.Adagrad(them, lr=0.1, initial_accumulator_value=0.1),
    "line search": lambda them: torch.optim.LBFGS(them, lr=0.1, line_search_fn="strong_wolfe"),
}
TORCHS = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
)
# The most used of pytorch-optimizer, and those of other packages. They are tested where they are installed.
PACKAGES = [
    *(
        ("pytorch_optimizer", name)
        for name in ("AdaBelief", "Adan", "Lion", "CAME", "Prodigy", "SOAP", "Shampoo", "Lamb")
    ),
    *(("pytorch_optimizer", name) for name in ("RAdam", "Ranger", "AdEMAMix", "DAdaptAdam", "StableAdamW", "Tiger")),
    ("schedulefree", "AdamWScheduleFree"),
    ("schedulefree", "SGDScheduleFree"),
    ("schedulefree", "RAdamScheduleFree"),
    ("bitsandbytes.optim", "AdamW"),
    ("bitsandbytes.optim", "AdamW8bit"),
    ("bitsandbytes.optim", "Lion8bit"),
    ("torchao.optim", "AdamW8bit"),
    ("torchao.optim", "AdamW4bit"),
    ("torchao.optim", "AdamWFp8"),
]


def net(dtype: torch.dtype, has_biases: bool) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 64, bias=has_biases), nn.Tanh(), nn.Linear(64, 8, bias=has_biases)).to(dtype)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> list[float]:
    if hasattr(optimizer, "train"):
        optimizer.train()
    losses = []
    for step in range(first, last):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(step)).to(next(model.parameters()).dtype)

        def closure(x: torch.Tensor = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = (model(x) - 1).float().square().mean()
            loss.backward(create_graph=False)  # type: ignore[no-untyped-call]
            return loss

        loss = closure()
        if isinstance(optimizer, torch.optim.LBFGS):
            optimizer.step(closure)  # type: ignore[no-untyped-call]
        else:
            optimizer.step()
        losses.append(loss.item())
    return losses


def continues(
    jobs: Jobs, make: Make, dtype: torch.dtype = torch.float32, has_biases: bool = True, **options: Any
) -> None:
    def started(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, bitsnap.torch.TrainingCheckpointer]:
        torch.manual_seed(seed)
        model = net(dtype, has_biases)
        optimizer = make(list(model.parameters()))
        job = bitsnap.JobOptions(name=jobs.job)
        return (
            model,
            optimizer,
            bitsnap.torch.TrainingCheckpointer(jobs.path, model=model, optimizer=optimizer, job=job, **options),
        )

    model, optimizer, checkpointer = started(0)
    with checkpointer:
        train(model, optimizer, 0, 3)
        checkpointer.save(3)
        checkpointer.wait()
        losses = train(model, optimizer, 3, 6)
    again, other, checkpointer = started(9)
    with checkpointer:
        assert checkpointer.restore() == 3
        assert train(again, other, 3, 6) == losses
        assert_same(dict(again.state_dict()), dict(model.state_dict()))
        # Also into one that has a state.
        assert checkpointer.restore() == 3
        assert train(again, other, 3, 6) == losses
        assert_same(dict(again.state_dict()), dict(model.state_dict()))


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_optimizer_with_a_state_of_its_own_continues(jobs: Jobs, kind: str, dtype: torch.dtype) -> None:
    continues(jobs, OWN[kind], dtype)


@pytest.mark.parametrize("kind", TORCHS)
def test_each_optimizer_of_torch_continues(jobs: Jobs, kind: str) -> None:
    if kind == "SparseAdam":
        pytest.skip("takes sparse gradients alone")
    continues(jobs, lambda them: getattr(torch.optim, kind)(them, lr=0.01), has_biases=kind != "Muon")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile(), which some of them use
@pytest.mark.parametrize(("package", "kind"), PACKAGES)
def test_the_optimizers_of_other_packages_continue(jobs: Jobs, package: str, kind: str) -> None:
    try:
        module = importlib.import_module(package)
    except ImportError:
        pytest.skip(f"{package} is not installed")
    allow_pickle = package == "torchao.optim"
    # Moments of fewer than 4096 elements are not quantized.
    make = getattr(module, kind)
    small = {"min_8bit_size": 64} if "8bit" in kind and package == "bitsandbytes.optim" else {}
    continues(jobs, lambda them: make(them, lr=0.01, **small), has_biases=kind != "Muon", allow_pickle=allow_pickle)


def test_a_sparse_gradient_continues(jobs: Jobs) -> None:
    def started() -> tuple[nn.Embedding, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Embedding(10, 4, sparse=True)
        return model, torch.optim.SparseAdam(list(model.parameters()))

    def steps(model: nn.Embedding, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.tensor([1, 3])).square().sum().backward()
            optimizer.step()

    options: dict[str, Any] = {"job": bitsnap.JobOptions(name=jobs.job)}
    model, optimizer = started()
    steps(model, optimizer)
    with bitsnap.torch.TrainingCheckpointer(jobs.path, model=model, optimizer=optimizer, **options) as it:
        it.save(1)
        it.wait()
    steps(model, optimizer)
    again, other = started()
    with bitsnap.torch.TrainingCheckpointer(jobs.path, model=again, optimizer=other, **options) as it:
        assert it.restore() == 1
    steps(again, other)
    assert_same(dict(again.state_dict()), dict(model.state_dict()))


def test_adafactor_with_an_empty_parameter_can_be_restored(jobs: Jobs) -> None:
    model = nn.ParameterList([nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.empty(0))])
    optimizer = torch.optim.Adafactor([model[0]])
    optimizer.add_param_group({"params": [model[1]]})
    model[0].sum().backward()
    optimizer.step()  # type: ignore[no-untyped-call]
    with bitsnap.torch.TrainingCheckpointer(
        jobs.path, model=model, optimizer=optimizer, job=bitsnap.JobOptions(name=jobs.job)
    ) as it:
        it.save(1)
        it.wait()
        optimizer.state.clear()
        assert it.restore() == 1
    assert len(optimizer.state) == 1


def test_a_restore_runs_no_hooks_of_steps(jobs: Jobs) -> None:
    calls: list[str] = []
    torch.manual_seed(0)
    model = net(torch.float32, True)
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, 0, 1)
    with bitsnap.torch.TrainingCheckpointer(
        jobs.path, model=model, optimizer=optimizer, job=bitsnap.JobOptions(name=jobs.job)
    ) as it:
        it.save(1)
        it.wait()
        optimizer.state.clear()
        optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
        optimizer.register_step_post_hook(lambda *_: calls.append("after"))
        assert it.restore() == 1
    assert calls == []
    assert len(optimizer.state) == 4


def test_an_optimizer_that_gives_no_state_is_refused_by_the_first_save(jobs: Jobs) -> None:
    class Refusing(torch.optim.SGD):
        def state_dict(self) -> dict[str, Any]:
            raise RuntimeError("call consolidate() first")

    model = nn.Linear(2, 2)
    options: dict[str, Any] = {"model": model, "job": bitsnap.JobOptions(name=jobs.job)}
    with (
        bitsnap.torch.TrainingCheckpointer(jobs.path, optimizer=Refusing(model.parameters()), **options) as it,
        pytest.raises(bitsnap.UnsupportedError, match=r"Refusing raises RuntimeError: call consolidate\(\) first"),
    ):
        it.save(1)
    optimizer = torch.optim.SGD(model.parameters())
    optimizer.state[torch.zeros(3)] = {"a": 1}
    with (
        bitsnap.torch.TrainingCheckpointer(jobs.path, optimizer=optimizer, **options) as it,
        pytest.raises(bitsnap.UnsupportedError, match=r"tensor of shape \[3\] as a key, which is no parameter"),
    ):
        it.save(1)


def test_an_optimizer_that_does_not_take_back_its_state_is_an_error(jobs: Jobs) -> None:
    class Forgetful(Lookahead):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            super().load_state_dict({**state, "slow": {key: value + 1 for key, value in state["slow"].items()}})

    model = net(torch.float32, True)
    optimizer = Forgetful(torch.optim.SGD(model.parameters(), lr=0.1))
    train(model, optimizer, 0, 2)
    with bitsnap.torch.TrainingCheckpointer(
        jobs.path, model=model, optimizer=optimizer, job=bitsnap.JobOptions(name=jobs.job)
    ) as it:
        it.save(1)
        it.wait()
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"Forgetful, state_dict\(\)\['slow'\]\[0\]"):
            it.restore()
