"""`make soak`: kills trainers and agents hundreds of times, looks for leftovers, and measures thousands of saves.

    PYTHONPATH=tests .venv/bin/python -m soak [--kills 600] [--saves 3000] [--seed N] [--folder FOLDER] [--json FILE]

The kills are divided among jobs with 2, 4 and 8 ranks. Then each job ends in order, or its agent lingers and ends, and
nothing may be left. If a guarantee is violated, the exit status is 1, the message names the guarantee, and the folder
with the journals is kept. The same seed chooses the same kills; their timing depends on the machine. Prints Markdown
for docs/measurements.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import secrets
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.machine_description import describe, in_one_line
from bench.results_tables import align
from soak import memory_run
from soak.killed_job import KilledJob, Tally, ViolatedGuaranteeError
from soak.soak_trainer import without_torch

RANKS = (2, 4, 8)
LINGER = 1.5
LINGERING_KILLS = 4


def kill_and_end(folder: Path, ranks: int, seed: int, kills: int) -> Tally:
    """Kills a job `kills` times, lets it end in order, and stops its agent."""
    job = KilledJob(folder, ranks, seed, say=_say)
    try:
        job.run(kills)
        job.finish()
        job.check_store()
        job.stop_agent()
        job.check_nothing_left(is_settled=True)
        return job.tally
    finally:
        job.abandon()


def kill_and_linger(folder: Path, ranks: int, seed: int, kills: int = LINGERING_KILLS) -> Tally:
    """Kills all trainers at the end and waits until the agent ends by itself; then the same after an end in order."""
    job = KilledJob(folder, ranks, seed, linger=LINGER, say=_say)
    try:
        job.run(kills)
        job.kill_all_trainers()
        job.await_lingering()
        job.check_store()
        job.check_nothing_left(is_settled=False)
        job.start_again()
        job.finish()
        job.await_lingering()
        job.check_store()
        job.check_nothing_left(is_settled=True)
        return job.tally
    finally:
        job.abandon()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def kill_table(tallies: list[Tally]) -> list[str]:
    rows = [
        {
            "ranks": f"{tally.ranks}",
            "kills": f"{tally.kills}",
            "trainers": f"{tally.killed_trainers}",
            "agents": f"{tally.killed_agents}",
            "from memory": f"{tally.from_memory}",
            "from the store": f"{tally.from_store}",
            "saves": f"{tally.events.get('begin', 0)}",
            "persisted": f"{tally.events.get('persisted', 0)}",
            "lost, reported": f"{tally.excused}",
            "checkpoints read": f"{tally.verified}",
            "longest recovery (s)": f"{tally.longest_recovery:.2f}",
            "descriptors": f"{tally.descriptors}",
            "s": f"{tally.seconds:.0f}",
        }
        for tally in tallies
    ]
    return align(list(rows[0]), [list(row.values()) for row in rows])


def memory_table(result: memory_run.MemoryResult) -> list[str]:
    rows = []
    for name, held, bound in (
        ("trainer", result.trainer, result.trainer.own + result.arena_bytes + memory_run.TRAINER_MARGIN),
        ("agent", result.agent, result.budget + memory_run.AGENT_MARGIN),
    ):
        amounts = [held.own, held.anonymous, held.shared, held.peak, held.proportional, bound]
        rows.append([name, *(f"{amount / 1e6:.1f}" for amount in amounts), f"{100 * (held.growth - 1):+.1f} %"])
    head = ["MB", "before", "anonymous", "shared", "both", "proportional", "bound", "second half"]
    return align(head, rows)


def memory_lines(result: memory_run.MemoryResult) -> list[str]:
    return [
        *memory_table(result),
        "",
        f"{result.saves} saves of {result.state_bytes / 1e6:.1f} MB in {result.seconds:.0f} s; "
        f"arena {result.arena_bytes / 1e6:.1f} MB, snapshots at most {result.kept_bytes / 1e6:.1f} MB, "
        f"budget {result.budget / 1e6:.1f} MB.",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=600, help="total number of kills")
    parser.add_argument("--saves", type=int, default=3000, help="saves of the memory measurement; 0: skip it")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    parser.add_argument("--ranks", type=int, nargs="*", default=list(RANKS), help="ranks of each job")
    parser.add_argument(
        "--folder", type=Path, help="parent of the folder to write to (default: the system's temporary folder)"
    )
    parser.add_argument("--json", type=Path, help="a file for the results")
    arguments = parser.parse_args()
    without_torch()
    folder = Path(tempfile.mkdtemp(prefix="bitsnap-soak-", dir=arguments.folder))
    print(f"seed {arguments.seed}, in {folder}", file=sys.stderr)
    began = time.monotonic()
    broken: list[str] = []
    tallies: list[Tally] = []
    lingering: list[Tally] = []
    memory: memory_run.MemoryResult | None = None
    try:
        for ranks in arguments.ranks:
            kills = arguments.kills // len(arguments.ranks)
            tallies.append(kill_and_end(folder / f"kills-{ranks}", ranks, arguments.seed + ranks, kills))
            lingering.append(kill_and_linger(folder / f"linger-{ranks}", ranks, arguments.seed + ranks))
        if arguments.saves:
            memory = memory_run.run(folder / "memory", arguments.saves)
            broken += memory.broken()
    except ViolatedGuaranteeError as error:
        broken.append(str(error))
    results: dict[str, Any] = {
        "seed": arguments.seed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe(),
        "seconds": time.monotonic() - began,
        "kills": [dataclasses.asdict(tally) for tally in tallies],
        "lingering": [dataclasses.asdict(tally) for tally in lingering],
        "memory": None if memory is None else dataclasses.asdict(memory),
        "broken": broken,
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    print(in_one_line(results["machine"]))
    print(f"seed {arguments.seed}, {results['seconds']:.0f} s\n")
    if tallies:
        print("\n".join(kill_table(tallies)) + "\n")
    if memory is not None:
        print("\n".join(memory_lines(memory)) + "\n")
    for line in broken:
        print(f"violated guarantee: {line}")
    if broken:
        print(f"seed {arguments.seed}; journals, store and the agent's log are in {folder}")
        return 1
    shutil.rmtree(folder)
    print("all guarantees held, and nothing was left of any job")
    return 0


if __name__ == "__main__":
    sys.exit(main())
