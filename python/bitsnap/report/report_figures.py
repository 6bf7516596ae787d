"""Figures of the sizes of a run: bytes, ratios and codecs; and of its loss: bounds, measured errors, and bits against
error.

A figure is plain data for plotly and report.js. A colour is the name of one of the page's own colours, such as
"@weight", so that one page serves light and dark mode. Names from files must pass through plot_text() first.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product
from operator import itemgetter
from typing import Any

from bitsnap.errors import printable
from bitsnap.report.report_data import (
    ROLE_ORDER,
    RunData,
    error_text,
    plot_text,
    ratio_text,
    role_text,
    share_label,
    size_text,
    size_unit,
)

Trace = dict[str, Any]
# Larger ratios are drawn at this height; the hover text has the number. A weight with a master reaches 350,000.
HIGHEST_RATIO = 64
# Runs of up to this many checkpoints have their steps at even distances.
_MOST_CATEGORIES = 80
_MOST_TICKS = 14  # so that labels are not turned
_CODEC_COLOURS = 8


@dataclass
class Figure:
    """One card of the page. It has a variant for each combination of the options of its controls."""

    name: str
    title: str
    caption: str
    controls: list[dict[str, Any]] = field(default_factory=list)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    height: int = 360
    wide: bool = False

    def add(self, data: list[Trace], layout: dict[str, Any], *choice: int) -> None:
        self.variants[",".join(map(str, choice))] = {"data": data, "layout": layout}


def trace(kind: str, name: str, x: Sequence[Any], y: Sequence[Any], hover: str = "%{customdata}", **more: Any) -> Trace:
    return {"type": kind, "name": name, "x": x, "y": y, "hovertemplate": hover, **more}


def curve(name: str, x: Sequence[Any], y: Sequence[Any], hover: str = "%{customdata}", **more: Any) -> Trace:
    """A line with a marker at each point."""
    return trace("scatter", name, x, y, hover, **{"mode": "lines+markers", **more})


def control(label: str, options: Iterable[str], chosen: int = 0) -> dict[str, Any]:
    """A choice between options, which are shown as text, not as markup."""
    return {"label": label, "options": [printable(option) for option in options], "chosen": chosen}


class StepAxis:
    """The horizontal axis of a figure over the steps of one run, or of two. Few steps stand at even distances."""

    def __init__(self, *steps: Iterable[int]) -> None:
        self._steps = sorted({step for some in steps for step in some})
        self._even = len(self._steps) <= _MOST_CATEGORIES

    def labels(self, steps: Iterable[int]) -> list[Any]:
        return [str(step) for step in steps] if self._even else list(steps)

    def layout(self, yaxis: dict[str, Any], **more: Any) -> dict[str, Any]:
        xaxis: dict[str, Any] = {"title": {"text": "step"}, "nticks": _MOST_TICKS}
        if self._even:
            xaxis |= {"type": "category", "categoryorder": "array", "categoryarray": self.labels(self._steps)}
        # The bars of a few checkpoints are not as wide as the page.
        gap = max(0.28, 0.9 - 0.08 * len(self._steps))
        return {"xaxis": xaxis, "yaxis": yaxis, "hovermode": "x unified", "bargap": gap, **more}


def axis_of(data: RunData) -> StepAxis:
    """The axis of the checkpoints of the run, and of the second one if there is one."""
    return StepAxis(*([entry["step"] for entry in each.checkpoints] for each in (data, data.against) if each))


def gaps(lines: Sequence[dict[int, float]], axis: StepAxis) -> list[Trace]:
    """Marks, with a text, of the steps whose values are NaN or infinite, which no line can show."""
    steps = sorted({step for values in lines for step, value in values.items() if not math.isfinite(value)})
    if not steps:
        return []
    lowest = min((value for values in lines for value in values.values() if math.isfinite(value)), default=0.0)
    style = {"mode": "markers+text", "marker": {"symbol": "x", "size": 8, "color": "@used"}, "showlegend": False}
    more = {"text": ["not finite"] * len(steps), "textposition": "top center", "textfont": {"size": 10}, **style}
    return [trace("scatter", "not finite", axis.labels(steps), [lowest] * len(steps), "not finite", **more)]


def second_style() -> dict[str, Any]:
    """How the lines of the second run are drawn."""
    return {"line": {"color": "@used", "width": 2, "dash": "dash"}, "marker": {"color": "@used", "size": 6}}


def _parts(checkpoint: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Raw and stored bytes by role, of the pool of small tensors, and of the index."""
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
    """Stored bytes of each checkpoint, stacked by role, and a line of its raw bytes."""
    checkpoints = data.checkpoints
    axis_x = axis_of(data)
    steps = axis_x.labels(checkpoint["step"] for checkpoint in checkpoints)
    figure = Figure(
        "bytes",
        "Bytes over the run",
        "Size of each checkpoint on disk, by the role of its tensors. The dotted line is the raw size."
        + (" The dashed line is what the second run stores." if data.against else ""),
        [control("Show", ["each checkpoint", "added up", "share of what is stored"])],
        height=400,
        wide=True,
    )
    parts = [_parts(checkpoint) for checkpoint in checkpoints]
    names = _present(checkpoints)
    raw = [checkpoint["raw_bytes"] for checkpoint in checkpoints]
    totals = [max(1, sum(stored for _, stored in part.values())) for part in parts]
    for choice in range(3):
        traces: list[Trace] = []
        for name in names:
            sizes = [part.get(name, (0, 0))[1] for part in parts]
            stored: list[float] = [*accumulate(sizes)] if choice == 1 else [*sizes]
            said = [size_text(size) for size in stored]
            if choice == 2:
                stored = [100 * size / total for size, total in zip(sizes, totals, strict=True)]
                said = [f"{text}, {share_label(share / 100)}" for text, share in zip(said, stored, strict=True)]
            marker = {"color": role_colour(name)}
            traces.append(trace("bar", role_text(name), steps, stored, customdata=said, marker=marker))
        axis: dict[str, Any] = {"ticksuffix": " %", "range": [0, 100]}
        if choice != 2:
            whole = list(accumulate(raw)) if choice == 1 else raw
            said = [size_text(size) for size in whole]
            style: dict[str, Any] = {
                "line": {"color": "@ink", "width": 1.5, "dash": "dot"},
                "marker": {"color": "@ink", "size": 5},
            }
            traces.append(curve("raw", steps, whole, customdata=said, **style))
            if data.against:
                traces.append(_second_sizes(data.against, axis_x, added_up=choice == 1))
            unit, suffix = size_unit(max(size for each in traces for size in each["y"]))
            axis = {"ticksuffix": f" {suffix}"}
            for each in traces:
                each["y"] = [size / unit for size in each["y"]]
        figure.add(traces, axis_x.layout(axis, barmode="stack"), choice)
    return figure


