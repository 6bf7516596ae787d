"""Kills processes that write to a run at any moment: acknowledged checkpoints survive, and nothing else stays."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

from cli.command_line import OK, executable, run, run_json
from cli.command_runs import extracted, state

KILLS = 320
MEASURED = 5  # runs of each command that measure its time


@dataclass
class Attempt:
    """A command that keeps the newest `keep` checkpoints."""

    arguments: list[str]
    keep: int


class KilledRun:
    """A run, with the steps that must exist and the bytes of those that may exist."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "run"
        self.source = folder / "s.safetensors"
        self.files: dict[int, bytes] = {}
        self.steps: list[int] = []
        self.newest = 0
        self.counts: Counter[str] = Counter()
        self._tried = 0
        self._random = random.Random(20)
        self._seconds: dict[str, list[float]] = {"add": [], "prune": []}

    def add(self) -> Attempt:
        """Adds a new step, then prunes."""
        self._tried += self._random.randint(1, 3)
        self.newest = self._tried
        self.files[self.newest] = state(self.newest, 2500)
        self.source.write_bytes(self.files[self.newest])
        step = ["--step", str(self.newest), str(self.source)]
        return Attempt(["add", str(self.path), *step, "--keep-last", "2", "--max-depth", "3"], 2)

    def prune(self) -> Attempt:
        """Rewrites the newest checkpoint, because the removed one is its base."""
        return Attempt(["prune", str(self.path), "--keep-last", "1", "--reencode", "always"], 1)

    def succeed(self, attempt: Attempt) -> None:
        start = time.perf_counter()
        run(*attempt.arguments, "-q", "-T1")
        command = attempt.arguments[0]
        self._seconds[command].append(time.perf_counter() - start)
        self.steps = sorted({*self.steps, self.newest})[-attempt.keep :]

    def kill(self, attempt: Attempt) -> None:
        """Kills the command at any moment of its run, or just after; or when it has committed a checkpoint."""
        command = attempt.arguments[0]
        longest = 1.1 * median(self._seconds[command][-20:])
        commit = self.path / f"checkpoints/{self.newest:010}/commit.json"
        with subprocess.Popen([executable(), *attempt.arguments, "-q", "-T1"]) as process:
            if command == "add" and self._random.random() < 0.3:
                # Little happens after the commit, and kills at any moment hit that seldom.
                while not commit.exists() and process.poll() is None:
                    time.sleep(0)
            else:
                time.sleep(self._random.uniform(0, longest))
            process.kill()
            status = process.wait(60)
        assert status in (OK, -signal.SIGKILL), (attempt, status)
        self.counts[f"{command} killed" if status else f"{command} came through"] += 1
        before = self.steps
        self.steps = self.check()
        if command == "add" and self.newest not in self.steps:
            assert status, "acknowledged, and lost"
            self.counts["add killed before its commit"] += 1
            self.newest = before[-1]
            assert self.steps == before
            return
        if command == "add" and status:
            self.counts["add killed after its commit"] += 1
        possible = sorted({*before, self.newest})
        assert set(self.steps) <= set(possible)
        assert self.steps[-attempt.keep :] == possible[-attempt.keep :]

    def check(self) -> list[int]:
        """Checks that every listed step can be restored; returns the steps."""
        steps = [checkpoint["step"] for checkpoint in run_json("log", self.path)]
        for step in steps:
            assert extracted(f"{self.path}@{step}") == self.files[step], step
        report = run_json("verify", "-T1", self.path)
        assert report["ok"], report
        assert [checkpoint["step"] for checkpoint in report["runs"][0]["checkpoints"]] == steps
        self.counts["steps given back"] += len(steps)
        self.counts["times with files of no checkpoint"] += bool(report["runs"][0]["strays"])
        return steps


@pytest.mark.slow
def test_a_run_survives_kills_at_any_moment(tmp_path: Path) -> None:
    killed = KilledRun(tmp_path)
    for _ in range(MEASURED):
        killed.succeed(killed.add())
        killed.succeed(killed.add())
        killed.succeed(killed.prune())
    start = time.perf_counter()
    while killed.counts["add killed"] + killed.counts["prune killed"] < KILLS:
        killed.kill(killed.add())
        killed.succeed(killed.add())
        killed.kill(killed.prune())
    print(f"{dict(killed.counts)} in {time.perf_counter() - start:.1f} s")
    # Kills hit both sides of the commit point, and pruning.
    for what in ("add killed before its commit", "add killed after its commit", "prune killed"):
        assert killed.counts[what] >= KILLS // 32, what

    killed.succeed(killed.prune())
    assert killed.check() == [killed.newest]
    files = {str(file.relative_to(killed.path)) for file in killed.path.rglob("*") if file.is_file()}
    checkpoint = f"checkpoints/{killed.newest:010}"
    own = {"bitsnap.json", "lock", "catalog", f"{checkpoint}/commit.json"}
    assert all(file.startswith(f"{checkpoint}/shard-00000-of-00001.") for file in files - own), files
    assert len(files - own) == 1
    assert [folder.name for folder in (killed.path / "checkpoints").iterdir()] == [f"{killed.newest:010}"]
