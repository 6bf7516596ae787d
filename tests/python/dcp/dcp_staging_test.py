"""Copies of states for saves in the background, with DCP's stager and without one that copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint import staging

import bitsnap
from bitsnap.dcp import _staging
from bitsnap.dcp._staging import StagedCopies
from python.same_bits import assert_same


@pytest.fixture(params=[True, False], ids=["DefaultStager", "older torch"], autouse=True)
def stager(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.delattr(staging, "DefaultStager")
    return bool(request.param)


def test_a_copy_has_the_values_and_shares_memory_as_the_state_does() -> None:
    memory = np.arange(100, dtype=np.float32)
    weight = torch.randn(8, 4)
    state: dict[str, Any] = {
        # Two memories that begin at one address, the smaller one first.
        "part": torch.from_numpy(memory[:10]),
        "whole": torch.from_numpy(memory),
        "weight": weight,
        "tied": weight,
        "row": weight[3],
        "transposed": weight.t(),
        "conj": torch.randn(4, dtype=torch.complex64).conj(),
        "neg": torch.randn(4, dtype=torch.complex64).conj().imag,
        "empty": torch.zeros(0),
        "values": [1, {"a": (2.5, "b")}],
    }
    expected = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in state.items()}
    staged = StagedCopies().stage(state)
    for value in state.values():
        if isinstance(value, torch.Tensor):
            value.zero_()
    assert_same({key: staged[key] for key in expected}, expected)
    addresses = {key: staged[key].untyped_storage().data_ptr() for key in ("weight", "tied", "row", "transposed")}
    assert len(set(addresses.values())) == 1
    assert addresses["weight"] != weight.untyped_storage().data_ptr()


def test_freed_memory_is_refused(stager: bool) -> None:
    if stager:
        pytest.skip("as DCP does it")
    freed = torch.randn(4)
    freed.untyped_storage().resize_(0)
    with pytest.raises(bitsnap.InvalidArgumentError, match="storage of a tensor has been freed"):
        StagedCopies().stage({"freed": freed})


class _Stream:
    """In the place of a CUDA stream: the tests need no GPU."""

    def __init__(self) -> None:
        self.waits = 0

    def synchronize(self) -> None:
        self.waits += 1


def test_the_memory_of_copies_from_a_gpu_is_filled_when_the_last_of_them_has_ended(
    monkeypatch: pytest.MonkeyPatch, stager: bool
) -> None:
    if not stager:
        pytest.skip("does not depend on the stager")
    stream = _Stream()
    non_blocking = []
    copy = torch._foreach_copy_

    def note_copy(to: list[torch.Tensor], source: list[torch.Tensor], non_blocking_: bool) -> None:
        assert stream.waits == 0
        non_blocking.append((len(to), non_blocking_))
        copy(to, source)

    monkeypatch.setattr(_staging, "is_on_gpu", lambda tensor: tensor.dtype != torch.float64)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch, "_foreach_copy_", lambda to, source, non_blocking: note_copy(to, source, non_blocking))
    tensors = [torch.randn(6, 4), torch.randn(6, 4)[:, ::2], torch.randn(3, dtype=torch.float64), torch.randn(5)]
    copies = [torch.empty_strided(each.shape, each.stride(), dtype=each.dtype) for each in tensors]
    _staging._fill(copies, tensors)
    assert_same(copies, tensors)
    assert (non_blocking, stream.waits) == ([(2, True), (2, False)], 1)
