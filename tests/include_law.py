"""The law of the floors, held against every #include, and the few other laws that can be read from the sources.

A folder includes only itself and the floors nearer the ground; what reads never includes what writes; the command and
the Python extension see the public headers only; the operating system is called from src/os alone; each source file has
a name of its own and is not longer than 600 lines.

    python tests/include_law.py [ROOT]     prints every breach and exits with 1 if there is one
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# From the ground up; the public headers lie below all of them.
FLOORS = [
    "base",
    "os",
    "exec",
    "tensor",
    "entropy",
    "codec",
    "container",
    "restore",
    "quantize",
    "plan",
    "record",
    "analyze",
    "store",
    "engine",
    "interop",
]
# Floors that a reader of snapshots is made of, apart from their encoding files.
READING = FLOORS[: FLOORS.index("restore") + 1]
OUTSIDE = ["cli", "python", "tests", "fuzz", "bench"]
MAX_LINES = 600

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TEST_FILE = re.compile(r"_(test|testing|benchmark|fuzz)\.[ch]pp$")
ENCODE_FILE = re.compile(r"(_encode[^/]*|/encoder)\.[ch]pp$")
OS_HEADER = re.compile(
    r"^(sys/.*|linux/.*|unistd\.h|fcntl\.h|dirent\.h|pthread\.h|sched\.h|signal\.h|csignal|poll\.h|dlfcn\.h"
    r"|filesystem|fstream)$"
)
# Names that stand once per folder by convention.
COMMON_NAMES = {"__init__.py", "__main__.py", "conftest.py"}


def sources(root: Path) -> Iterator[Path]:
    for folder in ["include", "src", "interop", *OUTSIDE]:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".hpp", ".cpp", ".py"} and "fixtures" not in path.parts:
                yield path


def home_of(path: Path) -> str:
    """The floor or outer folder that a file (relative to the root) belongs to; "include" for the public headers."""
    return path.parts[1] if path.parts[0] == "src" else path.parts[0]


def check_include(root: Path, path: Path, bracket: str, name: str) -> str | None:
    """What is wrong with this #include in the file `path`, relative to the root; None if nothing is."""
    home = home_of(path)
    is_test = bool(TEST_FILE.search(path.name)) or home in {"tests", "fuzz", "bench"}
    first = name.split("/")[0]

    if bracket == "<":
        if first == "bitsnap":
            return None if (root / "include" / name).is_file() else "there is no such public header"
        if first in FLOORS or first in OUTSIDE:
            return "headers of bitsnap that are not public are included with quotes"
        if is_test or home in {"cli", "python"}:
            return None
        if first in {"tbb", "oneapi"} and home != "exec":
            return "oneTBB is used by src/exec only"
        if OS_HEADER.match(name) and home != "os":
            return "the operating system is called from src/os only"
        if name == "iostream":
            return "the library never prints"
        return None

    if home == "include":
        return "public headers include public headers only"
    if home in {"cli", "python"}:
        if first == home or (root / path.parent / name).is_file():
            return None
        return f"{home} includes the public headers only"
    if home not in FLOORS:
        return None  # tests, fuzz and bench may see everything
    if first not in FLOORS:
        return 'written as "floor/header.hpp", from a floor that exists'
    if FLOORS.index(first) > FLOORS.index(home):
        return f"{home} lies below {first}"
    if is_test:
        return None
    if TEST_FILE.search(name):
        return "only tests include what is made for tests"
    reads = home in READING and not ENCODE_FILE.search("/" + path.name)
    if reads and ENCODE_FILE.search("/" + name):
        return "what reads may not include what writes"
    return None


def breaches(root: Path) -> list[str]:
    found = []
    names: dict[str, Path] = {}
    for file in sources(root):
        path = file.relative_to(root)
        home = home_of(path)
        if path.parts[0] == "src" and home not in FLOORS:
            found.append(f"{path}: no floor is called {home}")
            continue
        lines = file.read_text(encoding="utf-8").splitlines()
        if len(lines) > MAX_LINES:
            found.append(f"{path}: {len(lines)} lines, at most {MAX_LINES}")
        if path.name not in COMMON_NAMES and "install" not in path.parts:
            if path.name in names:
                found.append(f"{path}: {names[path.name]} has the same name")
            names.setdefault(path.name, path)
        if path.suffix == ".py":
            continue
        for number, line in enumerate(lines, 1):
            if match := INCLUDE.match(line):
                bracket, name = match.groups()
                if reason := check_include(root, path, bracket, name):
                    found.append(f"{path}:{number}: includes {name}: {reason}")
    return found


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    count = sum(1 for _ in sources(root))
    if count == 0:
        print(f"no sources under {root}")
        return 1
    found = breaches(root)
    for line in found:
        print(line)
    print(f"{count} files, {len(found)} breaches of the include law")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