def _second_sizes(run: RunData, axis: StepAxis, added_up: bool) -> Trace:
    """The stored bytes of the second run's checkpoints."""
    sizes = [checkpoint["stored_bytes"] for checkpoint in run.checkpoints]
    sizes = [*accumulate(sizes)] if added_up else sizes
    said = [size_text(size) for size in sizes]
    steps = axis.labels(checkpoint["step"] for checkpoint in run.checkpoints)
    return curve(plot_text(run.label), steps, sizes, customdata=said, **second_style())


def ratio_figure(data: RunData) -> Figure:
    checkpoints = data.checkpoints
    axis_x = axis_of(data)
    figure = Figure(
        "ratio",
        "How many times smaller",
        f"Raw size over stored size. A triangle at the top is above {HIGHEST_RATIO}×: a weight costs little if "
        "its master is stored, and unchanged chunks are stored once.",
        [control("Show", ["ratio", "share of raw"])],
    )
    names = [name for name in _present(checkpoints) if name not in {"index", "pool"}]
    lines: list[tuple[str, str, list[dict[str, Any]], list[tuple[int, int]]]] = [
        (role_text(name), role_colour(name), checkpoints, [_parts(each).get(name, (0, 0)) for each in checkpoints])
        for name in names
    ]
    for run, label, colour in ((data, "whole", "@ink"), (data.against, "", "@used")):
        if run:
            sums = [(each["raw_bytes"], each["stored_bytes"]) for each in run.checkpoints]
            lines.append((label or plot_text(run.label), colour, run.checkpoints, sums))
    for choice in range(2):
        traces: list[Trace] = []
        for name, colour, these, sizes in lines:
            ratios = [raw / stored if raw and stored else None for raw, stored in sizes]
            high = [choice == 0 and ratio is not None and ratio > HIGHEST_RATIO for ratio in ratios]
            values: list[float | None] = [100 * stored / raw if raw else None for raw, stored in sizes]
            if choice == 0:
                values = [ratio and min(ratio, HIGHEST_RATIO) for ratio in ratios]
            said = [
                f"{ratio_text(ratio)}, {size_text(raw)} → {size_text(stored)}"
                for ratio, (raw, stored) in zip(ratios, sizes, strict=True)
            ]
            style = {"color": colour, "width": 3 if colour == "@ink" else 1.75}
            style |= {"dash": "dash"} if colour == "@used" else {}
            marker = {
                "color": colour,
                "size": [10 if above else 6 for above in high],
                "symbol": ["triangle-up" if above else "circle" for above in high],
            }
            more: dict[str, Any] = {"customdata": said, "line": style, "marker": marker, "cliponaxis": False}
            traces.append(curve(name, axis_x.labels(each["step"] for each in these), values, **more))
        ticks: list[float] = [1, 1.5, 2, 3, 4, 6, 8, 16, 32, 64]
        shown = [value for each in traces for value in each["y"] if value]
        if choice == 0 and shown and max(shown) < 2 * min(shown):  # hardly a tick would be in this range
            ticks = [tick for tick in ticks if tick > 2] + [tick / 10 for tick in range(2, 21)]
        axis: dict[str, Any] = {"ticksuffix": " %", "rangemode": "tozero"}
        if choice == 0:
            axis = {"type": "log", "tickvals": ticks, "ticktext": [f"{tick}×" for tick in ticks]}
        figure.add(traces, axis_x.layout(axis), choice)
    return figure


