"""Small trainings with Transformers, each in a process of its own; see forked_calls.py."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

import bitsnap
import bitsnap.transformers
from bitsnap.transformers import export
from python.forked_calls import on_ranks
from python.runs.training_folders import compare_files, stop

__all__ = ["compare", "export", "stop", "train", "train_on_ranks", "warnings_with"]

torch.set_num_threads(1)

WORDS, LENGTH, BATCH = 64, 16, 4


class Sentences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 6 * BATCH

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(WORDS, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


class Recorder(Trainer):  # type: ignore[misc]
    """Keeps all digits of the losses."""

    control: Any
    kill_in: int | None = None  # the step in whose save the process is killed, after the weights were written

    def training_step(self, *arguments: Any, **options: Any) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(*arguments, **options)
        step = self.state.global_step + 1
        self.losses[step] = loss.item()
        return loss

    def save_model(self, *arguments: Any, **options: Any) -> None:
        super().save_model(*arguments, **options)
        if self.state.global_step == self.kill_in:
            os.kill(os.getpid(), signal.SIGKILL)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        # The second save is the best.
        metrics = {"eval_loss": abs(self.state.global_step - 4.0)}
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


class Terminator(TrainerCallback):  # type: ignore[misc]
    """Sends a SIGTERM after a step, and waits until the callback of Transformers for it knows."""

    def __init__(self, trainer: Recorder, step: int) -> None:
        from transformers.trainer_jit_checkpoint import JITCheckpointCallback

        self._manager = next(
            each.jit_manager for each in trainer.callback_handler.callbacks if isinstance(each, JITCheckpointCallback)
        )
        self._step = step

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step + 1 == self._step:
            self._manager.kill_wait = 0
            os.kill(os.getpid(), signal.SIGTERM)
            while not self._manager.is_checkpoint_requested:
                time.sleep(0.01)


def model() -> GPT2LMHeadModel:
    set_seed(0)
    config = GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config)


def trainer_of(
    folder: str,
    options: dict[str, Any] | None,
    last: int = 8,
    made: GPT2LMHeadModel | None = None,
    **arguments: Any,
) -> Recorder:
    trainer = Recorder(
        model=model() if made is None else made,
        args=TrainingArguments(
            output_dir=folder,
            max_steps=last,
            save_strategy="steps",
            save_steps=2,
            per_device_train_batch_size=BATCH,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            seed=0,
            learning_rate=1e-3,
            lr_scheduler_type="inverse_sqrt",  # which does not depend on the last step
            warmup_steps=3,
            **arguments,
        ),
        train_dataset=Sentences(),
        eval_dataset=Sentences(),
    )
    trainer.losses = {}
    if options is not None:
        if options.pop("through_agent", False):
            options["agent"] = bitsnap.AgentOptions()
        assert bitsnap.transformers.use(trainer, **options) is trainer
    return trainer


def warnings_with(folder: str, **attributes: bool) -> list[str]:
    """What a training is told that Transformers saves in another way, as these attributes of the trainer say."""
    trainer = trainer_of(folder, {})
    for name, value in attributes.items():
        setattr(trainer, name, value)
    with warnings.catch_warnings(record=True) as caught, patch.object(Trainer, "train"):
        warnings.simplefilter("always")
        trainer.train()
    return [str(each.message) for each in caught]


def train(
    folder: str,
    options: dict[str, Any] | None = None,
    resume: str | bool | None = None,
    kill_in: int | None = None,
    signal_at: int | None = None,
    inside: str | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Trains. `options`: of bitsnap; None trains without. `inside`: the working directory."""
    with contextlib.chdir(inside or "."):
        return _train(folder, options, resume, kill_in, signal_at, **arguments)


