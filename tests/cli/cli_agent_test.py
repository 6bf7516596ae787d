"""`bitsnap agent`: run, status, Prometheus metrics and stop; and the errors without an agent."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from pathlib import Path

from cli.command_line import INVALID_ARGUMENT, NOT_FOUND, executable, run, run_json


def wait_until_served(*agent: object) -> None:
    """Until the status of the agent is there. Nothing but "no agent yet" is waited for."""
    deadline = time.monotonic() + 120
    command = [executable(), "agent", "status", *map(str, agent)]
    while (asked := subprocess.run(command, capture_output=True, check=False, timeout=60)).returncode:
        assert asked.returncode == NOT_FOUND, asked.stderr
        assert time.monotonic() < deadline, asked.stderr
        time.sleep(0.01)


def test_an_agent_reports_its_status_and_stops() -> None:
    job = f"cli-{uuid.uuid4().hex}"
    with subprocess.Popen([executable(), "agent", "run", "--job", job, "--hello", "120"]) as served:
        wait_until_served("--job", job)
        report = run_json("agent", "status", "--job", job)
        assert (report["job"], report["process"], report["ranks"]) == (job, served.pid, [])
        assert b"no trainer has connected yet" in run("agent", "status", "--job", job).stdout
        metrics = run("agent", "status", "--job", job, "--prometheus").stdout.decode()
        assert f'bitsnap_agent_resident_bytes{{job="{job}"}} ' in metrics
        assert b"already has an agent" in run("agent", "run", "--job", job).stderr
        run("agent", "stop", "--job", job)
        assert served.wait(60) == 0
    run("agent", "status", "--job", job, status=NOT_FOUND)


def test_a_store_has_one_agent_however_its_path_is_written(tmp_path: Path) -> None:
    store = tmp_path / "run"
    (tmp_path / "link").symlink_to(tmp_path)
    with subprocess.Popen([executable(), "agent", "run", store, "--hello", "120"]) as served:
        wait_until_served(store)
        relative = os.path.relpath(store)
        for path in (f"{store}/", f"{tmp_path}//run", f"{tmp_path}/./run", f"{tmp_path}/link/run", relative):
            assert run_json("agent", "status", path)["process"] == served.pid
        run("agent", "stop", f"{tmp_path}/none/../run/")
        assert served.wait(60) == 0


def test_a_command_line_without_run_or_job_is_rejected() -> None:
    run("agent", "status", status=INVALID_ARGUMENT)
    run("agent", "stop", "--job", "no/name", status=INVALID_ARGUMENT)
