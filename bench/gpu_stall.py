"""How long a save blocks a training on a GPU: bitsnap's engine, torch's async_save with its stagers, and torch.save.

    python -m bench.gpu_stall [--gigabytes 10] [--rounds 5] [--seconds 200] [--ways PATTERN] [--results FOLDER]

A GPT of this size trains for some steps, so that the state has the values of a training. In each round, every way saves
the state after some more steps. Before each save, as many bytes are copied to pinned memory. A save is measured until
it returns, until the state may change, and until the checkpoint is durable; the next way starts after that. At the end,
the state is restored into the tensors on the GPU, from the agent's memory and from the store, whose files are in the
page cache, and its bits are compared. Without a GPU, all of that runs on the CPU with a small state, which tests the
program.
"""

from __future__ import annotations

import argparse
import gc
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from torch.distributed.checkpoint.api import CheckpointException

import bitsnap
from bench.gpu_report import GIB, PinnedCopy, Report, device_of, parser_of, run_program, training_of
from bench.gpu_training import GpuTraining, fingerprints, synchronize
from bench.measuring import median_ratio, timed, turn_of
from bench.save_ways import Way, available_bytes, bitsnap_way, shared_bytes, ways_on_gpu, ways_that_fit
from bench.states import State, tensors_in

STALL_BAR = 1.1  # times the copy
RESTORES = 3


class Measured:
    """What one way took in each round, in seconds. The first round allocates memory and does not count."""

    def __init__(self) -> None:
        self.copied: list[float] = []  # the copy before each save
        self.returned: list[float] = []
        self.stalls: list[float] = []  # until the state may change
        self.lags: list[float] = []  # until the checkpoint is durable

    def ratio(self) -> float:
        return median_ratio(self.stalls[1:], self.copied[1:])


def measured_way(way: Way, step: int, state: State, copy: Any, into: Measured) -> None:
    copied = copy.to_host()
    start = time.perf_counter()
    handle = way.begin(step, state)
    returned = time.perf_counter() - start
    way.wait_until_safe(handle)
    safe = time.perf_counter() - start
    way.wait_until_durable(handle)
    lag = time.perf_counter() - start
    way.clean()
    into.copied.append(copied)
    into.returned.append(returned)
    into.stalls.append(safe)
    into.lags.append(lag)
    print(f"{step} {way.name}: stall {safe:.3f} s, copy {copied:.3f} s, lag {lag:.1f} s", file=sys.stderr, flush=True)


