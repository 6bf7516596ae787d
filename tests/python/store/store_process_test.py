"""bitsnap.Store among threads and processes: who may write, what readers see, forks and kills."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from python.processes import MIB, PEAK, STORE_IMPORTS, Start, finish_script, in_fork, lets_others_go_on, run_script
from python.run_states import Run, frozen, state_of
from python.same_bits import assert_same, random_bits

COMMAND = str(Path(sys.executable).parent / "bitsnap")
NOT_FOUND = 12  # exit status

WRITER = (
    STORE_IMPORTS
    + """
with bitsnap.Store(path, keep_last=3, settings=bitsnap.Settings(max_depth=4)) as store:
    print("open", flush=True)
    step = store.latest() or 0
    for step in range(step + 1, step + 1 + int(sys.argv[2])):
        print("saving", step, flush=True)
        store.save(step, state_of(step))
        print("saved", step, flush=True)
"""
)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_store_is_written_by_one_process_at_a_time(tmp_path: Path, start: Start) -> None:
    hold = STORE_IMPORTS + "store = bitsnap.Store(path)\nprint('open', flush=True)\ntime.sleep(float(sys.argv[2]))"
    holder = start(hold, tmp_path / "run", 60)
    assert line_of(holder) == "open"
    begin = time.monotonic()
    with pytest.raises(bitsnap.BusyError, match="run"):
        bitsnap.Store(tmp_path / "run")
    with pytest.raises(bitsnap.BusyError):
        bitsnap.Store(tmp_path / "run", timeout=0.3)
    assert 0.3 <= time.monotonic() - begin < 50  # the holder has it for 60
    with bitsnap.Store(tmp_path / "run", read_only=True) as reader:
        assert reader.steps() == []
    # Whoever is killed holds nothing any more.
    threading.Timer(0.2, holder.kill).start()
    with bitsnap.Store(tmp_path / "run", timeout=60) as store:
        store.save(1, {"a": 1})
    with holder:
        holder.wait(60)


@pytest.mark.slow
def test_those_that_wait_get_their_turn(tmp_path: Path, start: Start) -> None:
    script = (
        STORE_IMPORTS
        + """
for _ in range(5):
    with bitsnap.Store(path, timeout=60) as store:
        step = (store.latest() or 0) + 1
        store.save(step, state_of(step))
"""
    )
    processes = [start(script, tmp_path / "run") for _ in range(3)]
    for process in processes:
        finish_script(process)
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        assert store.steps() == list(range(1, 16))
        assert_same(store.load(15), state_of(15))
        store.verify()


def test_ctrl_c_ends_a_wait_for_the_lock(tmp_path: Path, start: Start) -> None:
    with bitsnap.Store(tmp_path / "run"):
        script = (
            STORE_IMPORTS
            + """
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    bitsnap.Store(path, timeout=float("inf"))
except KeyboardInterrupt:
    print(time.monotonic() - begin < 200)
"""
        )
        assert run_script(script, tmp_path / "run") == "True\n"


@pytest.mark.slow
def test_readers_see_whole_checkpoints_while_another_process_saves_and_prunes(tmp_path: Path, start: Start) -> None:
    reader = (
        STORE_IMPORTS
        + """
store = bitsnap.Store(path, read_only=True)
loads = newest = 0
while newest < int(sys.argv[2]):
    found = store.load()
    assert found["step"] >= newest, (found["step"], newest)
    newest = found["step"]
    assert_same(found, state_of(newest))
    steps = store.steps()
    assert steps == sorted(steps) and steps[-1] >= newest
    for step in steps[:2]:
        try:
            assert_same(store.load(step), state_of(step))
            loads += 1
        except bitsnap.NotFoundError:
            assert step not in store.steps()
print(loads)
"""
    )
    run_script(WRITER, tmp_path / "run", 1)
    readers = [start(reader, tmp_path / "run", 41) for _ in range(2)]
    run_script(WRITER, tmp_path / "run", 40)
    for process in readers:
        assert int(finish_script(process)) > 0
    with bitsnap.Store(tmp_path / "run", read_only=True) as store:
        assert store.steps()[-3:] == [39, 40, 41]
        assert len(store) <= 3 + 4


STATES_OF_ROUNDS = (
    STORE_IMPORTS
    + """
def state_of_round(step, number):
    weights = np.random.default_rng(number).standard_normal(2_000).astype(np.float32)
    weights[:50] += step
    return {"step": step, "round": number, "weights": weights}
"""
)


@pytest.fixture
def folder_in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder where nothing waits for a disk, so that a writer changes as much as possible beside its readers."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.mark.slow
def test_readers_see_no_damage_while_another_process_saves_the_same_steps_again(
    folder_in_memory: Path, start: Start
) -> None:
    writer = (
        STATES_OF_ROUNDS
        + """
