"""A machine that is lost: all processes of a training are killed, and its directory is deleted."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

import bitsnap


def lose(run: Path, newest: int) -> None:
    """Kills what serves a run when its copy has the step, and deletes the directory with its checkpoints."""
    bitsnap.wait_mirrored(run, newest, timeout=120)
    # A save to another path may have come after it, as of last.ckpt.
    with bitsnap.Store(run, read_only=True) as store:
        latest = store.latest()
    bitsnap.wait_mirrored(run, newest if latest is None else max(newest, latest), timeout=120)
    end_copies(run)
    with contextlib.suppress(bitsnap.NotFoundError):
        _kill(bitsnap.agent_status(run)["process"])
    shutil.rmtree(run.parent)


def end_copies(folder: Path) -> None:
    """Kills the processes that copy a run, or those in a folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            arguments = path.read_bytes().split(b"\0")
            if b"mirror" in arguments and any(each.startswith(os.fsencode(folder)) for each in arguments):
                _kill(int(path.parent.name))


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    while Path(f"/proc/{process}").exists():
        time.sleep(0.05)


def await_steps(copy: str, steps: list[int]) -> None:
    """Waits until a copy has these steps and no others."""
    end = time.monotonic() + 30
    while True:
        with bitsnap.Store(copy, read_only=True) as store:
            found = store.steps()
        if found == steps:
            return
        assert time.monotonic() < end, f"expected steps {steps}, found {found}"
        time.sleep(0.2)
