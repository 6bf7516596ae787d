"""Which requests calls make, and what a checkpoint is if any of them fails."""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import itertools
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bitsnap
from python.objects.gcs_interface import Answer
from python.objects.object_proxy import Fault, Proxy
from python.processes import finish_script, run_script, start_script


def lists(requests: list[tuple[str, str]]) -> int:
    return sum("list-type" in path for _, path in requests)


def state(step: int) -> dict[str, Any]:
    values = np.random.default_rng(3).standard_normal(100_000).astype(np.float32)
    return {"w": values + np.float32(1e-4) * step, "step": step}


def test_a_save_lists_nothing_and_makes_few_requests(run: str, proxy: Proxy) -> None:
    with bitsnap.Store(run) as store:
        assert len(proxy.requests) <= 17, proxy.requests
        store.save(1, state(1))
        proxy.sent = 0
        store.save(2, state(2))
        assert store.checkpoint(2).base == 1
        assert proxy.sent < 100_000  # of 400 kB: the base is in memory
        proxy.requests.clear()
        store.save(3, state(3))
        assert lists(proxy.requests) == 0, proxy.requests
        assert sum(method == "PUT" for method, _ in proxy.requests) == 2, proxy.requests  # the file and the record
        assert len(proxy.requests) <= 10, proxy.requests


def test_a_run_that_is_not_there_costs_few_requests(run: str, proxy: Proxy) -> None:
    """Other runs of the bucket are not looked at to find a similar name."""
    for beside in ("-a", "-b", "-c"):
        bitsnap.Store(run + beside).close()
    proxy.requests.clear()
    with pytest.raises(bitsnap.NotFoundError, match="no store found: the path does not exist; a run exists once"):
        bitsnap.Store(run, read_only=True)
    assert len(proxy.requests) <= 8, proxy.requests


def test_reading_a_tensor_fetches_its_chunks(run: str, proxy: Proxy) -> None:
    random = np.random.default_rng(1)
    with bitsnap.Store(run) as store:
        tensors = {f"t{i}": random.integers(0, 256, 4 << 20, dtype=np.uint8) for i in range(8)}
        store.save(1, tensors)
    with bitsnap.Store(run, read_only=True) as store:
        proxy.requests.clear()
        proxy.sent = 0
        found = bitsnap.load(f"{run}@1", keys=["t3"])
        assert np.array_equal(found["t3"], tensors["t3"])
        assert proxy.sent < 1.2 * (4 << 20)
        assert payloads(proxy.requests, files=1) <= 1, proxy.requests  # neighbouring chunks are one request


def payloads(requests: list[tuple[str, str]], files: int) -> int:
    """How many requests were for chunks: those for snapshot files without one for the end and the head of each."""
    return sum(path.endswith(".bsnap") for _, path in requests) - 2 * files


@pytest.mark.parametrize("keys", [None, ["t1"]])
def test_a_chain_is_read_in_few_requests(keys: list[str] | None, run: str, proxy: Proxy) -> None:
    """Chunks that need each other are in four files; requests have 8 MiB at most."""
    random = np.random.default_rng(1)
    tensors = {f"t{i}": random.standard_normal(3_000_000).astype(np.float32) for i in range(4)}
    with bitsnap.Store(run) as store:
        for step in range(1, 5):
            for values in tensors.values():
                values[random.integers(0, 3_000_000, 30_000)] += np.float32(1e-3)
            store.save(step, tensors)
        stored = store.usage().stored_bytes
    proxy.requests.clear()
    proxy.sent = 0
    found = bitsnap.load(f"{run}@4", keys=keys)
    for name in keys or tensors:
        assert np.array_equal(found[name], tensors[name])
    wanted = stored if keys is None else stored // 4
    assert proxy.sent < 1.1 * wanted, (proxy.sent, wanted)
    assert payloads(proxy.requests, files=4) <= 4 + wanted // (7 << 20), proxy.requests


FAULTS: list[str | int] = [500, "lost answer", 503, "cut before", 429, "500 after", "cut body"]


