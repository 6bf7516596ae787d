"""The memory of the agent with many small tensors."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from python.checkpointer_jobs import Jobs, saved

TENSORS = 30_000
MB = 1_000_000


def own_memory(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"process {process} has no RssAnon")


def test_between_saves_the_agent_has_a_snapshot_and_a_kilobyte_a_tensor(jobs: Jobs) -> None:
    values = torch.randn(TENSORS, 512)
    with jobs() as checkpointer:
        for step in (1, 2, 3):
            values *= 0.9999
            save = saved(checkpointer, step, {f"layers.{i}.weight": values[i].clone() for i in range(TENSORS)})
            snapshot = save.result().stored_bytes
        agent = checkpointer.agent_process
        assert agent is not None
        bound = snapshot + 1024 * TENSORS + 50 * MB  # of which the libraries have most
        deadline = time.monotonic() + 10  # memory is given back after the save
        while own_memory(agent) > bound and time.monotonic() < deadline:
            time.sleep(0.05)
        assert own_memory(agent) <= bound
