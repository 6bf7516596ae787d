"""The end of a process whose threads are in calls of the package: no abort, no hang, and nothing on stderr."""

from __future__ import annotations

from pathlib import Path

import pytest

from python.engine.checkpointer_jobs import Jobs
from python.processes import Start

# A daemon thread calls work() again and again, which is as likely to be without the GIL as with it at the end.
DAEMON = """
import itertools, os, sys, threading, time, warnings
import numpy as np, bitsnap
warnings.simplefilter("ignore")
path, numbers = sys.argv[1], itertools.count(1)
state = {"a": np.random.default_rng(0).standard_normal(4_000_000, np.float32), "b": 1}
begun = threading.Event()
def progress(done, total):
    begun.set()
WORK
def loop():
    while True:
        work()
        begun.set()
threading.Thread(target=loop, daemon=True).start()
begun.wait(60)
time.sleep(float(sys.argv[2]))
"""
WORKS = {
    "Store.save": "store = bitsnap.Store(path)\ndef work(): store.save(next(numbers), state)",
    "Store.save with progress": (
        "store = bitsnap.Store(path)\ndef work(): store.save(next(numbers), state, progress=progress)"
    ),
    "Store.load": "store = bitsnap.Store(path)\nstore.save(1, state)\ndef work(): store.load(progress=progress)",
    "save": "def work(): bitsnap.save(path, state, overwrite=True, progress=progress)",
    "load": "bitsnap.save(path, state)\ndef work(): bitsnap.load(path)",
    "safe_open": (
        "bitsnap.save_file({'a': state['a']}, path)\n"
        "def work():\n    with bitsnap.safe_open(path, 'np') as f: f.get_tensor('a')"
    ),
    "wait_committed": (
        "bitsnap.Store(path).close()\ndef work():\n    begun.set()\n    bitsnap.wait_committed(path, 5, 60)"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS)
def test_a_daemon_thread_in_a_call_does_not_disturb_the_end_of_the_process(
    tmp_path: Path, start: Start, work: str
) -> None:
    script = DAEMON.replace("WORK", WORKS[work])
    for number, delay in enumerate((0.0, 0.03, 0.11)):
        process = start(script, tmp_path / f"run-{number}", delay)
        _, errors = process.communicate(timeout=100)
        assert (process.returncode, errors) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("call", ["save(next(numbers), state)", "wait()", "restore()", "steps()"])
def test_a_daemon_thread_in_a_call_of_a_checkpointer_does_not_disturb_the_end(
    jobs: Jobs, start: Start, call: str
) -> None:
    made = (
        "checkpointer = bitsnap.Checkpointer(path, job=bitsnap.JobOptions(name=sys.argv[3]),\n"
        "    agent=bitsnap.AgentOptions(threads=1, linger=20.0))\n"
        f"checkpointer.save(next(numbers), state)\ndef work(): checkpointer.{call}"
    )
    script = DAEMON.replace("WORK", made)
    process = start(script, jobs.path, 0.1, jobs.job)
    _, errors = process.communicate(timeout=100)
    # The last line of an error of the thread, because the checkpointer is closed at the end.
    lines = [line for line in errors.splitlines() if line.startswith("bitsnap.errors.")]
    assert process.returncode == 0, errors
    assert all("closed" in line for line in lines), errors
    assert "nanobind" not in errors
    assert "terminate" not in errors


def test_objects_that_a_thread_holds_at_the_end_are_no_leak(tmp_path: Path, start: Start) -> None:
    script = """
import sys, threading, time
import bitsnap
store = bitsnap.Store(sys.argv[1])
threading.Thread(target=lambda: (store, time.sleep(600)), daemon=True).start()
"""
    process = start(script, tmp_path / "run")
    assert process.communicate(timeout=60) == ("", "")


@pytest.mark.slow
def test_a_process_that_drops_its_objects_leaks_none(tmp_path: Path, start: Start) -> None:
    script = """
import sys
import numpy as np, bitsnap
from bitsnap import _bitsnap
_bitsnap.warn_of_leaks(True)
state = {"a": np.arange(5000), "b": [1, {"c": "d"}]}
store = bitsnap.Store(sys.argv[1])
store.save(1, state, progress=lambda done, total: None)
loaded, snapshot = store.load(), store.snapshot()
settings, inspected, verified = bitsnap.Settings(max_depth=2), bitsnap.inspect(snapshot), store.verify()
try:
    store.load(7)
except bitsnap.NotFoundError as error:
    kept = error
"""
    process = start(script, tmp_path / "run")
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0
