"""How long a save blocks a training: bitsnap's engine compared with a copy, torch's async_save and torch.save.

    .venv/bin/python -m bench.engine_stall [--gigabytes 1.0] [--rounds 7] [--busy 0] [--folder FOLDER]

In each round, every method saves a state of weights, masters and moments that has changed a little since the last save.
The duration of the call counts; the work in the background ends before the next method starts. For comparison, each
round also copies the same bytes in parallel into memory that was touched before. torch's methods write to the same
disk. --busy starts processes that only compute. At the end the state is restored from the agent's memory, with the
store removed. Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save

import bitsnap
from bench.machine_description import describe
from bench.results_tables import align

LAYERS = 24
PIECE_BYTES = 4 << 20
BUDGET_SHARE = 4  # multiple of the state, for the arena and compressed snapshots

State = dict[str, torch.Tensor]


class Training:
    """A state of `gigabytes`; each step changes all of it a little."""

    def __init__(self, gigabytes: float) -> None:
        elements = int(gigabytes * 1e9 / 14 / LAYERS)
        generator = torch.Generator().manual_seed(1)
        self.state: State = {}
        self._noise = torch.randn(elements, generator=generator)
        for layer in range(LAYERS):
            master = torch.randn(elements, generator=generator) * 0.02
            self.state[f"optimizer.fp32_from_fp16_params.{layer}"] = master
            self.state[f"model.layers.{layer}.weight"] = master.to(torch.bfloat16)
            self.state[f"optimizer.state.{layer}.exp_avg"] = torch.randn(elements, generator=generator) * 1e-4
            self.state[f"optimizer.state.{layer}.exp_avg_sq"] = torch.rand(elements, generator=generator) * 1e-8

    def step(self) -> None:
        for layer in range(LAYERS):
            gradient = self._noise.roll(layer + 1) * 1e-4
            master = self.state[f"optimizer.fp32_from_fp16_params.{layer}"]
            first = self.state[f"optimizer.state.{layer}.exp_avg"]
            second = self.state[f"optimizer.state.{layer}.exp_avg_sq"]
            first.lerp_(gradient, 0.1)
            second.mul_(0.95).addcmul_(gradient, gradient, value=0.05)
            master.addcdiv_(first, second.sqrt().add_(1e-8), value=-1e-4)
            self.state[f"model.layers.{layer}.weight"].copy_(master)
        self._noise = self._noise.roll(7)

    @property
    def raw_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.state.values())


class ParallelCopy:
    """Copies all bytes of a state into memory that was touched before, with one thread per processor."""

    def __init__(self, state: State) -> None:
        self._pieces: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        for tensor in state.values():
            source = tensor.view(torch.uint8).numpy()
            into = np.ones_like(source)
            for begin in range(0, source.nbytes, PIECE_BYTES):
                end = min(begin + PIECE_BYTES, source.nbytes)
                self._pieces.append((into[begin:end], source[begin:end]))
        self._threads = len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(self._threads)

    def run(self) -> None:
        # One task per thread: the cost of a Python task must not count.
        def copy(first: int) -> None:
            for into, source in self._pieces[first :: self._threads]:
                np.copyto(into, source)

        list(self._pool.map(copy, range(self._threads)))


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


class Way:
    """One way to save: `begin` blocks the training, `finish` waits for the rest."""

    def __init__(self, name: str, begin: Callable[[int, State], Any], finish: Callable[[Any], None]) -> None:
        self.name = name
        self.begin, self.finish = begin, finish
        self.stalls: list[float] = []
        self.behind: list[float] = []

    def run(self, step: int, state: State) -> None:
        start = time.perf_counter()
        handle = self.begin(step, state)
        called = time.perf_counter()
        self.finish(handle)
        self.stalls.append(called - start)
        self.behind.append(time.perf_counter() - called)


def torch_ways(folder: Path) -> list[Way]:
    """async_save with several settings, and torch.save with fsync."""

    def asynchronous(name: str, **settings: Any) -> Way:
        path = folder / name.replace(" ", "-").replace(",", "")

        def begin(step: int, state: State) -> Any:
            return async_save(dict(state), checkpoint_id=str(path), **settings)

        def finish(future: Any) -> None:
            getattr(future, "upload_completion", future).result()
            shutil.rmtree(path)

        return Way(f"async_save, {name}", begin, finish)

    def save_and_sync(step: int, state: State) -> None:
        with (folder / "torch.pt").open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())

    plain = StagingOptions(
        use_pinned_memory=False, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=False
    )
    shared = StagingOptions(
        use_pinned_memory=False, use_shared_memory=True, use_async_staging=False, use_non_blocking_copy=False
    )
    thread, process = AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS
    return [
        asynchronous("default"),
        asynchronous("one stager", async_stager=DefaultStager(plain), async_checkpointer_type=thread),
        asynchronous("one stager, shared", async_stager=DefaultStager(shared), async_checkpointer_type=thread),
        asynchronous("process", async_stager=DefaultStager(shared), async_checkpointer_type=process),
        Way("torch.save and fsync", save_and_sync, lambda _: None),
    ]


def measure(gigabytes: float, rounds: int, folder: Path) -> list[str]:
    training = Training(gigabytes)
    raw_bytes = training.raw_bytes
    copy = ParallelCopy(training.state)
    run = folder / "run"
    checkpointer = bitsnap.Checkpointer(
        run,
        keep_last=2,
        memory=bitsnap.MemoryOptions(budget=BUDGET_SHARE * raw_bytes),
        agent=bitsnap.AgentOptions(linger=5),
    )
    checkpointer.reserve(training.state)

    def begin(step: int, state: State) -> bitsnap.Save:
        save = checkpointer.save(step, state)
        assert save is not None
        return save

    results: list[bitsnap.SaveState] = []
    ours = Way("bitsnap", begin, lambda save: results.append(save.result()))
    ways = [ours, *torch_ways(folder)]
    copies: dict[str, list[float]] = {way.name: [] for way in ways}
    for step in range(rounds + 1):
        training.step()
        for way in ways:
            start = time.perf_counter()
            copy.run()
            copies[way.name].append(time.perf_counter() - start)
            way.run(step, training.state)
            print(f"{step} {way.name}: {way.stalls[-1]:.3f} s, behind {way.behind[-1]:.1f} s", file=sys.stderr)
    # The first round allocates memory and starts processes.
    copied = statistics.median(seconds for each in copies.values() for seconds in each[1:])
    rows = [["parallel copy into warm memory", f"{copied:.3f}", "1.00", "-"]]
    for way in ways:
        beside = statistics.median(
            stall / plain for stall, plain in zip(way.stalls[1:], copies[way.name][1:], strict=True)
        )
        stall, behind = statistics.median(way.stalls[1:]), statistics.median(way.behind[1:])
        rows.append([way.name, f"{stall:.3f}", f"{beside:.2f}", f"{behind:.2f}"])
    lines = [*align(["", "stall (s)", "times the copy", "background (s)"], rows), ""]
    ratio = statistics.median(result.raw_bytes / result.stored_bytes for result in results[2:])
    lines.append(f"{raw_bytes / 1e9:.2f} GB in {len(training.state)} tensors, {rounds} rounds; ratio {ratio:.2f}.")
    lines += restored(checkpointer, training, copied, run)
    checkpointer.close()
    return lines


def restored(checkpointer: bitsnap.Checkpointer, training: Training, copied: float, run: Path) -> list[str]:
    """The time of a restore from memory, without a store."""
    shutil.rmtree(run)
    expected = {name: tensor.clone() for name, tensor in training.state.items()}
    seconds = []
    for _ in range(5):
        for tensor in training.state.values():
            tensor.zero_()
        start = time.perf_counter()
        found = checkpointer.restore(into=training.state)
        seconds.append(time.perf_counter() - start)
        assert found is not None
        assert found.source == "memory"
        for name, tensor in expected.items():
            assert torch.equal(tensor.view(torch.uint8), training.state[name].view(torch.uint8)), name
    took = statistics.median(seconds)
    return [
        f"Restored from the agent's memory, with the store removed, bit for bit: {took:.3f} s, "
        f"{copied / took:.2f} of the speed of the copy."
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the state")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--busy", type=int, default=0, help="number of processes that only compute")
    parser.add_argument("--folder", type=Path, help="folder to write to; default: a temporary one")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=0, world_size=1)
        with kept_busy(arguments.busy):
            lines = measure(arguments.gigabytes, arguments.rounds, Path(folder))
        dist.destroy_process_group()
    print(", ".join(describe("as detected").values()))
    print()
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
