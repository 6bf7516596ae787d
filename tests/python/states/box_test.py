"""Boxes of sharded tensors: saved by several ranks, read in other boxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import bitsnap
from python.same_bits import assert_same

WEIGHT = torch.arange(96 * 80, dtype=torch.float32).reshape(96, 80)
DEEP = torch.arange(12 * 10 * 14, dtype=torch.int64).reshape(12, 10, 14)


def rows_of(rank: int, ranks: int, tensor: torch.Tensor = WEIGHT, name: str | None = None) -> bitsnap.Box:
    rows = tensor.shape[0] // ranks
    local = tensor[rank * rows : (rank + 1) * rows]
    return bitsnap.Box(local, tensor.shape, (rank * rows, *[0] * (tensor.dim() - 1)), name)


def save_on(ranks: int, path: Path, step: int = 1) -> bitsnap.Store:
    store = bitsnap.Store(path, shared=True)
    for rank in range(ranks):
        half = DEEP.shape[1] // 2
        # Each rank holds two boxes of one tensor, which lie apart.
        pieces = [
            bitsnap.Box(
                DEEP[rank * 12 // ranks : (rank + 1) * 12 // ranks, start : start + half],
                DEEP.shape,
                (rank * 12 // ranks, start, 0),
                "deep",
            )
            for start in (0, half)
        ]
        state = {"model": {"w": rows_of(rank, ranks)}, "pieces": pieces, "rank": rank, "step": torch.tensor(step)}
        store.save_shard(step, state, shard=rank, shards=ranks, attempt="a")
    assert store.commit(step, ranks, "a")
    return store


def test_a_state_comes_back_with_its_boxes(tmp_path: Path) -> None:
    state = {"w": rows_of(1, 4), "np": bitsnap.Box(np.arange(6.0).reshape(2, 3), (4, 3), (2, 0), "other"), "n": 3}
    bitsnap.save(tmp_path / "a.bsnap", state)
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    assert loaded["n"] == 3
    for key in ("w", "np"):
        before, after = state[key], loaded[key]
        assert isinstance(before, bitsnap.Box)
        assert isinstance(after, bitsnap.Box)
        assert type(after.tensor) is type(before.tensor)
        assert (after.global_shape, after.offset, after.name) == (before.global_shape, before.offset, before.name)
        assert_same(after.tensor, before.tensor)


def test_boxes_are_filled_in_place(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", {"w": rows_of(1, 4)})
    into = {"w": bitsnap.Box(torch.zeros(24, 80), (96, 80), (24, 0))}
    loaded = bitsnap.load(tmp_path / "a.bsnap", into=into)
    assert loaded["w"] is into["w"]
    assert torch.equal(into["w"].tensor, WEIGHT[24:48])
    plain = {"w": torch.zeros(24, 80)}
    bitsnap.load(tmp_path / "a.bsnap", into=plain)
    assert torch.equal(plain["w"], WEIGHT[24:48])
    other = {"w": bitsnap.Box(torch.zeros(24, 80), (96, 80), (48, 0))}
    with pytest.raises(
        bitsnap.InvalidArgumentError, match=r"into\['w'\] is a box at \(48, 0\).*holds a box at \(24, 0\)"
    ):
        bitsnap.load(tmp_path / "a.bsnap", into=other)


def test_a_flat_file_says_which_tensors_are_boxes(tmp_path: Path) -> None:
    bitsnap.save_file({"w": rows_of(1, 4), "plain": torch.ones(3)}, tmp_path / "a.bsnap")
    with bitsnap.safe_open(tmp_path / "a.bsnap", framework="pt") as opened:
        assert torch.equal(opened.get_tensor("w"), WEIGHT[24:48])
        box = opened.get_box("w")
        assert box is not None
        assert box.offset == (24, 0)
        assert box.global_shape == (96, 80)
        assert opened.get_box("plain") is None


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_tensors_are_listed_whole(tmp_path: Path, ranks: int) -> None:
    with save_on(ranks, tmp_path / "run") as store:
        tensors = store.tensors(1)
        weight = tensors["model.w"]
        assert (weight.shape, weight.dtype, weight.role) == ((96, 80), "F32", "weight")
        assert [(part.shard, part.offset, part.shape) for part in weight.parts] == [
            (rank, (rank * 96 // ranks, 0), (96 // ranks, 80)) for rank in range(ranks)
        ]
        assert tensors["deep"].shape == (12, 10, 14)
        assert len(tensors["deep"].parts) == 2 * ranks
        assert tensors["step"].parts[0].shard == 0
        with pytest.raises(bitsnap.NotFoundError, match="step 7 not found"):
            store.tensors(7)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_boxes_are_read_into_any_memory(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "boxes"
    if not path.exists():
        save_on(4, path).close()
    requests, expected = [], []
    for name, whole in data.draw(
        st.lists(st.sampled_from([("model.w", WEIGHT), ("deep", DEEP)]), min_size=1, max_size=4)
    ):
        offset = [data.draw(st.integers(0, size - 1)) for size in whole.shape]
        extent = [data.draw(st.integers(0, size - at)) for size, at in zip(whole.shape, offset, strict=True)]
        wanted = whole[tuple(slice(at, at + n) for at, n in zip(offset, extent, strict=True))]
        order = data.draw(st.permutations(range(whole.dim())))
        step = data.draw(st.sampled_from([1, 2]))
        # Dimensions in another order, and elements with gaps between them.
        memory = torch.full([*(extent[axis] for axis in order), step], -1, dtype=whole.dtype)
        inverse = [order.index(axis) for axis in range(whole.dim())]
        requests.append((name, offset, memory[..., 0].permute(inverse)))
        expected.append((wanted, memory))
    with bitsnap.Store(path, read_only=True) as store:
        store.read_into(1, requests)
    for (_, _, filled), (wanted, memory) in zip(requests, expected, strict=True):
        assert torch.equal(filled, wanted)
        assert bool((memory[..., 1:] == -1).all())


def test_requests_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with save_on(2, tmp_path / "run") as store:

        def error_of(*request: Any) -> str:
            with pytest.raises(bitsnap.BitsnapError) as raised:
                store.read_into(1, [request])
            return str(raised.value)

        assert "did you mean 'model.w'" in error_of("modelw", (0, 0), torch.zeros(2, 2))
        assert "is F64, but the checkpoint holds F32" in error_of("model.w", (0, 0), torch.zeros(2, 2).double())
        assert "box of shape [2, 2] at offset [95, 0] does not lie in tensor 'model.w' of shape [96, 80]" in error_of(
            "model.w", (95, 0), torch.zeros(2, 2)
        )
        assert "does not lie" in error_of("model.w", (0,), torch.zeros(2))
        assert "cannot be filled" in error_of("model.w", (0, 0), torch.zeros(1, 2).expand(3, 2))
        shared = torch.zeros(4, 4)
        with pytest.raises(bitsnap.InvalidArgumentError, match="share a part of their memory"):
            store.read_into(1, [("model.w", (0, 0), shared), ("model.w", (8, 0), shared[1:])])
        assert not shared.any()
        with pytest.raises(bitsnap.CancelledError):
            store.read_into(1, [("model.w", (0, 0), shared)], progress=lambda done, total: False)


def test_boxes_that_do_not_lie_in_their_tensor_are_refused() -> None:
    with pytest.raises(bitsnap.InvalidArgumentError, match="does not lie in a tensor of shape"):
        bitsnap.Box(torch.zeros(4, 4), (8, 4), (5, 0))
    with pytest.raises(bitsnap.InvalidArgumentError, match="does not lie"):
        bitsnap.Box(torch.zeros(4), (8, 4), (0, 0))
    with pytest.raises(TypeError, match="offset must be a tuple of integers"):
        bitsnap.Box(torch.zeros(4), (8,), 3)  # type: ignore[arg-type]


def test_a_store_codes_boxes_against_those_of_the_step_before(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.rand(512, 512, generator=generator)
    sizes = []
    with bitsnap.Store(tmp_path / "run", shared=True) as store:
        for step in (1, 2, 3):
            # In the last step, the ranks have exchanged their boxes.
            for rank in range(2):
                held = rank if step < 3 else 1 - rank
                store.save_shard(step, {"w": rows_of(held, 2, values)}, shard=rank, shards=2, attempt="a")
            sizes.append(store.commit(step, 2, "a").checkpoint.stored_bytes)  # type: ignore[union-attr]
        read = torch.empty_like(values)
        store.read_into(3, [("w", (0, 0), read)])
    assert torch.equal(read, values)
    assert sizes[1] < sizes[0] / 20
    assert sizes[2] < sizes[0] / 20


def test_a_checkpointer_saves_boxes(tmp_path: Path) -> None:
    with bitsnap.Checkpointer(tmp_path / "run") as checkpointer:
        for step in (1, 2):
            box = bitsnap.Box(WEIGHT[48:] + step, WEIGHT.shape, (48, 0))
            save = checkpointer.save(step, {"w": box, "step": step})
            assert save is not None
            save.result()
        restored = checkpointer.restore()
        assert restored is not None
        assert restored.state["w"].offset == (48, 0)
        assert torch.equal(restored.state["w"].tensor, WEIGHT[48:] + 2)
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        assert store.tensors(2)["w"].shape == (96, 80)
        out = torch.empty(10, 80)
        store.read_into(2, [("w", (60, 0), out)])
        assert torch.equal(out, WEIGHT[60:70] + 2)
        with pytest.raises(bitsnap.NotFoundError, match=r"the shards hold 0 of 800 elements"):
            store.read_into(2, [("w", (0, 0), out)])