def _train(
    folder: str,
    options: dict[str, Any] | None,
    resume: str | bool | None,
    kill_in: int | None,
    signal_at: int | None,
    **arguments: Any,
) -> dict[str, Any]:
    trainer = trainer_of(folder, options, **arguments)
    trainer.kill_in = kill_in
    if signal_at is not None:
        trainer.add_callback(Terminator(trainer, signal_at))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", bitsnap.RestoreWarning)
        trainer.train(resume_from_checkpoint=resume)
    return {
        "losses": {str(step): loss for step, loss in trainer.losses.items()},
        "weights": sum(each.detach().double().sum().item() for each in trainer.model.parameters()),
        "best": trainer.state.best_model_checkpoint,
        "warnings": [str(each.message) for each in caught if issubclass(each.category, bitsnap.RestoreWarning)],
        "limit": trainer.args.save_total_limit,
    }


def error_without_bitsnap(folder: str) -> str:
    """What a Trainer without bitsnap says when it resumes."""
    try:
        train(folder, resume=True)
    except Exception as error:
        return str(error)
    return ""


def rotate_while_uncommitted(folder: str) -> list[str]:
    """The checkpoints that Transformers keeps of 2 (the best), 4, and 6, which an agent has not committed yet."""

    class Uncommitted:
        def save(self, *_: Any, **__: Any) -> None:
            pass

        def uncommitted(self) -> int:
            return 1

    trainer = trainer_of(folder, {"through_agent": True}, save_total_limit=1)
    for step in (2, 4, 6):
        (Path(folder) / f"checkpoint-{step}").mkdir()
        time.sleep(0.02)  # Transformers takes the order of times of change
    trainer.state.best_model_checkpoint = f"{folder}/checkpoint-2"
    trainer._saves = Uncommitted()
    trainer._save_to_run(f"{folder}/checkpoint-6", {})
    trainer._rotate_in(folder)
    return sorted(each.name for each in Path(folder).iterdir())


def train_on_ranks(folder: str, meeting: str, **arguments: Any) -> list[int]:
    """Trains on two processes. Their exit statuses."""
    return on_ranks(meeting, lambda: train(folder, **arguments)["losses"])


def export_of_unusual_model(folder: str, kind: str) -> bool:
    """Whether the exported weights are, byte for byte, those that a Trainer without bitsnap writes.

    `kind`: "untied", although config.json says that the head is the embedding; or "mixed", of two dtypes.
    """

    def make() -> GPT2LMHeadModel:
        made = model()
        if kind == "untied":
            made.lm_head.weight = torch.nn.Parameter(torch.randn_like(made.lm_head.weight))
        else:
            made.to(torch.bfloat16)
            for layer in made.modules():
                if isinstance(layer, torch.nn.LayerNorm):
                    layer.float()
        return made

    for name, options in (("stock", None), ("ours", {"weights": False})):
        trainer = trainer_of(f"{folder}/{name}", options, last=2, made=make())
        trainer.train()
    export(f"{folder}/ours/checkpoint-2", f"{folder}/plain")
    files = [Path(folder) / parent / "model.safetensors" for parent in ("stock/checkpoint-2", "plain")]
    return files[0].read_bytes() == files[1].read_bytes()


def compare(first: str, second: str) -> list[str]:
    """Compares two folders of checkpoints of Transformers. The names of their files."""

    def read(path: Path) -> Any:
        if path.suffix in (".pt", ".pth"):
            return torch.load(path, weights_only=False)
        if path.name == "training_args.bin":
            return {**torch.load(path, weights_only=False).to_dict(), "output_dir": "", "logging_dir": ""}
        return path.read_bytes()

    return compare_files(first, second, read)


def verbs(folder: str) -> dict[str, Any]:
    """A trainer that saves to a run, and as before when that is undone; and what the run has."""
    trainer = trainer_of(folder, {"weights": False}, last=2)
    trainer.train()
    found = bitsnap.transformers.load(f"{folder}/checkpoint-2")
    bitsnap.transformers.undo(trainer)
    stock = type(trainer) is Recorder and not hasattr(trainer, "checkpoint_options")
    trainer.args.max_steps = 4
    trainer.train()
    bitsnap.transformers.undo(trainer)  # once more
    weights = {name: each.cpu() for name, each in trainer.model.state_dict().items()}
    return {
        "keys": sorted(found),
        "names": sorted(found["model"]) == sorted(weights),
        "stock": stock,
        "files": sorted(path.name for path in Path(folder, "checkpoint-4").iterdir()),
    }
