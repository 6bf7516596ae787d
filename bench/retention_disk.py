"""What runs with a retention hold on disk after each save and while one runs, in raw checkpoints that are kept.

    .venv/bin/python -m bench.retention_disk

The training is one of four linear layers of 512 x 512 in fp32 with AdamW, on new data in each step or on the same data.
Written is what the saves wrote, with what they wrote again, per checkpoint, in raw checkpoints.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

import bitsnap

LAYERS, WIDTH = 4, 512
SAVES = 24


class Disk(NamedTuple):
    """Mean and most after a save, most at any time, per kept checkpoint; and written, per checkpoint."""

    mean: float
    most: float
    peak: float
    written: float


def training(is_same_data: bool) -> tuple[Callable[[], None], Callable[[], dict[str, object]]]:
    """A step, and the state."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *(layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()))
    )
    optimizer = torch.optim.AdamW(model.parameters())
    teacher = torch.nn.Linear(WIDTH, WIDTH)
    fixed = torch.randn(64, WIDTH)

    def step() -> None:
        data = fixed if is_same_data else torch.randn(64, WIDTH)
        loss = torch.nn.functional.mse_loss(model(data), teacher(data).detach())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step, lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def bytes_in(folder: Path) -> int:
    total = 0
    for path, _, names in os.walk(folder):  # passes over folders that were removed since
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += Path(path, name).stat().st_blocks * 512
    return total


def disk_of(keep_last: int, every: int, is_same_data: bool, saves: int = SAVES) -> Disk:
    step, state = training(is_same_data)
    held, written, peak = [], 0, 0.0
    ended = threading.Event()
    with tempfile.TemporaryDirectory(prefix="retention-") as temporary:
        folder = Path(temporary) / "run"

        def watch() -> None:
            nonlocal peak
            while not ended.wait(0.002):
                peak = max(peak, bytes_in(folder))

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            with bitsnap.Store(folder, keep_last=keep_last) as store:
                for number in range(1, saves + 1):
                    for _ in range(every):
                        step()
                    saved = store.save(number * every, state())
                    assert saved.pruned is not None
                    written += saved.stored_bytes + sum(each.bytes_after for each in saved.pruned.rewritten)
                    if number >= keep_last:
                        held.append(bytes_in(folder) / saved.raw_bytes / keep_last)
                raw = saved.raw_bytes
        finally:
            ended.set()
            watching.join()
    return Disk(sum(held) / len(held), max(held), peak / raw / keep_last, written / raw / saves)


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    print("| data | steps between saves | keep_last | mean | most | peak | written |")
    print("|------|--------------------:|----------:|-----:|-----:|-----:|--------:|")
    for is_same_data in (False, True):
        for every in (1, 5, 10, 100):
            for keep_last in (1, 2, 3, 5):
                disk = disk_of(keep_last, every, is_same_data)
                print(
                    f"| {'same' if is_same_data else 'new'} | {every} | {keep_last} | "
                    + " | ".join(f"{value:.3f}" for value in disk)
                    + " |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
