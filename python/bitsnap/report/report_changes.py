"""Figures of how states change: by layer, by distance, by bit; and how coders compress it. See report_figures."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from operator import itemgetter
from typing import Any, TypeAlias

from bitsnap.report.report_data import ROLE_ORDER, RunData, count_text, plot_text, ratio_text, role_text, share_label
from bitsnap.report.report_figures import HIGHEST_RATIO, Figure, Trace, control, role_colour, trace

# Rows of tensors that belong to no layer; any others share one row.
_MOST_OTHER_ROWS = 6
# The bins with a label, their least distance.
_DISTANCE_TICKS = {0: "0", 1: "1", 4: "8", 8: "128", 12: "2 k", 16: "33 k", 20: "524 k", 24: "8 M", 28: "134 M"}
_ROLE_PREFIX = re.compile(r"^(model|module|master|optimizer|state|weight|exp_avg_sq|exp_avg)[./]")


def _compared(data: RunData) -> list[dict[str, Any]]:
    """The states that have an earlier one to compare with, and something in common with it."""
    return [state for state in data.states if any(role["change"] for role in state["roles"])]


def _groups(state: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The groups of a state, which are by role and dtype, with their labels."""
    names = [group["role"] for group in state["roles"]]
    place = {role: i for i, role in enumerate(ROLE_ORDER)}
    return [
        (role_text(group["role"]) + (f" {group['dtype']}" if names.count(group["role"]) > 1 else ""), group)
        for group in sorted(state["roles"], key=lambda group: (place.get(group["role"], len(place)), group["dtype"]))
    ]


def _step_control(states: list[dict[str, Any]]) -> dict[str, Any]:
    options = [
        f"{state['step']}" + (f" (after {state['against']['step']})" if state["against"] else "") for state in states
    ]
    return control("Step", options, len(states) - 1)


# ---- layer by step


def _row_of(tensor: dict[str, Any]) -> tuple[float, str]:
    if tensor["layer"] is not None:
        return tensor["layer"], f"layer {tensor['layer']}"
    name = tensor["name"]
    while (shorter := _ROLE_PREFIX.sub("", name)) != name:
        name = shorter
    name = re.sub(r"[./](weight|bias)$", "", name)
    return math.inf, name if len(name) <= 24 else f"{name[:11]}…{name[-11:]}"


def _studied(data: RunData) -> list[tuple[int, dict[str, Any]]]:
    return [
        (state["step"], tensor) for state in data.states for tensor in state["tensors"] if tensor["skipped"] is None
    ]


def places(data: RunData) -> dict[tuple[str, str], tuple[float, str]]:
    """The row of each studied tensor in the map of layers, by role and name: its place and label."""
    found = {(tensor["role"], tensor["name"]): _row_of(tensor) for _, tensor in _studied(data)}
    for role in {role for role, _ in found}:
        loose = {row for (key, _), row in found.items() if key == role and row[0] == math.inf}
        if len(loose) > _MOST_OTHER_ROWS:
            found |= {key: (math.inf, "all others") for key, row in found.items() if key[0] == role and row in loose}
    return found


def _distance(change: dict[str, Any]) -> float:
    """The mean of log2 of the distances; 0 for elements that did not change."""
    return float(sum(math.log2(part["from"]) * part["share"] for part in change["ulp"] if part["from"] > 1))


