"""Compares bitsnap with baselines on states of real trainings: `python -m bench`, or `make bench`.

Trains the corpus first if it is missing, which takes about 15 minutes, once. Prints tables, and writes all results as
JSON and Markdown: a full run as docs/benchmarks.md, a partial one next to the JSON file.
"""

from __future__ import annotations

import argparse
import datetime
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.baselines import find_methods
from bench.baselines.method import Method
from bench.benchmark_results import STATE_ROLES, BoundMeasurement, Measurement, Results, read_json
from bench.corpus_runs import DEFAULT_FOLDER, DISTANCES, PROJECT, RUNS, Pair, all_pairs
from bench.delta_bounds import delta_bounds
from bench.interleaved_runs import measure
from bench.machine_description import describe, usable_cpus
from bench.native_library import DEFAULT_LIBRARY, NativeLibrary
from bench.results_markdown import PRE_TRAINING, render
from bench.results_tables import speed_table
from bench.state_samples import RoleSample, Sizes, role_samples

QUICK_PAIRS = r"beta95/end/550-551|finetune/.*/50-51"
_FULL = Sizes(least_bytes=32 << 20, most_bytes=64 << 20, slow_bytes=4 << 20)
_QUICK = Sizes(least_bytes=8 << 20, most_bytes=8 << 20, slow_bytes=1 << 20)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two pairs (unless --pairs selects others) and small samples: two minutes",
    )
    parser.add_argument("--only", metavar="REGEX", default="", help="only methods with matching names, and memcpy")
    parser.add_argument("--pairs", metavar="REGEX", default="", help="only matching pairs, such as beta95/end/550-551")
    parser.add_argument("--roles", metavar="REGEX", default="", help="only matching roles: weight, master, ...")
    parser.add_argument(
        "--rounds",
        type=int,
        default=0,
        help="each runs every method; default: 3, or 2 with --quick",
    )
    parser.add_argument("--threads", metavar="N", type=int, nargs="+", help="numbers of threads; default: 1 and all")
    parser.add_argument("--corpus", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--json", type=Path, default=PROJECT / "build" / "benchmarks.json")
    parser.add_argument(
        "--markdown", type=Path, help="default: docs/benchmarks.md; partial runs: next to the JSON file"
    )
    parser.add_argument("--render", action="store_true", help="measure nothing; render the JSON file")
    parser.add_argument("--list", action="store_true", help="print methods and pairs, and exit")
    options = parser.parse_args(arguments)
    options.is_part = bool(options.quick or options.only or options.pairs or options.roles)
    options.rounds = options.rounds or (2 if options.quick else 3)
    options.threads = sorted(set(options.threads or [1, usable_cpus()]))
    if options.rounds < 1 or options.threads[0] < 1:
        parser.error("--rounds and --threads: at least 1")
    if options.markdown is None:
        options.markdown = options.json.with_suffix(".md") if options.is_part else PROJECT / "docs" / "benchmarks.md"
    return options


def choose_methods(methods: Sequence[Method], only: str) -> list[Method]:
    return [method for method in methods if method.kind == "ceiling" or re.search(only, method.name)]


def choose_pairs(pattern: str, quick: bool) -> list[Pair]:
    return [pair for pair in all_pairs() if re.search(pattern or (QUICK_PAIRS if quick else ""), pair.name)]


class Benchmark:
    """One run over all scenes; a scene is a state alone or a pair of states."""

    def __init__(self, options: argparse.Namespace, methods: list[Method], results: Results) -> None:
        self._options = options
        self._methods = methods
        self._sizes = _QUICK if options.quick else _FULL
        self._results = results
        self._started = time.monotonic()
        results.sizes = (
            f"Rounds: {options.rounds}; roles below {self._sizes.least_bytes >> 20} MiB repeated up to it, "
            f"slow methods on {self._sizes.slow_bytes >> 20} MiB."
        )

    def run(self, pairs: Sequence[Pair]) -> None:
        # Each phase's state is coded alone once, whatever its base is.
        scenes = [(pair, True) for pair in pairs if pair.distance == DISTANCES[0]] + [(pair, False) for pair in pairs]
        for number, (pair, alone) in enumerate(scenes):
            title = f"{pair.run} {pair.phase} {pair.step}" + (" alone" if alone else f" against {pair.base_step}")
            print(f"[{number + 1}/{len(scenes)}] {time.monotonic() - self._started:5.0f} s  {title}", flush=True)
            for sample in role_samples(self._options.corpus, pair, self._sizes, alone=alone):
                if re.search(self._options.roles, sample.whole.role):
                    self._measure(sample, alone)
            self._results.write_json(self._options.json)

    def _measure(self, sample: RoleSample, alone: bool) -> None:
        pair = sample.pair
        place: dict[str, Any] = {
            "run": pair.run,
            "phase": pair.phase,
            "step": pair.step,
            "distance": 0 if alone else pair.distance,
            "role": sample.whole.role,
        }
        if not alone:
            self._results.bounds.append(BoundMeasurement(**place, **vars(delta_bounds(sample.whole))))
        methods = [method for method in self._methods if method.kind == "ceiling" or method.uses_base != alone]
        failures: dict[str, str] = {}
        timings = measure(
            methods,
            sample.fast,
            sample.slow,
            threads=self._options.threads,
            rounds=self._options.rounds,
            seed=pair.step,
            failures=failures,
        )
        for name, reason in failures.items():
            self._results.left_out[f"{name}, {pair.name}, {sample.whole.role}"] = reason
        kinds = {method.name: method for method in methods}
        for (name, threads), timing in timings.items():
            self._results.measurements.append(
                Measurement(
                    **place,
                    method=name,
                    kind=kinds[name].kind,
                    is_slow=kinds[name].is_slow,
                    threads=threads,
                    role_bytes=sample.role_bytes,
                    **vars(timing),
                )
            )


def print_summary(results: Results) -> None:
    for runs, title in ((PRE_TRAINING, "pre-training"), (("finetune",), "fine-tuning at 1e-6")):
        for distance in (0, 1):
            for roles, what in ((STATE_ROLES, "whole state"), (("weight",), "bf16 weights")):
                table = speed_table(results, roles, distance, runs)
                if table:
                    print(f"\n{title}, {f'{distance} step earlier' if distance else 'alone'}: {what}; GB/s")
                    print("\n".join(table))


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.render:
        results = read_json(options.json)
    else:
        methods, left_out = find_methods()
        methods, pairs = choose_methods(methods, options.only), choose_pairs(options.pairs, options.quick)
        if options.list:
            print("\n".join([method.name for method in methods] + [pair.name for pair in pairs]))
            return 0
        if not pairs:
            print(f"--pairs {options.pairs}: matches no pair; --list prints all", file=sys.stderr)
            return 2
        from bench.train_corpus import make_corpus  # needs torch, which rendering does not

        make_corpus(options.corpus, sorted({pair.run for pair in pairs}))
        results = Results(
            machine=describe(NativeLibrary().cpu_level() if DEFAULT_LIBRARY.exists() else "not built"),
            date=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
            command=shlex.join(["python", "-m", "bench", *arguments]),
            corpus={run.name: run.about for run in RUNS},
            left_out=left_out,
        )
        Benchmark(options, methods, results).run(pairs)
    print_summary(results)
    options.markdown.write_text(render(results), encoding="utf-8")
    for name, reason in results.left_out.items():
        print(f"left out: {name}: {reason}")
    print(f"wrote {options.markdown}" + ("" if options.render else f" and {options.json}"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
