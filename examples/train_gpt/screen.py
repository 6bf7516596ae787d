"""Terminal output: headings, lines, one progress line (on terminals only), and the final table."""

from __future__ import annotations

import os
import sys

from records import ROLES

_WIDTH = 78


class Screen:
    """Writes to stdout, with styles and the progress line only if stdout is a terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._styled = self._terminal and "NO_COLOR" not in os.environ
        self._progress = False

    def _style(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._styled else text

    def bold(self, text: str) -> str:
        return self._style("1", text)

    def dim(self, text: str) -> str:
        return self._style("2", text)

    def good(self, text: str) -> str:
        return self._style("32", text)

    def line(self, text: str = "") -> None:
        if self._progress:
            sys.stdout.write("\r\x1b[K")
            self._progress = False
        print(text, flush=True)

    def heading(self, text: str) -> None:
        self.line()
        self.line(self.bold(text))

    def progress(self, text: str) -> None:
        if self._terminal:
            sys.stdout.write("\r\x1b[K  " + self.dim(text))
            sys.stdout.flush()
            self._progress = True

    def rule(self) -> None:
        self.line("  " + self.dim("-" * (_WIDTH - 4)))


def megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def ratio(raw: int, stored: int) -> str:
    return f"{raw / stored:.2f}x" if stored else "-"


def print_table(
    screen: Screen, raw: dict[str, int], stored: dict[str, dict[str, int]], same_bits: dict[str, str]
) -> None:
    """`raw` is by role, `stored` by method and role; the first method is the one shown in full."""
    first, *others = stored

    def row(cells: list[str]) -> str:
        left, *rest = cells
        widths = [11, 11, 9, *(12 for _ in others)]
        return f"  {left:<12}" + "".join(f"{cell:>{width}}" for cell, width in zip(rest, widths, strict=True))

    def numbers(label: str, raw_size: int, sizes: dict[str, int]) -> list[str]:
        shown = [label, megabytes(raw_size), megabytes(sizes[first]), ratio(raw_size, sizes[first])]
        return shown + [ratio(raw_size, sizes[method]) for method in others]

    screen.line(screen.dim(row(["", "", first, "", *others])))
    screen.line(screen.dim(row(["role", "raw", "stored", "ratio", *("ratio" for _ in others)])))
    screen.rule()
    for role in ROLES:
        screen.line(row(numbers(role, raw[role], {method: sizes[role] for method, sizes in stored.items()})))
    screen.rule()
    totals = {method: sum(sizes.values()) for method, sizes in stored.items()}
    screen.line(screen.bold(row(numbers("total", sum(raw.values()), totals))))
    screen.line(row(["stored", "", megabytes(totals[first]), "", *(megabytes(totals[method]) for method in others)]))
    screen.line(row(["same bits", "", same_bits[first], "", *(same_bits[method] for method in others)]))
