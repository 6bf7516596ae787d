"""Restoring the state of a rank: which step, from memory or from the store, and what happens if a state is damaged."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from bitsnap._bitsnap import Engine as NativeEngine, Store as NativeStore
from bitsnap._common import Home, opened_store, warn
from bitsnap._engine.ranks import Ranks
from bitsnap._explained import explained_damage
from bitsnap.errors import (
    BitsnapError,
    BusyError,
    CorruptError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    RestoreWarning,
    TruncatedError,
    UnsupportedError,
)
from bitsnap.snapshot import Snapshot

T = TypeVar("T")


@dataclass(frozen=True)
class Restored:
    """A restored state, its step, and where it came from."""

    step: int
    source: Literal["memory", "store"]
    state: Any = field(repr=False)


class _Earlier(NamedTuple):
    """A step that another number of ranks saved to memory, and the ranks whose states one agent still has."""

    step: int
    attempt: str
    world_size: int
    held: frozenset[int]

    def is_part_of(self, other: _Earlier) -> bool:
        return self[:3] == other[:3] and bool(self.held)

    def absent(self, found: list[_Known]) -> set[int]:
        """The ranks whose states no agent has."""
        held = (each.held for known in found for each in known.earlier if each[:3] == self[:3])
        return set(range(self.world_size)).difference(*held)


class _Known(NamedTuple):
    """What one rank can restore, and what its agent has of an earlier world size."""

    steps: list[tuple[int, str]]
    earlier: list[_Earlier]


class Restoring:
    """The steps that this rank can restore from the engine's memory and from the store.

    `use` makes the state of the snapshot of one. `has_one_agent`: all ranks are on this machine.
    """

    def __init__(self, native: NativeEngine, path: Home, ranks: Ranks, timeout_ms: int, has_one_agent: bool) -> None:
        self._native, self._path, self._ranks, self._timeout_ms = native, path, ranks, timeout_ms
        self._has_one_agent = has_one_agent
        self._own_earlier: list[_Earlier] = []
        self._deadline = 0.0
        self._is_agent_silent = False

    def store(self) -> NativeStore:
        """The store as it is now."""
        return opened_store(self._path, loads_bases=True)

    def step(self, step: int, use: Callable[[Snapshot], Any], in_place: bool, fallback: bool) -> Restored:
        """One step, without falling back to another one."""
        self.begin()
        agreed = self.agreed(fallback, step)
        with self.explained(step):
            return self._load(step, agreed.get(step, ""), use, in_place, fallback)

    def newest(self, use: Callable[[Snapshot], Any], in_place: bool, fallback: bool) -> Restored | None:
        """The newest step that can be restored."""
        self.begin()
        # Ranks that cannot communicate must not choose different steps.
        may_fall_back = fallback and (self._ranks.world_size == 1 or self._ranks.agree)
        first: BaseException | None = None
        for candidate, attempt in sorted(self.agreed(fallback).items(), reverse=True):
            attempted = partial(self._load, candidate, attempt, use, in_place, fallback)
            restored, failure = self._ranks.together(attempted, is_damage)
            if failure is None:
                return restored
            if failure.is_hopeless:
                raise failure.error
            first = first or failure.error
            if not may_fall_back:
                with self.explained(candidate):
                    raise first
            _warn(f"step {candidate} cannot be restored, trying the step before: {failure.error}")
        if first is not None:
            with self.explained(None):
                raise first
        return None

    def explained(self, step: int | None) -> AbstractContextManager[None]:
        """Lets an error of damage say what to do. `step`: the wanted one; None: the newest, and all others failed."""
        load = None if step is None else "restore({})".format
        return explained_damage(lambda: (self.store(), step), load, partial=False)

    def common_steps(self) -> list[int]:
        """The steps that every rank can restore, ascending. All ranks must call it."""
        self.begin()
        return sorted(self._common(self._gather_known(fallback=True)))

    def begin(self) -> None:
        """All waits of a restore share one limit."""
        self._deadline = time.monotonic() + self._timeout_ms / 1000
        self._is_agent_silent = False
        self._ranks.meet("call restore()", self._timeout_ms)

    @property
    def _left_ms(self) -> int:
        return max(int((self._deadline - time.monotonic()) * 1000), 0)

    def agreed(self, fallback: bool, step: int | None = None) -> dict[int, str]:
        """The steps that may be restored, with the attempt of those that only memory has.

        A newer one that another number of ranks saved to memory, or the wanted one, becomes a checkpoint first.
        """
        found = self._gather_known(fallback)
        kept = _earlier_step(found, self._common(found), step)
        if kept is None:
            return self._common(found)
        why = self._persist_earlier(kept, found)
        found = self._gather_known(fallback)
        common = self._common(found)
        if kept.step not in common:
            _warn(
                f"step {kept.step} was saved with world_size = {kept.world_size} to the memory of agents, and cannot "
                f"be restored with world_size = {self._ranks.world_size}: {why}"
            )
        return common

    def persist(self, step: int, attempt: str) -> None:
        """Lets the agent store a step that it serves from its memory. All ranks call it.

        `attempt`: that of a step that memory alone has; empty if the store has it, or if there is one rank.
        """
        if attempt or (self._ranks.world_size == 1 and step not in self._steps_of_store()):
            self._native.persist_earlier(step, attempt, self._left_ms)

    def _gather_known(self, fallback: bool) -> list[_Known]:
        """What each rank knows, which is only this one if ranks cannot communicate."""
        found, failure = self._ranks.together(lambda: self._known_steps(fallback))
        if failure is not None:
            raise failure.error
        assert found is not None
        return self._ranks.gather(found)

    @staticmethod
    def _common(found: list[_Known]) -> dict[int, str]:
        steps = set(found[0].steps).intersection(*(each.steps for each in found[1:]))
        # Steps of the store come last and replace those of memory.
        return dict(sorted(steps, key=lambda each: each[1], reverse=True))

    def _persist_earlier(self, kept: _Earlier, found: list[_Known]) -> str:
        """Lets all agents that have states of the step store them. Returns why it cannot be restored if it cannot."""
        if not self._ranks.agree and not self._has_one_agent:
            return "ranks on several machines must be able to communicate for that, through torch.distributed"
        absent = kept.absent(found)
        if len(absent) == kept.world_size:
            return "the agent has dropped it, as this training has begun to save"
        if absent:
            return f"no agent that is alive has the states of ranks {', '.join(map(str, sorted(absent)))}"
        has_part = any(each.is_part_of(kept) for each in self._own_earlier)
        error = None
        # A rank whose agent has no part asks, too, so that it does not take the checkpoint for a later save of its own.
        try:
            self._native.persist_earlier(kept.step, kept.attempt, self._left_ms)
        except BitsnapError as raised:
            error = str(raised) if has_part else None
        errors = [each for each in self._ranks.gather(error) if each is not None]
        return errors[0] if errors else "the store does not have all of its shards"

    def _known_steps(self, fallback: bool) -> _Known:
        """Steps in memory, with their attempt, and steps in the store, with an empty one."""
        self._own_earlier = []
        try:
            found = self._native.steps(self._left_ms)
        except BitsnapError as error:
            if not fallback or isinstance(error, InvalidArgumentError):
                raise
            self._is_agent_silent = isinstance(error, BusyError)
            _warn(f"the agent's memory cannot be read, only the store is used: {error}")
            return _Known([(step, "") for step in self._steps_of_store()], [])
        if not any(each.in_store for each in found):
            self._check_store(any(each.in_memory for each in found))
        stored = [(each.step, "") for each in found if each.in_store]
        # Ranks that cannot communicate use only the steps that every rank has.
        sees_all = self._ranks.world_size == 1 or self._ranks.agree
        kept = [(each.step, each.attempt) for each in found if each.in_memory and (sees_all or each.everywhere)]
        self._own_earlier = [
            _Earlier(each.step, each.attempt, each.earlier_ranks, frozenset(each.held_ranks))
            for each in found
            if each.earlier_ranks
        ]
        return _Known(stored + kept, self._own_earlier)

    def _check_store(self, has_memory: bool) -> None:
        """The engine leaves out a store that it cannot read, which must not be taken for an empty one."""
        try:
            self._steps_of_store()
        except BitsnapError as error:
            if not has_memory:
                raise
            _warn(f"the store cannot be read: {error}")

    def _steps_of_store(self) -> list[int]:
        try:
            return self.store().steps()
        except NotFoundError:
            if isinstance(self._path, Path) and self._path.is_file():
                raise
            return []

    def _load(
        self, step: int, attempt: str, use: Callable[[Snapshot], Any], in_place: bool, fallback: bool
    ) -> Restored:
        state, source = self.read(step, attempt, use, in_place, fallback)
        return Restored(step, source, state)

    def read(
        self, step: int, attempt: str, use: Callable[[Snapshot], T], in_place: bool, fallback: bool
    ) -> tuple[T, Literal["memory", "store"]]:
        """What `use` makes of the state that this rank saved, and where that was: in memory, or else in the store."""
        if self._is_agent_silent:
            return use(self._from_store(step)), "store"
        found = self._native.restore(step, attempt, self._left_ms, in_place=in_place)
        if found.memory_error is not None:
            _warn(f"step {step} is read from the store, not from memory: {found.memory_error}")
        snapshot = Snapshot._of(found.snapshot)
        if not found.from_memory:
            return use(snapshot), "store"
        try:
            return use(snapshot), "memory"
        except BitsnapError as error:
            if not fallback or not (is_damage(error) or isinstance(error, IoError)):
                raise
            try:
                stored = self._from_store(step)
            except BitsnapError:
                raise error from None
            _warn(f"step {step} is read from the store, because it cannot be read from memory: {error}")
            return use(stored), "store"

    def _from_store(self, step: int) -> Snapshot:
        store = self.store()
        shard = 0 if store.checkpoint(step).shards == 1 else self._ranks.rank
        return Snapshot._of(store.snapshot(step, shard, False))


def _earlier_step(found: list[_Known], restorable: Mapping[int, str], wanted: int | None) -> _Earlier | None:
    """The newest complete step of an earlier world size that is worth storing, or else the one that lacks least."""
    newest = max(restorable, default=-1)
    worth = [
        each
        for known in found
        for each in known.earlier
        if (each.step > newest if wanted is None else each.step == wanted and wanted not in restorable)
    ]
    return max(worth, key=lambda each: (-len(each.absent(found)), *each[:3]), default=None)


def is_damage(error: BaseException) -> bool:
    """Whether the state itself is damaged, incomplete or unknown to this version, so that an earlier one may do better.

    An IoError says nothing of the state: with too many open files, or without a permission, an earlier one would
    quietly take the place of a sound one.
    """
    if isinstance(error, NotFoundError):
        return error.field != "keys"  # which the caller chose
    return isinstance(error, CorruptError | TruncatedError | UnsupportedError)


def _warn(text: str) -> None:
    warn(text, RestoreWarning, stacklevel=None)
