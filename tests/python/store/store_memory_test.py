"""The memory of a process that saves thousands of checkpoints with one store."""

from __future__ import annotations

from pathlib import Path

from python.processes import MIB, run_script

SAVES = """
import sys
import numpy as np
import bitsnap

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) << 10

rng = np.random.default_rng(1)
state = {name: rng.standard_normal(6000, np.float32) for name in "wmv"}
state["small"] = [rng.standard_normal(10) for _ in range(20)]
with bitsnap.Store(sys.argv[1]) as store:
    for step in range(768):
        for name in "wmv":
            state[name] *= 0.999
        store.save(step, state)
        if step == 255:
            before = anonymous()
    print(anonymous() - before)
"""


def test_saves_leave_little_memory_behind(tmp_path: Path) -> None:
    assert int(run_script(SAVES, tmp_path / "run")) < 15 * MIB
