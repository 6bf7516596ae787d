"""What each rank of the comparison with DCP does: it trains, saves and loads in several ways, and measures.

All ranks take the same steps in the same order. A time is that of the slowest rank, from a barrier on.
"""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.staging import AsyncStager, DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save, save

from bench.dcp_training import EPS, KINDS, State, Training, blank, local_tensors, same_bits
from bitsnap import Adam, AgentOptions, Checkpointer
from bitsnap.dcp import AgentSaves, StorageReader, StorageWriter

RANKS = 4
STORES = ("bitsnap", "bitsnap, bounded")
DCP, ZSTD, TORCH_SAVE = "DCP", "DCP, zstd", "torch.save of rank 0"
PARTS = ("sizes", "saves", "stalls")  # saves: with loads
MOMENTS = ("first", "ten steps later", "one step later")
NEXT = ", next step"
WARM_COPY, NEW_COPY = "copy into memory in use", "copy into new memory"
NO_COPY = "DCP, thread, without a copy"


class Task(NamedTuple):
    folder: Path  # for all checkpoints; not removed
    output: Path  # JSON to write
    layers: int
    width: int
    learning_rate: float  # after the warmup
    betas: tuple[float, float]
    first: int  # the step of the first checkpoint
    rounds: int
    parts: tuple[str, ...]  # what is measured: of PARTS
    modes: tuple[str, ...]  # of async_save
    ways: str  # an expression that finds the names of ways of async_save


class NoCopy(AsyncStager):
    """Saves the state itself: what is left of the stall is that of DCP, whoever copies. Only for a training that waits
    until the save has ended."""

    def stage(self, state_dict: State) -> State:
        return state_dict

    @property
    def should_synchronize_after_execute(self) -> bool:
        return False

    def synchronize_staging(self) -> None:
        pass

    def close(self) -> None:
        pass


