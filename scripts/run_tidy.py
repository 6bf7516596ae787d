"""Runs clang-tidy over the files of a compile database, in parallel.

Most of the time of clang-tidy goes into the headers of the system, so files with equal command lines are checked in
batches: one translation unit includes several of them. Files whose names clash go into different batches. A batch is
skipped if it passed before and nothing it is made of changed since: the text of its files and of their headers, the
command line, the settings and the version of clang-tidy are hashed. Prints the findings; exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIDY = ["clang-tidy-19", "--quiet", "--checks=-bugprone-suspicious-include"]  # a batch includes x.cpp
BATCH = 10
# GoogleTest's macros fill the tests; two compilers and the sanitizers check those.
NOT_BY_DEFAULT = re.compile(r"_(test|benchmark)\.cpp$|/tests/install/")
ERROR = re.compile(r"^(\S+?):\d+:\d+: (?:fatal )?error: ", re.MULTILINE)

Command = tuple[str, ...]


def command_of(entry: dict[str, str]) -> Command:
    """The command line without launcher, input and output."""
    words = shlex.split(entry["command"])
    while not Path(words[0]).name.startswith(("clang", "g++", "c++")):
        words.pop(0)
    file_words = {"-c", "-o", entry["file"]}
    return tuple(word for i, word in enumerate(words) if word not in file_words and words[i - 1] != "-o")


class Batches:
    """Checks files that share a command line. One object serves all threads; it changes nothing of its own."""

    def __init__(self, build: Path) -> None:
        self.build = build
        self.units = build / "tidy-units"
        self.passed = build / "tidy-passed"
        for folder in (self.units, self.passed):
            folder.mkdir(exist_ok=True)
        version = subprocess.run([*TIDY, "--version"], capture_output=True, check=True).stdout
        self.settings = version + (ROOT / ".clang-tidy").read_bytes()

    def unit(self, command: Command, files: list[str]) -> Path:
        text = "".join(f'#include "{file}"\n' for file in files)
        path = self.units / f"{hashlib.sha256((' '.join(command) + text).encode()).hexdigest()[:16]}.cpp"
        path.write_text(text)
        return path

    def clashing(self, command: Command, files: list[str]) -> set[str]:
        """Which of the files do not compile after those before them."""
        compiled = subprocess.run(
            [*command, "-fsyntax-only", "-w", "-ferror-limit=0", self.unit(command, files)],
            cwd=self.build,
            capture_output=True,
            text=True,
        )
        if compiled.returncode == 0:
            return set()
        return set(ERROR.findall(compiled.stderr)) & set(files) or set(files[1:])

    def fingerprint(self, command: Command, unit: Path) -> str:
        listed = subprocess.run([*command, "-MM", "-MT", "x", unit], cwd=self.build, capture_output=True, text=True)
        digest = hashlib.sha256(self.settings + "\0".join(command).encode())
        for word in sorted(set(listed.stdout.replace("\\\n", " ").split()[1:])):
            path = Path(os.path.normpath(self.build / word))
            if path.is_relative_to(ROOT):
                digest.update(str(path).encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()

    def check(self, command: Command, files: list[str]) -> str:
        """Returns the findings."""
        findings = ""
        while files:
            unit = self.unit(command, files)
            stamp = self.passed / self.fingerprint(command, unit)
            if stamp.exists():
                return findings
            batch = files
            while len(batch) > 1 and (clashing := self.clashing(command, batch)):
                batch = [file for file in batch if file not in clashing] or batch[:1]
            findings_before = findings
            unit = self.unit(command, batch)
            tidy = subprocess.run(
                [*TIDY, unit, "--", *command[1:], "-Wno-shadow"], cwd=self.build, capture_output=True, text=True
            )
            if tidy.returncode != 0:
                findings += tidy.stdout or tidy.stderr
            files = [file for file in files if file not in batch]
            if not files and not findings_before and not findings:
                stamp.touch()
        return findings


def main() -> int:
    parser = argparse.ArgumentParser(description="clang-tidy over a compile database")
    parser.add_argument("--build", type=Path, required=True, help="build tree with compile_commands.json")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("files", nargs="*", help="only files whose path contains one of these")
    options = parser.parse_args()
    build = options.build.resolve()

    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        name = entry["file"]
        if any(part in name for part in options.files) if options.files else not NOT_BY_DEFAULT.search(name):
            commands[name] = command_of(entry)
    groups = defaultdict(list)
    for name, command in sorted(commands.items()):
        groups[command].append(name)
    work = [(command, names[i : i + BATCH]) for command, names in groups.items() for i in range(0, len(names), BATCH)]

    batches = Batches(build)
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for findings in pool.map(lambda batch: batches.check(*batch), work):
            if findings:
                failures += 1
                print(findings, flush=True)
    print(f"clang-tidy: {len(commands)} files in {len(work)} batches, {failures} batches with findings")
    return 1 if failures or not commands else 0


if __name__ == "__main__":
    sys.exit(main())
