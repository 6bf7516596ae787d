"""Runs in buckets while requests fail and writers are killed: thousands of cases, each a run of its own.

    PYTHONPATH=tests:. .venv/bin/python -m soak.object_faults [--count 10000] [--seed N] [--servers NAME...]

A case is a scenario, such as a save that prunes, and a fault at one of its requests, or at all from there on, or at a
random moment. The first cases of a server are every fault at every request of every scenario; the others are drawn.
After it, a fresh process has to find every checkpoint that was there before and that the scenario does not remove,
nothing that is not whole, and a run that can be written. Errors have to name the object and say what to do. Prints a
count of cases for each kind of fault. If a guarantee is violated, the exit status is 1, and the case is printed.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import datetime
import itertools
import json
import multiprocessing
import os
import random
import re
import secrets
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import bitsnap
from bitsnap import _objects
from python.objects.object_proxy import Proxy
from python.objects.object_servers import NAMES, Server, start
from soak.soak_trainer import without_torch

FAULTS: list[str | int] = [500, 503, 429, "500 after", "cut before", "lost answer", "cut body", "hang", "late", "slow"]
KILLS = ["kill before", "kill after"]
CHUNK = 40
CASE_SECONDS = 90
ADVICE = re.compile(r"trying again|again|check |create the bucket|repair|another writer|already exists", re.IGNORECASE)

# step -> variant of its state, and label -> step
View = tuple[dict[int, int], dict[str, int]]


def state(step: int, variant: int = 0) -> dict[str, Any]:
    values = np.random.default_rng(variant).standard_normal(1500).astype(np.float32)
    return {"w": values + np.float32(1e-3) * step, "step": step}


def is_state(found: dict[str, Any], step: int, variant: int) -> bool:
    return found["step"] == step and np.array_equal(found["w"], state(step, variant)["w"])


@dataclasses.dataclass(frozen=True)
class Scenario:
    """What is done with a run, one call after the other, and what the run holds after each."""

    calls: list[tuple[Callable[[Any], object], View]]
    before: View = ({1: 0, 2: 0, 3: 0}, {"best": 2})
    template: str = "run"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    opens: bool = True  # False: the calls get the address


def _save(step: int, variant: int = 0, **options: Any) -> Callable[[Any], object]:
    return lambda store: store.save(step, state(step, variant), **options)


def _save_ranks(store: bitsnap.Store) -> None:
    for rank in (0, 1):
        store.save_shard(4, {f"r{rank}": state(4)} if rank else state(4), shard=rank, shards=2, attempt="a")
    assert store.commit(4, 2, "a")


def _load_one(run: str) -> None:
    assert np.array_equal(bitsnap.load(f"{run}@2", keys=["w"])["w"], state(2)["w"])


ALL = {1: 0, 2: 0, 3: 0}
BEST = {"best": 2}
SCENARIOS = {
    "first save": Scenario([(_save(1), ({1: 0}, {})), (_save(2), ({1: 0, 2: 0}, {}))], ({}, {}), ""),
    "later save": Scenario([(_save(4), (ALL | {4: 0}, BEST))]),
    "save and prune": Scenario([(_save(4), ({3: 0, 4: 0}, {}))], options={"keep_last": 2}),
    "save of ranks": Scenario([(_save_ranks, (ALL | {4: 0}, BEST))], template="ranks", options={"shared": True}),
    "prune": Scenario([(lambda store: store.prune(keep_last=1), ({3: 0}, {}))]),
    "rollback": Scenario([(lambda store: store.rollback(1), ({1: 0}, {}))]),
    "replace": Scenario([(_save(3, 1, replace=True), (ALL | {3: 1}, BEST))]),
    "label": Scenario(
        [
            (lambda store: store.label(3, "best"), (ALL, {"best": 3})),
            (_save(4, labels="last"), (ALL | {4: 0}, {"best": 3, "last": 4})),
            (lambda store: store.unlabel("best"), (ALL | {4: 0}, {"last": 4})),
        ]
    ),
    "repair": Scenario([(bitsnap.Store.repair, (ALL, BEST))], template="lost", opens=False),
    "load": Scenario([(_load_one, (ALL, BEST))], opens=False),
}


def write_templates(folder: Path) -> None:
    for name in ("run", "ranks", "lost"):
        with bitsnap.Store(folder / name, shared=name == "ranks") as store:
            for step in ALL:
                if name == "ranks":
                    for rank in (0, 1):
                        part = {f"r{rank}": state(step)} if rank else state(step)
                        store.save_shard(step, part, shard=rank, shards=2, attempt="a")
                    store.commit(step, 2, "a")
                else:
                    store.save(step, state(step))
            store.label(2, "best")
    (folder / "lost" / "bitsnap.json").unlink()


@dataclasses.dataclass(frozen=True)
class Case:
    number: int
    scenario: str
    fault: str | int  # "kill" at a moment
    at: int = 0  # number of the request, or milliseconds
    span: int = 1  # how many requests fail


class ViolatedError(Exception):
    pass


class Child:
    """A forked process, and the lines that it says."""

    def __init__(self, work: Callable[[Callable[[str], None]], None]) -> None:
        reading, writing = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            try:
                work(lambda line: (os.write(writing, line.encode() + b"\n"), None)[1])
            except BaseException:
                os.write(writing, b"broken " + traceback.format_exc().replace("\n", " | ").encode() + b"\n")
            os._exit(0)
        os.close(writing)
        self._reading = reading

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)

    def lines(self) -> list[str]:
        """All lines, when the process has ended."""
        text, deadline = b"", time.monotonic() + CASE_SECONDS
        hangs = False
        while True:
            if not hangs and not select.select([self._reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
                hangs = True
                self.kill()
            data = os.read(self._reading, 1 << 16)
            if not data:
                break
            text += data
        os.close(self._reading)
        os.waitpid(self.process, 0)
        return [*text.decode().splitlines(), *(["broken: it does not end"] if hangs else [])]


def act(scenario: Scenario, run: str, say: Callable[[str], None]) -> None:
    """Says "error ..." and ends, or says "done" after each call."""
    # Short pauses and waits, so that a case is short.
    for options in (_objects._RETRY, _objects._RETRY_CHANGE):
        backoff = {
            "init_backoff": datetime.timedelta(milliseconds=1),
            "max_backoff": datetime.timedelta(milliseconds=4),
        }
        options.update(max_retries=2, backoff=backoff | {"base": 2})
    for times in (_objects._TIMEOUT, _objects._TIMEOUT_CHANGE):
        times.update(timeout="400ms")
    try:
        if not scenario.opens:
            for call, _ in scenario.calls:
                call(run)
                say("done")
            return
        with bitsnap.Store(run, threads=1, **scenario.options) as store:
            for call, _ in scenario.calls:
                call(store)
                say("done")
    except bitsnap.BitsnapError as error:
        say(f"error {type(error).__name__}: {error}".replace("\n", " "))


def look(scenario: Scenario, run: str, done: int, say: Callable[[str], None]) -> None:
    """A fresh process: what the run has to hold after `done` calls and perhaps a part of the next one."""
    views = [scenario.before, *(view for _, view in scenario.calls)]
    first, then = views[done], views[min(done + 1, len(views) - 1)]
    must = {step for step in first[0] if step in then[0]}
    if scenario.template == "lost":
        bitsnap.Store.repair(run)
    try:
        with bitsnap.Store(run, read_only=True, threads=1) as store:
            check(store, must, first, then)
    except bitsnap.NotFoundError:
        assert not must, "the run is gone"
    with bitsnap.Store(run, threads=1) as store:
        before = store.steps()
        assert must <= set(before)
        store.save(10, state(10))
        assert store.steps() == [*before, 10]
        assert is_state(store.load(10), 10, 0)
    bucket, _, prefix = run.removeprefix("s3://").removeprefix("gs://").partition("/")
    client = _objects.Client(f"{run.partition(':')[0]}://{bucket}")
    keys = [key for key, _ in client.list(prefix, True)[0]]
    left = [key for key in keys if ".tmp" in key]
    assert not left, f"left behind: {left}"
    for key in keys:  # some servers list slowly if there are many objects
        client.remove(key)
    say("whole")


def check(store: bitsnap.Store, must: set[int], first: View, then: View) -> None:
    steps = set(store.steps())
    assert must <= steps, f"{sorted(steps)} lacks some of {sorted(must)}"
    for step in steps:
        variants = {view[0][step] for view in (first, then) if step in view[0]}
        assert variants, f"step {step} was not saved or was removed before"
        assert any(is_state(store.load(step), step, variant) for variant in variants), f"step {step} has another state"
    for label, step in store.labels().items():
        assert step in {view[1].get(label) for view in (first, then)}, f"{label} is {step}"
    for label in first[1].keys() & then[1].keys():
        assert label in store.labels(), f"the label {label} is lost"


class Cases:
    """Runs cases of one server, one after the other."""

    def __init__(self, server: Server, templates: Path, seed: int) -> None:
        self._server = server
        self.proxy = Proxy(server)
        self.proxy.late_seconds = 0.6
        self.proxy.slow_seconds = 0.05
        self._seed = seed
        self._templates = {
            folder.name: [
                (str(file.relative_to(folder)), file.read_bytes()) for file in folder.rglob("*") if file.is_file()
            ]
            for folder in templates.iterdir()
        }

    def run(self, case: Case) -> str:
        """What happened, in a word. Raises ViolatedError."""
        scenario = SCENARIOS[case.scenario]
        key = f"soak-{self._seed}/{case.number}-{secrets.token_hex(3)}"
        run = f"{self.proxy.bucket}/{key}"
        for name, data in self._templates.get(scenario.template, []):
            answer = self.proxy.handle(
                "PUT", f"/{self.proxy.name}/{key}/{name}", {"content-length": str(len(data))}, data
            )
            assert answer.status < 300, answer
        self.proxy.reset()
        count = itertools.count()
        last = case.at + case.span
        if case.fault != "kill":
            self.proxy.fault = lambda method, path: case.fault if case.at <= next(count) < last else None
        child = Child(lambda say: act(scenario, run, say))
        self.proxy.kill = child.kill
        if case.fault == "kill":
            threading.Timer(case.at / 1000, child.kill).start()
        said = child.lines()
        self.requests = len(self.proxy.requests)
        self.proxy.reset()
        done = said.count("done")
        errors = [line for line in said if line != "done"]
        for line in errors:
            if not line.startswith("error ") or run not in line or not ADVICE.search(line):
                raise ViolatedError(f"{line}")
        seen = Child(lambda say: self._look(scenario, run, done, say)).lines()
        if seen != ["whole"]:
            raise ViolatedError(f"after {said}: {seen}")
        if errors:
            return "error"
        return "done" if done == len(scenario.calls) else "killed"

    def _look(self, scenario: Scenario, run: str, done: int, say: Callable[[str], None]) -> None:
        if self._server.scheme == "s3":
            self._server.use(self._server.address)  # without the proxy, which is slow
        look(scenario, run, done, say)

    def requests_of(self, name: str) -> int:
        self.run(Case(-1, name, "none"))
        return self.requests


def cases(requests: dict[str, int], seed: int, count: int) -> Iterator[Case]:
    numbers = itertools.count()
    systematic: list[tuple[str, str | int, int]] = [
        (name, fault, at) for name, most in requests.items() for at in range(most) for fault in [*FAULTS, *KILLS]
    ]
    draw = random.Random(seed)
    draw.shuffle(systematic)
    for name, fault, at in systematic[:count]:
        yield Case(next(numbers), name, fault, at)
    for _ in range(count - len(systematic)):
        name = draw.choice(list(requests))
        kind = draw.randrange(3)
        if kind == 0:
            yield Case(next(numbers), name, "kill", draw.randrange(5, 250))
        else:
            drawn = draw.choice([fault for fault in FAULTS if fault not in ("hang", "slow")])
            span = draw.choice([2, 3, 4, 6]) if kind == 1 or drawn == "late" else 1 << 30
            yield Case(next(numbers), name, drawn, draw.randrange(requests[name]), span)


def run_chunk(server: Server, templates: Path, seed: int, chunk: list[Case]) -> tuple[dict[str, int], list[str]]:
    """How many cases had which fault and end, and what was violated."""
    tally: collections.Counter[str] = collections.Counter()
    violated = []
    runner = Cases(server, templates, seed)
    try:
        for case in chunk:
            try:
                end = runner.run(case)
                tally[f"{case.fault}{'' if case.span == 1 else ', several'}: {end}"] += 1
            except ViolatedError as error:
                violated.append(f"{server.name}: {case}: {error}")
    finally:
        runner.proxy.close()
    return dict(tally), violated


def run_server(name: str, folder: Path, seed: int, count: int, workers: int) -> tuple[dict[str, int], list[str]]:
    """The same for all cases of a server."""
    tally: collections.Counter[str] = collections.Counter()
    violated: list[str] = []
    without_torch()
    import obstore.store  # noqa: F401  # before processes are forked

    templates = folder / "templates"
    if not templates.exists():
        templates.mkdir()
        lines = Child(lambda say: write_templates(templates)).lines()
        assert not lines, lines
    data = folder / name
    data.mkdir()
    with start(name, data) as server:
        counter = Cases(server, templates, seed)
        requests = {scenario: counter.requests_of(scenario) for scenario in SCENARIOS}
        counter.proxy.close()
        print(f"{name}: requests of each scenario: {json.dumps(requests)}", file=sys.stderr, flush=True)
        all_cases = list(cases(requests, seed, count))
        context = multiprocessing.get_context("fork")
        with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as executor:
            chunks = [all_cases[i : i + CHUNK] for i in range(0, len(all_cases), CHUNK)]
            ends = [executor.submit(run_chunk, server, templates, seed, chunk) for chunk in chunks]
            for i, end in enumerate(concurrent.futures.as_completed(ends), 1):
                counts, found = end.result()
                tally.update(counts)
                violated += found
                for line in found:
                    print(line, file=sys.stderr, flush=True)
                if i % 10 == 0:
                    print(f"{name}: {sum(tally.values())} of {count} cases", file=sys.stderr, flush=True)
    return dict(tally), violated


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak.object_faults", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="cases in all")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    parser.add_argument("--servers", nargs="*", choices=NAMES, default=list(NAMES))
    parser.add_argument("--workers", type=int, default=4, help="cases at once; most of the time they wait")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", file=sys.stderr)
    broken = []
    with tempfile.TemporaryDirectory(prefix="bitsnap-faults-") as folder:
        for name in arguments.servers:
            count = arguments.count // len(arguments.servers)
            tally, violated = run_server(name, Path(folder), arguments.seed, count, arguments.workers)
            broken += violated
            print(f"{name}: {sum(tally.values())} cases")
            for kind, cases_of_it in sorted(tally.items()):
                print(f"  {cases_of_it:6} {kind}")
    for line in broken:
        print(f"violated guarantee: {line}")
    print("all guarantees held" if not broken else f"seed {arguments.seed}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
