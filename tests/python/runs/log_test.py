"""The logger "bitsnap": what it says, and that it is silent until a program sets logging up."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

import bitsnap
from python.engine.checkpointer_jobs import Jobs
from python.processes import run_script


def test_stored_steps_and_failures_are_logged(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bitsnap")
    with jobs() as checkpointer:
        checkpointer.save(1, {"w": np.zeros(1000)})
        checkpointer.wait()
        checkpointer.steps()
    (stored,) = [each.message for each in caplog.records if each.levelno == logging.INFO]
    assert stored.startswith("step 1 is stored in ")
    assert stored.endswith(" bytes of 8000")


def test_warnings_are_logged_as_well(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = bitsnap.bounded(rules=["exp_avg_sq:*.other=exact"])
    with pytest.warns(UserWarning, match="matches no tensor"):
        bitsnap.save(tmp_path / "a.bsnap", {"exp_avg_sq": {"w": np.zeros(10, np.float32)}}, settings=settings)
    (logged,) = [each for each in caplog.records if each.name == "bitsnap"]
    assert logged.levelno == logging.WARNING
    assert "matches no tensor" in logged.message


def test_a_program_without_logging_sees_a_warning_once(tmp_path: Path) -> None:
    run_script(
        "import contextlib, io, bitsnap\n"
        "from bitsnap._common import warn\n"
        "with contextlib.redirect_stderr(io.StringIO()) as said:\n"
        "    warn('once')\n"
        "assert said.getvalue().count('once') == 1, said.getvalue()\n"
    )
