"""Lines over steps on a logarithmic scale, side by side, as one SVG file: nothing but this module draws it.

Readable on light and on dark pages: it brings its own background.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 470, 330  # of a panel, its axes included
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 34, 44
_LEGEND_LINE = 18
_COLOURS = ("#1a7f4b", "#63b37f", "#a9d8b8", "#c0392b", "#d98c00", "#30669e", "#7fb2dd", "#8a8f98")
_LEAST = 1e-7  # what is below, 0 among it, is not drawn

Panel = Mapping[str, Sequence[tuple[float, float]]]  # lines by name, of points: step and number


def _decades(panels: Mapping[str, Panel]) -> tuple[int, int]:
    """The powers of ten that the lines lie between."""
    drawn = [y for lines in panels.values() for line in lines.values() for _, y in line if y >= _LEAST]
    if not drawn:
        return -1, 0
    lowest = math.floor(math.log10(min(drawn)))
    return lowest, max(math.ceil(math.log10(max(drawn))), lowest + 1)


def _text(x: float, y: float, words: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def _panel(
    title: str, panel: Panel, decades: tuple[int, int], left: float, x_name: str, colours: dict[str, str]
) -> str:
    steps = [step for line in panel.values() for step, _ in line]
    first, last = min(steps), max(steps)
    low, high = decades
    inner_width, inner_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place_x(step: float) -> float:
        return left + _LEFT + inner_width * (step - first) / max(last - first, 1)

    def place_y(number: float) -> float:
        return _TOP + inner_height * (high - math.log10(number)) / (high - low)

    parts = [_text(left + _LEFT + inner_width / 2, _TOP - 12, title, more=' font-weight="bold"')]
    for decade in range(low, high + 1):
        y = place_y(10.0**decade)
        parts.append(f'<path d="M{place_x(first):.1f} {y:.1f}H{place_x(last):.1f}" stroke="#ddd"/>')
        parts.append(_text(left + _LEFT - 6, y + 4, f"1e{decade}", "end"))
    marked = range(math.ceil(first / 50) * 50, math.floor(last) + 1, 50)
    parts += [_text(place_x(step), _HEIGHT - _BOTTOM + 16, str(step)) for step in marked]
    parts.append(_text(left + _LEFT + inner_width / 2, _HEIGHT - 8, x_name))
    for name, line in panel.items():
        points = [f"{place_x(step):.1f} {place_y(y):.1f}" for step, y in line if y >= _LEAST]
        if points:
            parts.append(f'<path d="M{"L".join(points)}" fill="none" stroke="{colours[name]}" stroke-width="1.4"/>')
    return "\n".join(parts)


def curves_svg(panels: Mapping[str, Panel], x_name: str, y_name: str) -> str:
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    decades = _decades(panels)
    width, height = _WIDTH * len(panels) + 14, _HEIGHT + _LEGEND_LINE * len(names) + 10
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        _text(14, middle, y_name, more=f' transform="rotate(-90 14 {middle:.0f})"'),
    ]
    for number, (title, panel) in enumerate(panels.items()):
        parts.append(_panel(title, panel, decades, 14 + number * _WIDTH, x_name, colours))
    for number, name in enumerate(names):
        y = _HEIGHT + _LEGEND_LINE * (number + 0.5)
        parts.append(f'<path d="M{_LEFT + 14} {y:.1f}h24" stroke="{colours[name]}" stroke-width="3"/>')
        parts.append(_text(_LEFT + 46, y + 4, name, "start"))
    return "\n".join([*parts, "</svg>", ""])
