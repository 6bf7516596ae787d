"""Runs that several tests of the report look at, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitsnap.report.report_data import RunData, gather
from python.report_pages import make_run


@pytest.fixture(scope="session")
def some_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints, stored without loss."""
    return make_run(tmp_path_factory.mktemp("report") / "run", [10, 20, 30])


@pytest.fixture(scope="session")
def run_data(some_run: Path) -> RunData:
    return gather(some_run, steps=8)
