"""Which steps a Checkpointer can save: a run with newer steps takes no older one, and the agent finds out too late."""

from __future__ import annotations

import shlex
from pathlib import Path

from bitsnap._arguments import invalid, native_path
from bitsnap._bitsnap import default_job
from bitsnap.errors import BitsnapError
from bitsnap.store import Store


class SavableSteps:
    """Refuses steps that cannot become checkpoints, before a training saves for hours without a checkpoint.

    Not refused is the step that was restored or saved last, and after restore() has chosen a step by itself, those that
    it had to skip: the training goes on, and the next steps can be saved.

    Args:
        path: the store.
        job: the job whose agent commits the steps.
    """

    def __init__(self, path: Path, job: str) -> None:
        self._path, self._job = path, job
        self._restored: int | None = None
        self._skips = False  # whether restore() has chosen the step by itself, so that newer ones are damaged
        self._must_be_newest = False  # the step that the caller has chosen
        self._first = 0  # the lowest step that may be saved, as far as is known without a look at the store
        self._look()

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
        """
        if self._has_to_look:
            self._look()
        if step >= self._first and not self._must_be_newest:
            return
        newest = self._newest()
        last = self._restored if self._must_be_newest and self._restored is not None else step - 1
        if newest is None or newest <= last:  # the store was rolled back, or cannot be read now
            self._first, self._must_be_newest = step, False
            return
        run = shlex.quote(str(self._path))
        agent = run if self._job == default_job(native_path(self._path)) else f"--job {shlex.quote(self._job)}"
        why = "steps only increase" if step <= newest else f"step {last} was restored"
        raise invalid(
            "step",
            f"{step} cannot be saved: {self._path} has the checkpoint of step {newest}, and {why}. To "
            "continue that training, call restore() before the first save, and train from the step after the restored "
            f"one. To continue from an earlier step, run `bitsnap agent stop {agent}` and `bitsnap rollback {run} --to "
            "STEP`. For another training, pass the path of another directory",
        )

    def _look(self) -> None:
        self._has_to_look = False
        newest = None if self._skips else self._newest()
        if newest is not None:
            self._first = max(self._first, newest + 1)

    def _newest(self) -> int | None:
        try:
            return Store(self._path, read_only=True, create=False).latest()
        except BitsnapError:  # which the save or the restore reports
            return None
