"""Saves of Megatron-LM through an agent, local and global: a real Megatron-core GPT on 4 ranks over gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import bitsnap.megatron
from bitsnap.megatron import _local, _versions as versions

pytest.importorskip("nvidia_resiliency_ext", reason="nvidia-resiliency-ext has no package for this Python")

TESTS = Path(__file__).parents[2]
KILLED = "exit codes of the ranks: [-9, -9, -9, -9]"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What megatron_agent_scenario.py reports, by name."""
    path = tmp_path_factory.mktemp("local")
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-B", "-Wignore", "-m", "python.megatron.megatron_agent_scenario", path],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    output = (path / "output").read_text() if (path / "output").exists() else ""
    assert done.returncode == 0, done.stdout + done.stderr + output
    found: dict[str, list[Any]] = {}
    for line in (path / "results").read_text().splitlines():
        name, value = json.loads(line)
        found.setdefault(name, []).append(value)
    return found


@pytest.mark.slow
def test_all_ranks_are_killed_and_continue_with_equal_losses(results: dict[str, list[Any]]) -> None:
    assert results["nothing"] == [[-1] * 4]
    assert results["end of begin"] == [KILLED]
    assert results["latest"] == [[3] * 4]
    assert results["same"] == [[True] * 4]
    losses = results["losses"]
    assert losses[0] == losses[1]
    assert len(losses[0][0]) == 2


@pytest.mark.slow
def test_asynchronous_saves_go_through_the_queue_of_megatron(results: dict[str, list[Any]]) -> None:
    assert results["finalized"] == [[2] * 4, [3] * 4]


@pytest.mark.slow
def test_an_iteration_that_a_rank_lacks_is_not_the_latest(results: dict[str, list[Any]]) -> None:
    assert results["newer"] == [[5] * 4]
    assert results["end of go_on"] == [KILLED]
    assert results["common"] == [[5] * 4]
    assert results["done"] == [[5] * 4]


@pytest.mark.slow
def test_the_agent_commits_global_saves_of_which_the_last_complete_one_loads(results: dict[str, list[Any]]) -> None:
    assert results["early"] == [[False] * 4] * 2
    assert results["third"] == [[False] * 4]
    assert results["same globally"] == [[True] * 4] * 2
    assert results["steps"] == [[[2, 5, 6]] * 4]


@pytest.mark.slow
def test_a_value_that_a_rank_cannot_store_is_named_on_all(results: dict[str, list[Any]]) -> None:
    (texts,) = results["refused"]
    assert all("'value'" in text and "Unknown" in text for text in texts)
    assert ["rank 2" in text for text in texts] == [True, True, False, True]


def test_replication_is_refused(tmp_path: Path) -> None:
    with pytest.raises(bitsnap.UnsupportedError, match="leave --replication out"):
        bitsnap.megatron.LocalCheckpointManager(tmp_path, repl_strategy=object())


def test_a_check_finds_what_the_agent_could_not_keep_since_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = types.SimpleNamespace(error=None)
    checkpointer = types.SimpleNamespace(save=lambda *_, **__: saved)
    monkeypatch.setattr(bitsnap.megatron.LocalCheckpointManager, "_opened", lambda _: checkpointer)
    monkeypatch.setattr(_local, "register_classes", lambda: None)
    core = types.SimpleNamespace(async_request=lambda _: lambda *parts: parts)
    monkeypatch.setattr(versions, "core", lambda: core)
    manager = bitsnap.megatron.LocalCheckpointManager(tmp_path)
    _, _, (check,) = manager.save({}, 5, is_async=True)
    check()
    saved.error = bitsnap.ResourceExhaustedError("too small")
    with pytest.raises(bitsnap.ResourceExhaustedError, match="too small"):
        check()
