"""States of many small tensors: saving and loading beside torch, one tensor by name, stall and memory of the engine.

    .venv/bin/python -m bench.many_tensors [--weights 25000] [--bytes 2048] [--rounds 3] [--folder FOLDER]

Each weight comes with two moments of the same size and a step of one element, as in mixtures of experts and adapters.
All methods take turns. Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import bitsnap
from bench.machine_description import describe
from bench.results_tables import align

EXPERTS = 64

State = dict[str, dict[str, Any]]


def state_of(weights: int, tensor_bytes: int) -> State:
    generator = torch.Generator().manual_seed(1)
    model: dict[str, torch.Tensor] = {}
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for i in range(weights):
        layer, expert = divmod(i, EXPERTS)
        values = torch.randn(3, tensor_bytes // 4, generator=generator) * 0.02
        model[f"layers.{layer}.mlp.experts.{expert}.up_proj.weight"] = values[0].clone()
        moments[i] = {
            "step": torch.tensor(1.0),
            "exp_avg": values[1] * 1e-2,
            "exp_avg_sq": values[2].square(),
        }
    return {"model": model, "optimizer": {"state": moments}}


def change(state: State) -> None:
    """What one step of a training changes: everything a little."""
    for weight in state["model"].values():
        weight.mul_(0.9999)
    for moments in state["optimizer"]["state"].values():
        moments["step"].add_(1)
        moments["exp_avg"].mul_(0.9)
        moments["exp_avg_sq"].mul_(0.999)


def timed(action: Callable[[], object]) -> float:
    os.sync()  # what others wrote before is not to hold up this one, which may wait for the disk
    start = time.perf_counter()
    result = action()
    took = time.perf_counter() - start
    del result
    return took


def seconds_alone(call: str, path: Path) -> float:
    """Of the call's first time in a process of its own, without imports: as somebody looks at one tensor of a file."""
    program = f"import sys, time, torch, bitsnap; path = sys.argv[1]; start = time.perf_counter(); {call}; "
    program += "print(time.perf_counter() - start)"
    return float(subprocess.check_output([sys.executable, "-W", "ignore", "-c", program, path], text=True))


def measure_files(state: State, rounds: int, folder: Path) -> list[str]:
    ours, theirs = folder / "a.bsnap", folder / "a.pt"
    name = next(reversed(state["model"]))
    ways: dict[str, Callable[[], object]] = {
        "torch.save": lambda: torch.save(state, theirs),
        "bitsnap.save": lambda: bitsnap.save(ours, state, overwrite=True),
        "torch.load": lambda: torch.load(theirs),
        "bitsnap.load": lambda: bitsnap.load(ours),
    }
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, action in ways.items():
            taken[way].append(timed(action))
    seconds = {way: statistics.median(times) for way, times in taken.items()}
    rows = []
    for way, took in seconds.items():
        peer = f"torch.{way.removeprefix('bitsnap.')}"
        rows.append([way, f"{took:.3f}", f"{seconds[peer] / took:.2f}" if peer in seconds else "-"])
    for call in (
        f"bitsnap.safe_open(path, 'pt').get_tensor('model.{name}')",
        f"bitsnap.load(path, keys=[('model', '{name}')])",
    ):
        took = statistics.median(seconds_alone(call, ours) for _ in range(rounds))
        rows.append([call.replace(name, "..."), f"{took:.3f}", "-"])
    sizes = f"{theirs.stat().st_size / 1e6:.0f} MB with torch, {ours.stat().st_size / 1e6:.0f} MB with bitsnap."
    return [*align(["", "s", "times as fast as torch"], rows), "", sizes]


def measure_store(state: State, rounds: int, folder: Path) -> list[str]:
    taken = []
    with bitsnap.Store(folder / "store", keep_last=2) as store:
        for step in range(rounds + 1):
            change(state)
            start = time.perf_counter()
            store.save(step, state)
            taken.append(time.perf_counter() - start)
    return [f"`Store.save`: {taken[0]:.2f} s for the first, {statistics.median(taken[1:]):.2f} s against the last one."]


def memory_of(process: int, field: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) << 10
    raise RuntimeError(f"process {process} has no {field}")


def measure_engine(state: State, tensors: int, rounds: int, folder: Path) -> list[str]:
    stalls = []
    with bitsnap.Checkpointer(folder / "run", keep_last=2, agent=bitsnap.AgentOptions(linger=5)) as checkpointer:
        for step in range(rounds + 1):
            change(state)
            start = time.perf_counter()
            save = checkpointer.save(step, state)
            stalls.append(time.perf_counter() - start)
            assert save is not None
            save.result()
        agent = checkpointer.agent_process
        assert agent is not None
        own, peak = memory_of(agent, "RssAnon"), memory_of(agent, "VmHWM")
        arena = checkpointer.arena_bytes
    stall = statistics.median(stalls[1:])
    return [
        f"`Checkpointer.save`: {stalls[0]:.2f} s for the first, {stall:.3f} s for others, "
        f"{stall / tensors * 1e6:.1f} µs a tensor. The agent has {own / 1e6:.0f} MB of its own, at most "
        f"{peak / 1e6:.0f} MB with an arena of {arena / 1e6:.0f} MB."
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", type=int, default=25_000, help="each has four tensors")
    parser.add_argument("--bytes", type=int, default=2048, help="of a weight, and of each of its moments")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="folder to write to; default: a temporary one")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    state = state_of(arguments.weights, arguments.bytes)
    tensors = 4 * arguments.weights
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        lines = measure_files(state, arguments.rounds, folder)
        lines += ["", *measure_store(state, arguments.rounds, folder)]
        lines += ["", *measure_engine(state, tensors, arguments.rounds, folder)]
    print(", ".join(describe("as detected").values()))
    print()
    print(f"{tensors:,} tensors, medians of {arguments.rounds} rounds.")
    print()
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
