"""`bitsnap watch --delete-after-verify` beside trainings of real frameworks, both killed at random moments.

    PYTHONPATH=tests .venv/bin/python -m soak.watch_kills [--frameworks transformers lightning] [--kills 200] [--seed 1]

Each framework that is installed trains a small model and saves again and again. Processes of the watcher and of the
training are killed with SIGKILL and started again; a training goes on from its newest complete checkpoint, which is
raw or extracted from the run. About half of the kills of a training hit a save. After each kill, each complete
checkpoint must be raw or in the run, and nothing else may be in the run. At the end, each checkpoint of the run must be
extracted with the bytes that the training has written, and load, and all losses must be those of a training that was
not killed. Prints a table. After a violation it keeps what was written and ends with status 1.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench.frameworks import installed
from bench.measuring import print_table
from soak.forked import adopt_orphans
from soak.watched_training import WATCHED, WatchedTraining

HEAD = {
    "watcher killed": "watcher killed",
    "training killed": "training killed",
    "in a save": "in a save",
    "left half-written": "left half-written",
    "written": "written",
    "taken": "taken",
    "deleted": "deleted raw",
    "loaded": "loaded",
    "losses": "losses compared",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frameworks", nargs="+", choices=WATCHED, default=[*WATCHED])
    parser.add_argument("--kills", type=int, default=200, help="of all frameworks together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--settle", type=float, default=3.0, help="seconds; the same option of bitsnap watch")
    parser.add_argument("--pace", type=float, default=0.08, help="the least seconds between two steps of a training")
    options = parser.parse_args()
    names = installed(options.frameworks, {name: watched.framework for name, watched in WATCHED.items()})
    if not names:
        parser.error("no framework is installed")
    os.environ["OMP_NUM_THREADS"] = "1"
    adopt_orphans()
    folder = Path(tempfile.mkdtemp(prefix="watch-kills-"))
    violations = measure(names, options, folder)
    if violations:
        sys.exit(f"kept: {folder}")
    shutil.rmtree(folder)


def measure(names: list[str], options: argparse.Namespace, folder: Path) -> list[str]:
    rows, violations = [], []
    kills = shares(options.kills, names)
    started = time.monotonic()
    for name in names:
        print(f"{name} ...", flush=True)
        module = WATCHED[name].framework.module()
        if hasattr(module, "prepare"):
            module.prepare()
        gc.freeze()  # a collection in a fork would copy all of this process
        place = folder / name
        place.mkdir()
        chance = random.Random(f"{options.seed} {name}")
        killed = WatchedTraining(WATCHED[name], place, chance, options.settle, options.pace)
        killed.measure(kills[name])
        print(f"  {time.monotonic() - started:.0f} s: {dict(killed.counts)}", flush=True)
        rows.append([name, *(str(killed.counts[key]) for key in HEAD), str(len(killed.violations))])
        violations += [f"{name}: {text}" for text in killed.violations]
    print_table(["framework", *HEAD.values(), "violations"], rows)
    for text in violations[:40]:
        print(text)
    print(f"seed {options.seed}, {time.monotonic() - started:.0f} s, {len(violations)} violations")
    return violations


def shares(kills: int, names: list[str]) -> dict[str, int]:
    """A framework whose trainings start slowly gets fewer kills than others."""
    whole = sum(WATCHED[name].share for name in names)
    parts = {name: kills * WATCHED[name].share // whole for name in names}
    parts[names[0]] += kills - sum(parts.values())
    return parts


if __name__ == "__main__":
    main()
