"""A training of a framework and `bitsnap watch` beside it, both killed again and again, and what must hold then.

Each checkpoint is expected with the hashes that the training wrote to its journal after the framework's call had
returned. A checkpoint that was complete by the marker of its framework when the training was killed, before the journal
had it, is expected with the hashes that its files have then. No other checkpoint may be in the run.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.watched_run import Journal, RunError, TrainingServer, WatchedRun, hashes_of, is_intact

LAST_STEP = 20_000  # more than a training reaches
PROGRESS_TIMEOUT_S = 90
LONGEST_WAIT_S = 6.0
SAMPLED = 2  # checkpoints that are extracted after each kill


class Framework(NamedTuple):
    program: str  # a module of bench.frameworks
    packages: tuple[str, ...]
    checkpoint: str  # the name of a checkpoint, with {step}
    marks_complete: Callable[[Path, int], bool]
    ranks: int = 1
    save_every: int = 10
    share: int = 1  # of the kills


class TrainingStuckError(Exception):
    """The training does not go on, so nothing more can be measured."""


class KilledTraining:
    def __init__(
        self, framework: Framework, place: Path, bitsnap: str, chance: random.Random, settle_s: float, pace_s: float
    ) -> None:
        self._framework = framework
        self._place = place
        self._chance = chance
        self._settle_s = settle_s
        self._pace_s = pace_s
        self._directory = place / "checkpoints"
        temporary = place / "temporary"
        for folder in (self._directory, place / "alone", temporary):
            folder.mkdir()
        self._messages = place / "training.log"
        self._run = WatchedRun(bitsnap, self._directory, place, settle_s)
        self._journal = Journal(place / "journal.jsonl")
        self._server = TrainingServer(framework.program, self._messages, temporary)
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
            if self._watcher is not None:
                self._watcher.kill()
                self._watcher.wait()
            self._server.close()

    # The two processes.

    def _start_both(self) -> None:
        if self._watcher is None:
            self._watcher = self._run.start()
        if self._training is None:
            self._start_training()
        steps = len(self._journal.losses)
        self._await_training(lambda: len(self._journal.losses) > steps)

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
                self._run.extract(step, source)
                self.counts["resumed from the run"] += 1
        self._training = self._start(self._directory, source, "journal.jsonl", self._framework.save_every, self._pace_s)

    def _start(self, folder: Path, source: Path | None, journal: str, save_every: int, pace_s: float) -> int:
        arguments = {
            "folder": str(folder),
            "resume": None if source is None else str(source),
            "losses": str(self._place / "losses.json"),
            "journal": str(self._place / journal),
            "last": LAST_STEP,
            "save_every": save_every,
            "ranks": self._framework.ranks,
            "pace_s": pace_s,
        }
        group: int = self._server.ask("train", arguments)["group"]
        return group

    def _kill_watcher(self) -> None:
        """At any moment, or soon after it has saved or deleted something, when it often does the next such thing."""
        assert self._watcher is not None
        if self._chance.random() < 0.5:
            time.sleep(self._chance.uniform(0.2, LONGEST_WAIT_S))
        else:
            time.sleep(self._chance.uniform(0, LONGEST_WAIT_S / 2))
            before, end = self._run.event_bytes(), time.monotonic() + LONGEST_WAIT_S
            while self._run.event_bytes() == before and time.monotonic() < end:
                time.sleep(0.001)
            time.sleep(self._chance.uniform(0, 0.4))
        if self._watcher.poll() is not None:
            self._violate(f"the watcher has ended with status {self._watcher.returncode}; see {self._place}")
        self._watcher.kill()
        self._watcher.wait()
        self._watcher = None
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
        self._server.kill(self._training)
        self._training = None
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
                if self._server.ask("ended", self._training)["ended"]:
                    raise TrainingStuckError(f"the training has ended by itself; see {self._messages}")
            if now > end:
                raise TrainingStuckError(f"the training makes no progress; see {self._messages}")
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
            if self._framework.marks_complete(raw, step) and is_intact(raw):
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
            return self._run.steps()
        except RunError as error:
            self._violate(str(error))
            return []

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
                self._run.verify(step)
            self._run.extract(step, path)
        except RunError as error:
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
        assert self._training is not None
        self._server.kill(self._training)
        self._training = None
        self._journal.after_kill()
        self._record_found()
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.wait()
            self._watcher = None
        if (status := self._run.start("--once").wait()) != 0:
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
            self._run.verify()
        except RunError as error:
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
            failures = self._server.ask("load", [str(path) for path in paths])["failures"]
            for path, error in failures.items():
                self._violate(f"{Path(path).name}, extracted, cannot be loaded: {error}")
            self.counts["loaded"] += len(paths) - len(failures)
            for path in paths:
                _remove(path)

    def _compare_losses(self) -> None:
        """With those of a training of its own that nothing interrupts."""
        alone = Journal(self._place / "alone.jsonl")
        last = max(step for step, _ in self._journal.losses)
        training = self._start(self._place / "alone", None, "alone.jsonl", LAST_STEP + 1, 0)
        end = time.monotonic() + 20 * PROGRESS_TIMEOUT_S
        while not alone.losses or alone.losses[-1][0] < last:
            time.sleep(0.1)
            alone.read()
            if time.monotonic() > end or self._server.ask("ended", training)["ended"]:
                self._violate(f"the training without kills does not reach step {last}")
                break
        self._server.kill(training)
        expected = dict(alone.losses)
        for step, loss in self._journal.losses:
            self.counts["losses"] += 1
            if expected.get(step) != loss:
                self._violate(f"the loss of step {step} is {loss!r}, and {expected.get(step)!r} without kills")


def _remove(path: Path) -> None:
    if path.is_dir():
        for each in sorted(path.rglob("*"), reverse=True):
            each.rmdir() if each.is_dir() else each.unlink()
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


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


FRAMEWORKS = {
    "transformers": Framework(
        "transformers_trainer", ("transformers", "accelerate"), "checkpoint-{step}", marks_transformers, share=2
    ),
    # Written elsewhere and renamed: it is complete if it is there.
    "lightning": Framework("lightning_trainer", ("lightning",), "step={step}.ckpt", lambda _, __: True, share=2),
    "deepspeed": Framework(
        "deepspeed_zero", ("deepspeed",), "global_step{step}", marks_deepspeed, ranks=2, save_every=4
    ),
    "dcp": Framework("fsdp_dcp", ("torch",), "step-{step}", marks_dcp, ranks=2, share=2),
}
