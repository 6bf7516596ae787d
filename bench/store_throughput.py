"""Measures how fast a store is verified and extracted, compared with plainly reading the same bytes.

    .venv/bin/python bench/store_throughput.py build/corpus/state-0000{40,41,42,43,44,45,46,47,48}.safetensors

Adds the files as steps of one run, in /dev/shm (memory) unless --folder names another folder. Each round reads all
files of the run from the page cache with one thread per core, verifies the stored bytes, verifies every decoded chunk,
reads the last input file, and extracts the last step, the end of the chain. Prints medians over the rounds in GB/s, and
as shares of the plain reading.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_PIECE = 1 << 20


def read_plainly(paths: list[Path], threads: int) -> int:
    """Reads all files with one buffer per thread; returns the number of bytes."""

    def read_one(path: Path) -> int:
        buffer = bytearray(_PIECE)
        total = 0
        with path.open("rb", buffering=0) as file:
            while size := file.readinto(buffer):
                total += size
        return total

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(read_one, paths))


def split_evenly(path: Path, folder: Path, parts: int) -> list[Path]:
    """Splits the file into `parts` files, one per thread."""
    data = path.read_bytes()
    size = -(-len(data) // parts)
    paths = []
    for part in range(parts):
        paths.append(folder / f"{path.name}.{part}")
        paths[-1].write_bytes(data[part * size : (part + 1) * size])
    return paths


def run(*command: str | Path) -> float:
    start = time.perf_counter()
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--bitsnap", type=Path, default=Path(sys.executable).with_name("bitsnap"))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    tool, threads = arguments.bitsnap, os.cpu_count() or 1

    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        store = folder / "run"
        for step, file in enumerate(arguments.files, start=1):
            run(tool, "add", store, "--step", str(step), file, "--quiet")
        stored = sorted(store.glob("checkpoints/*/*.bsnap"))
        stored_bytes = sum(path.stat().st_size for path in stored)
        raw_bytes = arguments.files[-1].stat().st_size
        last = split_evenly(arguments.files[-1], folder, threads)
        times: dict[str, list[float]] = {}
        for _ in range(arguments.rounds):
            actions: dict[str, Callable[[], object]] = {
                "read the stored files": lambda: read_plainly(stored, threads),
                "verify --no-decode": lambda: run(tool, "verify", store, "--no-decode", "--quiet"),
                "verify": lambda: run(tool, "verify", store, "--quiet"),
                "read the last state": lambda: read_plainly(last, threads),
                "extract to a pipe": lambda: run(tool, "extract", store, "-o", "-", "--quiet"),
                "extract to a file": lambda: run(tool, "extract", store, "-o", folder / "out", "-f", "--quiet"),
                "copy the last state": lambda: shutil.copyfile(arguments.files[-1], folder / "out"),
            }
            for what, action in actions.items():
                start = time.perf_counter()
                action()
                times.setdefault(what, []).append(time.perf_counter() - start)
        medians = {what: statistics.median(values) for what, values in times.items()}
        print(f"{len(stored)} checkpoints, {stored_bytes / 1e6:.0f} MB stored, {raw_bytes / 1e6:.0f} MB raw each")
        for what, seconds in medians.items():
            of_store = "verify" in what or "stored" in what
            size = stored_bytes if of_store else raw_bytes
            reference = medians["read the stored files" if of_store else "read the last state"]
            print(f"{what:24} {size / seconds / 1e9:6.2f} GB/s   {reference / seconds:5.2f} of plain reading")


if __name__ == "__main__":
    main()
