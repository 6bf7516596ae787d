"""The example with Megatron-core: it goes on with another number of processes."""

from __future__ import annotations

import importlib.util
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bitsnap

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "megatron" / "train.py"


def torchrun(processes: int, *arguments: object) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(processes), "-m", "bitsnap.megatron", str(EXAMPLE), *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("megatron") is None, reason="megatron-core is not installed")
def test_it_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    first = torchrun(2, folder, "--steps", 4, "--every", 2)
    second = torchrun(1, folder, "--steps", 8, "--every", 2)
    assert second[0] == "goes on after step 4"
    lines = first + second[1:]
    assert [line.partition(":")[0] for line in lines] == [f"step {step}" for step in range(1, 9)]
    losses = [float(re.findall(r"[0-9.]+$", line)[0]) for line in lines]
    falls = [before - after for before, after in itertools.pairwise(losses)]
    assert all(11 < fall < 12 for fall in falls)  # the weights go on where they were
    assert sorted(each.name for each in folder.glob("iter_*")) == ["iter_0000006", "iter_0000008"]
    with bitsnap.Store(folder / "bitsnap", read_only=True) as store:
        assert store.steps() == [4, 6, 8]
