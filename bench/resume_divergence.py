"""Whether a training notices that its states were stored with bounded loss.

    .venv/bin/python -m bench.resume_divergence [--seeds 1,2,3] [--jobs 1] [--results FILE.json] [--svg FILE.svg]

A small GPT is trained in mixed precision, once without a stop and then again with one resume and with ten, stored
losslessly, within bounds, as clusters, and with moments of 8 bits in blocks; and with bfloat16 weights moved by one ULP
in place of each resume. Losses are compared in pairs with the uninterrupted run's of the same seed
(bench/loss_curves.py). Resuming from what was stored losslessly has to give the very same losses, or this fails.
With --results, the curves are kept, and read in place of training where the file is there already. About ten minutes
on one core; deterministic on one machine with one torch. Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from bench.bitsnap_command import BitsnapCommand
from bench.curves_svg import curves_svg
from bench.loss_curves import (
    Curve,
    held_out_divergence,
    largest_jump,
    mean_at_the_end,
    rms_by_window,
    train_divergence,
)
from bench.results_tables import align
from bench.resumed_training import (
    ResumedTraining,
    Way,
    config_of,
    every_weight,
    in_blocks_of_eight_bits,
    near_weights,
    one_weight_of_each_tensor,
    through_the_command,
)

STEPS = 330
RESUMES = {"one": (100,), "ten": tuple(range(30, 330, 30))}
LOSSLESS = "lossless"
UNIT = "one weight of each tensor by one ULP"  # what divergences are counted in
NEAR_WEIGHTS = "weights within 2^-9 ULP of the next, by one ULP"
ALL_WEIGHTS = "every weight by one ULP"
# Steps of the update and bits of v, finer than those of the policy.
_FINER = (("0.01", 4), ("0.005", 5))
_LAST_EVALUATIONS = 6
_DRAWN_WINDOW = 10  # steps that are one point


def ways(command: BitsnapCommand, folder: Path) -> dict[str, Way]:
    def bounded(step: str, bits: int) -> Way:
        rules = (f"exp_avg=update_step:{step}", f"exp_avg_sq=mantissa_bits:{bits}")
        return through_the_command(command, folder, ("--policy", "bounded", "--loss", rules[0], "--loss", rules[1]))

    return {
        LOSSLESS: through_the_command(command, folder, ("--policy", "lossless")),
        "bounded": through_the_command(command, folder, ("--policy", "bounded")),
        **{f"bounded, steps of {step}, {bits} bits of v": bounded(step, bits) for step, bits in _FINER},
        "bitsnap (clusters)": through_the_command(command, folder, ("--policy", "bitsnap")),
        "moments of 8 bits in blocks": in_blocks_of_eight_bits,
        UNIT: one_weight_of_each_tensor,
        NEAR_WEIGHTS: near_weights,
        ALL_WEIGHTS: every_weight,
    }


def train_seed(seed: int, program: Path) -> list[Curve]:
    training = ResumedTraining(config_of(seed, STEPS))
    uninterrupted = training.run_through({resumes[0] for resumes in RESUMES.values()})
    curves = [uninterrupted]
    with tempfile.TemporaryDirectory() as folder:
        for name, way in ways(BitsnapCommand(program), Path(folder)).items():
            for resumes in RESUMES.values():
                curve = training.run_resumed(name, way, resumes)
                if name == LOSSLESS and (curve.train, curve.held_out) != (uninterrupted.train, uninterrupted.held_out):
                    raise RuntimeError(f"seed {seed}, resumes {resumes}: other losses than without a stop")
                curves.append(curve)
                print(f"seed {seed}: {name}, resumed {len(resumes)} times", file=sys.stderr, flush=True)
    return curves


def pairs_of(curves: Sequence[Curve], way: str, resumes: tuple[int, ...]) -> list[tuple[Curve, Curve]]:
    """Of all seeds: the run that was resumed in that way, and the one that was not."""
    uninterrupted = {curve.seed: curve for curve in curves if not curve.resumes}
    return [(curve, uninterrupted[curve.seed]) for curve in curves if (curve.way, curve.resumes) == (way, resumes)]


def ways_of(curves: Sequence[Curve]) -> list[str]:
    return list(dict.fromkeys(curve.way for curve in curves if curve.resumes))


def table(curves: Sequence[Curve], resumes: tuple[int, ...]) -> list[str]:
    header = ["resumed from", "train, RMS", "times", "largest", "held-out, RMS", "times", "largest", "at the end"]
    header += ["rise", "usual", "above"]
    unit = pairs_of(curves, UNIT, resumes)
    train_unit, held_out_unit = train_divergence(unit).rms, held_out_divergence(unit).rms
    rows = []
    for way in ways_of(curves):
        pairs = pairs_of(curves, way, resumes)
        train, held_out, jump = train_divergence(pairs), held_out_divergence(pairs), largest_jump(pairs)
        rows.append(
            [
                way,
                f"{train.rms:.5f}",
                f"{train.rms / train_unit:.2f}",
                f"{train.largest:.4f}",
                f"{held_out.rms:.5f}",
                f"{held_out.rms / held_out_unit:.2f}",
                f"{held_out.largest:.4f}",
                f"{mean_at_the_end(pairs, _LAST_EVALUATIONS):+.5f}",
                f"{jump.rise:.3f}",
                f"{jump.usual_rise:.3f}",
                f"{jump.above:.4f}",
            ]
        )
    return align(header, rows)


def drawing(curves: Sequence[Curve]) -> str:
    panels = {
        f"{number} resume{'' if len(resumes) == 1 else 's'}": {
            way: rms_by_window(pairs_of(curves, way, resumes), _DRAWN_WINDOW)
            for way in ways_of(curves)
            if way != LOSSLESS
        }
        for number, resumes in RESUMES.items()
    }
    return curves_svg(panels, "step", "RMS of the difference of the train loss")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", default="1,2,3", help="separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="seeds that are trained at the same time")
    parser.add_argument("--results", type=Path, help="the curves, as JSON")
    parser.add_argument("--svg", type=Path, help="where to draw the divergences")
    parser.add_argument("--bitsnap", type=Path, default=Path(sys.executable).with_name("bitsnap"))
    options = parser.parse_args()
    if options.results and options.results.exists():
        read = json.loads(options.results.read_text(encoding="utf-8"))
        curves = [Curve(**{**one, "resumes": tuple(one["resumes"])}) for one in read]
    else:
        seeds = [int(seed) for seed in options.seeds.split(",")]
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
            waited = [pool.submit(train_seed, seed, options.bitsnap) for seed in seeds]
            curves = [curve for result in waited for curve in result.result()]
        if options.results:
            options.results.write_text(json.dumps([asdict(curve) for curve in curves]), encoding="utf-8")
    seeds = sorted({curve.seed for curve in curves})
    last = [curve.held_out[-1] for curve in curves if not curve.resumes]
    print(f"Seeds {', '.join(map(str, seeds))}; held-out loss at the end, uninterrupted: ", end="")
    print(", ".join(f"{loss:.4f}" for loss in last))
    for number, resumes in RESUMES.items():
        print(f"\nResumed {number} {'time' if len(resumes) == 1 else 'times'}, first behind step {resumes[0]}:\n")
        print("\n".join(table(curves, resumes)))
    if options.svg:
        options.svg.write_text(drawing(curves), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
