"""The steps of a store, for a training: which ones it can save, when one is committed, and whether others were there.

Nothing here writes.
"""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any, NamedTuple, SupportsFloat, SupportsIndex, cast

from bitsnap._bitsnap import Store as NativeStore, default_job
from bitsnap._common import (
    Home,
    PathLike,
    absolute_home,
    brief,
    float_of,
    invalid,
    milliseconds_of,
    native_run,
    number_of,
    opened_store,
    positive_of,
    real_home,
    text_of,
    warn,
)
from bitsnap._engine.ranks import Ranks
from bitsnap.agents import agent_status
from bitsnap.errors import (
    KINDS,
    BitsnapError,
    BusyError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    RestoreWarning,
)

_now = time.monotonic  # of Schedule, for tests


class Schedule:
    """Which steps are stored, and which are kept in memory. The arguments are those of Checkpointer."""

    def __init__(
        self, every: SupportsIndex, every_minutes: SupportsFloat | None, every_memory: SupportsIndex | None
    ) -> None:
        self.every = cast("int", positive_of(every, "every"))
        self._every_memory = positive_of(every_memory, "every_memory")
        self._seconds = None if every_minutes is None else 60 * float_of(every_minutes, "every_minutes")
        if self._seconds is not None and not self._seconds >= 0:
            raise invalid("every_minutes", f"must not be negative, got {brief(every_minutes)}")
        self._last = _now()

    def next_due(self, step: int) -> int:
        """The step itself, or the next one after it that may be stored."""
        return step + -step % self.every

    def is_time(self, ranks: Ranks) -> bool:
        """Of a step that may be stored: whether the clock says so, too. All ranks must ask; the first one decides."""
        seconds = self._seconds
        if seconds is None:
            return True
        return ranks.from_first(lambda: _now() - self._last >= seconds, "ask the clock")

    def note(self, is_accepted: bool) -> None:
        """Whether a step was accepted for the store: then the time begins again."""
        if is_accepted:
            self._last = _now()

    def is_for_memory(self, step: int) -> bool:
        return self._every_memory is not None and step % self._every_memory == 0


# The newest steps that this process has saved or is about to save, by their stores.
_saved_here: dict[Home, int] = {}


class SavableSteps:
    """Refuses steps that cannot become checkpoints, before a training saves for hours without a checkpoint.

    Not refused is the step that was restored or saved last, and after restore() has chosen a step by itself, those that
    it had to skip: the training goes on, and the next steps can be saved.

    Args:
        path: the store.
        job: the job whose agent commits the steps.
    """

    def __init__(self, path: Home, job: str) -> None:
        self._path, self._job = path, job
        self._restored: int | None = None
        self._skips = False  # whether restore() has chosen the step by itself, so that newer ones are damaged
        self._must_be_newest = False  # the step that the caller has chosen
        self._first = 0  # the lowest step that may be saved, as far as is known without a look at the store
        self._look()
        # Whether others have saved checkpoints, and restore() was not called.
        self._unasked = self._first > _saved_here.get(path, -1) + 1 and self._first > 0

    def note_asked(self) -> None:
        """The training has called restore(), or its framework loads checkpoints in another way."""
        self._unasked = False

    def note_restored(self, step: int, *, by_caller: bool) -> None:
        """`by_caller`: restore() was called with this step. Otherwise it has chosen the newest that can be restored."""
        self._first = self._restored = step
        self._skips, self._must_be_newest = not by_caller, by_caller

    def note_persisted(self, step: int) -> None:
        self._first = max(self._first, step)

    def note_refused(self) -> None:
        """A save has failed: another process may have saved newer steps since."""
        self._has_to_look = True

    def is_saved_again(self, step: int) -> bool:
        """Whether this step was restored and is in the run: a training that had ended was started again."""
        return step == self._restored and self._newest() == step

    def check(self, step: int) -> None:
        """Raises InvalidArgumentError if the run has this step or a later one, and nothing says that this is known.

        After the caller has chosen a step to restore, also if the run has any later step: a training that goes on from
        there and is killed would continue from that one.

        Warns once, of the first step, if the run has earlier steps and restore() was not called.
        """
        if self._has_to_look:
            self._look()
        if step >= self._first and not self._must_be_newest:
            self._warn_if_unasked()
            _saved_here[self._path] = max(step, _saved_here.get(self._path, -1))
            return
        newest = self._newest()
        last = self._restored if self._must_be_newest and self._restored is not None else step - 1
        if newest is None or newest <= last:  # the store was rolled back, or cannot be read now
            self._first, self._must_be_newest = step, False
            return
        run = shlex.quote(str(self._path))
        agent = run if self._job == default_job(native_run(self._path)) else f"--job {shlex.quote(self._job)}"
        why = "steps only increase" if step <= newest else f"step {last} was restored"
        raise invalid(
            "step",
            f"{step} cannot be saved: {self._path} has the checkpoint of step {newest}, and {why}. To "
            "continue that training, call restore() before the first save, and train from the step after the restored "
            f"one. To continue from an earlier step, run `bitsnap agent stop {agent}` and `bitsnap rollback {run} --to "
            "STEP`, or save to a branch with branch=NAME and branch_from=STEP. For another training, pass the path of "
            "another directory",
        )

    def _warn_if_unasked(self) -> None:
        if not self._unasked:
            return
        self._unasked = False
        warn(
            f"{self._path} has checkpoints up to step {self._first - 1}, and this training saves to it without having "
            "called restore(): the run will hold the steps of both, and keep_last removes the earlier ones. If that is "
            f"not meant, stop this training; `bitsnap rollback {shlex.quote(str(self._path))} --to {self._first - 1}` "
            "then removes what it has saved. To continue the earlier training, call restore() before the first save; "
            "for another one, pass the path of another directory",
            RestoreWarning,
            stacklevel=4,
        )

    def _look(self) -> None:
        self._has_to_look = False
        newest = None if self._skips else self._newest()
        if newest is not None:
            self._first = max(self._first, newest + 1)

    def _newest(self) -> int | None:
        try:
            return opened_store(self._path).latest()
        except BitsnapError:  # which the save or the restore reports
            return None


