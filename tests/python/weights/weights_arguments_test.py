"""Wrong arguments: the message names the argument, what it must be and what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap

OLD = {"w": torch.zeros(50), "b": torch.zeros(5)}
NEW = {"w": torch.ones(50), "b": torch.zeros(5)}
PATCH = bitsnap.make_patch(NEW, OLD)
make: Any = bitsnap.make_patch
apply: Any = bitsnap.apply_patch
fold: Any = bitsnap.fold_patches
opened: Any = bitsnap.Patch(PATCH)
Patch: Any = bitsnap.Patch


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: make([NEW["w"]], OLD), TypeError, "weights must be a mapping of names to tensors, or a module, got ["),
    (lambda: make(NEW, None), TypeError, "base must be a mapping of names to tensors, or a module, got None"),
    (lambda: make(NEW["w"], OLD), TypeError, "got Tensor of shape (50,)"),
    (lambda: make({1: NEW["w"]}, OLD), TypeError, "weights must have names that are str, got 1"),
    (
        lambda: make({"\udc80": NEW["w"]}, OLD),
        bitsnap.InvalidArgumentError,
        "a name in weights must not have surrogates",
    ),
    (lambda: make({"w": 3, "b": NEW["b"]}, OLD), bitsnap.InvalidArgumentError, "weights['w'] is a builtins.int"),
    (lambda: make({**NEW, "w": [1.0]}, OLD), bitsnap.InvalidArgumentError, "weights['w'] is a builtins.list"),
    (
        lambda: make({**NEW, "w": NEW["w"].to("meta")}, OLD),
        bitsnap.InvalidArgumentError,
        "weights['w'] is a meta tensor",
    ),
    (
        lambda: make(NEW, {**OLD, "w": OLD["w"].to_sparse()}),
        bitsnap.InvalidArgumentError,
        "base['w'] is a tensor of layout",
    ),
    (lambda: make({"w": np.array(["a"])}, OLD), bitsnap.InvalidArgumentError, "weights['w'] is an array of dtype <U1"),
    (
        lambda: make({**NEW, "part": NEW["w"][:5]}, OLD),
        bitsnap.InvalidArgumentError,
        "share memory, but are not the same",
    ),
    (lambda: make(NEW, OLD, threads="all"), TypeError, "threads must be an integer, got 'all'"),
    (lambda: make(NEW, OLD, threads=1.5), TypeError, "threads must be an integer, got 1.5"),
    (lambda: make(NEW, OLD, threads=-1), bitsnap.InvalidArgumentError, "threads must be 0 to 4294967295, got -1"),
    (lambda: make(NEW, OLD, from_version=1), TypeError, "from_version must be a str, got 1"),
    (lambda: make(NEW, OLD, to_version=None), TypeError, "to_version must be a str, got None"),
    (lambda: make(NEW, OLD, to_version="\ud800"), bitsnap.InvalidArgumentError, "to_version must not have surrogates"),
    (lambda: make(NEW, OLD, metadata=["a"]), TypeError, "metadata must be a dict of str to str, got ['a']"),
    (
        lambda: make(NEW, OLD, metadata={"a": 1}),
        bitsnap.InvalidArgumentError,
        "metadata must map str to str, got 'a': 1",
    ),
    (lambda: make(NEW, OLD, hash_unchanged=1), TypeError, "hash_unchanged must be True or False, got 1"),
    (lambda: Patch("file.patch"), TypeError, "patch must be bytes, got 'file.patch'"),
    (lambda: Patch(opened), TypeError, "patch must be bytes, got Patch("),
    (lambda: apply(PATCH, OLD), TypeError, "patch must be bytes, got dict with 'w', 'b'"),
    (lambda: apply(None, PATCH), TypeError, "weights must be a mapping of names to tensors, or a module, got None"),
    (
        lambda: apply(OLD, PATCH, verify=True),
        bitsnap.InvalidArgumentError,
        "verify must be 'changed' or 'all', got True",
    ),
    (lambda: apply(OLD, PATCH, threads=[]), TypeError, "threads must be an integer, got []"),
    (lambda: opened.stage(OLD).apply(threads="x"), TypeError, "threads must be an integer, got 'x'"),
    (lambda: opened.state_of({"w": 1}), bitsnap.InvalidArgumentError, "weights['w'] is a builtins.int"),
    (lambda: opened.state_of(OLD, threads=None), TypeError, "threads must be an integer, got None"),
    (lambda: fold(PATCH), TypeError, "patches must be a list of patches, got b'"),
    (lambda: fold(7), TypeError, "patches must be a list of patches, got 7"),
    (lambda: fold(["a"]), TypeError, "patch must be bytes, got 'a'"),
    (lambda: fold([PATCH], [1]), TypeError, "base must be a mapping of names to tensors, or a module, got [1]"),
    (lambda: fold([PATCH], OLD, threads=1.5), TypeError, "threads must be an integer, got 1.5"),
]


@pytest.mark.parametrize(("wrong", "kind", "message"), WRONG, ids=[message[:40] for _, _, message in WRONG])
def test_wrong_arguments_are_named(wrong: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        wrong()
    assert message in str(caught.value)
    assert "incompatible function arguments" not in str(caught.value)
    assert not OLD["w"].any()


def test_patches_are_bytes_of_any_kind() -> None:
    for kind in (bytes, bytearray, memoryview):
        engine = {"w": OLD["w"].clone()}
        apply(engine, kind(PATCH))
        assert torch.equal(engine["w"], NEW["w"])


def test_a_patch_keeps_its_own_copy_of_bytes_that_change() -> None:
    given = bytearray(PATCH)
    patch = Patch(given)
    given[:] = bytes(len(given))
    engine = {"w": OLD["w"].clone()}
    patch.stage(engine).apply()
    assert torch.equal(engine["w"], NEW["w"])
