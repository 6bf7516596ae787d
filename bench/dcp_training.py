"""A training with FSDP2 on several ranks, for measurements of sharded checkpoints.

A GPT of 27 million parameters learns the sources of Python's standard library. Its weights are bfloat16 when they are
used, their float32 masters are sharded, and AdamW has two float32 moments. Each rank is a process with one thread.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from bench.states import State, mapped
from bench.train_gpt import Corpus, Gpt, ModelConfig, Sampler, read_text

# What a checkpoint holds: float32 weights and moments; or bfloat16 weights, float32 masters and moments.
KINDS = ("float32", "bfloat16 and masters")
EPS = 1e-8
_WARMUP = 10  # steps
_BATCH = 2
_TEXT_BYTES = 4_000_000


class Training:
    """The part of one rank, which has one thread. Deterministic for one number of ranks."""

    def __init__(self, layers: int, width: int, learning_rate: float, betas: tuple[float, float]) -> None:
        torch.manual_seed(1)
        config = ModelConfig(layers=layers, heads=width // 64, width=width, compute="float32")
        self.model = Gpt(config)
        # DCP stores a tied weight twice; without the tie, the state has no copies.
        self.model.head.weight = nn.Parameter(self.model.token.weight.detach().clone())
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        for block in self.model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(self.model, mp_policy=policy)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=learning_rate, betas=betas, eps=EPS, weight_decay=0.1
        )
        self.steps = 0
        self._learning_rate = learning_rate
        self._sampler = Sampler(
            Corpus(read_text(_TEXT_BYTES), config.vocab), config.block, _BATCH, seed=dist.get_rank()
        )
        self._rounded = {name: p.detach().to(torch.bfloat16) for name, p in self.model.named_parameters()}

    def step(self) -> float:
        """One step of the optimizer. Returns the loss of this rank."""
        self.steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate * min(1.0, self.steps / _WARMUP)
        self.optimizer.zero_grad()
        loss = self.model(*self._sampler.next())
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                self._rounded[name].copy_(parameter)
        return float(loss.item())

    def state(self, kind: str, *, is_full: bool = False) -> State:
        """The live tensors of this rank, as DTensors; full: copies of the whole tensors, on rank 0."""
        options = StateDictOptions(full_state_dict=is_full, cpu_offload=is_full)
        weights, optimizer = get_state_dict(self.model, self.optimizer, options=options)
        state: State = {"model": weights, "optimizer": optimizer, "step": self.steps}
        if kind != KINDS[0]:
            rounded = mapped(weights, lambda weight: weight.to(torch.bfloat16)) if is_full else dict(self._rounded)
            state |= {"model": rounded, "master": weights}
        return state
