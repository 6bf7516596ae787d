"""What moments take with each quantizer, and what it does to them and to the optimizer's update.

    .venv/bin/python -m bench.moment_quantizers [--corpus FOLDER] [--states REGEX] [--jobs 2] [--results FILE.json]

Of whole states of the corpus, exp_avg and exp_avg_sq: bitsnap's bounded quantizers in many settings and its clusters,
in files that the command makes (least bytes; of the moments alone, so that nothing else is waited for), standalone and
against the state of ten steps earlier, stored in the same way; and blocks of 8 bits (bench/blockwise_eight_bit.py),
whose size follows from the number of elements. Then which setting is smallest at no higher an error, and which has the
least error at no more bytes. With --results, what was measured is kept, and read in place of measuring where the file
is there already. Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from bench.bitsnap_command import BitsnapCommand, adam_options
from bench.blockwise_eight_bit import round_trip, stored_bytes
from bench.corpus_runs import DEFAULT_FOLDER, run_named, state_path
from bench.moment_errors import (
    Adam,
    Elements,
    Moments,
    element_errors,
    gradient_between,
    next_update_errors,
    update_errors,
)
from bench.results_tables import align

ROLES = ("exp_avg", "exp_avg_sq")
STATES = tuple((run, phase) for run in ("beta95", "beta999") for phase in ("middle", "end"))
_DISTANCE = 10
_EPSILON = 1e-8

# Bits of mantissa of exp_avg_sq and steps of the update; the first is what the policy `bounded` has.
_STEPS = (
    (3, 0.02),
    (0, 0.2),
    (2, 0.05),
    (3, 0.01),
    (4, 0.01),
    (4, 0.005),
    (5, 0.005),
    (6, 0.002),
    (8, 0.0005),
    (9, 0.0002),
    (11, 0.00005),
    (12, 0.00005),
)
# Bits of mantissa of exp_avg and of exp_avg_sq.
_MANTISSAS = ((3, 3), (4, 4), (4, 5), (6, 6), (8, 5), (8, 8), (9, 9), (11, 10), (12, 12))


@dataclass(frozen=True)
class Quantizer:
    """`kind` is "ours", "clusters" or "blockwise"; `options` are the command's, and blocks have none."""

    name: str
    kind: str
    options: tuple[str, ...] = ()
    nominal_bytes: float = 0.0  # of an element, where the published format is one of so many bits


def _rules(*rules: str) -> tuple[str, ...]:
    return tuple(word for rule in rules for word in ("--loss", rule))


def quantizers() -> list[Quantizer]:
    found = []
    for bits, step in _STEPS:
        rules = _rules(f"exp_avg_sq=mantissa_bits:{bits}", f"exp_avg=update_step:{step:g}")
        found.append(Quantizer(f"step {step:g}, v {bits}", "ours", rules))
    found[0] = Quantizer(f"**bounded**: {found[0].name}", "ours", ("--policy", "bounded"))
    for exp_avg_bits, exp_avg_sq_bits in _MANTISSAS:
        rules = _rules(f"exp_avg=mantissa_bits:{exp_avg_bits}", f"exp_avg_sq=mantissa_bits:{exp_avg_sq_bits}")
        found.append(Quantizer(f"m {exp_avg_bits}, v {exp_avg_sq_bits}", "ours", rules))
    for count, nominal in ((16, 1.5), (256, 2.0)):
        rules = _rules(*(f"{role}=clusters:{count}" for role in ROLES))
        found.append(Quantizer(f"{count} clusters", "clusters", rules, nominal))
    found.append(Quantizer("8 bits in blocks", "blockwise"))
    return found


@dataclass(frozen=True)
class Measured:
    """Bytes are of an element; of a quantizer that knows no base, `based` is what it takes without."""

    state: str
    name: str
    kind: str
    nominal_bytes: float
    alone: dict[str, float]
    based: dict[str, float]
    mre: dict[str, float]
    mse: dict[str, float]
    update_mean: float
    update_rms: float
    update_median: float
    next_mean: float
    next_rms: float

    def least_bytes(self) -> float:
        """Of two elements, one of each moment, standalone: in bitsnap's file or, where that is less, as published."""
        stored = sum(self.alone.values())
        return min(stored, 2 * self.nominal_bytes) if self.nominal_bytes else stored


def _moments(tensors: dict[str, Elements]) -> Moments:
    """All elements of each moment, in the order of the names."""
    return Moments(
        *(
            np.concatenate([tensors[name].reshape(-1) for name in sorted(tensors) if name.startswith(role + ".")])
            for role in ROLES
        )
    )


