"""A run that is watched while a training saves: its data, read again whenever the run changes.

One thread watches (LiveRun.watch()), another one studies (LiveRun.study()), and any thread may ask for what they have
found. Answers about one checkpoint are kept, so that a new checkpoint costs little. Checkpoints are studied one at a
time, the newest first, only while a page is open, and at most a fifth of the time: the training needs the processors. A
failure is shown on the page, and the run is read again.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from bitsnap._bitsnap import version as library_version
from bitsnap._common import Home
from bitsnap.errors import BitsnapError, NotFoundError
from bitsnap.report.report_data import (
    BRANCHES,
    OWN_TIMINGS,
    CommandFailed,
    RunData,
    directory_of,
    find_command,
    gather,
    spread,
)
from bitsnap.report.report_tensors import details_of, names_in
from bitsnap.store import Store

# Seconds between looks at a run, and how many times longer than a look or a study a thread rests after it.
_INTERVAL = 0.5
_INTERVAL_OF_BUCKETS = 10.0  # their requests are paid for
_REST = 4
# The run is read again after this time, even if nothing seems to have changed.
_LONGEST_REST = 30.0
# Seconds after which a page that asks no more is taken for closed.
_ATTENTION = 60.0
_ATTEMPTS = 3
_LOWER_PRIORITY = 10
_MOST_TENSORS = 64
_STATUS_NOT_FOUND = 12

_V = TypeVar("_V")


class Program:
    """Runs the command with a lower priority. Ctrl-C in a terminal does not reach it; stop() ends it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def __call__(self, command: str, *arguments: str) -> Any:
        with self._lock:
            if self._is_stopped:
                raise CommandFailed(list(arguments), 1, "the server ends")
            pipe = subprocess.PIPE
            process = subprocess.Popen([command, *arguments], stdout=pipe, stderr=pipe, start_new_session=True)
            self._running.add(process)
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, _LOWER_PRIORITY)
        try:
            output, said = process.communicate()
        finally:
            with self._lock:
                self._running.discard(process)
        if process.returncode != 0:
            lines = said.decode(errors="replace").strip().splitlines()
            raise CommandFailed(list(arguments), process.returncode, lines[-1] if lines else "")
        return json.loads(output)

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                process.kill()


class _Kept(Generic[_V]):
    """The values that were used last, up to a total size."""

    def __init__(self, most: int, size: Callable[[_V], int]) -> None:
        self._most = most
        self._size = size
        self._total = 0
        self._values: OrderedDict[Hashable, _V] = OrderedDict()

    def get(self, key: Hashable) -> _V | None:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: Hashable, value: _V) -> None:
        if (old := self._values.pop(key, None)) is not None:
            self._total -= self._size(old)
        self._values[key] = value
        self._total += self._size(value)
        while self._total > self._most:
            self._total -= self._size(self._values.popitem(last=False)[1])


