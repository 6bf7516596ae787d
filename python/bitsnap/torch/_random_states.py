"""The states of the random generators of a process."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    # As a tensor: torch.load() refuses numpy's arrays in what `bitsnap convert` writes.
    name, words, *rest = np.random.get_state()  # noqa: NPY002  what programs use
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(words), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    random.setstate(state["python"])
    name, words, *rest = state["numpy"]
    np.random.set_state((name, np.asarray(words), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