def _only_moments(path: Path) -> dict[str, Elements]:
    with safe_open(path, framework="numpy") as file:  # which cannot read a weight's bfloat16
        names = [name for name in file.keys() if name.startswith(tuple(f"{role}." for role in ROLES))]  # noqa: SIM118
        return {name: file.get_tensor(name) for name in names}


class StateMeasurement:
    """One state, the one before it, and a folder to store both in."""

    def __init__(self, corpus: Path, run: str, phase: str, command: BitsnapCommand, folder: Path) -> None:
        described = run_named(run)
        first = described.phases[phase]
        self.name = f"{run}, {phase} ({first + _DISTANCE})"
        self._command = command
        self._folder = folder
        # By whether it is the base: its moments, and the hyperparameters of its step.
        self._tensors: dict[str, dict[str, Elements]] = {}
        self._exact: dict[str, Moments] = {}
        self._adam: dict[str, Adam] = {}
        for which, step in (("base", first), ("state", first + _DISTANCE)):
            self._tensors[which] = _only_moments(state_path(corpus, run, step))
            self._exact[which] = _moments(self._tensors[which])
            self._adam[which] = Adam(0.9, described.beta2, _EPSILON, step)
            save_file(self._tensors[which], self._folder / f"{which}.safetensors")
        after = _moments(_only_moments(state_path(corpus, run, first + 1)))
        self._gradient: NDArray[np.float64] = gradient_between(self._exact["base"].exp_avg, after.exp_avg, 0.9)
        self._count = self._exact["state"].exp_avg.size

    def measure(self, quantizer: Quantizer) -> Measured:
        stored = self._in_blocks() if quantizer.kind == "blockwise" else self._by_command(quantizer)
        alone, based, restored = stored
        errors = {
            role: element_errors(getattr(self._exact["state"], role), getattr(restored["state"], role))
            for role in ROLES
        }
        update = update_errors(self._exact["state"], restored["state"], self._adam["state"])
        following = next_update_errors(self._exact["base"], restored["base"], self._gradient, self._adam["base"])
        return Measured(
            self.name,
            quantizer.name,
            quantizer.kind,
            quantizer.nominal_bytes,
            alone,
            based,
            {role: one.mre for role, one in errors.items()},
            {role: one.mse for role, one in errors.items()},
            update.mean,
            update.rms,
            update.median,
            following.mean,
            following.rms,
        )

    def _in_blocks(self) -> tuple[dict[str, float], dict[str, float], dict[str, Moments]]:
        restored = {
            which: _moments({name: round_trip(x, name.startswith("exp_avg.")) for name, x in tensors.items()})
            for which, tensors in self._tensors.items()
        }
        taken = {
            role: sum(stored_bytes(x.size) for name, x in self._tensors["state"].items() if name.startswith(role + "."))
            for role in ROLES
        }
        bytes_each = {role: taken[role] / self._count for role in ROLES}
        return bytes_each, bytes_each, restored

    def _by_command(self, quantizer: Quantizer) -> tuple[dict[str, float], dict[str, float], dict[str, Moments]]:
        restored = {}
        snapshots = {which: self._folder / f"{which}.bsnap" for which in ("base", "state")}
        options = {
            which: ["--objective", "ratio", *quantizer.options, *adam_options(self._adam[which])] for which in snapshots
        }
        for which, snapshot in snapshots.items():
            self._command.compress(self._folder / f"{which}.safetensors", snapshot, options[which])
            back = self._folder / "back.safetensors"
            self._command.decompress(snapshot, back)
            restored[which] = _moments(load_file(back))
        alone = self._command.element_bytes(snapshots["state"])
        state = self._folder / "state.safetensors"
        self._command.compress(state, self._folder / "based.bsnap", options["state"], snapshots["base"])
        based = self._command.element_bytes(self._folder / "based.bsnap")
        return (
            {role: alone[role] for role in ROLES},
            {role: based[role] for role in ROLES},
            restored,
        )


# What may not be larger: what it is called, and its numbers.
MEASURES: dict[str, Callable[[Measured], tuple[float, ...]]] = {
    "update, mean": lambda one: (one.update_mean,),
    "update, RMS": lambda one: (one.update_rms,),
    "update, median": lambda one: (one.update_median,),
    "next update, mean": lambda one: (one.next_mean,),
    "next update, RMS": lambda one: (one.next_rms,),
    "MRE of m and v": lambda one: (one.mre["exp_avg"], one.mre["exp_avg_sq"]),
    "MSE of m and v": lambda one: (one.mse["exp_avg"], one.mse["exp_avg_sq"]),
}


def worst_share(mine: Measured, other: Measured, measure: str) -> float:
    """The errors of the first over those of the other; the larger one where there are two."""
    numbers = MEASURES[measure]
    return max(my / his for my, his in zip(numbers(mine), numbers(other), strict=True))


