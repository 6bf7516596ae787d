"""Figures of what a run costs: bytes, ratios, codecs, and rates against distortion.

A figure is plain data, for plotly and for report.js: a colour is the name of one of the page's own, as "@weight", so
that light and dark are one page. Names out of files go through plot_text() before they stand in one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from typing import Any

from bitsnap.report.report_data import RunData, Timing
from bitsnap.report.report_text import (
    ROLE_ORDER,
    error_text,
    plot_text,
    printable,
    ratio_text,
    role_text,
    share_label,
    size_text,
    size_unit,
)

Trace = dict[str, Any]
# Ratios above are drawn at this height, and said in the hover text: a weight beside its master has 350,000.
HIGHEST_RATIO = 64
# Up to so many checkpoints steps stand at even distances.
_MOST_CATEGORIES = 80
_CODEC_COLOURS = 8


@dataclass
class Figure:
    """One card of the page. Of each control one option is chosen; the figure has a variant for each way to choose."""

    name: str
    title: str
    caption: str
    controls: list[dict[str, Any]] = field(default_factory=list)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    height: int = 360
    wide: bool = False

    def add(self, data: list[Trace], layout: dict[str, Any], *choice: int) -> None:
        self.variants[",".join(map(str, choice))] = {"data": data, "layout": layout}

    def document(self) -> dict[str, Any]:
        return asdict(self)


def control(label: str, options: Iterable[str], chosen: int = 0) -> dict[str, Any]:
    """Options are shown as text, not as markup."""
    return {"label": label, "options": [printable(option) for option in options], "chosen": chosen}


def step_axis(count: int) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": {"text": "step"}}
    if count <= _MOST_CATEGORIES:
        axis["type"] = "category"
    return axis


def step_labels(steps: Sequence[int]) -> list[Any]:
    return [str(step) for step in steps] if len(steps) <= _MOST_CATEGORIES else list(steps)


def _parts(checkpoint: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Raw and stored bytes by role, of small tensors, and of everything around them."""
    parts = {role: (sizes["raw_bytes"], sizes["stored_bytes"]) for role, sizes in checkpoint["roles"].items()}
    parts["pool"] = (checkpoint["pool"]["raw_bytes"], checkpoint["pool"]["stored_bytes"])
    parts["index"] = (0, checkpoint["index_bytes"])
    return parts


def _present(checkpoints: list[dict[str, Any]]) -> list[str]:
    found = {name for checkpoint in checkpoints for name, sizes in _parts(checkpoint).items() if any(sizes)}
    known = [name for name in [*ROLE_ORDER, "pool", "index"] if name in found]
    return known + sorted(found - set(known))


def role_colour(role: str) -> str:
    return f"@{role}" if role in {*ROLE_ORDER, "pool", "index"} else "@other"


def bytes_figure(data: RunData) -> Figure:
    """What each checkpoint takes, stacked by role, under what it holds."""
    checkpoints = data.checkpoints
    steps = [checkpoint["step"] for checkpoint in checkpoints]
    figure = Figure(
        "bytes",
        "Bytes over the run",
        "What each checkpoint takes on disk, by what the tensors are to the training. The line is what it holds.",
        [control("Show", ["each checkpoint", "added up", "share of what is stored"])],
        height=400,
        wide=True,
    )
    parts = [_parts(checkpoint) for checkpoint in checkpoints]
    names = _present(checkpoints)
    for choice in range(3):
        traces: list[Trace] = []
        raw = [checkpoint["raw_bytes"] for checkpoint in checkpoints]
        totals = [max(1, sum(part[name][1] for name in part)) for part in parts]
        for name in names:
            stored: list[float] = [part.get(name, (0, 0))[1] for part in parts]
            said = [size_text(size) for size in stored]
            if choice == 1:
                stored = _added_up(stored)
                said = [size_text(size) for size in stored]
            elif choice == 2:
                stored = [100 * size / total for size, total in zip(stored, totals, strict=True)]
                said = [f"{text}, {share_label(share / 100)}" for text, share in zip(said, stored, strict=True)]
            traces.append(
                {
                    "type": "bar",
                    "name": role_text(name),
                    "x": step_labels(steps),
                    "y": stored,
                    "customdata": said,
                    "marker": {"color": role_colour(name)},
                    "hovertemplate": "%{customdata}",
                }
            )
        if choice != 2:
            line = _added_up(raw) if choice == 1 else raw
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": "raw",
                    "x": step_labels(steps),
                    "y": line,
                    "customdata": [size_text(size) for size in line],
                    "line": {"color": "@ink", "width": 1.5, "dash": "dot"},
                    "marker": {"color": "@ink", "size": 5},
                    "hovertemplate": "%{customdata}",
                }
            )
        axis: dict[str, Any] = {"ticksuffix": " %", "range": [0, 100]}
        if choice != 2:
            unit, suffix = size_unit(max(max(raw), *totals) if choice == 0 else sum(raw))
            axis = {"ticksuffix": f" {suffix}"}
            for trace in traces:
                trace["y"] = [size / unit for size in trace["y"]]
        layout = {"barmode": "stack", "xaxis": step_axis(len(steps)), "yaxis": axis, "hovermode": "x unified"}
        figure.add(traces, {**layout, "bargap": 0.28}, choice)
    return figure


