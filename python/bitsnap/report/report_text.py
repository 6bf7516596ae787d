"""Numbers and names as people read them, and names made harmless.

Names of tensors come from files: they may hold markup, control characters and marks that turn the direction of text.
"""

from __future__ import annotations

import html
import math

from bitsnap.errors import printable

ROLE_NAMES = {
    "weight": "weights",
    "master": "masters",
    "exp_avg": "first moments",
    "exp_avg_sq": "second moments",
    "other": "other",
    "pool": "small tensors",
    "index": "index",
}
_UNITS = ["B", "kB", "MB", "GB", "TB", "PB"]
ROLE_ORDER = ["weight", "master", "exp_avg", "exp_avg_sq", "other"]


def plot_text(text: str) -> str:
    """For labels and hover texts of plotly, which take some HTML, and %{...} in templates."""
    return html.escape(printable(text), quote=False).replace("%{", "%&#123;").replace("$", "&#36;")


def size_unit(size: float) -> tuple[float, str]:
    """The unit in which an axis up to this size is labelled."""
    number = 0
    while size >= 1000 and number < len(_UNITS) - 1:
        size /= 1000
        number += 1
    return 1000.0**number, _UNITS[number]


def size_text(size: float) -> str:
    """Decimal, three digits: 1.06 GB."""
    for unit in _UNITS:
        if abs(size) < 999.5 or unit == _UNITS[-1]:
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" else f"{_digits(size)} {unit}"


def _digits(value: float) -> str:
    decimals = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{decimals}f}"


def ratio_text(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return f"{ratio:,.0f}×" if ratio >= 1000 else f"{_digits(ratio)}×"


def share_text(share: float) -> str:
    """Nothing that is there is shown as 0 %, and nothing that is not all as 100 %."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.0f} %" if percent in (0, 100) else f"{percent:.1f} %"


def share_label(share: float) -> str:
    """The same for plots, to which "<0.1 %" would be the beginning of an element."""
    return plot_text(share_text(share))


def error_text(error: float | None) -> str:
    """A relative error or a bound of one."""
    if error is None:
        return "–"
    if error == 0:
        return "0"
    if 1e-3 <= abs(error) < 1:
        return f"{100 * error:.2g} %"
    exponent = math.floor(math.log10(abs(error)))
    return f"{error / 10**exponent:.1f}·10{str(exponent).translate(_SUPERSCRIPTS)}"


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def count_text(count: int) -> str:
    return f"{count:,}"


def role_text(role: str) -> str:
    return ROLE_NAMES.get(role, role)
