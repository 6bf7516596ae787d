"""Patches that follow one another, as one; what patches carry, and how large they are."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import bitsnap
from python.weights.moving_weights import all_bits, copy_of, versions, wrong_base


def chain(count: int) -> tuple[list[dict[str, torch.Tensor]], list[bytes]]:
    made = versions(count)
    patches = [
        bitsnap.make_patch(
            made[i + 1], made[i], from_version=f"v{i}", to_version=f"v{i + 1}", metadata={"step": str(i)}
        )
        for i in range(count - 1)
    ]
    return made, patches


@pytest.mark.parametrize("anew", [False, True])
def test_folded_patches_make_what_they_make_one_after_another(anew: bool) -> None:
    made, patches = chain(4)
    before = all_bits(made[0])
    folded = bitsnap.fold_patches(patches, made[0] if anew else None)
    assert all_bits(made[0]) == before
    patch = bitsnap.Patch(folded)
    assert (patch.from_version, patch.to_version, patch.metadata) == ("v0", "v3", {"step": "2"})
    one_by_one, at_once = copy_of(made[0]), copy_of(made[0])
    for each in patches:
        bitsnap.apply_patch(one_by_one, each)
    staged = patch.stage(at_once)
    for name in patch.tensors:
        old, new = (np.frombuffer(all_bits(made[i])[name], f"u{made[0][name].element_size()}") for i in (0, 3))
        places, values = staged.changes(name)
        engine = old.copy()
        engine[places.astype(np.int64)] = values
        assert engine.tolist() == new.tolist()
        assert np.all(np.diff(places.astype(np.int64)) > 0)
    staged.apply()
    assert all_bits(at_once) == all_bits(one_by_one) == all_bits(made[3])


def test_joined_patches_are_their_bytes_and_a_patch_made_anew_is_that_of_the_ends() -> None:
    made, patches = chain(4)
    assert bitsnap.fold_patches(patches) == b"".join(patches)
    assert bitsnap.fold_patches([bitsnap.fold_patches(patches[:2]), patches[2]]) == b"".join(patches)
    anew = bitsnap.fold_patches(iter(patches), made[0])
    direct = bitsnap.make_patch(made[3], made[0], from_version="v0", to_version="v3", metadata={"step": "2"})
    assert anew == direct
    assert bitsnap.fold_patches([direct]) == direct


def test_what_changes_back_is_not_in_a_patch_made_anew() -> None:
    old, new = versions(2)
    there, back = bitsnap.make_patch(new, old), bitsnap.make_patch(old, new)
    folded = bitsnap.fold_patches([there, back], old)
    assert bitsnap.Patch(folded).tensors == {}
    before = all_bits(old)
    bitsnap.apply_patch(old, folded)
    bitsnap.apply_patch(old, bitsnap.fold_patches([there, back]))
    assert all_bits(old) == before


def test_folded_patches_of_tied_weights_apply_to_tied_weights() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(40, 40), torch.nn.Linear(40, 40))
    model[1].weight = model[0].weight
    made = [model]
    for _ in range(2):
        made.append(copy.deepcopy(made[-1]))
        with torch.no_grad():
            made[-1][0].weight.mul_(1.5)  # type: ignore[operator]
    patches = [bitsnap.make_patch(made[i + 1], made[i]) for i in range(2)]
    for folded in (bitsnap.fold_patches(patches), bitsnap.fold_patches(patches, model)):
        engine = copy.deepcopy(model)
        bitsnap.apply_patch(engine, folded)
        assert all_bits(engine) == all_bits(made[-1])


def test_patches_out_of_order_are_not_folded() -> None:
    made, patches = chain(3)
    with pytest.raises(
        bitsnap.InvalidArgumentError,
        match="patch 2 applies to 'v0', but the one before makes 'v2': they are out of order",
    ):
        bitsnap.fold_patches(reversed(patches))
    with pytest.raises(bitsnap.InvalidArgumentError, match="out of order"):
        bitsnap.fold_patches([patches[0], patches[0]])
    with pytest.raises(bitsnap.InvalidArgumentError, match="patches must not be empty"):
        bitsnap.fold_patches([])
    # Without names, hashes find it.
    unnamed = [bitsnap.make_patch(made[i + 1], made[i]) for i in range(2)]
    joined = bitsnap.fold_patches(reversed(unnamed))
    assert "patch 1 of 2" in wrong_base(made[0], joined)
    assert "patch 2 of 2" in wrong_base(made[0], bitsnap.fold_patches([unnamed[0], unnamed[0]]))
    before = all_bits(made[0])
    with pytest.raises(bitsnap.InvalidArgumentError) as caught:
        bitsnap.fold_patches(reversed(unnamed), made[0])
    assert caught.value.code == "wrong_base"
    assert all_bits(made[0]) == before


def test_joined_patches_that_fail_late_change_nothing() -> None:
    made, patches = chain(3)
    other = copy_of(made[0])
    other["norm"].view(torch.int32)[0] ^= 1
    wrong_base(other, bitsnap.fold_patches(patches))
    with pytest.raises(bitsnap.UnsupportedError, match="several patches in one cannot verify all"):
        bitsnap.apply_patch(made[0], bitsnap.fold_patches(patches), verify="all")


def test_weights_are_compared_with_one_patch_and_not_with_several_that_are_joined() -> None:
    made, patches = chain(3)
    with pytest.raises(bitsnap.UnsupportedError, match="these are 2 in one"):
        bitsnap.Patch(bitsnap.fold_patches(patches)).state_of(made[0])
    assert bitsnap.Patch(bitsnap.fold_patches(patches, made[0])).state_of(made[2]) == "applied"


def test_a_damaged_patch_is_not_folded() -> None:
    _, patches = chain(3)
    with pytest.raises(bitsnap.CorruptError):
        bitsnap.fold_patches([patches[0], patches[1][:-1] + bytes([patches[1][-1] ^ 1])])
    with pytest.raises(bitsnap.TruncatedError):
        bitsnap.fold_patches([patches[0][:-1], patches[1]])


def test_versions_and_metadata_are_kept() -> None:
    old, new = versions(2)
    texts = {"loss": "2.1", "who": "trainer", "": "", "ключ": "значение ✓"}
    patch = bitsnap.Patch(bitsnap.make_patch(new, old, from_version="шаг 1", to_version="step/2", metadata=texts))
    assert (patch.from_version, patch.to_version, patch.metadata) == ("шаг 1", "step/2", texts)
    assert repr(patch) == "Patch('шаг 1' to 'step/2', 3 tensors)"
    assert patch.tensors["embed"] == ("BF16", (500, 700))
    plain = bitsnap.Patch(bitsnap.make_patch(new, old))
    assert (plain.from_version, plain.to_version, plain.metadata) == ("", "", {})


def test_the_ids_of_patches_that_follow_one_another_are_those_of_the_ends() -> None:
    (old, new), (patch,) = chain(2)
    back = bitsnap.Patch(bitsnap.make_patch(old, new))
    there = bitsnap.Patch(patch)
    assert there.expected_id == back.result_id
    assert there.result_id == back.expected_id
    assert there.expected_id != there.result_id
    assert len(there.expected_id) == 32


def test_frozen_weights_cost_nothing() -> None:
    old, new = versions(2)
    with_frozen = bitsnap.make_patch(new, old)
    alone = [{name: each[name] for name in each if name != "frozen"} for each in (new, old)]
    assert with_frozen == bitsnap.make_patch(*alone)
    hashed = bitsnap.make_patch(new, old, hash_unchanged=True)
    assert len(hashed) < len(with_frozen) + 100


def test_adapters_beside_a_frozen_model_cost_what_they_are() -> None:
    model = {f"layers.{i}": torch.full((300, 300), i, dtype=torch.bfloat16) for i in range(20)}
    new = {**model, "layers.0.lora": torch.randn(300, 4)}
    old = {**model, "layers.0.lora": torch.randn(300, 4)}
    assert len(bitsnap.make_patch(new, old)) < 1.1 * old["layers.0.lora"].nbytes + 200


def test_equal_weights_make_a_patch_of_a_hundred_bytes_that_always_applies() -> None:
    old, _ = versions(2)
    for patch in (bitsnap.make_patch(old, old), bitsnap.make_patch(copy_of(old), old)):
        assert len(patch) < 100
        bitsnap.apply_patch(old, patch)
        assert bitsnap.Patch(patch).stage({}).changed_elements == 0


def test_sparse_changes_take_less_than_their_places_and_values() -> None:
    old, new = versions(2)
    changes = bitsnap.Patch(bitsnap.make_patch(new, old)).stage(old).changed_elements
    assert 8 * len(bitsnap.make_patch(new, old)) < 24 * changes  # of 48 bits each
