"""Trainings of small models of Transformers, and what from_pretrained() makes of a folder; see forked_calls.py."""

from __future__ import annotations

import logging
import secrets
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, set_seed

import bitsnap
import bitsnap.torch
from python.forked_calls import on_ranks
from python.transformers import transformers_trainings

torch.set_num_threads(1)


def model_of(kind: str) -> Any:
    """A GPT-2, whose head is the embedding, or a Llama: "llama" with a head of its own, or "tied"."""
    if kind == "gpt2":
        return transformers_trainings.model()
    set_seed(0)
    config = LlamaConfig(
        vocab_size=transformers_trainings.WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        tie_word_embeddings=kind == "tied",
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    return LlamaForCausalLM(config)


def train(folder: str, kind: str, weights: bool) -> None:
    """Trains with the Trainer, and keeps the weights at the end in `folder`/final.pt."""
    trainer = transformers_trainings.trainer_of(folder, {"weights": weights}, last=2, made=model_of(kind))
    trainer.train()
    torch.save(trainer.model.state_dict(), f"{folder}/final.pt")


def train_on_ranks(folder: str, meeting: str) -> list[int]:
    """Trains on two processes with FSDP2, and keeps the model before and the weights after in `folder`."""
    job = secrets.token_hex(8)

    def work() -> None:
        model = model_of("gpt2")
        is_first = torch.distributed.get_rank() == 0
        if is_first:
            model.save_pretrained(f"{folder}/original")
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        options: dict[str, Any] = {
            "job": bitsnap.JobOptions(name=job),
            "agent": bitsnap.AgentOptions(threads=1, linger=1.0),
            "timeout": 60,
        }
        tokens = torch.randint(transformers_trainings.WORDS, (4, 8))
        with bitsnap.torch.TrainingCheckpointer(f"{folder}/run", model=model, optimizer=optimizer, **options) as saves:
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
            saves.save(1)
            saves.wait()
        whole = {name: each.full_tensor() for name, each in model.state_dict().items()}
        if is_first:
            torch.save(whole, f"{folder}/final.pt")

    return on_ranks(meeting, work)


def save_state(folder: str, kind: str, places: list[str], prefix: str) -> None:
    """Saves a state with the weights at a place in it, under names that begin with `prefix`."""
    model = model_of(kind)
    state: Any = {prefix + name: tensor for name, tensor in model.state_dict().items()}
    for place in reversed(places):
        state = {place: state}
    if places:
        state["optimizer"] = {"state": {0: {"exp_avg": torch.ones(2000)}}}
    with bitsnap.Store(f"{folder}/run") as store:
        store.save(1, state)
    model.save_pretrained(f"{folder}/original")
    torch.save(model.state_dict(), f"{folder}/final.pt")


def load(folder: str, expected: str, dtype: str = "float32") -> list[str]:
    """What differs between the model in a folder and the expected weights, or was warned of while it was loaded."""
    warned: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warned.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("transformers").addHandler(handler)
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    loaded, weights = model.state_dict(), torch.load(expected)
    wrong = [f"{name}: {value}" for name, value in report.items() if value]
    wrong += [f"name {name}" for name in loaded.keys() ^ weights.keys()]
    for name, tensor in loaded.items():
        if tensor.dtype != getattr(torch, dtype):
            wrong.append(f"{name} is {tensor.dtype}")
        elif not torch.equal(tensor, weights[name].to(tensor.dtype)):
            wrong.append(f"{name} has other values")
    return [*wrong, *warned]
