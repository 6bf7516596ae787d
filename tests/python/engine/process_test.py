"""What the package does to its process: the GIL, memory, signals, threads and forks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bitsnap
from python.processes import MIB, PEAK, in_fork, lets_others_go_on, run_script
from python.same_bits import assert_same, random_bits


def test_other_threads_go_on_while_the_library_works(tmp_path: Path) -> None:
    state = {"w": random_bits(np.random.default_rng(1), torch.float32, (24 * MIB,))}
    path = tmp_path / "a.bsnap"
    bitsnap.save(path, state)

    def verify_often() -> None:
        for _ in range(5):  # one takes a few milliseconds
            bitsnap.verify(path, threads=1)

    calls: dict[str, Callable[[], Any]] = {
        "save": lambda: bitsnap.save(path, state, overwrite=True, threads=1),
        "load": lambda: bitsnap.load(path, threads=1),
        "load into": lambda: bitsnap.load(path, into=state, threads=1),
        "slice": lambda: bitsnap.safe_open(path, "pt", threads=1).get_slice("w")[5:-5],
        "verify": verify_often,
        "decompress": lambda: bitsnap.decompress(path, tmp_path / "a.safetensors", overwrite=True, threads=1),
        "compress": lambda: bitsnap.compress(tmp_path / "a.safetensors", tmp_path / "b.bsnap", threads=1),
    }
    for name, call in calls.items():
        assert lets_others_go_on(call), name


def test_a_contiguous_tensor_is_not_copied_on_its_way_in_or_out(tmp_path: Path) -> None:
    script = (
        PEAK
        + """
state = {"w": tensor(300), "v": np.ones(25 << 20, np.float32)}
with Peak() as peak:
    bitsnap.save(path, state, overwrite=True, threads=2)
print(peak.growth)
with Peak() as peak:
    bitsnap.load(path, into=state, threads=2)
print(peak.growth)
"""
    )
    saved, loaded = map(int, run_script(script, tmp_path / "a.bsnap").split())
    assert saved < 60 * MIB
    assert loaded < 60 * MIB


@pytest.mark.slow
def test_views_are_not_copied_either(tmp_path: Path) -> None:
    script = (
        PEAK
        + """
state = {f"w{i}": tensor(40).view(1024, -1).t() for i in range(10)}
state["expanded"] = tensor(1)[:1].expand(100 << 19)
with Peak() as peak:
    bitsnap.save(path, state, overwrite=True, threads=2)
print(peak.growth)
loaded = bitsnap.load(path, threads=2)
assert all(torch.equal(loaded[name].view(torch.int16), state[name].view(torch.int16)) for name in state)
"""
    )
    assert int(run_script(script, tmp_path / "a.bsnap")) < 60 * MIB


@pytest.mark.slow
def test_what_has_to_be_computed_is_computed_one_after_another(tmp_path: Path) -> None:
    script = (
        PEAK
        + """
state = {f"w{i}": tensor(40).view(torch.complex64).conj() for i in range(10)}
with Peak() as peak:
    bitsnap.save(path, state, overwrite=True, threads=2)
print(peak.growth)
loaded = bitsnap.load(path, threads=2)
assert all(torch.equal(loaded[name].view(torch.int64), state[name].resolve_conj().view(torch.int64)) for name in state)
"""
    )
    assert int(run_script(script, tmp_path / "a.bsnap")) < 200 * MIB  # of 400


def test_ctrl_c_ends_what_is_going_on_and_leaves_nothing(tmp_path: Path) -> None:
    script = """
import os, signal, sys, threading, time
import numpy as np, bitsnap
path = sys.argv[1]
state = {"w": np.random.default_rng(1).standard_normal(64 << 20, np.float32)}
bitsnap.save(path + ".large", state)
bitsnap.save(path, {"old": 1})
calls = {
    "save": lambda progress=None: bitsnap.save(path, state, overwrite=True, progress=progress),
    "load": lambda progress=None: bitsnap.load(path + ".large", into=state, progress=progress),
    "verify": lambda progress=None: bitsnap.verify(path + ".large", progress=progress),
}
for name, call in calls.items():
    seen = []
    def interrupt_once(done, total):
        seen.append(done < total)
        if len(seen) == 1:
            os.kill(os.getpid(), signal.SIGINT)
    try:
        call(interrupt_once)
    except KeyboardInterrupt:
        print(name, "interrupted", seen[-1])
    assert bitsnap.load(path) == {"old": 1}

