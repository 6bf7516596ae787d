"""The trainer of the soak test: it restores, saves as fast as it can, and logs what the engine reports in a journal.

A state is a function of its step, its rank and the restart of the job, so anyone can check it. The ranks of a restart
proceed from step to step together, like a training with collective operations. Each line of the journal is one write,
so a killed process leaves complete lines.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import bitsnap

Floats = npt.NDArray[np.float32]

# Seconds after which a waiting call of the engine is an error.
WAIT = 60.0
# The step after the first one at which the descriptors of a trainer are counted.
COUNT_AT = 3
# Stands for the step of a state that was lost while it was restored.
LOST = -1


@dataclass(frozen=True)
class TrainerPlan:
    """The rank and the job of a trainer, and how it saves."""

    folder: Path
    job: str
    rank: int
    ranks: int
    restart: int
    every: int
    keep_last: int
    memory_snapshots: int
    max_depth: int
    budget: int
    linger: float
    elements: int
    pause: float
    """Seconds of a step besides its save."""
    is_watched: bool
    """Whether it has an on_progress, which runs on a separate thread."""

    @property
    def store(self) -> Path:
        return self.folder / "run"

    @property
    def journal(self) -> Path:
        return self.folder / f"rank-{self.rank}.log"

    @property
    def meeting(self) -> Path:
        return self.folder / f"meeting-{self.restart}"


class Meeting:
    """Shows the ranks of a restart the steps of the other ranks, in a file that all ranks map."""

    def __init__(self, path: Path, ranks: int, *, create: bool = False) -> None:
        self._numbers = np.memmap(path, dtype=np.uint64, mode="w+" if create else "r+", shape=(ranks + 1,))

    def arrive(self, rank: int, step: int) -> None:
        self._numbers[rank] = step

    def is_complete(self, step: int) -> bool:
        return bool(np.all(self._numbers[:-1] >= step))

    @property
    def farthest(self) -> int:
        return int(np.max(self._numbers[:-1]))

    @property
    def last_step(self) -> int:
        """The step after which all ranks close and end; 0 while unknown."""
        return int(self._numbers[-1])

    @last_step.setter
    def last_step(self, step: int) -> None:
        self._numbers[-1] = step


class Journal:
    """Lines with a time, a restart, a kind of event, its step and a text."""

    def __init__(self, path: Path, restart: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._restart = restart

    def write(self, kind: str, step: int = -1, text: object = "") -> None:
        line = f"{time.monotonic():.6f} {self._restart} {kind} {step} {' '.join(str(text).split())}\n"
        os.write(self._file, line.encode())


@cache
def _base(rank: int, elements: int) -> Floats:
    return np.random.default_rng(rank).standard_normal(elements, dtype=np.float32)


def state_of(step: int, rank: int, restart: int, elements: int) -> dict[str, Any]:
    """Weights that change partly with each step, a moment that changes completely, and their identity."""
    base = _base(rank, elements)
    weights = base.copy()
    weights[step % 7 :: 7] += np.float32(step)
    weights[: min(restart, elements)] = np.float32(restart)
    return {
        "step": step,
        "rank": rank,
        "restart": restart,
        "weights": weights,
        "moment": base * np.float32(1 + step % 1000),
        "counts": np.full(17, step * 1000 + restart, np.int64),
    }


def wrong_in(state: Any, step: int, rank: int) -> str:
    """Describes the first difference from the saved state; empty if there is none."""
    restart = state.get("restart") if isinstance(state, dict) else None
    if not isinstance(restart, int):
        return f"not a state of a trainer: {state!r:.200}"
    expected = state_of(step, rank, restart, len(state["weights"]))
    for key, value in expected.items():
        found = state.get(key)
        if isinstance(value, np.ndarray):
            if not isinstance(found, np.ndarray) or found.tobytes() != value.tobytes():
                return f"{key} of step {step} of rank {rank} has other bits, restart {restart}"
        elif found != value:
            return f"{key} is {found!r}, expected {value!r}"
    return "" if len(state) == len(expected) else f"keys {sorted(state)}"


def descriptor_count() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


class _Saves:
    """The unfinished saves, with the stages that the journal has."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._pending: list[tuple[bitsnap.Save, str]] = []

    def add(self, save: bitsnap.Save) -> None:
        if save.error is None:
            self._journal.write("staged", save.step)
        self._pending.append((save, "staged"))

    def look(self) -> None:
        still: list[tuple[bitsnap.Save, str]] = []
        for save, reported in self._pending:
            # done() is read first, so the stage of a finished save is its last one.
            is_over = save.done()
            stage = save.stage
            if stage != reported:
                error = save.error
                self._journal.write(stage, save.step, "" if error is None else f"{type(error).__name__}: {error}")
            if not is_over:
                still.append((save, stage))
        self._pending = still


