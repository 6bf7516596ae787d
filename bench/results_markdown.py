"""docs/benchmarks.md: all results of a run as one page."""

from __future__ import annotations

from bench.benchmark_results import STATE_ROLES, Results
from bench.corpus_runs import DISTANCES, ROLES, RUNS
from bench.results_tables import bounds_table, ratio_table, roles_title, speed_table

PRE_TRAINING = ("beta95", "beta999")
_GROUPS = {"pre-training": PRE_TRAINING, "fine-tuning at 1e-6": ("finetune",), "frozen backbone": ("frozen",)}

_INTRODUCTION = """\
# Benchmarks

`make bench` writes this page; do not edit it. All data stays in memory, and every decoded result is compared with the
original. The columns are:

- *ratio*: original bytes divided by encoded bytes.
- *encode*, *decode*: speed in GB/s of original bytes, as the median over rounds in which every method ran in random
  order.
- *of memcpy*: the speed divided by the speed of `memcpy-nt`, a copy with non-temporal stores, with the same number of
  threads in the same rounds.

Notes on the methods:

- **Bold** methods are bitsnap's. `lossless` is the policy for checkpoints with `--objective ratio`: it chooses a codec
  for each chunk from a sample. In a save, up to 32 similar chunks share one choice; here each has its own, which takes
  up to four times as long as encoding it. The others are single codecs. All of them split data into chunks of 2^18
  elements and compute the two XXH3 hashes per chunk that a file contains. Baselines compute no hashes.
- C code reuses memory that was touched before the measurement. Python packages return new memory, as they do for their
  users.
- `byte_group` and `bitmask` are reconstructions of the lossless methods of LMC and BitSnap, whose code is not public.
- zstd, lz4, bzip2 and xz compress the plain bytes, byte planes, or byte planes of the XOR with the earlier state.
  `huff0` is ZipNN's method in a tight loop over zstd's Huffman coder. `bitx` is BitX's method: planes of the XOR
  through zstd -3. `trl-sparse` stores a 32-bit index and the value of each changed element. zipnn, openzl, blosc2 and
  pcodec are the packages of these names.
- \\* marks methods so slow that they were measured once, on a part of the role in which as large a share changed as in
  the whole role.
- Against an earlier state, each method codes every role against it, even if coding it alone would be smaller; only
  `lossless` chooses.
- Rows for several states give each state the same weight. A whole state is bf16 weights, fp32 masters and both moments,
  14 bytes per parameter.
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
                # To keep the page short, single roles are shown only for the most important pairs.
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
    lines = [*_INTRODUCTION.splitlines(), "", "```", results.command, "```", ""]
    lines += [f"Measured on {results.date}:", ""]
    lines += [f"- {name}: {value}" for name, value in results.machine.items()]
    lines += [f"- {results.sizes}"]
    lines += _section(
        "Corpus",
        [
            "The states are those of a GPT with 10.6 M parameters, trained on the CPU in mixed precision with",
            "AdamW on the sources of Python's standard library (`bench/corpus_runs.py`, `bench/train_corpus.py`).",
            "The runs are:",
            "",
        ],
        2,
    )
    lines += [f"- `{name}`: {about}." for name, about in results.corpus.items()]
    lines += ["", "## Ratio and speed", *_speeds(results)]
    about_order = "Methods are sorted by their ratio on the first state on which they were measured."
    lines += _section("Ratios state by state", [about_order], 2)
    lines += _ratios(results)
    about_bounds = [
        "*bound* is the order-0 entropy of the ULP distance to the earlier element, as a ratio. *given exponent* is",
        "the same entropy given the exponent of the earlier element. For 16-bit elements, it is the entropy of the",
        "distance itself; for fp32, it is that of its sign and bit length, plus the bits below the leading one.",
        "Tables have size zero in these bounds, and a coder with other contexts may exceed them. *best of all",
        "others* considers the methods that were measured on the whole role.",
        "",
    ]
    bounds = bounds_table(results)
    lines += _section("Deltas and their bounds", [*about_bounds, *bounds] if bounds else [], 2)
    missing = [f"- `{name}`: {reason}" for name, reason in results.left_out.items()]
    lines += _section("Left out", missing or ["Nothing."], 2)
    return "\n".join(lines) + "\n"
