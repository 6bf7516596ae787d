"""`python -m bitsnap`, the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

import bitsnap


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bitsnap", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_package_runs_as_its_command(tmp_path: Path) -> None:
    assert run("--version").stdout.startswith(f"bitsnap {bitsnap.__version__} ")
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(7, {"a": np.ones(100, np.float32)})
    listed = run("log", tmp_path / "run")
    assert listed.returncode == 0
    assert "7" in listed.stdout


def test_the_exit_status_is_that_of_the_command(tmp_path: Path) -> None:
    missing = run("log", tmp_path / "missing")
    assert missing.returncode == 12  # not found
    assert "missing" in missing.stderr
