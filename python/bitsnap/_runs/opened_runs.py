"""Runs as all adapters of frameworks open them: with their options to save, and one step to read."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from bitsnap._bitsnap import GlobalTensor, Settings
from bitsnap._common import (
    LARGEST_COUNT,
    Home,
    PathLike,
    absolute_home,
    may_pickle,
    milliseconds_of,
    number_of,
    settings_of,
)
from bitsnap._engine.steps import note_known
from bitsnap._explained import saved_by
from bitsnap._references import parse_json
from bitsnap._run_copies import mirroring_of
from bitsnap._tensors.arrays import torch_dtype
from bitsnap.agents import AgentOptions, MemoryOptions, check_agent
from bitsnap.checkpointer import Checkpointer
from bitsnap.errors import CorruptError, InvalidArgumentError, NotFoundError
from bitsnap.store import Store

_T = TypeVar("_T")


@dataclass(frozen=True)
class Options:
    """How the checkpoints of a framework are saved.

    Args:
        settings: how they are coded, or the name of a policy, such as "bounded". See bitsnap.Settings.
        allow_pickle: pickle values that cannot be stored otherwise, such as those of a class that is not registered
            with bitsnap.register_value(), and unpickle them when they are loaded: for checkpoints that you trust.
            False raises an error that names the value.
        agent: a save copies the state once, to memory that is shared with an agent, which compresses and commits it
            while the training goes on, also if the training has died. See bitsnap.AgentOptions. None: a save returns
            when it is committed.
        memory: how much memory the agent may use. See bitsnap.MemoryOptions.
        timeout: the longest wait for the agent, or for another process that writes to the run, in seconds.
        threads: of each rank, for compressing; 0 for all that the process may use.
        mirror: the address of a copy of the run in an object store, or the path of one, which a process of its own
            keeps like the run, with the small files of the checkpoints' folders. Where there is no run yet, as on
            another machine, its checkpoints are brought back first. See bitsnap.Checkpointer.

    Raises:
        InvalidArgumentError, TypeError, UnsupportedError: an option has a wrong value.
    """

    settings: Settings | str | None = None
    allow_pickle: bool = False
    agent: AgentOptions | None = None
    memory: MemoryOptions | None = None
    timeout: float = 600.0
    threads: int = 0
    mirror: PathLike | None = None

    def __post_init__(self) -> None:
        if self.mirror is not None:
            absolute_home(self.mirror, "mirror")
        may_pickle(self.allow_pickle)  # checks it
        check_agent(self.agent, self.memory)
        settings_of(self.settings)
        milliseconds_of(self.timeout, "timeout")
        number_of(self.threads, "threads", LARGEST_COUNT)

    def store(self, run: Home, **more: Any) -> Store:
        """Opens a run to save to it."""
        self.settle(run)
        return Store(run, settings=self.settings, timeout=self.timeout, threads=self.threads, **more)

    def follow(self, run: Path) -> None:
        """Lets the copy follow a run, which exists."""
        if self.mirror is not None:
            mirroring_of(run, os.fspath(self.mirror)).follow()

    def settle(self, run: Home) -> None:
        """Waits, before anything is removed, until the copy follows a run that was brought back."""
        if self.mirror is not None and isinstance(run, Path):
            mirroring_of(run, os.fspath(self.mirror)).settle()

    def checkpointer(self, run: Home, **more: Any) -> Checkpointer:
        """Opens a run to save to it through an agent."""
        self.settle(run)
        made = Checkpointer(
            run,
            settings=self.settings,
            agent=self.agent,
            memory=self.memory,
            timeout=self.timeout,
            threads=self.threads,
            **more,
        )
        made._saves.steps.note_asked()  # the framework loads checkpoints by their paths
        return made


class OpenedStep:
    """One step of a store: global tensors, and values that are no tensors.

    A framework describes its values in the metadata, and has them in the state of each shard, both under its `key`.
    None as the step is the newest one.

    Raises:
        NotFoundError: there is no store, or it has no such step.
    """

    def __init__(self, run: Home, step: int | None, key: str, allow_pickle: bool, threads: int) -> None:
        self._key, self._allow_pickle = key, allow_pickle
        note_known(run)
        self.store = Store(run, read_only=True, threads=threads)
        newest = self.store.latest() if step is None else step
        if newest is None:
            raise NotFoundError(f"{run}: the store has no checkpoints")
        self.step: int = newest
        self.info = self.store.checkpoint(newest)
        found = self.store.tensors(newest)
        # The tensors of values have names below the key.
        self.tensors: dict[str, GlobalTensor] = {
            name: tensor for name, tensor in found.items() if not name.startswith(f"{key}.")
        }

    def close(self) -> None:
        self.store.close()

    @property
    def where(self) -> str:
        """For errors."""
        return f"{self.store.path}: step {self.step}"

    def described(self, text: str | None, read: Callable[[Any], _T]) -> _T:
        """What the metadata say, by a function that raises a ValueError, KeyError, TypeError or AttributeError if they
        are damaged."""
        return self._checked(f"{self.where}: metadata {self._key!r}", lambda: read(parse_json(text or "")))

    def shard_of(self, shard: Any) -> int:
        """A number that the metadata give, if it is that of a shard; a ValueError otherwise."""
        if type(shard) is not int or not 0 <= shard < self.info.shards:
            raise ValueError(f"it names the shard {shard!r}, and there are {self.info.shards}")
        return shard

    def values(self, shard: int, read: Callable[[Any], _T], *places: Sequence[str]) -> _T:
        """The values of a shard, by a function as for described(); below some places only, or all of them."""
        keys = [(self._key, *place) for place in places] or [(self._key,)]
        try:
            state = self.store.load(self.step, keys=keys, shard=shard, allow_pickle=self._allow_pickle)
        except NotFoundError as error:
            if error.field != "keys":
                raise
            names: list[str] = []
            with suppress(NotFoundError):  # which says that nothing was chosen
                self.store.load(self.step, keys=lambda name: bool(names.append(name)), shard=shard)  # type: ignore[func-returns-value]
            raise InvalidArgumentError(f"{self.where} was saved by {saved_by(names)}") from None
        return self._checked(f"{self.where}, shard {shard}: {self._key!r}", lambda: read(state[self._key]))

    def fill(self, requests: Iterable[tuple[str, tuple[int, ...], torch.Tensor]]) -> None:
        """Reads boxes of tensors, each given by its name and offset, into tensors of any dtype."""
        read, converted = [], []
        for name, offset, place in requests:
            dtype = self.dtype_of(name)
            target = place
            if place.dtype != dtype:
                target = torch.empty(place.shape, dtype=dtype)
                converted.append((place, target))
            read.append((name, offset, target))
        self.store._read_into(self.step, read, may_share=True)
        for place, staged in converted:
            place.copy_(staged)

    def dtype_of(self, name: str) -> torch.dtype:
        return torch_dtype(self.tensors[name].dtype, name)

    def check_is_whole(self, name: str, tensor: GlobalTensor) -> None:
        """Raises CorruptError if the shards do not have all elements: what no part holds would stay as it is."""
        held, needed = sum(math.prod(part.shape) for part in tensor.parts), math.prod(tensor.shape)
        if held < needed:
            raise CorruptError(
                f"{self.where}: the shards hold {held} of {needed} elements of tensor {name!r}; "
                "Store.load(shard=...) loads what is there"
            )

    def _checked(self, what: str, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptError(f"{what} is damaged: {error}") from None
