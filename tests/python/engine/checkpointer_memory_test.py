"""The memory of the agent with many small tensors."""

from __future__ import annotations

import time

import torch

from python.engine.checkpointer_jobs import Jobs, saved
from soak.memory_run import resident

TENSORS = 30_000
MB = 1_000_000


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
        while resident(agent)[0] > bound and time.monotonic() < deadline:
            time.sleep(0.05)
        assert resident(agent)[0] <= bound
