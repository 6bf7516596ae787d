"""Agents: the processes that compress and write states. Their options, asking them, and stopping them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, SupportsIndex

from bitsnap._bitsnap import (
    AgentOptions as NativeAgentOptions,
    MemoryOptions as NativeMemoryOptions,
    agent_status as native_agent_status,
    default_job,
    stop_agent as native_stop_agent,
)
from bitsnap._common import (
    LARGEST_COUNT,
    PathLike,
    absolute_path,
    brief,
    milliseconds_of,
    native_home,
    native_path,
    number_of,
    positive_of,
    text_of,
)
from bitsnap.errors import KINDS, BitsnapError, BusyError, InternalError, InvalidArgumentError, NotFoundError


def find_program(*first: Path, name: str = "bitsnap") -> Path:
    """Looks into the folders `first`, then beside the package and beside this Python, and last on PATH.

    Raises:
        NotFoundError: it is in none of them.
    """
    package = Path(__file__).resolve().parent
    folders = (*first, package / "bin", Path(sysconfig.get_path("scripts")), Path(sys.executable).parent)
    for folder in folders:
        program = folder / name
        if program.is_file() and os.access(program, os.X_OK):
            return program
    found = shutil.which(name)
    if found is None:
        looked = ", ".join(str(folder) for folder in dict.fromkeys(folders))
        raise NotFoundError(f"{name}: the command is neither beside this Python ({looked}) nor on PATH")
    return Path(found)


_FIRST_KIND = 11  # of the command's exit statuses for errors


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

    def _fill(self, native: NativeMemoryOptions) -> None:
        native.budget_bytes = positive_of(self.budget, "budget") or 0
        native.slots = number_of(self.slots, "slots", LARGEST_COUNT)
        native.snapshots = number_of(self.snapshots, "snapshots", LARGEST_COUNT)
        native.when_busy = text_of(self.when_busy, "when_busy")


@dataclass(frozen=True)
class AgentOptions:
    """The agent: the process that compresses and writes the states.

    Args:
        threads: that the agent compresses with. 0, the default: half of those that this process may use.
        command: the program `bitsnap`, which is the agent. None, the default: the one that came with this package.
        log: a file to which the agent appends its error messages. None, the default: no file.
        linger: how long an agent without trainers and work stays, with its memory, in seconds; 60 is the default. The
            value of the first rank counts.
        rate: the megabytes (10^6 bytes) that it sends each second, at most, if the run is in an object store. None, the
            default: no limit. The value of the first rank counts, until the agent ends.
    """

    threads: SupportsIndex = 0
    command: PathLike | None = None
    log: PathLike | None = None
    linger: float = 60.0
    rate: float | None = None

    def _fill(self, native: NativeAgentOptions, *, is_remote: bool) -> None:
        native.threads = number_of(self.threads, "threads", LARGEST_COUNT)
        native.command = native_path(self._program(is_remote))
        native.log = b"" if self.log is None else native_path(absolute_path(self.log, "log"))
        native.linger_ms = milliseconds_of(self.linger, "linger")
        native.upload_bytes_per_second = 0 if self.rate is None else _bytes_of(self.rate)

    def _program(self, is_remote: bool) -> Path:
        if self.command is None:
            return find_program(name="bitsnap-remote" if is_remote else "bitsnap")
        program = absolute_path(self.command, "command")
        if not os.access(program, os.X_OK) or not program.is_file():
            raise NotFoundError(f"command: {str(program)!r} is not an executable program")
        return program


def run_program(program: Path, *arguments: PathLike) -> str:
    """Runs a command of bitsnap. What it printed; its error, as the class that it has in Python."""
    words = [os.fsdecode(each) for each in arguments]
    done = subprocess.run([str(program), *words], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    kinds = list(KINDS.values())
    number = done.returncode - _FIRST_KIND
    kind = kinds[number] if 0 <= number < len(kinds) else InternalError
    raise kind(re.sub(r"^bitsnap: error: | \[\w+\]$", "", done.stderr.strip()))


def _bytes_of(rate: float) -> int:
    """Of a rate in megabytes each second."""
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise TypeError(f"rate must be a number of megabytes, or None, got {brief(rate)}")
    if not 0 < rate < 1e12:
        raise InvalidArgumentError(f"rate must be a number of megabytes above 0, got {brief(rate)}")
    return math.ceil(rate * 1e6)


def check_agent(agent: Any, memory: Any) -> None:
    """Raises TypeError if they are neither None nor AgentOptions and MemoryOptions."""
    for name, value, kind in (("agent", agent, AgentOptions), ("memory", memory, MemoryOptions)):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} must be bitsnap.{kind.__name__} or None, got {brief(value)}")


def agent_status(path: PathLike | None = None, *, job: str | None = None, timeout: float = 10.0) -> dict[str, Any]:
    """The status of the agent of a job, as ``bitsnap agent status --json`` prints it. Waits for the answer.

    Args:
        path: the store of the job, if the trainers gave the job no name; or
        job: the name of the job.
        timeout: the longest wait for the answer, in seconds, before BusyError.

    Raises:
        NotFoundError: the job has no agent on this machine.
    """
    report: dict[str, Any] = json.loads(native_agent_status(_job_of(path, job), milliseconds_of(timeout, "timeout")))
    report["mirror"] = None
    with contextlib.suppress(OSError, ValueError):
        report["mirror"] = json.loads((Path(report["store"]) / "mirror.json").read_bytes())
    return report


def stop_agent(
    path: PathLike | None = None, *, job: str | None = None, abandon: bool = False, timeout: float = 600.0
) -> None:
    """Stops the agent of a job after it persisted all staged states, and waits until it has exited.

    A living trainer starts another agent with its next save.

    Args:
        path: the store of the job, if the trainers gave the job no name; or
        job: the name of the job.
        abandon: drop the saves that are not being written yet.
        timeout: the longest wait for its end, in seconds, before BusyError; it ends nevertheless.

    Raises:
        NotFoundError: the job has no agent on this machine.
    """
    native_stop_agent(_job_of(path, job), bool(abandon), milliseconds_of(timeout, "timeout"))


@contextlib.contextmanager
def explained_holder(kind: str, path: PathLike | None = None) -> Iterator[None]:
    """Lets a BusyError say who holds what is busy: another object of this kind in this process, or, if a path of a
    store is given, an agent of this machine."""
    try:
        yield
    except BusyError as error:
        _explain_holder(error, kind, path)
        raise


def _explain_holder(error: BusyError, kind: str, path: PathLike | None) -> None:
    if re.search(rf"\bprocess,? {os.getpid()}\b", str(error)):
        error.args = (
            f"{error}: it is another {kind} of this process, such as that of a cell of a notebook that ran before; use "
            "that one, or close() it first",
        )
        return
    if path is None:
        return
    if kind == "Store":
        error.args = (f"{error}; timeout=SECONDS waits for it, and read_only=True reads meanwhile",)
    with contextlib.suppress(BitsnapError):
        process = agent_status(path, timeout=1.0)["process"]
        if not re.search(rf"\bprocess {process}\b", str(error)):
            return
        error.add_note(
            f"Process {process} is the agent of a training. It holds the store until it has been idle for a while. "
            f"`bitsnap agent stop {shlex.quote(os.fsdecode(path))}` ends it."
        )


def _job_of(path: PathLike | None, job: str | None) -> str:
    if (path is None) == (job is None):
        raise InvalidArgumentError("say which agent: by the path of its store, or by its job")
    if job is not None:
        return text_of(job, "job")
    assert path is not None
    return default_job(native_home(path, "path"))
