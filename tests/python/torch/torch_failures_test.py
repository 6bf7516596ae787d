"""One rank dies or raises in each phase of a save or a restore of TrainingCheckpointer: the others raise in time,
and no checkpoint is lost.

A rank that dies closes its connections, which gloo's collectives on the others report.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import bitsnap
from python.engine.checkpointer_jobs import Jobs
from python.engine.dying_ranks import Failure
from python.engine.dying_trainings import begin, restore, save
from python.rank_processes import Outcome, died, ranks

pytestmark = pytest.mark.slow

RANKS = 3
GLOO_TIMEOUT_S = 20
# A busy machine has this besides.
SLACK_S = 60

SAVING = ["begin", "checksums", "state"]
RESTORING = ["steps", "parts", "look", "read", "check", "fill", "take"]
FROM_SHARDS = ["shards", "fill from shards"]
# Each is a job of its own; the other phases of a restore fail in the same collectives.
KILLED: dict[str, list[str]] = {
    "ddp": [*SAVING, "copied", "steps", "read", "fill", "send", "take"],
    "fsdp": ["state", "fill"],
}


def failures(phases: Sequence[str], *, kills: bool) -> list[Failure]:
    """On drawn ranks, but the rank that sends is the first."""
    drawn = random.Random(0)
    return [Failure(phase, 0 if phase == "send" else drawn.randrange(RANKS), kills) for phase in phases]


def raised(outcomes: list[Outcome], words: str = "") -> None:
    """All ranks that live have raised."""
    for rank, outcome in enumerate(outcomes):
        assert outcome is None or not outcome[0], f"rank {rank} did not hear of the failure"
        assert outcome is None or words in outcome[1], outcome[1]


def steps_of(folder: Path) -> list[int]:
    with bitsnap.Store(folder / "run", read_only=True) as store:
        assert not store.verify().damages
        return store.steps()


def test_all_ranks_raise_what_one_of_them_raised(tmp_path: Path, jobs: Jobs) -> None:
    folder = str(tmp_path)

    def fail(function: Callable[..., object], step: int | None, phases: Sequence[str]) -> None:
        for failure in failures(phases, kills=False):
            # Where ranks only count each other, the others hear that one of them did not come.
            words = "did not " if failure.phase == "begin" else f"planted in {failure.phase}"
            outcomes = job.outcomes(function, folder, step, failure)
            raised([outcome for rank, outcome in enumerate(outcomes) if rank != failure.rank], words)
            raised([outcomes[failure.rank]], "planted")

    with ranks(tmp_path / "meeting", RANKS, GLOO_TIMEOUT_S) as job:
        assert job.run(begin, folder, jobs.new_job(), "fsdp") == [None] * RANKS
        job.run(save, folder, 1)
        fail(restore, 1, ["begin", *RESTORING])
        assert job.run(restore, folder) == [1] * RANKS
        # Without replicas, the ranks do not wait for each other, and the step is skipped.
        outcomes = job.outcomes(save, folder, 2, Failure("state", 1))
        raised(outcomes[:1] + outcomes[2:], "step 2 is memory and not finished yet")
        raised(outcomes[1:2], "planted in state")
        job.run(save, folder, 3)
        job.run(begin, folder, jobs.new_job(), "ddp")
        fail(restore, 3, FROM_SHARDS)
        assert job.run(restore, folder) == [3] * RANKS
        fail(save, 4, SAVING)
        assert steps_of(tmp_path) == [1, 3]
        job.run(save, folder, 4)
        fail(restore, None, RESTORING)
        assert job.run(restore, folder) == [4] * RANKS
    assert steps_of(tmp_path) == [1, 3, 4]


@pytest.mark.parametrize("division", ["ddp", "fsdp"])
def test_the_others_raise_if_a_rank_dies(tmp_path: Path, jobs: Jobs, division: str) -> None:
    name, newest = jobs.new_job(), 0
    for number, failure in enumerate([*failures(KILLED[division], kills=True), None]):
        with ranks(tmp_path / f"meeting-{number}", RANKS, GLOO_TIMEOUT_S) as job:
            # It goes on where the job before it ended, with the step that failed.
            assert job.run(begin, str(tmp_path), name, division) == [newest or None] * RANKS
            newest += 1
            job.run(save, str(tmp_path), newest)
            if failure is None:
                break
            is_restore = failure.phase in (*RESTORING, "send")
            begun = time.monotonic()
            outcomes = job.outcomes(
                restore if is_restore else save, str(tmp_path), None if is_restore else newest + 1, failure
            )
            assert time.monotonic() - begun < GLOO_TIMEOUT_S + SLACK_S
            assert died(outcomes) == [failure.rank]
            if failure.phase == "copied":  # the agent has the states of all ranks
                newest += 1
            else:
                raised(outcomes)
    assert steps_of(tmp_path) == list(range(1, newest + 1))
