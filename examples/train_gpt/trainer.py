"""Mixed-precision training like that of LLMs, deterministic and resumable bit for bit.

bfloat16 weights run forward and backward; AdamW steps on a float32 master copy with float32 moments; the weights
are the masters rounded to nearest even. `Trainer.state()` holds everything that the next step depends on, so a run
that is resumed from it computes the same numbers as one that never stopped.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from data import Corpus, Sampler, read_text
from model import Gpt, ModelConfig


@dataclass(frozen=True)
class TrainConfig:
    """One run. `steps` is the length that the learning rate is scheduled for."""

    model: ModelConfig = field(default_factory=ModelConfig)
    steps: int = 120
    batch: int = 8
    warmup: int = 20
    peak_lr: float = 1e-3
    final_lr: float = 1e-4
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    beta2: float = 0.95
    trained: tuple[str, ...] = ()  # prefixes of the names of trained parameters; empty: all are trained
    text_bytes: int = 2_000_000
    seed: int = 1
    threads: int = 1


@dataclass(frozen=True)
class StepResult:
    step: int
    loss: float
    grad_norm: float
    lr: float


def learning_rate(config: TrainConfig, step: int) -> float:
    """Linear warm-up, then a cosine from the peak to the final rate; `step` counts from 1."""
    if step <= config.warmup:
        return config.peak_lr * step / config.warmup
    progress = min(1.0, (step - config.warmup) / max(1, config.steps - config.warmup))
    return config.final_lr + (config.peak_lr - config.final_lr) * 0.5 * (1.0 + math.cos(math.pi * progress))


def make_deterministic(threads: int) -> None:
    """Makes results equal in every process of this machine. Sums depend on the number of threads, so it is fixed."""
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)


class Trainer:
    """Owns model, masters, optimizer and sampler. Not thread-safe; uses torch's global random generator."""

    def __init__(self, config: TrainConfig) -> None:
        make_deterministic(config.threads)
        torch.manual_seed(config.seed)
        self.config = config
        self.step = 0
        self._lr = 0.0
        corpus = Corpus(read_text(config.text_bytes), config.model.vocab)
        self.text_bytes = corpus.text_bytes
        self.tokens = len(corpus.tokens)
        self._sampler = Sampler(corpus, config.model.block, config.batch, config.seed)
        self.model = Gpt(config.model)
        for name, weight in self.model.named_parameters():
            weight.requires_grad_(not config.trained or name.startswith(config.trained))
        # named_parameters() yields a tied tensor once: one master and one pair of moments for embedding and head.
        trained = [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]
        named = [(name, nn.Parameter(p.detach().clone())) for name, p in trained]
        self._parameters = [parameter for _, parameter in named]
        self._masters = {name: parameter.data for name, parameter in named}
        self.model.to(torch.bfloat16)
        self._weights = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self._optimizer = torch.optim.AdamW(
            [
                {"params": [(n, p) for n, p in named if p.dim() >= 2], "weight_decay": config.weight_decay},
                {"params": [(n, p) for n, p in named if p.dim() < 2], "weight_decay": 0.0},
            ],
            lr=config.peak_lr,
            betas=(0.9, config.beta2),
            eps=1e-8,
        )
        self._copy_masters_to_weights()

    def _copy_masters_to_weights(self) -> None:
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(self._masters[name])  # float32 to bfloat16: round to nearest, ties to even

    def start_from(self, weights: dict[str, Tensor]) -> None:
        """Starts from these weights, like fine-tuning: they become the masters, and there are no moments."""
        self.model.load_state_dict(weights)
        with torch.no_grad():
            for name, master in self._masters.items():
                master.copy_(self._weights[name])

    def train_step(self) -> StepResult:
        self.model.train()
        inputs, targets = self._sampler.next()
        loss = self.model(inputs, targets)
        loss.backward()
        for parameter, weight in zip(self._parameters, self._weights.values(), strict=True):
            assert weight.grad is not None
            parameter.grad = weight.grad.float()
            weight.grad = None
        grad_norm = nn.utils.clip_grad_norm_(self._parameters, self.config.clip_norm)
        self.step += 1
        self._lr = learning_rate(self.config, self.step)
        for group in self._optimizer.param_groups:
            group["lr"] = self._lr
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._copy_masters_to_weights()
        return StepResult(self.step, loss.item(), grad_norm.item(), self._lr)

    def parameter_count(self) -> int:
        return sum(master.numel() for master in self._masters.values())

    def moments(self) -> dict[str, tuple[Tensor, Tensor]]:
        """exp_avg and exp_avg_sq by parameter name; live tensors, empty before the first step."""
        by_parameter = self._optimizer.state
        return {
            name: (by_parameter[parameter]["exp_avg"], by_parameter[parameter]["exp_avg_sq"])
            for name, parameter in zip(self._masters, self._parameters, strict=True)
            if parameter in by_parameter
        }

    def state(self) -> dict[str, Any]:
        """Everything that the next step depends on, as live tensors, not copies: store it before the next step."""
        return {
            "config": asdict(self.config),
            "step": self.step,
            "model": dict(self.model.state_dict()),
            "master": dict(self._masters),
            "optimizer": self._optimizer.state_dict(),
            "schedule": {"name": "warmup_cosine", "last_lr": self._lr},
            "data": self._sampler.state(),
            "torch_rng": torch.get_rng_state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continues from `state`; the configuration must be the same."""
        if state["config"] != asdict(self.config):
            raise ValueError(f"the checkpoint has another configuration: {state['config']}, not {asdict(self.config)}")
        self.model.load_state_dict(state["model"])
        for name, master in self._masters.items():
            master.copy_(state["master"][name])
        # Moments are float32 like the masters, so load_state_dict's cast to the parameter's dtype changes no bit.
        self._optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        self._lr = state["schedule"]["last_lr"]
        self._sampler.load(state["data"])
        torch.set_rng_state(state["torch_rng"])
