"""Measures the memory of trainer and agent from outside while one trainer saves thousands of times.

The bounds are those of docs/guide/engine.md: the arena and the compressed snapshots together take at most the budget.
In addition, each process takes a constant that does not grow with the number of saves.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import bitsnap
from soak.growing_file import GrowingFile
from soak.leftovers import agents_of, is_alive
from soak.soak_trainer import Journal, context, without_torch

MIB = 1 << 20
# The memory of an agent besides the snapshots, and of the engine in a trainer besides the arena: threads, their
# allocators, a restored state. Measured in docs/measurements.md, plus a margin.
AGENT_MARGIN = 48 * MIB
TRAINER_MARGIN = 24 * MIB
# The largest allowed growth from the first half of a run to the second.
LARGEST_GROWTH = 1.05
# The part of a run that is not measured, in which one-time allocations happen.
WARM_UP = 0.1
_SAMPLE_SECONDS = 0.005
_ROLLUP_EVERY = 20


@dataclass(frozen=True)
class Saving:
    folder: Path
    job: str
    saves: int
    elements: int
    budget: int
    every: int = 10

    @property
    def store(self) -> Path:
        return self.folder / "run"

    @property
    def journal(self) -> Path:
        return self.folder / "memory.log"


@dataclass
class Held:
    """The peak memory of a process in a run and in each half of it."""

    own: int = 0  # before the engine started
    anonymous: int = 0
    shared: int = 0
    peak: int = 0  # of both together
    proportional: int = 0  # with shared pages divided among the processes that share them
    halves: list[int] = field(default_factory=lambda: [0, 0])

    def note(self, anonymous: int, shared: int, half: int | None) -> None:
        self.anonymous = max(self.anonymous, anonymous)
        self.shared = max(self.shared, shared)
        self.peak = max(self.peak, anonymous + shared)
        if half is not None:
            self.halves[half] = max(self.halves[half], anonymous + shared)

    @property
    def growth(self) -> float:
        return self.halves[1] / self.halves[0] if self.halves[0] else 1.0


@dataclass
class MemoryResult:
    saves: int
    state_bytes: int
    budget: int
    arena_bytes: int
    kept_bytes: int
    """The largest compressed size that the agent reported."""
    seconds: float
    trainer: Held
    agent: Held

    def broken(self) -> list[str]:
        """Describes the exceeded bounds."""
        found = []
        if self.arena_bytes + self.kept_bytes > self.budget:
            found.append(f"arena {self.arena_bytes} and snapshots {self.kept_bytes} exceed the budget {self.budget}")
        bounds = {
            "agent": (self.agent, self.budget + AGENT_MARGIN),
            "trainer": (self.trainer, self.trainer.own + self.arena_bytes + TRAINER_MARGIN),
        }
        for name, (held, bound) in bounds.items():
            if held.peak > bound:
                found.append(f"the {name} took {held.peak} bytes, expected at most {bound}")
            if held.growth > LARGEST_GROWTH:
                found.append(
                    f"the {name} took {held.halves[1]} bytes in the second half, {held.halves[0]} in the first"
                )
        return found


def resident(process: int) -> tuple[int, int]:
    """The resident anonymous and shared bytes."""
    found = {}
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssShmem"):
            found[name] = int(value.split()[0]) << 10
    return found["RssAnon"], found["RssShmem"]


def proportional(process: int) -> int:
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def save_many(saving: Saving) -> None:
    """The main function of the trainer."""
    without_torch()
    journal = Journal(saving.journal, 1)
    rng = np.random.default_rng(1)
    state = {name: rng.standard_normal(saving.elements, dtype=np.float32) for name in ("weights", "moment", "square")}
    journal.write("start", os.getpid(), sum(resident(os.getpid())))
    with bitsnap.Checkpointer(
        saving.store,
        keep_last=3,
        every=saving.every,
        every_memory=1,
        job=bitsnap.JobOptions(saving.job),
        memory=bitsnap.MemoryOptions(budget=saving.budget),
        agent=bitsnap.AgentOptions(threads=1, linger=20),
        threads=1,
        timeout=60,
    ) as checkpointer:
        journal.write("agent", checkpointer.agent_process or 0)
        for step in range(1, saving.saves + 1):
            state["weights"][step % 5 :: 5] += np.float32(1e-3)
            state["moment"] *= np.float32(0.9)
            state["moment"] += np.float32(step)
            checkpointer.save(step, state)
            journal.write("begin", step, checkpointer.arena_bytes)
        checkpointer.wait()
        restored = checkpointer.restore()
        assert restored is not None
        assert restored.step == saving.saves
        assert all(restored.state[name].tobytes() == value.tobytes() for name, value in state.items())
        journal.write("closed")


class _Watch:
    """The contents of the journal so far."""

    def __init__(self, saving: Saving) -> None:
        self._saving = saving
        self._journal = GrowingFile(saving.journal)
        self.own = self.agent = self.step = self.arena_bytes = 0
        self.is_over = False

    def read(self) -> None:
        for line in self._journal.new_lines():
            _, _, kind, number, *text = line.split(" ", 4)
            if kind == "start":
                self.own = int(text[0])
            elif kind == "agent":
                self.agent = int(number)
            elif kind == "begin":
                self.step, self.arena_bytes = int(number), int(text[0])
            elif kind == "closed":
                self.is_over = True

    @property
    def half(self) -> int | None:
        done = self.step / self._saving.saves
        # At the end, it restores, which takes one more state.
        return int(done > (1 + WARM_UP) / 2) if WARM_UP <= done < 1 else None


def run(folder: Path, saves: int, *, elements: int = 350_000) -> MemoryResult:
    """Lets a process save `saves` times, and measures it and its agent."""
    folder.mkdir(parents=True, exist_ok=True)
    state_bytes = 3 * 4 * elements
    # The arena, plus slightly less than the chains of two compressed snapshots, so the agent must evict some.
    budget = 2 * (state_bytes + 2 * MIB) + 4 * state_bytes
    saving = Saving(folder, f"soak-{os.getpid()}-memory", saves, elements, budget)
    process = context().Process(target=save_many, args=(saving,), daemon=True)
    watch, trainer, agent = _Watch(saving), Held(), Held()
    kept = 0
    began = time.monotonic()
    process.start()
    assert process.pid is not None
    try:
        for sample in range(1 << 40):
            if process.exitcode is not None or watch.is_over:
                break
            watch.read()
            for number, held in ((process.pid, trainer), (watch.agent, agent)):
                if number == 0:
                    continue
                with suppress(OSError, KeyError):
                    held.note(*resident(number), watch.half)
                    if sample % _ROLLUP_EVERY == 0:
                        held.proportional = max(held.proportional, proportional(number))
            if watch.agent != 0 and sample % _ROLLUP_EVERY == 0:
                with suppress(bitsnap.BitsnapError):
                    ranks = bitsnap.agent_status(job=saving.job)["ranks"]
                    kept = max([kept, *(rank["memory_bytes"] for rank in ranks)])
            time.sleep(_SAMPLE_SECONDS)
        process.join(60)
        watch.read()
        if process.exitcode != 0 or not watch.is_over:
            raise RuntimeError(f"the trainer ended with {process.exitcode} after step {watch.step}")
    finally:
        process.kill()
        with suppress(bitsnap.NotFoundError):
            bitsnap.stop_agent(job=saving.job, timeout=60)
        assert not any(is_alive(left) for left in agents_of(saving.job))
    trainer.own = watch.own
    seconds = time.monotonic() - began
    return MemoryResult(saves, state_bytes, budget, watch.arena_bytes, kept, seconds, trainer, agent)