for name, call in calls.items():
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        while True:
            call()
    except KeyboardInterrupt:
        print(name, "interrupted")
    timer.join()
"""
    assert run_script(script, tmp_path / "a.bsnap").splitlines() == [
        "save interrupted True",
        "load interrupted True",
        "verify interrupted True",
        "save interrupted",
        "load interrupted",
        "verify interrupted",
    ]
    assert sorted(os.listdir(tmp_path)) == ["a.bsnap", "a.bsnap.large"]  # noqa: PTH208
    bitsnap.verify(tmp_path / "a.bsnap")


def test_many_threads_may_use_one_snapshot(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    state = {f"w{i}": random_bits(rng, torch.bfloat16, (300, 1000 + i)) for i in range(8)}
    bitsnap.save(tmp_path / "base.bsnap", {name: tensor.roll(1) for name, tensor in state.items()})
    bitsnap.save(tmp_path / "a.bsnap", state, base=tmp_path / "base.bsnap")
    opened = bitsnap.safe_open(tmp_path / "a.bsnap", "pt")

    def work(i: int) -> None:
        name = f"w{i % 8}"
        assert_same(opened.get_tensor(name), state[name])
        assert_same(opened.get_slice(name)[10:20], state[name][10:20])
        bitsnap.save_file({name: state[name].t()}, tmp_path / f"{i}.bsnap", base=tmp_path / "base.bsnap")
        assert_same(bitsnap.load_file(tmp_path / f"{i}.bsnap"), {name: state[name].t()})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(32)))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_of_a_process_that_has_used_threads_works(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    state: dict[str, Any] = {
        "w": random_bits(rng, torch.bfloat16, (1000, 1500)),
        "v": rng.standard_normal((700, 700)).T,
    }
    bitsnap.save(tmp_path / "a.bsnap", state)
    assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)
    opened = bitsnap.Snapshot(tmp_path / "a.bsnap")

    def child() -> None:
        assert_same(bitsnap.load(tmp_path / "a.bsnap"), state)
        assert_same(bitsnap.load(opened), state)
        assert_same(bitsnap.safe_open(opened, "pt").get_slice("w")[3:-3], state["w"][3:-3])
        bitsnap.save(tmp_path / "b.bsnap", state, base=opened, overwrite=True)
        bitsnap.verify(tmp_path / "b.bsnap")
        assert in_fork(lambda: bitsnap.verify(tmp_path / "b.bsnap")) == 0

    for _ in range(3):
        assert in_fork(child) == 0
    assert_same(bitsnap.load(tmp_path / "b.bsnap"), state)


class Rows(torch.utils.data.Dataset[Any]):
    """Rows of a tensor in a file, opened by whoever reads them."""

    def __init__(self, path: Path) -> None:
        self._opened = bitsnap.safe_open(path, "pt")

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> torch.Tensor:
        row: torch.Tensor = self._opened.get_slice("w")[index]
        return row


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_of_a_data_loader_read_what_the_parent_opened(tmp_path: Path) -> None:
    tensor = torch.randn(32, 100_000)
    bitsnap.save_file({"w": tensor}, tmp_path / "a.bsnap")
    loader = torch.utils.data.DataLoader(
        Rows(tmp_path / "a.bsnap"), batch_size=8, num_workers=2, multiprocessing_context="fork", timeout=60
    )
    assert_same(torch.cat(list(loader)), tensor)


def test_a_killed_save_leaves_the_old_file(tmp_path: Path) -> None:
    script = """
import sys
import numpy as np, bitsnap
state = {"w": np.random.default_rng(1).standard_normal(64 << 20, np.float32)}
bitsnap.save(sys.argv[1], {"old": 1})
print("saving", flush=True)
def progress(done, total):
    print(done, flush=True)
    sys.stdin.read()  # until it is killed
bitsnap.save(sys.argv[1] + "2", state, overwrite=True, progress=progress)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "a.bsnap")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "saving\n"
        process.stdout.readline()
        process.kill()
    assert bitsnap.load(tmp_path / "a.bsnap") == {"old": 1}
    assert not (tmp_path / "a.bsnap2").exists()
