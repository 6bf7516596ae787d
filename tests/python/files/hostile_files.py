"""Small files that ask for as much as the limits allow, and what they cost.

    PYTHONPATH=tests .venv/bin/python tests/python/files/hostile_files.py

prints a table for docs/measurements.md, and fails if a file takes more than 64 MB and 20 times its size. Each file is
of one kind of metadata at its limit for a small file (docs/guide/limits.md), compressed as well as zstd can. The costs
are peaks of resident memory above what the process had before: of `bitsnap.load` in a process that has imported bitsnap
and PyTorch, and of `bitsnap inspect --json`, less that of a file without content.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import bitsnap
from second_reader.bsnap_builder import Parts, build

TENSORS = 16_384
VALUES = 65_536
METADATA = 16_384
INDEX_BYTES = 8 << 20
DIMENSIONS = 255
DIGITS = 100_000

ALLOWED_BYTES = 64 << 20
ALLOWED_TIMES = 20  # the size of the file


@dataclass(frozen=True)
class Cost:
    seconds: float
    peak_bytes: int


def _packed(content: str) -> bytes:
    return build(Parts(content.encode(), encoding={"streams": []}, compressed={1, 2, 3}))


def _with_tree(tree: str) -> bytes:
    return _packed('{"tensors":[],"tree":' + tree + "}")


def _list_of(item: str, count: int) -> bytes:
    return _with_tree("[" + ",".join([item] * count) + "]")


def _dict_of(items: Iterator[str]) -> bytes:
    return _with_tree('{"dict":[' + ",".join(items) + "]}")


def _tensors(count: int, dtype: str, shape: str) -> bytes:
    entry = '{{"name":"{}","dtype":"{}","shape":{},"role":"other"}}'
    return _packed('{"tensors":[' + ",".join(entry.format(i, dtype, shape) for i in range(count)) + "]}")


def _long_names() -> bytes:
    length = 60_000
    names = [f"{i:x<{length}}" for i in range(INDEX_BYTES // length - 1)]
    entries = (f'{{"name":"{name}","dtype":"U8","shape":[0],"role":"other"}}' for name in names)
    return _packed('{"tensors":[' + ",".join(entries) + "]}")


def _metadata() -> bytes:
    entries = ",".join(f'"{i}":""' for i in range(METADATA - 8))
    return _packed('{"tensors":[],"metadata":{' + entries + "}}")


# Some less than the limit, for the value around the others and for what else the index holds.
FILES: dict[str, Callable[[], bytes]] = {
    "nulls": lambda: _list_of("null", VALUES - 100),
    "empty lists": lambda: _list_of("[]", VALUES - 100),
    "empty dicts": lambda: _list_of('{"dict":[]}', VALUES - 100),
    "lists in lists": lambda: _list_of("[" * 100 + "0" + "]" * 100, VALUES // 101 - 1),
    "numbers": lambda: _list_of("1.5", VALUES - 100),
    "strings": lambda: _list_of('"ab"', VALUES - 100),
    "keys": lambda: _dict_of(f'["{i}",0]' for i in range(VALUES // 2 - 100)),
    "digits": lambda: _list_of('{"int":"' + "9" * DIGITS + '"}', VALUES * 8 // DIGITS - 1),
    "one string": lambda: _with_tree('"' + "a" * (INDEX_BYTES - 200) + '"'),
    "escapes": lambda: _with_tree('"' + "\\n" * (INDEX_BYTES // 2 - 100) + '"'),
    "spaces": lambda: _with_tree(" " * (INDEX_BYTES - 200) + "null"),
    "tensors": lambda: _tensors(TENSORS - 8, "F32", "[0]"),
    "dimensions": lambda: _tensors(TENSORS // (1 + DIMENSIONS // 32) - 8, "F32", "[0" + ",1" * (DIMENSIONS - 1) + "]"),
    "long names": _long_names,
    "metadata": _metadata,
}


def _memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {field} in /proc/self/status")


def cost_in_a_fork(action: Callable[[], object]) -> Cost:
    """Runs in a child of this process; it should not have started threads."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak
            before, start = _memory("VmRSS"), time.perf_counter()
            kept = action()
            took = time.perf_counter() - start
            os.write(writer, f"{took} {_memory('VmHWM') - before}".encode())
            del kept
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as results:
        text = results.read()
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError("the child failed")
    seconds, peak = text.split()
    return Cost(float(seconds), int(peak))


# A small process starts the command, whose peak would otherwise begin with that of its parent.
_LAUNCHER = """
import os, subprocess, sys, time
start = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(time.perf_counter() - start, usage.ru_maxrss * 1024, status)
"""


def cost_of_command(*arguments: object) -> Cost:
    command = Path(sys.executable).parent / "bitsnap"
    launched = subprocess.run(
        [sys.executable, "-S", "-c", _LAUNCHER, command, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, peak, status = launched.stdout.split()
    if status != "0":
        raise RuntimeError(launched.stderr)
    return Cost(float(seconds), int(peak))


def costs(folder: Path) -> Iterator[tuple[str, int, Cost, Cost]]:
    """The name of each file, its size, and the costs of `load` and `inspect --json`."""
    empty = folder / "empty.bsnap"
    empty.write_bytes(_packed('{"tensors":[]}'))
    least = cost_of_command("inspect", "--json", empty).peak_bytes
    path = folder / "hostile.bsnap"
    for name, file in FILES.items():
        path.write_bytes(file())
        load = cost_in_a_fork(lambda: bitsnap.load(path))
        inspect = cost_of_command("inspect", "--json", path)
        yield name, path.stat().st_size, load, Cost(inspect.seconds, inspect.peak_bytes - least)


def main() -> None:
    import torch  # noqa: F401 - so that `load` returns its tensors

    beyond = []
    print("| kind | file | `load` | | `inspect --json` | |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for name, size, *both in costs(Path(folder)):
            cells = [f"{cost.peak_bytes / 2**20:.0f} MB | {cost.seconds:.2f} s" for cost in both]
            print(f"| {name} | {size:,} B | {' | '.join(cells)} |")
            if max(cost.peak_bytes for cost in both) > ALLOWED_BYTES + ALLOWED_TIMES * size:
                beyond.append(name)
    if beyond:
        sys.exit(f"too costly: {', '.join(beyond)}")


if __name__ == "__main__":
    main()
