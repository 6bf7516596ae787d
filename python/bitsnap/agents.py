"""The agents of this machine as others than their trainers see them: what one does, and its end."""

from __future__ import annotations

import json
import math
from typing import Any

from bitsnap import _bitsnap
from bitsnap._arguments import seconds_of, text_of
from bitsnap._options import PathLike, absolute_path, native_path
from bitsnap.errors import InvalidArgumentError

# Longer waits than this one of decades cannot be told from it.
_LONGEST_WAIT_MS = 1 << 40


def agent_status(path: PathLike | None = None, *, job: str | None = None, wait: float = 10.0) -> dict[str, Any]:
    """What the agent of a job serves and has done, as ``bitsnap agent status --json`` prints it.

    Args:
        path: the store that the trainers save to, where they name no job; or
        job: the job.
        wait: seconds to wait for the answer, before BusyError.

    Raises:
        NotFoundError: the job has no agent on this machine.
    """
    report: dict[str, Any] = json.loads(_bitsnap.agent_report(_job_of(path, job), milliseconds_of(wait, "wait")))
    return report


def stop_agent(
    path: PathLike | None = None, *, job: str | None = None, abandon: bool = False, wait: float = 600.0
) -> None:
    """Ends the agent of a job, once all that was staged is persisted.

    A trainer that is still there starts another with its next save.

    Args:
        path: the store that the trainers save to, where they name no job; or
        job: the job.
        abandon: give up what is not being written yet.
        wait: seconds to wait for its end, before BusyError; it ends all the same.

    Raises:
        NotFoundError: the job has no agent on this machine.
    """
    _bitsnap.stop_agent(_job_of(path, job), bool(abandon), milliseconds_of(wait, "wait"))


def milliseconds_of(seconds: float, name: str) -> int:
    return math.ceil(min(seconds_of(seconds, name) * 1000, _LONGEST_WAIT_MS))


def _job_of(path: PathLike | None, job: str | None) -> str:
    if (path is None) == (job is None):
        raise InvalidArgumentError("say which agent: by the path of its store, or by its job")
    if job is not None:
        return text_of(job, "job")
    assert path is not None
    return _bitsnap.default_job(native_path(absolute_path(path, "a store")))
