"""Checkpoints of DCP in drawn layouts: saved by some ranks in one, loaded by others in another, read in any boxes.

BITSNAP_EXAMPLES is the number of examples; with it, they are drawn anew in each run.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

import bitsnap
from python.dcp.drawn_layouts import MESHES, RANKS, Drawn, Layout, load_layout, make_groups, save_layout
from python.rank_processes import Ranks, ranks
from python.same_bits import assert_same

EXAMPLES = int(os.environ.get("BITSNAP_EXAMPLES", "0"))

DTYPES = [
    torch.bfloat16,
    torch.float32,
    torch.int64,
    torch.bool,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.complex64,
    torch.float16,
    torch.float64,
    torch.uint8,
]


@st.composite
def tensors(draw: st.DrawFn) -> Drawn:
    # Small ones lie in the pool, others take more than one chunk.
    sizes = st.one_of(st.integers(0, 9), st.sampled_from([17, 63, 130]))
    shape = draw(st.lists(sizes, min_size=0, max_size=4).filter(lambda sizes: torch.Size(sizes).numel() < 50_000))
    if draw(st.integers(0, 19)) == 0:
        shape = [draw(st.integers(262_140, 300_000))]
    return Drawn(draw(st.sampled_from(DTYPES)), tuple(shape), draw(st.integers(0, 2**32 - 1)))


@st.composite
def layouts(draw: st.DrawFn, drawn: tuple[Drawn, ...]) -> Layout:
    mesh = draw(st.sampled_from(MESHES))

    def placement(tensor: Drawn) -> Any:
        dims = [None, *range(len(tensor.shape))]
        choices = [st.tuples(*(st.sampled_from(dims) for _ in mesh)), st.just("plain")]
        if len(mesh) == 2 and tensor.shape and tensor.shape[0] % (mesh[0] * mesh[1]) == 0:
            choices.append(st.just("strided"))  # FSDP2 itself refuses uneven ones
        return draw(st.one_of(choices))

    return Layout(mesh, tuple(placement(tensor) for tensor in drawn))


@st.composite
def boxes(draw: st.DrawFn, drawn: tuple[Drawn, ...]) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """A tensor, where a box in it begins and ends, and the order and steps of the dimensions in memory."""
    number = draw(st.integers(0, len(drawn) - 1))
    spans = [sorted((draw(st.integers(0, size)), draw(st.integers(0, size)))) for size in drawn[number].shape]
    steps = tuple(draw(st.integers(1, 3)) for _ in spans)
    return number, tuple(span[0] for span in spans), tuple(span[1] for span in spans), steps


@st.composite
def cases(draw: st.DrawFn) -> Any:
    drawn = tuple(draw(st.lists(tensors(), min_size=1, max_size=4)))
    saved, loaded = draw(layouts(drawn)), draw(st.lists(layouts(drawn), min_size=1, max_size=2))
    return drawn, saved, loaded, draw(st.lists(boxes(drawn), max_size=4))


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with ranks(tmp_path_factory.mktemp("layouts") / "meeting", RANKS) as started:
        started.run(make_groups)
        yield started


numbers = itertools.count()


@given(case=cases())
@settings(
    max_examples=EXAMPLES or 30,
    derandomize=not EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@pytest.mark.timeout(300 + EXAMPLES)
def test_any_layout_is_loaded_in_any_other(pool: Ranks, tmp_path_factory: pytest.TempPathFactory, case: Any) -> None:
    drawn, saved, loaded, wanted = case
    run = tmp_path_factory.getbasetemp() / f"layouts-{next(numbers)}"
    try:
        pool.run(save_layout, f"{run}/1", saved, drawn)
        for layout in loaded:
            pool.run(load_layout, f"{run}/1", layout, drawn)
        read_boxes(run, drawn, wanted)
    finally:
        shutil.rmtree(run, ignore_errors=True)


def read_boxes(run: Path, drawn: tuple[Drawn, ...], wanted: Any) -> None:
    requests, expected = [], []
    for number, begin, end, steps in wanted:
        # Boxes may overlap. Their memory is that of a larger tensor with the last dimension first.
        whole = drawn[number].whole()
        part = whole[tuple(slice(a, b) for a, b in zip(begin, end, strict=True))]
        larger = [size * step for size, step in zip(part.shape, steps, strict=True)]
        memory = torch.zeros(larger[::-1], dtype=whole.dtype).permute(tuple(range(len(larger)))[::-1])
        into = memory[tuple(slice(None, None, step) for step in steps)]
        assert into.shape == part.shape
        requests.append((f"model.t{number}", begin, into))
        expected.append(part)
    with bitsnap.Store(run, read_only=True) as store:
        store.read_into(1, requests)
    for (name, begin, into), part in zip(requests, expected, strict=True):
        assert_same(into.contiguous(), part.contiguous(), f"{name} from {begin}")
