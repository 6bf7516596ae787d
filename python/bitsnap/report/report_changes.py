"""Figures of how states change: by layer, by distance, by bit; and how coders compress it. See report_figures."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import Any

from bitsnap.report.report_data import RunData
from bitsnap.report.report_figures import HIGHEST_RATIO, Figure, Trace, control, role_colour, trace
from bitsnap.report.report_text import ROLE_ORDER, count_text, plot_text, ratio_text, role_text, share_label

# Rows of tensors that belong to no layer; any others share one row.
_MOST_OTHER_ROWS = 6
# The bins with a label, their least distance.
_DISTANCE_TICKS = {0: "0", 1: "1", 4: "8", 8: "128", 12: "2 k", 16: "33 k", 20: "524 k", 24: "8 M", 28: "134 M"}
_ROLE_PREFIX = re.compile(r"^(model|module|master|optimizer|state|weight|exp_avg_sq|exp_avg)[./]")


def _compared(data: RunData) -> list[dict[str, Any]]:
    """The states that have an earlier one to compare with, and something in common with it."""
    return [state for state in data.states if any(role["change"] for role in state["roles"])]


def role_labels(state: dict[str, Any]) -> list[str]:
    """The labels of the groups of a state, which are by role and dtype."""
    names = [role["role"] for role in state["roles"]]
    return [
        role_text(role["role"]) + (f" {role['dtype']}" if names.count(role["role"]) > 1 else "")
        for role in state["roles"]
    ]


def _step_control(states: list[dict[str, Any]]) -> dict[str, Any]:
    options = [
        f"{state['step']}" + (f" (after {state['against']['step']})" if state["against"] else "") for state in states
    ]
    return control("Step", options, len(states) - 1)


def _in_order(groups: list[dict[str, Any]]) -> list[int]:
    place = {role: i for i, role in enumerate(ROLE_ORDER)}
    return sorted(range(len(groups)), key=lambda i: (place.get(groups[i]["role"], len(place)), groups[i]["dtype"]))


# ---- layer by step


def _row_of(tensor: dict[str, Any]) -> tuple[float, str]:
    if tensor["layer"] is not None:
        return tensor["layer"], f"layer {tensor['layer']}"
    name = tensor["name"]
    while (shorter := _ROLE_PREFIX.sub("", name)) != name:
        name = shorter
    name = re.sub(r"[./](weight|bias)$", "", name)
    return math.inf, name if len(name) <= 24 else f"{name[:11]}…{name[-11:]}"


def _distance(change: dict[str, Any]) -> float:
    """The mean of log2 of the distances; 0 for elements that did not change."""
    return float(sum(math.log2(part["from"]) * part["share"] for part in change["ulp"] if part["from"] > 1))


def _weighted(tensors: list[dict[str, Any]], value: Any) -> float | None:
    found = [(value(tensor), tensor["elements"]) for tensor in tensors]
    found = [(each, count) for each, count in found if each is not None]
    total = sum(count for _, count in found)
    return sum(each * count for each, count in found) / total if total else None


def _ratio(tensors: list[dict[str, Any]]) -> float | None:
    sizes = [(tensor["raw_bytes"], tensor["stored_bytes"]) for tensor in tensors if tensor["stored_bytes"] is not None]
    stored = sum(size for _, size in sizes)
    return sum(size for size, _ in sizes) / stored if stored else None


def layers_figure(data: RunData) -> Figure | None:
    """A heat map of layer by step, for each role: the changed elements, their distances, and the ratios."""
    tensors = [
        (state["step"], tensor) for state in data.states for tensor in state["tensors"] if tensor["skipped"] is None
    ]
    found = {tensor["role"] for _, tensor in tensors}
    roles = [role for role in ROLE_ORDER if role in found]
    if not roles:
        return None
    steps = [state["step"] for state in data.states]
    compared = [state["step"] for state in _compared(data)]
    metrics = ["changed", "distance", "ratio"] if _compared(data) else ["ratio"]
    figure = Figure(
        "layers",
        "Layer by layer",
        "“Changed” is the share of elements with other bits than in the checkpoint before; “distance” how far they "
        "moved, as bits of the number of representable values between; “ratio” raw over stored.",
        [control("Of", map(role_text, roles)), control("Show", metrics)],
        wide=True,
    )
    tallest = 1
    for i, role in enumerate(roles):
        cells: dict[str, dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
        order: dict[str, float] = {}
        for step, tensor in tensors:
            if tensor["role"] == role:
                place, row = _row_of(tensor)
                order[row] = place
                cells[row][step].append(tensor)
        rows = sorted(order, key=lambda row: (order[row], row))
        loose = [row for row in rows if order[row] == math.inf]
        if len(loose) > _MOST_OTHER_ROWS:
            rest: dict[int, list[dict[str, Any]]] = defaultdict(list)
            for row in loose:
                for step, some in cells.pop(row).items():
                    rest[step] += some
            cells["all others"] = rest
            rows = [row for row in rows if row not in loose] + ["all others"]
        tallest = max(tallest, len(rows))
        for j, metric in enumerate(metrics):
            figure.add(*_heat_map(metric, rows, steps if metric == "ratio" else compared, cells), i, j)
    figure.height = max(300, min(110 + 30 * tallest, 900))
    return figure


def _heat_map(
    metric: str, rows: list[str], steps: list[int], cells: dict[str, dict[int, list[dict[str, Any]]]]
) -> tuple[list[Trace], dict[str, Any]]:
    values: list[list[float | None]] = []
    texts: list[list[str]] = []
    for row in rows:
        some = [cells[row][step] for step in steps]
        if metric == "ratio":
            line = [_ratio(each) for each in some]
            texts.append([ratio_text(each) for each in line])
            line = [None if each is None else math.log2(min(each, HIGHEST_RATIO)) for each in line]
        elif metric == "changed":
            line = [_weighted(each, lambda t: t["change"]["changed"] if t["change"] else None) for each in some]
            texts.append(["–" if each is None else share_label(each) for each in line])
        else:
            line = [_weighted(each, lambda t: _distance(t["change"]) if t["change"] else None) for each in some]
            texts.append(["–" if each is None else f"{each:.1f} bits" for each in line])
        values.append(line)
    ticks = [1, 2, 4, 8, 16, 32, 64]
    bars: dict[str, dict[str, Any]] = {
        "changed": {"tickformat": ".0%"},
        "distance": {"ticksuffix": " bits"},
        "ratio": {"tickvals": [math.log2(tick) for tick in ticks], "ticktext": [f"{tick}×" for tick in ticks]},
    }
    known = [value for line in values for value in line if value is not None]
    top = {"changed": 1.0}.get(metric, max(known, default=1.0) or 1.0)
    shown: Trace = {
        "type": "heatmap",
        "x": [str(step) for step in steps],
        "y": [plot_text(row) for row in rows],
        "z": values,
        "text": texts,
        "texttemplate": "%{text}" if len(steps) <= 14 and len(rows) <= 40 else "",
        "hovertemplate": f"%{{y}}, step %{{x}}<br>{metric}: %{{text}}<extra></extra>",
        "colorscale": "@sequential",
        "zmin": 0,
        "zmax": top,
        "xgap": 2,
        "ygap": 2,
        "colorbar": bars[metric],
    }
    axes = {
        "xaxis": {"type": "category", "title": {"text": "step"}, "showgrid": False},
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
        labels = role_labels(state)
        traces: list[Trace] = []
        highest = 1
        for i in _in_order(state["roles"]):
            role = state["roles"][i]
            if not role["change"]:
                continue
            bins = role["change"]["ulp"]
            highest = max([highest, *(place for place, part in enumerate(bins) if part["share"] > 0)])
            name, percents = plot_text(labels[i]), [100 * part["share"] for part in bins]
            said = [f"{share_label(part['share'])} moved {_range_text(part)}" for part in bins]
            hover = f"{name}<br>%{{customdata}}<extra></extra>"
            style = {"color": role_colour(role["role"]), "width": 2, "shape": "spline", "smoothing": 0.5}
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
        groups = _in_order(state["roles"])
        labels = role_labels(state)
        width = max((len(state["roles"][i]["bits"]["ones"]) for i in groups), default=0)
        for i, metric in enumerate(metrics):
            key = "same" if metric == "same as before" else "ones"
            lines = [state["roles"][group]["bits"][key] or [] for group in groups]
            places = [[_bit_name(state["roles"][group]["dtype"], bit) for bit in range(width)] for group in groups]
            shown: Trace = {
                "type": "heatmap",
                "x": list(range(width)),
                "y": [plot_text(labels[group]) for group in groups],
                "z": [[*line, *[None] * (width - len(line))] for line in lines],
                "text": places,
                "customdata": [[*map(share_label, line), *[""] * (width - len(line))] for line in lines],
                "hovertemplate": f"%{{y}}, %{{text}}<br>{metric}: %{{customdata}}<extra></extra>",
                "colorscale": "@sequential" if key == "same" else "@diverging",
                "zmin": 0.5 if key == "same" else 0,
                "zmax": 1,
                "xgap": 2,
                "ygap": 6,
                "colorbar": {"tickformat": ".0%"},
            }
            layout = {
                "xaxis": {"title": {"text": "bit, from the sign down"}, "showgrid": False, "dtick": 4},
                "yaxis": {"type": "category", "autorange": "reversed", "showgrid": False},
                "shapes": [
                    _mark(row, edge)
                    for row, group in enumerate(groups)
                    for edge in _edges(state["roles"][group]["dtype"])
                ],
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
    states = data.states
    figure = Figure(
        "planes",
        "Entropy by byte plane",
        "Bits of order 0 for each byte, from the most significant one on; 8 is noise. Pale is the byte alone, full its "
        "XOR with the checkpoint before.",
        [_step_control(states)],
        height=300,
    )
    for choice, state in enumerate(states):
        groups = _in_order(state["roles"])
        labels = role_labels(state)
        alone = [(i, p, v) for i in groups for p, v in enumerate(state["roles"][i]["entropy"]["planes"])]
        changed = [(i, p, v) for i in groups for p, v in enumerate(state["roles"][i]["entropy"]["xor_planes"] or [])]
        traces: list[Trace] = []
        for name, parts, opacity in (("alone", alone, 0.4), ("XOR with the one before", changed, 1)):
            if not parts:
                continue
            places = [[plot_text(labels[i]) for i, _, _ in parts], [str(p) for _, p, _ in parts]]
            said = [f"{plot_text(labels[i])}, byte {p}" for i, p, _ in parts]
            colours = [role_colour(state["roles"][i]["role"]) for i, _, _ in parts]
            more = {"customdata": said, "marker": {"color": colours, "opacity": opacity}, "showlegend": False}
            hover = f"%{{customdata}}<br>{name}: %{{y:.2f}} bits of 8<extra></extra>"
            traces.append(trace("bar", name, places, [value for _, _, value in parts], hover, **more))
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
    groups = [i for i in _in_order(state["roles"]) if state["roles"][i]["codecs"]]
    labels = role_labels(state)
    figure = Figure(
        "coders",
        "What coders make of it",
        f"Bits per element at step {state['step']}, without the help of other tensors: bitsnap's codecs in blue, "
        "baselines, at their best with or without byte planes and XOR, in grey. The line is what the run stores.",
        [control("Of", [labels[i] for i in groups], min(1, len(groups) - 1))],
    )
    for choice, i in enumerate(groups):
        role = state["roles"][i]
        best: dict[str, tuple[float, str, bool]] = {}
        for own, coded in [*((True, each) for each in role["codecs"]), *((False, each) for each in role["baselines"])]:
            name = coded["name"] + (" + base" if "base" in coded["form"] and own else "")
            known = best.get(name)
            if known is None or coded["bits"] < known[0]:
                best[name] = (coded["bits"], coded["form"], own)
        order = sorted(best, key=lambda name: best[name][0], reverse=True)
        shown: Trace = {
            "type": "bar",
            "orientation": "h",
            "x": [best[name][0] for name in order],
            "y": [plot_text(name) for name in order],
            "customdata": [best[name][1] for name in order],
            "marker": {"color": ["@weight" if best[name][2] else "@pool" for name in order]},
            "hovertemplate": "%{y}, %{customdata}<br>%{x:.2f} bits per element<extra></extra>",
            "showlegend": False,
        }
        layout: dict[str, Any] = {
            "bargap": 0.35,
            "xaxis": {"title": {"text": "bits per element"}, "rangemode": "tozero"},
            "yaxis": {"type": "category", "showgrid": False},
            "margin": {"l": 8, "r": 12, "t": 30, "b": 8},
        }
        if role["stored_bytes"] is not None and role["elements"]:
            bits = 8 * role["stored_bytes"] / role["elements"]
            place = {"x0": bits, "x1": bits, "y0": 0, "y1": 1, "yref": "paper"}
            layout["shapes"] = [{"type": "line", **place, "line": {"color": "@used", "width": 2, "dash": "dot"}}]
            place = {"x": bits, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False}
            font = {"color": "@used", "size": 12}
            layout["annotations"] = [{**place, "text": f"stored: {bits:.2f}", "font": font}]
        figure.add([shown], layout, choice)
    figure.height = 420
    return figure
