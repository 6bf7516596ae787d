"""Figures of what a training measured, costs of saves in time and values such as the loss; of its branches; and the
table that compares two runs. See report_figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitsnap.report.report_data import (
    ROLE_ORDER,
    RunData,
    count_text,
    directory_of,
    metrics_of,
    number_text,
    plot_text,
    ratio_text,
    role_text,
    size_text,
    size_unit,
)
from bitsnap.report.report_figures import Figure, StepAxis, Trace, control, curve, gaps, second_style, trace


def timing_figure(data: RunData) -> Figure | None:
    raw_bytes = {checkpoint["step"]: checkpoint["raw_bytes"] for checkpoint in data.checkpoints}
    runs = [(data, "stall", "@exp_avg")]
    if data.against:
        runs.append((data.against, f"stall, {plot_text(data.against.label)}", "@used"))
    axis_x = StepAxis(*([timing.step for timing in run.timings] for run, _, _ in runs))
    steps = axis_x.labels(timing.step for timing in data.timings)
    traces: list[Trace] = []
    for run, name, colour in runs:
        stalls = [timing.stall_seconds for timing in run.timings]
        if any(stall is not None for stall in stalls):
            x = axis_x.labels(timing.step for timing in run.timings)
            traces.append(trace("bar", name, x, stalls, "%{y:.3~s}s", marker={"color": colour}))
    speeds = [
        raw_bytes[timing.step] / timing.save_seconds if timing.save_seconds and timing.step in raw_bytes else None
        for timing in data.timings
    ]
    fastest = max((speed for speed in speeds if speed is not None), default=None)
    unit, suffix = size_unit(fastest or 1)
    if fastest is not None:
        shown = [speed and speed / unit for speed in speeds]
        said = [f"{size_text(speed)}/s" if speed is not None else "" for speed in speeds]
        style = {"color": "@weight", "width": 2}
        traces.append(curve("throughput", steps, shown, customdata=said, yaxis="y2", line=style))
    if not traces:
        return None
    figure = Figure(
        "timings",
        "Stall and throughput",
        "How long each save held up the training, and the raw bytes per second of the whole save.",
    )
    # Three digits: the ends of a range may be ticks.
    axis = {"tickformat": ".3~s", "ticksuffix": "s", "rangemode": "tozero"}
    speed_axis = {
        "tickformat": ".3~r",
        "ticksuffix": f" {suffix}/s",
        "rangemode": "tozero",
        "overlaying": "y",
        "side": "right",
    }
    figure.add(traces, axis_x.layout(axis, yaxis2=speed_axis))
    return figure


def metrics_figure(data: RunData) -> Figure | None:
    """The values that were saved with the checkpoints, of both runs; the loss first."""
    runs = [each for each in (data, data.against) if each]
    names = sorted({name for run in runs for name in run.metrics}, key=lambda name: (name != "loss", name))
    if not names:
        return None
    figure = Figure(
        "metrics",
        "Loss" if names == ["loss"] else "Loss and other values" if names[0] == "loss" else "Values of the training",
        "Metrics that the training saved with its checkpoints.",
        [control("Show", names)],
    )
    for choice, name in enumerate(names):
        found = [(run, run.metrics.get(name, {})) for run in runs]
        axis_x = StepAxis(*(values for _, values in found))
        traces: list[Trace] = []
        for run, values in found:
            style = {"line": {"color": "@weight", "width": 2}} if run is data else second_style()
            label = plot_text(run.label if data.against else name)
            traces.append(curve(label, axis_x.labels(values), list(values.values()), "%{y:.5~g}", **style))
        traces += gaps([values for _, values in found], axis_x)
        figure.add(traces, axis_x.layout({"tickformat": ".4~g"}), choice)
    return figure


# ---- two runs


def _difference(first: float | None, second: float | None) -> str:
    """How much larger the second value is, from three times on as a factor."""
    if not first or second is None or not math.isfinite(first - second):
        return "–"
    if first == second:
        return "the same"
    return f"{100 * (second / first - 1):+.1f} %" if second < 3 * first else ratio_text(second / first)


_Line = tuple[str, str, str, str]


def _line(name: str, first: float | None, second: float | None, text: Callable[[Any], str]) -> _Line:
    said = ["–" if value is None else text(value) for value in (first, second)]
    return name, said[0], said[1], _difference(first, second)


def _roles(checkpoint: dict[str, Any]) -> dict[str, int]:
    return {role: sizes["stored_bytes"] for role, sizes in checkpoint["roles"].items() if sizes["raw_bytes"]}


def _mean_stall(run: RunData) -> float | None:
    stalls = [timing.stall_seconds for timing in run.timings if timing.stall_seconds is not None]
    return sum(stalls) / len(stalls) if stalls else None


def _at_common_step(data: RunData, against: RunData) -> list[_Line]:
    """The newest step that both runs have."""
    entries = [{entry["step"]: entry for entry in run.checkpoints} for run in (data, against)]
    common = max(entries[0].keys() & entries[1].keys(), default=None)
    if common is None:
        return []
    first, second = (each[common] for each in entries)
    where = f"at step {count_text(common)}"
    ratios = [each["raw_bytes"] / each["stored_bytes"] if each["stored_bytes"] else None for each in (first, second)]
    lines = [
        _line(f"stored {where}", first["stored_bytes"], second["stored_bytes"], size_text),
        _line(f"ratio {where}", ratios[0], ratios[1], ratio_text),
    ]
    roles = [_roles(first), _roles(second)]
    lines += [
        _line(f"{role_text(role)} {where}", roles[0].get(role), roles[1].get(role), size_text)
        for role in [*ROLE_ORDER, *sorted(roles[0].keys() - set(ROLE_ORDER))]
        if role in roles[0] or role in roles[1]
    ]
    for name in sorted(data.metrics.keys() & against.metrics.keys()):
        values = [run.metrics[name].get(common) for run in (data, against)]
        lines.append(_line(f"{name} {where}", values[0], values[1], number_text))
    return lines


def differences(data: RunData) -> list[_Line]:
    """The lines of the table that compares the run with the second one: what, both values, and the difference."""
    against = data.against
    if against is None:
        return []
    runs = (data, against)
    raw = [sum(entry["raw_bytes"] for entry in run.checkpoints) for run in runs]
    held = [run.sizes["stored_bytes"] for run in runs]
    ratios = [whole / stored if stored else None for whole, stored in zip(raw, held, strict=True)]
    lines = [
        _line("checkpoints", len(data.checkpoints), len(against.checkpoints), count_text),
        _line("raw", raw[0], raw[1], size_text),
        _line("held on disk", held[0], held[1], size_text),
        _line("ratio of the whole run", ratios[0], ratios[1], ratio_text),
        *_at_common_step(data, against),
    ]
    stalls = [_mean_stall(run) for run in runs]
    if any(stall is not None for stall in stalls):
        lines.append(_line("mean stall", stalls[0], stalls[1], "{:.3g} s".format))
    return lines


# ---- the branches of a run: as a tree, and side by side

_COLOURS = 8  # of lines; one more branch begins again, with another dash
_DASHES = ["solid", "dash", "dot", "dashdot"]
_WIDTH = 2


@dataclass(frozen=True)
class _LineOfRun:
    """The checkpoints of the run or of one of its branches."""

    label: str
    log: list[dict[str, Any]]
    parent: str = ""  # empty for the run
    first: int | None = None  # the step at which it leaves its parent, if that is known

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [entry for entry in self.log if "damage" not in entry]


def branch_rows(data: RunData) -> list[dict[str, Any]]:
    """The branches as a tree, from the run on: each is followed by those that were made from it. `depth` begins at 0,
    and `reference` names it to the command."""
    run = str(directory_of(Path(data.run)).parent.parent) if data.branch else data.run
    return [{**row, "reference": f"{run}:{row['name']}"} for row in _below(data, data.branch, 0, set())]


def _parent_of(branch: dict[str, Any], data: RunData) -> str:
    """Empty for the run, which also stands for a branch that was removed."""
    origin = (branch["origin"] or {}).get("branch", "")
    return origin if any(each["name"] == origin for each in data.branches) else ""


def _below(data: RunData, parent: str, depth: int, seen: set[str]) -> Iterator[dict[str, Any]]:
    for branch in data.branches:
        if branch["name"] not in seen and _parent_of(branch, data) == parent:
            seen.add(branch["name"])
            yield {**branch, "depth": depth, "parent": parent}
            yield from _below(data, branch["name"], depth + 1, seen)


def _lines(data: RunData) -> list[_LineOfRun]:
    branches = branch_rows(data)
    is_unclear = data.label in {row["name"] for row in branches}
    found = [_LineOfRun(f"{data.label} (the run)" if is_unclear else data.label, data.log)]
    found += [
        _LineOfRun(row["name"], row["log"], row["parent"], (row["origin"] or {}).get("step"))
        for row in branches
        if row["log"] is not None
    ]
    return found


def branches_figure(data: RunData) -> Figure | None:
    """The steps of each line, the sizes of its checkpoints, and its metrics, which a control chooses among."""
    lines = _lines(data)
    if len(lines) == 1:
        return None
    names = {name for line in lines for entry in line.entries for name in entry.get("metrics", {})}
    metrics = sorted(names, key=lambda name: (name != "loss", name))
    figure = Figure(
        "branches",
        "The run and its branches",
        "One line for each; a click on its name hides it. A branch begins with a checkpoint of the line that it was "
        "made from.",
        [control("Show", ["steps", "stored bytes", *metrics])],
        wide=True,
    )
    axis_x = StepAxis(*([entry["step"] for entry in line.entries] for line in lines))
    figure.add(_timelines(lines, axis_x), axis_x.layout(_names_axis(lines), hovermode="closest", showlegend=False), 0)
    unit, suffix = size_unit(max((entry["stored_bytes"] for line in lines for entry in line.entries), default=1))
    sizes = [{entry["step"]: entry["stored_bytes"] / unit for entry in line.entries} for line in lines]
    figure.add(_curves(lines, sizes, axis_x), axis_x.layout({"ticksuffix": f" {suffix}", "rangemode": "tozero"}), 1)
    for choice, name in enumerate(metrics, 2):
        values = [
            {entry["step"]: found[name] for entry in line.entries if name in (found := metrics_of(entry))}
            for line in lines
        ]
        traces = [*_curves(lines, values, axis_x), *gaps(values, axis_x)]
        figure.add(traces, axis_x.layout({"tickformat": ".4~g"}), choice)
    figure.height = max(300, min(140 + 34 * len(lines), 700))
    return figure


def _style(number: int) -> dict[str, Any]:
    colour = "@ink" if number == 0 else f"@codec{(number - 1) % _COLOURS}"
    dash = _DASHES[(number // (_COLOURS + 1)) % len(_DASHES)]
    return {"line": {"color": colour, "width": _WIDTH, "dash": dash}, "marker": {"color": colour, "size": 7}}


def _names_axis(lines: list[_LineOfRun]) -> dict[str, Any]:
    names = [plot_text(line.label) for line in lines]
    return {"type": "category", "categoryorder": "array", "categoryarray": names, "autorange": "reversed"}


def _timelines(lines: list[_LineOfRun], axis: StepAxis) -> list[Trace]:
    traces: list[Trace] = []
    places = {line.label: line for line in lines[1:]}
    for number, line in enumerate(lines):
        name, style = plot_text(line.label), _style(number)
        parent = places.get(line.parent, lines[0])
        if line.first is not None and any(entry["step"] == line.first for entry in parent.entries):
            x, y = axis.labels([line.first] * 2), [plot_text(parent.label), name]
            fork = {"mode": "lines", "line": {**style["line"], "width": 1}, "hoverinfo": "skip"}
            traces.append(curve(name, x, y, "", **fork))
        said = [_said(line, entry) for entry in line.entries]
        steps = axis.labels(entry["step"] for entry in line.entries)
        hover = "%{customdata}<extra></extra>"
        traces.append(curve(name, steps, [name] * len(steps), hover, customdata=said, **style))
    return traces


def _said(line: _LineOfRun, entry: dict[str, Any]) -> str:
    values = "".join(f"<br>{plot_text(name)}: {value:.5g}" for name, value in metrics_of(entry).items())
    return f"{plot_text(line.label)}, step {entry['step']}<br>{size_text(entry['stored_bytes'])} stored{values}"


def _curves(lines: list[_LineOfRun], values: list[dict[int, float]], axis: StepAxis) -> list[Trace]:
    return [
        curve(plot_text(line.label), axis.labels(found), list(found.values()), "%{y:.5~g}", **_style(number))
        for number, (line, found) in enumerate(zip(lines, values, strict=True))
        if found
    ]
