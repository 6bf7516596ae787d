"""Trains the small GPT, saving every step in memory and every few steps on disk; can be killed at any moment.

    python train.py --out RUN --every 10          checkpoints in RUN/store, records in RUN/records
    python train.py --out RUN --every 10 --resume continue from the newest state, in memory or in RUN/store

With `--events` each thing that happens is one line of JSON on stdout, for programs; numbers that must be
compared are in hexadecimal, so that no digit is lost.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkpoints import STORAGES, Saver, open_saver
from model import ModelConfig, fast_compute_dtype
from records import differences, read_record, record_of, tensor_count, write_record
from trainer import TrainConfig, Trainer

Emit = Callable[..., None]

SIZES = {
    "tiny": ModelConfig(vocab=512, block=32, layers=2, heads=2, width=32),
    "small": ModelConfig(),
}


def run_config(size: str, steps: int) -> TrainConfig:
    shape = SIZES[size]
    model = ModelConfig(shape.vocab, shape.block, shape.layers, shape.heads, shape.width, compute=fast_compute_dtype())
    text_bytes = 200_000 if size == "tiny" else 2_000_000
    return TrainConfig(model=model, steps=steps, warmup=max(1, steps // 6), text_bytes=text_bytes)


def record_path(run: Path, step: int) -> Path:
    return run / "records" / f"step-{step:06d}.json"


def emit_json(event: str, **values: Any) -> None:
    print(json.dumps({"event": event, **values}), flush=True)


def emit_text(event: str, **values: Any) -> None:
    if event == "step":
        loss, rate = float.fromhex(values["loss"]), values["lr"]
        print(f"step {values['step']:5d}   loss {loss:.4f}   lr {rate:.2e}", flush=True)
    elif event == "saved":
        print(f"step {values['step']:5d}   saved, in {values['seconds']:.3f} s", flush=True)
    elif event == "finished" and values["on_disk"]:
        print(f"step {values['step']:5d}   stored in {values['stored_bytes']:,} bytes", flush=True)
    elif event == "restored":
        found = f"restored from {values['source']}, {values['tensors']} tensors equal to their record"
        print(f"step {values['step']:5d}   {found}", flush=True)


def restore(trainer: Trainer, state: Any, record: Path) -> int:
    """Loads the state and proves that the trainer now holds it bit for bit; the number of tensors compared."""
    trainer.load(state)
    expected = read_record(record)
    wrong = differences(expected, record_of(trainer.state()))
    if wrong:
        raise ValueError(f"{len(wrong)} values differ from {record} after loading, the first at {wrong[0]}")
    return tensor_count(expected)


def pick_up(trainer: Trainer, saver: Saver, run: Path, resume: bool, emit: Emit) -> None:
    """Restores the newest state, if there is one and that is wanted."""
    newest = saver.newest()
    if resume and newest is None:
        raise FileNotFoundError(f"{run}: no checkpoint to resume from")
    if newest is None:
        return
    step, state, source = newest
    if not resume:
        raise FileExistsError(f"{run}: holds checkpoints up to step {step}; continue with --resume")
    emit("restored", step=step, source=source, tensors=restore(trainer, state, record_path(run, step)))


def run_steps(trainer: Trainer, saver: Saver | None, run: Path, wait_after: int, emit: Emit) -> None:
    while trainer.step < trainer.config.steps:
        result = trainer.train_step()
        emit("step", step=result.step, loss=result.loss.hex(), grad_norm=result.grad_norm.hex(), lr=result.lr)
        is_wanted = saver is not None and saver.wants(result.step)
        if is_wanted or result.step == trainer.config.steps:
            state = trainer.state()
            # The record comes first, so that whatever state is found whole has one to be judged by.
            write_record(record_of(state), record_path(run, result.step))
        if saver is not None and is_wanted:
            emit("saving", step=result.step)
            emit("saved", step=result.step, seconds=saver.save(result.step, state))
            for each in saver.finished():
                emit("finished", **each)
            if result.step == wait_after:
                signal.pause()


def train(run: Path, config: TrainConfig, every: int, resume: bool, storage: str, wait_after: int, emit: Emit) -> None:
    trainer = Trainer(config)
    emit("start", parameters=trainer.parameter_count(), text_bytes=trainer.text_bytes, tokens=trainer.tokens)
    if every:
        with open_saver(storage, run / "store", every) as saver:
            pick_up(trainer, saver, run, resume, emit)
            run_steps(trainer, saver, run, wait_after, emit)
    else:
        run_steps(trainer, None, run, wait_after, emit)
    emit("done", step=trainer.step)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--steps", type=int, default=120, help="length of the training (default 120)")
    parser.add_argument("--every", type=int, default=0, help="steps between checkpoints (0: none)")
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    parser.add_argument("--size", choices=list(SIZES), default="small")
    parser.add_argument("--storage", choices=STORAGES, default="bitsnap")
    parser.add_argument("--wait-after", type=int, default=0, help="wait to be killed once this step's save was started")
    parser.add_argument("--events", action="store_true", help="report as lines of JSON")
    arguments = parser.parse_args()
    if arguments.resume and not arguments.every:
        parser.error("--resume needs --every")
    emit = emit_json if arguments.events else emit_text
    config = run_config(arguments.size, arguments.steps)
    train(arguments.out, config, arguments.every, arguments.resume, arguments.storage, arguments.wait_after, emit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
