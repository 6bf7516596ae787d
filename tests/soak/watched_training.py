"""A training of a framework and `bitsnap watch` beside it, both killed again and again, and what must hold then.

Each checkpoint is expected with the hashes that the training wrote to its journal after the framework's call had
returned. A checkpoint that was complete by the marker of its framework when the training was killed, before the journal
had it, is expected with the hashes that its files have then. No other checkpoint may be in the run.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bench.frameworks import FRAMEWORKS, Framework
from bench.frameworks.task import Task
from cli.command_line import executable, run, run_json
from soak.forked import fork, kill, wait
from soak.training_journal import Journal, JournalWriter, hashes_of

LAST_STEP = 20_000  # more than a training reaches
PROGRESS_TIMEOUT_S = 90
LONGEST_WAIT_S = 6.0
SAMPLED = 2  # checkpoints that are extracted after each kill


class Watched(NamedTuple):
    """A framework whose checkpoints are watched."""

    framework: Framework
    marks_complete: Callable[[Path, int], bool]
    save_every: int = 10
    share: int = 1  # of the kills


class TrainingStuckError(Exception):
    """The training does not go on, so nothing more can be measured."""


class WatchedTraining:
    def __init__(self, watched: Watched, place: Path, chance: random.Random, settle_s: float, pace_s: float) -> None:
        self._watched = watched
        self._framework = watched.framework
        self._place = place
        self._chance = chance
        self._settle_s = settle_s
        self._pace_s = pace_s
        self._directory = place / "checkpoints"
        for folder in (self._directory, place / "alone", place / "temporary"):
            folder.mkdir()
        self._run = place / "run"
        self._log = place / "training.log"
        self._events = place / "events.jsonl"
        self._journal = Journal(place / "journal.jsonl")
        self._found: dict[int, dict[str, str]] = {}  # complete, but not in the journal
        self._training: int | None = None  # its process group
        self._watcher: subprocess.Popen[bytes] | None = None
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    def measure(self, kills: int) -> None:
        try:
            # Only beside a complete checkpoint of Transformers can the watcher tell that another one is unfinished.
            self._start_both()
            self._await_training(lambda: bool(self._journal.saved))
            for number in range(kills):
                self._start_both()
                if self._chance.random() < 0.5:
                    self._kill_watcher()
                else:
                    self._kill_training()
                self._check()
                if (number + 1) % 10 == 0:
                    print(f"  {number + 1} kills: {dict(self.counts)}", flush=True)
            self._finish()
        except TrainingStuckError as error:
            self._violate(str(error))
        finally:
            self._end_watcher()
            self._end_training()

    # The two processes.

    def _start_both(self) -> None:
        if self._watcher is None:
            self._watcher = self._start_watcher()
        if self._training is None:
            self._start_training()
        steps = len(self._journal.losses)
        self._await_training(lambda: len(self._journal.losses) > steps)

    def _start_watcher(self, *options: str) -> subprocess.Popen[bytes]:
        command = [executable(), "watch", str(self._run), str(self._directory), "--delete-after-verify"]
        command += ["--keep-raw", "1", "--settle", str(self._settle_s), "--poll", "0.1", "--json", *options]
        with self._events.open("ab") as events, (self._place / "watcher.log").open("ab") as messages:
            return subprocess.Popen(command, stdout=events, stderr=messages)

    def _start_training(self) -> None:
        step = self._newest_complete()
        newest = max(self._expected(), default=None)
        is_gone = newest is not None and (step is None or step < newest)
        if is_gone:  # a violation, but the run may have it
            step = newest
        source = None
        if step is not None:
            source = self._raw(step)
            if (is_gone or self._chance.random() < 0.5) and step in self._steps_of_run():
                source = self._place / "resumed" / source.name
                self._extract(step, source)
                self.counts["resumed from the run"] += 1
        observer = JournalWriter(self._journal.path, self._pace_s)
        self._training = self._train(
            Task(self._directory, source, LAST_STEP, self._watched.save_every, observer=observer)
        )

    def _train(self, task: Task) -> int:
        def work() -> None:
            os.environ["TMPDIR"] = str(self._place / "temporary")  # of what killed trainings leave
            tempfile.tempdir = None
            self._framework.train(task, self._log)

        return fork(work, self._log)

    def _end_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.wait()
            self._watcher = None

    def _end_training(self) -> None:
        if self._training is not None:
            kill(self._training)
            self._training = None

    def _kill_watcher(self) -> None:
        """At any moment, or soon after it has saved or deleted something, when it often does the next such thing."""
        assert self._watcher is not None
        if self._chance.random() < 0.5:
            time.sleep(self._chance.uniform(0.2, LONGEST_WAIT_S))
        else:
            time.sleep(self._chance.uniform(0, LONGEST_WAIT_S / 2))
            before, end = self._events.stat().st_size, time.monotonic() + LONGEST_WAIT_S
            while self._events.stat().st_size == before and time.monotonic() < end:
                time.sleep(0.001)
            time.sleep(self._chance.uniform(0, 0.4))
        if self._watcher.poll() is not None:
            self._violate(f"the watcher has ended with status {self._watcher.returncode}; see {self._place}")
        self._end_watcher()
        self.counts["watcher killed"] += 1

    def _kill_training(self) -> None:
        """At any moment, or while it saves. Then it stays away for a while, or it goes on immediately."""
        assert self._training is not None
        if self._chance.random() < 0.4:
            time.sleep(self._chance.uniform(0.2, LONGEST_WAIT_S / 2))
        else:
            time.sleep(self._chance.uniform(0, LONGEST_WAIT_S / 4))
            saves = self._journal.saves
            self._await_training(lambda: self._journal.saves > saves)
            typical = statistics.median(self._journal.durations_s[-20:] or [0.05])
            time.sleep(self._chance.uniform(0, 1.1 * typical))
        self._end_training()
        self.counts["training killed"] += 1
        cut = self._journal.after_kill()
        self._record_found()
        if cut is None:
            return
        self.counts["in a save"] += 1
        left = self._raw(cut)
        if left.exists() and cut not in self._expected():
            self.counts["left half-written"] += 1
        if self._chance.random() < 0.5:
            time.sleep(self._settle_s + 1.5)

    def _await_training(self, is_reached: Callable[[], bool]) -> None:
        assert self._training is not None
        end = time.monotonic() + PROGRESS_TIMEOUT_S
        polled = time.monotonic()
        while True:
            self._journal.read()
            if is_reached():
                return
            now = time.monotonic()
            if now > polled + 0.5:
                polled = now
                if wait(self._training, now) is not None:
                    self._end_training()
                    raise TrainingStuckError(f"the training has ended by itself; see {self._log}")
            if now > end:
                raise TrainingStuckError(f"the training makes no progress; see {self._log}")
            time.sleep(0.001)

    # Checkpoints.

    def _raw(self, step: int) -> Path:
        return self._directory / self._framework.checkpoint.format(step=step)

    def _expected(self) -> dict[int, dict[str, str]]:
        return {**self._journal.saved, **self._found}

    def _newest_complete(self) -> int | None:
        """The step of the newest checkpoint that is raw; the journal and the marker of the framework say so."""
        before, after = self._framework.checkpoint.split("{step}")
        steps = []
        for path in self._directory.iterdir():
            number = path.name.removeprefix(before).removesuffix(after)
            if number.isdigit() and path == self._raw(int(number)):
                steps.append(int(number))
        for step in sorted(steps, reverse=True):
            if step in self._expected():
                return step
            raw = self._raw(step)
            if self._watched.marks_complete(raw, step) and is_intact(raw):
                return step
        return None

    def _record_found(self) -> None:
        step = self._newest_complete()
        if step is not None and step not in self._expected():
            self._found[step] = hashes_of(self._raw(step))
            self.counts["complete, not in the journal"] += 1
        newest = max(self._expected(), default=None)
        if newest is not None and (step is None or step < newest):
            self._violate(f"step {newest} was complete, but the newest raw checkpoint is {step}")

    def _steps_of_run(self) -> list[int]:
        try:
            return [checkpoint["step"] for checkpoint in run_json("log", self._run)] if self._run.exists() else []
        except AssertionError as error:  # of the command
            self._violate(str(error))
            return []

    def _extract(self, step: int, path: Path) -> None:
        """Replaces `path` by the checkpoint."""
        _remove(path)
        path.parent.mkdir(exist_ok=True)
        run("extract", f"{self._run}@{step}", "-o", path)

    # What must hold.

    def _violate(self, text: str) -> None:
        if text not in self.violations:
            self.violations.append(text)
            print(f"  VIOLATION: {text}", flush=True)

    def _check(self) -> None:
        self._journal.read()
        there = self._steps_of_run()
        end = time.monotonic() + 10
        while set(there) - self._expected().keys() and self._training is not None and time.monotonic() < end:
            time.sleep(0.05)
            self._journal.read()
        for step in set(there) - self._expected().keys():
            self._violate(f"step {step} is in the run, but was never complete")
        for step in self._journal.saved_again:
            self._violate(f"step {step} was complete and was trained again")
        for step, files in self._expected().items():
            if not self._is_raw(step, files) and step not in there and step not in self._steps_of_run():
                self._violate(f"step {step} was complete; it is neither raw nor in the run")
        sampled = set(self._chance.sample(there, min(SAMPLED - 1, len(there))))
        for step in sampled | set(there[-1:]):
            self._compare(step, self._place / "extracted" / self._raw(step).name)
            self.counts["compared after kills"] += 1

    def _is_raw(self, step: int, files: dict[str, str]) -> bool:
        raw = self._raw(step)
        try:
            if hashes_of(raw) == files:
                return True
        except FileNotFoundError:
            pass
        if raw.exists():  # not a deletion in the meantime
            self._violate(f"the raw checkpoint of step {step} is not what it was when it was complete")
            return True
        return False

    def _compare(self, step: int, path: Path, *, verify: bool = True) -> None:
        try:
            if verify:
                run("verify", f"{self._run}@{step}")
            self._extract(step, path)
        except AssertionError as error:
            self._violate(str(error))
            return
        try:
            is_equal = hashes_of(path) == self._expected().get(step)
        except FileNotFoundError:  # a folder without files
            is_equal = False
        if not is_equal:
            self._violate(f"step {step} of the run is not the checkpoint that was complete")

    def _finish(self) -> None:
        """Ends both processes after one more checkpoint, takes what is left, and compares everything."""
        self._start_both()
        saved = len(self._journal.saved)
        self._await_training(lambda: len(self._journal.saved) > saved)
        self._end_training()
        self._journal.after_kill()
        self._record_found()
        self._end_watcher()
        if (status := self._start_watcher("--once").wait()) != 0:
            self._violate(f"bitsnap watch --once ends with status {status}")
        self._check()
        there = self._steps_of_run()
        expected = self._expected()
        for step in sorted(expected.keys() - set(there)):
            self._violate(f"step {step} was complete; it is not in the run")
        for step in sorted(expected)[:-1]:
            if self._raw(step).exists():
                self._violate(f"step {step} is in the run and was not deleted")
        for path in self._directory.glob(".*.deleting"):
            self._violate(f"{path.name} is left of a deletion")
        try:
            run("verify", self._run)
        except AssertionError as error:
            self._violate(str(error))
        self._compare_all(there)
        self._compare_losses()
        self.counts["written"] = len(expected)
        self.counts["taken"] = len(there)
        self.counts["deleted"] = sum(not self._raw(step).exists() for step in expected)

    def _compare_all(self, there: list[int]) -> None:
        folder = self._place / "all"
        for begin in range(0, len(there), 20):
            paths = []
            for step in there[begin : begin + 20]:
                path = folder / self._raw(step).name
                self._compare(step, path, verify=False)
                paths.append(path)
            failures = self._load(paths)
            for name, error in failures.items():
                self._violate(f"{name}, extracted, cannot be loaded: {error}")
            self.counts["loaded"] += len(paths) - len(failures)
            for path in paths:
                _remove(path)

    def _load(self, paths: list[Path]) -> dict[str, str]:
        """Loads checkpoints with their framework, in another process. The errors by name."""
        answer = self._place / "failures.json"

        def work() -> None:
            failures = {}
            for path in paths:
                try:
                    self._framework.module().load_all(path)
                except Exception as error:  # whatever the framework raises
                    failures[path.name] = f"{type(error).__name__}: {error}"
            answer.write_text(json.dumps(failures))

        answer.unlink(missing_ok=True)
        status = wait(fork(work, self._log), time.monotonic() + 20 * PROGRESS_TIMEOUT_S)
        if not answer.exists():
            return {path.name: f"status {status}" for path in paths}
        failures: dict[str, str] = json.loads(answer.read_text())
        return failures

    def _compare_losses(self) -> None:
        """With those of a training of its own that nothing interrupts."""
        alone = Journal(self._place / "alone.jsonl")
        last = max(step for step, _ in self._journal.losses)
        task = Task(self._place / "alone", None, LAST_STEP, LAST_STEP + 1, observer=JournalWriter(alone.path, 0))
        training = self._train(task)
        end = time.monotonic() + 20 * PROGRESS_TIMEOUT_S
        while not alone.losses or alone.losses[-1][0] < last:
            alone.read()
            if time.monotonic() > end or wait(training, time.monotonic() + 0.1) is not None:
                self._violate(f"the training without kills does not reach step {last}")
                break
        kill(training)
        expected = dict(alone.losses)
        for step, loss in self._journal.losses:
            self.counts["losses"] += 1
            if expected.get(step) != loss:
                self._violate(f"the loss of step {step} is {loss!r}, and {expected.get(step)!r} without kills")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def is_intact(checkpoint: Path) -> bool:
    """Whether no file of it is cut or damaged, as far as its format can tell."""
    paths = [checkpoint] if checkpoint.is_file() else list(checkpoint.rglob("*"))
    with contextlib.suppress(OSError, ValueError, zipfile.BadZipFile):
        return all(map(_is_intact_file, paths))
    return False


def _is_intact_file(path: Path) -> bool:
    if path.suffix in {".pt", ".pth", ".bin", ".ckpt"}:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    if path.suffix == ".json":
        json.loads(path.read_text())
    elif path.suffix == ".safetensors":
        content = path.read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:end])
        ends = [value["data_offsets"][1] for key, value in header.items() if key != "__metadata__"]
        return bool(len(content) == end + max(ends))
    return True


def marks_transformers(checkpoint: Path, step: int) -> bool:
    try:
        state = json.loads((checkpoint / "trainer_state.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(state["global_step"] == step)


def marks_deepspeed(checkpoint: Path, _: int) -> bool:
    latest = checkpoint.parent / "latest"
    return latest.exists() and latest.read_text().strip() == checkpoint.name


def marks_dcp(checkpoint: Path, _: int) -> bool:
    return (checkpoint / ".metadata").exists()


WATCHED = {
    "transformers": Watched(FRAMEWORKS["transformers"], marks_transformers, share=2),
    # Written elsewhere and renamed: it is complete if it is there.
    "lightning": Watched(FRAMEWORKS["lightning"], lambda _, __: True, share=2),
    "deepspeed": Watched(FRAMEWORKS["deepspeed2"], marks_deepspeed, save_every=4),
    "dcp": Watched(replace(FRAMEWORKS["dcp"], ranks=2), marks_dcp, share=2),
}
