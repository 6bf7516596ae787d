"""A training in control groups with little memory: whether its checkpoints end it, and what they give up first.

    python -m bench.memory_limits [--limits 2.6 3.2 3.6 4.0]

The training has a state of 1.0 GB (four tensors of 62.5 million F32 elements, numbers that compress little) and takes
250 MB more for a moment before each save. It saves three times and is killed; a second life restores the newest step,
changes the state in place, and saves twice. Needs the right to make control groups of version 1.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIFE = """
import os, signal, sys, warnings
from pathlib import Path
group, store, first, count, options = sys.argv[1:]
(Path(group) / "cgroup.procs").write_text(str(os.getpid()))
import torch, bitsnap
first, count = int(first), int(count)
state = {name: torch.zeros(62_500_000) for name in "wmvx"}
job, memory = bitsnap.JobOptions(Path(group).name), bitsnap.MemoryOptions(**eval(options))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with bitsnap.Checkpointer(store, job=job, memory=memory, timeout=120) as checkpointer:
        if first:
            state.clear()
            restored = checkpointer.restore()
            assert restored is not None and restored.step == first - 1, restored
            print("restored from", restored.source, end="; ")
            state = dict(restored.state)
            del restored
        for step in range(first, first + count):
            for seed, tensor in enumerate(state.values()):
                if first:
                    tensor.add_(1e-3)
                else:
                    noise = torch.randn(tensor.numel() // 125, generator=torch.Generator().manual_seed(seed))
                    tensor.copy_(noise.repeat(125)).add_(step * 1e-3)
            save = checkpointer.save(step, state)
            if save.error is not None:
                print("refused:", save.error, end="; ")
                break
            save.wait_persisted()
print("one slot" if any(issubclass(each.category, bitsnap.MemoryWarning) for each in caught) else "slots as asked")
sys.stdout.flush()
if not first:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def memory_group() -> Path:
    """The directory of this process's control group for memory."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return Path("/sys/fs/cgroup/memory") / path.lstrip("/")
    raise SystemExit("this process has no control group for memory of version 1")


def live(group: Path, store: str, first: int, count: int, options: str) -> None:
    """Runs one life of the training and prints how it went."""
    begin = time.monotonic()
    command = [sys.executable, "-c", LIFE, str(group), store, str(first), str(count), options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    kills = (group / "memory.oom_control").read_text().split()[-1]
    end = done.stdout.strip() or "ENDED: " + (done.stderr.strip().splitlines() or [str(done.returncode)])[-1]
    print(f"  steps {first} to {first + count - 1}: {end}; {kills} kills, {time.monotonic() - begin:.0f} s", flush=True)


def remove(group: Path) -> None:
    """Removes the group when its last process has ended."""
    for _ in range(200):
        with contextlib.suppress(OSError):
            return group.rmdir()
        time.sleep(0.1)
    raise SystemExit(f"{group} cannot be removed")


def main() -> None:
    """Runs two lives for each limit and each choice of memory."""
    parser = argparse.ArgumentParser(description="A training in control groups with little memory.")
    parser.add_argument("--limits", nargs="+", type=float, default=[2.6, 3.2, 3.6, 4.0], metavar="GB")
    arguments = parser.parse_args()
    own = memory_group()
    for limit in arguments.limits:
        for options in ("{}", "{'slots': 1}", "{'budget': 2_100_000_000}"):
            print(f"limit {limit} GB, MemoryOptions {options}", flush=True)
            group = own / f"bitsnap-bench-{secrets.token_hex(4)}"
            group.mkdir()
            (group / "memory.limit_in_bytes").write_text(str(int(limit * 1e9)))
            with tempfile.TemporaryDirectory() as folder:
                live(group, f"{folder}/run", 0, 3, options)
                live(group, f"{folder}/run", 3, 2, options)
                for process in (group / "cgroup.procs").read_text().split():
                    os.kill(int(process), signal.SIGKILL)
            remove(group)


if __name__ == "__main__":
    main()
