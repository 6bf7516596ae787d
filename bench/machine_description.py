"""A description of the machine and of the measured packages' versions, for results."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

_PACKAGES = ("torch", "numpy", "zipnn", "openzl", "blosc2", "pcodec", "safetensors")


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe(cpu_level: str = "as detected") -> dict[str, str]:
    found = {
        "processor": f"{processor()}, {usable_cpus()} usable CPUs, kernels {cpu_level}",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
    }
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def in_one_line(machine: dict[str, str]) -> str:
    """Versions need the names of their packages; the other values speak for themselves."""
    return ", ".join(f"{name} {value}" if name in _PACKAGES else value for name, value in machine.items())
