"""Runs the command bitsnap as a user does: the one named by BITSNAP_CLI, else the one in .venv/bin."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

OK = 0
DIFFER = 1
USAGE = 2
INVALID_ARGUMENT = 11
NOT_FOUND = 12
UNSUPPORTED = 13
TRUNCATED = 14
CORRUPT = 15
IO = 16
RESOURCE_EXHAUSTED = 17
BUSY = 18
DAMAGED = {TRUNCATED, CORRUPT, UNSUPPORTED}


def executable() -> str:
    return os.environ.get("BITSNAP_CLI") or str(ROOT / ".venv" / "bin" / "bitsnap")


def run(
    *arguments: object, status: int = OK, cwd: Path | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs the command, with more variables in its environment, and holds it to its exit status."""
    done = subprocess.run(
        [executable(), *map(str, arguments)],
        capture_output=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        timeout=280,
    )
    assert done.returncode == status, (arguments, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def wait_until_caught(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Waits until a process catches a signal, which would end it before."""
    status = Path(f"/proc/{process.pid}/status")
    while True:
        assert process.poll() is None
        caught = next(int(line.split()[1], 16) for line in status.read_text().splitlines() if "SigCgt" in line)
        if caught >> (number - 1) & 1:
            return
        time.sleep(0.001)


def run_json(*arguments: object, status: int = OK) -> Any:
    return json.loads(run(*arguments, "--json", status=status).stdout)
