"""The example of a training in several processes: it goes on with other processes, and divided otherwise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import bitsnap

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "torch" / "train.py"


def torchrun(processes: int, *arguments: object) -> list[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes, EXAMPLE]
    done = subprocess.run(
        [str(part) for part in (*command, *arguments)], check=True, capture_output=True, text=True, timeout=120
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_it_goes_on_in_other_processes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = torchrun(2, run, "--parallel", "ddp", "--steps", 4, "--every", 2)
    assert [line.partition(":")[0] for line in first] == [f"step {step}" for step in range(1, 5)]
    second = torchrun(2, run, "--parallel", "fsdp", "--steps", 8, "--every", 2)
    assert second[0] == "goes on after step 4"
    assert [line.partition(":")[0] for line in second[1:]] == [f"step {step}" for step in range(5, 9)]
    losses = [float(re.findall(r"[0-9.]+$", line)[0]) for line in first + second[1:]]
    assert losses[-1] < losses[0] - 1
    with bitsnap.Store(run, read_only=True) as store:
        assert store.steps() == [4, 6, 8]
    bitsnap.stop_agent(run, timeout=20)