def fault_at(fault: str | int, at: int) -> tuple[Fault, threading.Event]:
    """The fault at one request, and what is set when it has happened."""
    count, hit = itertools.count(), threading.Event()

    def once(method: str, path: str) -> str | int | None:
        if next(count) != at:
            return None
        hit.set()
        return fault

    return once, hit


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 3])
def test_any_request_may_fail_once(first: int, run: str, proxy: Proxy) -> None:
    """The client sends it again, or the call fails; what was committed stays, and all that is listed is whole."""
    for at in itertools.count():
        where = f"{run}-{at}"
        committed: set[int] = set()
        message = where
        proxy.fault, hit = fault_at(FAULTS[(at + first) % len(FAULTS)], at)
        try:
            with bitsnap.Store(where, keep_last=1) as store:
                for step in (1, 2):
                    store.save(step, state(step))
                    committed.add(step)
        except bitsnap.BitsnapError as error:
            message = str(error)
        proxy.reset()
        assert where in message
        check(where, committed)
        if not hit.is_set():
            return


def check(run: str, committed: set[int]) -> None:
    with contextlib.suppress(bitsnap.NotFoundError):
        with bitsnap.Store(run, read_only=True) as store:
            steps = store.steps()
            # A save that could not prune afterwards has committed all the same.
            assert not committed or max(steps) >= max(committed)
            for step in steps:
                found = store.load(step)
                assert np.array_equal(found["w"], state(step)["w"])
            assert not store.verify().damages
        return
    assert not committed


