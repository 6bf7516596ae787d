"""Runs the cases of another project's tests with its own storage ("stock") and with that of bitsnap ("ours")."""

from __future__ import annotations

import argparse
import fnmatch
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


class Outcome(NamedTuple):
    """What one run of a case, or both together, gave."""

    word: str  # "passed", "failed" or "left out"; of one run also "skipped"
    reason: str = ""


class File(NamedTuple):
    """A file of tests. To go through its cases runs them; RuntimeError says why it has none."""

    name: str
    cases: Iterator[tuple[str, Outcome]]


def compare(run: Callable[[str], Outcome], is_used: Callable[[], bool], unused: str) -> Outcome:
    """Runs a case with "stock", and if that passes and uses the storage, with "ours".

    `unused` is the reason of a case that does not use the storage.
    """
    stock = run("stock")
    if stock.word == "skipped":
        return Outcome("left out", f"skipped with stock: {stock.reason}")
    if stock.word == "failed":
        return Outcome("left out", f"fails with stock too: {stock.reason}")
    if not is_used():
        return Outcome("left out", unused)
    ours = run("ours")
    if ours.word == "skipped":
        return Outcome("failed", f"skipped: {ours.reason}")
    if ours.word == "passed" and not is_used():
        return Outcome("failed", "bitsnap was not used")
    return ours


def report(files: Iterable[File], only: str) -> bool:
    """Runs and prints everything in the files whose names contain the pattern. Whether no case failed."""
    counts: Counter[str] = Counter()
    for name, cases in files:
        if not fnmatch.fnmatch(name, f"*{only}*"):
            continue
        print(name, flush=True)
        here: Counter[str] = Counter()
        try:
            for case, (word, reason) in cases:
                here[word] += 1
                print(f"  {word:<10} {case}{': ' if reason else ''}{reason}", flush=True)
        except RuntimeError as error:
            print(f"  left out   all {'other ' if here else ''}cases: {error}", flush=True)
        print(f"  = {', '.join(f'{count} {word}' for word, count in sorted(here.items()))}", flush=True)
        counts += here
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['left out']} left out")
    return not counts["failed"]


def arguments(description: str, directory: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("dir", type=lambda text: Path(text).resolve(), help=directory)
    parser.add_argument("--only", default="", help="run only the files whose names contain this pattern")
    parser.add_argument("--timeout", type=float, default=180.0, help="of one run of a case, in seconds")
    parser.add_argument("--keep", type=lambda text: Path(text).resolve(), help="a folder for what each run prints")
    return parser


def keep_log(folder: Path | None, name: str, text: str) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name[:200]}.log").write_text(text)
