"""A training with FSDP2 on one GPU that is killed and resumed: its losses must be those of one that was never stopped.

    PYTHONPATH=tests python -m gpu.fsdp_resume [WAY...] [--device cuda] [--results FOLDER]

One rank, with NCCL on a GPU and with gloo on the CPU; all algorithms are deterministic, and dropout draws from the
random generator of the device. The ways to save are bitsnap.torch, also with the agent killed, and
torch.distributed.checkpoint with bitsnap's writer and reader. Each training is a process of its own, and gets SIGKILL
between two of its checkpoints. Prints a verdict for each way, and exits with 1 if a loss differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import bitsnap

WAYS = ("torch", "torch, agent killed", "dcp", "dcp, async")
STEPS, EVERY, KILLED_AFTER = 12, 3, 8
TIMEOUT_S = 240
_TRAINING = Path(__file__).with_name("fsdp_training.py")


@dataclass
class Printed:
    """What a training printed: its losses by step, exactly, the step that it was restored from, and its agent."""

    losses: dict[int, str] = field(default_factory=dict)
    restored: int = 0
    agent: int = 0

    def read(self, line: str) -> None:
        word, *values = line.split()
        if word == "step":
            self.losses[int(values[0])] = values[1]
        elif word == "restored":
            self.restored = int(values[0])
        elif word == "agent":
            self.agent = int(values[0])


def train(way: str, run: Path, device: str, *, every: int = EVERY, kill_after: int | None = None) -> Printed:
    """Runs a training in a process of its own; kills it when it has printed the loss of this step."""
    command = [sys.executable, str(_TRAINING), way, str(run), "--device", device]
    printed = Printed()
    with subprocess.Popen(
        [*command, "--steps", str(STEPS), "--every", str(every)], stdout=subprocess.PIPE, text=True
    ) as process:
        timer = threading.Timer(TIMEOUT_S, process.kill)
        timer.start()
        assert process.stdout is not None
        for line in process.stdout:
            printed.read(line)
            if kill_after in printed.losses:
                process.kill()
                break
        code = process.wait()
        timer.cancel()
    if code != (0 if kill_after is None else -signal.SIGKILL):
        raise RuntimeError(f"{way}: the training ended with {code} after steps {sorted(printed.losses)}")
    return printed


@dataclass(frozen=True)
class Verdict:
    way: str
    restored: int  # the step that the second process went on from
    differing: list[int]  # the steps whose losses differ, or are missing

    @property
    def is_equal(self) -> bool:
        # The last checkpoint before the kill may not have been durable when the agent, or the process that wrote, died.
        return 0 < self.restored < KILLED_AFTER and not self.differing

    def __str__(self) -> str:
        steps = f"{self.restored + 1} to {STEPS}"
        said = f"losses of steps {steps} equal" if not self.differing else f"losses differ at {self.differing}"
        return f"{self.way}: killed after step {KILLED_AFTER}, resumed after step {self.restored}, {said}"


def verdict_of(way: str, folder: Path, device: str, expected: Printed) -> Verdict:
    run = folder / way.replace(", ", "-").replace(" ", "-")
    killed = train(way, run, device, kill_after=KILLED_AFTER)
    if "agent killed" in way:
        os.kill(killed.agent, signal.SIGKILL)
    resumed = train(way, run, device)
    steps = range(resumed.restored + 1, STEPS + 1)
    # The steps before the kill as well: the same machine must give the same losses.
    losses = {**killed.losses, **resumed.losses}
    differing = [step for step in range(1, STEPS + 1) if losses.get(step) != expected.losses[step]]
    missing = [step for step in steps if step not in resumed.losses]
    with contextlib.suppress(bitsnap.BitsnapError):
        bitsnap.stop_agent(run, timeout=20)
    return Verdict(way, resumed.restored, sorted({*differing, *missing}))


def verdicts(ways: Sequence[str], device: str, folder: Path) -> list[Verdict]:
    """The ways run at the same time: most of their time is that of starting Python and the device."""
    expected = train("none", folder / "none", device, every=0)
    with ThreadPoolExecutor(len(ways)) as pool:
        return list(pool.map(lambda way: verdict_of(way, folder, device, expected), ways))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", default=WAYS, help=f"of {', '.join(WAYS)}; default: all")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--results", type=Path, help="folder to whose results.md and results.jsonl the verdicts are added"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = verdicts(options.ways, options.device, Path(folder))
    lines = [f"- {'ok' if each.is_equal else 'WRONG'}: {each}" for each in found]
    print("\n".join(lines))
    if options.results is not None:
        options.results.mkdir(parents=True, exist_ok=True)
        with (options.results / "results.md").open("a", encoding="utf-8") as file:
            file.write("\n".join([f"## FSDP2, killed and resumed, on {options.device}", "", *lines, "", ""]))
        with (options.results / "results.jsonl").open("a", encoding="utf-8") as file:
            record = {"program": "fsdp_resume", "device": options.device, "equal": {v.way: v.is_equal for v in found}}
            file.write(json.dumps(record) + "\n")
    return 0 if all(each.is_equal for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
