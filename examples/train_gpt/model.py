"""A small GPT in plain PyTorch: pre-norm blocks, learned positions, output head tied with the token embedding.

Weights may be bfloat16 while the activations are float32 or bfloat16: every use casts the weight to the
activations' dtype. This is the arithmetic of mixed-precision training, and it is fast on CPUs without bfloat16
instructions. Dropout is on in training, so the random state is part of the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the model; `compute` is the dtype of the activations ("bfloat16" or "float32")."""

    vocab: int = 2048
    block: int = 128
    layers: int = 4
    heads: int = 4
    width: int = 256
    dropout: float = 0.1
    compute: str = "bfloat16"


def fast_compute_dtype() -> str:
    """bfloat16 if this CPU has instructions for it, else float32 (software bfloat16 is 10 to 40 times slower)."""
    capabilities = torch.cpu.get_capabilities()
    return "bfloat16" if capabilities.get("amx_bf16") or capabilities.get("avx512_bf16") else "float32"


class Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return functional.linear(x, self.weight.to(x.dtype), bias)


class LayerNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


class Attention(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = Linear(config.width, 3 * config.width)
        self.out = Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        projected: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return projected


class Block(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_1 = LayerNorm(config.width)
        self.attention = Attention(config)
        self.norm_2 = LayerNorm(config.width)
        self.up = Linear(config.width, 4 * config.width)
        self.down = Linear(4 * config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm_1(x)))
        out: Tensor = x + self.dropout(self.down(functional.gelu(self.up(self.norm_2(x)))))
        return out


class Gpt(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.compute_dtype: torch.dtype = getattr(torch, config.compute)
        self.token = nn.Embedding(config.vocab, config.width)
        self.position = nn.Embedding(config.block, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = LayerNorm(config.width)
        self.head = Linear(config.width, config.vocab, bias=False)
        self.apply(self._initialize)
        # Outputs that add into the residual stream start smaller, so that depth does not raise its variance.
        for block in self.blocks:
            assert isinstance(block, Block)
            for layer in (block.attention.out, block.down):
                nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * config.layers))
        self.head.weight = self.token.weight

    @staticmethod
    def _initialize(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy in float32 of predicting `targets` (batch x length) from `tokens`."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = (self.token(tokens) + self.position(positions)).to(self.compute_dtype)
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x)).float()
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))
