"""A training in control groups with little memory: whether its checkpoints end it, and what they give up first.

    python -m bench.memory_limits [--limits 2.6 3.2 3.6 4.0]

The training has a state of 1.0 GB (four tensors of 62.5 million F32 elements, numbers that compress little) and takes
250 MB more for a moment before each save. It saves three times and is killed; a second life restores the newest step,
changes the state in place, and saves twice. Needs the right to make control groups of version 1.

With --in-a-row, a store saves a state of 0.42 GB eight times instead, with and without keep_base.
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
from collections.abc import Iterator
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

IN_A_ROW = """
import sys, time
from pathlib import Path
group, run, keep_base = sys.argv[1:]
(Path(group) / "cgroup.procs").write_text("0")
import numpy, bitsnap
state = {"w": numpy.random.default_rng(0).standard_normal(105_000_000, dtype=numpy.float32)}
seconds = []
with bitsnap.Store(run, keep_base=keep_base == "True") as store:
    for step in range(8):
        state["w"] *= numpy.float32(1.0001)
        begin = time.perf_counter()
        store.save(step, state)
        seconds.append(time.perf_counter() - begin)
    assert not store.verify().damages
offered = sum(int(line.split()[1]) for line in open("/proc/self/smaps") if line.startswith("LazyFree:"))
print(*(f"{each:.2f}" for each in seconds), f"s; {offered / 1e6:.2f} GB kept at the end")
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
    end = outcome(group, command)
    print(f"  steps {first} to {first + count - 1}: {end}, {time.monotonic() - begin:.0f} s", flush=True)


def outcome(group: Path, command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    kills = (group / "memory.oom_control").read_text().split()[-1]
    end = done.stdout.strip() or "ENDED: " + (done.stderr.strip().splitlines() or [str(done.returncode)])[-1]
    return f"{end}; {kills} kills"


def remove(group: Path) -> None:
    """Removes the group when its last process has ended."""
    for _ in range(200):
        with contextlib.suppress(OSError):
            return group.rmdir()
        time.sleep(0.1)
    raise SystemExit(f"{group} cannot be removed")


@contextlib.contextmanager
def limited(gigabytes: float) -> Iterator[Path]:
    """A control group with this much memory, and what is left in it is ended."""
    group = memory_group() / f"bitsnap-bench-{secrets.token_hex(4)}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(int(gigabytes * 1e9)))
    try:
        yield group
    finally:
        for process in (group / "cgroup.procs").read_text().split():
            os.kill(int(process), signal.SIGKILL)
        remove(group)


def save_in_a_row(limits: list[float]) -> None:
    for limit in limits:
        for keep_base in (False, True):
            with tempfile.TemporaryDirectory() as folder, limited(limit) as group:
                end = outcome(group, [sys.executable, "-c", IN_A_ROW, str(group), f"{folder}/run", str(keep_base)])
            print(f"limit {limit} GB, keep_base={keep_base}: {end}", flush=True)


def main() -> None:
    """Runs two lives for each limit and each choice of memory."""
    parser = argparse.ArgumentParser(description="A training in control groups with little memory.")
    parser.add_argument("--limits", nargs="+", type=float, default=[2.6, 3.2, 3.6, 4.0], metavar="GB")
    parser.add_argument("--in-a-row", action="store_true", help="a store without an agent")
    arguments = parser.parse_args()
    if arguments.in_a_row:
        save_in_a_row(arguments.limits)
        return
    for limit in arguments.limits:
        for options in ("{}", "{'slots': 1}", "{'budget': 2_100_000_000}"):
            print(f"limit {limit} GB, MemoryOptions {options}", flush=True)
            with tempfile.TemporaryDirectory() as folder, limited(limit) as group:
                live(group, f"{folder}/run", 0, 3, options)
                live(group, f"{folder}/run", 3, 2, options)


if __name__ == "__main__":
    main()