with bitsnap.Store(path) as store:
    store.save(1, state_of_round(1, 0))
    number = 0
    while number == 0 or not (path.parent / "stop").exists():
        store.rollback(1)
        for step in (2, 3):
            store.save(step, state_of_round(step, number))
        number += 1
        if number == 1:
            print("saving", flush=True)
print(number)
"""
    )
    reader = (
        STATES_OF_ROUNDS
        + """
store = bitsnap.Store(path, read_only=True)
opened = loads = 0
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for step in 100 * (2, 3) + (None,):
        try:
            store.snapshot(step)
            opened += 1
        except bitsnap.NotFoundError:
            assert step is not None
    for step in (2, 3, None):
        try:
            found = store.load(step)
        except bitsnap.NotFoundError:
            assert step is not None
            continue
        assert step in (None, found["step"])
        assert_same(found, state_of_round(found["step"], found["round"]))
        loads += 1
    assert not any(checkpoint.damage for checkpoint in store.checkpoints())
    store.verify()
print(opened if loads > 0 else 0)
"""
    )
    path = folder_in_memory / "run"
    writing = start(writer, path)
    assert line_of(writing) == "saving"
    readers = [start(reader, path, 4) for _ in range(2)]
    verified = 0
    for command in 2 * (["verify", "run"], ["verify", "run@3"], ["inspect", "run@2"], ["log", "run"]):
        done = subprocess.run([COMMAND, *command], cwd=path.parent, capture_output=True, text=True, check=False)
        assert done.returncode in (0, NOT_FOUND), done.stdout + done.stderr
        verified += done.returncode == 0
    assert verified > 0
    opened = [int(finish_script(process)) for process in readers]
    (path.parent / "stop").touch()
    rounds = int(finish_script(writing))
    assert min(opened) > 100, (opened, rounds)
    assert rounds > 20, (opened, rounds)


@pytest.mark.slow
def test_a_killed_writer_leaves_what_it_had_saved(tmp_path: Path, start: Start) -> None:
    chance = random.Random(5)
    acknowledged = 0
    for _ in range(6):
        process = start(WRITER, tmp_path / "run", 1000)
        assert line_of(process) == "open"
        started = acknowledged
        for _ in range(3):
            word, number = line_of(process).split()
            started = int(number)
            acknowledged = started if word == "saved" else acknowledged
        time.sleep(chance.random() * 0.02)
        process.send_signal(signal.SIGKILL)
        with process:
            assert process.stdout is not None
            rest = process.stdout.read().split("\n")[:-1]
        for line in rest:
            word, number = line.split()
            started = int(number)
            acknowledged = started if word == "saved" else acknowledged
        with bitsnap.Store(tmp_path / "run") as store:
            newest = store.latest()
            assert newest in (acknowledged, started)
            assert newest is not None
            for step in store.steps():
                assert_same(store.load(step), state_of(step))
            store.verify()
            acknowledged = newest
    assert acknowledged >= 6
    with bitsnap.Store(tmp_path / "run") as store:
        store.prune(keep_last=1, reencode="always")
        assert store.steps() == [acknowledged]
    directories = [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()]
    assert directories == [f"{acknowledged:010d}"]


def test_ctrl_c_in_a_save_leaves_the_store_as_it_was(tmp_path: Path, start: Start) -> None:
    script = (
        STORE_IMPORTS
        + """
state = {"w": np.random.default_rng(1).standard_normal(12 << 20, np.float32)}
with bitsnap.Store(path, keep_last=1, settings=bitsnap.Settings(max_depth=0)) as store:
    store.save(1, state)
    threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        step = 1
        while True:
            step += 1
            state["w"] += 1
            store.save(step, state)
    except KeyboardInterrupt:
        print("interrupted")
    assert store.latest() in (step - 1, step)
    assert (path / "checkpoints" / f"{step:010d}").exists() == (store.latest() == step)
    store.verify()
    store.save(step + 1, state)
    assert_same(store.load()["w"], state["w"])
    assert store.steps() == [step + 1]
    store.verify()
