"""How long a save blocks a training: bitsnap's engine compared with a copy, torch's async_save and torch.save.

    .venv/bin/python -m bench.engine_stall [--gigabytes 1.0] [--rounds 7] [--busy 0] [--folder FOLDER]

In each round, every method saves a state of weights, masters and moments that has changed a little since the last
round. The duration of the call counts; the work in the background ends before the next method starts. For comparison,
each save comes after a copy of the same bytes in parallel into memory that was touched before. torch's methods write to
the same disk. --busy starts processes that only compute. At the end the state is restored from the agent's memory, with
the store removed. Prints Markdown for docs/measurements.md. For a GPU, see bench.gpu_stall.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import bitsnap
from bench.gpu_stall import run_rounds, time_restores
from bench.measuring import folder_of, parser_of, print_machine, print_table, timed
from bench.save_ways import bitsnap_way, ways_on_cpu
from bench.states import State, bytes_of, tensors_in

LAYERS = 24
PIECE_BYTES = 4 << 20
BUDGET_SHARE = 4  # multiple of the state, for the arena and compressed snapshots


class NoiseTraining:
    """A state of `gigabytes`; each step changes all of it a little."""

    device = torch.device("cpu")

    def __init__(self, gigabytes: float) -> None:
        elements = int(gigabytes * 1e9 / 14 / LAYERS)
        generator = torch.Generator().manual_seed(1)
        self.steps = 0
        self._state: State = {"model": {}, "master": {}, "exp_avg": {}, "exp_avg_sq": {}}
        self._noise = torch.randn(elements, generator=generator)
        for layer in (f"layers.{number}.weight" for number in range(LAYERS)):
            master = torch.randn(elements, generator=generator) * 0.02
            self._state["master"][layer] = master
            self._state["model"][layer] = master.to(torch.bfloat16)
            self._state["exp_avg"][layer] = torch.randn(elements, generator=generator) * 1e-4
            self._state["exp_avg_sq"][layer] = torch.rand(elements, generator=generator) * 1e-8

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.steps += 1
            for number, (layer, master) in enumerate(self._state["master"].items()):
                gradient = self._noise.roll(number + 1) * 1e-4
                first, second = self._state["exp_avg"][layer], self._state["exp_avg_sq"][layer]
                first.lerp_(gradient, 0.1)
                second.mul_(0.95).addcmul_(gradient, gradient, value=0.05)
                master.addcdiv_(first, second.sqrt().add_(1e-8), value=-1e-4)
                self._state["model"][layer].copy_(master)
            self._noise = self._noise.roll(7)

    def state(self) -> State:
        """The live tensors."""
        return self._state

    @property
    def raw_bytes(self) -> int:
        return bytes_of(self._state)


class ParallelCopy:
    """Copies all bytes of a state into memory that was touched before, with one thread per processor."""

    def __init__(self, state: State) -> None:
        self._pieces: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        for tensor in tensors_in(state):
            source = tensor.view(torch.uint8).numpy()
            into = np.ones_like(source)
            for begin in range(0, source.nbytes, PIECE_BYTES):
                end = min(begin + PIECE_BYTES, source.nbytes)
                self._pieces.append((into[begin:end], source[begin:end]))
        self._threads = len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(self._threads)

    def to_host(self) -> float:
        """Returns seconds."""

        # One task per thread: the cost of a Python task must not count.
        def copy(first: int) -> None:
            for into, source in self._pieces[first :: self._threads]:
                np.copyto(into, source)

        return timed(lambda: list(self._pool.map(copy, range(self._threads))))[0]

    to_device = to_host


@contextlib.contextmanager
def kept_busy(processes: int) -> Iterator[None]:
    """Runs processes that use all the processor time they get, like the workers of a training."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(gigabytes: float, rounds: int, folder: Path) -> None:
    training = NoiseTraining(gigabytes)
    copy = ParallelCopy(training.state())
    memory = bitsnap.MemoryOptions(budget=BUDGET_SHARE * training.raw_bytes)
    agent = bitsnap.AgentOptions(linger=5)
    with bitsnap.Checkpointer(folder / "run", keep_last=2, memory=memory, agent=agent) as checkpointer:
        checkpointer.reserve(training.state())
        ours, saves = bitsnap_way(checkpointer)
        ways = [ours, *ways_on_cpu(folder)]
        found, failures = run_rounds(ways, training, copy, rounds=rounds, steps=1, seconds=float("inf"))
        copied = median(seconds for each in found.values() for seconds in each.copied[1:])
        rows = [["parallel copy into warm memory", f"{copied:.3f}", "1.00", "-"]]
        for name, each in found.items():
            behind = median(lag - stall for lag, stall in zip(each.lags[1:], each.stalls[1:], strict=True))
            rows.append([name, f"{median(each.stalls[1:]):.3f}", f"{each.ratio():.2f}", f"{behind:.2f}"])
        print_table(["", "stall (s)", "times the copy", "background (s)"], rows)
        for name, reason in failures.items():
            print(f"{name} failed: {reason}")
        ratio = median(state.raw_bytes / state.stored_bytes for state in (save.state() for save in saves[2:]))
        tensors = sum(1 for _ in tensors_in(training.state()))
        print(f"{training.raw_bytes / 1e9:.2f} GB in {tensors} tensors, {rounds} rounds; ratio {ratio:.2f}.")
        report_restore(checkpointer, training, copy)


def report_restore(checkpointer: bitsnap.Checkpointer, training: NoiseTraining, copy: ParallelCopy) -> None:
    """From memory, without a store."""
    shutil.rmtree(checkpointer.path)

    def restore() -> str:
        restored = checkpointer.restore(into=training.state())
        assert restored is not None
        return restored.source

    [times] = time_restores(restore, training, copy).values()
    print(
        "Restored from the agent's memory, with the store removed, bit for bit: "
        f"{median(took for took, _ in times):.3f} s, {median(copied / took for took, copied in times):.2f} of the "
        "speed of the copy."
    )


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the state")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--busy", type=int, default=0, help="number of processes that only compute")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    print_machine()
    with folder_of(options) as folder, tempfile.NamedTemporaryFile() as meeting:
        dist.init_process_group("gloo", init_method=f"file://{meeting.name}", rank=0, world_size=1)
        with kept_busy(options.busy):
            measure(options.gigabytes, options.rounds, folder)
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
