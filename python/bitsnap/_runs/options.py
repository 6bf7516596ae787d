"""Options: what all adapters of frameworks take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitsnap._arguments import LARGEST_COUNT, may_pickle, milliseconds_of, number_of
from bitsnap._bitsnap import Settings
from bitsnap.agents import AgentOptions, MemoryOptions, check_agent
from bitsnap.checkpointer import Checkpointer
from bitsnap.settings import settings_of
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

    Raises:
        InvalidArgumentError, TypeError: an option has a wrong value.
    """

    settings: Settings | str | None = None
    allow_pickle: bool = False
    agent: AgentOptions | None = None
    memory: MemoryOptions | None = None
    timeout: float = 600.0
    threads: int = 0

    def __post_init__(self) -> None:
        may_pickle(self.allow_pickle)  # checks it
        check_agent(self.agent, self.memory)
        settings_of(self.settings)
        milliseconds_of(self.timeout, "timeout")
        number_of(self.threads, "threads", LARGEST_COUNT)

    def store(self, run: Path, **more: Any) -> Store:
        """Opens a run."""
        return Store(run, settings=self.settings, timeout=self.timeout, threads=self.threads, **more)

    def checkpointer(self, run: Path, **more: Any) -> Checkpointer:
        """Opens a run to save to it through an agent."""
        return Checkpointer(
            run,
            settings=self.settings,
            agent=self.agent,
            memory=self.memory,
            timeout=self.timeout,
            threads=self.threads,
            **more,
        )
