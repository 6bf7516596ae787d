"""What each rank of the comparison with DCP does: it trains, saves and loads in several ways, and measures.

All ranks take the same steps in the same order. A time is that of the slowest rank, from a barrier on.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint._extension import ZStandard
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.staging import AsyncStager, DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save, save

from bench.dcp_training import EPS, KINDS, Training
from bench.disk_use import bytes_in
from bench.measuring import timed, turn_of
from bench.states import State, blank, bytes_of, same_bits, tensors_in
from bitsnap import Adam, AgentOptions, Checkpointer
from bitsnap.dcp import AgentSaves, StorageReader, StorageWriter

RANKS = 4
STORES = ("bitsnap", "bitsnap, bounded")
DCP, ZSTD, TORCH_SAVE = "DCP", "DCP, zstd", "torch.save of rank 0"
WAYS = (*STORES, DCP, ZSTD, TORCH_SAVE)
PARTS = ("sizes", "saves", "stalls")  # saves: with loads
MOMENTS = {"first": 0, "ten steps later": 10, "one step later": 1}  # with the steps before each
NEXT = ", next step"
WARM_COPY, NEW_COPY = "copy into memory in use", "copy into new memory"


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


def say(text: str) -> None:
    if dist.get_rank() == 0:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def most(seconds: float) -> float:
    """The largest number of all ranks."""
    found = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return float(found.item())


def slowest(work: Callable[[], Any]) -> float:
    """The seconds of the slowest rank."""
    gc.collect()
    dist.barrier()
    return most(timed(work)[0])


def total(number: int) -> int:
    summed = torch.tensor([number])
    dist.all_reduce(summed)
    return int(summed.item())


def remove(path: Path) -> None:
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(path, ignore_errors=True)
    dist.barrier()


class Rank:
    """One rank, and the results so far, which are the same on all ranks. Writes to `folder` with the options of
    bench.dcp_comparison."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.betas = (0.9, options.beta2)
        self.training = Training(options.layers, options.width, options.learning_rate, self.betas)
        self.sizes: dict[str, dict[str, list[int]]] = {}  # by kind and way, at each of MOMENTS
        self.raw: dict[str, int] = {}
        self.times: dict[str, dict[str, list[float]]] = {
            name: defaultdict(list) for name in ("save", "load", "stall", "behind", "beside")
        }
        self.read_bytes: dict[str, list[int]] = defaultdict(list)
        self._warm: list[Tensor] = []

    def writer(self, name: str) -> Any:
        if name == "bitsnap, bounded":
            return StorageWriter(settings="bounded", adam=Adam(self.betas, EPS, step=lambda: self.training.steps))
        if name == "bitsnap":
            return StorageWriter()
        return FileSystemWriter(self.folder, _extensions=[ZStandard()] if name == ZSTD else None)

    def save(self, name: str, kind: str, state: State, checkpoint: Path) -> None:
        if name != TORCH_SAVE:
            save(state, checkpoint_id=checkpoint, storage_writer=self.writer(name))
            return
        full = self.training.state(kind, is_full=True)
        if dist.get_rank() == 0:
            checkpoint.mkdir(parents=True)
            with (checkpoint / "state.pt").open("wb") as file:
                torch.save(full, file)
                file.flush()
                os.fsync(file.fileno())
        dist.barrier()

    def load(self, name: str, state: State, checkpoint: Path) -> float:
        """Loads into another state. Fails if that is not what was saved. Bounded loss changes masters and moments."""
        loaded = blank(state)
        reader: Any = StorageReader() if name in STORES else FileSystemReader(checkpoint)
        seconds = slowest(lambda: load(loaded, checkpoint_id=checkpoint, storage_reader=reader))
        parts = ["model", "step"] if name == STORES[1] else list(state)
        if loaded["step"] != state["step"] or not same_bits([state[p] for p in parts], [loaded[p] for p in parts]):
            raise AssertionError(f"{name}, step {state['step']}, rank {dist.get_rank()}: other bits than were saved")
        return seconds

    def measure_sizes(self) -> None:
        self.sizes = {kind: {name: [] for name in WAYS} for kind in KINDS}
        for moment, steps in MOMENTS.items():
            for _ in range(steps):
                self.training.step()
            for kind in KINDS:
                state = self.training.state(kind)
                self.raw[kind] = total(bytes_of(state))
                for name in WAYS:
                    self.sizes[kind][name].append(self.size_of_save(name, kind, state))
                say(f"{kind}, {moment}: { ({n: s[-1] for n, s in self.sizes[kind].items()}) }")
        remove(self.folder / "sizes")

    def size_of_save(self, name: str, kind: str, state: State) -> int:
        folder = self.folder / "sizes" / f"{kind}-{name}".replace(" ", "-").replace(",", "")
        before = bytes_in(folder)
        dist.barrier()
        checkpoint = folder / f"step-{state['step']}"
        self.save(name, kind, state, checkpoint)
        size = bytes_in(folder) - before
        if name != TORCH_SAVE:
            self.load(name, state, checkpoint)
        if name not in STORES:
            remove(folder)
        return size

    def measure_saves_and_loads(self, turn: int) -> None:
        """Saves in all ways and loads what was saved. Stores of this turn get their second checkpoint in the next."""
        state = self.training.state(KINDS[0])
        for way in turn_of([*WAYS, *([f"{name}{NEXT}" for name in STORES] if turn > 0 else [])], turn):
            name, is_next = way.removesuffix(NEXT), way.endswith(NEXT)
            store = self.folder / "stock"
            if name in STORES:
                store = self.folder / f"{STORES.index(name)}-{turn - is_next}"
            checkpoint = store / f"step-{state['step']}"
            self.times["save"][way].append(slowest(partial(self.save, name, KINDS[0], state, checkpoint)))
            self.read_bytes[way].append(bytes_in(store))
            if name != TORCH_SAVE:
                self.times["load"][way].append(self.load(name, state, checkpoint))
            if name not in STORES or is_next:
                remove(store)

    def copy_warm(self, state: State) -> None:
        """Copies what this rank holds into memory in use."""
        sources = list(tensors_in(state))
        self._warm = self._warm or [torch.zeros_like(tensor) for tensor in sources]
        for source, target in zip(sources, self._warm, strict=True):
            target.copy_(source)

    def async_ways(self) -> dict[str, dict[str, Any]]:
        """The options of async_save of those that were asked for."""
        thread, process = AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS
        agent = AgentOptions(linger=1.0)
        stager = DefaultStager(StagingOptions(False, False, False, False))
        ways: list[tuple[str, Callable[[], Any], AsyncCheckpointerType, AsyncStager | None]] = [
            ("bitsnap, thread", StorageWriter, thread, None),
            ("bitsnap, thread, keep_copy=False", lambda: StorageWriter(keep_copy=False), thread, None),
            (
                "bitsnap, agent",
                lambda: AgentSaves(Checkpointer(self.folder / "bitsnap-agent", agent=agent)),
                thread,
                None,
            ),
            ("bitsnap, process", StorageWriter, process, None),
            ("DCP, thread", lambda: self.writer(DCP), thread, None),
            ("DCP, thread, one DefaultStager", lambda: self.writer(DCP), thread, stager),
            ("DCP, thread, without a copy", lambda: self.writer(DCP), thread, NoCopy()),
            ("DCP, process", lambda: self.writer(DCP), process, None),
        ]
        return {
            name: {"storage_writer": writer(), "async_checkpointer_type": kind, "async_stager": kept}
            for name, writer, kind, kept in ways
            if kind.value in self.options.modes and re.search(self.options.ways, name)
        }

    def measure_stalls(self, turn: int, ways: dict[str, dict[str, Any]]) -> None:
        state = self.training.state(KINDS[0])
        self.copy_warm(state)
        for way in turn_of(list(ways), turn):
            copied = slowest(lambda: self.copy_warm(state))
            self.times["stall"][WARM_COPY].append(copied)
            self.times["stall"][NEW_COPY].append(slowest(lambda: [tensor.clone() for tensor in tensors_in(state)]))
            folder = self.folder / way.replace(" ", "-").replace(",", "")
            options = {**ways[way], "checkpoint_id": folder / f"step-{state['step']}"}
            if isinstance(options["storage_writer"], AgentSaves):
                options["storage_writer"] = options["storage_writer"].writer(state["step"])
            dist.barrier()
            future: Any
            returned, future = timed(partial(async_save, state, **options))
            # Before the ranks compare times, because it uses the same process group.
            behind, _ = timed(future.result)
            stall = most(returned)
            self.times["stall"][way].append(stall)
            self.times["beside"][way].append(stall / copied)
            self.times["behind"][way].append(most(behind))
            if not way.startswith("bitsnap"):
                remove(folder)

    def measure(self) -> dict[str, Any]:
        """All that was asked for."""
        options = self.options
        for _ in range(options.first):
            loss = self.training.step()
        say(f"step {options.first}, loss {loss:.3f}")
        if "sizes" in options.parts:
            self.measure_sizes()
        ways = self.async_ways()
        for turn in range(options.rounds + 1 if options.parts != ["sizes"] else 0):
            self.training.step()
            if "saves" in options.parts:
                self.measure_saves_and_loads(turn)
            if "stalls" in options.parts:
                self.measure_stalls(turn, ways)
            say(f"turn {turn}: { ({n: {w: round(t[-1], 3) for w, t in ts.items()} for n, ts in self.times.items()}) }")
        return {
            "parameters": sum(parameter.numel() for parameter in self.training.model.parameters()),
            "raw": self.raw,
            "sizes": self.sizes,
            "times": self.times,
            "read_bytes": self.read_bytes,
        }
