"""Compares the checkpoints that frameworks write themselves with those of bitsnap's integrations.

    python -m bench.framework_integrations [transformers] [accelerate] [lightning] [deepspeed]

Each function trains one model twice: with the framework's own writer and with bitsnap. Measured are the bytes of ten
checkpoints on disk, and the seconds of a save and of a resume. Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

import bitsnap
from bench.machine_description import describe
from bench.results_tables import align

CHECKPOINTS = 10
EVERY = 2  # steps


class Result(NamedTuple):
    size_bytes: int  # of all checkpoints
    save_s: float  # the median
    resume_s: float


def size_of(folder: Path) -> int:
    files = {path.stat().st_ino: path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()}
    return sum(files.values())


def new_model(
    *, vocab_size: int = 8000, n_positions: int = 64, n_embd: int = 256, n_layer: int = 6, n_head: int = 8
) -> Any:
    """A GPT-2 in float32, of 7 million parameters by default."""
    from transformers import GPT2Config, GPT2LMHeadModel, set_seed

    set_seed(0)
    sizes = GPT2Config(vocab_size=vocab_size, n_positions=n_positions, n_embd=n_embd, n_layer=n_layer, n_head=n_head)
    return GPT2LMHeadModel(sizes)


def batches(count: int) -> torch.Tensor:
    return torch.randint(200, (count, 2, 64), generator=torch.Generator().manual_seed(0))


class Clock:
    """The seconds of calls, and when the first step after a start began."""

    def __init__(self) -> None:
        self.saves: list[float] = []
        self.stepped_at = 0.0

    def timed(self, save: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            begin = time.perf_counter()
            result = save(*arguments, **options)
            self.saves.append(time.perf_counter() - begin)
            return result

        return call

    def stepped(self) -> None:
        self.stepped_at = self.stepped_at or time.perf_counter()


def transformers_trainer(folder: Path, options: dict[str, Any] | None) -> Result:
    """The Trainer."""
    from transformers import Trainer, TrainingArguments

    import bitsnap.transformers

    clock = Clock()

    class Timed(Trainer):  # type: ignore[misc]
        def training_step(self, *arguments: Any, **more: Any) -> Any:
            clock.stepped()
            return super().training_step(*arguments, **more)

    def trainer(last: int) -> Any:
        arguments = TrainingArguments(
            str(folder),
            max_steps=last,
            save_steps=EVERY,
            per_device_train_batch_size=2,
            learning_rate=1e-3,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            seed=0,
        )
        tokens = batches(CHECKPOINTS * EVERY).flatten(0, 1)
        made = Timed(
            model=new_model(), args=arguments, train_dataset=[{"input_ids": each, "labels": each} for each in tokens]
        )
        if options is not None:
            bitsnap.transformers.use(made, **options)
        made._save_checkpoint = clock.timed(made._save_checkpoint)
        return made

    trainer(CHECKPOINTS * EVERY).train()
    size = size_of(folder)
    resumed = trainer(CHECKPOINTS * EVERY + 1)
    begin, clock.stepped_at = time.perf_counter(), 0.0
    resumed.train(resume_from_checkpoint=True)
    return Result(size, median(clock.saves[:CHECKPOINTS]), clock.stepped_at - begin)


def accelerate_loop(folder: Path, options: dict[str, Any] | None) -> Result:
    """A loop with Accelerate."""
    from accelerate import Accelerator

    import bitsnap.accelerate

    clock = Clock()
    accelerator = Accelerator(cpu=True)
    if options is not None:
        bitsnap.accelerate.use(accelerator, **options)
    model = new_model()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    save = clock.timed(accelerator.save_state)
    for step, tokens in enumerate(batches(CHECKPOINTS * EVERY), 1):
        train_step(model, optimizer, tokens)
        if step % EVERY == 0:
            save(str(folder / f"step_{step}"))
    accelerator.end_training()
    begin = time.perf_counter()
    accelerator.load_state(str(folder / f"step_{CHECKPOINTS * EVERY}"))
    return Result(size_of(folder), median(clock.saves), time.perf_counter() - begin)


def lightning_trainer(folder: Path, options: dict[str, Any] | None) -> Result:
    """The Trainer of Lightning."""
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    import bitsnap.lightning

    clock = Clock()

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = new_model()

        def training_step(self, batch: list[torch.Tensor]) -> Any:
            clock.stepped()
            tokens = batch[0][0]
            return self.model(input_ids=tokens, labels=tokens).loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def fit(last: int, path: str | None) -> None:
        checkpoints = ModelCheckpoint(folder, every_n_train_steps=EVERY, save_top_k=-1, filename="{step}")
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_steps=last,
            callbacks=[checkpoints],
            plugins=[] if options is None else [bitsnap.lightning.CheckpointIO(**options)],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.save_checkpoint = clock.timed(trainer.save_checkpoint)
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(batches(last)), batch_size=1)
        trainer.fit(Module(), data, ckpt_path=path)

    fit(CHECKPOINTS * EVERY, None)
    size = size_of(folder)
    begin, clock.stepped_at = time.perf_counter(), 0.0
    fit(CHECKPOINTS * EVERY + 1, str(folder / f"step={CHECKPOINTS * EVERY}.ckpt"))
    return Result(size, median(clock.saves[:CHECKPOINTS]), clock.stepped_at - begin)


def deepspeed_zero(folder: Path, options: dict[str, Any] | None) -> Result:
    """ZeRO 1 of DeepSpeed with bfloat16 weights and float32 masters, on one rank."""
    clock = Clock()
    engine = deepspeed_engine(new_model(), folder, options)
    save = clock.timed(engine.save_checkpoint)
    for step, tokens in enumerate(batches(CHECKPOINTS * EVERY), 1):
        deepspeed_step(engine, tokens)
        if step % EVERY == 0:
            save(str(folder))
    engine.destroy()
    size = size_of(folder)
    engine = deepspeed_engine(new_model(), folder, options)
    begin = time.perf_counter()
    engine.load_checkpoint(str(folder))
    seconds = time.perf_counter() - begin
    engine.destroy()
    return Result(size, median(clock.saves), seconds)


def deepspeed_engine(model: Any, folder: Path, options: dict[str, Any] | None) -> Any:
    """Of ZeRO 1 with bfloat16 weights and float32 masters, on one rank. `options` of bitsnap; None: without it."""
    os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    import deepspeed

    import bitsnap.deepspeed

    if not torch.distributed.is_initialized():
        meeting = f"file://{folder}.meeting"
        torch.distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    # Collectives in shared memory, which would be compiled when they are first used.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": True},
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    made, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)
    if options is not None:
        bitsnap.deepspeed.use(made, **options)
    return made


def deepspeed_step(engine: Any, tokens: torch.Tensor) -> None:
    few = tokens[:1, :8]  # bfloat16 is slow on most CPUs
    engine.backward(engine(input_ids=few, labels=few).loss)
    engine.step()


def train_step(model: Any, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()


_WAYS: dict[str, dict[str, Any] | None] = {
    "its own": None,
    "bitsnap": {},
    "bitsnap, agent": {"agent": bitsnap.AgentOptions(linger=1.0)},
}
WAYS: dict[str, tuple[Callable[[Path, Any], Result], dict[str, dict[str, Any] | None]]] = {
    "transformers": (
        transformers_trainer,
        {**_WAYS, "bitsnap, agent, weights=False": {"weights": False, "agent": bitsnap.AgentOptions(linger=1.0)}},
    ),
    "accelerate": (accelerate_loop, _WAYS),
    "lightning": (lightning_trainer, _WAYS),
    "deepspeed": (deepspeed_zero, _WAYS),
}


def main() -> None:
    torch.set_num_threads(1)
    print(", ".join(describe("as detected").values()), end="\n\n")
    for framework in sys.argv[1:] or WAYS:
        train, ways = WAYS[framework]
        rows = []
        first: Result | None = None
        for way, options in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                result = train(Path(folder), options)
            first = first or result
            smaller = first.size_bytes / result.size_bytes
            numbers = (
                f"{result.size_bytes / 1e6:.1f}",
                f"{smaller:.2f}",
                f"{result.save_s:.2f}",
                f"{result.resume_s:.2f}",
            )
            rows.append([way, *numbers])
        header = [framework, f"{CHECKPOINTS} checkpoints (MB)", "times smaller", "save (s)", "resume (s)"]
        print("\n".join(align(header, rows)), end="\n\n")


if __name__ == "__main__":
    main()
