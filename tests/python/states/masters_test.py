"""Masters that the caller says: taken where nothing would find them, refused by name where they cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from python.run_states import files_of
from python.same_bits import assert_same

PARAMETERS = 30_000


def codec_of(path: Path | bitsnap.Snapshot, name: str) -> set[str]:
    codecs = {tensor.name: tensor.codecs for tensor in bitsnap.inspect(path).tensors}[name]
    assert codecs is not None
    return set(codecs)


def zero_like() -> dict[str, Any]:
    """A state as ZeRO makes it: all masters in one flat buffer, too small to be looked for in it."""
    generator = torch.Generator().manual_seed(1)
    flat = torch.randn(3 * PARAMETERS + 11, generator=generator)
    weights = [flat[11 + i * PARAMETERS : 11 + (i + 1) * PARAMETERS].bfloat16() for i in range(3)]
    return {
        "model": {f"layer{i}": weight.reshape(-1, 100) for i, weight in enumerate(weights)},
        "optimizer": {"flat": flat},
    }


def masters_of_zero_like() -> dict[str, tuple[str, int]]:
    return {f"model.layer{i}": ("optimizer.flat", 11 + i * PARAMETERS) for i in range(3)}


def test_slices_of_a_flat_buffer_are_taken_where_they_are_given(tmp_path: Path) -> None:
    state = zero_like()
    bitsnap.save(tmp_path / "found.bsnap", state)
    saved = bitsnap.save(tmp_path / "given.bsnap", state, masters=masters_of_zero_like())
    for i in range(3):
        assert codec_of(tmp_path / "found.bsnap", f"model.layer{i}") != {"rounded_from"}
        assert codec_of(tmp_path / "given.bsnap", f"model.layer{i}") == {"rounded_from"}
    assert saved.stored_bytes + 3 * PARAMETERS < (tmp_path / "found.bsnap").stat().st_size
    bitsnap.verify(tmp_path / "given.bsnap")
    assert_same(bitsnap.load(tmp_path / "given.bsnap"), state)


@pytest.mark.parametrize("element", [11, np.int64(11), True])
def test_an_element_is_any_integer(tmp_path: Path, element: Any) -> None:
    state = zero_like()
    bitsnap.save(tmp_path / "a.bsnap", state, masters={"model.layer0": ("optimizer.flat", element)})
    assert (codec_of(tmp_path / "a.bsnap", "model.layer0") == {"rounded_from"}) == (element == 11)
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)


def test_flat_dicts_and_transposed_masters_of_numpy_take_them_too(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    shadow = generator.standard_normal((200, 300), dtype=np.float32).T
    tensors: dict[str, Any] = {"w": torch.from_numpy(np.ascontiguousarray(shadow)).bfloat16(), "p.7": shadow}
    bitsnap.save_file(tensors, tmp_path / "a.bsnap", masters={"w": "p.7"})
    assert codec_of(tmp_path / "a.bsnap", "w") == {"rounded_from"}
    loaded = bitsnap.load_file(tmp_path / "a.bsnap", framework="np")
    assert np.array_equal(loaded["p.7"], shadow)


def test_names_that_stand_twice_are_those_of_the_file(tmp_path: Path) -> None:
    shadow = torch.randn(PARAMETERS)
    near = shadow.bfloat16()
    near[::4] += near[::4].abs() / 64  # of which a sample says that it is no rounding
    state = {"a": {"b": torch.randn(PARAMETERS)}, "a.b": shadow, "w": near}
    bitsnap.save(tmp_path / "a.bsnap", state, settings=bitsnap.Settings(objective="ratio"), masters={"w": "a.b#2"})
    assert codec_of(tmp_path / "a.bsnap", "w") == {"rounded_from"}
    bitsnap.save(
        tmp_path / "a.bsnap", state, settings=bitsnap.Settings(objective="ratio"), masters={"w": "a.b"}, overwrite=True
    )
    assert codec_of(tmp_path / "a.bsnap", "w") != {"rounded_from"}
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)


def test_tied_weights_have_one_master(tmp_path: Path) -> None:
    shadow = torch.randn(2 * PARAMETERS)
    tied = shadow[:PARAMETERS].bfloat16()
    state = {"embed": tied, "head": tied, "flat": shadow}
    bitsnap.save(tmp_path / "a.bsnap", state, masters={"embed": "flat", "head": ("flat", 0)})
    assert codec_of(tmp_path / "a.bsnap", "embed") == {"rounded_from"}
    with pytest.raises(bitsnap.InvalidArgumentError, match="'head' has the master 'flat' from element 1"):
        bitsnap.save(tmp_path / "a.bsnap", state, masters={"embed": "flat", "head": ("flat", 1)}, overwrite=True)


def test_stores_take_them_for_checkpoints_and_shards(tmp_path: Path) -> None:
    state = zero_like()
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(1, state, masters=masters_of_zero_like())
        for shard in (0, 1):
            store.save_shard(
                2, state, shard=shard, shards=2, attempt="a", masters=masters_of_zero_like() if shard == 1 else None
            )
        assert store.commit(2, 2, "a")
        assert codec_of(store.snapshot(1), "model.layer2") == {"rounded_from"}
        assert codec_of(store.snapshot(2, shard=1), "model.layer2") <= {"rounded_from", "same"}
        assert_same(store.load(1), state)
        assert_same(store.load(2, shard=1), state)
        store.verify()


def test_the_file_is_the_same_for_any_number_of_threads(tmp_path: Path) -> None:
    for threads in (1, 2, 5):
        bitsnap.save(tmp_path / f"{threads}.bsnap", zero_like(), masters=masters_of_zero_like(), threads=threads)
    assert len({(tmp_path / f"{threads}.bsnap").read_bytes() for threads in (1, 2, 5)}) == 1


def test_a_wrong_master_changes_no_bits(tmp_path: Path) -> None:
    state = zero_like()
    wrong = {
        name: (master, 2 * PARAMETERS + 22 - element) for name, (master, element) in masters_of_zero_like().items()
    }
    bitsnap.save(tmp_path / "a.bsnap", state, masters=wrong)
    assert codec_of(tmp_path / "a.bsnap", "model.layer0") != {"rounded_from"}
    assert codec_of(tmp_path / "a.bsnap", "model.layer1") == {"rounded_from"}, "in the middle, whichever way round"
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)


@pytest.mark.parametrize(
    ("masters", "message"),
    [
        ({"model.w": "optimizer.flat"}, r"masters are given for tensors that are not there: \['model.w'\]"),
        ({"model.layer0": "flat"}, "tensor 'model.layer0': its master 'flat' is not in the state"),
        ({"model.layer0": "model.layer1"}, "'model.layer0': its master 'model.layer1' must be F32, got BF16"),
        (
            {"optimizer.flat": "optimizer.flat"},
            "'optimizer.flat': a tensor with a master .* must be BF16 or F16, got F32",
        ),
        (
            {"model.layer0": ("optimizer.flat", 60_012)},
            "30000 elements from element 60012 exceed its master 'optimizer.flat' of 90011 elements",
        ),
        ({"model.layer0": ("optimizer.flat", (1 << 64) - 1)}, "from element 18446744073709551615 exceed"),
        ({"model.layer0": ("optimizer.flat", 1 << 64)}, r"the element of masters\['model.layer0'\] must be 0 to"),
        ({"model.layer0": ("optimizer.flat", -1)}, r"the element of masters\['model.layer0'\] must be 0 to"),
        ({"model.layer0": "\udcff"}, r"masters\['model.layer0'\] is a string that is not valid Unicode"),
    ],
)
def test_masters_that_cannot_be_are_named_and_nothing_is_written(
    tmp_path: Path, masters: dict[str, Any], message: str
) -> None:
    state = zero_like()
    with bitsnap.Store(tmp_path / "run") as store:
        before = files_of(tmp_path / "run")
        calls: list[Callable[[], object]] = [
            lambda: bitsnap.save(tmp_path / "a.bsnap", state, masters=masters),
            lambda: store.save(1, state, masters=masters),
            lambda: store.save_shard(1, state, shard=0, shards=1, attempt="a", masters=masters),
        ]
        for call in calls:
            with pytest.raises(bitsnap.InvalidArgumentError, match=message):
                call()
        assert store.steps() == []
        assert files_of(tmp_path / "run").keys() == before.keys()
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("masters", "message"),
    [
        (5, "masters must be a dict of names to names, got 5"),
        ({"w": 5}, r"masters\['w'\] is the name of a tensor, or a tuple of it and an element, not 5"),
        ({"w": ("m",)}, r"masters\['w'\] is the name of a tensor, or a tuple"),
        ({"w": ["m", 0]}, r"masters\['w'\] is the name of a tensor, or a tuple"),
        ({"w": (0, "m")}, r"masters\['w'\] is the name of a tensor, or a tuple"),
        ({"w": ("m", 1.0)}, r"the element of masters\['w'\] must be an integer, got 1.0"),
        ({"w": ("m", "1")}, r"the element of masters\['w'\] must be an integer, got '1'"),
    ],
)
def test_masters_of_other_types_are_named(tmp_path: Path, masters: Any, message: str) -> None:
    state = {"w": torch.zeros(PARAMETERS, dtype=torch.bfloat16), "m": torch.zeros(PARAMETERS)}
    for save in (bitsnap.save, lambda path, tensors, **given: bitsnap.save_file(tensors, path, **given)):
        with pytest.raises(TypeError, match=message):
            save(tmp_path / "a.bsnap", state, masters=masters)
    assert list(tmp_path.iterdir()) == []
