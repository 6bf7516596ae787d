"""The tensors of a page: the table of reasons, and what a live page asks about the tensors of one cell of the map."""

from __future__ import annotations

from typing import Any

from bitsnap.errors import printable
from bitsnap.report import report_changes
from bitsnap.report.report_data import RunData, plot_text, role_text


def shares_of(change: dict[str, Any] | None) -> list[float]:
    """The shares of ULP distances, from 0 on; each bin is twice as wide as the one before."""
    shares = [round(part["share"], 4) for part in change["ulp"]] if change else []
    while shares and not shares[-1]:
        shares.pop()
    return shares


def reasons(data: RunData, most_rows: int = 20_000) -> dict[str, Any]:
    """The table of reasons: rows of the newest checkpoint first; a text that repeats is stored once.

    A row has the step; name, role, dtype and shape, and codec; raw and stored bytes; the reason; the row of the map of
    layers, or None; and the shares of ULP distances.
    """
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(printable(text), len(texts))

    rows: list[list[Any]] = []
    places = {key: plot_text(label) for key, (_, label) in report_changes.places(data).items()}
    distances = {
        (state["step"], tensor["name"]): shares_of(tensor["change"])
        for state in data.states
        for tensor in state["tensors"]
        if tensor["skipped"] is None and tensor["change"]
    }
    studied = {state["step"] for state in data.states} or set(data.snapshots)
    for step in sorted(studied & set(data.snapshots), reverse=True):
        for tensor in data.snapshots[step]["tensors"]:
            if "stored_bytes" not in tensor:
                continue
            label = places.get((tensor["role"], tensor["name"]))
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
                    texts.setdefault(label, len(texts)) if label is not None else None,
                    distances.get((step, tensor["name"]), []),
                ]
            )
    return {"rows": rows[:most_rows], "texts": list(texts), "left_out": max(0, len(rows) - most_rows)}


def names_in(data: RunData, step: int, role: str, row: str) -> list[str]:
    """The names of the tensors in a cell of the map of layers; both texts are those that the page shows."""
    places = report_changes.places(data)
    return [
        tensor["name"]
        for state in data.states
        if state["step"] == step
        for tensor in state["tensors"]
        if tensor["skipped"] is None
        and role_text(tensor["role"]) == role
        and plot_text(places[tensor["role"], tensor["name"]][1]) == row
    ]


def details_of(state: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """What the page shows of tensors that were studied one by one: by name as text, distances and entropies."""
    return {
        printable(tensor["name"]): {
            "distances": shares_of(tensor["change"]),
            "changed": tensor["change"]["changed"] if tensor["change"] else None,
            "planes": tensor["entropy"]["planes"],
            "xor_planes": tensor["entropy"]["xor_planes"],
        }
        for tensor in state["tensors"]
        if tensor["name"] in names and tensor["skipped"] is None
    }
