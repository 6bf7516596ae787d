"""Checks the rules that can be read from the sources: which layer includes which, and how long files and functions are.

A layer includes only itself and the layers below it; code that reads snapshots never includes code that writes them;
the command and the Python extension include only public headers (and the macros of base/try.hpp), and bitsnap.hpp
includes all of these; a room of the command includes only itself and the rooms below it; only src/os calls the
operating system; kernels include no standard library; the name of each source file is unique outside the Python
package; files and functions have at most MAX_LINES and MAX_FUNCTION_LINES lines; comments name no source file that is
not there. The rules of the Python package are in python_rooms.py.

    python tests/layering.py [ROOT]     prints every violation and exits with 1 if there is one
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import python_rooms
from function_lengths import cpp_functions, python_functions

# From the bottom up; the public headers are below all of them.
LAYERS = [
    "base",
    "os",
    "exec",
    "tensor",
    "entropy",
    "json",
    "codec",
    "container",
    "restore",
    "quantize",
    "plan",
    "save",
    "patch",
    "analyze",
    "objects",
    "store",
    "engine",
    "interop",
]
# Layers that reading snapshots needs; their encoding files are not among those.
READING = LAYERS[: LAYERS.index("restore") + 1]
# The rooms of the command, which are folders of cli/, from the bottom up. cli/ itself is below all of them.
ROOMS = ["input", "output", "analysis", "watch", "commands"]
OUTSIDE = ["cli", "python", "tests", "fuzz", "bench", "gpu"]
MAX_LINES = 500
MAX_FUNCTION_LINES = 80

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TEST_FILE = re.compile(r"_(test|testing|benchmark|fuzz)\.[ch]pp$")
ENCODE_FILE = re.compile(r"(_encode[^/]*|/encoder)\.[ch]pp$")
OS_HEADER = re.compile(
    r"^(sys/.*|linux/.*|unistd\.h|fcntl\.h|dirent\.h|pthread\.h|sched\.h|signal\.h|csignal|poll\.h|dlfcn\.h"
    r"|filesystem|fstream)$"
)
# Sources compiled for an instruction set. An inline function of the standard library that was compiled there could be
# the copy that the linker keeps for every CPU, so these sources and the headers that they include, directly or not,
# see only headers without such functions (xxhash.h has internal linkage).
KERNEL_FILE = re.compile(r"_(levels|scalar|avx2|avx512|neon)\.cpp$")
KERNEL_HEADERS = {"cstddef", "cstdint", "immintrin.h", "arm_neon.h", "xxhash.h"}
# Says how an error is passed on, and declares nothing of the library.
ERROR_MACROS = "src/base/try.hpp"
# The command as a function, which the Python package runs with clients of object stores.
PROGRAM = "cli/program.hpp"
# Names that each folder may have.
COMMON_NAMES = {"__init__.py", "__main__.py", "conftest.py"}
# A comment with the name of a source file; `x_...` and names with other signs stand for many.
COMMENT = re.compile(r"//.*|(?:^|\s)#(?!include).*")
NAMED_FILE = re.compile(r"(?<![\w*./{}<>-])((?!x_|x\.)[a-z][\w/-]*\.(?:cpp|hpp|cu|py))\b")
# Files of others, and of build trees.
FOREIGN_NAMES = {"pretrain_gpt.py", "emulated_warp.hpp"}


def sources(root: Path) -> Iterator[Path]:
    for folder in ["include", "src", "interop", *OUTSIDE]:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".hpp", ".cpp", ".cu", ".py"} and "fixtures" not in path.parts:
                yield path


def home_of(path: Path) -> str:
    """The layer or outer folder that a file (relative to the root) belongs to; "include" for the public headers."""
    return path.parts[1] if path.parts[0] == "src" else path.parts[0]


def room_floor(path: Path) -> int | None:
    """How high the room of a file below cli/ is, 0 for cli/ itself; None if there is no such room."""
    folders = path.parts[1:-1]
    if not folders:
        return 0
    return ROOMS.index(folders[0]) + 1 if folders[0] in ROOMS else None


def check_room(root: Path, path: Path, name: str) -> str | None:
    """Returns why the file `path` of the command may not include `name`, another of its files; None if it may."""
    if not name.startswith("cli/") or not (root / name).is_file():
        return 'must be written as "cli/room/header.hpp", of a header that is there'
    own, other = room_floor(path), room_floor(Path(name))
    if own is not None and other is not None and other > own:
        return f"{path.parent.as_posix()} is below {Path(name).parent.as_posix()}"
    return None


def check_include(root: Path, path: Path, bracket: str, name: str) -> str | None:
    """Returns why the file `path`, relative to the root, may not have this #include; None if it may."""
    home = home_of(path)
    is_test = bool(TEST_FILE.search(path.name)) or home in {"tests", "fuzz", "bench"}
    first = name.split("/")[0]

    if bracket == "<":
        if first == "bitsnap":
            return None if (root / "include" / name).is_file() else "there is no such public header"
        if first in LAYERS or first in OUTSIDE:
            return "private headers of bitsnap are included with quotes"
        if is_test or home in {"cli", "python"}:
            return None
        if first in {"tbb", "oneapi"} and home != "exec":
            return "only src/exec uses oneTBB"
        if OS_HEADER.match(name) and home != "os":
            return "only src/os calls the operating system"
        if name == "iostream":
            return "the library never prints"
        return None

    if home == "include":
        return "public headers include public headers only"
    if home in {"cli", "python"}:
        near = (root / path.parent / name).is_file()
        if home == "cli" and (first == "cli" or near):
            return check_room(root, path, name)
        if first == home or name in {ERROR_MACROS, PROGRAM} or near:
            return None
        return f"{home} includes the public headers only"
    if home not in LAYERS:
        return None  # tests, fuzz and bench may include everything
    if first not in LAYERS:
        return 'must be written as "layer/header.hpp", from an existing layer'
    if LAYERS.index(first) > LAYERS.index(home):
        return f"{home} is below {first}"
    if is_test:
        return None
    if TEST_FILE.search(name):
        return "only tests include testing headers"
    reads = home in READING and not ENCODE_FILE.search("/" + path.name)
    if reads and ENCODE_FILE.search("/" + name):
        return "code that reads may not include code that writes"
    return None