@pytest.mark.parametrize("elements", [1000, 3_000_000])  # one request, and parts
def test_what_changes_on_its_way_is_not_stored(
    elements: int, run: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    if proxy.interface is not None:
        pytest.skip("Google Cloud Storage gets no checksums")
    values = np.random.default_rng(1).integers(0, 256, 4 * elements, dtype=np.uint8)
    handle = proxy.handle

    def handle_changed(method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        if ".bsnap" in path and method == "PUT":
            body = body[:-1] + bytes([body[-1] ^ 1])
        return handle(method, path, headers, body)

    with bitsnap.Store(run) as store:
        store.save(1, {"a": 1})
        monkeypatch.setattr(proxy, "handle", handle_changed)
        with pytest.raises(bitsnap.IoError, match=re.escape(run)):
            store.save(2, {"w": values})
        monkeypatch.undo()
        assert store.steps() == [1]
        store.save(2, {"w": values})
        assert np.array_equal(store.load(2)["w"], values)


@pytest.mark.parametrize("days", [-1, 1])
def test_clocks_may_differ_by_a_day(days: int, run: str, proxy: Proxy) -> None:
    """The clock of the service is another than that of this machine."""
    shift = datetime.timedelta(days=days)

    def moved(found: re.Match[bytes]) -> bytes:
        time = datetime.datetime.fromisoformat(found[1].decode()) + shift
        return f"<LastModified>{time.isoformat(timespec='seconds').replace('+00:00', 'Z')}<".encode()

    def change(answer: Answer) -> Answer:
        headers = [
            (name, email.utils.format_datetime(email.utils.parsedate_to_datetime(value) + shift, usegmt=True))
            if name.lower() in ("last-modified", "date")
            else (name, value)
            for name, value in answer.headers
        ]
        return Answer(answer.status, headers, re.sub(rb"<LastModified>([^<]*)<", moved, answer.body))

    proxy.change = change
    with bitsnap.Store(run, keep_last=2) as store:
        for step in range(1, 5):
            store.save(step, state(step))
        with pytest.raises(bitsnap.BusyError):
            bitsnap.Store(run)
    with bitsnap.Store(run) as store:
        store.save(4, state(5), replace=True)
    with bitsnap.Store(run, read_only=True) as store:
        assert store.steps() == [3, 4]
        assert np.array_equal(store.load(4)["w"], state(5)["w"])


JOB = """
import sys, bitsnap, torch
import torch.distributed as dist, torch.distributed.checkpoint as dcp, torch.multiprocessing as mp
from bitsnap.dcp import StorageReader, StorageWriter
from bitsnap.torch import TrainingCheckpointer

run, file = sys.argv[1:]

def made(value):
    torch.manual_seed(value)
    return {f"w{i}": torch.randn(1_000_000) for i in range(6)}

def of_dcp(rank):
    state = made(2)
    dcp.load(state, checkpoint_id=f"{run}/step-1", storage_reader=StorageReader())
    assert all(torch.equal(state[name], value) for name, value in made(1).items())

def trained(seed):
    torch.manual_seed(seed)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 2000))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 1000)).square().mean().backward()
    optimizer.step()
    return {"model": model, "optimizer": optimizer}

def of_torch(rank):
    training = trained(3)
    assert TrainingCheckpointer(f"{run}-torch", **training).restore() == 1
    model, expected = training["model"], trained(1)["model"]
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), expected.state_dict().values()))

def saves(rank):
    dcp.save(made(1), checkpoint_id=f"{run}/step-1", storage_writer=StorageWriter())
    checkpointer = TrainingCheckpointer(f"{run}-torch", **trained(1))
    checkpointer.save(1)
    checkpointer.engine.wait()
    checkpointer.close()
    bitsnap.stop_agent(f"{run}-torch")

def rank_of(rank, ranks, work):
    dist.init_process_group("gloo", init_method=f"file://{file}.{work.__name__}", rank=rank, world_size=ranks)
    work(rank)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.start_processes(rank_of, (1, saves), nprocs=1, start_method="fork")
    for work in (of_dcp, of_torch):
        print(work.__name__, flush=True)
        sys.stdin.readline()
        mp.start_processes(rank_of, (4, work), nprocs=4, start_method="fork")
    print("end", flush=True)
"""


def test_four_ranks_read_a_replicated_state_once(run: str, proxy: Proxy, tmp_path: Path) -> None:
    """The bytes of a load of DCP and of bitsnap.torch, beside what is stored."""
    pytest.importorskip("torch")
    process = start_script(JOB, run, tmp_path / "meeting", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    sent: list[int] = []
    while (line := process.stdout.readline().strip()) != "end":
        assert line in ("of_dcp", "of_torch"), process.communicate()
        sent.append(proxy.sent)
        process.stdin.write("\n")
        process.stdin.flush()
    sent.append(proxy.sent)
    finish_script(process)
    for place, (before, after) in zip((run, f"{run}-torch"), itertools.pairwise(sent), strict=True):
        with bitsnap.Store(place, read_only=True) as store:
            stored = store.usage().stored_bytes
        assert after - before < 1.05 * stored, (place, after - before, stored)


GOES_ON = """
import sys, bitsnap, torch
from bitsnap.torch import TrainingCheckpointer

torch.manual_seed(1)
model = torch.nn.Linear(1000, 2000)
optimizer = torch.optim.AdamW(model.parameters())
checkpointer = TrainingCheckpointer(sys.argv[1], model=model, optimizer=optimizer)
begun = checkpointer.restore() or 0
for step in (begun + 1, begun + 2):
    optimizer.zero_grad()
    model(torch.randn(4, 1000)).square().mean().backward()
    optimizer.step()
    print(step, flush=True)
    sys.stdin.readline()
    checkpointer.save(step)
    checkpointer.engine.wait()
checkpointer.close()
bitsnap.stop_agent(sys.argv[1])
"""


@pytest.mark.parametrize("most_bytes", ["", pytest.param("0", marks=pytest.mark.slow)])
def test_the_first_save_does_not_download_what_was_restored(
    most_bytes: str, run: str, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent finds it in the directory of copies of this machine; without that, it has to."""
    pytest.importorskip("torch")
    monkeypatch.setenv("BITSNAP_CACHE", str(tmp_path / "copies"))
    monkeypatch.setenv("BITSNAP_CACHE_BYTES", most_bytes)
    for begun in (0, 2):
        process = start_script(GOES_ON, run, stdin=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        sent: list[int] = []
        for step in (begun + 1, begun + 2):
            line = process.stdout.readline().strip()
            assert line == str(step), process.communicate()
            sent.append(proxy.sent)
            process.stdin.write("\n")
            process.stdin.flush()
        finish_script(process)
    with bitsnap.Store(run, read_only=True) as store:
        assert [store.checkpoint(step).base for step in store.steps()] == [None, 1, 2, 3]
        assert not store.verify().damages
    of_save = sent[1] - sent[0]
    assert (of_save < 1_000_000) == (most_bytes == ""), of_save  # of 24 MB that are stored
    assert (tmp_path / "copies").exists() == (most_bytes == "")


FORKS = """
import os, sys, bitsnap
store = bitsnap.Store(sys.argv[1])
store.save(1, {"a": 1})
if (child := os.fork()) == 0:
    try:
        bitsnap.load(f"{sys.argv[1]}@1")
    except bitsnap.UnsupportedError as error:
        print(error, flush=True)
    store.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
store.save(2, {"a": 1})  # the lease is still held
print(bitsnap.load(f"{sys.argv[1]}@1")["a"])
"""


def test_a_forked_child_fails_instead_of_hanging(run: str) -> None:
    lines = run_script(FORKS, run, timeout=60).splitlines()
    assert "was forked from" in lines[0]
    assert lines[1:] == ["1"]