def smallest_at_no_higher_error(ours: Sequence[Measured], other: Measured, measure: str) -> Measured | None:
    good = [one for one in ours if worst_share(one, other, measure) <= 1]
    return min(good, key=lambda one: one.least_bytes(), default=None)


def least_error_at_no_more_bytes(ours: Sequence[Measured], other: Measured, measure: str) -> Measured | None:
    small = [one for one in ours if one.least_bytes() <= other.least_bytes()]
    return min(small, key=lambda one: worst_share(one, other, measure), default=None)


def _error(number: float) -> str:
    return "0" if number == 0 else f"{number:.1e}" if number < 1e-3 or number >= 100 else f"{number:.3g}"


def measured_table(measured: Sequence[Measured]) -> list[str]:
    header = ["quantizer", "m", "v", "both", "10 earlier"]
    header += ["MRE m", "MRE v", "MSE m", "MSE v", "u mean", "u RMS", "u median", "next mean", "next RMS"]
    rows = []
    for one in measured:
        sizes = [one.alone["exp_avg"], one.alone["exp_avg_sq"], sum(one.alone.values())]
        errors = [*(one.mre[role] for role in ROLES), *(one.mse[role] for role in ROLES)]
        errors += [one.update_mean, one.update_rms, one.update_median, one.next_mean, one.next_rms]
        based = f"{sum(one.based.values()):.3f}" if one.kind != "blockwise" else ""
        rows.append([one.name, *(f"{size:.3f}" for size in sizes), based, *(_error(number) for number in errors)])
    return align(header, rows)


def answers_table(
    measured: Sequence[Measured],
    find: Callable[[Sequence[Measured], Measured, str], Measured | None],
    gain: Callable[[Measured, Measured, str], float],
) -> list[str]:
    """For every quantizer that is not ours and every measure: what is found in each state, and what it gains."""
    states = list(dict.fromkeys(one.state for one in measured))
    rows = []
    for name in dict.fromkeys(one.name for one in measured if one.kind != "ours"):
        for measure in MEASURES:
            row = [name, measure]
            for state in states:
                here = [one for one in measured if one.state == state]
                other = next(one for one in here if one.name == name)
                found = find([one for one in here if one.kind == "ours"], other, measure)
                row.append(
                    "none" if found is None else f"{gain(found, other, measure):.3g} ({found.name.replace('**', '')})"
                )
            rows.append(row)
    return align(["against", "by", *states], rows)


def print_answers(measured: Sequence[Measured]) -> None:
    print("How many times smaller, with the smallest setting whose error is no higher:\n")
    smaller = answers_table(
        measured, smallest_at_no_higher_error, lambda mine, other, _: other.least_bytes() / mine.least_bytes()
    )
    print("\n".join(smaller), end="\n\n")
    print("How many times less error, with the most exact setting that takes no more bytes:\n")
    better = answers_table(
        measured, least_error_at_no_more_bytes, lambda mine, other, measure: 1 / worst_share(mine, other, measure)
    )
    print("\n".join(better))


def measure_state(corpus: Path, run: str, phase: str, program: Path) -> list[Measured]:
    with tempfile.TemporaryDirectory() as folder:
        state = StateMeasurement(corpus, run, phase, BitsnapCommand(program), Path(folder))
        measured = []
        for quantizer in quantizers():
            measured.append(state.measure(quantizer))
            print(f"{state.name}: {quantizer.name}", file=sys.stderr, flush=True)
        return measured


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--states", default="", help="only those whose name, as beta95/end, has a match")
    parser.add_argument("--jobs", type=int, default=1, help="states that are measured at the same time")
    parser.add_argument("--results", type=Path, help="what was measured, as JSON")
    parser.add_argument("--bitsnap", type=Path, default=Path(sys.executable).with_name("bitsnap"))
    options = parser.parse_args()
    if options.results and options.results.exists():
        measured = [Measured(**one) for one in json.loads(options.results.read_text(encoding="utf-8"))]
    else:
        wanted = [(run, phase) for run, phase in STATES if re.search(options.states, f"{run}/{phase}")]
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
            waited = [pool.submit(measure_state, options.corpus, *state, options.bitsnap) for state in wanted]
            measured = [one for result in waited for one in result.result()]
        if options.results:
            options.results.write_text(json.dumps([asdict(one) for one in measured]), encoding="utf-8")
    for state in dict.fromkeys(one.state for one in measured):
        print(f"{state}:\n")
        print("\n".join(measured_table([one for one in measured if one.state == state])), end="\n\n")
    print_answers(measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
