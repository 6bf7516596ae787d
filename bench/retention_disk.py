"""What runs with a retention hold on disk, beside raw checkpoints.

    .venv/bin/python -m bench.retention_disk layers
    .venv/bin/python -m bench.retention_disk text [--every 1000]

`layers` are four linear layers of 512 x 512 in fp32 with AdamW, on new data in each step or on the same data: what the
run holds after each save and while one runs, in raw checkpoints that are kept. Written is what the saves wrote, with
what they wrote again, per checkpoint, in raw checkpoints.

`text` is a GPT of 2 million parameters on text, warmed up for 300 steps: how many times smaller a run is than its raw
checkpoints. Its states in mixed precision have weights in bfloat16, masters and moments in float32; those in fp32 have
the masters as weights. Each store holds 12 saves of one training (5 at 1,000 steps); its size is the mean after each
save from the N-th on, or, without `keep_last`, that at the end.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch

import bitsnap
from bench.disk_use import DiskWatch, bytes_in
from bench.measuring import parser_of, print_machine, print_table
from bench.train_gpt import ModelConfig, TrainConfig, Trainer, fast_compute_dtype

LAYERS, WIDTH = 4, 512
SAVES = 24
WARMUP = 300
TEXT_SAVES = {1: 12, 10: 12, 100: 12, 1000: 5}  # by steps between them
TEXT_KEPT = (1, 2, 5, None)


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


def disk_of(keep_last: int, every: int, is_same_data: bool, saves: int = SAVES) -> Disk:
    step, state = training(is_same_data)
    held, written = [], 0
    with tempfile.TemporaryDirectory(prefix="retention-") as temporary:
        folder = Path(temporary) / "run"
        with bitsnap.Store(folder, keep_last=keep_last) as store, DiskWatch(folder, pause_s=0.002) as watch:
            for number in range(1, saves + 1):
                for _ in range(every):
                    step()
                saved = store.save(number * every, state())
                assert saved.pruned is not None
                written += saved.stored_bytes + sum(each.bytes_after for each in saved.pruned.rewritten)
                if number >= keep_last:
                    held.append(bytes_in(folder) / saved.raw_bytes / keep_last)
    raw = saved.raw_bytes
    return Disk(sum(held) / len(held), max(held), watch.most / raw / keep_last, written / raw / saves)


def measure_layers() -> None:
    rows = []
    for is_same_data in (False, True):
        for every in (1, 5, 10, 100):
            for keep_last in (1, 2, 3, 5):
                disk = disk_of(keep_last, every, is_same_data)
                kind = "same" if is_same_data else "new"
                rows.append([kind, str(every), str(keep_last), *(f"{value:.3f}" for value in disk)])
                print(rows[-1], file=sys.stderr, flush=True)
    print_table(["data", "steps between saves", "keep_last", "mean", "most", "peak", "written"], rows)


def states_of(trainer: Trainer) -> dict[str, dict[str, Any]]:
    """By kind."""
    state = trainer.state()
    masters, optimizer = state["master"], state["optimizer"]
    return {
        "fp32": {"model": masters, "optimizer": optimizer},
        "mixed": {"model": state["model"], "master": masters, "optimizer": optimizer},
    }


def text_ratios(every: int, config: TrainConfig) -> dict[tuple[str, str, int | None], float]:
    """By kind of state, coding and `keep_last`."""
    trainer = Trainer(config)
    for _ in range(WARMUP):
        trainer.train_step()
    shares: dict[tuple[str, str, int | None], list[float]] = {
        (kind, policy, kept): []
        for kind in ("fp32", "mixed")
        for policy in ("lossless", "bounded")
        for kept in TEXT_KEPT
    }
    with tempfile.TemporaryDirectory(prefix="retention-") as temporary, ExitStack() as stack:
        stores = {}
        for key in shares:
            run = Path(temporary) / "-".join(map(str, key))
            stores[key] = stack.enter_context(bitsnap.Store(run, settings=key[1], keep_last=key[2]))
        for number in range(1, TEXT_SAVES[every] + 1):
            for _ in range(every):
                trainer.train_step()
            states = states_of(trainer)
            for key, store in stores.items():
                raw_bytes = store.save(trainer.step, states[key[0]]).raw_bytes
                count = key[2] or TEXT_SAVES[every]
                if number >= count:
                    shares[key].append(bytes_in(Path(store.path)) / raw_bytes / count)
    return {key: len(found) / sum(found) for key, found in shares.items()}


def measure_text(intervals: list[int]) -> None:
    model = ModelConfig(layers=4, heads=4, width=192, compute=fast_compute_dtype())
    config = TrainConfig(model=model, steps=WARMUP + 8000, warmup=100)
    rows: dict[tuple[str, str, int], list[str]] = {}
    for every in intervals:
        for (kind, policy, _), ratio in text_ratios(every, config).items():
            rows.setdefault((kind, policy, every), []).append(f"{ratio:.2f}")
        print(every, rows, file=sys.stderr, flush=True)
    header = ["state", "coding", "steps between saves", *("all" if n is None else f"keep_last={n}" for n in TEXT_KEPT)]
    order = sorted(rows, key=lambda key: (key[0], key[1] == "bounded", key[2]))
    print_table(header, [[kind, policy, f"{every:,}", *rows[kind, policy, every]] for kind, policy, every in order])


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("training", choices=("layers", "text"))
    parser.add_argument("--every", type=int, choices=TEXT_SAVES, nargs="+", default=list(TEXT_SAVES), help="of `text`")
    options = parser.parse_args()
    tempfile.tempdir = options.folder
    print_machine()
    if options.training == "layers":
        measure_layers()
    else:
        measure_text(options.every)


if __name__ == "__main__":
    main()