class _Reader:
    """Runs the command for gather() on one run, and keeps what it said about checkpoints that have not changed."""

    def __init__(self, program: Program, run: Home, steps: int, options: list[str], adam: list[str]) -> None:
        self._program = program
        self._run = run
        self._steps = steps
        self._options = options
        self._adam = adam
        self._inspected: _Kept[bytes] = _Kept(64 << 20, len)
        self._versions: dict[int, Hashable] = {}  # of the readable checkpoints
        self._lock = threading.Lock()  # for what was studied
        self._states: dict[int, tuple[Hashable, dict[str, Any]]] = {}

    def __call__(self, command: str, *arguments: str) -> Any:
        if arguments[0] == "analyze":
            with self._lock:
                states = [self._states[step][1] for step in sorted(self._states)]
            return {"version": library_version(), "states": states}
        if arguments[0] == "inspect":
            version = self.version(int(arguments[-1].rpartition("@")[2]))
            kept = self._inspected.get((version, arguments))
            if kept is None:
                kept = zlib.compress(json.dumps(self._program(command, *arguments)).encode(), 1)
                self._inspected.put((version, arguments), kept)
            return json.loads(zlib.decompress(kept))
        answer = self._program(command, *arguments)
        if arguments[0] == "log" and arguments[-1] == str(self._run):  # of the run itself, not of a branch
            self._versions = {
                entry["step"]: (entry["step"], entry["time_unix_ms"], entry["stored_bytes"], entry["base"])
                for entry in answer
                if "damage" not in entry
            }
            with self._lock:
                self._states = {
                    step: (version, state)
                    for step, (version, state) in self._states.items()
                    if self._versions.get(step) == version
                }
        return answer

    def version(self, step: int) -> Hashable:
        """Another value if the step was saved or rewritten again."""
        return self._versions.get(step)

    def study(self) -> bool:
        """Studies one more checkpoint. False: there is none."""
        steps = sorted(self._versions)
        wanted = steps[-1:] if len(self._states) >= self._steps else [*spread(steps, self._steps), *steps[-1:]]
        missing = [step for step in wanted if step not in self._states]
        if not missing or self._steps == 0:
            return False
        step, version = missing[-1], self.version(missing[-1])
        state = self.analyze(step, *self._adam)
        with self._lock:
            self._states[step] = version, state
            kept = spread(sorted(self._states), self._steps)
            self._states = {step: self._states[step] for step in kept}
        return True

    def analyze(self, step: int, *options: str) -> dict[str, Any]:
        path = f"{self._run}@{step}"
        answer = self._program(find_command(), "analyze", "--json", "--quiet", *self._options, *options, "--", path)
        return dict(answer["states"][0])


@dataclass(frozen=True)
class Shown:
    """What the page shows: another version after each change."""

    version: str
    data: RunData
    notice: str  # why the run could not be read, or what the page waits for; mostly empty


def _fingerprint(place: Home, timings: Path | None) -> list[object]:
    """Another value after each change of the run, without reading its records. Empty if there is no run."""
    found: list[object] = []
    if isinstance(place, str):
        with suppress(BitsnapError), Store(place, read_only=True) as store:
            found = [store.steps(), store.labels()]
        return found
    run = directory_of(place)
    # The branches of a branch lie beside it.
    branches = run.parent if run.parent.name == BRANCHES else run / BRANCHES
    folders = [run]
    with suppress(OSError), os.scandir(branches) as others:
        folders += sorted(Path(other.path) for other in others if other.is_dir(follow_symlinks=False))
    for folder in folders:
        with suppress(OSError), os.scandir(folder / "checkpoints") as entries:
            found.append(folder.name)
            found += sorted((entry.name, entry.stat(follow_symlinks=False).st_mtime_ns) for entry in entries)
        if folder == run and not found:
            return []
    for path in (run / "labels.json", timings or run / OWN_TIMINGS):
        with suppress(OSError):
            status = path.stat()
            found.append((str(path), status.st_mtime_ns, status.st_size))
    return found


