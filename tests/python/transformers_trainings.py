"""Small trainings with Transformers, each in a process of its own; see forked_calls.py."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_jit_checkpoint import JITCheckpointCallback

import bitsnap
import bitsnap.transformers
from bitsnap.agents import stop_agent
from python.forked_calls import on_ranks
from python.same_bits import assert_same

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


def trainer_of(folder: str, options: dict[str, Any] | None, last: int = 8, **arguments: Any) -> Recorder:
    trainer = Recorder(
        model=model(),
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


def train(
    folder: str,
    options: dict[str, Any] | None = None,
    resume: str | bool | None = None,
    kill_in: int | None = None,
    signal_at: int | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Trains. `options`: of bitsnap; None trains without."""
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


def train_on_ranks(folder: str, meeting: str, **arguments: Any) -> list[int]:
    """Trains on two processes. Their exit statuses."""
    return on_ranks(meeting, lambda: train(folder, **arguments)["losses"])


def stop(folder: str) -> None:
    with contextlib.suppress(bitsnap.NotFoundError):
        stop_agent(Path(folder) / "bitsnap", timeout=20)


def export(checkpoint: str, folder: str) -> None:
    bitsnap.transformers.export(checkpoint, folder)


def compare(first: str, second: str) -> list[str]:
    """Compares the files of two folders of checkpoints of Transformers, bit for bit. Their names."""
    names = sorted(path.name for path in Path(first).iterdir())
    assert names == sorted(path.name for path in Path(second).iterdir())
    for name in names:
        one, other = Path(first) / name, Path(second) / name
        if name.endswith((".pt", ".pth")):
            assert_same(torch.load(one, weights_only=False), torch.load(other, weights_only=False))
        elif name == "training_args.bin":
            a, b = (torch.load(each, weights_only=False).to_dict() for each in (one, other))
            assert {**a, "output_dir": "", "logging_dir": ""} == {**b, "output_dir": "", "logging_dir": ""}
        else:
            assert one.read_bytes() == other.read_bytes(), name
    return names
