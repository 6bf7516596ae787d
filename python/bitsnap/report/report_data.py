"""The data of a page: what the command bitsnap says about one run, as JSON; and numbers and names as people read them.

Names of tensors come from files: they may hold markup, control characters and marks that turn the direction of text.
They are made harmless here.
"""

from __future__ import annotations

import html
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from bitsnap._common import Home
from bitsnap.agents import find_program
from bitsnap.errors import BitsnapError, InvalidArgumentError, NotFoundError, printable

_T = TypeVar("_T")

# Checkpoints whose index is read, for the choices over the run.
MOST_INSPECTED = 48
# Files whose index is searched for lossy tensors.
MOST_SEARCHED = 512
# Branches whose checkpoints are listed.
MOST_BRANCHES = 16


class CommandFailed(BitsnapError):  # noqa: N818
    """The command bitsnap failed with this status, and printed why."""

    def __init__(self, arguments: list[str], status: int, said: str = "") -> None:
        super().__init__(said or f"bitsnap {' '.join(arguments)}: exit status {status}")
        self.status = status if status > 0 else 128 - status


@dataclass(frozen=True)
class Timing:
    """The costs of saving one step, as callbacks.JsonLines writes them."""

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
    lossy: tuple[int, dict[str, Any]] | None = None  # the newest step with a lossy shard, and its inspect
    files: int = 0  # one per shard and checkpoint
    searched: int = 0  # files that were searched for lossy tensors
    # Of the run that it belongs to: as branch lists them, with `log`, which is None of the oldest if there are many.
    branches: list[dict[str, Any]] = field(default_factory=list)
    against: RunData | None = None  # a second run, of which sizes and values are shown beside

    @property
    def label(self) -> str:
        """The name of its directory."""
        return Path(self.run).absolute().name

    @property
    def branch(self) -> str:
        """The branch that this run is of another one; empty for a run."""
        folder = directory_of(Path(self.run).absolute())
        names = [each["name"] for each in self.branches if folder.parent.name == BRANCHES]
        return folder.name if folder.name in names else ""

    @property
    def is_lossless(self) -> bool:
        """All files were searched, and no tensor is lossy."""
        return self.lossy is None and self.searched == self.files

    @property
    def checkpoints(self) -> list[dict[str, Any]]:
        """The sizes of all readable checkpoints."""
        return [step for step in self.sizes["steps"] if "damage" not in step]

    @property
    def metrics(self) -> dict[str, dict[int, float]]:
        """The values that the training gave with its checkpoints, such as the loss: by name, then by step."""
        found: dict[str, dict[int, float]] = {}
        for entry in sorted(self.log, key=lambda entry: int(entry["step"])):
            for name, value in metrics_of(entry).items():
                found.setdefault(name, {})[entry["step"]] = value
        return found


def metrics_of(entry: dict[str, Any]) -> dict[str, float]:
    """The metrics of a checkpoint, as log names them. NaN and infinities, which JSON cannot hold, are NaN."""
    return {name: math.nan if value is None else value for name, value in entry.get("metrics", {}).items()}


def finite(value: Any) -> Any:
    """The same data with null for each number that JSON cannot hold, as log --json has it."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def number_text(value: float) -> str:
    return f"{value:.5g}" if math.isfinite(value) else "not finite"


BRANCHES = "branches"  # the folder of a run that holds its branches


def directory_of(run: Path) -> Path:
    """The directory of a run, or of the branch that "run:NAME" names."""
    whole, colon, name = str(run).rpartition(":")
    branch = Path(whole) / BRANCHES / name
    return branch if colon and whole and not run.exists() and branch.is_dir() else run


# Runs the command with arguments and returns its JSON; raises CommandFailed.
Ask: TypeAlias = Callable[..., Any]


def ask(command: str, *arguments: str) -> Any:
    """What the command prints as JSON. Its messages go to standard error."""
    done = subprocess.run([command, *arguments], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise CommandFailed(list(arguments), done.returncode)
    return json.loads(done.stdout)


def spread(steps: list[_T], count: int) -> list[_T]:
    """`count` of them at even distances, with the first and the last."""
    if len(steps) <= count:
        return steps
    if count == 1:
        return steps[-1:]
    return [steps[i * (len(steps) - 1) // (count - 1)] for i in range(count)]


# The costs of saves are read from this file of a run if no other file is named.
OWN_TIMINGS = "timings.jsonl"


def timings_of(run: Home, path: Path | None) -> list[Timing]:
    """The timings in the named file, or in the run's own file if it has one."""
    if path is not None:
        return read_timings(path)
    own = directory_of(Path(run)) / OWN_TIMINGS
    return read_timings(own) if own.is_file() else []


def read_timings(path: Path) -> list[Timing]:
    timings = []
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{path}: byte {error.start} is not UTF-8") from None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            values = [entry.get(key) for key in ("stall_seconds", "save_seconds")]
            stall, save = (None if value is None else float(value) for value in values)
            if not all(value is None or 0 <= value < math.inf for value in (stall, save)):
                raise ValueError("seconds")
            timings.append(Timing(int(entry["step"]), stall, save))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            raise InvalidArgumentError(
                f"{path}, line {number}: not a JSON object with step and stall_seconds or save_seconds, which "
                "must be numbers that are not negative"
            ) from None
    return sorted(timings, key=lambda timing: timing.step)


