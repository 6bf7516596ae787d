"""Fixtures of several files: runs for the report, scripts, checkpointers, and trainings with a framework."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bitsnap.report.report_data import RunData, gather
from python.engine.checkpointer_jobs import Jobs, processes
from python.forked_calls import Calls, calls_of
from python.processes import Start, start_script
from python.report.report_pages import make_run


@pytest.fixture(scope="session")
def some_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints, stored without loss."""
    return make_run(tmp_path_factory.mktemp("report") / "run", [10, 20, 30])


@pytest.fixture(scope="session")
def run_data(some_run: Path) -> RunData:
    return gather(some_run, steps=8)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts scripts that do not outlive the test."""
    started: list[subprocess.Popen[str]] = []

    def start_one(script: str, *arguments: object) -> subprocess.Popen[str]:
        started.append(start_script(script, *arguments))
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        with process:
            process.wait()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """Makes checkpointers that end, as their agents do, with the test."""
    made = Jobs(tmp_path)
    yield made
    made.end()
    assert processes() == set()


@pytest.fixture(scope="module")
def call(request: pytest.FixtureRequest) -> Iterator[Calls]:
    """Calls the functions of the module whose name is TRAININGS in the file of the test."""
    with calls_of(request.module.TRAININGS) as calls:
        yield calls


@pytest.fixture(scope="module")
def stock(call: Calls, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A training without bitsnap: its folder and its result."""
    folder = tmp_path_factory.mktemp("stock")
    return folder, call("train", folder=str(folder))
