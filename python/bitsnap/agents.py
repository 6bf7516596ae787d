"""Asking and stopping an agent of this machine without being its trainer."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from typing import Any

from bitsnap import _bitsnap
from bitsnap._arguments.checks import milliseconds_of, text_of
from bitsnap._arguments.options import PathLike, absolute_path, native_path
from bitsnap.errors import BitsnapError, BusyError, InvalidArgumentError


def agent_status(path: PathLike | None = None, *, job: str | None = None, timeout: float = 10.0) -> dict[str, Any]:
    """The status of the agent of a job, as ``bitsnap agent status --json`` prints it. Waits for the answer.

    Args:
        path: the store of the job, if the trainers gave the job no name; or
        job: the name of the job.
        timeout: the longest wait for the answer, in seconds, before BusyError.

    Raises:
        NotFoundError: the job has no agent on this machine.
    """
    report: dict[str, Any] = json.loads(_bitsnap.agent_report(_job_of(path, job), milliseconds_of(timeout, "timeout")))
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
    _bitsnap.stop_agent(_job_of(path, job), bool(abandon), milliseconds_of(timeout, "timeout"))


def explain_holder(error: BusyError, kind: str, path: PathLike | None = None) -> None:
    """Adds to the error who holds what is busy: another object of this kind in this process, or, if a path of a store
    is given, an agent of this machine."""
    if re.search(rf"\bprocess,? {os.getpid()}\b", str(error)):
        error.args = (
            f"{error}: it is another {kind} of this process, such as that of a cell of a notebook that ran before; use "
            "that one, or close() it first",
        )
        return
    if path is None:
        return
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
    return _bitsnap.default_job(native_path(absolute_path(path, "path")))
