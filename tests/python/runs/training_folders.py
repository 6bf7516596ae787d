"""Folders of trainings in processes of python.forked_calls: what the tests of Accelerate and of Transformers share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bitsnap
from bitsnap.agents import stop_agent
from python.same_bits import assert_same


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def after(step: int, result: dict[str, Any]) -> dict[str, float]:
    """The losses of later steps."""
    return {key: loss for key, loss in result["losses"].items() if int(key) > step}


def stop(folder: str) -> None:
    """Ends the agent of the run of a training, if there is one."""
    with contextlib.suppress(bitsnap.NotFoundError):
        stop_agent(Path(folder) / "bitsnap", timeout=20)


def compare_files(first: str, second: str, read: Callable[[Path], Any]) -> list[str]:
    """Compares the files of two folders, bit for bit. Their names. `read`: what a file holds."""
    found = names(Path(first))
    assert found == names(Path(second))
    for name in found:
        assert_same(read(Path(first) / name), read(Path(second) / name), name)
    return found