# The runs that this process has read a checkpoint of, saved to, or warned of.
_known_runs: set[Home] = set()


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
    _known_runs.add(real_home(run))


def warn_of_earlier(run: Home, told: Beside, *, is_new: bool = False) -> None:
    """Warns before the first save to a run with checkpoints of which this process has read none.

    `is_new`: the caller knows that a training begins here, which has read none.
    """
    if real_home(run) in _known_runs and not is_new:
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


# Pauses between two looks at the store and the agent, in seconds. They double.
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
# The longest wait for an answer of the agent, which may be stopped, in seconds. When the time is over, it is the first
# one, so that the last look sees an agent that works.
_ANSWER_WAITS = 0.2, 2.0


def wait_committed(path: PathLike, step: SupportsIndex, timeout: float = 600.0, *, job: str | None = None) -> None:
    """Waits until a step is a committed checkpoint of a store: durable, and complete with the shards of all ranks.

    Any process may call this, before or after the save began, also a forked child of a trainer. It needs no
    Checkpointer and no torch, reads the store without its lock, and asks the agent of this machine what became of the
    save. It is a plain function of plain arguments, which can be pickled and run elsewhere.

    Args:
        path: the directory of the store. It may not exist yet; its parent must.
        step: the step.
        timeout: the longest wait in seconds; 0 looks once.
        job: the name of the job if its trainers gave it one, as in JobOptions.

    Raises:
        BusyError: the step was not committed within `timeout`; the message says what the store and the agent do. Or the
            step was skipped, because not all ranks saved it.
        BitsnapError: the save failed in the agent of this machine; the error of the save.
        NotFoundError: the step cannot be committed any more, because the store has later ones and not this one, and no
            agent knows that it was committed and removed since. Or the parent directory does not exist.
        InvalidArgumentError, UnsupportedError, CorruptError, IoError: the store cannot be read.
    """
    _wait(path, step, timeout, job, is_staged=False)


def wait_for_staged(path: PathLike, step: int, timeout: float) -> None:
    """As wait_committed(), for a step that a process has staged already: if no agent works on saves, it is lost.

    Raises:
        NotFoundError: the agent has ended, or has no save in progress.
    """
    _wait(path, step, timeout, None, is_staged=True)


