"""A handler of SIGTERM that waits for staged states."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from types import FrameType

from bitsnap._engine.saves import Saves
from bitsnap.errors import InvalidArgumentError

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
