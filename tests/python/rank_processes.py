"""Persistent processes of one gloo group, which run functions that a test sends to them."""

from __future__ import annotations

import contextlib
import datetime
import gc
import multiprocessing as mp
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

# Of a rank: True with what the function returned, or False with its traceback; None: the process has died.
Outcome: TypeAlias = "tuple[bool, Any] | None"

_context = mp.get_context("forkserver")
# DTensor imports torch._dynamo when it is used first, which takes seconds.
_context.set_forkserver_preload(
    [
        "torch",
        "torch.distributed.checkpoint",
        "bitsnap.dcp",
        "bitsnap.torch",
        "torch._dynamo",
        "torch.distributed.tensor",
    ]
)


class Ranks:
    """Starts `count` processes; each function runs on all of them at once, with its rank as the first argument."""

    def __init__(self, meeting: Path, count: int, gloo_timeout_s: float = 60) -> None:
        self._pipes: list[Connection] = []
        self.processes = []
        for rank in range(count):
            ours, theirs = _context.Pipe()
            process = _context.Process(target=_work, args=(theirs, meeting, rank, count, gloo_timeout_s))
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)

    def outcomes(self, function: Callable[..., Any], *arguments: Any, timeout_s: float = 200) -> list[Outcome]:
        """What became of the function on each rank. Fails if a rank neither ends it nor dies in time."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send((dict(os.environ), function, arguments))
        deadline = time.monotonic() + timeout_s
        outcomes: dict[int, Outcome] = {}
        while len(outcomes) < len(self._pipes):
            waiting = [rank for rank in range(len(self._pipes)) if rank not in outcomes]
            ready = wait([self._pipes[rank] for rank in waiting], max(deadline - time.monotonic(), 0))
            assert ready, f"ranks {waiting} hang in {function.__name__}{arguments}"
            for rank in waiting:
                if self._pipes[rank] in ready:
                    try:
                        outcomes[rank] = self._pipes[rank].recv()
                    except (EOFError, OSError):
                        outcomes[rank] = None
        return [outcomes[rank] for rank in range(len(self._pipes))]

    def run(self, function: Callable[..., Any], *arguments: Any, timeout_s: float = 200) -> list[Any]:
        """What the function returned on each rank; fails with the first traceback if it failed."""
        results = []
        for rank, outcome in enumerate(self.outcomes(function, *arguments, timeout_s=timeout_s)):
            assert outcome is not None, f"rank {rank} has died in {function.__name__}"
            assert outcome[0], f"rank {rank}: {outcome[1]}"
            results.append(outcome[1])
        return results

    def end(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
        for pipe in self._pipes:
            pipe.close()


@contextlib.contextmanager
def ranks(meeting: Path, count: int, gloo_timeout_s: float = 200) -> Iterator[Ranks]:
    started = Ranks(meeting, count, gloo_timeout_s)
    try:
        yield started
    finally:
        started.end()


def _work(pipe: Connection, meeting: Path, rank: int, count: int, gloo_timeout_s: float) -> None:
    gc.freeze()  # a collection would copy all that the fork server has imported
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "localhost"  # of the processes that save for dcp.async_save
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=count,
        timeout=datetime.timedelta(seconds=gloo_timeout_s),
    )
    while True:
        try:
            environment, function, arguments = pipe.recv()
        except EOFError:
            return
        os.environ.update(environment)  # servers of objects may have been started since
        try:
            outcome = (True, function(rank, *arguments))
        except BaseException:  # as DCP's CheckpointException is one
            outcome = (False, traceback.format_exc())
        pipe.send(outcome)


def died(outcomes: Sequence[Outcome]) -> list[int]:
    return [rank for rank, outcome in enumerate(outcomes) if outcome is None]
