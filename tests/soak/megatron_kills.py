"""Kills the ranks of Megatron-core's saves at random moments, and looks for what `--load` finds then.

    PYTHONPATH=tests .venv/bin/python -m soak.megatron_kills [--kills 300] [--modes sync queue agent] [--seed N]

Four ranks save one iteration after the other through bitsnap.megatron, keep the last three folders, and note the
iteration in latest_checkpointed_iteration.txt as Megatron's training loop does, which is in no package. Then one rank,
all of them, or the agent are killed. Each new life loads the noted iteration and compares it with what was saved. An
iteration that was noted may never be lost or differ; at the end, nothing may be left besides the three folders, their
run and the note.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import bitsnap
import bitsnap.megatron
from bitsnap._bitsnap import default_job
from python.megatron.megatron_gpt import new_folder, one_rank
from soak.killed_job import ViolatedGuaranteeError
from soak.leftovers import agents_of

from megatron.core import dist_checkpointing  # isort: skip
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor  # isort: skip
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue  # isort: skip

RANKS = 4
KEPT = 3
MODES = ("sync", "queue", "agent")
TRACKER = "latest_checkpointed_iteration.txt"
SHAPE = (48, 64)
KEYS = {
    "decoder.weight": torch.bfloat16,
    "optimizer.state.fp32_param.decoder.weight": torch.float32,
    "optimizer.state.exp_avg.decoder.weight": torch.float32,
    "optimizer.state.exp_avg_sq.decoder.weight": torch.float32,
}
# Seconds within which a life loads and begins to save, and within which ranks whose peer was killed end.
PATIENCE = 120.0


def state_of(iteration: int, *, loading: bool = False) -> dict[str, Any]:
    """What a rank saves of an iteration: its rows of four tensors, and a value."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    state: dict[str, Any] = {"common": iteration}
    for number, (key, dtype) in enumerate(KEYS.items()):
        generator = torch.Generator().manual_seed(1000 * iteration + 10 * rank + max(number, 1))
        rows = torch.randn(SHAPE, generator=generator).to(dtype)
        rows = torch.zeros_like(rows) if loading else rows
        state[key] = ShardedTensor.from_rank_offsets(key, rows, (0, rank, ranks))
    own = ShardedObject("own", [iteration, rank], (ranks,), (rank,), replica_id=0)
    return {**state, "own": own}


def life(folder: Path, mode: str) -> None:
    """Loads the iteration that is noted, compares it, and saves others until the process is killed."""
    agent = bitsnap.AgentOptions(linger=3.0) if mode == "agent" else None
    bitsnap.megatron.use(timeout=60.0, agent=agent)
    saves = folder / "saves"
    tracker = saves / TRACKER
    iteration = int(tracker.read_text()) if tracker.exists() else 0
    if iteration:
        found = dist_checkpointing.load(state_of(iteration, loading=True), str(saves / f"iter_{iteration:07d}"))
        expected = state_of(iteration)
        for key in KEYS:
            if not torch.equal(found[key], expected[key].data):
                violated(folder, f"iteration {iteration}: {key!r} of rank {dist.get_rank()} differs")
        if found["common"] != iteration or found["own"] != [iteration, dist.get_rank()]:
            violated(folder, f"iteration {iteration}: the values of rank {dist.get_rank()} differ: {found['own']}")
    dist.barrier()
    (folder / f"ready-{dist.get_rank()}").touch()
    queue = AsyncCallsQueue()
    end = iteration + 8
    while iteration < end:  # then the next life goes on
        iteration += 1
        target = new_folder(saves, iteration)
        request = dist_checkpointing.save(state_of(iteration), str(target), async_sharded_save=mode != "sync")
        if request is None:
            note(saves, iteration)
            continue
        request.add_finalize_fn(lambda saved=iteration: note(saves, saved))
        queue.schedule_async_request(request)
        queue.maybe_finalize_async_calls(blocking=True)
    dist.barrier()


def note(saves: Path, iteration: int) -> None:
    """What the training loop does when an iteration is complete."""
    if dist.get_rank() != 0:
        return
    temporary = saves / "tracker.tmp"
    temporary.write_text(str(iteration))
    temporary.replace(saves / TRACKER)
    for old in sorted(saves.glob("iter_*"))[:-KEPT]:
        if int(old.name.removeprefix("iter_")) < iteration:
            shutil.rmtree(old)


def violated(folder: Path, text: str) -> None:
    with (folder / "violations").open("a") as file:
        file.write(text + "\n")


