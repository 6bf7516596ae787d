"""What people see who call bitsnap by hand: a line of progress on terminals and in notebooks, and tables in these."""

from __future__ import annotations

import html
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from bitsnap._bitsnap import Checkpoint
from bitsnap._common import Progress

# Calls that end before have no line, in seconds; a line is drawn anew so often.
_QUIET_S = 1.0
_REDRAWN_S = 0.1


def progress_line(what: str) -> Progress | None:
    """Shows how far a call is, if it takes longer than a second; None where nobody looks.

    That is where stderr is neither a terminal nor a notebook, on other ranks than the first, and with
    BITSNAP_PROGRESS=0 in the environment.
    """
    if os.environ.get("BITSNAP_PROGRESS", "").lower() in {"0", "false", "no"} or os.environ.get("RANK", "0") != "0":
        return None
    stream, is_seen = sys.stderr, "ipykernel" in sys.modules
    with suppress(Exception):  # programs put all kinds of objects there, and close it
        is_seen = is_seen or bool(stream.isatty())
    if stream is None or not is_seen:
        return None
    begin = drawn = time.monotonic()
    width = 0

    def show(done: int, total: int) -> None:
        nonlocal drawn, width
        now = time.monotonic()
        is_over = done >= total
        if now - begin < _QUIET_S or (now - drawn < _REDRAWN_S and not is_over):
            return
        drawn = now
        share, rate = done / max(total, 1), done / (now - begin)
        text = "" if is_over else f"{what}: {share:.0%} of {size(total)}, {size(rate)}/s"
        with suppress(Exception):  # a line that cannot be shown must not end a save
            print(f"\r{text.ljust(width)}", end="\r" if is_over else "", file=stream, flush=True)
        width = len(text)

    return show


def size(count: float) -> str:
    """A number of bytes, in decimal units with three digits."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.3g} {unit}"


def html_table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def line(tag: str, cells: Sequence[Any]) -> str:
        return f"<tr>{''.join(f'<{tag}>{html.escape(str(each))}</{tag}>' for each in cells)}</tr>"

    return f"<table>{line('th', heads)}{''.join(line('td', row) for row in rows)}</table>"


def html_of_store(path: object, checkpoints: Sequence[Checkpoint]) -> str:
    """The newest 50 checkpoints, as `bitsnap log` lists them."""
    names = sorted({name for each in checkpoints for name in each.metrics})[:4]
    rows = [
        (
            each.step,
            "damaged" if each.shards == 0 else f"{each.time:%Y-%m-%d %H:%M:%S}",
            size(each.raw_bytes),
            size(each.stored_bytes),
            f"{each.ratio:.2f}",
            "" if each.base is None else each.base,
            *(f"{each.metrics[name]:.5g}" if name in each.metrics else "" for name in names),
            ", ".join(each.labels),
        )
        for each in checkpoints[-50:]
    ]
    heads = ("step", "time (UTC)", "raw", "stored", "ratio", "base", *names, "labels")
    title = f"{path}: {len(checkpoints)} checkpoint{'' if len(checkpoints) == 1 else 's'}"
    return f"<p>{html.escape(title)}</p>{html_table(heads, rows)}"
