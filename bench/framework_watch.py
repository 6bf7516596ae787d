"""`bitsnap watch --delete-after-verify` beside trainings of real frameworks, both killed at random moments.

    python -m bench.framework_watch [--frameworks transformers,lightning] [--kills 200] [--seed 1] [--bitsnap COMMAND]

Each framework that is installed trains a small model and saves again and again. Processes of the watcher and of the
training are killed with SIGKILL and started again; a training goes on from its newest complete checkpoint, which is
raw or extracted from the run. About half of the kills of a training hit a save. After each kill, each complete
checkpoint must be raw or in the run, and nothing else may be in the run. At the end, each checkpoint of the run must be
extracted with the bytes that the training has written, and load, and all losses must be those of a training that was
not killed. Prints a table. After a violation it keeps what was written and ends with status 1.

The processes of a training are forked from one that has imported the framework, so that a killed training goes on
soon. The command bitsnap need not be in the environment of the frameworks.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench.killed_training import FRAMEWORKS, KilledTraining
from bench.results_tables import align

PROJECT = Path(__file__).resolve().parents[1]
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
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS), help=f"of {', '.join(FRAMEWORKS)}")
    parser.add_argument("--kills", type=int, default=200, help="of all frameworks together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--settle", type=float, default=3.0, help="seconds; the same option of bitsnap watch")
    parser.add_argument("--pace", type=float, default=0.08, help="the least seconds between two steps of a training")
    parser.add_argument("--bitsnap", default=_default_command(), help="the command; default: %(default)s")
    parser.add_argument("--keep", type=Path, help="keep what was written in this folder, which must not exist")
    options = parser.parse_args()
    names = options.frameworks.split(",")
    if unknown := set(names) - set(FRAMEWORKS):
        parser.error(f"unknown frameworks: {', '.join(sorted(unknown))}")
    installed = [name for name in names if all(map(_is_installed, FRAMEWORKS[name].packages))]
    for name in set(names) - set(installed):
        print(f"{name}: not installed", file=sys.stderr)
    if not installed:
        parser.error("no framework is installed")
    if options.keep is not None:
        options.keep.mkdir()
        sys.exit(measure(installed, options, options.keep))
    folder = Path(tempfile.mkdtemp())
    status = measure(installed, options, folder)
    if status == 0:
        shutil.rmtree(folder)
    else:
        print(f"kept: {folder}")
    sys.exit(status)


def measure(names: list[str], options: argparse.Namespace, folder: Path) -> int:
    rows, violations = [], []
    kills = shares(options.kills, names)
    started = time.monotonic()
    for name in names:
        print(f"{name} ...", flush=True)
        place = folder / name
        place.mkdir()
        chance = random.Random(f"{options.seed} {name}")
        killed = KilledTraining(FRAMEWORKS[name], place, options.bitsnap, chance, options.settle, options.pace)
        killed.measure(kills[name])
        print(f"  {time.monotonic() - started:.0f} s: {dict(killed.counts)}", flush=True)
        rows.append([name, *(str(killed.counts[key]) for key in HEAD), str(len(killed.violations))])
        violations += [f"{name}: {text}" for text in killed.violations]
    print("\n".join(align(["framework", *HEAD.values(), "violations"], rows)))
    for text in violations[:40]:
        print(text)
    print(f"seed {options.seed}, {time.monotonic() - started:.0f} s, {len(violations)} violations")
    return int(bool(violations))


def shares(kills: int, names: list[str]) -> dict[str, int]:
    """A framework whose trainings start slowly gets fewer kills than others."""
    whole = sum(FRAMEWORKS[name].share for name in names)
    parts = {name: kills * FRAMEWORKS[name].share // whole for name in names}
    parts[names[0]] += kills - sum(parts.values())
    return parts


def _default_command() -> str:
    built = PROJECT / ".venv" / "bin" / "bitsnap"
    return str(built) if built.exists() else shutil.which("bitsnap") or "bitsnap"


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ImportError:
        return False


if __name__ == "__main__":
    main()