class Lives:
    """One life after the other in a folder. `tally` counts the kills by their kinds."""

    def __init__(self, folder: Path, mode: str, seed: int) -> None:
        self.folder, self.mode = folder, mode
        self.tally: Counter[str] = Counter()
        self._random = random.Random(f"{mode} {seed}")
        self._noted = 0
        (folder / "saves").mkdir()

    def run(self, kills: int) -> None:
        for _ in range(kills):
            self._live(self._random.choice(("one", "all", "agent") if self.mode == "agent" else ("one", "all")))
        self._live(None)

    def check_end(self) -> None:
        """Raises if anything is left besides complete iterations."""
        saves = self.folder / "saves"
        deadline = time.monotonic() + PATIENCE
        while agents_of(self._job()) and time.monotonic() < deadline:
            time.sleep(0.1)
        folders = {f"iter_{iteration:07d}" for iteration in range(self._noted - KEPT + 1, self._noted + 1)}
        found = {each.name for each in saves.iterdir()}
        if found != {TRACKER, "bitsnap"} | folders:
            raise ViolatedGuaranteeError(f"left in {saves}: {sorted(found)}")
        with bitsnap.Store(saves / "bitsnap", read_only=True) as store:
            # Folders are deleted after a save, and their steps are removed before the next one.
            if not set(store.steps()) <= set(range(self._noted - KEPT, self._noted + 1)):
                raise ViolatedGuaranteeError(f"steps in the run: {store.steps()}, noted: {self._noted}")
            store.verify()

    def _job(self) -> str:
        return default_job(os.fsencode(self.folder / "saves" / "bitsnap"))

    def _live(self, victims: str | None) -> None:
        """A life that ends after some saves, or when `victims` are killed."""
        for ready in self.folder.glob("ready-*"):
            ready.unlink()
        meeting = self.folder / f"meeting-{os.urandom(4).hex()}"
        context = multiprocessing.get_context("fork")
        ranks = [
            context.Process(target=one_rank, args=(rank, RANKS, life, meeting, self.folder, self.mode))
            for rank in range(RANKS)
        ]
        for rank in ranks:
            rank.start()
        try:
            self._await_ready(ranks)
            if victims is not None:
                time.sleep(self._random.uniform(0.0, 1.2))
                self._kill(ranks, victims)
            self._await_end(ranks)
        finally:
            for rank in ranks:
                rank.kill()
                rank.join()
            meeting.unlink(missing_ok=True)
        self._check()

    def _await_ready(self, ranks: Sequence[BaseProcess]) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(list(self.folder.glob("ready-*"))) < RANKS:
            if time.monotonic() > deadline or any(rank.exitcode not in (None, 0) for rank in ranks):
                codes = [rank.exitcode for rank in ranks]
                raise ViolatedGuaranteeError(f"a life did not load iteration {self._noted}: exit codes {codes}")
            time.sleep(0.01)

    def _kill(self, ranks: Sequence[BaseProcess], victims: str) -> None:
        self.tally[victims] += 1
        if victims == "agent":
            for process in agents_of(self._job()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            return
        for rank in [self._random.choice(ranks)] if victims == "one" else ranks:
            rank.kill()

    def _await_end(self, ranks: Sequence[BaseProcess]) -> None:
        deadline = time.monotonic() + PATIENCE
        for rank in ranks:
            rank.join(max(deadline - time.monotonic(), 0.0))
            if rank.exitcode is None:
                raise ViolatedGuaranteeError(f"a rank did not end within {PATIENCE:.0f} s after others were killed")

    def _check(self) -> None:
        violations = self.folder / "violations"
        if violations.exists():
            raise ViolatedGuaranteeError(violations.read_text())
        tracker = self.folder / "saves" / TRACKER
        noted = int(tracker.read_text()) if tracker.exists() else 0
        if noted < self._noted:
            raise ViolatedGuaranteeError(f"iteration {self._noted} was noted before {noted}")
        self._noted = noted


def kill(folder: Path, mode: str, kills: int, seed: int) -> tuple[Counter[str], int]:
    """Kills saves of one mode; how often which processes, and the last iteration. Keeps the folder if it fails."""
    lives = Lives(folder, mode, seed)
    lives.run(kills)
    lives.check_end()
    return lives.tally, lives._noted


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=300, help="of each mode")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for mode in options.modes:
        folder = Path(tempfile.mkdtemp(prefix=f"megatron-{mode}-"))
        began = time.monotonic()
        try:
            tally, noted = kill(folder, mode, options.kills, options.seed)
        except ViolatedGuaranteeError as error:
            sys.exit(f"{mode}: {error}\nkept: {folder}")
        shutil.rmtree(folder)
        print(f"{mode}: {dict(tally)} kills, {noted} iterations, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