def gather(
    run: Home,
    *,
    steps: int,
    shard: int | None = None,
    timings: Path | None = None,
    adam: tuple[str, str] | None = None,
    ask: Ask = ask,
) -> RunData:
    """Runs the command. Only the studied steps are decoded, none with 0 `steps`. `adam` has --betas and --eps."""
    times = timings_of(run, timings)
    command = find_command()
    path = str(run)
    which = [] if shard is None else ["--shard", str(shard)]
    sizes = ask(command, "du", "--json", "--", path)
    log = ask(command, "log", "--json", "--", path)
    readable = [entry["step"] for entry in sizes["steps"] if "damage" not in entry]
    if not readable:
        raise NotFoundError(f"{path}: there is no readable checkpoint")
    numbers = [] if adam is None else ["--betas", adam[0], "--eps", adam[1]]
    analysis: dict[str, Any] = {"version": "", "states": []}
    if steps > 0:
        analysis = ask(command, "analyze", "--json", "--quiet", "--steps", str(steps), *which, *numbers, "--", path)
    states = [state for state in analysis["states"] if state["step"] is not None]
    wanted = sorted({*spread(readable, MOST_INSPECTED), *(state["step"] for state in states)})
    snapshots = {step: ask(command, "inspect", "--json", *which, "--", f"{path}@{step}") for step in wanted}
    branches = _read_branches(command, path, ask) if steps > 0 else []
    found = RunData(path, sizes, log, states, snapshots, analysis["version"], times, branches=branches)
    return _search_for_loss(found, command, shard, readable, ask)


def _read_branches(command: str, path: str, ask: Ask) -> list[dict[str, Any]]:
    listed = ask(command, "branch", "--json", "--", path)["branches"]
    chosen = sorted(listed, key=lambda each: each["newest"] or 0)[-MOST_BRANCHES:]
    names = {each["name"] for each in chosen}
    found = []
    for each in listed:
        log = None
        if each["name"] in names:
            with suppress(CommandFailed):  # as of a branch that was removed meanwhile
                log = ask(command, "log", "--json", "--", each["path"])
        found.append({**each, "log": log})
    return found


def find_command() -> str:
    """The bitsnap that runs this program, or the one that came with the package, or the one on PATH."""
    named = os.environ.get("BITSNAP_COMMAND") or os.environ.get("BITSNAP_CLI")
    return named or str(find_program(Path(sys.argv[0]).parent))


def _search_for_loss(data: RunData, command: str, shard: int | None, readable: list[int], ask: Ask) -> RunData:
    """Searches from the newest step on, within MOST_SEARCHED files."""
    shards = {entry["step"]: entry["shards"] for entry in data.log if "damage" not in entry}
    files = [(step, number) for step in readable for number in range(shards.get(step, 1))]
    lossy = None
    searched = 0
    # What was inspected are all shards together, or the chosen one.
    inspected = {step for step in data.snapshots if shard is not None or shards.get(step, 1) == 1}
    chosen = set(spread(sorted(files), MOST_SEARCHED)) | {(step, shard or 0) for step in inspected}
    for step, number in sorted(chosen, reverse=True):
        snapshot = data.snapshots[step] if step in inspected and number == (shard or 0) else None
        if snapshot is None:
            snapshot = ask(command, "inspect", "--json", "--shard", str(number), "--", f"{data.run}@{step}")
        searched += 1
        if any(tensor.get("quantizer") for tensor in snapshot["tensors"]):
            lossy = step, snapshot
            break
    return replace(data, lossy=lossy, files=len(files), searched=searched)


ROLE_NAMES = {
    "weight": "weights",
    "master": "masters",
    "exp_avg": "first moments",
    "exp_avg_sq": "second moments",
    "other": "other",
    "pool": "small tensors",
    "index": "index",
}
_UNITS = ["B", "kB", "MB", "GB", "TB", "PB"]
ROLE_ORDER = ["weight", "master", "exp_avg", "exp_avg_sq", "other"]


def plot_text(text: str) -> str:
    """For labels and hover texts of plotly, which take some HTML, and %{...} in templates."""
    return html.escape(printable(text), quote=False).replace("%{", "%&#123;").replace("$", "&#36;")


def size_unit(size: float) -> tuple[float, str]:
    """The unit in which an axis up to this size is labelled."""
    number = 0
    while size >= 1000 and number < len(_UNITS) - 1:
        size /= 1000
        number += 1
    return 1000.0**number, _UNITS[number]


def size_text(size: float) -> str:
    """Decimal, three digits: 1.06 GB."""
    for unit in _UNITS:
        if abs(size) < 999.5 or unit == _UNITS[-1]:
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" else f"{_digits(size)} {unit}"


def _digits(value: float) -> str:
    decimals = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{decimals}f}"


def ratio_text(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return f"{ratio:,.0f}×" if ratio >= 1000 else f"{_digits(ratio)}×"


def share_text(share: float) -> str:
    """Nothing that is there is shown as 0 %, and nothing that is not all as 100 %."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.0f} %" if percent in (0, 100) else f"{percent:.1f} %"


def share_label(share: float) -> str:
    """The same for plots, to which "<0.1 %" would be the beginning of an element."""
    return plot_text(share_text(share))


def error_text(error: float | None) -> str:
    """A relative error or a bound of one."""
    if error is None:
        return "–"
    if error == 0:
        return "0"
    if 1e-3 <= abs(error) < 1:
        return f"{100 * error:.2g} %"
    exponent = math.floor(math.log10(abs(error)))
    return f"{error / 10**exponent:.1f}·10{str(exponent).translate(_SUPERSCRIPTS)}"


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def count_text(count: int) -> str:
    return f"{count:,}"


def role_text(role: str) -> str:
    return ROLE_NAMES.get(role, role)
