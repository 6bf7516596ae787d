"""Checkpoints of real frameworks in a store: byte for byte the same, resumable, and their sizes.

    .venv/bin/python -m bench.framework_folders [--frameworks transformers,dcp] [--keep FOLDER]

Each framework that is installed trains a small model and writes checkpoints in its own way. They are added to a store
and extracted. Extracted folders must equal the original ones, and a training that goes on from an extracted folder must
have the losses of the one that was not interrupted. Prints Markdown. Sizes are those of all checkpoints of a training.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import stat
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import bitsnap
from bench.frameworks.small_training import LAST_STEP, SAVE_EVERY
from bench.results_tables import align

STEPS = range(SAVE_EVERY, LAST_STEP + 1, SAVE_EVERY)
RESUMED_STEP = LAST_STEP // 2
TIMEOUT_S = 900


class Framework(NamedTuple):
    program: str  # a module of bench.frameworks
    packages: tuple[str, ...]
    checkpoint: str  # the path of a checkpoint, with {step}
    arguments: tuple[str, ...] = ()


FRAMEWORKS = {
    "torch": Framework("plain_torch", ("torch",), "step_{step}.pt"),
    "transformers": Framework("transformers_trainer", ("transformers", "accelerate"), "checkpoint-{step}"),
    "accelerate": Framework("accelerate_states", ("accelerate",), "step_{step}"),
    "lightning": Framework("lightning_trainer", ("lightning",), "step={step}.ckpt"),
    "dcp": Framework("fsdp_dcp", ("torch",), "step-{step}"),
    "megatron": Framework("megatron_dist", ("megatron.core",), "iter_{step:07d}"),
    **{
        f"deepspeed{stage}": Framework("deepspeed_zero", ("deepspeed",), "global_step{step}", ("--stage", str(stage)))
        for stage in (1, 2, 3)
    },
}


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS), help=f"of {', '.join(FRAMEWORKS)}")
    parser.add_argument("--keep", type=Path, help="keep what was written in this folder, which must not exist")
    options = parser.parse_args()
    names = options.frameworks.split(",")
    if unknown := set(names) - set(FRAMEWORKS):
        parser.error(f"unknown frameworks: {', '.join(sorted(unknown))}")
    if options.keep is not None:
        options.keep.mkdir()
        outcomes = measure_all(names, options.keep)
    else:
        with tempfile.TemporaryDirectory() as folder:
            outcomes = measure_all(names, Path(folder))
    report(outcomes)
    sys.exit(any(outcome.problems for outcome in outcomes))


def measure_all(names: list[str], folder: Path) -> list[Outcome]:
    outcomes = []
    for name in names:
        if not all(is_installed(package) for package in FRAMEWORKS[name].packages):
            print(f"{name}: not installed", file=sys.stderr)
            continue
        print(f"{name} ...", file=sys.stderr)
        (folder / name).mkdir()
        outcomes.append(measure(name, FRAMEWORKS[name], folder / name))
    return outcomes


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ImportError:
        return False


def measure(name: str, framework: Framework, place: Path) -> Outcome:
    outcome = Outcome(name)
    original = place / "original"
    original.mkdir()
    losses, log = train(framework, original, None, place / "losses.json")
    if losses is None:
        outcome.problems.append(f"the training failed: {log}")
        return outcome
    with bitsnap.Store(place / "run") as store:
        for step in STEPS:
            checkpoint = original / framework.checkpoint.format(step=step)
            add(store, step, checkpoint, outcome)
            extracted = place / "extracted" / checkpoint.name
            extracted.parent.mkdir(exist_ok=True)
            store.extract_folder(step, extracted)
            if listing(extracted) != listing(checkpoint):
                outcome.problems.append(f"step {step} is not the same")
            outcome.tar_zstd += compressed(checkpoint, "-3")
            outcome.tar_zstd_long += compressed(checkpoint, "-19", "--long=27")
    source = place / "extracted" / framework.checkpoint.format(step=RESUMED_STEP)
    resumed = place / "resumed"
    resumed.mkdir()
    again, log = train(framework, resumed, source, place / "losses_again.json")
    expected = {step: loss for step, loss in losses.items() if int(step) > RESUMED_STEP}
    if again is None:
        outcome.problems.append(f"resuming failed: {log}")
    elif again != expected:
        worst = max((abs(again.get(step, 0.0) - loss) for step, loss in expected.items()), default=0.0)
        outcome.problems.append(f"losses after resuming differ by up to {worst:.2g}")
    return outcome


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


def train(framework: Framework, folder: Path, resume: Path | None, losses: Path) -> tuple[dict[str, float] | None, str]:
    """The losses by step; None, with the end of the output, if the program failed."""
    command = [sys.executable, "-m", f"bench.frameworks.{framework.program}", *framework.arguments]
    command += ["--folder", str(folder), "--losses", str(losses)]
    if resume is not None:
        command += ["--resume", str(resume)]
    log = losses.with_suffix(".log")
    with log.open("w") as output:
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, timeout=TIMEOUT_S, check=False
        )
    if done.returncode != 0 or not losses.exists():
        lines = log.read_text(errors="replace").strip().splitlines()
        return None, lines[-1][:200] if lines else f"exit code {done.returncode}"
    return json.loads(losses.read_text()), ""


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
    print("\n".join(align(head, [outcome.row() for outcome in outcomes])))
    for outcome in outcomes:
        for note in sorted(outcome.notes):
            print(f"\n{outcome.name}: {note}")
        if outcome.plain:
            listed = ", ".join(f"{path} ({size} bytes)" for path, size in sorted(outcome.plain.items()))
            print(f"\n{outcome.name}, files of no format with tensors: {listed}")


if __name__ == "__main__":
    main()