"""
    )
    assert run_script(script, tmp_path / "run") == "interrupted\n"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_reads_and_is_refused_to_write(tmp_path: Path) -> None:
    run = Run(rows=1000)
    states = []
    with bitsnap.Store(tmp_path / "run", keep_base=True) as store:
        for step in (1, 2):
            states.append(frozen(run.advance()))
            store.save(step, states[-1])
        snapshot = store.snapshot()
        expected = run.advance()

        def child() -> None:
            assert store.steps() == [1, 2]
            assert_same(store.load(), states[1])
            assert_same(store.load(1), states[0])
            assert_same(bitsnap.load(snapshot), states[1])
            store.verify()
            for write in (
                lambda: store.save(3, expected),
                lambda: store.prune(keep_last=1),
                lambda: store.rollback(1),
            ):
                with pytest.raises(bitsnap.BusyError, match="forked from"):
                    write()
            with pytest.raises(bitsnap.BusyError):
                bitsnap.Store(tmp_path / "run")
            with bitsnap.Store(tmp_path / "run", read_only=True) as reader:
                assert_same(reader.load(), states[1])
            # The lock is the parent's, whatever the child does with its copy of the handle.
            store.close()

        for _ in range(2):
            assert in_fork(child) == 0
        busy = STORE_IMPORTS + "try:\n    bitsnap.Store(path)\nexcept bitsnap.BusyError:\n    print('busy')"
        assert run_script(busy, tmp_path / "run") == "busy\n"
        store.save(3, expected)
        assert_same(store.load(), expected)


class Rows(torch.utils.data.Dataset[Any]):
    """Rows of a tensor in the newest checkpoint, opened by whoever reads them."""

    def __init__(self, store: bitsnap.Store) -> None:
        self._opened = bitsnap.safe_open(store.snapshot(), "pt")

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> torch.Tensor:
        row: torch.Tensor = self._opened.get_slice("w")[index]
        return row


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_of_a_data_loader_read_a_checkpoint_that_the_parent_opened(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        tensor = torch.randn(32, 100_000)
        for step in range(3):
            tensor[step] += 1
            store.save(step, {"w": tensor})
        loader = torch.utils.data.DataLoader(
            Rows(store), batch_size=8, num_workers=2, multiprocessing_context="fork", timeout=60
        )
        assert_same(torch.cat(list(loader)), tensor)
        store.save(3, {"w": tensor})


def test_threads_share_a_handle(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run", keep_last=4, keep_base=True) as store:
        store.save(1, state_of(1))
        done = threading.Event()

        def read(_: int) -> int:
            count = 0
            while not done.is_set() or count == 0:
                found = store.load()
                assert_same(found, state_of(found["step"]))
                count += 1
            return count

        def write() -> None:
            try:
                for step in range(2, 30):
                    store.save(step, state_of(step))
            finally:
                done.set()

        with ThreadPoolExecutor(5) as pool:
            reading = [pool.submit(read, i) for i in range(3)]
            pool.submit(write).result()
            assert all(each.result() > 0 for each in reading)
        assert store.latest() == 29
        store.verify()


def test_a_store_that_is_closed_during_a_call_lets_it_end(tmp_path: Path) -> None:
    store = bitsnap.Store(tmp_path / "run")
    started = threading.Event()

    def slow(done: int, total: int) -> None:
        started.set()
        time.sleep(0.05)

    state = {"w": torch.randn(1 << 20)}
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(store.save, 1, state, progress=slow)
        assert started.wait(60)
        store.close()
        assert saving.result().step == 1
    with bitsnap.Store(tmp_path / "run", timeout=10) as again:
        assert_same(again.load(), state)


def test_other_threads_go_on_while_a_store_works(tmp_path: Path) -> None:
    state = {"w": random_bits(np.random.default_rng(1), torch.float32, (8 * MIB,))}
    with bitsnap.Store(tmp_path / "run", threads=1) as store:
        calls: dict[str, Callable[[], Any]] = {
            "save": lambda: store.save((store.latest() or 0) + 1, state),
            "save again": lambda: store.save((store.latest() or 0) + 1, state),
            "load": lambda: store.load(),
            "verify": lambda: store.verify(),
            "prune": lambda: store.prune(keep_last=1, reencode="always"),
        }
        for name, call in calls.items():
            assert lets_others_go_on(call), name


def test_the_newest_state_takes_memory_only_where_that_was_asked_for(tmp_path: Path) -> None:
    script = (
        PEAK
        + """
state = {"w": tensor(100)}
for keep_base in (0, 50 << 20, True):
    with bitsnap.Store(f"{path}-{keep_base}", keep_base=keep_base, threads=2) as store, Peak() as peak:
        store.save(1, state)
        state["w"][:1000] += 1
        store.save(2, state)
    print(peak.growth >> 20)
    loaded = bitsnap.Store(f"{path}-{keep_base}", read_only=True).load()
    assert torch.equal(loaded["w"].view(torch.int16), state["w"].view(torch.int16))
    del loaded
"""
    )
    none, too_little, kept = map(int, run_script(script, tmp_path / "run").split())
    assert none < 60
    assert too_little < 60
    assert 100 <= kept < 270


def test_a_store_that_this_process_holds_itself_is_named_so(tmp_path: Path) -> None:
    cell = "store = bitsnap.Store(path)"
    names = {"bitsnap": bitsnap, "path": tmp_path / "run"}
    exec(cell, names)
    own = r"this process, \d+, holds it .*: it is another Store of this process, such as .* notebook .* or close\(\) it"
    with pytest.raises(bitsnap.BusyError, match=own):
        exec(cell, names)
    names["store"].close()  # type: ignore[attr-defined]
    exec(cell, names)
    names["store"].close()  # type: ignore[attr-defined]