def _added_up(values: Sequence[float]) -> list[float]:
    sums: list[float] = []
    for value in values:
        sums.append(value + (sums[-1] if sums else 0))
    return sums


def ratio_figure(data: RunData) -> Figure:
    checkpoints = data.checkpoints
    steps = [checkpoint["step"] for checkpoint in checkpoints]
    figure = Figure(
        "ratio",
        "How many times smaller",
        f"Raw over stored. A triangle at the top is beyond {HIGHEST_RATIO}×: a weight costs nothing beside its master, "
        "and what did not change is stored once.",
        [control("Show", ["ratio", "share of raw"])],
    )
    names = [name for name in _present(checkpoints) if name not in {"index", "pool"}]
    lines: list[tuple[str, str, list[tuple[int, int]]]] = [
        (role_text(name), role_colour(name), [_parts(each).get(name, (0, 0)) for each in checkpoints]) for name in names
    ]
    lines.append(("whole", "@ink", [(each["raw_bytes"], each["stored_bytes"]) for each in checkpoints]))
    for choice in range(2):
        traces: list[Trace] = []
        for name, colour, sizes in lines:
            ratios = [raw / stored if raw and stored else None for raw, stored in sizes]
            high = [ratio is not None and ratio > HIGHEST_RATIO for ratio in ratios]
            values: list[float | None]
            if choice == 0:
                values = [None if ratio is None else min(ratio, HIGHEST_RATIO) for ratio in ratios]
            else:
                values = [100 * stored / raw if raw else None for raw, stored in sizes]
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": name,
                    "x": step_labels(steps),
                    "y": values,
                    "customdata": [
                        f"{ratio_text(ratio)}, {size_text(raw)} → {size_text(stored)}"
                        for ratio, (raw, stored) in zip(ratios, sizes, strict=True)
                    ],
                    "line": {"color": colour, "width": 3 if name == "whole" else 1.75},
                    "marker": {
                        "color": colour,
                        "size": [10 if choice == 0 and above else 6 for above in high],
                        "symbol": ["triangle-up" if choice == 0 and above else "circle" for above in high],
                    },
                    "hovertemplate": "%{customdata}",
                    "cliponaxis": False,
                }
            )
        ticks = [1, 1.5, 2, 3, 4, 6, 8, 16, 32, 64]
        axis: dict[str, Any] = {"ticksuffix": " %", "rangemode": "tozero"}
        if choice == 0:
            axis = {"type": "log", "tickvals": ticks, "ticktext": [f"{tick}×" for tick in ticks]}
        figure.add(traces, {"xaxis": step_axis(len(steps)), "yaxis": axis, "hovermode": "x unified"}, choice)
    return figure


# ---- choices


def codecs_of(tensor: dict[str, Any]) -> dict[str, float]:
    """Raw bytes by codec; each of a tensor's chunks counts alike."""
    counts = tensor.get("codecs", {})
    chunks = sum(counts.values())
    return {name: tensor["raw_bytes"] * count / chunks for name, count in counts.items()} if chunks else {}


