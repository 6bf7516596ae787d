"""How much a training slows down while the engine's agent compresses and persists.

    .venv/bin/python -m bench.engine_training [--megabytes 300] [--rounds 9]

torch trains a small network on all processors but one, and on all processors. Windows without a save alternate with
windows in which the agent works on a save, and their steps per second are compared in pairs. The call of save() itself
does not count; bench.engine_stall measures it. Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import mean, median, quantiles

import torch

import bitsnap
from bench.engine_stall import NoiseTraining
from bench.machine_description import usable_cpus
from bench.measuring import folder_of, parser_of, print_machine, print_table

WIDTH = 512
BATCH = 128
MIN_WINDOW_S = 2.0


class Work:
    """Training steps bound by arithmetic: their matrices fit in a processor's cache."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self._model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)])
        self._optimizer = torch.optim.AdamW(self._model.parameters())
        self._batch = torch.randn(BATCH, WIDTH)

    def step(self) -> None:
        self._optimizer.zero_grad()
        self._model(self._batch).square().mean().backward()
        self._optimizer.step()

    def rate(self, save: bitsnap.Save | None = None) -> tuple[float, float]:
        """Returns steps per second and the duration: MIN_WINDOW_S, or until the save is done."""
        count, start = 0, time.perf_counter()
        while True:
            self.step()
            count += 1
            passed = time.perf_counter() - start
            if save.done() if save is not None else passed >= MIN_WINDOW_S:
                return count / passed, passed


def lost(threads: int, megabytes: float, rounds: int, folder: Path) -> list[str]:
    torch.set_num_threads(threads)
    work, training = Work(), NoiseTraining(megabytes / 1000)
    losses, windows = [], []
    agent = bitsnap.AgentOptions(threads=1, linger=1)
    with bitsnap.Checkpointer(folder / f"run-{threads}", keep_last=2, agent=agent) as checkpointer:
        checkpointer.reserve(training.state())
        work.rate()
        for step in range(rounds):
            training.run(1)
            before, _ = work.rate()
            save = checkpointer.save(step, training.state())
            assert save is not None
            during, seconds = work.rate(save)
            save.result()
            after, _ = work.rate()
            if step > 0:  # the first one is a keyframe
                losses.append(1 - during / mean([before, after]))
                windows.append(seconds)
    spread = quantiles(losses, n=4)
    return [
        f"{threads} of {usable_cpus()}",
        f"{100 * median(losses):.1f} %",
        f"{100 * spread[0]:.1f} to {100 * spread[2]:.1f} %",
        f"{median(windows):.2f}",
    ]


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--megabytes", type=float, default=300, help="size of the state")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print_machine()
    with folder_of(options) as folder:
        rows = [
            lost(threads, options.megabytes, options.rounds, folder)
            for threads in sorted({max(1, usable_cpus() - 1), usable_cpus()})
        ]
    print_table(["training processors", "throughput lost", "middle half", "agent's work (s)"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