class Trainer:
    def __init__(self, plan: TrainerPlan) -> None:
        self._plan = plan
        self._journal = Journal(plan.journal, plan.restart)
        self._saves = _Saves(self._journal)
        self._agent = -1
        self._meeting = Meeting(plan.meeting, plan.ranks)

    def run(self) -> None:
        plan, journal = self._plan, self._journal
        journal.write("start", text=os.getpid())
        descriptors = descriptor_count()
        checkpointer = bitsnap.Checkpointer(
            plan.store,
            settings=bitsnap.Settings(max_depth=plan.max_depth),
            every=plan.every,
            every_memory=1,
            keep_last=plan.keep_last,
            job=bitsnap.JobOptions(plan.job, plan.rank, plan.ranks),
            memory=bitsnap.MemoryOptions(budget=plan.budget, snapshots=plan.memory_snapshots),
            agent=bitsnap.AgentOptions(threads=1, log=plan.folder / "agent.log", linger=plan.linger),
            threads=1,
            timeout=WAIT,
            on_progress=(lambda save: None) if plan.is_watched else None,
        )
        self._note_agent(checkpointer)
        begin = self._restore(checkpointer) + 1
        for step in itertools.count(begin):
            if not self._meet(step):
                break
            self._note_agent(checkpointer)
            journal.write("begin", step)
            save = checkpointer.save(step, state_of(step, plan.rank, plan.restart, plan.elements))
            assert save is not None
            self._saves.add(save)
            self._saves.look()
            if step - begin == COUNT_AT:
                journal.write("descriptors", text=descriptor_count() - descriptors)
            time.sleep(plan.pause)
        journal.write("closing")
        try:
            checkpointer.close(WAIT)
        except bitsnap.BusyError:
            raise
        except bitsnap.BitsnapError as error:  # a failed save, which the journal has
            journal.write("raised", text=error)
        self._saves.look()
        journal.write("closed")

    def _note_agent(self, checkpointer: bitsnap.Checkpointer) -> None:
        agent = checkpointer.agent_process or 0
        if agent != self._agent:
            self._agent = agent
            self._journal.write("agent", agent)

    def _restore(self, checkpointer: bitsnap.Checkpointer) -> int:
        self._journal.write("restoring")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                restored = checkpointer.restore()
            except bitsnap.NotFoundError as error:
                # The killed agent had this step. Without torch.distributed, no other step is tried.
                self._journal.write("restored", LOST, f"0 {error}")
                signal.pause()
                raise
        for warning in caught:
            self._journal.write("warned", text=warning.message)
        if restored is None:
            self._journal.write("restored", 0, "0 nothing")
            return 0
        wrong = wrong_in(restored.state, restored.step, self._plan.rank)
        if wrong:
            self._journal.write("wrong", restored.step, f"{restored.source}: {wrong}")
        self._journal.write("restored", restored.step, f"{restored.state['restart']} {restored.source}")
        return restored.step

    def _meet(self, step: int) -> bool:
        """Waits for the other ranks; returns False at the end of the job."""
        self._meeting.arrive(self._plan.rank, step)
        while True:
            if 0 < self._meeting.last_step < step:
                return False
            if self._meeting.is_complete(step):
                return True
            self._saves.look()
            time.sleep(0.0005)


def context() -> ForkServerContext:
    """Starts processes that have all modules imported, without threads or descriptors of this process."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["numpy", "bitsnap", __name__])
    return made


def without_torch() -> None:
    """Prevents the import of torch, which takes two seconds and is not needed."""
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]


def train(plan: TrainerPlan) -> None:
    """The main function of a trainer process."""
    without_torch()
    try:
        # The journal has the errors of saves.
        warnings.simplefilter("ignore", bitsnap.BackgroundSaveWarning)
        Trainer(plan).run()
    except BaseException:
        Journal(plan.journal, plan.restart).write("error", text=traceback.format_exc())
        os._exit(3)
