"""Checkpoints of real frameworks in a store: byte for byte the same, resumable, and their sizes.

    .venv/bin/python -m bench.framework_folders [--frameworks transformers dcp] [--folder FOLDER]

Each framework that is installed trains a small model and writes checkpoints in its own way. They are added to a store
and extracted. Extracted folders must equal the original ones, and a training that goes on from an extracted folder must
have the losses of the one that was not interrupted. Prints Markdown. Sizes are those of all checkpoints of a training.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import bitsnap
from bench.frameworks import FRAMEWORKS, Framework, installed
from bench.frameworks.task import LAST_STEP, SAVE_EVERY, Losses, Task
from bench.measuring import folder_of, parser_of, print_table

STEPS = range(SAVE_EVERY, LAST_STEP + 1, SAVE_EVERY)
RESUMED_STEP = LAST_STEP // 2


@dataclass
class Outcome:
    name: str
    raw: int = 0
    tar_zstd: int = 0
    tar_zstd_long: int = 0
    stored: int = 0
    keyframe: int = 0
    problems: list[str] = field(default_factory=list)
    notes: set[str] = field(default_factory=set)
    plain: dict[str, int] = field(default_factory=dict)  # larger files without a format, with their bytes

    def row(self) -> list[str]:
        def size(number: int) -> str:
            return f"{number / 1e6:.2f} MB"

        ratio = f"{self.raw / self.stored:.2f}" if self.stored else ""
        found = "; ".join(self.problems) or "same bytes, same losses"
        sizes = (self.raw, self.tar_zstd, self.tar_zstd_long, self.stored)
        return [self.name, *map(size, sizes), ratio, size(self.keyframe), found]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--frameworks", nargs="+", choices=FRAMEWORKS, default=[*FRAMEWORKS])
    options = parser.parse_args()
    outcomes = []
    with folder_of(options) as folder:
        for name in installed(options.frameworks, FRAMEWORKS):
            print(f"{name} ...", file=sys.stderr)
            (folder / name).mkdir()
            outcomes.append(measure(name, FRAMEWORKS[name], folder / name))
    report(outcomes)
    sys.exit(any(outcome.problems for outcome in outcomes))


def measure(name: str, framework: Framework, place: Path) -> Outcome:
    outcome = Outcome(name)
    original, resumed, extracted = (place / part for part in ("original", "resumed", "extracted"))
    for folder in (original, resumed, extracted):
        folder.mkdir()
    losses = train(framework, Task(original), outcome)
    if losses is None:
        return outcome
    with bitsnap.Store(place / "run") as store:
        for step in STEPS:
            checkpoint = original / framework.checkpoint.format(step=step)
            add(store, step, checkpoint, outcome)
            store.extract_folder(step, extracted / checkpoint.name)
            if listing(extracted / checkpoint.name) != listing(checkpoint):
                outcome.problems.append(f"step {step} is not the same")
            outcome.tar_zstd += compressed(checkpoint, "-3")
            outcome.tar_zstd_long += compressed(checkpoint, "-19", "--long=27")
    again = train(framework, Task(resumed, extracted / framework.checkpoint.format(step=RESUMED_STEP)), outcome)
    expected = {step: loss for step, loss in losses.items() if int(step) > RESUMED_STEP}
    if again is not None and again != expected:
        worst = max((abs(again.get(step, 0.0) - loss) for step, loss in expected.items()), default=0.0)
        outcome.problems.append(f"losses after resuming differ by up to {worst:.2g}")
    return outcome


def train(framework: Framework, task: Task, outcome: Outcome) -> dict[str, float] | None:
    """The losses by step; None if it fails, which is a problem."""
    try:
        losses: dict[str, float] = framework.train(task._replace(observer=Losses()))
    except Exception as error:  # whatever a framework raises
        outcome.problems.append(f"training in {task.folder.name} failed: {str(error).splitlines()[-1][:200]}")
        return None
    return losses


def add(store: bitsnap.Store, step: int, checkpoint: Path, outcome: Outcome) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        saved = store.add_folder(step, checkpoint)
    outcome.notes.update(str(warning.message).replace(f"{checkpoint}", "") for warning in caught)
    outcome.stored += saved.stored_bytes
    outcome.keyframe = outcome.keyframe or saved.stored_bytes
    for entry in store.open_folder(step).entries:
        if entry.kind == "file":
            outcome.raw += entry.size
            if entry.container is None and entry.size > 0:
                outcome.plain[entry.path.replace(str(step), "STEP")] = entry.size


def listing(path: Path) -> list[tuple[str, int, int, str, bytes]]:
    """Names, permissions, times, links and bytes."""
    found = []
    for each in [path, *sorted(path.rglob("*"))]:
        status = each.lstat()
        kind = stat.S_IFMT(status.st_mode)
        target = os.readlink(each) if kind == stat.S_IFLNK else ""  # noqa: PTH115  as the file says it
        content = each.read_bytes() if kind == stat.S_IFREG else b""
        found.append((str(each.relative_to(path)), status.st_mode, status.st_mtime_ns, target, content))
    return found


def compressed(path: Path, *options: str) -> int:
    """The size of a tar archive that zstd has compressed."""
    tar = subprocess.Popen(["tar", "-C", str(path.parent), "-cf", "-", path.name], stdout=subprocess.PIPE)
    zstd = subprocess.run(["zstd", "-q", "-c", *options], stdin=tar.stdout, capture_output=True, check=True)
    assert tar.wait() == 0
    return len(zstd.stdout)


def report(outcomes: list[Outcome]) -> None:
    head = ["framework", "raw", "tar, zstd -3", "tar, zstd -19 --long=27", "bitsnap", "ratio", "first step", "outcome"]
    print_table(head, [outcome.row() for outcome in outcomes])
    for outcome in outcomes:
        for note in sorted(outcome.notes):
            print(f"{outcome.name}: {note}\n")
        if outcome.plain:
            listed = ", ".join(f"{path} ({size} bytes)" for path, size in sorted(outcome.plain.items()))
            print(f"{outcome.name}, files of no format with tensors: {listed}\n")


if __name__ == "__main__":
    main()
