"""The options of a Checkpointer that most trainings leave at their defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, SupportsIndex

from bitsnap._arguments.checks import LARGEST_COUNT, milliseconds_of, number_of, positive_of, text_of
from bitsnap._arguments.command import find_program
from bitsnap._arguments.options import PathLike, absolute_path, native_path
from bitsnap.errors import NotFoundError


@dataclass(frozen=True)
class JobOptions:
    """Which job this process belongs to, and its place in it.

    Args:
        name: names the training on this machine: 1 to 64 of the characters A-Z a-z 0-9 . _ -. None, the default: made
            from the path of the store.
        rank: of this process, from 0. None, the default: that of torch.distributed if it is initialized, otherwise 0.
        world_size: the number of ranks. None, the default: that of torch.distributed if it is initialized, otherwise 1.
        session: a word that all ranks share and that changes at each start of the job: 1 to 48 of the characters a-z,
            0-9 and "-". Needed if the ranks are on several machines. None, the default: the ranks agree on one through
            torch.distributed; without it, all ranks must be on this machine.
    """

    name: str | None = None
    rank: SupportsIndex | None = None
    world_size: SupportsIndex | None = None
    session: str | None = None


@dataclass(frozen=True)
class MemoryOptions:
    """How much memory checkpoints may take, and what save() does if none is free.

    Args:
        budget: the most bytes for this rank: the shared memory and the compressed snapshots in the agent. None, the
            default: `slots` states, and one more for the compressed snapshots.
        slots: states that the shared memory holds, 1 or 2; 2 is the default. With 1, a save waits until the previous
            one is encoded.
        snapshots: the number of newest snapshots that the agent keeps in memory, at least 1; 2 is the default.
        when_busy: what save() does while no slot is free: "wait", the default, or "skip" the step. All ranks of a
            machine skip the same steps.
    """

    budget: SupportsIndex | None = None
    slots: SupportsIndex = 2
    snapshots: SupportsIndex = 2
    when_busy: Literal["wait", "skip"] = "wait"

    def _native(self) -> dict[str, Any]:
        return {
            "budget_bytes": positive_of(self.budget, "budget") or 0,
            "slots": number_of(self.slots, "slots", LARGEST_COUNT),
            "memory_snapshots": number_of(self.snapshots, "snapshots", LARGEST_COUNT),
            "when_busy": text_of(self.when_busy, "when_busy"),
        }


@dataclass(frozen=True)
class AgentOptions:
    """The agent: the process that compresses and writes the states.

    Args:
        threads: that the agent compresses with. 0, the default: half of those that this process may use.
        command: the program `bitsnap`, which is the agent. None, the default: the one that came with this package.
        log: a file to which the agent appends its error messages. None, the default: no file.
        linger: how long an agent without trainers and work stays, with its memory, in seconds; 60 is the default. The
            value of the first rank counts.
    """

    threads: SupportsIndex = 0
    command: PathLike | None = None
    log: PathLike | None = None
    linger: float = 60.0

    def _native(self) -> dict[str, Any]:
        return {
            "agent_threads": number_of(self.threads, "threads", LARGEST_COUNT),
            "agent_program": native_path(self._program()),
            "agent_log": b"" if self.log is None else native_path(absolute_path(self.log, "log")),
            "linger_ms": milliseconds_of(self.linger, "linger"),
        }

    def _program(self) -> Path:
        if self.command is None:
            return find_program()
        program = absolute_path(self.command, "command")
        if not os.access(program, os.X_OK) or not program.is_file():
            raise NotFoundError(f"command: {str(program)!r} is not an executable program")
        return program


def check_agent(agent: Any, memory: Any) -> None:
    """Raises TypeError if they are neither None nor AgentOptions and MemoryOptions."""
    for name, value, kind in (("agent", agent, AgentOptions), ("memory", memory, MemoryOptions)):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} must be bitsnap.{kind.__name__} or None, got {value!r}")
