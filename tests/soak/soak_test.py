"""A short soak test: some kills, leftovers of a job, and 200 saves. `make soak` is the long one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from soak import memory_run
from soak.__main__ import kill_and_end, kill_and_linger
from soak.job_history import History, MemoryRule
from soak.leftovers import stray_files
from soak.soak_trainer import Journal, state_of, wrong_in

SEED = 8


@pytest.mark.slow
def test_guarantees_hold_while_a_job_is_killed(tmp_path: Path) -> None:
    tally = kill_and_end(tmp_path, 4, SEED, kills=15)
    assert tally.kills == 15
    assert tally.killed_trainers > 0
    assert tally.killed_agents > 0
    assert tally.from_memory + tally.from_store > 0


@pytest.mark.slow
def test_nothing_is_left_of_a_killed_job(tmp_path: Path) -> None:
    kill_and_linger(tmp_path, 2, SEED, kills=2)


@pytest.mark.slow
def test_memory_does_not_grow_over_two_hundred_saves(tmp_path: Path) -> None:
    result = memory_run.run(tmp_path, 200)
    assert result.kept_bytes > 0
    assert result.agent.peak > result.arena_bytes // 2
    # In so few saves, one-time allocations count too much; the long run checks the growth.
    assert [line for line in result.broken() if "second half" not in line] == []


def history_of(folder: Path, *lines: tuple[int, int, str, int, str]) -> History:
    """A history of two ranks. Each line has the rank, its restart, and an event of its journal."""
    paths = [folder / f"rank-{rank}.log" for rank in (0, 1)]
    for rank, restart, kind, step, text in lines:
        Journal(paths[rank], restart).write(kind, step, text)
    history = History(paths, MemoryRule(snapshots=2, max_depth=1))
    history.read()
    return history


def saved(rank: int, restart: int, step: int, *stages: str) -> list[tuple[int, int, str, int, str]]:
    return [(rank, restart, kind, step, "") for kind in ("begin", *stages)]


AGENT = 77
FOREVER = [1e18, 1e18]


def test_steps_reported_to_all_ranks_must_be_in_memory(tmp_path: Path) -> None:
    agents = [(rank, 1, "agent", AGENT, "") for rank in (0, 1)]
    both = [line for rank in (0, 1) for step in (1, 2) for line in saved(rank, 1, step, "staged", "memory")]
    history = history_of(tmp_path, *agents, *both, *saved(0, 1, 3, "staged"))
    assert history.kept_everywhere(AGENT, "memory", FOREVER) == {2}
    assert history.kept_everywhere(AGENT + 1, "memory", FOREVER) == set()
    assert history.newest_persisted == 0


def test_saves_of_different_restarts_do_not_match(tmp_path: Path) -> None:
    lines = [(rank, restart, "agent", AGENT, "") for restart in (1, 2) for rank in (0, 1)]
    lines += saved(0, 1, 1, "staged", "memory") + saved(1, 2, 1, "staged", "memory")
    assert history_of(tmp_path, *lines).kept_everywhere(AGENT, "memory", FOREVER) == set()


def test_steps_beyond_the_memory_limit_are_not_expected(tmp_path: Path) -> None:
    agents = [(rank, 1, "agent", AGENT, "") for rank in (0, 1)]
    first = [line for step in (1, 2, 3) for line in saved(0, 1, step, "staged", "memory")]
    history = history_of(tmp_path, *agents, *first, *saved(1, 1, 1, "staged", "memory"))
    assert history.kept_everywhere(AGENT, "memory", FOREVER) == set()


@pytest.mark.parametrize("kind", ["failed", "skipped"])
def test_a_save_may_fail_only_if_its_agent_was_killed_meanwhile(tmp_path: Path, kind: str) -> None:
    lost = "IoError: step 1 was compressed but not persisted: the agent has died" if kind == "failed" else ""
    history = history_of(tmp_path, (0, 1, "start", -1, ""), *saved(0, 1, 1, "staged"), (0, 1, kind, 1, lost))
    history_again = History([tmp_path / "rank-0.log", tmp_path / "rank-1.log"], MemoryRule(2, 1))
    failure = history_again.read()[-1]
    assert failure.kind == kind
    assert history.ranks[0].is_settled(1e18, every=1)
    assert not history.is_excused(failure)
    history.agent_deaths.append((failure.time, failure.time))
    assert history.is_excused(failure)
    history.agent_deaths[:] = [(failure.time + 1, failure.time + 2)]
    assert not history.is_excused(failure)


def test_detects_saves_that_never_end(tmp_path: Path) -> None:
    start = (0, 1, "start", -1, "")
    history = history_of(tmp_path, start, *saved(0, 1, 1, "staged", "memory"), *saved(0, 1, 2, "staged", "memory"))
    assert not history.ranks[0].is_settled(1e18, every=2)
    assert history.ranks[0].is_settled(0.0, every=2)
    assert history.ranks[0].is_settled(1e18, every=3)


def test_detects_a_wrong_bit_in_a_state() -> None:
    state = state_of(5, 1, 2, 1000)
    assert wrong_in(state, 5, 1) == ""
    assert "step" in wrong_in(state, 6, 1)
    state["moment"].view("uint8")[17] ^= 4
    assert "moment" in wrong_in(state, 5, 1)


def test_detects_files_that_no_record_names(tmp_path: Path) -> None:
    step = tmp_path / "checkpoints" / "0000000005"
    step.mkdir(parents=True)
    (step / "commit.json").write_text('{"commit":{"shards":[{"file":"a.bsnap"}]},"hash":""}')
    (step / "a.bsnap").touch()
    assert stray_files(tmp_path) == []
    (step / "b.bsnap").touch()
    (tmp_path / ".bitsnap.json.0123456789abcdef.tmp").touch()
    (tmp_path / "checkpoints" / "0000000006").mkdir()
    assert sorted(stray_files(tmp_path)) == [
        ".bitsnap.json.0123456789abcdef.tmp",
        "0000000005/b.bsnap",
        "0000000006/",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("server", ["seaweedfs", "fake-gcs"])
def test_runs_in_buckets_survive_faults(server: str) -> None:
    """In a process of its own, which forks others while it has threads."""
    pytest.importorskip("obstore")
    command = [sys.executable, "-m", "soak.object_faults", "--count", "30", "--seed", str(SEED), "--servers", server]
    environment = os.environ | {"PYTHONPATH": "tests:."}
    done = subprocess.run(command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "30 cases" in done.stdout
