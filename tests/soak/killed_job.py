"""A job whose trainers and agent are killed again and again, and which has to keep its promises.

One life after another: at a moment that chance chooses somebody is killed, and comes back as torchrun brings it back,
all ranks at once, or alone. After each the journals are held against what docs/guide/engine.md promises. What is broken
ends the run.
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

# Without a sign of life for so long a promise is broken, in seconds.
PATIENCE = 60.0
# What a process may still do that was killed, in seconds.
DEATH_SECONDS = 0.05
# Descriptors of a trainer that are the engine's.
MOST_DESCRIPTORS = 16

EARLY_MOMENTS = ("start", "attached", "restoring", "restored")
MOMENTS = ("begin", "staged", "memory", "persisted", "random")
VICTIMS = ("one", "all", "agent", "agent", "agent and all", "agent and one")


class BrokenPromiseError(Exception):
    pass


@dataclass(frozen=True)
class Kill:
    """Who is killed when, how long after the moment in seconds, and who comes back."""

    moment: str
    victims: str
    rank: int
    delay: float
    is_alone: bool
    """Only the killed rank comes back, while the others go on."""

    @property
    def hits_agent(self) -> bool:
        return "agent" in self.victims

    def __str__(self) -> str:
        back = " alone" if self.is_alone else ""
        return f"{self.victims} (rank {self.rank}) {self.delay * 1e3:.1f} ms after '{self.moment}', back{back}"


@dataclass
class Tally:
    """What a run was, for people."""

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
    """Of so many ranks, in a folder of its own. `say` takes lines that tell what is done."""

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
        self._life = 0
        self._processes: dict[int, multiprocessing.process.BaseProcess] = {}
        self._history = History([self._plan(rank).journal for rank in range(ranks)], self._rule)
        self._is_fresh = False  # all ranks were started together, and nobody was killed since
        self._started = [0.0] * ranks
        self._since = [0.0] * ranks  # who has not had a save persisted that began later has not recovered
        self._recovered = True
        self._returned: list[int] = []  # who was started last
        self._is_unchecked = False  # what these have restored
        self._persisted_before = 0  # when these were started, as the next two
        self._kept_before: dict[str, set[int]] = {}
        self._agent_before = 0
        self._agent_died_since_start = False
        self._events: list[Event] = []  # that were read since there was a moment to wait for
        self._traces: Traces = NO_TRACES
        self.tally = Tally(ranks)

    # What is done.

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
        """Lets all ranks come to an end in order."""
        self._note_traces()
        meeting = Meeting(self._plan(0).meeting, self._ranks)
        meeting.last_step = (meeting.farthest // self._every + 2) * self._every
        self._await("all ranks have closed", lambda: all(rank.ended is not None for rank in self._history.ranks))
        for process in self._processes.values():
            process.join(PATIENCE)
        self._processes.clear()
        if self._history.newest_persisted != meeting.last_step:
            self._break(f"step {meeting.last_step} was closed upon, {self._history.newest_persisted} is persisted")

    def kill_all_trainers(self) -> None:
        self._note_traces()
        self._kill_trainers(range(self._ranks))

    def start_again(self) -> None:
        self._start_all()
        self._recover()

    def stop_agent(self) -> None:
        bitsnap.stop_agent(job=self.job, wait=PATIENCE)

    def await_lingering(self) -> None:
        """Until the agent has gone by itself, and it has stayed as long as it was told to."""
        began = time.monotonic()
        agents = agents_of(self.job)
        self._await("the agent has gone", lambda: not any(is_alive(agent) for agent in agents))
        if agents and time.monotonic() - began < self._linger * 0.8:
            self._break(f"the agent went {time.monotonic() - began:.1f} s after the trainers, not {self._linger} s")

    def abandon(self) -> None:
        """Ends whatever there is, after something has gone wrong."""
        for rank in list(self._processes):
            self._kill_trainers([rank])
        with suppress(bitsnap.BitsnapError):
            bitsnap.stop_agent(job=self.job, abandon=True, wait=10)
        for agent in agents_of(self.job):
            with suppress(OSError):
                os.kill(agent, signal.SIGKILL)

    # What is checked.

    def check_nothing_left(self, *, is_settled: bool) -> None:
        """Neither processes nor names nor memory; and of files, where `is_settled`, only those that records name."""
        left = left_of(self.job, self._traces, [os.getpid()])
        if left:
            self._break("left behind: " + "; ".join(left))
        with bitsnap.Store(self._plan(0).store):
            pass
        stray = stray_files(self._plan(0).store)
        if is_settled and stray:
            self._break(f"the next writer left in the store: {', '.join(stray)}")
        log = self._folder / "agent.log"
        lines = log.read_text().splitlines() if log.exists() else []
        said = [line for line in lines if not line.endswith("already has an agent")]
        if said:
            self._break(f"an agent said: {' '.join(said)[:500]}")

    def _check_store(self) -> None:
        """What the store lists is whole, all shards of one life, and to the bit what was saved."""
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
            lives = {state["life"] for state in states}
            if any(wrong) or len(lives) != 1:
                self._break(f"the store's step {step}: lives {lives} {'; '.join(filter(None, wrong))}")
            self.tally.verified += 1

    def check_store(self) -> None:
        """The same, with all checksums; for a store that nobody writes to."""
        self._check_store()
        with bitsnap.Store(self._plan(0).store, read_only=True) as store:
            store.verify()

    def _recover(self) -> None:
        """Waits until every rank has restored and had a new save persisted, and checks what it was promised."""
        began = time.monotonic()
        self._await("all ranks have restored", lambda: all(map(self._has_restored, range(self._ranks))))
        while self._is_unchecked and not self._check_restored():
            self._kill_trainers(range(self._ranks))
            self._start_all()
            self._await("all ranks have restored", lambda: all(map(self._has_restored, range(self._ranks))))
        self._await("a new save of all ranks is persisted", lambda: all(map(self._has_persisted, range(self._ranks))))
        self._await("all earlier saves have come to an end", lambda: all(map(self._has_settled, range(self._ranks))))
        if not self._recovered:
            self.tally.longest_recovery = max(self.tally.longest_recovery, time.monotonic() - began)
            self._note_traces()
        self._recovered = True
        self._is_unchecked = False
        if self._history.largest_descriptors >= MOST_DESCRIPTORS:
            self._break(f"the engine has {self._history.largest_descriptors} descriptors of a trainer")

    def _has_restored(self, rank: int) -> bool:
        history = self._history.ranks[rank]
        return history.restored is not None and history.started >= self._started[rank]

    def _has_persisted(self, rank: int) -> bool:
        return any(began >= self._since[rank] for began, _ in self._history.ranks[rank].persisted_since_start)

    def _has_settled(self, rank: int) -> bool:
        return self._history.ranks[rank].is_settled(self._since[rank], self._every)

    def _check_restored(self) -> bool:
        """False where the ranks have to begin again, as those of a training would that see that they differ."""
        restored = [self._history.ranks[rank].restored for rank in self._returned]
        found = [(event.step, event.text.split()[0]) for event in restored if event is not None]
        for event in restored:
            assert event is not None
            if event.text.endswith("memory"):
                self.tally.from_memory += 1
            elif event.text.endswith("store"):
                self.tally.from_store += 1
        # Without a word from each other they cannot agree where the memory goes between two of them.
        is_one = len(set(found)) == 1 and found[0][0] != LOST
        if not is_one and not self._agent_died_since_start:
            self._break(f"the ranks restored different states: {found}")
        expected = {"persisted": self._persisted_before}
        agents = agents_of(self.job)
        if self._agent_before and agents == [self._agent_before] and not self._agent_died_since_start:
            expected |= {stage: self._expected_of_memory(stage) for stage in ("staged", "memory")}
        for stage, step in expected.items():
            if any(LOST < found_step < step for found_step, _ in found):
                self._break(f"step {step} was told as {stage}, restored were {found}")
        return is_one

    def _expected_of_memory(self, stage: str) -> int:
        kept = self._kept_before[stage]
        if len(self._returned) < self._ranks:
            # The others went on until the one that came back had restored: what they save takes the place of others.
            events = [self._history.ranks[rank].restored for rank in self._returned]
            until = [max(event.time for event in events if event is not None)] * self._ranks
            for rank in self._returned:
                until[rank] = self._started[rank]
            kept = kept & self._history.kept_everywhere(self._agent_before, stage, until)
        return max(kept, default=0)

    def _look(self) -> list[Event]:
        """Reads the journals, and breaks off at what no trainer may ever be told."""
        events = self._history.read()
        self._events += events
        for event in events:
            if event.kind in ("wrong", "error"):
                self._break(str(event))
            if event.kind in ("failed", "warned"):
                if not self._history.is_excused(event):
                    self._break(f"without a reason: {event}")
                self.tally.excused += 1
        for rank, process in self._processes.items():
            if process.exitcode not in (None, 0):
                self._break(f"rank {rank} ended with {process.exitcode}")
        return events

    # How it is done.

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
            # As torchrun does when one is gone, and not at once.
            time.sleep(self._random.uniform(0, 0.05))
            self._kill_trainers(range(self._ranks))
            self._start_all()
        elif trainers:
            time.sleep(self._random.uniform(0, 0.05))
            self._start([kill.rank])
        if not trainers and self._random.random() < 0.3:
            # And the next one as soon as it is there.
            self._await("the next agent", lambda: bool(agents_of(self.job)))
            time.sleep(self._random.uniform(0, 0.03))
            self._kill_agent()

    def _start_all(self) -> None:
        self._life += 1
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
        # Whoever lives has to find the next one.
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
                self._break(f"not within {PATIENCE:.0f} s: {what}")
            time.sleep(0.001)

    def _break(self, what: str) -> NoReturn:
        raise BrokenPromiseError(f"{self._ranks} ranks, after {self.tally.kills} kills, life {self._life}: {what}")

    def _plan(self, rank: int) -> TrainerPlan:
        return TrainerPlan(
            folder=self._folder,
            job=self.job,
            rank=rank,
            ranks=self._ranks,
            life=self._life,
            every=self._every,
            keep_last=3,
            memory_snapshots=self._rule.snapshots,
            max_depth=self._rule.max_depth,
            budget=1 << 28,
            linger=self._linger,
            elements=self._elements,
            pause=(self._life % 3) * 0.001,
            is_watched=self._life % 2 == 1,
        )
