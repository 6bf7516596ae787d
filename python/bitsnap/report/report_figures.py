"""Figures of the costs of a run: bytes, ratios, codecs, and times.

A figure is plain data for plotly and report.js. A colour is the name of one of the page's own colours, such as
"@weight", so that one page serves light and dark mode. Names from files must pass through plot_text() first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from bitsnap.errors import printable
from bitsnap.report.report_data import RunData
from bitsnap.report.report_text import ROLE_ORDER, plot_text, ratio_text, role_text, share_label, size_text, size_unit

Trace = dict[str, Any]
# Larger ratios are drawn at this height; the hover text has the number. A weight with a master reaches 350,000.
HIGHEST_RATIO = 64
# Runs of up to this many checkpoints have their steps at even distances.
_MOST_CATEGORIES = 80
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


def _step_layout(steps: Sequence[int], yaxis: dict[str, Any], **more: Any) -> dict[str, Any]:
    xaxis = {"title": {"text": "step"}, **({"type": "category"} if len(steps) <= _MOST_CATEGORIES else {})}
    return {"xaxis": xaxis, "yaxis": yaxis, "hovermode": "x unified", **more}


def _step_labels(steps: Sequence[int]) -> list[Any]:
    return [str(step) for step in steps] if len(steps) <= _MOST_CATEGORIES else list(steps)


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
    steps = [checkpoint["step"] for checkpoint in checkpoints]
    figure = Figure(
        "bytes",
        "Bytes over the run",
        "Size of each checkpoint on disk, by the role of its tensors. The line is the raw size.",
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
            traces.append(trace("bar", role_text(name), _step_labels(steps), stored, customdata=said, marker=marker))
        axis: dict[str, Any] = {"ticksuffix": " %", "range": [0, 100]}
        if choice != 2:
            whole = list(accumulate(raw)) if choice == 1 else raw
            said = [size_text(size) for size in whole]
            style: dict[str, Any] = {
                "line": {"color": "@ink", "width": 1.5, "dash": "dot"},
                "marker": {"color": "@ink", "size": 5},
            }
            traces.append(curve("raw", _step_labels(steps), whole, customdata=said, **style))
            unit, suffix = size_unit(max(max(raw), *totals) if choice == 0 else sum(raw))
            axis = {"ticksuffix": f" {suffix}"}
            for each in traces:
                each["y"] = [size / unit for size in each["y"]]
        figure.add(traces, _step_layout(steps, axis, barmode="stack", bargap=0.28), choice)
    return figure


def ratio_figure(data: RunData) -> Figure:
    checkpoints = data.checkpoints
    steps = [checkpoint["step"] for checkpoint in checkpoints]
    figure = Figure(
        "ratio",
        "How many times smaller",
        f"Raw size over stored size. A triangle at the top is above {HIGHEST_RATIO}×: a weight costs little if "
        "its master is stored, and unchanged chunks are stored once.",
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
            high = [choice == 0 and ratio is not None and ratio > HIGHEST_RATIO for ratio in ratios]
            values: list[float | None] = [100 * stored / raw if raw else None for raw, stored in sizes]
            if choice == 0:
                values = [ratio and min(ratio, HIGHEST_RATIO) for ratio in ratios]
            said = [
                f"{ratio_text(ratio)}, {size_text(raw)} → {size_text(stored)}"
                for ratio, (raw, stored) in zip(ratios, sizes, strict=True)
            ]
            style = {"color": colour, "width": 3 if name == "whole" else 1.75}
            marker = {
                "color": colour,
                "size": [10 if above else 6 for above in high],
                "symbol": ["triangle-up" if above else "circle" for above in high],
            }
            more: dict[str, Any] = {"customdata": said, "line": style, "marker": marker, "cliponaxis": False}
            traces.append(curve(name, _step_labels(steps), values, **more))
        ticks = [1, 1.5, 2, 3, 4, 6, 8, 16, 32, 64]
        axis: dict[str, Any] = {"ticksuffix": " %", "rangemode": "tozero"}
        if choice == 0:
            axis = {"type": "log", "tickvals": ticks, "ticktext": [f"{tick}×" for tick in ticks]}
        figure.add(traces, _step_layout(steps, axis), choice)
    return figure


# ---- choices


def codec_figure(data: RunData) -> Figure | None:
    """The share of each codec in the bytes of each role, by checkpoint; each chunk of a tensor counts equally."""
    steps = sorted(data.snapshots)
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
            traces.append(trace("bar", plot_text(codec), _step_labels(steps), percents, customdata=said, marker=marker))
        axis = {"ticksuffix": " %", "range": [0, 100]}
        figure.add(traces, _step_layout(steps, axis, barmode="stack", bargap=0.28), choice)
    return figure


def reasons(data: RunData, most_rows: int = 20_000) -> dict[str, Any]:
    """The table of reasons: rows of the newest checkpoint first; a text that repeats is stored once."""
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


# ---- time


def timing_figure(data: RunData) -> Figure | None:
    raw_bytes = {checkpoint["step"]: checkpoint["raw_bytes"] for checkpoint in data.checkpoints}
    steps = _step_labels([timing.step for timing in data.timings])
    traces: list[Trace] = []
    stalls = [timing.stall_seconds for timing in data.timings]
    if any(stall is not None for stall in stalls):
        traces.append(trace("bar", "stall", steps, stalls, "%{y:.3~s}s", marker={"color": "@exp_avg"}))
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
    figure.add(traces, _step_layout(steps, axis, yaxis2=speed_axis))
    return figure
