"""States of many small tensors: saving and loading beside torch, one tensor by name, stall and memory of the engine.

    .venv/bin/python -m bench.many_tensors [--weights 25000] [--bytes 2048] [--rounds 3] [--folder FOLDER]

Each weight comes with two moments of the same size and a step of one element, as in mixtures of experts and adapters.
All methods take turns. Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

import bitsnap
from bench.measuring import folder_of, parser_of, print_machine, print_table, timed

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


def seconds_alone(call: str, path: Path) -> float:
    """Of the call's first time in a process of its own, without imports: as somebody looks at one tensor of a file."""
    program = f"import sys, time, torch, bitsnap; path = sys.argv[1]; start = time.perf_counter(); {call}; "
    program += "print(time.perf_counter() - start)"
    return float(subprocess.check_output([sys.executable, "-W", "ignore", "-c", program, path], text=True))


def measure_files(state: State, rounds: int, folder: Path) -> None:
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
            os.sync()  # what others wrote before is not to hold up this one, which may wait for the disk
            taken[way].append(timed(action)[0])
    seconds = {way: median(times) for way, times in taken.items()}
    rows = []
    for way, took in seconds.items():
        peer = f"torch.{way.removeprefix('bitsnap.')}"
        rows.append([way, f"{took:.3f}", f"{seconds[peer] / took:.2f}" if peer in seconds else "-"])
    for call in (
        f"bitsnap.safe_open(path, 'pt').get_tensor('model.{name}')",
        f"bitsnap.load(path, keys=[('model', '{name}')])",
    ):
        took = median(seconds_alone(call, ours) for _ in range(rounds))
        rows.append([call.replace(name, "..."), f"{took:.3f}", "-"])
    print_table(["", "s", "times as fast as torch"], rows)
    print(f"{theirs.stat().st_size / 1e6:.0f} MB with torch, {ours.stat().st_size / 1e6:.0f} MB with bitsnap.\n")


def seconds_of_saves(save: Callable[[int], object], state: State, rounds: int) -> tuple[float, float]:
    """Of the first save, and the median of the others."""
    taken = []
    for step in range(rounds + 1):
        change(state)
        seconds, saved = timed(lambda: save(step))  # noqa: B023 (called at once)
        taken.append(seconds)
        if isinstance(saved, bitsnap.Save):
            saved.result()
    return taken[0], median(taken[1:])


def memory_of(process: int, field: str) -> int:
    status = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith(field))


def measure_saves(state: State, tensors: int, rounds: int, folder: Path) -> None:
    with bitsnap.Store(folder / "store", keep_last=2) as store:
        first, later = seconds_of_saves(lambda step: store.save(step, state), state, rounds)
    print(f"`Store.save`: {first:.2f} s for the first, {later:.2f} s against the last one.\n")
    with bitsnap.Checkpointer(folder / "run", keep_last=2, agent=bitsnap.AgentOptions(linger=5)) as checkpointer:
        first, stall = seconds_of_saves(lambda step: checkpointer.save(step, state), state, rounds)
        agent = checkpointer.agent_process
        assert agent is not None
        own, peak = memory_of(agent, "RssAnon"), memory_of(agent, "VmHWM")
        arena = checkpointer.arena_bytes
    print(
        f"`Checkpointer.save`: {first:.2f} s for the first, {stall:.3f} s for others, {stall / tensors * 1e6:.1f} µs a "
        f"tensor. The agent has {own / 1e6:.0f} MB of its own, at most {peak / 1e6:.0f} MB with an arena of "
        f"{arena / 1e6:.0f} MB."
    )


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--weights", type=int, default=25_000, help="each has four tensors")
    parser.add_argument("--bytes", type=int, default=2048, help="of a weight, and of each of its moments")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    state, tensors = state_of(options.weights, options.bytes), 4 * options.weights
    print_machine()
    print(f"{tensors:,} tensors, medians of {options.rounds} rounds.\n")
    with folder_of(options) as folder:
        measure_files(state, options.rounds, folder)
        measure_saves(state, tensors, options.rounds, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
