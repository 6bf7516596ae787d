"""Saves to paths through agents: what the paths lead to before, while and after the agent commits."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bitsnap
from bitsnap._references import FOLDER_REFERENCE, Saved, refer, reference_of
from bitsnap._runs.folder_saves import FolderSaves, is_ours
from bitsnap._runs.opened_runs import Options
from bitsnap._runs.path_checkpoints import step_of
from bitsnap._runs.path_saves import PathSaves
from python.processes import finish_script, start_script
from python.runs.path_checkpoints_test import labels, state_of, steps, value_at


@pytest.fixture
def saves(tmp_path: Path) -> Iterator[PathSaves]:
    agent = bitsnap.AgentOptions(linger=2)
    made = PathSaves(Options(agent=agent, timeout=60, threads=1))
    yield made
    with suppress(bitsnap.BitsnapError):
        made.close()
    with pytest.raises(bitsnap.NotFoundError):
        bitsnap.agent_status(tmp_path / "bitsnap")


def test_a_path_leads_to_its_newest_save_and_the_end_removes_the_others(tmp_path: Path, saves: PathSaves) -> None:
    saves.save(tmp_path / "last.ckpt", 5, state_of(1))
    saves.save(tmp_path / "a.ckpt", 5, state_of(2))
    saves.save(tmp_path / "last.ckpt", 6, state_of(3))
    saves.save(tmp_path / "b" / "a.ckpt", 6, state_of(4))
    assert [value_at(tmp_path / name) for name in ("last.ckpt", "a.ckpt", "b/a.ckpt")] == [3, 2, 4]
    assert saves.remove(tmp_path / "a.ckpt")
    assert not saves.remove(tmp_path / "c" / "a.ckpt")
    saves.close()
    assert steps(tmp_path) == [7]
    assert labels(tmp_path) == {"last.ckpt": 7}
    assert labels(tmp_path / "b") == {"a.ckpt": 6}
    saves.save(tmp_path / "last.ckpt", 8, state_of(5))
    assert value_at(tmp_path / "last.ckpt") == 5


def test_who_else_wants_to_write_hears_of_the_agent(tmp_path: Path, saves: PathSaves) -> None:
    saves.save(tmp_path / "last.ckpt", 1, state_of(1))
    assert saves.wait()
    with pytest.raises(bitsnap.BusyError) as caught:
        bitsnap.Store(tmp_path / "bitsnap")
    process = bitsnap.agent_status(tmp_path / "bitsnap")["process"]
    [note] = caught.value.__notes__
    assert f"Process {process} is the agent" in note
    assert f"bitsnap agent stop {tmp_path / 'bitsnap'}" in note


def test_an_agent_that_waits_for_the_store_itself_is_not_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    hold = "import sys, bitsnap; store = bitsnap.Store(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    holder = start_script(hold, run, stdin=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    checkpointer = bitsnap.Checkpointer(run, agent=bitsnap.AgentOptions(linger=1), timeout=60)
    save = checkpointer.save(1, state_of(1))
    assert bitsnap.agent_status(run)["process"] != holder.pid
    with pytest.raises(bitsnap.BusyError, match=f"process {holder.pid} holds it") as caught:
        bitsnap.Store(run)
    assert not hasattr(caught.value, "__notes__")
    finish_script(holder)
    assert save is not None
    save.result(60)
    checkpointer.close()
    bitsnap.stop_agent(run)


def test_replaced_steps_leave_the_run_during_a_long_training(tmp_path: Path, saves: PathSaves) -> None:
    most = 0
    for value in range(20):
        saves.save(tmp_path / "last.ckpt", value, state_of(value))
        assert saves.wait()
        most = max(most, len(steps(tmp_path)))
    assert most <= 3  # those before go with the next save
    assert value_at(tmp_path / "last.ckpt") == 19


def test_rotated_steps_leave_the_run_and_nothing_else_is_held_for_those_that_stay(
    tmp_path: Path, saves: PathSaves
) -> None:
    for value in range(12):
        saves.save(tmp_path / f"{value}.ckpt", value, state_of(value), kept=2)
        if value >= 2:
            saves.remove(tmp_path / f"{value - 2}.ckpt")
        assert saves.wait()
        assert len(steps(tmp_path)) <= 4
        with bitsnap.Store(tmp_path / "bitsnap", read_only=True) as store:
            assert store.checkpoints()[-1].depth <= 1
    saves.close()
    assert steps(tmp_path) == [10, 11]
    assert [value_at(tmp_path / f"{value}.ckpt") for value in (10, 11)] == [10, 11]


def slow_state() -> dict[str, Any]:
    """Takes an agent with one thread some tenths of a second, so that the save returns before it fails."""
    return {"w": np.random.default_rng(1).standard_normal(24_000_000, np.float32)}


def block(run: Path, step: int) -> Path:
    """Makes the save of a step fail, as other files in the directory of the run would."""
    obstacle = run / "checkpoints" / f"{step:010d}"
    obstacle.touch()
    return obstacle


def test_a_save_that_was_not_committed_leaves_the_one_before_with_a_warning(tmp_path: Path, saves: PathSaves) -> None:
    path = tmp_path / "last.ckpt"
    saves.save(path, 1, state_of(1), kept=1)
    assert value_at(path) == 1
    obstacle = block(tmp_path / "bitsnap", 2)
    saves.save(path, 2, slow_state(), kept=1)
    assert not saves.wait()
    obstacle.unlink()
    assert saves.uncommitted() == 1
    with pytest.warns(bitsnap.RestoreWarning, match="step 2 .* was not committed; the one before, step 1, is read"):
        assert value_at(path) == 1
    with pytest.warns(bitsnap.BackgroundSaveWarning):
        saves.save(tmp_path / "after.ckpt", 3, state_of(4))
    assert value_at(tmp_path / "after.ckpt") == 4
    assert step_of(tmp_path / "after.ckpt").step == 3
    assert saves.wait()
    assert saves.uncommitted() == 0


def test_a_save_that_an_agent_lost_is_missed_while_the_next_agent_is_there(tmp_path: Path, saves: PathSaves) -> None:
    saves.save(tmp_path / "a.ckpt", 1, state_of(1))
    assert saves.wait()
    saved = reference_of(tmp_path / "a.ckpt")
    assert bitsnap.agent_status(tmp_path / "bitsnap")["ranks"]
    refer(tmp_path / "b.ckpt", tmp_path / "bitsnap", saved.run_id, (Saved(2, "lost"),))
    with pytest.raises(bitsnap.NotFoundError, match=r"step 2 was staged and is lost; the newest .* is 1, .* is idle"):
        step_of(tmp_path / "b.ckpt")
    refer(tmp_path / "b.ckpt", tmp_path / "bitsnap", saved.run_id, (Saved(2, "lost"), *saved.saves))
    with pytest.warns(bitsnap.RestoreWarning, match="step 2 was staged and is lost"):
        assert step_of(tmp_path / "b.ckpt").step == 1


def test_a_path_is_removed_when_a_newer_checkpoint_is_there(tmp_path: Path, saves: PathSaves) -> None:
    saves.save(tmp_path / "a.ckpt", 1, state_of(1), kept=1)
    assert saves.wait()
    obstacle = block(tmp_path / "bitsnap", 2)
    saves.save(tmp_path / "b.ckpt", 2, slow_state(), kept=1)
    saves.remove(tmp_path / "a.ckpt")
    assert value_at(tmp_path / "a.ckpt") == 1  # a crash now would lose the newer one
    assert not saves.wait()
    obstacle.unlink()
    with pytest.warns(bitsnap.BackgroundSaveWarning):
        saves.save(tmp_path / "c.ckpt", 2, state_of(3))
    assert value_at(tmp_path / "a.ckpt") == 1
    assert saves.wait()
    saves.remove(tmp_path / "b.ckpt")
    with pytest.raises(bitsnap.BitsnapError, match="step 2"):
        saves.close()
    assert [path.name for path in tmp_path.glob("*.ckpt")] == ["c.ckpt"]
    assert value_at(tmp_path / "c.ckpt") == 3


def test_a_state_that_cannot_be_stored_leaves_the_path_as_it_was(tmp_path: Path, saves: PathSaves) -> None:
    (tmp_path / "folder").mkdir()
    saves.save(tmp_path / "last.ckpt", 1, state_of(1))
    with pytest.raises(bitsnap.InvalidArgumentError, match=r"state\['value'\]"):
        saves.save(tmp_path / "last.ckpt", 2, {"value": object()})
    with pytest.raises(bitsnap.ExistsError, match="is a directory"):
        saves.save(tmp_path / "folder", 2, state_of(2))
    assert value_at(tmp_path / "last.ckpt") == 1


@pytest.mark.parametrize("agent", [None, bitsnap.AgentOptions(linger=2)])
def test_what_a_framework_has_saved_itself_goes_when_the_save_over_it_is_committed(
    tmp_path: Path, agent: bitsnap.AgentOptions | None
) -> None:
    stock = tmp_path / "a" / "optimizer.pt"
    stock.parent.mkdir()
    stock.touch()
    folders = FolderSaves(Options(agent=agent))
    folders.save(stock.parent, 1, state_of(1))
    assert stock.exists() == (agent is not None)
    assert is_ours(stock.parent)
    folders.close()
    assert value_at(stock.parent / FOLDER_REFERENCE) == 1
