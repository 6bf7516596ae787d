"""Finds leftovers of a job: processes, sockets, shared memory and files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Traces:
    """What identifies the resources of a job after its processes have ended."""

    sockets: frozenset[str]
    memories: frozenset[int]
    """Inodes of shared memory."""

    def __or__(self, other: Traces) -> Traces:
        return Traces(self.sockets | other.sockets, self.memories | other.memories)


NO_TRACES = Traces(frozenset(), frozenset())


def agents_of(job: str) -> list[int]:
    """The agents of a job that are not zombies."""
    wanted = f"\0--job\0{job}\0".encode()
    found = []
    for process in _processes():
        try:
            if wanted in (process / "cmdline").read_bytes() and not is_zombie(int(process.name)):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def is_zombie(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"


def is_alive(process: int) -> bool:
    try:
        return not is_zombie(process)
    except OSError:
        return False


def traces_of(processes: Iterable[int]) -> Traces:
    sockets: set[str] = set()
    memories: set[int] = set()
    names = dict(_bitsnap_sockets())
    for process in processes:
        for target, inode in _descriptors(process):
            if target.startswith("socket:") and inode in names:
                sockets.add(names[inode])
        memories |= _memories(process)
    return Traces(frozenset(sockets), frozenset(memories))


def left_of(job: str, traces: Traces, without_any: Iterable[int]) -> list[str]:
    """Describes the leftovers of a job, and any shared memory of the processes in `without_any`."""
    left = [f"process {process} is an agent of the job" for process in agents_of(job)]
    present = {name for _, name in _bitsnap_sockets()}
    left += [f"{name} still exists in /proc/net/unix" for name in sorted(traces.sockets & present)]
    empty = set(without_any)
    for process in _processes():
        number = int(process.name)
        memories = _memories(number)
        wrong = memories if number in empty else memories & traces.memories
        left += [f"process {number} has shared memory {inode}" for inode in sorted(wrong)]
    return left


def stray_files(store: Path) -> list[str]:
    """Files of a store that no record names. Opening the store for writing removes those below its newest step."""
    stray = [path.name for path in store.iterdir() if path.name not in _STORE_FILES]
    checkpoints = store / "checkpoints"
    for directory in sorted(checkpoints.iterdir()) if checkpoints.is_dir() else []:
        named = {"commit.json", "retired.json", "tensors.json"}
        for record in ("commit.json", "retired.json"):
            if (directory / record).exists():
                body = json.loads((directory / record).read_text())["commit"]
                named |= {shard["file"] for shard in body["shards"]}
        stray += [f"{directory.name}/{path.name}" for path in directory.iterdir() if path.name not in named]
        if not any(directory.iterdir()):
            stray.append(f"{directory.name}/")
    return stray


_STORE_FILES = {"bitsnap.json", "lock", "catalog", "checkpoints"}


def _processes() -> Iterator[Path]:
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _bitsnap_sockets() -> Iterator[tuple[int, str]]:
    """The inodes and names of bitsnap's sockets."""
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and "/bitsnap-" in fields[7] and "/agent-" in fields[7]:
            yield int(fields[6]), fields[7]


def _descriptors(process: int) -> Iterator[tuple[str, int]]:
    try:
        entries = list(Path(f"/proc/{process}/fd").iterdir())
    except OSError:
        return
    for entry in entries:
        try:
            yield str(entry.readlink()), entry.stat().st_ino
        except OSError:
            continue


def _memories(process: int) -> set[int]:
    """Inodes of the engine's shared memory that a process has open or mapped."""
    found = {inode for target, inode in _descriptors(process) if target.startswith("/memfd:bitsnap-")}
    try:
        lines = Path(f"/proc/{process}/maps").read_text().splitlines()
    except OSError:
        return found
    return found | {int(line.split()[4]) for line in lines if "/memfd:bitsnap-" in line}
