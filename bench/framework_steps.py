"""What a checkpoint one step after the last takes in a run, with the trainers that people use and their defaults.

    PYTHONPATH=. python -m bench.framework_steps [TRAINER ...]

Each trains a GPT of 5.3 M parameters on source code, with gradients clipped to a norm of 1, and saves steps 30 and 31
to a run. Prints the raw bytes of step 31 and those in the run, as Markdown for docs/measurements.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bitsnap
import bitsnap.torch
from bench.gradient_trainings import STEPS, Corpus, Gpt, ModelConfig, Sampler, make_deterministic, read_text
from bench.ranks import on_ranks

BATCH = 4


class LanguageModel(nn.Module):
    """The loss by name, as models of Transformers return it."""

    def __init__(self) -> None:
        super().__init__()
        make_deterministic(threads=1)
        torch.manual_seed(1)
        self.gpt = Gpt(ModelConfig(layers=6, heads=4, width=256, dropout=0, compute="float32"))

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": self.gpt(input_ids, labels)}


def batches(seed: int = 1, size: int = BATCH) -> Iterator[dict[str, Tensor]]:
    sampler = Sampler(Corpus(read_text(1_000_000), 2048), 128, size, seed)
    while True:
        inputs, targets = sampler.next()
        yield {"input_ids": inputs, "labels": targets}


class Rows(torch.utils.data.IterableDataset[dict[str, Tensor]]):
    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for batch in batches(size=1):
            yield {name: tensor[0] for name, tensor in batch.items()}


def with_lightning(folder: Path) -> Path:
    import lightning

    import bitsnap.lightning

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = LanguageModel()

        def training_step(self, batch: dict[str, Tensor]) -> Tensor:
            loss: Tensor = self.model(**batch)["loss"]
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

        def on_train_batch_end(self, *_: Any) -> None:
            if self.global_step in STEPS:
                self.trainer.save_checkpoint(folder / f"step-{self.global_step}.ckpt")

    lightning.Trainer(
        accelerator="cpu",
        precision="bf16-mixed",
        max_steps=STEPS[-1],
        gradient_clip_val=1.0,
        plugins=[bitsnap.lightning.CheckpointIO()],
        enable_checkpointing=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Module(), torch.utils.data.DataLoader(Rows(), batch_size=BATCH))
    return folder / "bitsnap"


def with_transformers(folder: Path) -> Path:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    import bitsnap.transformers

    class SavesLast(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_save = state.global_step in STEPS

    trainer = Trainer(
        model=LanguageModel(),
        args=TrainingArguments(
            output_dir=str(folder),
            max_steps=STEPS[-1],
            per_device_train_batch_size=BATCH,
            bf16=True,
            use_cpu=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Rows(),
        callbacks=[SavesLast()],
    )
    bitsnap.transformers.use(trainer, weights=False)  # tied weights of a plain module, which safetensors refuses
    trainer.train()
    return folder / "bitsnap"


def with_fsdp2(reduced_in: torch.dtype) -> Callable[[Path], Path]:
    def work(folder: Path) -> None:
        from torch.distributed import get_rank
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced_in)
        model = LanguageModel()
        for block in model.gpt.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        optimizer = torch.optim.AdamW(model.parameters())
        source = batches(seed=1 + get_rank())
        with bitsnap.torch.TrainingCheckpointer(folder / "run", model=model, optimizer=optimizer) as checkpointer:
            for step in range(1, STEPS[-1] + 1):
                model(**next(source))["loss"].backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                if step in STEPS:
                    checkpointer.save(step)

    def train(folder: Path) -> Path:
        on_ranks(2, lambda: work(folder), Path("/dev/null"))
        return folder / "run"

    return train


TRAINERS: dict[str, Callable[[Path], Path]] = {
    'Lightning, `precision="bf16-mixed"`, AdamW': with_lightning,
    "Transformers' Trainer, `bf16=True`": with_transformers,
    "FSDP2, 2 ranks, bf16, reduced in fp32": with_fsdp2(torch.float32),
    "FSDP2, 2 ranks, bf16, reduced in bf16": with_fsdp2(torch.bfloat16),
}


def sizes(run: Path, scratch: Path) -> tuple[int, int]:
    """The raw and the stored bytes of the last step in a run that keeps all checkpoints."""
    source, store = bitsnap.Store(run), bitsnap.Store(scratch)
    for step in STEPS:
        states = [source.load(step, shard=rank) for rank in range(source.checkpoint(step).shards)]
        for rank, state in enumerate(states):
            store.save_shard(step, state, shard=rank, shards=len(states), attempt="all")
        store.commit(step, len(states), "all")
    found = store.checkpoint(STEPS[-1])
    return found.raw_bytes, found.stored_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainers", nargs="*", metavar="TRAINER", help="a part of a name; default: all")
    arguments = parser.parse_args()
    for name, train in TRAINERS.items():
        if arguments.trainers and not any(part in name for part in arguments.trainers):
            continue
        with tempfile.TemporaryDirectory() as folder:
            raw, stored = sizes(train(Path(folder)), Path(folder) / "all")
        print(f"| {name} | {raw / 1e6:.1f} | {stored / 1e6:.2f} | {raw / stored:.2f} |", flush=True)


if __name__ == "__main__":
    main()
