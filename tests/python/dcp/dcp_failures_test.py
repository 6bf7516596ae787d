"""One rank dies or raises in each phase of a save or a load of DCP: the others raise, and no checkpoint is lost.

A rank that dies closes its connections, which gloo's collectives on the others report. If a rank raises where DCP
exchanges no errors, the others wait for it as long as the timeout of the process group.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import bitsnap
from python.engine.dying_ranks import Failure, load_on_rank, save_on_rank, values_of
from python.rank_processes import Outcome, Ranks, died, ranks

pytestmark = pytest.mark.slow

RANKS = 3
GLOO_TIMEOUT_S = 10
# A busy machine has this besides.
SLACK_S = 60

OF_ALL = ["setup", "local plan", "second tensor", "write", "written"]
OF_COORDINATOR = ["global plan", "commit", "committed"]
LOADING = ["metadata", "load plan", "read", "done"]


def failures(phases: Sequence[str], *, kills: bool) -> list[Failure]:
    """One for each phase, on drawn ranks; ranks that are killed while they write or commit die some time later."""
    drawn = random.Random(0)
    made = []
    for phase in phases:
        rank = 0 if phase in OF_COORDINATOR else drawn.randrange(RANKS)
        made.append(Failure(phase, rank, kills))
        if kills and phase in ("write", "commit", "read"):
            made += [Failure(phase, rank, kills, drawn.uniform(0.0005, 0.02)) for _ in range(2)]
    return made


class Run:
    """A store, its newest step, and the step that has failed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "run"
        self.newest = 0
        self.jobs = 0

    def job(self) -> contextlib.AbstractContextManager[Ranks]:
        self.jobs += 1
        return ranks(self.folder / f"meeting-{self.jobs}", RANKS, GLOO_TIMEOUT_S)

    def is_intact(self, *, may_be_next: bool = False) -> None:
        """All checkpoints are there, but for the failed step, which is there completely or not at all."""
        with bitsnap.Store(self.path) as store:
            if may_be_next and store.latest() == self.newest + 1:
                self.newest += 1
            assert store.latest() == self.newest
            assert not store.verify().damages
            for step in store.steps():
                for name, factor in (("first", 1), ("second", 2)):
                    whole = torch.zeros(values_of(step).shape)
                    store.read_into(step, [(name, (0, 0), whole)])
                    assert torch.equal(whole, values_of(step) * factor)
            store.prune(keep_last=2)
            steps = store.steps()
        # Of a failed step, nothing stays when it has been saved.
        for step in steps:
            files = list((self.path / "checkpoints").glob(f"*{step:010}/*.bsnap"))
            assert sorted(file.name.partition("-")[0] for file in files) == ["files"] + ["shard"] * RANKS
        assert all(int(path.name) <= self.newest + 1 for path in (self.path / "checkpoints").glob("[0-9]*"))


def raised(outcomes: list[Outcome], ranks: Sequence[int], words: str = "") -> None:
    for rank in ranks:
        outcome = outcomes[rank]
        assert outcome is not None
        assert not outcome[0], f"rank {rank} did not hear of the failure"
        assert words in outcome[1], outcome[1]


@pytest.mark.parametrize("how", ["save", "thread"])
def test_all_ranks_raise_what_one_of_them_raised_in_a_save(tmp_path: Path, how: str) -> None:
    run = Run(tmp_path)
    with ranks(tmp_path / "meeting", RANKS, 60) as job:
        job.run(save_on_rank, str(run.path), 1)
        run.newest = 1
        for failure in failures(OF_ALL + OF_COORDINATOR, kills=False):
            outcomes = job.outcomes(save_on_rank, str(run.path), run.newest + 1, how, failure)
            raised(outcomes, range(RANKS), f"planted in {failure.phase}")
            run.is_intact(may_be_next=failure.phase == "committed")
            step = run.newest + (failure.phase != "committed")
            job.run(save_on_rank, str(run.path), step, how)
            run.newest = step
            job.run(load_on_rank, str(run.path), step)
        for failure in failures(LOADING, kills=False):
            raised(job.outcomes(load_on_rank, str(run.path), run.newest, failure), range(RANKS), "planted")
            job.run(load_on_rank, str(run.path), run.newest)
        run.is_intact()


def phases_of_killing(how: str) -> list[Failure]:
    if how == "load":
        return failures(LOADING, kills=True)
    return failures((["staging", "staged"] if how == "thread" else []) + OF_ALL + OF_COORDINATOR, kills=True)


@pytest.mark.parametrize("how", ["save", "thread", "load"])
def test_ranks_raise_if_one_of_them_dies(tmp_path: Path, how: str) -> None:
    run = Run(tmp_path)
    for failure in [*phases_of_killing(how), None]:
        with run.job() as job:
            # A job that goes on where the one before ended, with the step that failed.
            step = run.newest + 1
            job.run(save_on_rank, str(run.path), step)
            run.newest = step
            job.run(load_on_rank, str(run.path), step)
            if failure is None:
                break
            begun = time.monotonic()
            if how == "load":
                outcomes = job.outcomes(load_on_rank, str(run.path), step, failure)
            else:
                outcomes = job.outcomes(save_on_rank, str(run.path), step + 1, how, failure)
            assert time.monotonic() - begun < GLOO_TIMEOUT_S + SLACK_S
            if failure.after_s == 0:
                assert died(outcomes) == [failure.rank]
                raised(outcomes, [rank for rank in range(RANKS) if rank != failure.rank])
            else:
                assert died(outcomes) in ([], [failure.rank])  # the save may have been faster
        run.is_intact(may_be_next=failure.after_s > 0 or failure.phase == "committed")
    run.is_intact()


def test_ranks_do_not_wait_longer_than_gloo_for_one_that_could_not_stage(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with run.job() as job:
        job.run(save_on_rank, str(run.path), 1)
        begun = time.monotonic()
        outcomes = job.outcomes(save_on_rank, str(run.path), 2, "thread", Failure("staging", 1))
        assert time.monotonic() - begun < GLOO_TIMEOUT_S + SLACK_S
        raised(outcomes, range(RANKS))
    run.newest = 1
    run.is_intact()
    with run.job() as job:
        job.run(save_on_rank, str(run.path), 2, "thread")
        job.run(load_on_rank, str(run.path), 2)


def test_a_process_saves_for_each_rank(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with ranks(tmp_path / "meeting", RANKS, 60) as job:
        job.run(save_on_rank, str(run.path), 1, "process")
        job.run(load_on_rank, str(run.path), 1)
        run.newest = 1
        for failure in (Failure("written", 1), Failure("commit", 0)):
            outcomes = job.outcomes(save_on_rank, str(run.path), run.newest + 1, "process", failure)
            raised(outcomes, range(RANKS), f"planted in {failure.phase}")
            run.is_intact()
            run.newest += 1
            job.run(save_on_rank, str(run.path), run.newest, "process")
            job.run(load_on_rank, str(run.path), run.newest)
        run.is_intact()
