"""What the measuring programs have in common: their options, their folder, how they take times and what they print."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TypeVar

from bench.machine_description import describe, in_one_line
from bench.results_tables import align

T = TypeVar("T")


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """The description of a program with its option `--folder`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="folder to write to; default: a temporary one")
    return parser


@contextlib.contextmanager
def folder_of(options: argparse.Namespace) -> Iterator[Path]:
    """A new folder in `--folder`, which is removed."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        yield Path(folder)


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """The seconds of a call, and what it returned."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def median_ratio(times: Iterable[float], others: Iterable[float]) -> float:
    """The median of the ratios in the same rounds."""
    return median(a / b for a, b in zip(times, others, strict=True))


def turn_of(ways: Sequence[T], number: int) -> list[T]:
    """The order of the ways in a round, which alternates."""
    return list(ways) if number % 2 == 0 else list(reversed(ways))


def print_machine() -> None:
    print(in_one_line(describe()), end="\n\n", flush=True)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print("\n".join(align(header, rows)), end="\n\n")