class LiveRun:
    """A run, and a second one beside it, with the options of gather()."""

    def __init__(
        self,
        run: Home,
        *,
        steps: int,
        shard: int | None = None,
        timings: Path | None = None,
        adam: tuple[str, str] | None = None,
        against: Home | None = None,
    ) -> None:
        which = [] if shard is None else ["--shard", str(shard)]
        numbers = [] if adam is None else ["--betas", adam[0], "--eps", adam[1]]
        self._run = run
        self._against = against
        self._options: dict[str, Any] = {"steps": steps, "shard": shard, "timings": timings, "adam": adam}
        self._program = Program()
        self._reader = _Reader(self._program, run, steps, which, numbers)
        self._second = _Reader(self._program, against, 0, [], []) if against else None
        self._stopped = threading.Event()
        self._start = secrets.token_hex(4)  # the version of another server is another one
        empty = {"steps": [], "stored_bytes": 0, "needed": []}
        self._found = Shown(f"{self._start}.0", RunData(str(run), empty, [], [], {}), "The run is being read.")
        self._studied = threading.Event()  # there is more to show
        self._asked = -_ATTENTION
        self._detail_lock = threading.Lock()
        self._details: _Kept[dict[str, Any]] = _Kept(_MOST_TENSORS, lambda _: 1)

    def found(self) -> Shown:
        """What was found last. Asking keeps the studies going."""
        self._asked = time.monotonic()
        return self._found

    def stop(self) -> None:
        self._stopped.set()
        self._program.stop()

    def watch(self) -> None:
        """Reads the run until stop() is called."""
        seen: object = None
        read_again = 0.0
        while not self._stopped.is_set():
            began = time.monotonic()
            now = [_fingerprint(run, self._options["timings"]) for run in (self._run, self._against) if run]
            if now != seen or not all(now) or began >= read_again or self._studied.is_set():
                self._studied.clear()
                seen = now if self.look() else None
                read_again = began + _LONGEST_REST
            rest = _INTERVAL if isinstance(self._run, Path) else _INTERVAL_OF_BUCKETS
            self._stopped.wait(max(rest, _REST * (time.monotonic() - began)))

    def study(self) -> None:
        """Studies checkpoints until stop() is called, while somebody asks for what was found."""
        while not self._stopped.is_set():
            began = time.monotonic()
            with suppress(Exception):  # such as a checkpoint that was pruned meanwhile; reading the run says more
                if began < self._asked + _ATTENTION and self._reader.study():
                    self._studied.set()
            rest = _INTERVAL if isinstance(self._run, Path) else _INTERVAL_OF_BUCKETS
            self._stopped.wait(max(rest, _REST * (time.monotonic() - began)))

    def look(self) -> bool:
        """Reads the run once. False if it could not be read."""
        data, notice = self._found.data, ""
        try:
            data = self._read()
        except NotFoundError:
            notice = "The run has no checkpoint yet. This page shows the first one as soon as it is saved."
        except CommandFailed as failed:
            notice = f"The run cannot be read now: {failed}"
            if failed.status == _STATUS_NOT_FOUND and not data.checkpoints:
                notice = "There is no such run yet. This page shows its first checkpoint as soon as it is saved."
        except Exception as error:
            notice = f"The run cannot be read now: {error}"
        if (data, notice) != (self._found.data, self._found.notice) and not self._stopped.is_set():
            number = int(self._found.version.partition(".")[2]) + 1
            self._found = Shown(f"{self._start}.{number}", data, notice)
        return not notice

    def _read(self) -> RunData:
        for attempt in range(_ATTEMPTS):
            try:
                data = gather(self._run, ask=self._reader, **self._options)
                break
            except CommandFailed:  # as when a checkpoint is pruned between two commands
                if attempt == _ATTEMPTS - 1:
                    raise
        if self._against and self._second:
            second = self._found.data.against
            with suppress(NotFoundError, CommandFailed):
                second = gather(self._against, steps=0, ask=self._second)
            data = replace(data, against=second)
        return data

    def tensors(self, step: int, role: str, row: str) -> dict[str, Any]:
        """What details_of() says of the tensors in one cell of the map of layers, and the number of those left out.

        Raises:
            NotFoundError: the page has no such cell.
            CommandFailed: the checkpoint could not be studied.
        """
        data = self._found.data
        names = names_in(data, step, role, row)
        if not names:
            raise NotFoundError(f"step {step} has no such tensors")
        with self._detail_lock:
            key = (self._reader.version(step), role, row)
            found = self._details.get(key)
            if found is None:
                shown = names[:_MOST_TENSORS]
                state = self._reader.analyze(step, "--limit-mb", "4", *(f"--tensor={name}" for name in shown))
                found = {"tensors": details_of(state, set(shown)), "left_out": len(names) - len(shown)}
                self._details.put(key, found)
            return found
