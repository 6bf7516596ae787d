"""Compares bitsnap with NVIDIA's nvCOMP, which compresses on the GPU, on states of a training.

    python -m bench.nvcomp_comparison [--gigabytes 2] [--rounds 3] [--results FOLDER]

A GPT trains on the GPU. Each coder of nvCOMP encodes each role of its state there, all of it, and copies the result to
pinned memory: gANS, zstd and Bitcomp, each alone and on byte planes that torch splits on the GPU. The state some steps
later is encoded as its XOR with the first one. A stall is the time of that whole pipeline; in the same rounds, the raw
bytes are copied to pinned memory, and bitsnap's Checkpointer saves the same tensors. Everything that nvCOMP encodes is
decoded and compared. bitsnap's sizes are those of its files. Needs the packages nvidia-nvcomp-cu13 and
nvidia-libnvcomp-cu13; without them, bitsnap is measured alone.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bitsnap
from bench.gpu_report import GIB, PinnedCopy, Report, device_of, parser_of, run_program, training_of
from bench.gpu_training import ROLES, synchronize
from bench.measuring import median_ratio, timed
from bench.nvcomp_coders import CODERS, Coder, Pipeline, load_nvcomp
from bench.results_tables import format_ratio
from bench.states import State

WIDTHS = {"model": 2, "master": 4, "exp_avg": 4, "exp_avg_sq": 4}
TYPES = {"model": torch.bfloat16, "master": torch.float32, "exp_avg": torch.float32, "exp_avg_sq": torch.float32}
KINDS = ("alone", "later")  # the first state; the later one, against the first
BITSNAP_ROLES = {"weight": "model"}  # the other roles have the names of the keys

Roles = dict[str, Tensor]  # the bytes of each role, on the device
Pipelines = dict[str, Pipeline]  # by role


@dataclass
class Measured:
    """What one coder did with one kind of state."""

    sizes: dict[str, int] = field(default_factory=dict)  # by role, in bytes
    encode_s: float = 0.0  # on the device
    decode_s: float = 0.0
    stalls: list[float] = field(default_factory=list)
    copied: list[float] = field(default_factory=list)  # the copy of the raw bytes before each of them

    def times_the_copy(self) -> float:
        return median_ratio(self.stalls, self.copied)


def roles_of(state: State) -> Roles:
    """A copy of each role in one piece."""
    return {
        role: torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in state[role].values()]) for role in ROLES
    }


def state_of(roles: Roles, like: State) -> State:
    """The same state as views of these bytes."""
    made: State = {"step": like["step"]}
    for role, bits in roles.items():
        elements, begin = bits.view(TYPES[role]), 0
        made[role] = {}
        for name, tensor in like[role].items():
            made[role][name] = elements[begin : begin + tensor.numel()].view(tensor.shape)
            begin += tensor.numel()
    return made


def xor_of(one: Roles, other: Roles) -> Roles:
    return {role: torch.bitwise_xor(bits, other[role]) for role, bits in one.items()}


def seconds_of(device: torch.device, work: Callable[[], Any]) -> tuple[float, Any]:
    """The time of the device if it is a GPU, and what `work` returned."""
    if device.type == "cuda":
        cuda: Any = torch.cuda
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        result = work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000, result
    return timed(work)


@contextlib.contextmanager
def side_stream(device: torch.device) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    cuda: Any = torch.cuda
    stream = cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)


def pipelines_of(nvcomp: Any, coder: Coder, device: torch.device) -> Pipelines:
    of_width = {width: Pipeline(nvcomp, coder, width, device) for width in sorted(set(WIDTHS.values()))}
    return {role: of_width[width] for role, width in WIDTHS.items()}


def check_coder(coder: Coder, pipelines: Pipelines, roles: Roles, device: torch.device) -> Measured:
    """Sizes and times of the device, role by role; fails if decoding gives other bytes."""
    found = Measured()
    for role, bits in roles.items():
        pipeline = pipelines[role]
        pipeline.decode(pipeline.encode(bits))  # allocates its memory
        encode_s, arrays = seconds_of(device, partial(pipeline.encode, bits))
        decode_s, decoded = seconds_of(device, partial(pipeline.decode, arrays))
        if not torch.equal(decoded, bits):
            raise AssertionError(f"{coder.name} on {role}: decoding gives other bytes")
        found.sizes[role] = pipeline.size_of(arrays)
        found.encode_s += encode_s
        found.decode_s += decode_s
    return found


def time_pipeline(pipelines: Pipelines, roles: Roles, host: Tensor, device: torch.device) -> float:
    """The seconds until all of the state lies encoded in the memory of the host."""

    def run() -> None:
        arrays = {role: pipelines[role].encode(bits) for role, bits in roles.items()}
        for role, encoded in arrays.items():
            pipelines[role].copy_to_host(encoded, host)
        synchronize(device)

    synchronize(device)
    return timed(run)[0]


def measure_nvcomp(
    nvcomp: Any, roles: dict[str, Roles], copy: PinnedCopy, rounds: int, device: torch.device
) -> tuple[dict[tuple[str, str], Measured], dict[str, str]]:
    """Results by coder and kind of state, and why coders are missing. The coders take turns in each round. Call it in
    side_stream()."""
    found: dict[tuple[str, str], Measured] = {}
    failures: dict[str, str] = {}
    made: dict[str, Pipelines] = {}
    for coder in CODERS:
        try:
            made[coder.name] = pipelines_of(nvcomp, coder, device)
            for kind in KINDS:
                found[coder.name, kind] = check_coder(coder, made[coder.name], roles[kind], device)
        except Exception as error:  # of a coder that is not ours; the others are measured all the same
            failures[coder.name] = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"{coder.name}: {failures.get(coder.name, 'checked')}", file=sys.stderr, flush=True)
    for _ in range(rounds):
        for name in (each.name for each in CODERS if each.name not in failures):
            for kind in KINDS:
                found[name, kind].copied.append(copy.to_host())
                found[name, kind].stalls.append(time_pipeline(made[name], roles[kind], copy.host, device))
    return {key: each for key, each in found.items() if key[0] not in failures}, failures


def measure_bitsnap(states: list[State], copy: PinnedCopy, rounds: int, folder: Path) -> dict[str, Measured]:
    """Stalls of a Checkpointer, and the sizes of its files by role: of the first state, then of the later one."""
    found = {kind: Measured() for kind in KINDS}
    for number in range(rounds + 1):
        run = folder / f"run-{number}"
        with bitsnap.Checkpointer(run, agent=bitsnap.AgentOptions(linger=1)) as checkpointer:
            checkpointer.reserve(states[0])
            for kind, state in zip(KINDS, states, strict=True):
                copied = copy.to_host()
                stall, save = timed(partial(checkpointer.save, state["step"], state))
                assert save is not None
                save.result()
                if number > 0:  # the first save of a process allocates memory
                    found[kind].stalls.append(stall)
                    found[kind].copied.append(copied)
        if number == rounds:
            with bitsnap.Store(run, read_only=True) as store:
                for kind, state in zip(KINDS, states, strict=True):
                    found[kind].sizes = sizes_by_role(bitsnap.inspect(store.snapshot(state["step"])))
    return found


def sizes_by_role(inspection: bitsnap.Inspection) -> dict[str, int]:
    """The stored bytes of each role; what has no role, such as the pool and the index, is "other"."""
    sizes: dict[str, int] = defaultdict(int)
    for tensor in inspection.tensors:
        sizes[BITSNAP_ROLES.get(tensor.role, tensor.role)] += tensor.stored_bytes or 0
    return {**sizes, "other": inspection.file_bytes - sum(sizes.values())}


def row_of(name: str, measured: Measured, roles: Roles) -> list[str]:
    raw = {role: bits.numel() for role, bits in roles.items()}
    whole = sum(raw.values())

    def speed(seconds: float) -> str:
        return f"{whole / seconds / 1e9:.1f}" if seconds else "-"

    return [
        name,
        *(format_ratio(raw[role] / max(1, measured.sizes[role])) for role in ROLES),
        format_ratio(whole / sum(measured.sizes.values())),
        speed(measured.encode_s),
        speed(measured.decode_s),
        f"{statistics.median(measured.stalls):.3f}",
        f"{measured.times_the_copy():.2f}",
    ]


def report_kind(
    report: Report, kind: str, ours: Measured, theirs: dict[tuple[str, str], Measured], roles: Roles
) -> None:
    titles = {"alone": "A state alone:", "later": "The later state against the first (nvCOMP: their XOR):"}
    rows = [row_of("**bitsnap**", ours, roles)]
    rows += [row_of(name, measured, roles) for (name, of), measured in theirs.items() if of == kind]
    header = [
        "times smaller",
        "weights",
        "masters",
        "exp_avg",
        "exp_avg_sq",
        "whole state",
        "encode on the GPU (GB/s)",
        "decode on the GPU (GB/s)",
        "stall (s)",
        "times the pinned copy",
    ]
    report.say(titles[kind])
    report.table(header, rows)
    everything = {"bitsnap": ours, **{name: each for (name, of), each in theirs.items() if of == kind}}
    report.add(**{kind: {name: vars(each) for name, each in everything.items()}})


def measure(options: argparse.Namespace, report: Report, folder: Path) -> None:
    device = device_of(options.device)
    training = training_of(options, device)
    training.run(options.first)
    like, first = training.state(), roles_of(training.state())
    states = [state_of(first, like)]
    training.run(options.steps)
    later = roles_of(training.state())
    states.append(state_of(later, training.state()))
    del training
    copy = PinnedCopy(device, sum(bits.numel() for bits in first.values()), options.buffer_gib * GIB)
    report.say(
        f"{copy.size_bytes / 1e9:.2f} GB of state; the first state is that of step {states[0]['step']}, the later one "
        f"that of step {states[1]['step']}. bitsnap stores a weight as the rounded master, and its stall is that of "
        "`save()`; the agent compresses after that. nvCOMP's stall is until the encoded bytes are on the host."
    )
    ours = measure_bitsnap(states, copy, options.rounds, folder)
    theirs: dict[tuple[str, str], Measured] = {}
    try:
        nvcomp = load_nvcomp()
    except ImportError as error:
        report.say(f"nvCOMP is missing: {error}")
    else:
        report.say(f"nvCOMP {nvcomp.__version__}, made for CUDA {nvcomp.__cuda_version__}.")
        roles = {"alone": first, "later": xor_of(later, first)}
        with side_stream(device):
            theirs, failures = measure_nvcomp(nvcomp, roles, copy, options.rounds, device)
        report.failures(failures)
    for kind in KINDS:
        report_kind(report, kind, ours[kind], theirs, first)


def main() -> int:
    parser = parser_of(__doc__, gigabytes=2.0, width=1024, first=100, steps=10, rounds=3, buffer_gib=4)
    run_program("bench.nvcomp_comparison", parser.parse_args(), measure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
