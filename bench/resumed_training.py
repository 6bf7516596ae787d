"""A small training that is stored and loaded on its way, and what that can be: files of the command, or perturbations.

One `ResumedTraining` trains one seed in all ways, one after another, always with the same batches and dropout. Tensors
(weights, masters and moments) go the way that was asked for; the place in the data and the random states are kept in
memory. Not thread-safe; uses torch's global random generator.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bench.bitsnap_command import BitsnapCommand, adam_options
from bench.blockwise_eight_bit import round_trip
from bench.corpus_runs import PROJECT
from bench.loss_curves import Curve
from bench.moment_errors import Adam
from bench.train_corpus import state_tensors
from bench.weight_steps import beyond_the_middle, move_near_ones, move_one_weight

sys.path.insert(0, str(PROJECT / "examples" / "train_gpt"))
from data import Corpus, read_text
from model import ModelConfig
from trainer import TrainConfig, Trainer

INTERVAL = 5  # steps between two evaluations
_HELD_OUT_WINDOWS = 32
_HELD_OUT_BYTES = 100_000

Way = Callable[[Trainer], None]  # what a resume does to the tensors of a trainer


def config_of(seed: int, steps: int) -> TrainConfig:
    # Activations in float32: the same numbers on CPUs with and without bfloat16 instructions, as far as torch goes.
    model = ModelConfig(vocab=1024, block=64, layers=2, heads=4, width=128, compute="float32")
    return TrainConfig(model=model, steps=steps, batch=8, warmup=30, text_bytes=1_000_000, seed=seed)


def _copy_back(trainer: Trainer, stored: dict[str, Tensor]) -> None:
    """Every tensor from `stored`, which has to have all of them; weights have to be what they were."""
    live = state_tensors(trainer)
    if live.keys() != stored.keys():
        raise ValueError(f"tensors that are not on both sides: {sorted(live.keys() ^ stored.keys())}")
    for name, tensor in live.items():
        if name.startswith("model.") and not torch.equal(tensor.view(torch.int16), stored[name].view(torch.int16)):
            raise ValueError(f"{name}: another weight than was stored")
        tensor.data.fill_(float("nan"))  # so that nothing is left of what was not stored
        tensor.data.copy_(stored[name])


def through_the_command(command: BitsnapCommand, folder: Path, options: tuple[str, ...]) -> Way:
    """The state as a safetensors file, a snapshot of it, and back."""

    def resume(trainer: Trainer) -> None:
        state, snapshot, back = (folder / name for name in ("state.safetensors", "state.bsnap", "back.safetensors"))
        save_file(state_tensors(trainer), state)
        adam = Adam(0.9, trainer.config.beta2, 1e-8, trainer.step)
        command.compress(state, snapshot, [*options, *adam_options(adam)])
        command.decompress(snapshot, back)
        _copy_back(trainer, load_file(back))

    return resume


def in_blocks_of_eight_bits(trainer: Trainer) -> None:
    """Moments as bitsandbytes' optimizers hold them; masters as they are."""
    stored = {name: tensor.detach().clone() for name, tensor in state_tensors(trainer).items()}
    for name, tensor in stored.items():
        if name.startswith(("exp_avg.", "exp_avg_sq.")):
            stored[name] = torch.from_numpy(round_trip(tensor.numpy(), signed=name.startswith("exp_avg.")))
    _copy_back(trainer, stored)


def _moving_masters(move: Callable[[Tensor], Tensor]) -> Way:
    def resume(trainer: Trainer) -> None:
        live = state_tensors(trainer)
        for name, master in live.items():
            if name.startswith("master."):
                master.data.copy_(move(master.data))
                live[f"model.{name.removeprefix('master.')}"].data.copy_(master)

    return resume


one_weight_of_each_tensor = _moving_masters(move_one_weight)
# By as much as 8 bits beyond the weight's can move a master: half of 2^-8 of the weight's ULP.
near_weights = _moving_masters(lambda master: move_near_ones(master, 2**-9))
every_weight = _moving_masters(beyond_the_middle)


class ResumedTraining:
    def __init__(self, config: TrainConfig) -> None:
        self._trainer = Trainer(config)
        self._begin = copy.deepcopy(self._trainer.state())
        corpus = Corpus(read_text(config.text_bytes), config.model.vocab)
        text = read_text(config.text_bytes + _HELD_OUT_BYTES)[config.text_bytes :]
        tokens = torch.from_numpy(corpus.encode(text)[: _HELD_OUT_WINDOWS * config.model.block + 1])
        self._inputs = tokens[:-1].reshape(_HELD_OUT_WINDOWS, config.model.block)
        self._targets = tokens[1:].reshape(_HELD_OUT_WINDOWS, config.model.block)
        # Of the uninterrupted run: states at the steps where others part from it.
        self._states: dict[int, dict[str, Any]] = {}
        self._uninterrupted: Curve | None = None

    def run_through(self, kept_steps: set[int]) -> Curve:
        """The uninterrupted run; the states of `kept_steps` are what `run_resumed` can begin with."""
        self._trainer.load(copy.deepcopy(self._begin))
        self._states = {}
        train: list[float] = []
        held_out: list[float] = []
        self._train_on(train, held_out, lambda step: self._keep(step, kept_steps))
        self._uninterrupted = Curve(
            self._trainer.config.seed, "uninterrupted", (), tuple(train), tuple(held_out), INTERVAL
        )
        return self._uninterrupted

    def run_resumed(self, name: str, way: Way, resumes: tuple[int, ...]) -> Curve:
        """Up to the first resume it is the uninterrupted run, and its losses are."""
        assert self._uninterrupted is not None
        self._trainer.load(copy.deepcopy(self._states[resumes[0]]))
        train = list(self._uninterrupted.train[: resumes[0]])
        held_out = list(self._uninterrupted.held_out[: resumes[0] // INTERVAL])
        way(self._trainer)
        self._train_on(train, held_out, lambda step: way(self._trainer) if step in resumes else None)
        return Curve(self._trainer.config.seed, name, resumes, tuple(train), tuple(held_out), INTERVAL)

    def _keep(self, step: int, kept_steps: set[int]) -> None:
        if step in kept_steps:
            self._states[step] = copy.deepcopy(self._trainer.state())

    def _train_on(self, train: list[float], held_out: list[float], after_step: Callable[[int], None]) -> None:
        while self._trainer.step < self._trainer.config.steps:
            result = self._trainer.train_step()
            train.append(result.loss)
            if result.step % INTERVAL == 0:
                held_out.append(self._held_out_loss())
            after_step(result.step)

    def _held_out_loss(self) -> float:
        self._trainer.model.eval()
        with torch.no_grad():
            loss: Tensor = self._trainer.model(self._inputs, self._targets)
        return loss.item()
