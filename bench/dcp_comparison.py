"""Compares bitsnap's checkpoints of torch.distributed.checkpoint (DCP) with DCP's own ones and with torch.save.

    python -m bench.dcp_comparison [--rounds 7] [--first 40] [--folder FOLDER]

Four processes train a GPT of 27 million parameters with FSDP2 and AdamW. Measured are the bytes of three checkpoints in
two kinds of states, then, in rounds with one step each, the times of saving, loading from the page cache, and of
dcp.async_save until it returns. All ways take turns in each round, in alternating order, on the same disk; the first
round does not count. Each checkpoint is loaded and its bits are compared. Needs the package zstandard for DCP's own
compression. Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from torch.distributed.checkpoint._extension import ZStandard

from bench.dcp_ranks import DCP, MOMENTS, NEW_COPY, NEXT, PARTS, RANKS, STORES, WARM_COPY, ZSTD, Rank
from bench.dcp_training import KINDS
from bench.measuring import folder_of, median_ratio, parser_of, print_machine
from bench.ranks import on_ranks
from bench.results_tables import align

SIZE_BARS = {KINDS[0]: (1.1, 1.25, 3.3), KINDS[1]: (1.25, 1.35, 3.7)}
LOAD_BAR, STALL_BAR = 1.2, 1.15
DISK_SPEED = 1e9  # bytes per second, of the disk for which load times are computed

Results = dict[str, Any]


def size_lines(results: Results) -> list[str]:
    lines = []
    for kind, sizes in results["sizes"].items():
        rows = [[name, *(f"{size / 1e6:.1f} MB" for size in each)] for name, each in sizes.items()]
        for name in STORES:
            factors = [theirs / ours for theirs, ours in zip(sizes[ZSTD], sizes[name], strict=True)]
            rows.append([f"{ZSTD} / {name}", *(f"{factor:.2f}" for factor in factors)])
        rows.append(["objective of bitsnap", *(f"{bar:.2f}" for bar in SIZE_BARS[kind])])
        lines += [f"{kind}, {results['raw'][kind] / 1e6:.1f} MB of tensors:", "", *align(["", *MOMENTS], rows), ""]
    return lines


def time_lines(results: Results) -> list[str]:
    saves, loads = (counted(results["times"][name]) for name in ("save", "load"))
    rows = []
    for way, times in saves.items():
        row = [way, f"{median(times):.2f}", beside(times, saves[DCP])]
        if way in loads:
            took, read = median(loads[way]), median(results["read_bytes"][way])
            row += [f"{took:.3f}", beside(loads[way], loads[DCP]), f"{read / 1e6:.0f}"]
            row += [f"{took + read / DISK_SPEED:.2f}"]
        rows.append(row + ["-"] * (7 - len(row)))
    header = ["", "save (s)", "of DCP", "load (s)", "of DCP", "read (MB)", "load at 1 GB/s, computed (s)"]
    return [*align(header, rows), "", f"Objective: load at most {LOAD_BAR} of DCP.", ""]


def counted(times: dict[str, list[float]]) -> dict[str, list[float]]:
    """Without the first round, which has no next steps."""
    return {way: each if way.endswith(NEXT) else each[1:] for way, each in times.items()}


def beside(times: list[float], others: list[float]) -> str:
    """The median of the ratios in the same rounds."""
    return f"{median_ratio(times, others):.2f}"


def stall_lines(results: Results) -> list[str]:
    times = results["times"]
    ways = len(times["beside"])
    copied = times["stall"][WARM_COPY][ways:]
    rows = []
    for way, stalls in times["stall"].items():
        if way in (WARM_COPY, NEW_COPY):
            rows.append([way, f"{median(stalls[ways:]):.3f}", beside(stalls[ways:], copied), "-"])
            continue
        ratio, behind = median(times["beside"][way][1:]), median(times["behind"][way][1:])
        rows.append([way, f"{median(stalls[1:]):.3f}", f"{ratio:.2f}", f"{behind:.2f}"])
    header = ["", "stall (s)", "times the copy", "background (s)"]
    return [*align(header, rows), "", f"Objective: stall at most {STALL_BAR} of the copy."]


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--first", type=int, default=40, help="step of the first checkpoint")
    parser.add_argument("--parts", type=listed, default=[*PARTS], help=f"what to measure: of {','.join(PARTS)}")
    parser.add_argument("--modes", type=listed, default=["thread", "process"], help="of async_save: thread,process")
    parser.add_argument("--ways", default="", help="expression: which ways of async_save, for states that fill memory")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--beta2", type=float, default=0.95, help="of AdamW (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="also write the results of each round to this file")
    options = parser.parse_args()
    if not ZStandard.is_available():
        parser.error("the package zstandard is not installed")
    with folder_of(options) as folder:
        results = on_ranks(RANKS, lambda: Rank(options, folder).measure())
    if options.json is not None:
        options.json.write_text(json.dumps(results))
    print_machine()
    print(f"{results['parameters'] / 1e6:.1f} M parameters, {RANKS} ranks, {options.rounds} rounds; medians.\n")
    lines = size_lines(results)
    if results["times"]["save"]:
        lines += time_lines(results)
    if results["times"]["stall"]:
        lines += stall_lines(results)
    print("\n".join(lines))
    return 0


def listed(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    sys.exit(main())
