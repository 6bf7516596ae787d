"""Hundreds of `ingest` and `watch` with deletion beside writers that disturb them: no content may be lost.

    PYTHONPATH=tests .venv/bin/python -m soak.deletion_runs [--runs 300] [--seed N]

A writer renames checkpoints, writes them anew, rewrites them with their old times, replaces them by references, and
takes the disk away that a link leads to. It notes each content that it leaves behind. After a run, each content that
the writer did not replace itself is in the run, or where it was, or beside it as what a deletion left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from cli.command_line import executable
from cli.raw_checkpoints import read

LAST_STEP = 8
ACTIONS = ("rename", "anew", "old time", "reference", "disk away", "nothing")


class Writer(threading.Thread):
    """Writes steps 1 to LAST_STEP and disturbs those that are there. `left`: the newest content of each path."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__()
        self.folder, self.random = folder, random.Random(seed)
        self.left: dict[str, bytes] = {}
        self.counts: Counter[str] = Counter()
        self.as_folders = self.random.random() < 0.5

    def file_of(self, step: int) -> Path:
        return self.folder / (f"checkpoint-{step}/model.bin" if self.as_folders else f"model-step-{step}.bin")

    def write(self, step: int, content: bytes) -> None:
        """Writes to a new name and renames that, as trainings do."""
        path = self.file_of(step)
        if self.as_folders:
            path.parent.mkdir(exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_bytes(content)
        temporary.rename(path)
        self.left[path.name if not self.as_folders else path.parent.name] = content

    def write_until_done(self, step: int, content: bytes) -> None:
        """The command may delete an empty folder before the file is in it."""
        while True:
            with contextlib.suppress(FileNotFoundError):
                return self.write(step, content)

    def run(self) -> None:
        for step in range(1, LAST_STEP + 1):
            self.write_until_done(step, self.random.randbytes(self.random.randrange(1000, 300_000)))
            time.sleep(self.random.random() * 0.03)
            action = self.random.choice(ACTIONS)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # the command deleted it first
                self.disturb(action, self.random.randrange(1, step + 1))
                self.counts[action] += 1

    def disturb(self, action: str, step: int) -> None:
        path = self.file_of(step)
        key = path.parent.name if self.as_folders else path.name
        if action == "rename":
            away = self.folder / f"away-{step}"
            (path.parent if self.as_folders else path).rename(away)
            time.sleep(self.random.random() * 0.02)
            away.rename(path.parent if self.as_folders else path)
        elif action == "anew":
            self.write(step, self.random.randbytes(self.random.randrange(1000, 300_000)))
        elif action == "old time":
            info = path.stat()
            with path.open("r+b") as file:
                file.write(b"rewritten!")
                file.seek(0)
                content = file.read()
                os.utime(file.fileno(), ns=(info.st_atime_ns, info.st_mtime_ns))
                # What was open while it was deleted is gone, as with any deletion.
                if path.stat().st_ino == info.st_ino:
                    self.left[key] = content
        elif action == "reference":
            reference = {"version": 0, "run": "bitsnap", "run_id": "0" * 32, "step": step}
            self.write(step, json.dumps(reference).encode())
        elif action == "disk away":
            disk = self.folder.parent / "disk"
            disk.rename(disk.with_name("away"))
            time.sleep(0.01)
            disk.with_name("away").rename(disk)


def found_of(folder: Path, run: Path) -> set[bytes]:
    """Every content that is somewhere: in the directory, under any name, or in the run."""
    found = set(read(folder).values())
    log = subprocess.run([executable(), "log", run, "--json"], capture_output=True, check=False)
    steps = [checkpoint["step"] for checkpoint in json.loads(log.stdout)] if log.returncode == 0 else []
    for step in steps:
        out = run.parent / f"out-{step}"
        subprocess.run([executable(), "extract", f"{run}@{step}", "-o", out], check=True, capture_output=True)
        found |= set(read(out).values()) if out.is_dir() else {out.read_bytes()}
    return found


def run_once(number: int, seed: int, counts: Counter[str]) -> None:
    """One command beside one writer, and a last one when the writer has ended."""
    with tempfile.TemporaryDirectory(prefix="bitsnap-deletion-") as name:
        root = Path(name)
        folder, target = root / "checkpoints", root / "run"
        folder.mkdir()
        (root / "disk" / "checkpoint-99").mkdir(parents=True)
        (root / "disk" / "checkpoint-99" / "x").write_bytes(b"on a disk")
        (folder / "checkpoint-99").symlink_to(root / "disk" / "checkpoint-99")
        writer = Writer(folder, seed)
        watches = number % 2 == 0
        counts["watch" if watches else "ingest"] += 1
        options = ["--delete-after-verify", "--keep-raw", "0"]
        command = (
            [executable(), "watch", target, folder, "--settle", "0.02", "--poll", "0.01", *options]
            if watches
            else [executable(), "ingest", target, folder, *options]
        )
        writer.start()
        while writer.is_alive():
            with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
                while process.poll() is None and (not watches or writer.is_alive()):
                    time.sleep(0.01)
                process.terminate()
                lines = process.communicate()[0].decode()
            counts["deleted"] += lines.count(" : deleted")
            counts["stayed"] += lines.count(" : stays")
            counts["skipped"] += lines.count(" : skipped")
        writer.join()
        assert f"step-{LAST_STEP}" in str(list(writer.left)) or f"checkpoint-{LAST_STEP}" in writer.left
        counts.update(writer.counts)
        found = found_of(folder, target)
        for key, content in writer.left.items():
            if content not in found:
                shutil.copytree(root, Path(tempfile.mkdtemp(prefix="bitsnap-lost-")) / "root", symlinks=True)
                raise AssertionError(f"run {number}, seed {seed}: the newest content of {key} is lost\n{lines}")
        assert (root / "disk" / "checkpoint-99" / "x").read_bytes() == b"on a disk"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    for number in range(arguments.runs):
        run_once(number, arguments.seed + number, counts)
    print(f"{arguments.runs} runs, nothing lost: {dict(counts)}")


if __name__ == "__main__":
    main()
