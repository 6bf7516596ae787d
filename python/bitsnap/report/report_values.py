"""Figures of what a training measured, costs of saves in time and values such as the loss; and the table that compares
two runs. See report_figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bitsnap.report.report_data import (
    ROLE_ORDER,
    RunData,
    count_text,
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
