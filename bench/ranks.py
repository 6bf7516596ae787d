"""Forks the ranks of torch.distributed, so that what this process has imported is not imported again."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes


def on_ranks(count: int, work: Callable[[], Any], log: Path | None = None) -> Any:
    """Calls `work` on ranks with one thread each. Returns what the first one returned, as JSON has it.

    With a count of 0, it is one process without torch.distributed. What the processes print is added to the log.
    """
    gc.freeze()  # a collection would copy all of this process into each rank
    with tempfile.TemporaryDirectory() as folder:
        start_processes(_rank, (count, work, Path(folder), log), nprocs=max(count, 1), start_method="fork")  # type: ignore[no-untyped-call]
        return json.loads((Path(folder) / "results").read_text())


def _rank(rank: int, count: int, work: Callable[[], Any], meeting: Path, log: Path | None) -> None:
    if log is not None:
        with log.open("ab") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
    torch.set_num_threads(1)
    if count:
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
        os.environ.update({name: str(number) for name, number in numbers.items()})
        os.environ["MASTER_ADDR"] = "127.0.0.1"  # of the processes of async_save
        dist.init_process_group("gloo", init_method=f"file://{meeting}/store", rank=rank, world_size=count)
    results = work()
    if rank == 0:
        (meeting / "results").write_text(json.dumps(results))
    if count:
        dist.barrier()
    # Threads of a framework that still run may abort a process that ends in the usual way.
    sys.stdout.flush()
    os._exit(0)
