"""What the measurements on a GPU have in common: the device, a copy to compare with, and where results are written."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench import measuring
from bench.gpu_training import GpuTraining, layers_for, synchronize
from bench.machine_description import describe, in_one_line
from bench.results_tables import align

GIB = 1 << 30
_HELP = {
    "gigabytes": "size of the state",
    "width": "of the layers; their number follows",
    "batch": "sequences of a step",
    "block": "tokens of a sequence",
    "first": "steps before the first measurement",
    "steps": "steps between two states",
    "rounds": "that count",
    "buffer_gib": "pinned memory of the copy, a power of two",
}


def parser_of(doc: str | None, **defaults: float) -> argparse.ArgumentParser:
    """The options that these programs have, with the defaults of one of them."""
    parser = measuring.parser_of(doc)
    for name, default in {"batch": 4, "block": 512, **defaults}.items():
        text = f"{_HELP[name]} (default: %(default)s)"
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, help=text)
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda if there is a GPU")
    parser.add_argument(
        "--results", type=Path, help="folder to whose results.md and results.jsonl the results are added"
    )
    return parser


def training_of(options: argparse.Namespace, device: torch.device) -> GpuTraining:
    layers = layers_for(options.gigabytes, options.width)
    return GpuTraining(device, layers, options.width, batch=options.batch, block=options.block)


def device_of(name: str | None) -> torch.device:
    if name == "cpu" or (name is None and not torch.cuda.is_available()):
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def description_of(device: torch.device) -> dict[str, str]:
    """The machine, with its GPU first."""
    found = {"device": "CPU, which says nothing about a GPU"}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        memory = f"{properties.total_memory / GIB:.0f} GiB"
        found["device"] = f"{properties.name}, {memory}, CUDA {torch.version.cuda}, driver {driver_version()}"
    of_machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return found | {"memory": f"{of_machine / GIB:.0f} GiB of memory"} | describe()


def driver_version() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return (done.stdout.strip().splitlines() or ["unknown"])[0]


def run_program(
    name: str, options: argparse.Namespace, measure: Callable[[argparse.Namespace, Report, Path], None]
) -> None:
    """Measures with the options of parser_of(): reports, and keeps checkpoints in a folder that is removed."""
    with (
        Report(name, device_of(options.device), options.results) as report,
        measuring.folder_of(options) as folder,
    ):
        measure(options, report, folder)


class PinnedCopy:
    """Copies as many bytes as a state has between the device and pinned memory: what a save costs at least.

    One buffer on each side, of at most `buffer_bytes`, is copied as often as it takes, by cudaMemcpyAsync on one
    stream. Without a GPU, the memory is plain.
    """

    def __init__(self, device: torch.device, size_bytes: int, buffer_bytes: int) -> None:
        self._device = device
        self.size_bytes = size_bytes
        length = min(size_bytes, buffer_bytes)
        on_gpu = device.type == "cuda"
        self._there = torch.ones(length, dtype=torch.uint8, device=device)
        self.host = torch.zeros(length, dtype=torch.uint8, pin_memory=on_gpu)

    def to_host(self) -> float:
        """Returns seconds."""
        return self._timed(self.host, self._there)

    def to_device(self) -> float:
        return self._timed(self._there, self.host)

    def _timed(self, target: Tensor, source: Tensor) -> float:
        def copy() -> None:
            left = self.size_bytes
            while left > 0:
                length = min(left, source.numel())
                target[:length].copy_(source[:length], non_blocking=True)
                left -= length
            synchronize(self._device)

        synchronize(self._device)
        return measuring.timed(copy)[0]


class Report:
    """The results of one program: tables for people, which are printed at once, and numbers for programs.

    At the end of the `with` block they are added to the files in the folder, also if the program fails or gets SIGTERM:
    the time on a GPU may be short.
    """

    def __init__(self, program: str, device: torch.device, folder: Path | None) -> None:
        self._program = program
        self._folder = folder
        self._description = description_of(device)
        self._values: dict[str, Any] = {}
        self._lines: list[str] = []
        self.say(f"## {program}")
        self.say(in_one_line(self._description))

    def __enter__(self) -> Report:
        self._earlier = signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped by SIGTERM"))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        signal.signal(signal.SIGTERM, self._earlier)
        if error is not None:
            self.say(f"Not complete: {type(error).__name__}: {error}")
            self.add(error=str(error))
        self._write()

    def say(self, *lines: str) -> None:
        """A paragraph, or a table."""
        print("\n".join((*lines, "")), flush=True)
        self._lines += [*lines, ""]

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.say(*align(header, rows))

    def failures(self, reasons: dict[str, str]) -> None:
        """What could not be measured, by its name; equal reasons once."""
        for reason in dict.fromkeys(reasons.values()):
            names = [name for name, why in reasons.items() if why == reason]
            self.say(f"Failed: {', '.join(names)}: {reason}")
        self.add(failures=reasons)

    def add(self, **values: Any) -> None:
        self._values |= values

    def _write(self) -> None:
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        record = {
            "program": self._program,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": self._description,
            **self._values,
        }
        with (self._folder / "results.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        with (self._folder / "results.md").open("a", encoding="utf-8") as file:
            file.write("\n".join([*self._lines, ""]))
