"""Copies of states that threads make while the training computes, and what waits for them: the steps of optimizers."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from bitsnap._common import loaded_torch

# How often a wait looks whether there is something to do, in seconds.
_CHECK = 0.2


class _Copy:
    def __init__(self, work: Callable[[], None], waited: Callable[[float], None]) -> None:
        self.work: Callable[[], None] | None = work  # None: it has begun
        self.waited = waited
        self.thread: threading.Thread


class Copies:
    """The states of one Checkpointer that are being copied. `changed` is notified when one is done; its lock is
    reentrant, because a signal handler may run at any point."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._process = os.getpid()
        self._copies: list[_Copy] = []
        self._last: threading.Thread | None = None
        self._hook: Any = None  # before the steps of optimizers

    def begin(self, work: Callable[[], None], waited: Callable[[float], None]) -> None:
        """Has a thread call `work`, which raises nothing. It is released when wait() does not wait for it any more.
        `waited` is called with the seconds that a step of an optimizer waited for it.
        """
        copy = _Copy(work, waited)
        copy.thread = threading.Thread(target=self._run, args=(copy,), name="bitsnap-copy", daemon=True)
        with self._changed:
            self._wait_before_steps()
            self._copies.append(copy)
        try:
            copy.thread.start()
        except RuntimeError:  # the system has no more threads
            self._run(copy)
        else:
            self._last = copy.thread

    def wait(self, deadline: float | None = None) -> bool:
        """Waits until all are done. `deadline` is a time of time.monotonic(); returns False if it was reached. Does not
        wait in a forked child, which has no threads. Takes no lock if there is nothing to wait for.
        """
        while self._copies and os.getpid() == self._process:
            # A signal handler may have come between a copy and its thread.
            for copy in [each for each in self._copies if each.thread.ident is None]:
                self._run(copy)
            with self._changed:
                left = _CHECK if deadline is None else min(_CHECK, deadline - time.monotonic())
                if left <= 0:
                    break
                if self._copies:
                    self._changed.wait(left)
        return not self._copies

    def end(self, seconds: float) -> None:
        """Steps wait no more. Waits until no thread copies any more, up to that long."""
        if self._hook is not None:
            self._hook.remove()
        is_done = self.wait(time.monotonic() + seconds)
        thread = self._last
        if is_done and thread is not None and thread.ident is not None and thread is not threading.current_thread():
            thread.join(seconds)

    def _run(self, copy: _Copy) -> None:
        with self._changed:
            work, copy.work = copy.work, None
        if work is None:
            return
        try:
            work()
        finally:
            with self._changed:
                self._copies.remove(copy)
                self._changed.notify_all()

    def _wait_before_steps(self) -> None:
        """Has each step of an optimizer of torch wait until all are done."""
        if loaded_torch() is None or self._hook is not None:
            return
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        copies = weakref.ref(self)

        def wait(*_: Any) -> None:
            found = copies()
            if found is not None and found._copies:
                begun, begin = list(found._copies), time.perf_counter()
                found.wait()
                for copy in begun:
                    copy.waited(time.perf_counter() - begin)

        self._hook = register_optimizer_step_pre_hook(wait)
