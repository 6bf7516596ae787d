"""Samples for the methods: the bytes of each role of the corpus's states."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from bench.baselines.method import Bytes, Sample
from bench.corpus_runs import Pair, halves_path, run_named, state_path

CHUNK_ELEMENTS = 1 << 18
_DTYPES = {"weight": "BF16", "weight_fp16": "F16", "master": "F32", "exp_avg": "F32", "exp_avg_sq": "F32"}
_PREFIXES = {"model": "weight", "master": "master", "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}


def read_roles(path: Path) -> dict[str, Bytes]:
    """Concatenates the tensors of each role in the order of their names."""
    found: dict[str, list[Bytes]] = defaultdict(list)
    with safe_open(str(path), framework="pt") as file:
        for name in sorted(file.keys()):
            bare: Bytes = file.get_tensor(name).reshape(-1).view(torch.uint8).numpy()
            found[_PREFIXES[name.split(".", 1)[0]]].append(bare)
    return {role: np.concatenate(parts) for role, parts in found.items()}


def read_state(folder: Path, run: str, step: int) -> dict[str, Bytes]:
    roles = read_roles(state_path(folder, run, step))
    if run_named(run).halves:
        roles["weight_fp16"] = read_roles(halves_path(folder, run, step))["weight"]
    return roles


def by_change(data: Bytes, base: Bytes, element_bytes: int) -> NDArray[np.intp]:
    """The indices of the whole chunks, those with the fewest changes first."""
    chunk = CHUNK_ELEMENTS * element_bytes
    whole = data.size // chunk
    changed = (data[: whole * chunk] != base[: whole * chunk]).reshape(whole, chunk).sum(axis=1)
    return np.argsort(changed, kind="stable")


def spread(data: Bytes, element_bytes: int, size_bytes: int, order: NDArray[np.intp] | None = None) -> Bytes:
    """At least `size_bytes` of the data in whole chunks, or all of it.

    The chunks are spread evenly over the data, in its own order or in `order`. With by_change(), about the same share
    of the part changes as of the whole, even if most of the whole does not change.
    """
    chunk = CHUNK_ELEMENTS * element_bytes
    whole = data.size // chunk
    wanted = max(1, -(-size_bytes // chunk))
    if wanted >= whole:
        return data
    numbers = np.arange(whole) if order is None else order
    chosen = np.sort(numbers[[(2 * part + 1) * whole // (2 * wanted) for part in range(wanted)]])
    return np.concatenate([data[number * chunk : (number + 1) * chunk] for number in chosen])


def repeat(data: Bytes, size_bytes: int) -> Bytes:
    """Repeats the data up to at least `size_bytes`, so that it does not fit in a cache."""
    return np.tile(data, -(-size_bytes // data.size)) if data.size < size_bytes else data


def part_of(whole: Sample, most_bytes: int, least_bytes: int) -> Sample:
    """About `most_bytes` of a sample at most, repeated up to `least_bytes`."""
    width = whole.element_bytes
    if whole.base is None:
        return Sample(whole.role, whole.dtype, repeat(spread(whole.data, width, most_bytes), least_bytes))
    order = by_change(whole.data, whole.base, width)
    data, base = (repeat(spread(of, width, most_bytes, order), least_bytes) for of in (whole.data, whole.base))
    return Sample(whole.role, whole.dtype, data, base)


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measured samples of a role."""

    least_bytes: int  # smaller roles are repeated
    most_bytes: int  # larger roles are sampled
    slow_bytes: int  # the same for slow methods


@dataclass(frozen=True)
class RoleSample:
    """One role of a pair of states (or of one state): the sample, and the smaller one for slow methods."""

    pair: Pair
    role_bytes: int  # of the whole role in the state
    whole: Sample  # for entropies
    fast: Sample
    slow: Sample


def role_samples(folder: Path, pair: Pair, sizes: Sizes, *, alone: bool) -> list[RoleSample]:
    """Samples of each role of the pair's later state; without a base if `alone`."""
    state = read_state(folder, pair.run, pair.step)
    base = {} if alone else read_state(folder, pair.run, pair.base_step)
    made = []
    for role, dtype in _DTYPES.items():
        if role not in state:
            continue
        whole = Sample(role, dtype, state[role], None if alone else base[role])
        made.append(
            RoleSample(
                pair=pair,
                role_bytes=whole.data.size,
                whole=whole,
                fast=part_of(whole, sizes.most_bytes, sizes.least_bytes),
                slow=part_of(whole, sizes.slow_bytes, 0),
            )
        )
    return made
