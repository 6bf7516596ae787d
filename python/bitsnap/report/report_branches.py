"""The branches of a run: which there are, as a tree, and a figure of the run and its branches side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bitsnap.report.report_data import RunData, directory_of, metrics_of, plot_text, size_text, size_unit
from bitsnap.report.report_figures import Figure, StepAxis, Trace, control, curve, gaps

_COLOURS = 8  # of lines; one more branch begins again, with another dash
_DASHES = ["solid", "dash", "dot", "dashdot"]
_WIDTH = 2


@dataclass(frozen=True)
class _Line:
    """The checkpoints of the run or of one of its branches."""

    label: str
    log: list[dict[str, Any]]
    parent: str = ""  # empty for the run
    first: int | None = None  # the step at which it leaves its parent, if that is known

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [entry for entry in self.log if "damage" not in entry]


def rows(data: RunData) -> list[dict[str, Any]]:
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


def _lines(data: RunData) -> list[_Line]:
    branches = rows(data)
    is_unclear = data.label in {row["name"] for row in branches}
    found = [_Line(f"{data.label} (the run)" if is_unclear else data.label, data.log)]
    found += [
        _Line(row["name"], row["log"], row["parent"], (row["origin"] or {}).get("step"))
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


def _names_axis(lines: list[_Line]) -> dict[str, Any]:
    names = [plot_text(line.label) for line in lines]
    return {"type": "category", "categoryorder": "array", "categoryarray": names, "autorange": "reversed"}


def _timelines(lines: list[_Line], axis: StepAxis) -> list[Trace]:
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


def _said(line: _Line, entry: dict[str, Any]) -> str:
    values = "".join(f"<br>{plot_text(name)}: {value:.5g}" for name, value in metrics_of(entry).items())
    return f"{plot_text(line.label)}, step {entry['step']}<br>{size_text(entry['stored_bytes'])} stored{values}"


def _curves(lines: list[_Line], values: list[dict[int, float]], axis: StepAxis) -> list[Trace]:
    return [
        curve(plot_text(line.label), axis.labels(found), list(found.values()), "%{y:.5~g}", **_style(number))
        for number, (line, found) in enumerate(zip(lines, values, strict=True))
        if found
    ]
