"""Other processes for tests, and what can be seen of this one: whether the GIL is let go, how much memory is used."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

MIB = 1 << 20
# Starts a script with its arguments.
Start: TypeAlias = Callable[..., "subprocess.Popen[str]"]

# The head of a script that uses a store, whose path is its first argument.
STORE_IMPORTS = """
import os, signal, sys, threading, time
from pathlib import Path
from typing import TypeAlias
import numpy as np, torch, bitsnap
from python.run_states import state_of
from python.same_bits import assert_same
path = Path(sys.argv[1])
"""

_TESTS = Path(__file__).resolve().parents[1]


def start_script(script: str, *arguments: object, stdin: int | None = None) -> subprocess.Popen[str]:
    """Starts Python in a process of its own, which can import what tests import."""
    paths = [str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def finish_script(process: subprocess.Popen[str], timeout: float = 120) -> str:
    """Waits for a script to end well; what it printed. One that hangs is killed."""
    with process:
        try:
            out, error = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 0, error
    return out


def run_script(script: str, *arguments: object, timeout: float = 120) -> str:
    return finish_script(start_script(script, *arguments), timeout)


class Ticker:
    """A Python thread that counts; it can only do so while others let go of the GIL."""

    def __enter__(self) -> Ticker:
        self.longest_pause = 0.0
        self.ticks = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        last = time.perf_counter()
        while not self._stop.is_set():
            time.sleep(0.001)
            now = time.perf_counter()
            self.longest_pause = max(self.longest_pause, now - last)
            self.ticks += 1
            last = now


def lets_others_go_on(call: Callable[[], Any]) -> bool:
    """Whether Python threads run during a call. Called again if the machine is too busy to tell."""
    for _ in range(20):
        with Ticker() as ticker:
            start = time.perf_counter()
            call()
            took = time.perf_counter() - start
        # With the GIL held there is no tick, and a pause as long as the call, every time.
        if ticker.longest_pause < 0.9 * took or took < 0.05:
            return True
    return False


def in_fork(work: Callable[[], None]) -> int:
    """The exit status of a forked child that did the work; a child that hangs is killed."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()
    assert process.exitcode is not None
    return process.exitcode


# What scripts begin with that measure their peak of memory.
PEAK = """
import sys, threading
import numpy as np, torch, bitsnap

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) << 10

class Peak:
    def __enter__(self):
        self.before = self.peak = anonymous()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self
    def watch(self):
        while not self.stop.wait(0.002):
            self.peak = max(self.peak, anonymous())
    def __exit__(self, *error):
        self.stop.set()
        self.thread.join()
        self.growth = max(self.peak, anonymous()) - self.before

path = sys.argv[1]
rng = np.random.default_rng(1)
def tensor(mib):
    return torch.from_numpy(rng.integers(0, 2**16, mib << 19, np.uint16)).view(torch.bfloat16)
small = {"w": tensor(1)}
bitsnap.save(path, small, threads=2); bitsnap.load(path, threads=2)   # threads and libraries are there
"""
