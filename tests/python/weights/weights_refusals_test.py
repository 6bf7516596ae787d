"""Weights and patches that do not belong together, and damaged patches: refused before anything changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import bitsnap
from python.weights.moving_weights import all_bits, changed, copy_of, versions, wrong_base


def flip(tensor: torch.Tensor, place: int) -> None:
    """The lowest bit of an element."""
    tensor.view(-1).view({2: torch.int16, 4: torch.int32}[tensor.element_size()])[place] ^= 1


def refused(weights: dict[str, torch.Tensor], patch: bytes, kind: type[bitsnap.BitsnapError], **options: str) -> str:
    before = all_bits(weights)
    with pytest.raises(kind) as caught:
        bitsnap.apply_patch(weights, patch, **options)  # type: ignore[arg-type]
    assert all_bits(weights) == before
    return str(caught.value)


def test_the_four_states_of_weights() -> None:
    old, new = versions(2)
    patch = bitsnap.Patch(bitsnap.make_patch(new, old))
    assert patch.state_of(old) == "applicable"
    assert patch.state_of(new) == "applied"
    partly = copy_of(old) | {"norm": new["norm"].clone()}
    assert patch.state_of(partly) == "partly"
    other = copy_of(old)
    flip(other["head"], 1407)
    assert patch.state_of(other) == "other"
    assert patch.state_of({**other, "head": old["head"]}) == "applicable"
    frozen = copy_of(old)
    frozen["frozen"].zero_()
    assert patch.state_of(frozen) == "applicable"  # it reads what changes
    assert patch.state_of(new, threads=1) == "applied"


def test_weights_that_were_changed_in_part_are_refused() -> None:
    old, new = versions(2)
    patch = bitsnap.make_patch(new, old)
    message = wrong_base(copy_of(old) | {"norm": new["norm"].clone()}, patch)
    assert "was applied in part: 1 of " in message
    assert "Load a whole version" in message
    torn = copy_of(old)
    torn["embed"][:100] = new["embed"][:100]  # ends in the middle of a part with its own hash
    assert bitsnap.Patch(patch).state_of(torn) == "other"
    wrong_base(torn, patch)


def test_a_patch_that_was_applied_is_refused() -> None:
    old, new = versions(2)
    patch = bitsnap.make_patch(new, old, from_version="step-1", to_version="step-2")
    bitsnap.apply_patch(old, patch)
    assert "the patch from 'step-1' to 'step-2' is applied already" in wrong_base(old, patch)


def test_other_weights_are_refused_wherever_a_changed_part_differs() -> None:
    old, new = versions(2)
    patch = bitsnap.make_patch(new, old)
    for name in ("embed", "norm", "head"):
        for place in (0, old[name].numel() // 2, old[name].numel() - 1):
            other = copy_of(old)
            flip(other[name], place)
            message = wrong_base(other, patch)
            assert "the weights are not what the patch applies to" in message
            assert "if it was applied already" in message
    other = copy_of(old)
    other["norm"].zero_()
    assert "tensor 'norm', elements 0 to 299 has hash" in wrong_base(other, patch)


def test_patches_out_of_order_are_refused() -> None:
    first, second, third = versions(3)
    patches = [bitsnap.make_patch(second, first), bitsnap.make_patch(third, second)]
    wrong_base(first, patches[1])
    bitsnap.apply_patch(first, patches[0])
    wrong_base(first, patches[0])
    bitsnap.apply_patch(first, patches[1])
    for patch in patches:
        wrong_base(first, patch)
    assert all_bits(first) == all_bits(third)


def test_the_reverse_patch_takes_a_version_back() -> None:
    old, new = versions(2)
    before = all_bits(old)
    bitsnap.apply_patch(old, bitsnap.make_patch(new, old))
    bitsnap.apply_patch(old, bitsnap.make_patch(versions(1)[0], new))
    assert all_bits(old) == before


def test_tensors_that_are_missing_or_have_another_form_are_named() -> None:
    old, new = versions(2)
    patch = bitsnap.make_patch(new, old)
    missing = {name: each for name, each in copy_of(old).items() if name != "head"}
    assert "tensor 'head' of the patch is missing" in refused(missing, patch, bitsnap.NotFoundError)
    shape = copy_of(old) | {"head": old["head"].t().contiguous()}
    message = refused(shape, patch, bitsnap.InvalidArgumentError)
    assert "tensor 'head': the weights have BF16 [300, 200], the patch changes BF16 [200, 300]" in message
    dtype = copy_of(old) | {"norm": old["norm"].view(torch.int32)}
    assert "tensor 'norm': the weights have I32 [300], the patch changes F32 [300]" in refused(
        dtype, patch, bitsnap.InvalidArgumentError
    )


def test_a_patch_is_made_of_the_same_tensors() -> None:
    old, new = versions(2)
    without = {name: each for name, each in new.items() if name != "norm"}
    for given, message in (
        ((without, old), "tensor 'norm' of the base is missing in the weights"),
        ((new, {name: old[name] for name in without}), "tensor 'norm' is missing in the base"),
        (({**new, "norm": new["norm"][:5]}, old), "tensor 'norm': the weights have F32 [5], the base has F32 [300]"),
        (({**new, "norm": new["norm"].view(torch.int32)}, old), "tensor 'norm': the weights have I32 [300]"),
    ):
        with pytest.raises(bitsnap.InvalidArgumentError) as caught:
            bitsnap.make_patch(*given)
        assert message in str(caught.value)


def small() -> tuple[dict[str, torch.Tensor], bytes]:
    rng = np.random.default_rng(3)
    old = {"w": torch.arange(3000, dtype=torch.bfloat16), "b": torch.zeros(20), "frozen": torch.ones(9)}
    new = {name: changed(rng, each) for name, each in old.items()} | {"frozen": old["frozen"]}
    patch = bitsnap.make_patch(new, old, from_version="1", to_version="2", metadata={"a": "b"}, hash_unchanged=True)
    return old, patch


def test_every_seventh_byte_flipped_is_refused() -> None:
    old, patch = small()
    before = all_bits(old)
    for place in range(0, len(patch), 7):
        for mask in (1, 128, 255):
            damaged = bytearray(patch)
            damaged[place] ^= mask
            with pytest.raises((bitsnap.CorruptError, bitsnap.TruncatedError, bitsnap.UnsupportedError)):
                bitsnap.apply_patch(old, bytes(damaged))
    assert all_bits(old) == before
    bitsnap.apply_patch(old, patch)


def test_every_truncation_is_refused() -> None:
    old, patch = small()
    before = all_bits(old)
    for size in range(len(patch)):
        with pytest.raises((bitsnap.CorruptError, bitsnap.TruncatedError)):
            bitsnap.apply_patch(old, patch[:size])
        assert all_bits(old) == before
    for more in (b"x", bytes(8), bytes(100), patch[:50]):
        with pytest.raises((bitsnap.CorruptError, bitsnap.TruncatedError), match="patch 2"):
            bitsnap.apply_patch(old, patch + more)
    assert all_bits(old) == before


def frozen_changed(weights: dict[str, torch.Tensor]) -> None:
    flip(weights["frozen"], 0)


def more_tensors(weights: dict[str, torch.Tensor]) -> None:
    weights["more"] = torch.ones(1)


def fewer_tensors(weights: dict[str, torch.Tensor]) -> None:
    del weights["frozen"]


def renamed(weights: dict[str, torch.Tensor]) -> None:
    weights["renamed"] = weights.pop("frozen")


@pytest.mark.parametrize("alter", [frozen_changed, more_tensors, fewer_tensors, renamed])
def test_verifying_all_weights_finds_what_the_patch_does_not_change(
    alter: Callable[[dict[str, torch.Tensor]], None],
) -> None:
    old, new = versions(2)
    patch = bitsnap.make_patch(new, old, hash_unchanged=True)
    alter(old)
    message = wrong_base(old, patch, verify="all")
    if alter in (more_tensors, fewer_tensors):
        assert "tensors beside those that the patch changes, its maker had 1" in message
    else:
        assert "they differ where it changes nothing" in message
    bitsnap.apply_patch(old, patch)


def test_verifying_all_weights_accepts_those_of_the_maker() -> None:
    old, new = versions(2)
    patch = bitsnap.make_patch(new, old, hash_unchanged=True)
    other = copy_of(old)
    flip(other["embed"], 0)
    wrong_base(other, patch, verify="all")
    bitsnap.apply_patch(old, patch, verify="all")
    assert all_bits(old) == all_bits(new)


def test_verifying_all_weights_finds_a_frozen_tensor_that_is_tied_here_alone() -> None:
    old = {"changes": torch.zeros(100), "frozen": torch.zeros(100)}
    patch = bitsnap.make_patch({**old, "changes": torch.ones(100)}, old, hash_unchanged=True)
    tied = torch.zeros(100)
    message = wrong_base({"changes": tied, "frozen": tied}, patch, verify="all")
    assert "tensor 'frozen' is tied to a tensor that the patch changes" in message


def test_verifying_all_weights_needs_hashes_of_what_does_not_change() -> None:
    old, new = versions(2)
    message = refused(old, bitsnap.make_patch(new, old), bitsnap.InvalidArgumentError, verify="all")
    assert "has no hash of what does not change" in message