def kernel_files(root: Path) -> set[Path]:
    """The kernels and all headers of this project that they include, relative to the root."""
    pending = [file for file in sources(root) if KERNEL_FILE.search(file.name)]
    found = set()
    while pending:
        file = pending.pop()
        found.add(file.relative_to(root))
        for line in file.read_text(encoding="utf-8").splitlines():
            if (match := INCLUDE.match(line)) and match[1] == '"':
                header = root / "src" / match[2]
                if header.is_file() and header.relative_to(root) not in found:
                    pending.append(header)
    return found


def missing_public_headers(root: Path) -> Iterator[str]:
    """The public headers that bitsnap.hpp, which stands for all of them, does not include."""
    everything = root / "include" / "bitsnap" / "bitsnap.hpp"
    included = {match[2] for line in everything.read_text().splitlines() if (match := INCLUDE.match(line))}
    for header in sorted(everything.parent.glob("*.hpp")):
        if header != everything and f"bitsnap/{header.name}" not in included:
            yield f"{header.relative_to(root)}: bitsnap.hpp does not include it"


def long_functions(path: Path, text: str) -> Iterator[str]:
    functions = python_functions(text) if path.suffix == ".py" else cpp_functions(text)
    for function in functions:
        if function.lines > MAX_FUNCTION_LINES:
            yield f"{path}:{function.line}: {function.name} has {function.lines} lines, at most {MAX_FUNCTION_LINES}"


def missing_files(path: Path, lines: list[str], names: set[str]) -> Iterator[str]:
    """The source files that comments of `path` name and that do not exist."""
    for number, line in enumerate(lines, 1):
        if comment := COMMENT.search(line):
            for file in NAMED_FILE.findall(comment[0]):
                if Path(file).name not in names | FOREIGN_NAMES:
                    yield f"{path}:{number}: names {file}, which is not there"


def violations(root: Path) -> list[str]:
    kernels = kernel_files(root)
    found = [*missing_public_headers(root), *python_rooms.violations(root)]
    all_names = {path.name for path in sources(root)} | {path.name for path in (root / "scripts").glob("*.py")}
    names: dict[str, Path] = {}
    for file in sources(root):
        path = file.relative_to(root)
        home = home_of(path)
        if path.parts[0] == "src" and home not in LAYERS:
            found.append(f"{path}: there is no layer {home}")
            continue
        if home == "cli" and room_floor(path) is None:
            found.append(f"{path}: the command has no room {path.parts[1]}")
            continue
        text = file.read_text(encoding="utf-8")
        lines = text.splitlines()
        if len(lines) > MAX_LINES:
            found.append(f"{path}: {len(lines)} lines, at most {MAX_LINES}")
        found.extend(long_functions(path, text))
        found.extend(missing_files(path, lines, all_names))
        is_module = path.parts[:2] == ("python", "bitsnap")
        if path.name not in COMMON_NAMES and "install" not in path.parts and not is_module:
            if path.name in names:
                found.append(f"{path}: {names[path.name]} has the same name")
            names.setdefault(path.name, path)
        if path.suffix == ".py":
            continue
        for number, line in enumerate(lines, 1):
            if match := INCLUDE.match(line):
                bracket, name = match.groups()
                reason = check_include(root, path, bracket, name)
                if path in kernels and bracket == "<" and name not in KERNEL_HEADERS:
                    reason = "kernels and their headers include no standard library"
                if reason:
                    found.append(f"{path}:{number}: includes {name}: {reason}")
    return found


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    count = sum(1 for _ in sources(root))
    if count == 0:
        print(f"no sources under {root}")
        return 1
    found = violations(root)
    for line in found:
        print(line)
    print(f"{count} files, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
