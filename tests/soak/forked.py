"""Forks processes that lead groups of their own, and kills these. So a framework is imported once, by this process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Lets kill() wait also for processes of a group whose parent was killed: they become children of this process."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def fork(work: Callable[[], object], log: Path) -> int:
    """Does the work in a new process, whose output is added to the log. Returns its id, which is that of its group."""
    process = os.fork()
    if process:
        with contextlib.suppress(PermissionError, ProcessLookupError):  # it has ended, or has done so itself
            os.setpgid(process, process)
        return process
    status = 1
    try:
        os.setpgid(0, 0)
        with log.open("ab") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        torch.set_num_threads(1)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)


def kill(process: int) -> None:
    """Kills the group of a process that was not waited for, and waits for those of its processes that are children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-process, 0)


def wait(process: int, deadline: float) -> int | None:
    """The exit status; None if the process runs on after the deadline, of time.monotonic()."""
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)
