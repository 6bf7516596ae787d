"""Checkpointers for tests: jobs that no other test has, and agents that end with the test."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bitsnap
from python.run_states import state_of


class Jobs:
    """Makes checkpointers, and ends them and their agents."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "run"
        self._names: list[str] = []
        self._made: list[bitsnap.Checkpointer] = []
        self.job = self.new_job()

    def new_job(self) -> str:
        self._names.append(f"test-{os.getpid()}-{secrets.token_hex(4)}")
        return self._names[-1]

    def __call__(self, **options: Any) -> bitsnap.Checkpointer:
        wanted: dict[str, Any] = {
            "job": bitsnap.JobOptions(name=self.job),
            "agent": bitsnap.AgentOptions(threads=1, linger=20.0),
            "timeout": 30.0,
        }
        made = bitsnap.Checkpointer(options.pop("path", self.path), **wanted | options)
        self._made.append(made)
        return made

    def agent(self, timeout: float = 10) -> int:
        """The process of the agent."""
        process = bitsnap.agent_status(job=self.job, timeout=timeout)["process"]
        assert isinstance(process, int)
        return process

    def forget(self, checkpointer: bitsnap.Checkpointer) -> None:
        """Does not end this one, to which the test keeps no reference."""
        self._made.remove(checkpointer)

    def wait_until_idle(self) -> None:
        """Returns when the agent has nothing to do: a moment after it has said that its last save is persisted."""
        deadline = time.monotonic() + 10
        while any(row["queued"] or row["encoding"] or row["writing"] for row in self._ranks()):
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def _ranks(self) -> list[dict[str, Any]]:
        ranks: list[dict[str, Any]] = bitsnap.agent_status(job=self.job, timeout=10)["ranks"]
        return ranks

    def end(self) -> None:
        for each in self._made:
            each._end()
        for name in self._names:
            with contextlib.suppress(bitsnap.NotFoundError):
                bitsnap.stop_agent(job=name, abandon=True, timeout=20)
        # One that was told to end before does not listen any more, a moment before it has ended.
        deadline = time.monotonic() + 10
        while any(name in line for name in self._names for line in processes()) and time.monotonic() < deadline:
            time.sleep(0.005)


def saved(checkpointer: bitsnap.Checkpointer, step: int, state: Any, **options: Any) -> bitsnap.Save:
    save = checkpointer.save(step, state, **options)
    assert save is not None
    return save


@contextlib.contextmanager
def paused(process: int) -> Iterator[None]:
    """An agent that gets nothing done meanwhile."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def failed(checkpointer: bitsnap.Checkpointer) -> bitsnap.Save:
    """A save that fails in the background: of the step that was saved last."""
    save = saved(checkpointer, checkpointer.latest() or 0, state_of(9))
    with pytest.raises(bitsnap.InvalidArgumentError, match="step"):
        save.result()
    return save


def processes() -> set[str]:
    """The command lines of all agents of this process's tests that are alive."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if f"test-{os.getpid()}-" in line and "agent run" in line and state != "Z":
                found.add(line)
    return found
