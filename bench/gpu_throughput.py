"""How much throughput a training on a GPU loses while bitsnap's agent compresses its states on some processors.

    python -m bench.gpu_throughput [--gigabytes 2] [--threads 2,4,8,16] [--every 150] [--rounds 2] [--results FOLDER]

A GPT trains for --steps steps without saves, then for as many with a save every --every steps, and so on in turns. The
program does this for each number of threads of the agent, and for the largest one also with save(blocking=False). It
compares tokens per second with those of the windows without saves before and after. The second comparison leaves out
what the training waited for saves: what remains is what it loses to its neighbour. Without a GPU, all of that runs on
the CPU with a small model, which tests the program.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import bitsnap
from bench.gpu_report import Report, device_of, parser_of, run_program, training_of
from bench.gpu_training import GpuTraining, synchronize


@dataclass(frozen=True)
class Window:
    """Some steps of a training, and the saves between them."""

    tokens: int
    seconds: float
    saves: list[bitsnap.Save]

    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    def rate_between_saves(self) -> float:
        """Without the waits for saves."""
        return self.tokens / (self.seconds - sum(save.state().stall_seconds for save in self.saves))


@dataclass(frozen=True)
class Result:
    name: str
    lost: float  # share of the throughput
    lost_between_saves: float  # without the waits for saves
    busy: float  # share of the time of the windows in which the agent encoded
    saves: list[bitsnap.SaveState]

    def row(self) -> list[str]:
        return [
            self.name,
            f"{100 * self.lost:.1f} %",
            f"{100 * self.lost_between_saves:.1f} %",
            f"{100 * self.busy:.0f} %",
            f"{median(each.stall_seconds for each in self.saves):.3f}",
            f"{median(each.wait_seconds for each in self.saves):.3f}",
            f"{median(each.encode_seconds for each in self.saves):.2f}",
            f"{median(each.raw_bytes / each.stored_bytes for each in self.saves):.2f}",
        ]


def run_window(
    training: GpuTraining,
    options: argparse.Namespace,
    checkpointer: bitsnap.Checkpointer | None = None,
    blocking: bool = True,
) -> Window:
    """Trains --steps steps; with a checkpointer, it saves after every --every steps. The window ends with the work of
    the device."""
    saves = []
    synchronize(training.device)
    start = time.perf_counter()
    for number in range(1, options.steps + 1):
        training.step()
        if checkpointer is not None and number % options.every == 0:
            if blocking:
                synchronize(training.device)  # a save would wait for the computing, which is no part of its own time
            save = checkpointer.save(training.steps, training.state(), blocking=blocking)
            assert save is not None
            saves.append(save)
    synchronize(training.device)
    return Window(options.steps * training.tokens_per_step, time.perf_counter() - start, saves)


def measure_threads(
    training: GpuTraining, threads: int, blocking: bool, options: argparse.Namespace, folder: Path
) -> Result:
    """Windows with and without saves in turns, for one number of threads of the agent."""
    losses, between, saves, seconds = [], [], [], 0.0
    agent = bitsnap.AgentOptions(threads=threads, linger=1)
    with bitsnap.Checkpointer(folder / f"run-{threads}-{blocking}", keep_last=1, agent=agent) as checkpointer:
        checkpointer.reserve(training.state())
        first = checkpointer.save(training.steps, training.state())  # a keyframe, which takes longer than the others
        assert first is not None
        first.result()
        before = run_window(training, options).rate()
        for _ in range(options.rounds):
            window = run_window(training, options, checkpointer, blocking)
            saves += [save.result() for save in window.saves]
            seconds += window.seconds
            after = run_window(training, options).rate()
            losses.append(1 - window.rate() / mean([before, after]))
            between.append(1 - window.rate_between_saves() / mean([before, after]))
            before = after
    name = str(threads) if blocking else f"{threads}, blocking=False"
    print(f"{name} threads: {[f'{100 * lost:.1f} %' for lost in losses]}", file=sys.stderr, flush=True)
    busy = sum(save.encode_seconds for save in saves) / seconds
    return Result(name, median(losses), median(between), busy, saves)


def measure(options: argparse.Namespace, report: Report, folder: Path) -> None:
    training = training_of(options, device_of(options.device))
    training.run(options.first)
    plain = run_window(training, options)
    report.say(
        f"{training.parameters / 1e6:.0f} M parameters, {training.raw_bytes / 1e9:.2f} GB of state, batches of "
        f"{training.tokens_per_step} tokens. Without saves: {plain.rate():.0f} tokens/s, "
        f"{1000 * plain.seconds / options.steps:.1f} ms per step. With saves: one every {options.every} steps, windows "
        f"of {options.steps} steps."
    )
    ways = [(threads, True) for threads in options.threads] + [(max(options.threads), False)]
    results = [measure_threads(training, *way, options, folder) for way in ways]
    header = [
        "threads of the agent",
        "throughput lost",
        "without the waits for saves",
        "agent encodes, of the time",
        "stall (s)",
        "of it waiting for a slot (s)",
        "encode (s)",
        "times smaller",
    ]
    report.table(header, [result.row() for result in results])
    report.add(
        tokens_per_second=plain.rate(),
        raw_bytes=training.raw_bytes,
        options={key: str(value) for key, value in vars(options).items()},
        lost={each.name: [each.lost, each.lost_between_saves] for each in results},
    )


def main() -> int:
    parser = parser_of(__doc__, gigabytes=2.0, width=1024, batch=8, first=20, steps=300, rounds=2)
    parser.add_argument("--every", type=int, default=150, help="steps between saves")
    parser.add_argument(
        "--threads",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[2, 4, 8, 16],
        help="numbers of threads of the agent (default: 2,4,8,16)",
    )
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    run_program("bench.gpu_throughput", options, measure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
