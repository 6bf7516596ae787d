"""A training with Megatron-core on two ranks whose machine is lost, and that goes on from a bucket on an empty one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bitsnap
from python.objects.lost_machines import lose
from python.runs.training_folders import names

pytest.importorskip("megatron.core")

TESTS = Path(__file__).parents[2]


def trained(path: Path, checkpoints: Path, mirror: str, last: int) -> dict[str, float]:
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-Wignore", "-m", "python.objects.megatron_machine", path, checkpoints, mirror, str(last)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    output = (path / "output").read_text() if (path / "output").exists() else ""
    assert done.returncode == 0, done.stdout + done.stderr + output
    found: dict[str, float] = json.loads((path / "losses").read_text())
    return found


@pytest.mark.usefixtures("copies")
@pytest.mark.slow
def test_two_ranks_resume_on_an_empty_machine_to_the_last_digit(run: str, tmp_path: Path) -> None:
    whole = trained(tmp_path, tmp_path / "whole", "", 6)
    folder = tmp_path / "machine" / "checkpoints"
    trained(tmp_path, folder, run, 4)
    files = names(folder / "iter_0000004")
    config = (folder / "iter_0000004" / "metadata.json").read_bytes()
    lose(folder / "bitsnap", 4)
    assert trained(tmp_path, folder, run, 6) == {step: whole[step] for step in ("5", "6")}
    assert names(folder / "iter_0000004") == files
    assert (folder / "iter_0000004" / "metadata.json").read_bytes() == config
    bitsnap.wait_mirrored(folder / "bitsnap", 6, timeout=120)
    with bitsnap.Store(run, read_only=True) as store:
        assert store.steps() == [2, 4, 6]
        assert not store.verify().damages