def run_rounds(
    ways: list[Way], training: Any, copy: Any, *, rounds: int, steps: int, seconds: float
) -> tuple[dict[str, Measured], dict[str, str]]:
    """Returns the times of each way, and why others failed. One round counts, whatever it takes. After `seconds`, only
    bitsnap saves, which takes little time. `training` and `copy` are as GpuTraining and PinnedCopy."""
    found = {way.name: Measured() for way in ways}
    failures: dict[str, str] = {}
    began = time.monotonic()
    for number in range(rounds + 1):
        training.run(steps)
        state = training.state()
        for way in turn_of([way for way in ways if way.name not in failures], number):
            if number > 1 and not way.is_ours and time.monotonic() - began > seconds:
                continue
            try:
                measured_way(way, training.steps, state, copy, found[way.name])
            except (Exception, CheckpointException) as error:
                if way.is_ours:
                    raise
                failures[way.name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return {name: each for name, each in found.items() if name not in failures}, failures


def report_stalls(report: Report, copy: PinnedCopy, found: dict[str, Measured]) -> None:
    copied = median(seconds for each in found.values() for seconds in each.copied[1:])
    rows = [["pinned copy", f"{copied:.3f}", f"{copied:.3f}", "1.00", "-"]]
    for name, each in found.items():
        returned, stall, lag = (median(times[1:]) for times in (each.returned, each.stalls, each.lags))
        rows.append([name, f"{returned:.3f}", f"{stall:.3f}", f"{each.ratio():.2f}", f"{lag:.2f}"])
    report.table(["", "returned (s)", "stall (s)", "times the copy", "durable (s)"], rows)
    report.say(f"The copy moved {copy.size_bytes / copied / 1e9:.1f} GB/s. Medians of all rounds but the first.")
    ratio = found["bitsnap"].ratio()
    report.say(
        f"Objective: bitsnap stalls at most {STALL_BAR:.2f} times the copy. Measured: {ratio:.2f}, "
        f"{'met' if ratio <= STALL_BAR else 'missed'}."
    )
    report.add(rounds={name: vars(each) for name, each in found.items()}, stall_ratio=ratio)


def report_saves(report: Report, saves: list[bitsnap.Save]) -> None:
    states = [save.state() for save in saves]
    rows = [
        [
            str(each.step),
            "-" if each.base is None else str(each.base),
            f"{each.raw_bytes / each.stored_bytes:.2f}",
            f"{each.encode_seconds:.2f}",
            f"{each.raw_bytes / each.encode_seconds / 1e9:.2f}",
            f"{each.write_seconds:.2f}",
        ]
        for each in states
    ]
    report.table(["step", "base", "times smaller", "encode (s)", "encode (GB/s)", "write (s)"], rows)
    report.add(saves=[{"step": each.step, "stored_bytes": each.stored_bytes} for each in states])


def time_restores(restore: Callable[[], str], training: Any, copy: Any) -> dict[str, list[tuple[float, float]]]:
    """Restores into the tensors of the training, and fails if a bit differs. By source, which `restore` returns: the
    times of a restore, and of the copy before it."""
    state = training.state()
    expected = fingerprints(state)
    times: dict[str, list[tuple[float, float]]] = {}

    def restored() -> str:
        source = restore()
        synchronize(training.device)
        return source

    for _ in range(RESTORES):
        for tensor in tensors_in(state):
            tensor.zero_()
        copied = copy.to_device()
        took, source = timed(restored)
        times.setdefault(source, []).append((took, copied))
        if fingerprints(state) != expected:
            raise AssertionError(f"restored from the {source}: other bits than were saved")
    return times


def report_restores(
    report: Report, checkpointer: bitsnap.Checkpointer, training: GpuTraining, copy: PinnedCopy
) -> None:
    state = training.state()

    def newest() -> str:
        restored = checkpointer.restore(into=state)
        assert restored is not None
        return restored.source

    def from_store() -> str:
        with bitsnap.Store(checkpointer.path, read_only=True) as store:
            store.load(into=state)
        return "store"

    times = time_restores(newest, training, copy)
    for source, found in time_restores(from_store, training, copy).items():
        times.setdefault(source, []).extend(found)
    rows = [
        [source, f"{median(took for took, _ in each):.3f}", f"{median(a / b for a, b in each):.2f}"]
        for source, each in times.items()
    ]
    report.table(["restored in place from", "seconds", "times the pinned copy to the GPU"], rows)
    report.say(f"Bits compared after each of {sum(map(len, times.values()))} restores: equal.")
    if "memory" not in times:
        report.say("The memory of the agent did not suffice for the state and its bases, so the store was read.")
    report.add(restores=times)


def chosen_ways(
    options: argparse.Namespace, report: Report, training: GpuTraining, ours: Way, folder: Path
) -> list[Way]:
    """bitsnap, and those of torch's ways that were asked for and that the memory suffices for."""
    wanted = [way for way in ways_on_gpu(training.device, folder) if re.search(options.ways, way.name)]
    state_bytes = training.raw_bytes
    fixed = int(options.slots * state_bytes + state_bytes) + options.buffer_gib * GIB
    ways, left_out = ways_that_fit(wanted, state_bytes, available_bytes() - fixed, shared_bytes())
    if left_out:
        report.say(f"Left out, because the memory does not suffice: {', '.join(way.name for way in left_out)}.")
    return [ours, *ways]


def measure(options: argparse.Namespace, report: Report, folder: Path) -> None:
    device = device_of(options.device)
    training = training_of(options, device)
    loss = training.run(options.first)
    report.say(
        f"{training.raw_bytes / 1e9:.2f} GB in {sum(1 for _ in tensors_in(training.state()))} tensors, "
        f"{training.parameters / 1e6:.0f} M parameters, {training.layers} layers of width {options.width}; first save "
        f"after step {options.first + options.steps}, then every {options.steps} steps; loss {loss:.2f} before."
    )
    report.add(raw_bytes=training.raw_bytes, options={key: str(value) for key, value in vars(options).items()})
    copy = PinnedCopy(device, training.raw_bytes, options.buffer_gib * GIB)
    checkpointer = bitsnap.Checkpointer(
        folder / "run",
        keep_last=1,
        memory=bitsnap.MemoryOptions(slots=options.slots),
        agent=bitsnap.AgentOptions(threads=options.threads, linger=5),
    )
    reserved, _ = timed(lambda: checkpointer.reserve(training.state()))
    ours, saves = bitsnap_way(checkpointer)
    ways = chosen_ways(options, report, training, ours, folder)
    found, failures = run_rounds(
        ways, training, copy, rounds=options.rounds, steps=options.steps, seconds=options.seconds
    )
    report_stalls(report, copy, found)
    report.failures(failures)
    for way in ways[1:]:
        way.end()
    gc.collect()  # the memory of the stagers
    report.say(f"`reserve()` took {reserved:.2f} s. The saves of bitsnap:")
    report.add(reserve_seconds=reserved)
    report_saves(report, saves)
    training.run(options.steps)
    ours.wait_until_durable(ours.begin(training.steps, training.state()))
    report_restores(report, checkpointer, training, copy)
    checkpointer.close()


def main() -> int:
    parser = parser_of(__doc__, gigabytes=10.0, width=2048, batch=4, first=20, steps=10, rounds=5, buffer_gib=8)
    parser.add_argument("--seconds", type=float, default=200, help="no other of torch's ways begins after that time")
    parser.add_argument("--ways", default=".", help="pattern of the names of torch's ways that are measured")
    parser.add_argument("--slots", type=int, default=2, help="of bitsnap's shared memory; 1 for large states")
    parser.add_argument("--threads", type=int, default=0, help="of the agent; default: half of the processors")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
    run_program("bench.gpu_stall", options, measure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