# ---- choices


def codec_figure(data: RunData) -> Figure | None:
    """The share of each codec in the bytes of each role, by checkpoint; each chunk of a tensor counts equally."""
    steps = sorted(data.snapshots)
    axis_x = StepAxis(steps)
    shares: dict[str, dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    whole: dict[str, float] = defaultdict(float)
    for step in steps:
        for tensor in data.snapshots[step]["tensors"]:
            counts = tensor.get("codecs", {})
            for codec, count in counts.items():
                size = tensor["raw_bytes"] * count / sum(counts.values())
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
        "Share of the raw bytes that each codec encoded. “+base” is coded against the checkpoint before; the table "
        "below lists the reasons.",
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
            pairs = list(zip(sizes, totals, strict=True))
            said = [f"{share_label(size / total)}, {size_text(size)} raw" if size else "–" for size, total in pairs]
            pattern = {"shape": "/" if index >= _CODEC_COLOURS else "", "solidity": 0.25}
            marker = {"color": f"@codec{index % _CODEC_COLOURS}", "pattern": pattern}
            percents = [100 * size / total if total else 0 for size, total in pairs]
            x = axis_x.labels(steps)
            traces.append(trace("bar", plot_text(codec), x, percents, customdata=said, marker=marker))
        axis = {"ticksuffix": " %", "range": [0, 100]}
        figure.add(traces, axis_x.layout(axis, barmode="stack"), choice)
    return figure


# ---- loss


def lossy_tensors(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    return [tensor for tensor in snapshot["tensors"] if tensor.get("quantizer")]


def _mean(pairs: Iterable[tuple[float, float]]) -> float:
    numbers = list(pairs)
    weight = sum(count for _, count in numbers)
    return sum(value * count for value, count in numbers) / weight if weight else 0.0


def losses(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    """Bounds and measured errors by role and rule; errors are means over elements, or the largest."""
    groups: dict[tuple[str, str, float], list[dict[str, Any]]] = defaultdict(list)
    for tensor in lossy_tensors(snapshot):
        quantizer = tensor["quantizer"]
        groups[tensor["role"], quantizer["name"], quantizer["amount"]].append(tensor)
    lines = []
    for (role, name, amount), tensors in groups.items():
        found = [tensor["quantizer"] for tensor in tensors]
        updates = [quantizer["update"] for quantizer in found if quantizer.get("update")]
        bounds = [quantizer["bound"] for quantizer in found]
        reached = [quantizer["max_absolute" if name == "clusters" else "max_relative"] for quantizer in found]
        if found[0]["bound_of"] == "of the update":
            reached = [update["largest"] for update in updates]
        moved = _mean((update["mean_of_updates"], update["elements"]) for update in updates)
        elements = sum(quantizer["elements"] for quantizer in found)
        lines.append(
            {
                "role": role,
                "rule": f"{name} {amount:g}",
                "tensors": len(tensors),
                "elements": elements,
                "bits": 8 * sum(tensor["stored_bytes"] for tensor in tensors) / elements if elements else None,
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
    "update_step": ("multiples of the update", "@exp_avg"),
}
_ERRORS = [
    ("mean_relative", "mean relative error", "mre"),
    ("max_relative", "largest relative error", None),
    ("mean_square", "mean square error", "mse"),
]


def rate_figure(data: RunData) -> Figure | None:
    """Bits and errors of quantizers on a state, and of what the run stores."""
    state = next((each for each in reversed(data.states) if any(role["quantizers"] for role in each["roles"])), None)
    if state is None:
        return None
    roles = [role for role in state["roles"] if role["quantizers"]]
    used = losses(data.snapshots[state["step"]]) if state["step"] in data.snapshots else []
    of_updates = _update_errors(data)
    sweeps = {role["role"]: traces for role in roles if (traces := _rate_traces(role["quantizers"], _update_error))}
    figure = Figure(
        "rate",
        "Bits against error",
        f"What quantizers would make of step {state['step']}: left and down is better. Numbers are bits of mantissa, "
        "clusters, or fractions of an update."
        + (" Stars are what this run stores." if used else " This step is stored without loss."),
        [
            control("Of", [role_text(role["role"]) for role in roles], min(1, len(roles) - 1)),
            control("Error", [name for _, name, _ in _ERRORS] + (["update error"] if of_updates or sweeps else [])),
        ],
    )
    for i, role in enumerate(roles):
        for j, (key, name, used_key) in enumerate(_ERRORS):
            traces = _rate_traces(role["quantizers"], itemgetter(key))
            for line in used:
                if line["role"] != role["role"] or not used_key or line["bits"] is None:
                    continue
                text = f"{plot_text(line['rule'])}<br>{line['bits']:.2f} bits, {error_text(line[used_key])}"
                if line["update"] is not None:
                    text += f"<br>updates off by {error_text(line['update'])} in the mean"
                marker = {"size": 18, "line": {"color": "@ink", "width": 1}}
                traces.append(_stars("this run", [(line["bits"], line[used_key], text)], marker))
            figure.add(traces, _rate_layout(name), i, j)
        if of_updates or sweeps:
            traces = [*sweeps.get(role["role"], []), *of_updates.get(role["role"], [])]
            figure.add(traces, _rate_layout("mean error of the update"), i, len(_ERRORS))
    return figure


def _rate_layout(error: str) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": "bits per element"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": error}, "type": "log", "exponentformat": "power", "dtick": 1},
    }


def _stars(name: str, points: list[tuple[float, float, str]], marker: dict[str, Any]) -> Trace:
    """What the run stores: bits, error and hover text of each point."""
    bits, errors, texts = (list(column) for column in zip(*points, strict=True))
    more = {"mode": "markers", "customdata": texts, "marker": {"symbol": "star", "color": "@used", **marker}}
    return trace("scatter", name, bits, errors, "%{customdata}<extra></extra>", **more)


def _update_error(point: dict[str, Any]) -> float:
    """The mean error of the update as a fraction of the mean update; 0 if it is not known."""
    update = point["update"]
    return float(update["mean"] / update["mean_of_updates"]) if update and update["mean_of_updates"] else 0.0


def _update_errors(data: RunData) -> dict[str, list[Trace]]:
    """Bits that the run stores for first moments, and the error of updates, by step."""
    points: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for step in sorted(data.snapshots):
        for line in losses(data.snapshots[step]):
            if line["update"] is not None and line["bits"] is not None:
                said = f"{line['bits']:.2f} bits, {error_text(line['update'])}"
                text = f"step {step}, {plot_text(line['rule'])}<br>{said}"
                points[line["role"]].append((line["bits"], line["update"], text))
    return {role: [_stars("this run, each step", some, {"size": 13})] for role, some in points.items()}


def _rate_traces(points: list[dict[str, Any]], error: Callable[[dict[str, Any]], float]) -> list[Trace]:
    """Two lines for each family, alone and against the base. The axis is logarithmic: errors of 0 are left out."""
    traces: list[Trace] = []
    for on_base, (family, (label, colour)) in product((False, True), _FAMILIES.items()):
        chosen = [
            (point["bits_on_base"] if on_base else point["nominal_bits"] or point["bits"], point)
            for point in points
            if point["name"] == family and (not on_base or point["bits_on_base"] is not None) and error(point) > 0
        ]
        if not chosen:
            continue
        name = f"{label}, against the base" if on_base else label
        more = {
            "mode": "lines+markers" + ("" if on_base else "+text"),
            "text": [str(point["parameter"]) for _, point in chosen],
            "textposition": "top right",
            "textfont": {"size": 10},
            "customdata": [
                f"{label}, {point['parameter']}<br>{bits:.2f} bits per element, {error_text(error(point))}"
                for bits, point in chosen
            ],
            "line": {"color": colour, "width": 2, "dash": "solid" if on_base else "dot"},
            "marker": {"color": colour, "size": 7, "symbol": "circle" if on_base else "circle-open"},
        }
        errors = [error(point) for _, point in chosen]
        traces.append(curve(name, [bits for bits, _ in chosen], errors, "%{customdata}<extra></extra>", **more))
    return traces