def _mean(tensors: list[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> float | None:
    """The mean over elements of what `value` gives for the change of a tensor."""
    compared = [tensor for tensor in tensors if tensor["change"]]
    total = sum(tensor["elements"] for tensor in compared)
    return sum(value(tensor["change"]) * tensor["elements"] for tensor in compared) / total if total else None


def _ratio(tensors: list[dict[str, Any]]) -> float | None:
    sized = [tensor for tensor in tensors if tensor["stored_bytes"] is not None]
    stored = sum(tensor["stored_bytes"] for tensor in sized)
    return sum(tensor["raw_bytes"] for tensor in sized) / stored if stored else None


# Rows, by place and name, of steps, of tensors.
_Cells: TypeAlias = dict[tuple[float, str], dict[int, list[dict[str, Any]]]]
_RATIO_TICKS = [1, 2, 4, 8, 16, 32, 64]
# The value of the tensors of one cell, its text, and the colour bar.
_METRICS: dict[str, tuple[Callable[[list[dict[str, Any]]], float | None], Callable[[float], str], dict[str, Any]]] = {
    "changed": (lambda tensors: _mean(tensors, itemgetter("changed")), share_label, {"tickformat": ".0%"}),
    "distance": (lambda tensors: _mean(tensors, _distance), "{:.1f} bits".format, {"ticksuffix": " bits"}),
    "ratio": (
        _ratio,
        ratio_text,
        {"tickvals": [math.log2(tick) for tick in _RATIO_TICKS], "ticktext": [f"{tick}×" for tick in _RATIO_TICKS]},
    ),
}


def layers_figure(data: RunData) -> Figure | None:
    """A heat map of layer by step, for each role: the changed elements, their distances, and the ratios."""
    tensors = _studied(data)
    rows = places(data)
    found = {tensor["role"] for _, tensor in tensors}
    roles = [role for role in ROLE_ORDER if role in found]
    if not roles:
        return None
    steps = [state["step"] for state in data.states]
    compared = [state["step"] for state in _compared(data)]
    metrics = ["distance", "changed", "ratio"] if _compared(data) else ["ratio"]
    figure = Figure(
        "layers",
        "Layer by layer",
        "“Distance” is how far elements moved since the checkpoint before, as bits of the number of representable "
        "values between; “changed” the share of elements with other bits; “ratio” raw over stored. A click on a cell "
        "lists its tensors.",
        [control("Of", map(role_text, roles)), control("Show", metrics)],
        wide=True,
    )
    tallest = 1
    for i, role in enumerate(roles):
        cells: _Cells = defaultdict(lambda: defaultdict(list))
        for step, tensor in tensors:
            if tensor["role"] == role:
                cells[rows[role, tensor["name"]]][step].append(tensor)
        tallest = max(tallest, len(cells))
        for j, metric in enumerate(metrics):
            figure.add(*_heat_map(metric, cells, steps if metric == "ratio" else compared), i, j)
    figure.height = max(300, min(110 + 30 * tallest, 900))
    return figure


def _heat_map(metric: str, cells: _Cells, steps: list[int]) -> tuple[list[Trace], dict[str, Any]]:
    value, text, bar = _METRICS[metric]
    rows = sorted(cells)
    values = [[value(cells[row][step]) for step in steps] for row in rows]
    texts = [["–" if each is None else text(each) for each in line] for line in values]
    if metric == "ratio":
        values = [[each and math.log2(min(each, HIGHEST_RATIO)) for each in line] for line in values]
    known = [each for line in values for each in line if each is not None]
    shown: Trace = {
        "type": "heatmap",
        "x": [str(step) for step in steps],
        "y": [plot_text(name) for _, name in rows],
        "z": values,
        "text": texts,
        "texttemplate": "%{text}" if len(steps) <= 14 and len(rows) <= 40 else "",
        "hovertemplate": f"%{{y}}, step %{{x}}<br>{metric}: %{{text}}<extra></extra>",
        "colorscale": "@sequential",
        "zmin": 0,
        "zmax": 1.0 if metric == "changed" else max(known, default=1.0) or 1.0,
        "xgap": 2,
        "ygap": 2,
        "colorbar": bar,
    }
    axes = {
        "xaxis": {"type": "category", "title": {"text": "step"}, "showgrid": False, "nticks": 14},
        "yaxis": {"type": "category", "autorange": "reversed", "showgrid": False},
    }
    return [shown], axes


# ---- distances


def distance_figure(data: RunData) -> Figure | None:
    """A histogram of the ULP distances of elements, for each role."""
    states = _compared(data)
    if not states:
        return None
    figure = Figure(
        "distances",
        "How far elements moved",
        "Share of elements by distance in ULP, that is in representable values of the dtype between what an element "
        "was and what it is. Each bin is twice as wide as the one before; far right stands what changed its sign.",
        [_step_control(states)],
        height=300,
    )
    for choice, state in enumerate(states):
        traces: list[Trace] = []
        highest = 1
        for label, group in _groups(state):
            if not group["change"]:
                continue
            bins = group["change"]["ulp"]
            highest = max([highest, *(place for place, part in enumerate(bins) if part["share"] > 0)])
            name, percents = plot_text(label), [100 * part["share"] for part in bins]
            said = [f"{share_label(part['share'])} moved {_range_text(part)}" for part in bins]
            hover = f"{name}<br>%{{customdata}}<extra></extra>"
            style = {"color": role_colour(group["role"]), "width": 2, "shape": "spline", "smoothing": 0.5}
            more = {"mode": "lines", "customdata": said, "line": style, "fill": "tozeroy"}
            traces.append(trace("scatter", name, list(range(len(bins))), percents, hover, **more))
        places = [place for place in _DISTANCE_TICKS if place <= highest + 1]
        axis = {"tickvals": places, "ticktext": [_DISTANCE_TICKS[place] for place in places], "showgrid": False}
        layout = {
            "xaxis": {**axis, "range": [-0.3, highest + 0.5], "title": {"text": "distance in ULP"}},
            "yaxis": {"ticksuffix": " %", "rangemode": "tozero"},
        }
        figure.add(traces, layout, choice)
    return figure


def _range_text(part: dict[str, Any]) -> str:
    if part["to"] == 0:
        return "not at all"
    return "1 ULP" if part["to"] == 1 else f"{count_text(part['from'])} to {count_text(part['to'])} ULP"


# ---- bits


def bits_figure(data: RunData) -> Figure | None:
    """For each bit, from the sign down: how often it is unchanged, or set."""
    if not data.states:
        return None
    states = _compared(data) or data.states[-1:]
    metrics = (["same as before"] if _compared(data) else []) + ["set"]
    figure = Figure(
        "bits",
        "Bit by bit",
        "From the sign down. A bit that is always what it was costs nothing; one that is the same in half of all "
        "elements is noise, and costs a bit. Gaps stand between sign, exponent and mantissa.",
        [control("Show", metrics), _step_control(states)],
        height=280,
    )
    for j, state in enumerate(states):
        groups = _groups(state)
        width = max((len(group["bits"]["ones"]) for _, group in groups), default=0)
        layout = {
            "xaxis": {"title": {"text": "bit, from the sign down"}, "showgrid": False, "dtick": 4},
            "yaxis": {"type": "category", "autorange": "reversed", "showgrid": False},
            "shapes": [_mark(row, edge) for row, (_, group) in enumerate(groups) for edge in _edges(group["dtype"])],
        }
        for i, metric in enumerate(metrics):
            key = "same" if metric == "same as before" else "ones"
            lines = [group["bits"][key] or [] for _, group in groups]
            shown: Trace = {
                "type": "heatmap",
                "x": list(range(width)),
                "y": [plot_text(label) for label, _ in groups],
                "z": [[*line, *[None] * (width - len(line))] for line in lines],
                "text": [[_bit_name(group["dtype"], bit) for bit in range(width)] for _, group in groups],
                "customdata": [[*map(share_label, line), *[""] * (width - len(line))] for line in lines],
                "hovertemplate": f"%{{y}}, %{{text}}<br>{metric}: %{{customdata}}<extra></extra>",
                "colorscale": "@sequential" if key == "same" else "@diverging",
                "zmin": 0.5 if key == "same" else 0,
                "zmax": 1,
                "xgap": 2,
                "ygap": 6,
                "colorbar": {"tickformat": ".0%"},
            }
            figure.add([shown], layout, i, j)
    return figure


_EXPONENTS = {"F64": 11, "F32": 8, "BF16": 8, "F16": 5, "F8_E4M3": 4, "F8_E5M2": 5}


def _edges(dtype: str) -> list[int]:
    return [1, 1 + _EXPONENTS[dtype]] if dtype in _EXPONENTS else []


def _bit_name(dtype: str, bit: int) -> str:
    if dtype not in _EXPONENTS:
        return f"bit {bit}"
    exponent = _EXPONENTS[dtype]
    if bit == 0:
        return "sign"
    return f"exponent bit {bit}" if bit <= exponent else f"mantissa bit {bit - exponent}"


def _mark(row: int, edge: int) -> dict[str, Any]:
    at = {"x0": edge - 0.5, "x1": edge - 0.5, "y0": row - 0.44, "y1": row + 0.44}
    return {"type": "line", **at, "line": {"color": "@card", "width": 7}}


def planes_figure(data: RunData) -> Figure | None:
    """Entropy of order 0 of each byte plane, alone and XORed with the checkpoint before."""
    if not data.states:
        return None
    figure = Figure(
        "planes",
        "Entropy by byte plane",
        "Bits of order 0 for each byte, from the most significant one on; 8 is noise. Pale is the byte alone, full its "
        "XOR with the checkpoint before.",
        [_step_control(data.states)],
        height=300,
    )
    for choice, state in enumerate(data.states):
        traces: list[Trace] = []
        for name, key, opacity in (("alone", "planes", 0.4), ("XOR with the one before", "xor_planes", 1)):
            parts = [
                (plot_text(label), group["role"], str(byte), bits)
                for label, group in _groups(state)
                for byte, bits in enumerate(group["entropy"][key] or [])
            ]
            if not parts:
                continue
            labels, roles, planes, values = (list(column) for column in zip(*parts, strict=True))
            said = [f"{label}, byte {byte}" for label, byte in zip(labels, planes, strict=True)]
            colours = [role_colour(role) for role in roles]
            more = {"customdata": said, "marker": {"color": colours, "opacity": opacity}, "showlegend": False}
            hover = f"%{{customdata}}<br>{name}: %{{y:.2f}} bits of 8<extra></extra>"
            traces.append(trace("bar", name, [labels, planes], values, hover, **more))
        layout = {
            "barmode": "group",
            "bargap": 0.25,
            "xaxis": {"type": "multicategory", "showgrid": False, "dividercolor": "@grid", "tickangle": 0},
            "yaxis": {"range": [0, 8.2], "dtick": 2, "title": {"text": "bits"}},
        }
        figure.add(traces, layout, choice)
    return figure


# ---- coders


def coders_figure(data: RunData) -> Figure | None:
    """The bits per element that each codec and each baseline needs."""
    state = next((each for each in reversed(data.states) if any(role["codecs"] for role in each["roles"])), None)
    if state is None:
        return None
    groups = [(label, group) for label, group in _groups(state) if group["codecs"]]
    figure = Figure(
        "coders",
        "What coders make of it",
        f"Bits per element at step {state['step']}, without the help of other tensors: bitsnap's codecs in blue, "
        "baselines, at their best with or without byte planes and XOR, in grey. The line is what the run stores.",
        [control("Of", [label for label, _ in groups], min(1, len(groups) - 1))],
        height=420,
    )
    for choice, (_, group) in enumerate(groups):
        best: dict[str, tuple[float, str, str]] = {}
        for own, coded in [*product([True], group["codecs"]), *product([False], group["baselines"])]:
            name = coded["name"] + (" + base" if "base" in coded["form"] and own else "")
            if name not in best or coded["bits"] < best[name][0]:
                best[name] = (coded["bits"], coded["form"], "@weight" if own else "@pool")
        order = sorted(best, key=lambda name: best[name][0], reverse=True)
        shown: Trace = {
            "type": "bar",
            "orientation": "h",
            "x": [best[name][0] for name in order],
            "y": [plot_text(name) for name in order],
            "customdata": [best[name][1] for name in order],
            "marker": {"color": [best[name][2] for name in order]},
            "hovertemplate": "%{y}, %{customdata}<br>%{x:.2f} bits per element<extra></extra>",
            "showlegend": False,
        }
        layout: dict[str, Any] = {
            "bargap": 0.35,
            "xaxis": {"title": {"text": "bits per element"}, "rangemode": "tozero"},
            "yaxis": {"type": "category", "showgrid": False},
            "margin": {"l": 8, "r": 12, "t": 30, "b": 8},
        }
        if group["stored_bytes"] is not None and group["elements"]:
            bits = 8 * group["stored_bytes"] / group["elements"]
            place = {"x0": bits, "x1": bits, "y0": 0, "y1": 1, "yref": "paper"}
            layout["shapes"] = [{"type": "line", **place, "line": {"color": "@used", "width": 2, "dash": "dot"}}]
            place = {"x": bits, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False}
            font = {"color": "@used", "size": 12}
            layout["annotations"] = [{**place, "text": f"stored: {bits:.2f}", "font": font}]
        figure.add([shown], layout, choice)
    return figure
