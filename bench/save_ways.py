"""The ways to save a state whose stalls are compared, and how much memory each of them needs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.staging import AsyncStager, BlockingAsyncStager, DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save

import bitsnap
from bench.states import State


def nothing(*_: Any) -> None:
    pass


@dataclass
class Way:
    """`begin` saves and returns a handle, with which the program waits until the state may change, and until the
    checkpoint is durable. `kept`, `passing` and `shared` are the memory that the way needs, as a multiple of the state:
    always, during a save, and of what it always needs, in /dev/shm."""

    name: str
    begin: Callable[[int, State], Any]
    wait_until_safe: Callable[[Any], None] = nothing
    wait_until_durable: Callable[[Any], None] = nothing
    clean: Callable[[], None] = nothing
    end: Callable[[], None] = nothing
    kept: float = 0.0
    passing: float = 0.0
    shared: float = 0.0
    is_ours: bool = False


def available_bytes() -> int:
    """The memory that programs can take without swapping."""
    with Path("/proc/meminfo").open(encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def shared_bytes() -> int:
    """What torch can take of /dev/shm. A process that takes more gets SIGBUS, and no error."""
    return shutil.disk_usage("/dev/shm").free


def ways_that_fit(
    ways: list[Way], state_bytes: int, free_bytes: int, shared_free_bytes: int
) -> tuple[list[Way], list[Way]]:
    """The ways in their order, as far as the memory suffices for all of them, and the others."""
    chosen: list[Way] = []
    left_out: list[Way] = []
    for way in ways:
        tried = [*chosen, way]
        needed = sum(each.kept for each in tried) + max(each.passing for each in tried)
        fits = needed * state_bytes <= free_bytes
        fits = fits and sum(each.shared for each in tried) * state_bytes <= shared_free_bytes
        (chosen if fits else left_out).append(way)
    return chosen, left_out


def bitsnap_way(checkpointer: bitsnap.Checkpointer) -> tuple[Way, list[bitsnap.Save]]:
    """Also returns the list to which each save is added."""
    saves: list[bitsnap.Save] = []

    def begin(step: int, state: State) -> bitsnap.Save:
        save = checkpointer.save(step, state)
        assert save is not None
        saves.append(save)
        return save

    return Way("bitsnap", begin, wait_until_durable=lambda save: save.result(), is_ours=True), saves


def ways_on_cpu(folder: Path) -> list[Way]:
    """async_save with several settings, and torch.save with a sync."""
    thread, process = AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS
    return [
        _async_way("default", folder),
        _async_way("one stager", folder, _default_stager(), async_checkpointer_type=thread),
        _async_way("one stager, shared", folder, _default_stager(shared=True), async_checkpointer_type=thread),
        _async_way("process", folder, _default_stager(shared=True), async_checkpointer_type=process),
        _torch_save(folder / "torch.pt"),
    ]


def ways_on_gpu(device: torch.device, folder: Path) -> list[Way]:
    """async_save with each stager of torch, and torch.save. Without a GPU, nothing is pinned."""
    pinned = device.type == "cuda"
    background = _default_stager(pinned=pinned, shared=True, in_background=True)

    def blocking() -> AsyncStager:
        return BlockingAsyncStager(cache_staged_state_dict=pinned)

    # torch rounds pinned memory up to powers of two.
    return [
        _async_way("default", folder, passing=1.0),
        _async_way("BlockingAsyncStager, cached", folder, blocking, kept=1.4),
        _async_way("DefaultStager, pinned", folder, _default_stager(pinned=pinned), kept=1.4),
        _async_way("DefaultStager, pinned, shared, in the background", folder, background, kept=1.0, shared=1.1),
        _torch_save(folder / "torch.pt"),
    ]


def _default_stager(
    *, pinned: bool = False, shared: bool = False, in_background: bool = False
) -> Callable[[], AsyncStager]:
    """Makes a stager that can be used again, and keeps its memory. That of torch 2.11 closes itself after each save;
    that of torch 2.13 does not."""

    def make() -> AsyncStager:
        stager = DefaultStager(StagingOptions(pinned, shared, in_background, pinned))
        stager._state_dict_stager.close = nothing  # type: ignore[method-assign]
        return stager

    return make


def _async_way(
    name: str,
    folder: Path,
    make_stager: Callable[[], AsyncStager] | None = None,
    *,
    kept: float = 0.0,
    passing: float = 0.0,
    shared: float = 0.0,
    **settings: Any,
) -> Way:
    """Keeps its stager from save to save, as torch advises."""
    path = folder / name.replace(" ", "-").replace(",", "")
    stagers: list[AsyncStager] = []  # made by the first save

    def begin(step: int, state: State) -> Any:
        if make_stager is not None and not stagers:
            stagers.append(make_stager())
        stager = stagers[0] if stagers else None
        return async_save(dict(state), checkpoint_id=str(path), async_stager=stager, **settings)

    def wait_until_safe(handle: Any) -> None:
        staging = getattr(handle, "staging_completion", None)  # of stagers that copy in the background
        if staging is not None:
            staging.result()

    def wait_until_durable(handle: Any) -> None:
        getattr(handle, "upload_completion", handle).result()

    def clean() -> None:
        shutil.rmtree(path, ignore_errors=True)

    def end() -> None:
        while stagers:
            stagers.pop().close()

    return Way(f"async_save, {name}", begin, wait_until_safe, wait_until_durable, clean, end, kept, passing, shared)


def _torch_save(path: Path) -> Way:
    def begin(step: int, state: State) -> None:
        with path.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())

    return Way("torch.save and fsync", begin, clean=lambda: path.unlink(missing_ok=True))
