"""What a page is made of: the answers of the command bitsnap, as JSON, about one run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bitsnap.errors import BitsnapError, InvalidArgumentError, NotFoundError

# Checkpoints whose index is read, for the choices over the run.
MOST_INSPECTED = 48


class CommandFailed(BitsnapError):  # noqa: N818
    """The command bitsnap ended with this status, and has said why on standard error."""

    def __init__(self, arguments: list[str], status: int) -> None:
        super().__init__(f"bitsnap {' '.join(arguments)}: exit status {status}")
        self.status = status if status > 0 else 128 - status


@dataclass(frozen=True)
class Timing:
    """What saving one step took, as the training wrote it down."""

    step: int
    stall_seconds: float | None
    save_seconds: float | None


@dataclass(frozen=True)
class RunData:
    """Documents as docs/guide/cli.md names their keys; steps ascending."""

    run: str
    sizes: dict[str, Any]  # du
    log: list[dict[str, Any]]
    states: list[dict[str, Any]]  # of analyze: the studied checkpoints
    snapshots: dict[int, dict[str, Any]]  # inspect, by step
    version: str = ""
    timings: list[Timing] = field(default_factory=list)

    @property
    def checkpoints(self) -> list[dict[str, Any]]:
        """The sizes of every checkpoint that can be read."""
        return [step for step in self.sizes["steps"] if "damage" not in step]


def find_command() -> str:
    """The bitsnap that runs this, else the one that came with the package, else the one on PATH."""
    name = os.environ.get("BITSNAP_COMMAND") or os.environ.get("BITSNAP_CLI")
    if name:
        return name
    package = Path(__file__).resolve().parents[2]
    for folder in (Path(sys.argv[0]).parent, package / "bin", Path(sysconfig.get_path("scripts"))):
        if os.access(folder / "bitsnap", os.X_OK):
            return str(folder / "bitsnap")
    found = shutil.which("bitsnap")
    if found is None:
        raise NotFoundError("bitsnap: the command is neither beside this Python nor on PATH")
    return found


def ask(command: str, *arguments: str) -> Any:
    """What the command prints as JSON. What it says to people goes to where this program's own errors go."""
    done = subprocess.run([command, *arguments], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise CommandFailed(list(arguments), done.returncode)
    return json.loads(done.stdout)


def spread(steps: list[int], count: int) -> list[int]:
    """So many of them at even distances, the first and the last among them."""
    if len(steps) <= count:
        return steps
    if count == 1:
        return steps[-1:]
    return [steps[i * (len(steps) - 1) // (count - 1)] for i in range(count)]


def read_timings(path: Path) -> list[Timing]:
    timings = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            values = [entry.get(key) for key in ("stall_seconds", "save_seconds")]
            stall, save = (None if value is None else float(value) for value in values)
            timings.append(Timing(int(entry["step"]), stall, save))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InvalidArgumentError(
                f"{path}, line {number}: not a JSON object with step and stall_seconds or save_seconds"
            ) from None
    return sorted(timings, key=lambda timing: timing.step)


def gather(run: Path, *, steps: int, shard: int | None = None, timings: Path | None = None) -> RunData:
    """Asks for everything. Studying decodes; the rest reads indices only."""
    times = [] if timings is None else read_timings(timings)
    command = find_command()
    path = str(run)
    which = [] if shard is None else ["--shard", str(shard)]
    sizes = ask(command, "du", "--json", "--", path)
    log = ask(command, "log", "--json", "--", path)
    readable = [entry["step"] for entry in sizes["steps"] if "damage" not in entry]
    if not readable:
        raise NotFoundError(f"{path}: no checkpoint that could be reported on")
    analysis = ask(command, "analyze", "--json", "--quiet", "--steps", str(steps), *which, "--", path)
    states = [state for state in analysis["states"] if state["step"] is not None]
    wanted = sorted({*spread(readable, MOST_INSPECTED), *(state["step"] for state in states)})
    snapshots = {step: ask(command, "inspect", "--json", *which, "--", f"{path}@{step}") for step in wanted}
    return RunData(path, sizes, log, states, snapshots, analysis["version"], times)
