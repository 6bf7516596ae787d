"""A job whose trainers and agent are killed again and again while its guarantees are checked.

At random moments, trainers or the agent are killed and started again: all ranks together, as torchrun does, or one
rank alone. After each restart, the journals are compared with the guarantees of docs/guide/engine.md. A violation ends
the test.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import bitsnap
from soak.job_history import Event, History, MemoryRule
from soak.leftovers import NO_TRACES, Traces, agents_of, is_alive, left_of, stray_files, traces_of
from soak.soak_trainer import LOST, Meeting, TrainerPlan, context, train, wrong_in

# Seconds without progress after which a guarantee counts as violated.
PATIENCE = 60.0
# Seconds for which a killed process may still act.
DEATH_SECONDS = 0.05
# The most descriptors that the engine may open in a trainer.
MOST_DESCRIPTORS = 16

EARLY_MOMENTS = ("start", "attached", "restoring", "restored")
MOMENTS = ("begin", "staged", "memory", "persisted", "random")
VICTIMS = ("one", "all", "agent", "agent", "agent and all", "agent and one")


class ViolatedGuaranteeError(Exception):
    pass


@dataclass(frozen=True)
class Kill:
    """Which processes are killed, how many seconds after which moment, and which are started again."""

    moment: str
    victims: str
    rank: int
    delay: float
    is_alone: bool
    """Only the killed rank is started again, while the others continue."""

    @property
    def hits_agent(self) -> bool:
        return "agent" in self.victims

    def __str__(self) -> str:
        back = " alone" if self.is_alone else ""
        return f"{self.victims} (rank {self.rank}) {self.delay * 1e3:.1f} ms after '{self.moment}', back{back}"


@dataclass
class Tally:
    """A summary of the test of one job."""

    ranks: int
    kills: int = 0
    killed_trainers: int = 0
    killed_agents: int = 0
    from_memory: int = 0
    from_store: int = 0
    excused: int = 0
    verified: int = 0
    longest_recovery: float = 0.0
    seconds: float = 0.0
    events: dict[str, int] = field(default_factory=dict)
    descriptors: int = 0


class KilledJob:
    """A job in its own folder. `say` receives progress messages."""

    def __init__(
        self,
        folder: Path,
        ranks: int,
        seed: int,
        *,
        linger: float = 20.0,
        elements: int = 20_000,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._random = random.Random(seed)
        self._say = say
        self._context = context()
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ranks = ranks
        self._linger = linger
        self._elements = elements
        self.job = f"soak-{os.getpid()}-{ranks}-{seed}"
        self._rule = MemoryRule(self._random.randint(2, 4), self._random.randint(1, 3))
        self._every = self._random.randint(2, 6)
        self._restart = 0
        self._processes: dict[int, multiprocessing.process.BaseProcess] = {}
        self._history = History([self._plan(rank).journal for rank in range(ranks)], self._rule)
        self._is_fresh = False  # all ranks were started together, and none was killed since
        self._started = [0.0] * ranks
        self._since = [0.0] * ranks  # a rank has recovered when a save that began later is persisted
        self._recovered = True
        self._returned: list[int] = []  # the ranks started last
        self._is_unchecked = False  # their restored states
        self._persisted_before = 0  # when they were started, like the next two
        self._kept_before: dict[str, set[int]] = {}
        self._agent_before = 0
        self._agent_died_since_start = False
        self._events: list[Event] = []  # read since the wait for a moment began
        self._traces: Traces = NO_TRACES
        self.tally = Tally(ranks)

    # Actions.

    def run(self, kills: int) -> None:
        began = time.monotonic()
        try:
            self._start_all()
            for number in range(kills):
                kill = self._choose()
                self._say(f"{self._ranks} ranks, kill {number + 1}: {kill}")
                if kill.moment not in EARLY_MOMENTS:
                    self._recover()
                self._wait_for(kill)
                self._strike(kill)
                self.tally.kills += 1
                if number % 10 == 9:
                    self._check_store()
            self._recover()
        finally:
            self.tally.seconds += time.monotonic() - began
            self.tally.events = dict(self._history.counts)
            self.tally.descriptors = self._history.largest_descriptors

    def finish(self) -> None:
        """Lets all ranks end in order."""
        self._note_traces()
        meeting = Meeting(self._plan(0).meeting, self._ranks)
        meeting.last_step = (meeting.farthest // self._every + 2) * self._every
        self._await("all ranks have closed", lambda: all(rank.ended is not None for rank in self._history.ranks))
        for process in self._processes.values():
            process.join(PATIENCE)
        self._processes.clear()
        if self._history.newest_persisted != meeting.last_step:
            self._break(
                f"close() returned at step {meeting.last_step}, but step {self._history.newest_persisted} is persisted"
            )

    def kill_all_trainers(self) -> None:
        self._note_traces()
        self._kill_trainers(range(self._ranks))

    def start_again(self) -> None:
        self._start_all()
        self._recover()

    def stop_agent(self) -> None:
        bitsnap.stop_agent(job=self.job, timeout=PATIENCE)

    def await_lingering(self) -> None:
        """Waits until the agent has ended by itself, and checks that it lingered long enough."""
        began = time.monotonic()
        agents = agents_of(self.job)
        self._await("the agent has ended", lambda: not any(is_alive(agent) for agent in agents))
        if agents and time.monotonic() - began < self._linger * 0.8:
            self._break(
                f"the agent ended {time.monotonic() - began:.1f} s after the trainers, expected {self._linger} s"
            )

    def abandon(self) -> None:
        """Ends all processes of the job, also after a failure."""
        for rank in list(self._processes):
            self._kill_trainers([rank])
        with suppress(bitsnap.BitsnapError):
            bitsnap.stop_agent(job=self.job, abandon=True, timeout=10)
        for agent in agents_of(self.job):
            with suppress(OSError):
                os.kill(agent, signal.SIGKILL)

    # Checks.

    def check_nothing_left(self, *, is_settled: bool) -> None:
        """Checks for processes, socket names and memory; if `is_settled`, also for files that no record names."""
        left = left_of(self.job, self._traces, [os.getpid()])
        if left:
            self._break("left behind: " + "; ".join(left))
        with bitsnap.Store(self._plan(0).store):
            pass
        stray = stray_files(self._plan(0).store)
        if is_settled and stray:
            self._break(f"after the next writer, the store still has {', '.join(stray)}")
        log = self._folder / "agent.log"
        lines = log.read_text().splitlines() if log.exists() else []
        unexpected = [line for line in lines if not line.endswith("already has an agent")]
        if unexpected:
            self._break(f"the agent's log has: {' '.join(unexpected)[:500]}")

    def _check_store(self) -> None:
        """Checks that all listed checkpoints are complete, of one restart, and bit for bit what was saved."""
        if not (self._plan(0).store / "bitsnap.json").exists():
            return
        store = bitsnap.Store(self._plan(0).store, read_only=True)
        for step in store.steps():
            try:
                states = [store.load(step, shard=rank) for rank in range(self._ranks)]
            except bitsnap.NotFoundError:
                if step in store.steps():
                    raise
                continue  # pruned meanwhile
            wrong = [wrong_in(state, step, rank) for rank, state in enumerate(states)]
            restarts = {state["restart"] for state in states}
            if any(wrong) or len(restarts) != 1:
                self._break(f"the store's step {step}: restarts {restarts} {'; '.join(filter(None, wrong))}")
            self.tally.verified += 1

    def check_store(self) -> None:
        """The same with all checksums, for a store without writers."""
        self._check_store()
        with bitsnap.Store(self._plan(0).store, read_only=True) as store:
            store.verify()

    def _recover(self) -> None:
        """Waits until every rank has restored and persisted a new save, and checks the guarantees."""
        began = time.monotonic()
        self._await("all ranks have restored", lambda: all(map(self._has_restored, range(self._ranks))))
        while self._is_unchecked and not self._check_restored():
            self._kill_trainers(range(self._ranks))
            self._start_all()
            self._await("all ranks have restored", lambda: all(map(self._has_restored, range(self._ranks))))
        self._await("a new save of all ranks is persisted", lambda: all(map(self._has_persisted, range(self._ranks))))
        self._await("all earlier saves have ended", lambda: all(map(self._has_settled, range(self._ranks))))
        if not self._recovered:
            self.tally.longest_recovery = max(self.tally.longest_recovery, time.monotonic() - began)
            self._note_traces()
        self._recovered = True
        self._is_unchecked = False
        if self._history.largest_descriptors >= MOST_DESCRIPTORS:
            self._break(f"the engine opened {self._history.largest_descriptors} descriptors in a trainer")

    def _has_restored(self, rank: int) -> bool:
        history = self._history.ranks[rank]
        return history.restored is not None and history.started >= self._started[rank]

    def _has_persisted(self, rank: int) -> bool:
        return any(began >= self._since[rank] for began, _ in self._history.ranks[rank].persisted_since_start)

    def _has_settled(self, rank: int) -> bool:
        return self._history.ranks[rank].is_settled(self._since[rank], self._every)

    def _check_restored(self) -> bool:
        """Returns False if the ranks must start again, as ranks of a training would that find different steps."""
        restored = [self._history.ranks[rank].restored for rank in self._returned]
        found = [(event.step, event.text.split()[0]) for event in restored if event is not None]
        for event in restored:
            assert event is not None
            if event.text.endswith("memory"):
                self.tally.from_memory += 1
            elif event.text.endswith("store"):
                self.tally.from_store += 1
        # The ranks do not talk to each other, so they may differ if the memory is lost between two restores.
        is_one = len(set(found)) == 1 and found[0][0] != LOST
        if not is_one and not self._agent_died_since_start:
            self._break(f"the ranks restored different states: {found}")
        expected = {"persisted": self._persisted_before}
        agents = agents_of(self.job)
        if self._agent_before and agents == [self._agent_before] and not self._agent_died_since_start:
            expected |= {stage: self._expected_of_memory(stage) for stage in ("staged", "memory")}
        for stage, step in expected.items():
            if any(LOST < found_step < step for found_step, _ in found):
                self._break(f"step {step} was reported as {stage}, but the ranks restored {found}")
        return is_one

    def _expected_of_memory(self, stage: str) -> int:
        kept = self._kept_before[stage]
        if len(self._returned) < self._ranks:
            # The others continued until the returned rank had restored, and their saves replaced older ones.
            events = [self._history.ranks[rank].restored for rank in self._returned]
            until = [max(event.time for event in events if event is not None)] * self._ranks
            for rank in self._returned:
                until[rank] = self._started[rank]
            kept = kept & self._history.kept_everywhere(self._agent_before, stage, until)
        return max(kept, default=0)

    def _look(self) -> list[Event]:
        """Reads the journals, and fails on events that must never happen."""
        events = self._history.read()
        self._events += events
        for event in events:
            if event.kind in ("wrong", "error"):
                self._break(str(event))
            if event.kind in ("failed", "skipped", "warned"):
                if not self._history.is_excused(event):
                    self._break(f"unexpected: {event}")
                self.tally.excused += 1
        for rank, process in self._processes.items():
            if process.exitcode not in (None, 0):
                self._break(f"rank {rank} ended with {process.exitcode}")
        return events

    # Steps of the actions.

    def _choose(self) -> Kill:
        pick = self._random
        moments = MOMENTS + (EARLY_MOMENTS if self._is_fresh and not self._recovered else ())
        moment = pick.choice(moments)
        victims = pick.choice(VICTIMS)
        is_alone = "one" in victims and moment not in EARLY_MOMENTS and pick.random() < 0.4
        longest = {"random": 0.3, "start": 0.1}.get(moment, 0.005)
        return Kill(moment, victims, pick.randrange(self._ranks), pick.uniform(0, longest), is_alone)

    def _wait_for(self, kill: Kill) -> None:
        kind = {"attached": "agent"}.get(kill.moment, kill.moment)
        if kill.moment not in EARLY_MOMENTS:
            self._look()
            self._events.clear()
        if kind not in ("random", "start"):

            def has_come() -> bool:
                return any(event.kind == kind and event.rank == kill.rank for event in self._events)

            self._await(f"'{kind}' of rank {kill.rank}", has_come)
        time.sleep(kill.delay)

    def _strike(self, kill: Kill) -> None:
        trainers = {"one": [kill.rank], "all": list(range(self._ranks))}.get(
            kill.victims.removeprefix("agent and "), []
        )
        if kill.hits_agent and self._random.random() < 0.5:
            self._kill_agent()
            self._kill_trainers(trainers)
        else:
            self._kill_trainers(trainers)
            if kill.hits_agent:
                self._kill_agent()
        if trainers and not kill.is_alone:
            # Like torchrun after a failure, and not immediately.
            time.sleep(self._random.uniform(0, 0.05))
            self._kill_trainers(range(self._ranks))
            self._start_all()
        elif trainers:
            time.sleep(self._random.uniform(0, 0.05))
            self._start([kill.rank])
        if not trainers and self._random.random() < 0.3:
            # And the next agent as soon as it exists.
            self._await("the next agent", lambda: bool(agents_of(self.job)))
            time.sleep(self._random.uniform(0, 0.03))
            self._kill_agent()

    def _start_all(self) -> None:
        self._restart += 1
        Meeting(self._plan(0).meeting, self._ranks, create=True)
        self._history.note_full_start(time.monotonic())
        self._is_fresh = True
        self._start(range(self._ranks))

    def _start(self, ranks: range | list[int]) -> None:
        self._look()
        self._events.clear()
        now = time.monotonic()
        agents = agents_of(self.job)
        self._agent_before = agents[0] if len(agents) == 1 else 0
        until = [now] * self._ranks
        self._persisted_before = self._history.newest_persisted
        self._kept_before = {
            stage: self._history.kept_everywhere(self._agent_before, stage, until) for stage in ("staged", "memory")
        }
        self._agent_died_since_start = False
        self._returned = list(ranks)
        self._recovered = False
        self._is_unchecked = True
        if len(self._returned) < self._ranks:
            self._is_fresh = False
            self._history.returns_alone.append(now)
        for rank in self._returned:
            self._started[rank] = now
            self._since[rank] = now
            process = self._context.Process(target=train, args=(self._plan(rank),), daemon=True)
            process.start()
            self._processes[rank] = process

    def _kill_trainers(self, ranks: range | list[int]) -> None:
        gone = [self._processes.pop(rank) for rank in ranks if rank in self._processes]
        for process in gone:
            process.kill()
        for process in gone:
            process.join(PATIENCE)
        self.tally.killed_trainers += len(gone)

    def _kill_agent(self) -> None:
        self._agent_died_since_start = True
        self._is_fresh = False
        self._recovered = False
        agents = agents_of(self.job)
        before = time.monotonic()
        for agent in agents:
            with suppress(OSError):
                os.kill(agent, signal.SIGKILL)
                self.tally.killed_agents += 1
        now = time.monotonic()
        self._history.agent_deaths.append((before, now + DEATH_SECONDS))
        # The living trainers have to find the next agent.
        self._since = [max(since, now) for since in self._since]

    def _process_numbers(self) -> list[int]:
        return [process.pid for process in self._processes.values() if process.pid is not None]

    def _note_traces(self) -> None:
        self._traces |= traces_of([*agents_of(self.job), *self._process_numbers()])

    def _await(self, what: str, is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            self._look()
            if is_there():
                return
            if time.monotonic() > deadline:
                self._break(f"within {PATIENCE:.0f} s, this did not happen: {what}")
            time.sleep(0.001)

    def _break(self, what: str) -> NoReturn:
        raise ViolatedGuaranteeError(
            f"{self._ranks} ranks, after {self.tally.kills} kills, restart {self._restart}: {what}"
        )

    def _plan(self, rank: int) -> TrainerPlan:
        return TrainerPlan(
            folder=self._folder,
            job=self.job,
            rank=rank,
            ranks=self._ranks,
            restart=self._restart,
            every=self._every,
            keep_last=3,
            memory_snapshots=self._rule.snapshots,
            max_depth=self._rule.max_depth,
            budget=1 << 28,
            linger=self._linger,
            elements=self._elements,
            pause=(self._restart % 3) * 0.001,
            is_watched=self._restart % 2 == 1,
        )
