"""bitsnap watch beside a training: what is complete, what is deleted, and watchers and trainings that are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli import raw_checkpoints
from cli.command_line import CORRUPT, INVALID_ARGUMENT, NOT_FOUND, USAGE, executable, run, run_json
from cli.raw_checkpoints import data, files_of, name_of, read, safetensors, write_checkpoint

DELETE = "--delete-after-verify"
SETTLE = "0.15"
KILLS = int(os.environ.get("BITSNAP_WATCH_KILLS", "16"))


def once(directory: Path, target: Path, *options: object, status: int = 0) -> list[dict[str, Any]]:
    done = run("watch", target, directory, "--once", "--settle", SETTLE, "--json", *options, status=status)
    return [json.loads(line) for line in done.stdout.splitlines()]


def steps(path: Path) -> list[int]:
    return [checkpoint["step"] for checkpoint in run_json("log", path)] if (path / "bitsnap.json").exists() else []


def extracted(target: Path, step: int, folder: Path) -> dict[str, bytes]:
    out = folder / f"out-{step}"
    run("extract", f"{target}@{step}", "-o", out)
    return read(out)


@contextmanager
def watching(directory: Path, target: Path, *options: object) -> Iterator[subprocess.Popen[bytes]]:
    settle = () if "--settle" in options else ("--settle", SETTLE)
    command = [executable(), "watch", target, directory, *settle, "--poll", "0.03", "--json", *options]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def next_event(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    event: dict[str, Any] = json.loads(process.stdout.readline())
    return event


def set_time(path: Path, seconds: float) -> None:
    os.utime(path, (seconds, seconds))


@pytest.mark.parametrize("layout", ["transformers", "renamed", "megatron", "deepspeed", "dcp"])
def test_complete_checkpoints_are_taken_in_order(tmp_path: Path, layout: str) -> None:
    folder = tmp_path / "checkpoints"
    for step in (9, 10, 110):
        write_checkpoint(folder, layout, step)
    (folder / "tmp-checkpoint-120").mkdir()
    (folder / ".step-130").mkdir()
    (folder / "events.log").write_bytes(b"log")
    target = folder / "run"
    assert [(event["event"], event["step"]) for event in once(folder, target)] == [
        ("saved", step) for step in (9, 10, 110)
    ]
    for step in (9, 10, 110):
        assert extracted(target, step, tmp_path) == files_of(layout, step)
    assert once(folder, target) == []


@pytest.mark.parametrize(
    ("layout", "cut", "reason"),
    [
        ("transformers", "trainer_state.json", "trainer_state.json is missing"),
        ("dcp", ".metadata", ".metadata is missing"),
        ("megatron", "", "latest_checkpointed_iteration.txt does not name it yet"),
        ("deepspeed", "", "latest does not name it yet"),
    ],
)
def test_a_checkpoint_without_its_marker_is_not_complete(tmp_path: Path, layout: str, cut: str, reason: str) -> None:
    write_checkpoint(tmp_path, layout, 1)
    folder = write_checkpoint(tmp_path, layout, 2)
    if cut:
        (folder / cut).unlink()
    else:
        for marker in ("latest_checkpointed_iteration.txt", "latest"):
            if (tmp_path / marker).exists():
                (tmp_path / marker).write_text(name_of(layout, 1) if marker == "latest" else "1\n")
    target = tmp_path / "run"
    assert [(event["event"], event["step"], event.get("reason")) for event in once(tmp_path, target)] == [
        ("saved", 1, None),
        ("note", 2, f"is not complete: {reason}"),
    ]
    # A marker covers what is below the step that it names. Otherwise the unfinished checkpoint comes too late.
    write_checkpoint(tmp_path, layout, 3)
    assert ("saved", 3) in [(event["event"], event["step"]) for event in once(tmp_path, target)]
    assert steps(target) == ([1, 3] if cut else [1, 2, 3])


def test_a_checkpoint_of_transformers_needs_what_another_one_beside_it_has(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "transformers", 1)
    folder = write_checkpoint(tmp_path, "transformers", 2)
    for name in ("training_args.bin", "optimizer.pt", "trainer_state.json"):
        (folder / name).unlink()
    target = tmp_path / "run"
    events = once(tmp_path, target)
    assert [event["event"] for event in events] == ["saved", "note"]
    assert events[1]["reason"] == "is not complete: trainer_state.json is missing"
    write_checkpoint(tmp_path, "transformers", 2)
    (folder / "trainer_state.json").write_bytes(b"")
    (event,) = once(tmp_path, target)
    assert event["reason"] == "is not complete: trainer_state.json is empty"
    write_checkpoint(tmp_path, "transformers", 2)
    once(tmp_path, target)
    assert extracted(target, 2, tmp_path) == files_of("transformers", 2)


def test_a_folder_without_files_is_not_complete(tmp_path: Path) -> None:
    (tmp_path / "step-1" / "shards").mkdir(parents=True)
    (event,) = once(tmp_path, tmp_path / "run")
    assert event["reason"] == "is not complete: it holds no file"


@pytest.mark.parametrize("name", ["step=1.ckpt", "step=1.safetensors", "step-1/state.pt", "step-1/a/model.safetensors"])
def test_a_file_that_is_cut_off_is_not_complete(tmp_path: Path, name: str) -> None:
    path = tmp_path / "raw" / name
    path.parent.mkdir(parents=True)
    if path.suffix == ".safetensors":
        path.write_bytes(safetensors(1, "w"))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data/0", data(1, "w", 100_000))
    whole = path.read_bytes()
    target = tmp_path / "run"
    for cut in (len(whole) - 1, len(whole) // 2, 100):
        path.write_bytes(whole[:cut])
        (event,) = once(tmp_path / "raw", target)
        assert event["event"] == "note"
        assert event["reason"].endswith(" is cut off"), event
    path.write_bytes(whole)
    (event,) = once(tmp_path / "raw", target)
    assert event["event"] == "saved"


def test_an_empty_file_is_not_complete(tmp_path: Path) -> None:
    (tmp_path / "step=1.ckpt").touch()
    (event,) = once(tmp_path, tmp_path / "run")
    assert event["reason"] == "is not complete: it is empty"


def test_a_marker_of_an_earlier_checkpoint_marks_no_rewritten_one(tmp_path: Path) -> None:
    megatron, dcp, hf = (tmp_path / name for name in ("megatron", "dcp", "hf"))
    for folder, layout in ((megatron, "megatron"), (dcp, "dcp"), (hf, "transformers")):
        folder.mkdir()
        write_checkpoint(folder, layout, 5)
    past = time.time() - 100
    set_time(megatron / "latest_checkpointed_iteration.txt", past)
    set_time(dcp / "step-5" / ".metadata", past)
    set_time(hf / "checkpoint-5" / "trainer_state.json", past)
    reasons = [once(folder, tmp_path / f"run-{folder.name}")[0]["reason"] for folder in (megatron, dcp, hf)]
    assert "latest_checkpointed_iteration.txt was written before" in reasons[0]
    assert "distcp is newer than .metadata" in reasons[1]
    assert "training_args.bin is newer than trainer_state.json" in reasons[2]


def test_a_file_without_a_marker_is_taken_once_it_is_quiet(tmp_path: Path) -> None:
    target = tmp_path / "run"
    content = data(1, "ckpt", 20000)
    with watching(tmp_path, target, "--settle", 1) as process:
        file = tmp_path / "epoch=0-step=1.ckpt"
        for begin in range(0, len(content), 500):
            with file.open("ab") as out:
                out.write(content[begin : begin + 500])
            time.sleep(0.04)
        assert steps(target) == []
        written = time.monotonic()
        assert next_event(process)["step"] == 1
        assert time.monotonic() - written > 0.5
    run("extract", f"{target}@1", "-o", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == content


def test_a_lower_step_is_noted_once(tmp_path: Path) -> None:
    target = tmp_path / "run"
    with watching(tmp_path, target) as process:
        write_checkpoint(tmp_path, "renamed", 5)
        assert next_event(process)["event"] == "saved"
        write_checkpoint(tmp_path, "renamed", 3)
        event = next_event(process)
        assert (event["event"], event["step"]) == ("note", 3)
        assert "its step is below 5" in event["reason"]
        time.sleep(0.3)
        write_checkpoint(tmp_path, "renamed", 6)
        assert next_event(process)["event"] == "saved"
    assert steps(target) == [5, 6]


def test_a_checkpoint_that_changes_after_it_was_saved_is_noted(tmp_path: Path) -> None:
    target = tmp_path / "run"
    with watching(tmp_path, target) as process:
        folder = write_checkpoint(tmp_path, "renamed", 5)
        assert next_event(process)["event"] == "saved"
        (folder / "optimizer.pt").unlink()
        (folder / "optimizer.pt").write_bytes(b"x")
        assert "changed after it was saved" in next_event(process)["reason"]
    assert extracted(target, 5, tmp_path) == files_of("renamed", 5)


def test_two_checkpoints_of_one_step_are_not_saved(tmp_path: Path) -> None:
    (tmp_path / "step=1.ckpt").write_bytes(b"one")
    (tmp_path / "step=1-v1.ckpt").write_bytes(b"two")
    (tmp_path / "step=2.ckpt").write_bytes(b"three")
    done = once(tmp_path, tmp_path / "run")
    assert [(event["event"], event["step"]) for event in done] == [("note", 1), ("saved", 2)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with watching(tmp_path, tmp_path / "run") as process:
        write_checkpoint(tmp_path, "renamed", 1)
        assert next_event(process)["event"] == "saved"
        process.send_signal(number)
        assert process.wait(20) == 128 + number
    assert run_json("verify", tmp_path / "run")["ok"]


def test_it_waits_for_another_writer(tmp_path: Path) -> None:
    target = tmp_path / "run"
    write_checkpoint(tmp_path, "renamed", 1)
    once(tmp_path, target)
    write_checkpoint(tmp_path, "renamed", 2)
    holder = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    )
    lock = subprocess.Popen(
        [sys.executable, "-c", holder, target / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with lock, watching(tmp_path, target) as process:
        assert lock.stdin is not None
        assert lock.stdout is not None
        lock.stdout.readline()
        event = next_event(process)
        assert (event["event"], event["error"]["kind"]) == ("warning", "busy")
        lock.stdin.close()
        assert next_event(process)["event"] == "saved"


def test_wrong_arguments(tmp_path: Path) -> None:
    run("watch", tmp_path / "run", tmp_path / "missing", status=NOT_FOUND)
    run("watch", tmp_path / "run", tmp_path, "--keep-raw", 1, status=USAGE)
    run("watch", tmp_path / "run", tmp_path, "--adam-step", 1, status=INVALID_ARGUMENT)
    write_checkpoint(tmp_path, "renamed", 1)
    once(tmp_path, tmp_path / "run")
    run("watch", tmp_path / "run", tmp_path / "run" / "checkpoints", "--once", status=INVALID_ARGUMENT)


def test_swapped_arguments_are_an_error_that_names_the_order(tmp_path: Path) -> None:
    folder, target = tmp_path / "checkpoints", tmp_path / "run"
    write_checkpoint(folder, "renamed", 1)
    once(folder, target)
    before = read(tmp_path)
    for other in (folder, tmp_path):
        done = run("watch", other, target, "--once", status=INVALID_ARGUMENT)
        advice = (
            f"{other}: is a folder and no run, but {target} is a run; RUN comes first: bitsnap watch {target} {other}"
        )
        assert advice in done.stderr.decode()
    assert read(tmp_path) == before


def test_verified_checkpoints_are_deleted_but_the_newest(tmp_path: Path) -> None:
    target = tmp_path / "run"
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, "renamed", step)
    done = once(tmp_path, target, DELETE)
    assert [event["step"] for event in done if event["event"] == "deleted"] == [1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-3", "run"]
    once(tmp_path, target, DELETE, "--keep-raw", 0)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_copy_that_does_not_verify_keeps_its_raw_checkpoint(tmp_path: Path) -> None:
    target = tmp_path / "run"
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, "renamed", step)
    once(tmp_path, target)
    (shard,) = (target / "checkpoints" / "0000000002").glob("shard*")
    whole = shard.read_bytes()
    at = len(whole) // 3
    shard.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    # Nothing has to settle, so one look at the folder finds both.
    with watching(tmp_path, target, DELETE, "--settle", 0) as process:
        assert [(event["event"], event["step"]) for event in (next_event(process), next_event(process))] == [
            ("deleted", 1),
            ("warning", 2),
        ]
        write_checkpoint(tmp_path, "renamed", 4)
        assert next_event(process)["event"] == "saved"
    assert read(tmp_path / "checkpoint-2") == files_of("renamed", 2)
    once(tmp_path, target, DELETE, status=CORRUPT)
    assert read(tmp_path / "checkpoint-2") == files_of("renamed", 2)


def test_a_training_that_rotates_its_checkpoints_does_not_disturb_it(tmp_path: Path) -> None:
    target = tmp_path / "run"
    with watching(tmp_path, target) as process:
        for step in range(1, 25):
            folder = write_checkpoint(tmp_path, "renamed", step)
            if step > 2:
                old = folder.with_name(name_of("renamed", step - 2))
                for path in old.iterdir():
                    path.unlink()
                old.rmdir()
        assert process.poll() is None
    once(tmp_path, target)
    saved = steps(target)
    assert saved[-1] == 24
    for step in saved:
        assert extracted(target, step, tmp_path) == files_of("renamed", step)


class KilledWatch:
    """A training and a watcher that are killed again and again."""

    def __init__(self, folder: Path, layout: str, chance: random.Random, *, delete: bool) -> None:
        self.folder = folder
        self.directory = folder / "raw"
        self.directory.mkdir(parents=True)
        self.layout = layout
        self.target = folder / "run"
        self.messages = folder / "messages"
        self.delete = [DELETE] if delete else []
        self.counts: Counter[str] = Counter()
        self._chance = chance
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, what: str, last: int = 10**6) -> subprocess.Popen[bytes]:
        if what == "watcher":
            options = ["--settle", SETTLE, "--poll", "0.03", "-q", "-T1", *self.delete]
            command = [executable(), "watch", str(self.target), str(self.directory), *options]
        else:
            command = [sys.executable, raw_checkpoints.__file__, str(self.directory), self.layout, str(last)]
        with self.messages.open("ab") as messages:
            return subprocess.Popen(command, stderr=messages)

    def kill(self, kills: int) -> None:
        for _ in range(kills):
            for what in ("watcher", "writer"):
                if what not in self._processes:
                    self._processes[what] = self.start(what)
            time.sleep(self._chance.uniform(0.05, 0.35))
            what = self._chance.choice(("watcher", "watcher", "writer"))
            process = self._processes.pop(what)
            assert process.poll() is None, (what, self.messages.read_text())
            process.kill()
            process.wait(60)
            self.counts[f"{what} killed"] += 1
            # What a killed training left looks quiet after a while. Before Transformers writes training_args.bin,
            # nothing tells that a checkpoint is unfinished, so there the training continues at once.
            if what == "writer" and "watcher" in self._processes and self.layout != "transformers":
                time.sleep(self._chance.choice((0, 3 * float(SETTLE))))
            self.check()
        for process in self._processes.values():
            process.kill()
            process.wait(60)
        self._processes.clear()

    def check(self) -> list[int]:
        """Each complete step is raw or in the run."""
        complete = self.complete()
        there = steps(self.target)
        for step in range(1, complete + 1):
            raw = self.directory / name_of(self.layout, step)
            assert raw.is_dir() or step in there, step
        return there

    def complete(self) -> int:
        return raw_checkpoints.newest_complete(self.directory, self.layout)

    def finish(self) -> None:
        last = self.complete() + 1
        assert self.start("writer", last).wait(60) == 0
        once(self.directory, self.target, *self.delete)
        assert self.check() == list(range(1, last + 1))
        for step in range(1, last + 1):
            assert extracted(self.target, step, self.folder) == files_of(self.layout, step), step
        assert run_json("verify", self.target)["ok"]
        if self.delete:
            names = [path.name for path in self.directory.iterdir() if path.is_dir()]
            assert [name for name in names if "tmp" not in name] == [name_of(self.layout, last)], names
        self.counts["checkpoints"] += last


@pytest.mark.slow
def test_kills_at_any_moment_lose_nothing_and_take_nothing_unfinished(tmp_path: Path) -> None:
    seed = int(os.environ.get("BITSNAP_WATCH_SEED", "5"))
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    layouts = ["transformers", "renamed", "megatron", "deepspeed", "dcp"]
    for number, layout in enumerate(layouts):
        killed = KilledWatch(tmp_path / layout, layout, chance, delete=number % 2 == 1)
        killed.kill(KILLS // len(layouts))
        killed.finish()
        counts += killed.counts
    print(f"seed {seed}: {dict(counts)}")
    assert counts["watcher killed"] + counts["writer killed"] >= KILLS - len(layouts)
