"""The parts of a killed training with a watcher: the journal as a reader sees it, the server that starts trainings, and
the run of the watcher. It uses the command bitsnap, and imports neither the package bitsnap nor torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

COMMAND_TIMEOUT_S = 120


def hashes_of(checkpoint: Path) -> dict[str, str]:
    """SHA-256 of each file by its path in the folder; that of a single file has the path "."."""
    files = [checkpoint] if checkpoint.is_file() else [path for path in checkpoint.rglob("*") if path.is_file()]
    if not files:
        raise FileNotFoundError(checkpoint)
    return {str(path.relative_to(checkpoint)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def is_intact(checkpoint: Path) -> bool:
    """Whether no file of it is cut or damaged, as far as its format can tell."""
    paths = [checkpoint] if checkpoint.is_file() else list(checkpoint.rglob("*"))
    try:
        for path in paths:
            if path.suffix in {".pt", ".pth", ".bin", ".ckpt"}:
                with zipfile.ZipFile(path) as archive:
                    if archive.testzip() is not None:
                        return False
            elif path.suffix == ".json":
                json.loads(path.read_text())
            elif path.suffix == ".safetensors":
                content = path.read_bytes()
                end = 8 + int.from_bytes(content[:8], "little")
                header = json.loads(content[8:end])
                ends = [value["data_offsets"][1] for key, value in header.items() if key != "__metadata__"]
                if len(content) != end + max(ends):
                    return False
    except (OSError, ValueError, zipfile.BadZipFile):
        return False
    return True


class Journal:
    """What a training has written to its journal until the last `read`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("a+b")
        self._file.seek(0)
        self._rest = b""
        self.losses: list[tuple[int, float]] = []
        self.saved: dict[int, dict[str, str]] = {}
        self.saved_again: list[int] = []
        self.saving: tuple[int, float] | None = None  # the save that has begun: its step and its time
        self.saves = 0  # that have begun
        self.durations_s: list[float] = []

    def read(self) -> None:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            try:
                self._take(json.loads(line))
            except ValueError:  # cut by a kill
                continue

    def after_kill(self) -> int | None:
        """Ends a line that was cut. Returns the step of the save that was cut, if there is one."""
        self.read()
        if self._rest:
            self._file.write(b"\n")
            self._file.flush()
            self.read()
        step = None if self.saving is None else self.saving[0]
        self.saving = None
        return step

    def _take(self, record: dict[str, Any]) -> None:
        step = record["step"]
        if record["record"] == "step":
            self.losses.append((step, record["loss"]))
        elif record["record"] == "saving":
            self.saving = (step, record["time"])
            self.saves += 1
        else:
            if self.saving is not None:
                self.durations_s.append(record["time"] - self.saving[1])
            self.saving = None
            if step in self.saved:
                self.saved_again.append(step)
            self.saved[step] = record["files"]


class TrainingServer:
    """Starts bench.frameworks.training_server and sends requests to it."""

    def __init__(self, program: str, messages: Path, temporary: Path) -> None:
        environment = {
            **os.environ,
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(temporary),
        }
        command = [sys.executable, "-m", "bench.frameworks.training_server", program]
        with messages.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, env=environment, text=True
            )
        self._answer()

    def ask(self, request: str, value: Any) -> Any:
        assert self._process.stdin is not None
        print(json.dumps({request: value}), file=self._process.stdin, flush=True)
        return self._answer()

    def kill(self, group: int) -> None:
        os.killpg(group, signal.SIGKILL)
        self.ask("wait", group)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the server of trainings has ended")
        return json.loads(line)


class WatchedRun:
    """The run, the watcher that fills it, and what it gives back."""

    def __init__(self, bitsnap: str, directory: Path, place: Path, settle_s: float) -> None:
        self._bitsnap = bitsnap
        self._directory = directory
        self._path = place / "run"
        self._events = place / "events.jsonl"
        self._messages = place / "watcher.log"
        self._settle_s = settle_s
        self._place = place

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [self._bitsnap, "watch", str(self._path), str(self._directory), "--delete-after-verify"]
        command += ["--keep-raw", "1", "--settle", str(self._settle_s), "--poll", "0.1", "--json", *options]
        with self._events.open("ab") as events, self._messages.open("ab") as messages:
            return subprocess.Popen(command, stdout=events, stderr=messages)

    def event_bytes(self) -> int:
        return self._events.stat().st_size if self._events.exists() else 0

    def events(self) -> list[dict[str, Any]]:
        found = []
        for line in self._events.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:  # cut by a kill
                continue
        return found

    def steps(self) -> list[int]:
        if not (self._path / "bitsnap.json").exists():
            return []
        return [checkpoint["step"] for checkpoint in json.loads(self._command("log", str(self._path), "--json"))]

    def extract(self, step: int, path: Path) -> None:
        """Replaces `path` by the checkpoint."""
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        self._command("extract", f"{self._path}@{step}", "-o", str(path))

    def verify(self, step: int | None = None) -> None:
        self._command("verify", str(self._path) if step is None else f"{self._path}@{step}")

    def _command(self, *arguments: str) -> bytes:
        done = subprocess.run([self._bitsnap, *arguments], capture_output=True, check=False, timeout=COMMAND_TIMEOUT_S)
        if done.returncode != 0:
            message = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise RunError(f"bitsnap {' '.join(arguments)}: status {done.returncode}: {message[-300:]}")
        return done.stdout


class RunError(Exception):
    """A command that reads the run has failed."""