class Rank:
    """One rank, and the results so far, which are the same on all ranks."""

    def __init__(self, number: int, task: Task) -> None:
        self.number, self.task = number, task
        self.training = Training(number, task.layers, task.width, task.learning_rate, task.betas)
        self.sizes: dict[str, dict[str, list[int]]] = {}  # by kind and way, at each of MOMENTS
        self.raw: dict[str, int] = {}
        self.times: dict[str, dict[str, list[float]]] = {
            name: defaultdict(list) for name in ("save", "load", "stall", "behind", "beside")
        }
        self.read_bytes: dict[str, list[int]] = defaultdict(list)
        self._copies: list[tuple[Tensor, Tensor]] = []

    def say(self, text: str) -> None:
        if self.number == 0:
            print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def slowest(self, work: Callable[[], Any]) -> tuple[float, Any]:
        """The seconds of the slowest rank, and what `work` returned here."""
        gc.collect()
        dist.barrier()
        start = time.perf_counter()
        result = work()
        return self.most(time.perf_counter() - start), result

    def most(self, seconds: float) -> float:
        """The largest number of all ranks."""
        found = torch.tensor([seconds], dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return float(found.item())

    def total(self, number: int) -> int:
        summed = torch.tensor([number])
        dist.all_reduce(summed)
        return int(summed.item())

    def remove(self, path: Path) -> None:
        dist.barrier()
        if self.number == 0:
            shutil.rmtree(path, ignore_errors=True)
        dist.barrier()

    def writer(self, name: str) -> Any:
        if name == "bitsnap, bounded":
            adam = Adam(betas=self.task.betas, eps=EPS, step=lambda: self.training.steps)
            return StorageWriter(settings="bounded", adam=adam)
        if name == "bitsnap":
            return StorageWriter()
        return FileSystemWriter(self.task.folder, _extensions=[ZStandard()] if name == ZSTD else None)

    def save(self, name: str, kind: str, state: State, checkpoint: Path) -> None:
        if name != TORCH_SAVE:
            save(state, checkpoint_id=checkpoint, storage_writer=self.writer(name))
            return
        full = self.training.full_state(kind)
        if self.number == 0:
            checkpoint.mkdir(parents=True)
            with (checkpoint / "state.pt").open("wb") as file:
                torch.save(full, file)
                file.flush()
                os.fsync(file.fileno())
        dist.barrier()

    def load(self, name: str, state: State, checkpoint: Path) -> None:
        """Loads into the tensors of `state`."""
        reader: Any = StorageReader() if name in STORES else FileSystemReader(checkpoint)
        load(state, checkpoint_id=checkpoint, storage_reader=reader)

    def checked(self, name: str, state: State, loaded: State) -> None:
        """Fails if what was loaded is not what was saved. Bounded loss changes masters and moments."""
        parts = ["model", "step"] if name == STORES[1] else list(state)
        if loaded["step"] != state["step"] or not same_bits([state[p] for p in parts], [loaded[p] for p in parts]):
            raise AssertionError(f"{name}, step {state['step']}, rank {self.number}: other bits than were saved")

    def measure_sizes(self) -> None:
        ways = [*STORES, DCP, ZSTD, TORCH_SAVE]
        self.sizes = {kind: {name: [] for name in ways} for kind in KINDS}
        for moment, steps in enumerate((0, 10, 1)):
            for _ in range(steps):
                self.training.step()
            for kind in KINDS:
                state = self.training.state(kind)
                self.raw[kind] = self.total(sum(tensor.nbytes for tensor in local_tensors(state)))
                for name in ways:
                    folder = self.task.folder / "sizes" / f"{kind}-{name}".replace(" ", "-").replace(",", "")
                    before = size_of(folder)
                    dist.barrier()
                    checkpoint = folder / f"step-{state['step']}"
                    self.save(name, kind, state, checkpoint)
                    self.sizes[kind][name].append(size_of(folder) - before)
                    if name != TORCH_SAVE:
                        loaded = blank(state)
                        self.load(name, loaded, checkpoint)
                        self.checked(name, state, loaded)
                    if name not in STORES:
                        self.remove(folder)
                self.say(f"{kind}, {MOMENTS[moment]}: { ({n: s[-1] for n, s in self.sizes[kind].items()}) }")
        self.remove(self.task.folder / "sizes")

    def measure_saves_and_loads(self, turn: int) -> None:
        """Saves in all ways and loads what was saved. Stores of this turn get their second checkpoint in the next."""
        state = self.training.state(KINDS[0])
        ways = [*STORES, DCP, ZSTD, TORCH_SAVE, *([f"{name}{NEXT}" for name in STORES] if turn > 0 else [])]
        for way in ways if turn % 2 == 0 else reversed(ways):
            self.measure_way(way, turn, state)

    def measure_way(self, way: str, turn: int, state: State) -> None:
        name, is_next = way.removesuffix(NEXT), way.endswith(NEXT)
        store = self.task.folder / "stock"
        if name in STORES:
            store = self.task.folder / f"{STORES.index(name)}-{turn - is_next}"
        checkpoint = store / f"step-{state['step']}"
        seconds, _ = self.slowest(lambda: self.save(name, KINDS[0], state, checkpoint))
        self.times["save"][way].append(seconds)
        self.read_bytes[way].append(size_of(store))
        if name != TORCH_SAVE:
            loaded = blank(state)
            seconds, _ = self.slowest(lambda: self.load(name, loaded, checkpoint))
            self.times["load"][way].append(seconds)
            self.checked(name, state, loaded)
        if name not in STORES or is_next:
            self.remove(store)

    def copy(self, state: State, *, new: bool) -> float:
        """Copies what the ranks hold, all at the same time."""
        sources = list(local_tensors(state))
        targets = [] if new else [target for _, target in self._copies]
        if not new and not targets:
            targets = [torch.zeros_like(tensor) for tensor in sources]
            self._copies = list(zip(sources, targets, strict=True))

        def work() -> list[Tensor]:
            if new:
                return [tensor.clone() for tensor in sources]
            for source, target in zip(sources, targets, strict=True):
                target.copy_(source)
            return targets

        return self.slowest(work)[0]

    def agent_saves(self) -> AgentSaves:
        path = self.task.folder / "bitsnap-agent"
        return AgentSaves(Checkpointer(path, agent=AgentOptions(linger=1.0)))

    def async_ways(self) -> dict[str, dict[str, Any]]:
        thread, process = AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS
        stager = DefaultStager(StagingOptions(False, False, False, False))
        ways: list[tuple[str, Callable[[], Any], AsyncCheckpointerType, AsyncStager | None]] = [
            ("bitsnap, thread", lambda: self.writer("bitsnap"), thread, None),
            ("bitsnap, thread, keep_copy=False", lambda: StorageWriter(keep_copy=False), thread, None),
            ("bitsnap, agent", self.agent_saves, thread, None),
            ("bitsnap, process", lambda: self.writer("bitsnap"), process, None),
            ("DCP, thread", lambda: self.writer(DCP), thread, None),
            ("DCP, thread, one DefaultStager", lambda: self.writer(DCP), thread, stager),
            (NO_COPY, lambda: self.writer(DCP), thread, NoCopy()),
            ("DCP, process", lambda: self.writer(DCP), process, None),
        ]
        return {
            name: {"storage_writer": writer(), "async_checkpointer_type": kind, "async_stager": kept}
            for name, writer, kind, kept in ways
            if kind.value in self.task.modes and re.search(self.task.ways, name)
        }

    def measure_stalls(self, turn: int, ways: dict[str, dict[str, Any]]) -> None:
        state = self.training.state(KINDS[0])
        for way in ways if turn % 2 == 0 else reversed(ways):
            copied = self.copy(state, new=False)
            self.times["stall"][WARM_COPY].append(copied)
            self.times["stall"][NEW_COPY].append(self.copy(state, new=True))
            folder = self.task.folder / way.replace(" ", "-").replace(",", "")
            options = dict(ways[way])
            if isinstance(options["storage_writer"], AgentSaves):
                options["storage_writer"] = options["storage_writer"].writer(state["step"])
            dist.barrier()
            start = time.perf_counter()
            future: Any = async_save(state, checkpoint_id=folder / f"step-{state['step']}", **options)
            returned = time.perf_counter()
            future.result()  # before the ranks compare times, because it uses the same process group
            finished = time.perf_counter()
            stall = self.most(returned - start)
            self.times["stall"][way].append(stall)
            self.times["beside"][way].append(stall / copied)
            self.times["behind"][way].append(self.most(finished - returned))
            if not way.startswith("bitsnap"):
                self.remove(folder)

    def results(self) -> dict[str, Any]:
        return {
            "parameters": sum(parameter.numel() for parameter in self.training.model.parameters()),
            "raw": self.raw,
            "sizes": self.sizes,
            "times": self.times,
            "read_bytes": self.read_bytes,
        }


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run(number: int, task: Task) -> None:
    """The program of one rank."""
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS))
    os.environ["MASTER_ADDR"] = "127.0.0.1"  # of the processes of async_save
    dist.init_process_group("gloo", init_method=f"file://{task.folder}/meeting", rank=number, world_size=RANKS)
    rank = Rank(number, task)
    for _ in range(task.first):
        loss = rank.training.step()
    rank.say(f"step {task.first}, loss {loss:.3f}")
    if "sizes" in task.parts:
        rank.measure_sizes()
    ways = rank.async_ways()
    for turn in range(task.rounds + 1 if task.parts != ("sizes",) else 0):
        rank.training.step()
        if "saves" in task.parts:
            rank.measure_saves_and_loads(turn)
        if "stalls" in task.parts:
            rank.measure_stalls(turn, ways)
        rank.say(f"turn {turn}: { ({n: {w: round(t[-1], 3) for w, t in ts.items()} for n, ts in rank.times.items()}) }")
    if number == 0:
        task.output.write_text(json.dumps(rank.results()))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # threads of DCP may still run
