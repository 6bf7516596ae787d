"""Compares the checkpoints that frameworks write themselves with those of bitsnap's integrations.

    python -m bench.framework_integrations times [--frameworks transformers accelerate ...]
    python -m bench.framework_integrations disk [--frameworks torch dcp ...] [--every 5]

`times` are the bytes of ten checkpoints of a GPT-2 of 7 million parameters, and the seconds of a save and of a resume.
`disk` is what the folders of a GPT-2 of 2 million parameters hold while the framework keeps the newest N of 16
checkpoints, in raw checkpoints that are kept. All that is in the folder counts, also what the framework writes itself,
after each save and, as the peak, at any time. After a save is when the agent has nothing left to do. Each training
takes place once for each way to write. Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import bitsnap
from bench.disk_use import DiskWatch, bytes_in
from bench.frameworks import FRAMEWORKS, Framework, installed
from bench.frameworks.small_models import Gpt2, noise
from bench.frameworks.task import Observer, Task
from bench.measuring import parser_of, print_machine, print_table

AGENT = {"agent": bitsnap.AgentOptions(linger=1.0)}
WAYS: dict[str, dict[str, Any] | None] = {"its own": None, "bitsnap": {}, "bitsnap, agent": AGENT}
SAVES = {"times": 10, "disk": 16}
SIZES = {
    "times": Gpt2(words=8000, length=64, width=256, layers=6, heads=8),
    "disk": Gpt2(words=2000, length=32, width=192, layers=4, heads=6),
}
COMPARED = {
    **{name: FRAMEWORKS[name] for name in ("torch", "transformers", "accelerate", "lightning")},
    "lightning, save_last": replace(FRAMEWORKS["lightning"], arguments={"save_last": True}),
    "deepspeed": replace(FRAMEWORKS["deepspeed1"], ranks=1),
    "dcp": replace(FRAMEWORKS["dcp"], ranks=2),
}
WITH_TIMES = ("transformers", "accelerate", "lightning", "deepspeed")


def task_of(measure: str, framework: str, folder: Path, every: int) -> Task:
    length = SIZES[measure].length
    # bfloat16 is slow on most CPUs.
    batch = functools.partial(noise, *((1, 8) if framework == "deepspeed" else (2, length)))
    return Task(folder, last=SAVES[measure] * every, save_every=every, sizes=SIZES[measure], batch_of=batch)


def await_agents(folder: Path) -> None:
    """Waits until no agent of a run in the folder works, and no more changes in the folder."""
    deadline = time.monotonic() + 60
    with contextlib.suppress(bitsnap.NotFoundError):
        while time.monotonic() < deadline:
            [rank] = bitsnap.agent_status(folder / "bitsnap")["ranks"]
            if not (rank["queued"] or rank["encoding"] or rank["writing"] or rank["uncommitted"]):
                break
            time.sleep(0.01)
    before = -1
    while (now := bytes_in(folder)) != before and time.monotonic() < deadline:
        before = now
        time.sleep(0.3)


class Clock(Observer):
    """The seconds of each save, and of loading a checkpoint."""

    def __init__(self) -> None:
        self._saves: list[float] = []
        self._load = 0.0
        self._began = 0.0

    def loading(self) -> None:
        self._began = time.perf_counter()

    def loaded(self) -> None:
        self._load = self._load or time.perf_counter() - self._began

    def saving(self, step: int) -> None:
        self._began = time.perf_counter()

    def saved(self, step: int, checkpoint: Path) -> None:
        self._saves.append(time.perf_counter() - self._began)

    def results(self) -> dict[str, Any]:
        return {"saves": self._saves, "load": self._load}


class DiskObserver(Observer):
    """The bytes of the folder after each save, and at any time."""

    def __init__(self, folder: Path, has_agent: bool) -> None:
        self._folder, self._has_agent = folder, has_agent
        self._after: list[int] = []

    def stepped(self, step: int, loss: float) -> None:
        if step == 1:
            self._watch = DiskWatch(self._folder).start()

    def saved(self, step: int, checkpoint: Path) -> None:
        if self._has_agent:
            await_agents(self._folder)
        self._after.append(bytes_in(self._folder))

    def results(self) -> dict[str, Any]:
        self._watch.stop()
        return {"after": self._after, "peak": self._watch.most}


def times_of(name: str, framework: Framework, options: dict[str, Any] | None) -> tuple[float, float, float]:
    """The bytes of all checkpoints, and the seconds of a save and of a resume."""
    with tempfile.TemporaryDirectory() as folder:
        task = task_of("times", name, Path(folder), 2)._replace(options=options, observer=Clock())
        found = framework.train(task)
        await_agents(task.folder)
        size = bytes_in(task.folder)
        newest = task.folder / framework.checkpoint.format(step=task.last)
        resumed = framework.train(task._replace(resume=newest, last=task.last + 1))
    return size, median(found["saves"]), resumed["load"]


def disk_of(name: str, framework: Framework, options: dict[str, Any] | None, kept: int, every: int) -> list[float]:
    """Mean and most bytes after a save from the one after which none is missing, at any time, and at the end."""
    with tempfile.TemporaryDirectory(prefix="retention-") as temporary:
        folder = Path(temporary) / "out"
        folder.mkdir()
        observer = DiskObserver(folder, bool(options and "agent" in options))
        task = task_of("disk", name, folder, every)._replace(options=options, kept=kept, observer=observer)
        found = framework.train(task)
        full = found["after"][kept:]
        return [mean(full), max(full), found["peak"], bytes_in(folder)]


def compare_times(names: list[str]) -> None:
    for name in names:
        ways = dict(WAYS)
        if name == "transformers":
            ways["bitsnap, agent, weights=False"] = {"weights": False, **AGENT}
        rows = []
        raw = 0.0
        for way, options in ways.items():
            size, save_s, resume_s = times_of(name, COMPARED[name], options)
            raw = raw or size
            rows.append([way, f"{size / 1e6:.1f}", f"{raw / size:.2f}", f"{save_s:.2f}", f"{resume_s:.2f}"])
        checkpoints = f"{SAVES['times']} checkpoints (MB)"
        print_table([name, checkpoints, "times smaller", "save (s)", "resume (s)"], rows)


def compare_disk(names: list[str], every: int) -> None:
    rows = []
    for name in names:
        for kept in (1, 2, 3):
            one = 0.0  # the mean of `kept` raw checkpoints
            for way, options in WAYS.items():
                if name == "dcp" and options:
                    continue
                found = disk_of(name, COMPARED[name], options, kept, every)
                one = one or found[0]
                rows.append([name, str(kept), way, *(f"{value / one:.3f}" for value in found)])
                print(rows[-1], file=sys.stderr, flush=True)
    print_table(["framework", "kept", "written by", "mean", "most", "peak", "at the end"], rows)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("measure", choices=SAVES)
    parser.add_argument("--frameworks", nargs="+", choices=COMPARED)
    parser.add_argument("--every", type=int, default=5, help="steps between two saves, of `disk`")
    options = parser.parse_args()
    tempfile.tempdir = options.folder
    names = installed(options.frameworks or (WITH_TIMES if options.measure == "times" else COMPARED), COMPARED)
    print_machine()
    if options.measure == "times":
        compare_times(names)
    else:
        compare_disk(names, options.every)


if __name__ == "__main__":
    main()
