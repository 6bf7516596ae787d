"""Tables of results as Markdown, which is also printed to the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark_results import CEILING, STATE_ROLES, Pooled, Results, pool_methods

_SLOW_MARK = "\\*"


def align(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first, *others = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "| " + " | ".join([first, *others]) + " |"

    rule = (
        "|"
        + "|".join(
            "-" * (width + 2 if column == 0 else width + 1) + ("" if column == 0 else ":")
            for column, width in enumerate(widths)
        )
        + "|"
    )
    return [line(header), rule, *(line(row) for row in rows)]


def format_ratio(ratio: float) -> str:
    return f"{ratio:.4f}" if ratio < 10 else f"{ratio:.2f}" if ratio < 1000 else f"{ratio:.0f}"


def format_speed(gbps: float) -> str:
    return f"{gbps:.2f}" if gbps >= 0.1 else f"{gbps:.3f}"


def shown_name(method: str, pooled: Pooled) -> str:
    bold = "**" if pooled.kind == "ours" else ""
    return f"{bold}{method}{bold}" + (_SLOW_MARK if pooled.is_slow else "")


def by_rank(pooled: dict[str, Pooled]) -> list[str]:
    """Ceilings first, then by ratio."""
    return sorted(pooled, key=lambda method: (pooled[method].kind != "ceiling", -pooled[method].ratio, method))


def speed_table(results: Results, roles: tuple[str, ...], distance: int, runs: tuple[str, ...]) -> list[str]:
    """Ratio and speeds of all methods; empty if nothing was measured."""
    threads = results.threads()
    pooled = {
        count: pool_methods(results.measurements, roles=roles, distance=distance, runs=runs, threads=count)
        for count in threads
    }
    if not threads or not pooled[threads[0]]:
        return []
    header = ["method", "ratio"]
    for count in threads:
        header += [f"encode, {count} thr.", "of memcpy", f"decode, {count} thr.", "of memcpy"]
    rows = []
    for method in by_rank(pooled[threads[0]]):
        one = pooled[threads[0]][method]
        row = [shown_name(method, one), format_ratio(one.ratio)]
        for count in threads:
            found, ceiling = pooled[count].get(method), pooled[count].get(CEILING)
            for name in ("encode_gbps", "decode_gbps"):
                speed = getattr(found, name) if found else 0.0
                most = getattr(ceiling, name) if ceiling else 0.0
                row += [format_speed(speed), f"{speed / most:.3f}" if most else "-"]
        rows.append(row)
    return align(header, rows)


def ratio_table(results: Results, roles: tuple[str, ...], run: str, *, alone: bool) -> list[str]:
    """Ratios of all methods for each state of a run: alone, or against each earlier state."""
    threads = results.threads()
    places = {
        (one.phase, one.distance, one.step)
        for one in results.measurements
        if one.run == run and (one.distance == 0) == alone
    }
    steps = sorted(places, key=lambda place: (place[2] - place[1], place[1]))
    if not threads or not steps:
        return []
    rows: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    order: dict[str, float] = {}
    for number, (phase, distance, step) in enumerate(steps):
        here = [one for one in results.measurements if one.phase == phase and one.step == step]
        pooled = pool_methods(here, roles=roles, distance=distance, runs=(run,), threads=threads[0])
        for method, one in pooled.items():
            if one.kind != "ceiling":
                rows.setdefault(method, ["-"] * len(steps))[number] = format_ratio(one.ratio)
                names[method] = shown_name(method, one)
                order.setdefault(method, one.ratio)
    header = ["method", *(f"{phase}, {distance} earlier" if distance else phase for phase, distance, _ in steps)]
    ranked = sorted(rows, key=lambda method: (-order[method], method))
    return align(header, [[names[method], *rows[method]] for method in ranked])


def bounds_table(results: Results) -> list[str]:
    """For each pair and role: the entropies, and the best of bitsnap's and of all other methods on the same bytes."""
    threads = results.threads()
    rows = []
    for bound in results.bounds:
        here = [one for one in results.measurements if one.phase == bound.phase and one.step == bound.step]
        pooled = (
            pool_methods(here, roles=(bound.role,), distance=bound.distance, runs=(bound.run,), threads=threads[0])
            if threads
            else {}
        )
        best: dict[bool, str] = {}
        for method in by_rank(pooled):
            if pooled[method].kind != "ceiling" and not pooled[method].is_slow:
                is_ours = pooled[method].kind == "ours"
                best.setdefault(is_ours, f"{format_ratio(pooled[method].ratio)} {method}")
        rows.append(
            [
                f"{bound.run}, {bound.phase}, {bound.distance} earlier",
                bound.role,
                f"{100 * bound.unchanged:.1f} %",
                format_ratio(bound.ratio),
                format_ratio(bound.ratio_by_exponent),
                best.get(True, "-"),
                best.get(False, "-"),
            ]
        )
    header = ["pair", "role", "unchanged", "bound", "given exponent", "best of bitsnap", "best of all others"]
    return align(header, rows) if rows else []


def roles_title(roles: tuple[str, ...]) -> str:
    return "whole state" if roles == STATE_ROLES else ", ".join(roles)