def _wait(path: PathLike, step: SupportsIndex, timeout: float, job: str | None, *, is_staged: bool) -> None:
    wanted = number_of(step, "step")
    waits = milliseconds_of(timeout, "timeout") / 1000
    where = absolute_home(path, "path")
    name = default_job(native_run(where)) if job is None else text_of(job, "job")
    if isinstance(where, Path) and not where.parent.is_dir():
        raise NotFoundError(f"{where}: the parent directory does not exist")
    deadline = time.monotonic() + waits
    steps, agent, pause = _Steps(where), _Agent(where, name), _FIRST_PAUSE
    was_hopeless = False
    while not steps.has(wanted):
        left = deadline - time.monotonic()
        ended = agent.ended(wanted, min(max(left, _ANSWER_WAITS[0]), _ANSWER_WAITS[1]))
        # A save may end between the two looks.
        if "persisted" in ended or steps.has(wanted):
            return
        for stage, error in ended.items():
            raise _error_of(f"{where}: step {wanted} {'was skipped' if stage == 'skipped' else 'failed'}", error)
        # An agent that works may fail this step next. A save that was just staged is seen by the second look.
        is_late = steps.newest is not None and steps.newest > wanted
        is_lost = is_staged and not agent.waits_for_ranks
        is_hopeless = (is_late or is_lost) and not agent.is_working
        if is_hopeless and was_hopeless:
            if not is_late:
                raise NotFoundError(f"{where}: step {wanted} was staged and is lost; {steps}, {agent}")
            raise NotFoundError(
                f"{where}: step {wanted} is not in the store, which has the later step {steps.newest}: it was removed, "
                "or was never committed"
            )
        was_hopeless = is_hopeless
        left = deadline - time.monotonic()
        if left <= 0:
            raise BusyError(f"{where}: step {wanted} was not committed within {waits:g} s; {steps}, {agent}")
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)


class _Steps:
    """The steps of a store that may not exist yet."""

    def __init__(self, path: Home) -> None:
        self._path = path
        self._store: NativeStore | None = None
        self.newest: int | None = None

    def has(self, step: int) -> bool:
        try:
            if self._store is None:
                self._store = opened_store(self._path, loads_bases=True)
            found = self._store.steps()
        except NotFoundError:
            self._store = self.newest = None
            return False
        self.newest = found[-1] if found else None
        return step in found

    def __str__(self) -> str:
        if self._store is None:
            return "there is no store yet"
        return "the store is empty" if self.newest is None else f"the newest step of the store is {self.newest}"


class _Agent:
    """What the agent of a job says of its saves."""

    def __init__(self, path: Home, job: str) -> None:
        self._path, self._job = path, job
        self.is_working = False  # as far as can be known
        self.waits_for_ranks = False
        self._note = ""

    def ended(self, step: int, seconds: float) -> dict[str, dict[str, Any]]:
        """The saves of a step that have ended, by how they ended: "persisted", "failed" or "skipped"."""
        self.is_working = self.waits_for_ranks = False
        try:
            report = agent_status(job=self._job, timeout=seconds)
        except NotFoundError:
            self._note = f"and job {self._job!r} has no agent on this machine"
            return {}
        except InvalidArgumentError:
            raise
        except BitsnapError as error:  # such as that of a stopped agent, which may go on
            self.is_working = True
            self._note = f"and the agent of job {self._job!r} does not say more: {error}"
            return {}
        if report["store"] is None or real_home(report["store"]) != real_home(self._path):
            self._note = f"and the agent of job {self._job!r} saves to {report['store']}"
            return {}
        self.is_working = any(row["queued"] or row["encoding"] or row["writing"] for row in report["ranks"])
        waiting = [row["rank"] for row in report["ranks"] if row["uncommitted"]]
        self.waits_for_ranks = bool(waiting)
        doing = "works on saves" if self.is_working else f"waits for ranks beside {waiting}" if waiting else "is idle"
        self._note = f"and the agent of job {self._job!r}, process {report['process']}, {doing}"
        # An agent of an earlier version does not list them.
        saves = [save for row in report["ranks"] for save in row.get("ended", ()) if save["step"] == step]
        return {save["stage"]: save for save in saves}

    def __str__(self) -> str:
        return self._note


def _error_of(what: str, save: dict[str, Any]) -> BitsnapError:
    error = KINDS.get(save["kind"], InternalError)(f"{what}: {save['message']}")
    error.code = save["code"] or error.code
    return error
