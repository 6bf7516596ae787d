"""Saving and loading states of many objects without Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bitsnap


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """The generations of the collections that have run."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def many() -> dict[str, Any]:
    return {"layers": [{"w": np.full(3, i, np.float32), "at": (i, str(i))} for i in range(4000)]}


def test_no_collection_visits_a_state_that_is_saved_or_loaded(tmp_path: Path, collections: list[int]) -> None:
    state = many()
    collections.clear()
    bitsnap.save(tmp_path / "a.bsnap", state)
    assert len(collections) < 3
    loaded = bitsnap.load(tmp_path / "a.bsnap")
    assert len(collections) < 6
    assert gc.isenabled()
    assert len(loaded["layers"]) == 4000


def test_the_collector_is_as_before_after_an_error_and_if_it_was_off(tmp_path: Path) -> None:
    with pytest.raises(bitsnap.InvalidArgumentError):
        bitsnap.save(tmp_path / "a.bsnap", {"a": object()})
    assert gc.isenabled()
    gc.disable()
    try:
        bitsnap.save(tmp_path / "a.bsnap", many())
        bitsnap.load(tmp_path / "a.bsnap")
        assert not gc.isenabled()
    finally:
        gc.enable()
