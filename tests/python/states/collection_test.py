"""Saving and loading states of many objects without Python's garbage collector."""

from __future__ import annotations

import gc
import os
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


def test_the_thresholds_are_as_before_after_an_error_and_in_nested_calls(tmp_path: Path) -> None:
    before = gc.get_threshold()
    with pytest.raises(bitsnap.InvalidArgumentError):
        bitsnap.save(tmp_path / "a.bsnap", {"a": object()})
    assert gc.get_threshold() == before
    bitsnap.save(tmp_path / "a.bsnap", many())
    bitsnap.load(tmp_path / "a.bsnap", progress=lambda done, total: bool(bitsnap.load(tmp_path / "a.bsnap")))
    assert gc.get_threshold() == before


def test_what_the_program_chooses_meanwhile_stays(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", many())
    before = gc.get_threshold()

    def choose(done: int, total: int) -> bool:
        gc.disable()
        gc.set_threshold(123, 4, 5)
        return True

    try:
        bitsnap.load(tmp_path / "a.bsnap", progress=choose)
        assert not gc.isenabled()
        assert gc.get_threshold() == (123, 4, 5)
    finally:
        gc.enable()
        gc.set_threshold(*before)


def test_a_forked_child_collects(tmp_path: Path) -> None:
    bitsnap.save(tmp_path / "a.bsnap", many())
    before = gc.get_threshold()
    children: list[int] = []

    def fork(done: int, total: int) -> bool:
        if not children:
            children.append(os.fork())
            if children[0] == 0:
                os._exit(0 if gc.get_threshold() == before else 1)
        return True

    bitsnap.load(tmp_path / "a.bsnap", progress=fork)
    assert os.waitpid(children[0], 0)[1] == 0
