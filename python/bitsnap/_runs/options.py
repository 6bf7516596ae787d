"""Options, which all adapters of frameworks take."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitsnap._bitsnap import Settings
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
from bitsnap._mirrors import mirroring_of
from bitsnap.agents import AgentOptions, MemoryOptions, check_agent
from bitsnap.checkpointer import Checkpointer
from bitsnap.store import Store


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
