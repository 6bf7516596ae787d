"""The saves of a Checkpointer that are in progress: their handles, their errors, the thread that reports progress, and
SIGTERM, which waits for staged states.

A :class:`Saves` is shared by a Checkpointer, its handles and that thread. It does not refer to the Checkpointer, which
may be collected before. A handle whose save has ended does not ask the engine again.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Literal, TypeAlias

from bitsnap._bitsnap import Engine as NativeEngine, SaveState
from bitsnap._common import Home, brief, home_of, log, milliseconds_of, warn
from bitsnap._engine.copies_beside import Copies
from bitsnap._engine.steps import SavableSteps
from bitsnap._states.adam import AdamOfState
from bitsnap._tensors.device_copies import take_warning
from bitsnap.errors import (
    BackgroundSaveWarning,
    BitsnapError,
    BusyError,
    InvalidArgumentError,
    MemoryWarning,
    NotFoundError,
)

Stage: TypeAlias = Literal["copying", "skipped", "staged", "memory", "persisted", "failed"]
OnProgress: TypeAlias = Callable[["Save"], object]
DoneCallback: TypeAlias = Callable[["Save"], object]

# The thread that reports progress looks at all saves this often while it waits for the oldest one.
_WATCH_MS = 100
# How long close() waits for that thread, in seconds.
_LONGEST_JOIN = 5.0


class Save:
    """One save of a Checkpointer, from the moment at which the training continues. Any thread may use it."""

    def __init__(self, saves: Saves, step: int, persist: bool, adam: AdamOfState) -> None:
        self._saves = saves
        self._step, self._persist = step, persist
        self._adam = adam
        self._known: SaveState | None = None  # None while the state is being copied
        self._cause: BaseException | None = None  # why it could not be copied
        self._was_staged = False
        self._stall_seconds = 0.0
        self.began = time.monotonic()
        self._callbacks: list[DoneCallback] = []  # guarded by the lock of `saves`

    @property
    def _state(self) -> SaveState:
        """What is known of it; waits until the state is copied."""
        if self._known is None:
            self._saves.check_process()
            self._saves.copies.wait()
        assert self._known is not None
        return self._known

    @_state.setter
    def _state(self, state: SaveState) -> None:
        if self._known is None:
            self._was_staged = state.ticket != 0 and state.stage != "skipped"
        self._known = state

    def __repr__(self) -> str:
        return f"Save(step={self.step}, {self.stage})"

    @property
    def step(self) -> int:
        return self._step

    @property
    def run(self) -> Home:
        """The directory of the store."""
        return home_of(self._saves.native.path)

    @property
    def stage(self) -> Stage:
        """How far it has come: "copying", which only ``save(blocking=False)`` leaves to later, "staged", "memory" or
        "persisted"; or "skipped" or "failed"."""
        return "copying" if self._known is None else self.state().stage

    @property
    def persist(self) -> bool:
        """Whether it goes to the store."""
        return self._persist

    @property
    def error(self) -> BitsnapError | None:
        """Why it failed; None if it did not."""
        error = self.state().error
        if error is None:
            return None
        error.__cause__ = self._cause
        return self._adam.explain(error)

    def state(self) -> SaveState:
        """How far it has come, and what it cost so far. Waits for nothing but the copy of the state."""
        if not self._state.is_over and not self._saves.is_let_go:
            with suppress(NotFoundError, InvalidArgumentError):  # closed in the meantime
                self._state = self._saves.native.look(self._state.ticket)
        return self._state.with_stall(self._stall_seconds)

    def done(self) -> bool:
        """Whether it makes no further progress. Does not wait."""
        return self._known is not None and self.state().is_over

    def add_done_callback(self, function: DoneCallback) -> None:
        """Calls ``function(save)`` once when the save makes no further progress: persisted, failed, skipped, or in
        memory if it is for memory only. At once if that is so already.

        It is called on the thread that calls `on_progress`, or, at once, on this one. Its exceptions become
        BackgroundSaveWarnings. close() waits for it, up to 5 seconds. If the process leaves its Checkpointer before the
        save has ended, as by an exception in the `with` block, it is not called.
        """
        if not callable(function):
            raise TypeError(f"function must be a function, got {brief(function)}")
        if not self._saves.call_when_over(self, function):
            text = _error_in(function, self, kinds=Exception)
            if text is not None:
                warn(text, BackgroundSaveWarning, stacklevel=2)

    def staged(self) -> bool:
        """Whether the state was copied. False if no slot was free or nothing could be copied. Does not wait."""
        return self._was_staged

    def wait_staged(self, timeout: float | None = None) -> bool:
        """Waits until the state is copied; then its tensors may change. Only ``save(blocking=False)`` returns before.

        Args:
            timeout: the longest wait in seconds; None for the `timeout` of the Checkpointer.

        Returns:
            False if the time was over first. If the state could not be copied, its tensors may change all the same.
        """
        if self._known is not None:
            return True
        self._saves.check_process()
        begin = time.monotonic()
        self._saves.copies.wait(begin + self._saves.milliseconds(timeout) / 1000)
        self._add_stall(time.monotonic() - begin)
        return self._known is not None

    def _add_stall(self, seconds: float) -> None:
        self._stall_seconds += seconds

    def wait_memory(self, timeout: float | None = None) -> bool:
        """Waits until the state is compressed in the agent's memory, where it survives this process.

        Args:
            timeout: the longest wait in seconds; None for the `timeout` of the Checkpointer.

        Returns:
            False if the time was over first, or if the step was skipped.

        Raises:
            BitsnapError: the save failed before.
        """
        if not self._wait("memory", timeout):
            return False
        if self._state.has_reached_memory or self._state.stage in ("memory", "persisted"):
            return True
        self._raise_error()
        return False

    def wait_persisted(self, timeout: float | None = None) -> bool:
        """Waits until the state is a durable checkpoint of the store, committed by all ranks.

        Args:
            timeout: the longest wait in seconds; None for the `timeout` of the Checkpointer.

        Returns:
            False if the time was over first, the step was skipped, or the save is for memory only.

        Raises:
            BitsnapError: the save failed.
        """
        if not self._wait("persisted", timeout):
            return False
        self._raise_error()
        return self._state.stage == "persisted"

    def result(self, timeout: float | None = None) -> SaveState:
        """Waits until the save makes no further progress, and returns what it cost.

        Args:
            timeout: the longest wait in seconds; None for the `timeout` of the Checkpointer.

        Raises:
            BusyError: the time was over first; or the step was skipped, because no slot was free or because not all
                ranks saved it.
            BitsnapError: the save failed.
        """
        if not self._wait("persisted", timeout):
            raise BusyError(f"step {self.step} is {self.stage} and not finished yet")
        self._raise_error()
        if self._state.stage == "skipped":
            raise BusyError(f"step {self.step} was skipped: {self._why_skipped}")
        return self.state()

    def _wait(self, stage: str, timeout: float | None, *, is_urgent: bool = True) -> bool:
        """Whether the save has reached the stage, or has ended.

        `is_urgent`: the training waits, so that the agent works at the priority of the training.
        """
        timeout_ms = self._saves.milliseconds(timeout)
        if self._known is None:
            begin = time.monotonic()
            self._saves.check_process()
            if not self._saves.copies.wait(begin + timeout_ms / 1000):
                return False
            timeout_ms = max(0, timeout_ms - int(1000 * (time.monotonic() - begin)))
        if self._state.is_over:
            return True
        try:
            self._state = self._saves.native.wait(self._state.ticket, stage, timeout_ms, is_urgent=is_urgent)
        except BusyError:
            return self.done()
        return True

    @property
    def _why_skipped(self) -> str:
        return "not all ranks saved it" if self._was_staged else "no slot was free"

    def _raise_error(self) -> None:
        error = self.error
        if error is not None:
            raise error


class Saves:
    """All saves of an engine that may still make progress."""

    def __init__(
        self, native: NativeEngine, steps: SavableSteps, timeout_ms: int, on_progress: OnProgress | None
    ) -> None:
        self.native = native
        self.steps = steps
        self.timeout_ms = timeout_ms
        self.is_let_go = False
        self._on_progress = on_progress
        self._process = os.getpid()
        # Reentrant, because a signal handler may run at any point.
        self._changed = threading.Condition(threading.RLock())
        self.copies = Copies(self._changed)
        self._pending: dict[int, Save] = {}
        self._unwarned: list[str] = []
        self._unraised: list[Save] = []
        self._watched: list[tuple[Save, str]] = []  # with the stage that was reported last
        self._is_ending = False
        self._watcher: threading.Thread | None = None
        self._memory_note = ""  # what the last MemoryWarning said

    @property
    def is_forked(self) -> bool:
        """Whether this is a fork of the process that made it: its threads do not exist here, and locks may be held."""
        return os.getpid() != self._process

    def milliseconds(self, timeout: float | None) -> int:
        """A `timeout` of the caller; None stands for that of the Checkpointer."""
        return self.timeout_ms if timeout is None else milliseconds_of(timeout, "timeout")

    def warn_of_memory(self) -> None:
        note = self.native.memory_note
        if note and not self._memory_note:
            warn(note, MemoryWarning, stacklevel=4)
        self._memory_note = note
        unregistered = take_warning()
        if unregistered is not None:
            warn(unregistered, MemoryWarning, stacklevel=4)

    def check_process(self) -> None:
        """Raises InvalidArgumentError in a forked child, in which no save makes progress."""
        if self.is_forked:
            raise InvalidArgumentError("the save belongs to the process that this one was forked from")

    def add(self, save: Save, state: SaveState) -> None:
        """Follows a save whose state was copied, or not, as `state` says."""
        with self._changed:
            save._state = state
            if not state.is_over:
                self._pending[state.ticket] = save
            elif state.error is not None:
                self._note_failure(save)
            if state.stage != "skipped":
                self._watch(save)

    def copy_beside(self, save: Save, copy: Callable[[], SaveState]) -> None:
        """Has a thread call `copy`, and then adds the save. What `copy` raises becomes the error of the save. `copy` is
        released when the save has been added."""

        def work() -> None:
            try:
                state = copy()
            except BaseException as error:
                is_argument = isinstance(error, InvalidArgumentError)
                text = str(error) if isinstance(error, BitsnapError) else f"{type(error).__name__}: {error}"
                state = SaveState.failed(save.step, save.persist, text, is_argument=is_argument)
                save._cause = error
            self.add(save, state)

        self.copies.begin(work, save._add_stall)

    def wait_for_copies(self) -> None:
        """Waits until states that are being copied are copied, up to the `timeout` of the Checkpointer."""
        self.copies.wait(time.monotonic() + self.timeout_ms / 1000)

    def take_warnings(self) -> list[str]:
        """The failures since the last call, each once."""
        with self._changed:
            self.refresh()
            texts, self._unwarned = self._unwarned, []
        return texts

    def take_error(self) -> BitsnapError | None:
        """The error of the last save that failed since the last call."""
        with self._changed:
            self.refresh()
            failed, self._unraised = self._unraised, []
        return failed[-1].error if failed else None

    def refresh(self) -> None:
        """Asks the engine about all saves in progress."""
        with self._changed:
            for ticket, save in list(self._pending.items()):
                if not save.done():
                    continue
                del self._pending[ticket]
                ended = save._state
                if ended.error is not None:
                    self._note_failure(save)
                elif ended.stage == "skipped":
                    self._unwarned.append(f"step {save.step} was skipped: {save._why_skipped}")
                elif ended.stage == "persisted":
                    self.steps.note_persisted(save.step)
                    sizes = save.step, ended.stored_bytes, ended.raw_bytes
                    log.info("step %d is stored in %d bytes of %d", *sizes)

    def wait_in_memory(self, seconds: float) -> None:
        """Waits until no save is merely staged. For signal handlers: takes no lock, and looks for no agent."""
        deadline = time.monotonic() + seconds
        self.copies.wait(deadline)
        while any(save.stage == "staged" for save in list(self._pending.values())):
            if time.monotonic() >= deadline or self.native.is_closed or self.native.agent_process == 0:
                return
            time.sleep(0.005)

    def let_go(self) -> None:
        """Leaves the agent, which continues. Handles keep what is known by then."""
        if self.is_forked or self.is_let_go:
            return
        # The agent goes on with states that are copied. A save that waits for a slot ends when the engine is closed.
        self.copies.wait(time.monotonic() + _LONGEST_JOIN)
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        watcher = self._watcher
        if watcher is not None and watcher is not threading.current_thread():
            watcher.join(_LONGEST_JOIN)
        self.refresh()
        self.is_let_go = True
        self.native.close()
        self.copies.end(_LONGEST_JOIN)

    def _note_failure(self, save: Save) -> None:
        self._unraised.append(save)
        if isinstance(save.error, InvalidArgumentError):
            self.steps.note_refused()
        self._unwarned.append(f"step {save.step} was not saved: {save.error}")

    def call_when_over(self, save: Save, function: DoneCallback) -> bool:
        """Has the thread that reports progress call the function. False if the save is over: the caller calls it."""
        if self.is_forked:
            raise InvalidArgumentError(f"{save!r} belongs to the process that this one was forked from")
        with self._changed:
            # Those that were added before it come first, if they still wait.
            if save.done() and (not save._callbacks or self._is_ending):
                return False
            save._callbacks.append(function)
            self._watch(save, "staged" if save.stage == "copying" else save.stage)
            return True

    def _watch(self, save: Save, told: str = "staged") -> None:
        is_watched = any(each is save for each, _ in self._watched)
        if is_watched or (self._on_progress is None and not save._callbacks) or self._is_ending:
            return
        self._watched.append((save, told))
        if self._watcher is None:
            # A daemon, which must not keep a finished process alive; let_go() ends it at exit.
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
                if save._known is not None or is_last:
                    self._tell(save, told)
            if is_last:
                return
            with self._changed:
                oldest = next((save for save, _ in self._watched if save._known is not None), None)
                if oldest is None and self._watched:
                    self._changed.wait(_WATCH_MS / 1000)
            if oldest is None:
                continue
            try:
                stage = "memory" if oldest.stage == "staged" else "persisted"
                self.native.wait(oldest._state.ticket, stage, _WATCH_MS, is_urgent=False)
            except BitsnapError:  # the time is over; the next look sees other errors
                time.sleep(0.001)

    def _tell(self, save: Save, told: str) -> None:
        if save._known is None:  # its copy did not end
            return
        stage, is_over = save.stage, save._state.is_over
        with self._changed:
            self._watched = [
                (each, stage if each is save else last)
                for each, last in self._watched
                if each is not save or not is_over
            ]
            callbacks: list[DoneCallback] = []
            if is_over:
                callbacks, save._callbacks = save._callbacks, []
        failures = []
        if stage != told and self._on_progress is not None and (save._was_staged or stage != "skipped"):
            failures.append(_error_in(self._on_progress, save, "on_progress"))
        failures += [_error_in(callback, save) for callback in callbacks]
        with self._changed:
            self._unwarned += filter(None, failures)


def _error_in(
    function: Callable[[Save], object],
    save: Save,
    name: str = "a done callback",
    kinds: type[BaseException] = BaseException,
) -> str | None:
    """Calls a function of the caller; returns what to warn of.

    On the thread that reports progress, that is even sys.exit(), which must not end the thread: reporting goes on.
    """
    try:
        function(save)
    except kinds as error:
        return f"{name} failed for step {save.step}: {type(error).__name__}: {error}"
    return None


# How long SIGTERM waits for staged states, in seconds.
_FLUSH_SECONDS = 10.0


class Flush:
    """Waits on SIGTERM until the agent has compressed all staged states, then calls the previous handler."""

    def __init__(self, saves: Saves) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise InvalidArgumentError("flush_on_sigterm requires that the main thread makes the checkpointer")
        # A weak reference: the signal module keeps this handler until the process ends.
        self._saves = weakref.ref(saves)
        self._before = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, self._handle)

    def uninstall(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) == self._handle and self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # A forked child inherits the handler, but its parent owns the saves.
        saves = self._saves()
        if saves is not None and not saves.is_forked:
            saves.wait_in_memory(_FLUSH_SECONDS)
        if callable(self._before):
            self._before(number, frame)
        elif self._before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
