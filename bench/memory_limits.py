"""A training in control groups with little memory: whether its checkpoints end it, and what they give up first.

    python -m bench.memory_limits [--limits 2.6 3.2 3.6 4.0]

The training has a state of 1.0 GB (four tensors of 62.5 million F32 elements, numbers that compress little) and takes
250 MB more for a moment before each save. It saves three times and is killed; a second life restores the newest step,
changes the state in place, and saves twice. Needs the right to make control groups of version 1.

With --in-a-row, a store saves a state of 0.42 GB eight times instead, with and without keep_base.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measuring import parser_of, timed

SAVES = 3  # of the first life
CHOICES: tuple[dict[str, Any], ...] = ({}, {"slots": 1}, {"budget": 2_100_000_000})


def live(run: str, job: str, first: int, count: int, choice: dict[str, Any]) -> None:
    """One life of the training. The first one is killed at its end."""
    import torch

    import bitsnap

    state = {name: torch.zeros(62_500_000) for name in "wmvx"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        memory = bitsnap.MemoryOptions(**choice)
        with bitsnap.Checkpointer(run, job=bitsnap.JobOptions(job), memory=memory, timeout=120) as checkpointer:
            if first:
                state.clear()
                restored = checkpointer.restore()
                assert restored is not None
                assert restored.step == first - 1
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
                assert save is not None
                if save.error is not None:
                    print("refused:", save.error, end="; ")
                    break
                save.wait_persisted()
    print("one slot" if any(issubclass(each.category, bitsnap.MemoryWarning) for each in caught) else "slots as asked")
    sys.stdout.flush()
    if not first:
        os.kill(os.getpid(), signal.SIGKILL)


def save_in_a_row(run: str, keep_base: bool) -> None:
    import numpy as np

    import bitsnap

    state = {"w": np.random.default_rng(0).standard_normal(105_000_000, dtype=np.float32)}
    seconds = []
    with bitsnap.Store(run, keep_base=keep_base) as store:
        for step in range(8):
            state["w"] *= np.float32(1.0001)
            seconds.append(timed(lambda: store.save(step, state))[0])  # noqa: B023 (called at once)
        assert not store.verify().damages
    smaps = Path("/proc/self/smaps").read_text().splitlines()
    offered = sum(int(line.split()[1]) for line in smaps if line.startswith("LazyFree:"))
    print(*(f"{each:.2f}" for each in seconds), f"s; {offered / 1e6:.2f} GB kept at the end")


def run_in(group: Path, call: str) -> str:
    """Calls a function of this module in a process of the group. What it printed, or how it ended."""
    program = f"from pathlib import Path; Path({str(group / 'cgroup.procs')!r}).write_text('0'); "
    command = [sys.executable, "-c", f"{program}from bench import memory_limits; memory_limits.{call}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    kills = (group / "memory.oom_control").read_text().split()[-1]
    end = done.stdout.strip() or "ENDED: " + (done.stderr.strip().splitlines() or [str(done.returncode)])[-1]
    return f"{end}; {kills} kills"


def memory_group() -> Path:
    """The directory of this process's control group for memory."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return Path("/sys/fs/cgroup/memory") / path.lstrip("/")
    raise SystemExit("this process has no control group for memory of version 1")


@contextlib.contextmanager
def limited(gigabytes: float) -> Iterator[Path]:
    """A control group with this much memory. What is left in it is ended, and then it is removed."""
    group = memory_group() / f"bitsnap-bench-{secrets.token_hex(4)}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(int(gigabytes * 1e9)))
    try:
        yield group
    finally:
        for process in (group / "cgroup.procs").read_text().split():
            os.kill(int(process), signal.SIGKILL)
        deadline = time.monotonic() + 20
        while group.exists():
            with contextlib.suppress(OSError):  # it has a process that has not ended yet
                group.rmdir()
            if time.monotonic() > deadline:
                raise SystemExit(f"{group} cannot be removed")
            time.sleep(0.1)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--limits", nargs="+", type=float, default=[2.6, 3.2, 3.6, 4.0], metavar="GB")
    parser.add_argument("--in-a-row", action="store_true", help="a store without an agent")
    options = parser.parse_args()
    tempfile.tempdir = options.folder
    for limit in options.limits:
        for choice in (False, True) if options.in_a_row else CHOICES:
            print(f"limit {limit} GB, {'keep_base' if options.in_a_row else 'MemoryOptions'} {choice}", flush=True)
            with tempfile.TemporaryDirectory() as folder, limited(limit) as group:
                run = f"{folder}/run"
                if options.in_a_row:
                    print(f"  {run_in(group, f'save_in_a_row({run!r}, {choice})')}", flush=True)
                    continue
                for first, count in ((0, SAVES), (SAVES, 2)):
                    call = f"live({run!r}, {group.name!r}, {first}, {count}, {choice})"
                    seconds, end = timed(lambda: run_in(group, call))  # noqa: B023 (called at once)
                    print(f"  steps {first} to {first + count - 1}: {end}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