def codec_figure(data: RunData) -> Figure | None:
    """Which codecs took how much of each role, checkpoint by checkpoint."""
    steps = sorted(data.snapshots)
    shares: dict[str, dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    whole: dict[str, float] = defaultdict(float)
    for step in steps:
        for tensor in data.snapshots[step]["tensors"]:
            for codec, size in codecs_of(tensor).items():
                shares[tensor["role"]][step][codec] += size
                shares["all"][step][codec] += size
                whole[codec] += size
    roles = [role for role in ["all", *ROLE_ORDER] if role in shares]
    if not roles:
        return None
    codecs = sorted(whole, key=lambda codec: -whole[codec])
    figure = Figure(
        "codecs",
        "Which codec was chosen",
        "Share of the raw bytes that each codec took. “+base” is coded against the checkpoint before; the reasons "
        "stand in the table below.",
        [control("Of", ["everything", *map(role_text, roles[1:])])],
        wide=True,
    )
    for choice, role in enumerate(roles):
        traces: list[Trace] = []
        for index, codec in enumerate(codecs):
            sizes = [shares[role][step][codec] for step in steps]
            if not any(sizes):
                continue
            totals = [sum(shares[role][step].values()) for step in steps]
            traces.append(
                {
                    "type": "bar",
                    "name": plot_text(codec),
                    "x": step_labels(steps),
                    "y": [100 * size / total if total else 0 for size, total in zip(sizes, totals, strict=True)],
                    "customdata": [
                        f"{share_label(size / total)}, {size_text(size)} raw" if size else "–"
                        for size, total in zip(sizes, totals, strict=True)
                    ],
                    "marker": {
                        "color": f"@codec{index % _CODEC_COLOURS}",
                        "pattern": {"shape": "/" if index >= _CODEC_COLOURS else "", "solidity": 0.25},
                    },
                    "hovertemplate": "%{customdata}",
                }
            )
        layout = {"barmode": "stack", "bargap": 0.28, "xaxis": step_axis(len(steps)), "hovermode": "x unified"}
        figure.add(traces, {**layout, "yaxis": {"ticksuffix": " %", "range": [0, 100]}}, choice)
    return figure


def reasons(data: RunData, most_rows: int = 20_000) -> dict[str, Any]:
    """The table of reasons: rows of the newest checkpoints first, texts that repeat once."""
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(printable(text), len(texts))

    rows: list[list[Any]] = []
    studied = {state["step"] for state in data.states} or set(data.snapshots)
    for step in sorted(studied & set(data.snapshots), reverse=True):
        for tensor in data.snapshots[step]["tensors"]:
            if "stored_bytes" not in tensor:
                continue
            rows.append(
                [
                    step,
                    number(tensor["name"]),
                    number(role_text(tensor["role"])),
                    number(f"{tensor['dtype']} {'×'.join(map(str, tensor['shape'])) or 'scalar'}"),
                    number(tensor["codec"]),
                    tensor["raw_bytes"],
                    tensor["stored_bytes"],
                    number(tensor["reason"]),
                ]
            )
    return {"rows": rows[:most_rows], "texts": list(texts), "left_out": max(0, len(rows) - most_rows)}


# ---- loss


def lossy_tensors(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    return [tensor for tensor in snapshot["tensors"] if tensor.get("quantizer")]


def _mean(pairs: Iterable[tuple[float, float]]) -> float:
    total, weight = 0.0, 0.0
    for value, count in pairs:
        total += value * count
        weight += count
    return total / weight if weight else 0.0


def losses(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    """What was asked for and what was reached, by role and rule; errors are means over elements, or the largest."""
    groups: dict[tuple[str, str, float], list[dict[str, Any]]] = defaultdict(list)
    for tensor in lossy_tensors(snapshot):
        quantizer = tensor["quantizer"]
        groups[tensor["role"], quantizer["name"], quantizer["amount"]].append(tensor)
    lines = []
    for (role, name, amount), tensors in groups.items():
        found = [tensor["quantizer"] for tensor in tensors]
        updates = [quantizer["update"] for quantizer in found if quantizer.get("update")]
        bounds = [quantizer["bound"] for quantizer in found]
        reached = {"of the update": [update["largest"] for update in updates]}.get(
            found[0]["bound_of"],
            [quantizer["max_absolute" if name == "clusters" else "max_relative"] for quantizer in found],
        )
        moved = _mean((update["mean_of_updates"], update["elements"]) for update in updates)
        lines.append(
            {
                "role": role,
                "rule": f"{name} {amount:g}",
                "name": name,
                "tensors": len(tensors),
                "elements": sum(quantizer["elements"] for quantizer in found),
                "stored_bytes": sum(tensor["stored_bytes"] for tensor in tensors),
                "bound": None if None in bounds else max(bounds),
                "unit": found[0]["bound_of"],
                "reached": max(reached, default=None),
                "mre": _mean((quantizer["mean_relative"], quantizer["elements"]) for quantizer in found),
                "mse": _mean((quantizer["mean_square"], quantizer["elements"]) for quantizer in found),
                "update": _mean((update["mean"], update["elements"]) for update in updates) / moved if moved else None,
            }
        )
    return sorted(lines, key=lambda line: ROLE_ORDER.index(line["role"]) if line["role"] in ROLE_ORDER else 9)


_FAMILIES = {
    "round_mantissa": ("rounded mantissas", "@weight"),
    "clusters": ("clusters (BitSnap)", "@exp_avg_sq"),
    "update_step": ("steps of the update", "@exp_avg"),
}
_ERRORS = [
    ("mean_relative_error", "mean relative error", "mre"),
    ("max_relative_error", "largest relative error", None),
    ("mean_square_error", "mean square error", "mse"),
]


def rate_figure(data: RunData) -> Figure | None:
    """What quantizers would take, against what they would lose; and what the run does take and lose."""
    state = next((each for each in reversed(data.states) if any(role["quantizers"] for role in each["roles"])), None)
    if state is None:
        return None
    roles = [role for role in state["roles"] if role["quantizers"]]
    used = losses(data.snapshots[state["step"]]) if state["step"] in data.snapshots else []
    of_updates = _update_errors(data)
    sweeps = {role["role"]: traces for role in roles if (traces := _traces(role["quantizers"], _update_error))}
    figure = Figure(
        "rate",
        "Bits against error",
        f"What quantizers would make of step {state['step']}: left and down is better. Numbers are bits of mantissa, "
        "clusters, or parts of an update."
        + (" Stars are what this run stores." if used else " It stores none of them: at this step nothing is lost."),
        [
            control("Of", [role_text(role["role"]) for role in roles], min(1, len(roles) - 1)),
            control("Error", [name for _, name, _ in _ERRORS] + (["update error"] if of_updates or sweeps else [])),
        ],
    )
    for i, role in enumerate(roles):
        for j, (key, name, used_key) in enumerate(_ERRORS):
            traces = _traces(role["quantizers"], itemgetter(key))
            for line in used:
                if line["role"] != role["role"] or not used_key or not line["elements"]:
                    continue
                bits = 8 * line["stored_bytes"] / line["elements"]
                said = f"{plot_text(line['rule'])}<br>{bits:.2f} bits, {error_text(line[used_key])}"
                if line["update"] is not None:
                    said += f"<br>updates off by {error_text(line['update'])} in the mean"
                traces.append(
                    {
                        "type": "scatter",
                        "mode": "markers",
                        "name": "this run",
                        "x": [bits],
                        "y": [line[used_key]],
                        "customdata": [said],
                        "marker": {
                            "symbol": "star",
                            "size": 18,
                            "color": "@used",
                            "line": {"color": "@ink", "width": 1},
                        },
                        "hovertemplate": "%{customdata}<extra></extra>",
                    }
                )
            layout = {
                "xaxis": {"title": {"text": "bits per element"}, "rangemode": "tozero"},
                "yaxis": {"title": {"text": name}, "type": "log", "exponentformat": "power", "dtick": 1},
            }
            figure.add(traces, layout, i, j)
        if of_updates or sweeps:
            layout = {
                "xaxis": {"title": {"text": "bits per element"}, "rangemode": "tozero"},
                "yaxis": {
                    "title": {"text": "mean error of the update"},
                    "type": "log",
                    "exponentformat": "power",
                    "dtick": 1,
                },
            }
            traces = [*sweeps.get(role["role"], []), *of_updates.get(role["role"], [])]
            figure.add(traces, layout, i, len(_ERRORS))
    return figure


def _update_error(point: dict[str, Any]) -> float:
    """Of the mean update; 0 where it is not known."""
    update = point["update"]
    return float(update["mean"] / update["mean_of_updates"]) if update and update["mean_of_updates"] else 0.0


def _traces(points: list[dict[str, Any]], error: Callable[[dict[str, Any]], float]) -> list[Trace]:
    return [trace for on_base in (False, True) for trace in _rate_traces(points, error, on_base)]


def _update_errors(data: RunData) -> dict[str, list[Trace]]:
    """What the run takes for first moments, and how far updates are off for it, step by step."""
    points: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for step in sorted(data.snapshots):
        for line in losses(data.snapshots[step]):
            if line["update"] is not None and line["elements"]:
                bits = 8 * line["stored_bytes"] / line["elements"]
                said = f"step {step}, {plot_text(line['rule'])}<br>{bits:.2f} bits, {error_text(line['update'])}"
                points[line["role"]].append((bits, line["update"], said))
    return {
        role: [
            {
                "type": "scatter",
                "mode": "markers",
                "name": "this run, each step",
                "x": [bits for bits, _, _ in some],
                "y": [error for _, error, _ in some],
                "customdata": [said for _, _, said in some],
                "marker": {"symbol": "star", "size": 13, "color": "@used"},
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        ]
        for role, some in points.items()
    }


def _rate_traces(points: list[dict[str, Any]], error: Callable[[dict[str, Any]], float], on_base: bool) -> list[Trace]:
    """A line for each family; on a logarithmic axis there is no place for an error of 0."""
    traces: list[Trace] = []
    for family, (label, colour) in _FAMILIES.items():
        chosen = [
            (point["bits_on_base"] if on_base else point["nominal_bits"] or point["bits"], point)
            for point in points
            if point["name"] == family and (not on_base or point["bits_on_base"] is not None) and error(point) > 0
        ]
        if not chosen:
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" + ("" if on_base else "+text"),
                "name": f"{label}, against the base" if on_base else label,
                "x": [bits for bits, _ in chosen],
                "y": [error(point) for _, point in chosen],
                "text": [str(point["parameter"]) for _, point in chosen],
                "textposition": "top right",
                "textfont": {"size": 10},
                "customdata": [
                    f"{label}, {point['parameter']}<br>{bits:.2f} bits per element, {error_text(error(point))}"
                    for bits, point in chosen
                ],
                "line": {"color": colour, "width": 2, "dash": "solid" if on_base else "dot"},
                "marker": {"color": colour, "size": 7, "symbol": "circle" if on_base else "circle-open"},
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    return traces


# ---- time


def timing_figure(timings: Sequence[Timing], raw_bytes: dict[int, int]) -> Figure | None:
    if not timings:
        return None
    figure = Figure(
        "timings",
        "Stall and throughput",
        "How long the training stood still for each save, and the raw bytes per second of the whole save.",
    )
    steps = step_labels([timing.step for timing in timings])
    traces: list[Trace] = []
    if any(timing.stall_seconds is not None for timing in timings):
        traces.append(
            {
                "type": "bar",
                "name": "stall",
                "x": steps,
                "y": [timing.stall_seconds for timing in timings],
                "marker": {"color": "@exp_avg"},
                "hovertemplate": "%{y:.3~s}s",
            }
        )
    speeds = [
        raw_bytes[timing.step] / timing.save_seconds if timing.save_seconds and timing.step in raw_bytes else None
        for timing in timings
    ]
    if any(speed is not None for speed in speeds):
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": "throughput",
                "x": steps,
                "y": speeds,
                "yaxis": "y2",
                "line": {"color": "@weight", "width": 2},
                "hovertemplate": "%{y:.3~s}B/s",
            }
        )
    if not traces:
        return None
    layout = {
        "xaxis": step_axis(len(timings)),
        "yaxis": {"tickformat": "~s", "ticksuffix": "s", "rangemode": "tozero"},
        "yaxis2": {"tickformat": "~s", "ticksuffix": "B/s", "overlaying": "y", "side": "right", "rangemode": "tozero"},
        "hovermode": "x unified",
    }
    figure.add(traces, layout)
    return figure
