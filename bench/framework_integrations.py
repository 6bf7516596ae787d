"""Compares the checkpoints that frameworks write themselves with those of bitsnap's integrations.

    python -m bench.framework_integrations [transformers]

Each function trains one model twice: with the framework's own writer and with bitsnap. Measured are the bytes of ten
checkpoints on disk, and the seconds of a save and of a resume. Prints Markdown for docs/measurements.md.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

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


def transformers_trainer(folder: Path, options: dict[str, Any] | None) -> Result:
    """The Trainer with a GPT-2 of 7 million parameters in float32 and AdamW."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

    import bitsnap.transformers

    saves: list[float] = []

    class Timed(Trainer):  # type: ignore[misc]
        resumed_at = 0.0

        def training_step(self, *arguments: Any, **more: Any) -> Any:
            self.resumed_at = self.resumed_at or time.perf_counter()
            return super().training_step(*arguments, **more)

    def trainer(last: int) -> Any:
        set_seed(0)
        config = GPT2Config(vocab_size=8000, n_positions=64, n_embd=256, n_layer=6, n_head=8)
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
        tokens = torch.randint(200, (CHECKPOINTS * EVERY * 2, 64), generator=torch.Generator().manual_seed(0))
        made = Timed(
            model=GPT2LMHeadModel(config),
            args=arguments,
            train_dataset=[{"input_ids": each, "labels": each} for each in tokens],
        )
        if options is not None:
            bitsnap.transformers.use(made, **options)
        save = made._save_checkpoint

        def timed(*given: Any, **more: Any) -> None:
            begin = time.perf_counter()
            save(*given, **more)
            saves.append(time.perf_counter() - begin)

        made._save_checkpoint = timed
        return made

    trainer(CHECKPOINTS * EVERY).train()
    size = size_of(folder)
    resumed = trainer(CHECKPOINTS * EVERY + 1)
    begin = time.perf_counter()
    resumed.train(resume_from_checkpoint=True)
    return Result(size, median(saves[:CHECKPOINTS]), resumed.resumed_at - begin)


WAYS: dict[str, tuple[Callable[[Path, Any], Result], dict[str, dict[str, Any] | None]]] = {
    "transformers": (
        transformers_trainer,
        {
            "the Trainer's own": None,
            "bitsnap": {},
            "bitsnap, weights=False": {"weights": False},
            "bitsnap, weights=False, asynchronous=True": {"weights": False, "asynchronous": True},
        },
    ),
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
