"""Sizes of whole states as the command stores them, compared with the best baseline for each role.

    .venv/bin/python -m bench.whole_states [--corpus FOLDER] [--pairs REGEX] [--results build/benchmarks.json]

Every state of the corpus is stored alone and against the state 1, 10 or 50 steps earlier, with the objectives `ratio`
and `balanced`. --results names the JSON that `python -m bench` wrote; of its baselines, the one that codes a role
smallest counts for that role, alone or against the same state. Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.benchmark_results import Measurement, read_json
from bench.corpus_runs import DEFAULT_FOLDER, Pair, all_pairs, state_path
from bench.results_tables import align

# Bytes per parameter.
_ROLE_BYTES = {"weight": 2, "master": 4, "exp_avg": 4, "exp_avg_sq": 4}


@dataclass(frozen=True)
class StoredState:
    """Original over stored bytes, of a file and of the roles in it."""

    whole: float
    roles: dict[str, float]


def best_baselines(measurements: Iterable[Measurement]) -> dict[tuple[str, int, int], float]:
    """By run, step and distance: the ratio of a state whose roles are each coded by the best baseline."""
    best: dict[tuple[str, int, int, str], float] = {}
    alone: dict[tuple[str, str, str], float] = {}
    phases = {}
    for one in measurements:
        if one.kind != "baseline" or not one.encoded_bytes:
            continue
        ratio = one.raw_bytes / one.encoded_bytes
        key = (one.run, one.step, one.distance, one.role)
        best[key] = max(best.get(key, 1.0), ratio)
        phases[key[:3]] = one.phase
        if one.distance == 0:
            in_phase = (one.run, one.phase, one.role)
            alone[in_phase] = max(alone.get(in_phase, 1.0), ratio)
    together = {}
    for state, phase in phases.items():
        # If a role is smaller alone than its difference, its size alone in the same phase counts.
        ratios = {role: max(best.get((*state, role), 0), alone.get((state[0], phase, role), 0)) for role in _ROLE_BYTES}
        if all(ratios.values()):
            stored = sum(size / ratios[role] for role, size in _ROLE_BYTES.items())
            together[state] = sum(_ROLE_BYTES.values()) / stored
    return together


class Storing:
    """Runs the command in a folder."""

    def __init__(self, bitsnap: Path, folder: Path) -> None:
        self._bitsnap = bitsnap
        self._folder = folder

    def store(self, state: Path, base: Path | None, objective: str) -> StoredState:
        out = self._folder / "state.bsnap"
        options: list[str | Path] = ["--objective", objective, "--force"]
        if base is not None:
            self._run("compress", base, "-o", self._folder / "base.bsnap", *options)
            options += ["--base", self._folder / "base.bsnap"]
        self._run("compress", state, "-o", out, *options)
        found = json.loads(self._run("inspect", out, "--json"))
        roles = {role: part["ratio"] for role, part in found["roles"].items() if role in _ROLE_BYTES}
        return StoredState(found["total"]["ratio"], roles)

    def _run(self, *arguments: str | Path) -> str:
        return subprocess.run([self._bitsnap, *arguments], check=True, capture_output=True, text=True).stdout


def _number(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 100 else f"{ratio:.0f}"


def _row(storing: Storing, corpus: Path, pair: Pair, distance: int, baselines: float | None) -> list[str]:
    base = state_path(corpus, pair.run, pair.base_step) if distance else None
    state = state_path(corpus, pair.run, pair.step)
    least, usual = (storing.store(state, base, objective) for objective in ("ratio", "balanced"))
    return [
        f"{pair.run}, {pair.phase} ({pair.step})",
        f"{distance} earlier" if distance else "alone",
        *(_number(least.roles[role]) if role in least.roles else "" for role in ("master", "exp_avg", "exp_avg_sq")),
        _number(least.whole),
        _number(usual.whole),
        "" if baselines is None else f"{baselines:.3f} ({least.whole / baselines:.2f})",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--pairs", default="", help="only those whose name has a match")
    parser.add_argument("--results", type=Path, default=Path("build/benchmarks.json"))
    parser.add_argument("--bitsnap", type=Path, default=Path(sys.executable).with_name("bitsnap"))
    options = parser.parse_args()
    baselines = best_baselines(read_json(options.results).measurements) if options.results.exists() else {}
    header = ["state", "base", "master", "exp_avg", "exp_avg_sq", "whole", "by `balanced`", "best baselines (times)"]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        storing = Storing(options.bitsnap, Path(folder))
        for pair in all_pairs():
            if not re.search(options.pairs, pair.name):
                continue
            # Each phase is stored alone once.
            distances = (0, pair.distance) if pair.distance == 1 else (pair.distance,)
            rows += [
                _row(storing, options.corpus, pair, distance, baselines.get((pair.run, pair.step, distance)))
                for distance in distances
            ]
    print("\n".join(align(header, rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
