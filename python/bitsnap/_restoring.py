"""Restoring the state of a rank: which step, from memory or from the store, and what happens if a state is damaged."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bitsnap import _bitsnap
from bitsnap._bitsnap import RestorableStep, Settings
from bitsnap._options import native_path
from bitsnap._ranks import Ranks
from bitsnap._reading import Device
from bitsnap.errors import (
    BitsnapError,
    CorruptError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    RestoreWarning,
    TruncatedError,
    UnsupportedError,
)
from bitsnap.state import Keys, load_native


@dataclass(frozen=True)
class Restored:
    """A restored state, its step, and where it came from."""

    step: int
    source: Literal["memory", "store"]
    state: Any = field(repr=False)


@dataclass(frozen=True)
class Loading:
    """How a state is loaded."""

    into: Any
    keys: Keys | None
    strict: bool
    map_location: Device | None
    threads: int
    fallback: bool

    def __call__(self, native: _bitsnap.Snapshot) -> Any:
        return load_native(
            native,
            into=self.into,
            keys=self.keys,
            strict=self.strict,
            map_location=self.map_location,
            threads=self.threads,
            progress=None,
        )


class Restoring:
    """The steps that this rank can restore from the engine's memory and from the store."""

    def __init__(self, native: _bitsnap.Engine, path: Path, ranks: Ranks) -> None:
        self._native, self._path, self._ranks = native, path, ranks

    def store(self) -> _bitsnap.Store:
        """The store as it is now."""
        return _bitsnap.Store.open(
            native_path(self._path),
            access="read",
            create=False,
            settings=Settings(),
            keep_last=None,
            keep_every=None,
            base_memory_bytes=0,
            wait_ms=0,
        )

    def step(self, step: int, loading: Loading) -> Restored:
        """One step, without falling back to another one."""
        agreed = self._agreed(loading.fallback) if self._ranks.agree else {}
        return self._load(step, agreed.get(step, ""), loading)

    def newest(self, loading: Loading) -> Restored | None:
        """The newest step that can be restored."""
        # Ranks that cannot communicate must not choose different steps.
        may_fall_back = loading.fallback and (self._ranks.world_size == 1 or self._ranks.agree)
        first: BaseException | None = None
        for candidate, attempt in sorted(self._agreed(loading.fallback).items(), reverse=True):
            restored, failure = self._ranks.together(partial(self._load, candidate, attempt, loading), _is_damage)
            if failure is None:
                return restored
            if failure.is_hopeless:
                raise failure.error
            first = first or failure.error
            if not may_fall_back:
                break
            _warn(f"step {candidate} cannot be restored, trying the step before: {failure.error}")
        if first is not None:
            raise first
        return None

    def _agreed(self, fallback: bool) -> dict[int, str]:
        """The steps that may be restored, with the attempt of those that only memory has."""
        found, failure = self._ranks.together(lambda: self._known_steps(fallback))
        if failure is not None:
            raise failure.error
        assert found is not None
        # Steps of the store come last and replace those of memory.
        return dict(sorted(self._ranks.common(found), key=lambda each: each[1], reverse=True))

    def _known_steps(self, fallback: bool) -> list[tuple[int, str]]:
        """Steps in memory, with their attempt, and steps in the store, with an empty one."""
        try:
            found = self._native.steps()
        except BitsnapError as error:
            if not fallback or isinstance(error, InvalidArgumentError):
                raise
            _warn(f"the agent's memory cannot be read, only the store is used: {error}")
            return [(step, "") for step in self._steps_of_store()]
        if not any(each.in_store for each in found):
            self._check_store(found)
        stored = [(each.step, "") for each in found if each.in_store]
        # Ranks that cannot communicate use only the steps that every rank has.
        sees_all = self._ranks.world_size == 1 or self._ranks.agree
        kept = [(each.step, each.attempt) for each in found if each.in_memory and (sees_all or each.everywhere)]
        return stored + kept

    def _check_store(self, found: list[RestorableStep]) -> None:
        """The engine leaves out a store that it cannot read, which must not be taken for an empty one."""
        try:
            self._steps_of_store()
        except BitsnapError as error:
            if not found:
                raise
            _warn(f"the store cannot be read: {error}")

    def _steps_of_store(self) -> list[int]:
        try:
            return self.store().steps()
        except NotFoundError:
            if self._path.is_file():
                raise
            return []

    def _load(self, step: int, attempt: str, loading: Loading) -> Restored:
        found = self._native.restore(step, attempt)
        if found.memory_error is not None:
            _warn(f"step {step} is read from the store, not from memory: {found.memory_error}")
        if not found.from_memory:
            return Restored(step, "store", loading(found.snapshot))
        try:
            return Restored(step, "memory", loading(found.snapshot))
        except BitsnapError as error:
            if not loading.fallback or not _is_damage(error):
                raise
            try:
                stored = self._from_store(step)
            except BitsnapError:
                raise error from None
            _warn(f"step {step} is read from the store, because it is damaged in memory: {error}")
            return Restored(step, "store", loading(stored))

    def _from_store(self, step: int) -> _bitsnap.Snapshot:
        store = self.store()
        return store.snapshot(step, 0 if store.info(step).shards == 1 else self._ranks.rank)


def _is_damage(error: BaseException) -> bool:
    """Whether the same state from another source, or an earlier state, may be readable."""
    if isinstance(error, NotFoundError):
        return error.field != "keys"  # which the caller chose
    return isinstance(error, CorruptError | TruncatedError | IoError | UnsupportedError)


def _warn(text: str) -> None:
    warnings.warn(text, RestoreWarning, stacklevel=3)
