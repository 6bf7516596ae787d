"""The models and the data of the small trainings. The data of a step depend on its number alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

WORDS, WIDTH = 2000, 128
BATCH, LENGTH = 8, 32


class Gpt2(NamedTuple):
    """The sizes of a GPT-2."""

    words: int = WORDS
    length: int = LENGTH
    width: int = WIDTH
    layers: int = 2
    heads: int = 4


class Loss(NamedTuple):
    """What a model returns, as those of Transformers do."""

    loss: torch.Tensor


class SmallModel(nn.Module):
    """An embedding, two blocks and a head: about 0.8 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Loss:
        """The loss of predicting each token from the one before it."""
        x = self.embedding(input_ids[:, :-1])
        for block in self.blocks:
            x = x + block(x)
        return Loss(cross_entropy(self.head(x).flatten(0, 1), labels[:, 1:].flatten()))


def new_model(sizes: Gpt2 | None) -> Any:
    """A GPT-2, or the SmallModel without sizes; with the same values each time."""
    torch.manual_seed(0)
    return SmallModel() if sizes is None else gpt2(sizes)


def gpt2(sizes: Gpt2) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=sizes.words,
        n_positions=sizes.length,
        n_embd=sizes.width,
        n_layer=sizes.layers,
        n_head=sizes.heads,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def blocks_of(model: Any) -> nn.ModuleList:
    blocks: nn.ModuleList = model.blocks if isinstance(model, SmallModel) else model.transformer.h
    return blocks


def sentences(step: int) -> torch.Tensor:
    """Tokens that can be learnt: each is the one before it, multiplied, with some noise."""
    generator = torch.Generator().manual_seed(step)
    rows = [torch.randint(WORDS, (BATCH, 1), generator=generator)]
    for _ in range(LENGTH - 1):
        noise = torch.randint(3, (BATCH, 1), generator=generator)
        rows.append((rows[-1] * 7 + noise) % WORDS)
    return torch.cat(rows, 1)


def noise(batch: int, length: int, step: int) -> torch.Tensor:
    """Tokens that cannot be learnt."""
    return torch.randint(200, (batch, length), generator=torch.Generator().manual_seed(step))
