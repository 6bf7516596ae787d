"""Runs a training in a child process, passes on its events, and can kill it."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]

_TRAIN = Path(__file__).resolve().with_name("train.py")


class ChildError(Exception):
    """The child ended with an unexpected status."""


class Child:
    """Owns the process and a thread that reads its events. A context manager, which ends both."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._stderr = log.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, str(_TRAIN), "--events", *arguments], stdout=subprocess.PIPE, stderr=self._stderr
        )
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self.seen: list[Event] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        self._stderr.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    break  # truncated by the kill
                event = json.loads(line)
                self.seen.append(event)
                self._queue.put(event)
        self._queue.put(None)

    def events(self) -> Iterator[Event]:
        """Yields the events of the child until its end."""
        while (event := self._queue.get()) is not None:
            yield event

    def latest_step(self) -> int:
        return max((event["step"] for event in list(self.seen) if event["event"] == "step"), default=0)

    def steps(self) -> dict[int, Event]:
        return {event["step"]: event for event in self.seen if event["event"] == "step"}

    def named(self, name: str) -> list[Event]:
        return [event for event in self.seen if event["event"] == name]

    def kill(self) -> None:
        """SIGKILL: the child gets no chance to finish anything."""
        self._process.send_signal(signal.SIGKILL)
        self._expect(-signal.SIGKILL)

    def finish(self) -> None:
        self._expect(0)

    def _expect(self, code: int) -> None:
        found = self._process.wait()
        self._reader.join()
        if found != code:
            last_lines = self._log.read_text(errors="replace").strip().splitlines()[-12:]
            raise ChildError(f"the training ended with {found} instead of {code}\n" + "\n".join(last_lines))
