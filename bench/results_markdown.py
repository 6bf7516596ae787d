"""docs/benchmarks.md: all results of a run as one page."""

from __future__ import annotations

from bench.benchmark_results import STATE_ROLES, Results
from bench.corpus_runs import DISTANCES, ROLES, RUNS
from bench.results_tables import bounds_table, ratio_table, roles_title, speed_table

PRE_TRAINING = ("beta95", "beta999")
_GROUPS = {"pre-training": PRE_TRAINING, "fine-tuning at 1e-6": ("finetune",), "frozen backbone": ("frozen",)}

_INTRODUCTION = """\
# Benchmarks

Written by `make bench`; do not edit. Ratios are original over encoded bytes, speeds GB/s of original bytes, medians
over rounds in which every method ran in random order; "of memcpy" is the share of `memcpy-nt`, copying with
non-temporal stores, on as many threads in the same rounds. From memory to memory, every decoding compared with the
original.

- **Bold** is bitsnap's own. `lossless` is the policy that checkpoints are written with, for least bytes
  (`--objective ratio`): it judges each chunk by a sample and picks a codec; the others are codecs by themselves. All
  take chunks of 2^18 elements and include the two XXH3 hashes of each chunk that a file keeps. Peers compute no hashes.
- What is C reuses its memory, touched before anything is timed; packages for Python return new memory, as their users
  get it.
- `byte_group` and `bitmask` are LMC's and BitSnap's lossless methods as reconstructed here; neither published its
  code.
- zstd, lz4, bzip2 and xz take the bytes as they are, byte planes, or byte planes of the XOR with the earlier state.
  `huff0` is ZipNN's method in a tight loop over zstd's Huffman coder, `bitx` BitX's: the XOR's planes through zstd -3.
  `trl-sparse` is 32 bits of index and the value of each changed element. zipnn, openzl, blosc2 and pcodec are those
  packages.
- \\* marks methods so slow that they were measured once, on a part of the role that changed as much as all of it.
- Against an earlier state each method codes every role against it, also where it would be smaller alone; only
  `lossless` chooses.
- Pooled rows weigh each state alike. A whole state is bf16 weights, fp32 masters and both moments, 14 bytes for each
  parameter.
"""


def _section(title: str, lines: list[str], level: int = 3) -> list[str]:
    return ["", "#" * level + " " + title, "", *lines] if lines else []


def _distance_title(distance: int) -> str:
    return f"against {distance} step{'s' if distance > 1 else ''} earlier" if distance else "alone"


def _speeds(results: Results) -> list[str]:
    lines: list[str] = []
    for group, runs in _GROUPS.items():
        for distance in (0, *DISTANCES):
            for roles in (STATE_ROLES, *((role,) for role in ROLES)):
                # A page that shows everything shows nothing: roles by themselves where the phases differ least.
                if len(roles) == 1 and (distance > 1 or (group != "pre-training" and roles[0] != "weight")):
                    continue
                title = f"{group}, {_distance_title(distance)}: {roles_title(roles)}"
                lines += _section(title, speed_table(results, roles, distance, runs))
    return lines


def _ratios(results: Results) -> list[str]:
    lines: list[str] = []
    for run in RUNS:
        for roles in (STATE_ROLES, ("weight",)):
            for alone in (True, False):
                title = f"{run.name}, {'alone' if alone else 'against earlier states'}: {roles_title(roles)}"
                lines += _section(title, ratio_table(results, roles, run.name, alone=alone))
    return lines


def render(results: Results) -> str:
    machine = "; ".join(f"{name} {value}" for name, value in results.machine.items())
    lines = [*_INTRODUCTION.splitlines(), "", "```", results.command, "```", ""]
    lines += [f"{results.date}. {machine}. {results.sizes}"]
    lines += _section(
        "Corpus",
        [
            "A GPT of 10.6 M parameters, trained on the CPU in mixed precision with AdamW on Python's",
            "own sources (`bench/corpus_runs.py`, `bench/train_corpus.py`).",
            "",
        ],
        2,
    )
    lines += [f"- `{name}`: {about}." for name, about in results.corpus.items()]
    lines += ["", "## Ratio and speed", *_speeds(results)]
    lines += _section("Ratios state by state", ["Sorted by the first state that a method was measured on."], 2)
    lines += _ratios(results)
    about_bounds = [
        "The entropies of order 0 of the ordinal difference, as ratios: alone, and given the exponent of the earlier",
        "element. Of 16-bit elements that of the difference itself; of fp32 that of its sign and bit length, the bits",
        "below the leading one raw. Tables cost nothing in them, and a coder with other contexts may pass them. The",
        "best of others is of the methods that were measured on all of the role.",
        "",
    ]
    bounds = bounds_table(results)
    lines += _section("Deltas and their bounds", [*about_bounds, *bounds] if bounds else [], 2)
    missing = [f"- `{name}`: {reason}" for name, reason in results.left_out.items()]
    lines += _section("Left out", missing or ["Nothing."], 2)
    return "\n".join(lines) + "\n"
