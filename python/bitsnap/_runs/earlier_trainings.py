"""Warns of a training that begins anew and saves to the run of an earlier one: once for each run in a process."""

from __future__ import annotations

from typing import NamedTuple

from bitsnap._common import Home, real_home, warn
from bitsnap._engine.steps import opened_store
from bitsnap.errors import BitsnapError, RestoreWarning

# The runs that this process has read a checkpoint of, saved to, or warned of.
_known: set[Home] = set()


class Beside(NamedTuple):
    """What a framework's user is told.

    Attributes:
        becomes: what becomes of the earlier checkpoints.
        resuming: what resumes the earlier training.
        elsewhere: what saves to another run.
    """

    becomes: str
    resuming: str
    elsewhere: str


def note_known(run: Home) -> None:
    """This training goes on from a checkpoint of the run, or has saved to it."""
    _known.add(real_home(run))


def warn_of_earlier(run: Home, told: Beside, *, is_new: bool = False) -> None:
    """Warns before the first save to a run with checkpoints of which this process has read none.

    `is_new`: the caller knows that a training begins here, which has read none.
    """
    if real_home(run) in _known and not is_new:
        return
    note_known(run)
    try:
        newest = opened_store(run).latest()
    except BitsnapError:  # there is none yet, or the save says what is wrong
        return
    if newest is not None:
        warn(
            f"{run} has checkpoints of an earlier training, up to step {newest}, and this training begins anew and "
            f"saves to the same run: {told.becomes}. {told.resuming} resumes that training; {told.elsewhere} keeps the "
            "two apart",
            RestoreWarning,
            stacklevel=None,
        )
