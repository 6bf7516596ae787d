"""The drawing of curves: well-formed, all lines on one scale, nothing outside it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from bench.curves_svg import curves_svg


def heights(svg: str, colour: str) -> list[list[float]]:
    """Of the points of each line of that colour, from the top."""
    paths = re.findall(rf'<path d="M([^"]*)" fill="none" stroke="{colour}"', svg)
    return [[float(point.split()[1]) for point in path.split("L")] for path in paths]


def test_ten_times_as_much_is_one_line_of_the_grid_higher_in_all_panels() -> None:
    svg = curves_svg(
        {"a": {"x": [(1, 0.001), (2, 0.01), (3, 0.1)]}, "b": {"x": [(5, 0.01), (9, 0.01)], "y": [(5, 0.1), (9, 0.1)]}},
        "x",
        "y",
    )
    ElementTree.fromstring(svg)
    first, second = heights(svg, "#1a7f4b")
    assert abs((first[0] - first[1]) - (first[1] - first[2])) < 0.2
    assert first[0] > first[1] > first[2]
    assert second == [first[1], first[1]]
    assert heights(svg, "#63b37f") == [[first[2], first[2]]]


def test_a_difference_of_0_is_left_out_and_names_are_escaped() -> None:
    svg = curves_svg({"<a>": {"x & y": [(1, 0.0), (2, 0.5), (3, 0.5)]}}, "x", "y")
    ElementTree.fromstring(svg)
    assert [len(line) for line in heights(svg, "#1a7f4b")] == [2]
    assert "x &amp; y" in svg
