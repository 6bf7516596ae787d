"""Runs clang-tidy over the files of a compile database, in parallel.

A file is skipped if it passed before with the same hash of its text, its headers, its command line, the settings and
clang-tidy itself. Prints the findings and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIDY = "clang-tidy-19"
# Tests consist of macros of other libraries; two compilers and the sanitizers check them.
NOT_BY_DEFAULT = re.compile(r"_(test|benchmark)\.cpp$|/tests/install/")


def headers_of(arguments: list[str], directory: str) -> list[Path]:
    """The files of this project that a translation unit includes, as the compiler lists them."""
    without_output = [a for i, a in enumerate(arguments) if a not in {"-c", "-o"} and arguments[i - 1] != "-o"]
    listed = subprocess.run(
        [*without_output, "-MM", "-MT", "x"], cwd=directory, capture_output=True, text=True, check=True
    ).stdout
    words = listed.replace("\\\n", " ").split()[1:]
    paths = sorted({Path(directory, word).resolve() for word in words})
    return [path for path in paths if path.is_relative_to(ROOT)]


def fingerprint(arguments: list[str], directory: str, settings: bytes) -> str:
    digest = hashlib.sha256(settings)
    digest.update("\0".join(arguments).encode())
    for path in headers_of(arguments, directory):
        digest.update(str(path).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description="clang-tidy over a compile database")
    parser.add_argument("--build", type=Path, required=True, help="build tree with compile_commands.json")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("files", nargs="*", help="only files whose path contains one of these")
    options = parser.parse_args()

    version = subprocess.run([TIDY, "--version"], capture_output=True, check=True).stdout
    settings = version + (ROOT / ".clang-tidy").read_bytes()
    passed_dir = options.build / "tidy-passed"
    passed_dir.mkdir(exist_ok=True)

    entries = {}
    for entry in json.loads((options.build / "compile_commands.json").read_text()):
        name = entry["file"]
        if any(part in name for part in options.files) if options.files else not NOT_BY_DEFAULT.search(name):
            entries[name] = entry

    def check(entry: dict[str, str]) -> tuple[str, bool, str]:
        arguments = shlex.split(entry["command"])
        while not Path(arguments[0]).name.startswith(("clang", "g++", "c++")):
            arguments.pop(0)  # the compiler launcher
        stamp = passed_dir / fingerprint(arguments, entry["directory"], settings)
        if stamp.exists():
            return entry["file"], True, ""
        tidy = subprocess.run(
            [TIDY, "--quiet", "-p", str(options.build), entry["file"]], cwd=ROOT, capture_output=True, text=True
        )
        if tidy.returncode == 0:
            stamp.touch()
            return entry["file"], True, ""
        return entry["file"], False, tidy.stdout or tidy.stderr

    failures = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for file, passed, output in pool.map(check, entries.values()):
            if not passed:
                failures += 1
                print(f"{Path(file).relative_to(ROOT)}\n{output}", flush=True)
    print(f"clang-tidy: {len(entries)} files, {failures} with findings")
    return 1 if failures or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
