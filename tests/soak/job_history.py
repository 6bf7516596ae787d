"""What the engine reported to the trainers of a soak test, and what must hold then: docs/guide/engine.md.

A History reads the journals as they grow. It knows nothing of processes: its owner tells it who was killed when.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from soak.growing_file import GrowingFile

# The number of a rank's newest saves to remember; more than the agent keeps in memory.
_REMEMBERED = 64
# Messages of saves that may be lost.
_REASONS = ("was compressed but not persisted", "committing step")
_STAGES = {"begin": 0, "staged": 1, "memory": 2, "persisted": 3}


@dataclass(frozen=True)
class Event:
    time: float
    rank: int
    restart: int
    kind: str
    step: int
    text: str

    def __str__(self) -> str:
        return f"{self.time:.6f} rank {self.rank} restart {self.restart} {self.kind} {self.step} {self.text}".rstrip()


@dataclass(frozen=True)
class MemoryRule:
    """What an agent keeps in memory for each rank."""

    snapshots: int
    max_depth: int
    """The most checkpoints of the store between two keyframes."""


@dataclass
class ReportedSave:
    """One save, and the last stage that the engine reported."""

    step: int
    restart: int
    agent: int
    began: float
    is_again: bool = False
    """Of a rank that was started alone: the others did not save the step again, and may have it from before."""
    stage: int = 0
    has_failed: bool = False


@dataclass
class RankHistory:
    saves: deque[ReportedSave] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    under_way: list[ReportedSave] = field(default_factory=list)
    """Of the current process."""
    agent: int = 0
    started: float = -1.0
    restored: Event | None = None
    """Since it started."""
    persisted_since_start: list[tuple[float, int]] = field(default_factory=list)
    """When each persisted save began, and its step."""
    ended: Event | None = None

    def find(self, event: Event) -> ReportedSave | None:
        newest_first = itertools.chain(reversed(self.under_way), reversed(self.saves))
        return next((save for save in newest_first if (save.step, save.restart) == (event.step, event.restart)), None)

    def is_settled(self, before: float, every: int) -> bool:
        """Whether all saves that this process began before then have ended."""
        self.under_way = [
            save
            for save in self.under_way
            if not save.has_failed
            and save.stage != _STAGES["persisted"]
            and not (save.stage == _STAGES["memory"] and save.step % every != 0)
        ]
        return all(save.began >= before for save in self.under_way)

    def kept(self, agent: int, rule: MemoryRule, stage: int, until: float) -> set[tuple[int, int]]:
        """The steps and restarts that must be in this agent's memory, of the saves begun until then.

        A save that began without a report may have reached the agent; it then replaces another one. All saves except
        the newest need the snapshots that they are coded against. An agent that started later lacks these until the
        store has begun another chain.
        """
        records: list[ReportedSave] = []
        chains: set[int] = set()  # steps whose bases this agent has had
        has_chain, persisted = False, 0
        for save in self.saves:
            if save.agent != agent or save.began > until:
                continue
            while records and records[-1].step >= save.step:
                records.pop()
            records.append(save)
            persisted += save.stage == _STAGES["persisted"]
            has_chain |= save.step == 1 or persisted > rule.max_depth + 1
            if has_chain:
                chains.add(save.step)
        return {
            (save.step, save.restart)
            for save in records[-rule.snapshots :]
            if save.stage >= stage
            and not save.has_failed
            and not save.is_again
            and (save is records[-1] or save.step in chains)
        }


class History:
    def __init__(self, journals: list[Path], rule: MemoryRule) -> None:
        self._journals = [GrowingFile(journal) for journal in journals]
        self._rule = rule
        self.ranks = [RankHistory() for _ in journals]
        self.newest_persisted = 0
        self.counts: dict[str, int] = {}
        self.agent_deaths: list[tuple[float, float]] = []  # earliest and latest time
        self.returns_alone: list[float] = []
        self._full_start = 0.0
        self.largest_descriptors = 0

    def read(self) -> list[Event]:
        """The events since the last call, in order for each rank."""
        events = []
        for rank in range(len(self.ranks)):
            for event in self._lines_of(rank):
                self._note(event)
                events.append(event)
        return events

    def kept_everywhere(self, agent: int, stage: str, until: list[float]) -> set[int]:
        """The steps of one restart that must be in this agent's memory for all ranks, of the saves begun until then."""
        sets = [
            rank.kept(agent, self._rule, _STAGES[stage], when) for rank, when in zip(self.ranks, until, strict=True)
        ]
        return {step for step, _ in set.intersection(*sets)}

    def is_excused(self, failure: Event) -> bool:
        """Whether this failure is allowed.

        A save may fail if it had left its slot when the agent was killed, or if another rank was started alone after
        it; then the saves of the other ranks may be skipped. A restore may fail if the agent is killed meanwhile.
        """
        if failure.kind == "failed" and not any(reason in failure.text for reason in _REASONS):
            return False
        # A step that one rank lost cannot be committed by the others.
        saves = [rank.find(failure) for rank in self.ranks]
        began = min((save.began for save in saves if save is not None), default=self.ranks[failure.rank].started)
        return any(began <= after and before <= failure.time for before, after in self.agent_deaths) or any(
            when <= failure.time and when >= self._full_start for when in self.returns_alone
        )

    def note_full_start(self, when: float) -> None:
        self._full_start = when

    def _lines_of(self, rank: int) -> Iterator[Event]:
        for line in self._journals[rank].new_lines():
            time, restart, kind, step, *text = line.split(" ", 4)
            yield Event(float(time), rank, int(restart), kind, int(step), text[0] if text else "")

    def _note(self, event: Event) -> None:
        rank = self.ranks[event.rank]
        self.counts[event.kind] = self.counts.get(event.kind, 0) + 1
        match event.kind:
            case "start":
                rank.started, rank.restored, rank.persisted_since_start, rank.ended = event.time, None, [], None
                rank.agent, rank.under_way = 0, []
            case "agent":
                rank.agent = event.step
            case "restored":
                rank.restored = event
            case "begin":
                is_again = rank.find(event) is not None
                rank.saves.append(ReportedSave(event.step, event.restart, rank.agent, event.time, is_again))
                rank.under_way.append(rank.saves[-1])
            case "staged" | "memory" | "persisted" | "failed" | "skipped":
                self._note_progress(rank, event)
            case "descriptors":
                self.largest_descriptors = max(self.largest_descriptors, int(event.text))
            case "closed" | "error":
                rank.ended = event

    def _note_progress(self, rank: RankHistory, event: Event) -> None:
        save = rank.find(event)
        if event.kind in ("failed", "skipped"):
            if save is not None:
                save.has_failed = True
            return
        if save is not None:
            save.stage = max(save.stage, _STAGES[event.kind])
        if event.kind == "persisted":
            self.newest_persisted = max(self.newest_persisted, event.step)
            if save is not None and save.began >= rank.started:
                rank.persisted_since_start.append((save.began, event.step))
