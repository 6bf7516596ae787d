"""Figures and tables of the loss of a run: bounds, measured errors, and bits against error. See report_figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import product
from operator import itemgetter
from typing import Any

from bitsnap.report.report_data import RunData
from bitsnap.report.report_figures import Figure, Trace, control, curve, trace
from bitsnap.report.report_text import ROLE_ORDER, error_text, plot_text, role_text


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
    ("mean_relative_error", "mean relative error", "mre"),
    ("max_relative_error", "largest relative error", None),
    ("mean_square_error", "mean square error", "mse"),
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
