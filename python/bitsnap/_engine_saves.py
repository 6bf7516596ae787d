"""The saves of a Checkpointer that are under way: handles of them, what became of each, and who is told.

A :class:`Saves` is shared by a Checkpointer, its handles and the thread that tells of progress; it knows nothing of the
Checkpointer, which may be collected meanwhile. A handle that is over does not ask the engine any more.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from bitsnap import _bitsnap
from bitsnap._adam import AdamOfState
from bitsnap.agents import milliseconds_of
from bitsnap.errors import BitsnapError, BusyError, InvalidArgumentError, NotFoundError, class_of_kind

Stage: TypeAlias = Literal["skipped", "staged", "memory", "persisted", "failed"]
OnProgress: TypeAlias = Callable[["Save"], object]

# How often the thread that tells of progress looks at all that is under way, while it waits for the oldest.
_WATCH_MS = 100
# How long what is told of progress may hold up the end, in seconds.
_LONGEST_JOIN = 5.0


@dataclass(frozen=True)
class SaveResult:
    """What a save cost. Sizes are in bytes."""

    step: int
    raw_bytes: int
    stored_bytes: int
    base: int | None
    """The step it is coded against."""
    stall_seconds: float
    """What save() took: all that the training waited for."""
    wait_seconds: float
    """Of it, for a free slot."""
    encode_seconds: float
    write_seconds: float

    @property
    def ratio(self) -> float:
        """How many times smaller it is than the state."""
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0


class Save:
    """One save of a Checkpointer, from the moment at which the training goes on. May be used by any thread."""

    def __init__(self, saves: Saves, state: dict[str, Any], adam: AdamOfState | None = None) -> None:
        self._saves = saves
        self._state = state
        self._adam = adam
        self._stall_seconds: float = state["stall_seconds"]

    def __repr__(self) -> str:
        return f"Save(step={self.step}, {self.stage})"

    @property
    def step(self) -> int:
        step: int = self._state["step"]
        return step

    @property
    def stage(self) -> Stage:
        """How far it has come: "staged", "memory" or "persisted"; or "skipped" or "failed"."""
        self._refresh()
        stage: Stage = self._state["stage"]
        return stage

    @property
    def persist(self) -> bool:
        """Whether it is to come into the store."""
        return bool(self._state["persist"])

    @property
    def error(self) -> BitsnapError | None:
        """Why it failed; None where it did not."""
        self._refresh()
        return None if self._state["error"] is None else self._error()

    def done(self) -> bool:
        """Whether nothing more is going to happen to it."""
        self._refresh()
        return bool(self._state["is_over"])

    def staged(self) -> bool:
        """Whether the state was copied. False where it was skipped, or nothing could be taken over."""
        return bool(self._state["ticket"]) and self._state["stage"] != "skipped"

    def in_memory(self, timeout: float | None = None) -> bool:
        """Waits until it is compressed in the agent's memory, where it survives this process.

        Args:
            timeout: seconds; None for the `wait` of the Checkpointer.

        Returns:
            False where the time was over first, or it was skipped.

        Raises:
            BitsnapError: it failed before.
        """
        if not self._wait("memory", timeout):
            return False
        if self._state["has_reached_memory"] or self._state["stage"] in ("memory", "persisted"):
            return True
        self._raise_error()
        return False

    def persisted(self, timeout: float | None = None) -> bool:
        """Waits until it is a checkpoint of the store, committed by all ranks and durable.

        Args:
            timeout: seconds; None for the `wait` of the Checkpointer.

        Returns:
            False where the time was over first, it was skipped, or it is for memory only.

        Raises:
            BitsnapError: it failed.
        """
        if not self._wait("persisted", timeout):
            return False
        self._raise_error()
        return bool(self._state["stage"] == "persisted")

    def result(self, timeout: float | None = None) -> SaveResult:
        """Waits until nothing more is going to happen to it, and says what it cost.

        Raises:
            BusyError: the time was over first; or it was skipped, because nothing was free.
            BitsnapError: it failed.
        """
        if not self._wait("persisted", timeout):
            raise BusyError(f"step {self.step} is {self._state['stage']} and not over yet")
        self._raise_error()
        if self._state["stage"] == "skipped":
            raise BusyError(f"step {self.step} was skipped: all slots were in use")
        return self._measured()

    def _measured(self) -> SaveResult:
        names = ("raw_bytes", "stored_bytes", "base", "wait_seconds", "encode_seconds", "write_seconds")
        return SaveResult(self.step, stall_seconds=self._stall_seconds, **{name: self._state[name] for name in names})

    def _refresh(self) -> None:
        if self._state["is_over"] or self._saves.is_let_go:
            return
        try:
            self._state = self._saves.native.look(self._state["ticket"])
        except (NotFoundError, InvalidArgumentError):  # closed meanwhile
            return

    def _wait(self, stage: str, timeout: float | None) -> bool:
        """Whether it has come as far as this, or is over."""
        timeout_ms = self._saves.wait_ms if timeout is None else milliseconds_of(timeout, "timeout")
        if self._state["is_over"]:
            return True
        try:
            self._state = self._saves.native.wait(self._state["ticket"], stage, timeout_ms)
        except BusyError:
            self._refresh()
            return bool(self._state["is_over"])
        return True

    def _error(self) -> BitsnapError:
        kind, message = self._state["error"]
        error = class_of_kind(kind)(message)
        if self._adam is None:
            return error
        try:
            with self._adam.explained():
                raise error
        except BitsnapError as explained:
            return explained.with_traceback(None)

    def _raise_error(self) -> None:
        if self._state["error"] is not None:
            raise self._error()


class Saves:
    """All saves of an engine that may still come further."""

    def __init__(self, native: _bitsnap.Engine, wait_ms: int, on_progress: OnProgress | None) -> None:
        self.native = native
        self.wait_ms = wait_ms
        self.is_let_go = False
        self._on_progress = on_progress
        self._process = os.getpid()
        # Signal handlers come in between.
        self._changed = threading.Condition(threading.RLock())
        self._pending: dict[int, Save] = {}
        self._unwarned: list[str] = []
        self._unraised: list[Save] = []
        self._watched: list[tuple[Save, str]] = []  # with the stage that was told last
        self._is_ending = False
        self._watcher: threading.Thread | None = None

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process that it is of: threads are not there, and locks may be held."""
        return os.getpid() != self._process

    def add(self, state: dict[str, Any], adam: AdamOfState, stall_seconds: float) -> Save:
        save = Save(self, state, adam)
        save._stall_seconds = stall_seconds
        with self._changed:
            if not state["is_over"]:
                self._pending[state["ticket"]] = save
                self._watch(save)
        return save

    def add_failed(self, step: int, persist: bool, error: BitsnapError, stall_seconds: float) -> Save:
        """A save of which nothing was taken over."""
        state = dict.fromkeys(("ticket", "raw_bytes", "stored_bytes"), 0) | {
            "step": step,
            "stage": "failed",
            "persist": persist,
            "has_reached_memory": False,
            "error": (_KINDS.get(type(error), "internal"), str(error)),
            "base": None,
            "is_over": True,
            **dict.fromkeys(("stall_seconds", "wait_seconds", "encode_seconds", "write_seconds"), 0.0),
        }
        state["stall_seconds"] = stall_seconds
        save = Save(self, state)
        with self._changed:
            self._note_failure(save)
            self._watch(save)
        return save

    def take_warnings(self) -> list[str]:
        """What went wrong since this was asked last, each once."""
        with self._changed:
            self.refresh()
            texts, self._unwarned = self._unwarned, []
        return texts

    def take_error(self) -> BitsnapError | None:
        """The error of the last save that failed since this was asked last."""
        with self._changed:
            self.refresh()
            failed, self._unraised = self._unraised, []
        return failed[-1]._error() if failed else None

    def refresh(self) -> None:
        """Looks at all that is under way."""
        with self._changed:
            for ticket, save in list(self._pending.items()):
                if not save.done():
                    continue
                del self._pending[ticket]
                if save._state["error"] is not None:
                    self._note_failure(save)

    def wait_in_memory(self, seconds: float) -> None:
        """Until nothing is merely staged. For signal handlers: it takes no lock, and does not look for an agent."""
        deadline = time.monotonic() + seconds
        while any(save.stage == "staged" for save in list(self._pending.values())):
            if time.monotonic() >= deadline or self.native.is_closed or self.native.agent_process == 0:
                return
            time.sleep(0.005)

    def let_go(self) -> None:
        """Leaves the agent, which goes on. Handles keep what is known by then."""
        if self.is_forked or self.is_let_go:
            return
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        watcher = self._watcher
        if watcher is not None and watcher is not threading.current_thread():
            watcher.join(_LONGEST_JOIN)
            if watcher.is_alive():
                # At exit it is still somewhere in on_progress, and keeps all that it has seen.
                _bitsnap.warn_of_leaks(False)
        self.refresh()
        self.is_let_go = True
        self.native.close()

    def _note_failure(self, save: Save) -> None:
        self._unraised.append(save)
        self._unwarned.append(f"step {save.step} was not saved: {save._error()}")

    def _watch(self, save: Save) -> None:
        if self._on_progress is None or self._is_ending:
            return
        self._watched.append((save, "staged"))
        if self._watcher is None:
            # It must not keep a process alive whose work is done: let_go() ends it at exit.
            self._watcher = threading.Thread(target=self._tell_all, name="bitsnap-progress", daemon=True)
            self._watcher.start()
        self._changed.notify_all()

    def _tell_all(self) -> None:
        while True:
            with self._changed:
                while not self._watched and not self._is_ending:
                    self._changed.wait()
                watched, is_last = list(self._watched), self._is_ending
            for save, told in watched:
                self._tell(save, told)
            if is_last:
                return
            with self._changed:
                oldest = next((save for save, _ in self._watched), None)
            if oldest is None:
                continue
            try:
                stage = "memory" if oldest.stage == "staged" else "persisted"
                self.native.wait(oldest._state["ticket"], stage, _WATCH_MS)
            except BitsnapError:  # of time; all else is seen at the next look
                time.sleep(0.001)

    def _tell(self, save: Save, told: str) -> None:
        stage, is_over = save.stage, bool(save._state["is_over"])
        with self._changed:
            self._watched = [
                (each, stage if each is save else last)
                for each, last in self._watched
                if each is not save or not is_over
            ]
        if stage == told or self._on_progress is None:
            return
        try:
            self._on_progress(save)
        except BaseException as error:
            # A training does not end by what was only to be told of it, nor does the telling: sys.exit() is meant for
            # another thread than this one.
            with self._changed:
                self._unwarned.append(f"on_progress failed for step {save.step}: {type(error).__name__}: {error}")


_KINDS = {
    class_of_kind(kind): kind
    for kind in (
        "invalid_argument",
        "not_found",
        "unsupported",
        "truncated",
        "corrupt",
        "io",
        "resource_exhausted",
        "busy",
        "cancelled",
        "internal",
    )
}
