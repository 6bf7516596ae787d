"""The example's GPT, its text and its training (examples/train_gpt), for the programs of the benchmark."""

from __future__ import annotations

import sys

from bench.corpus_runs import PROJECT

sys.path.insert(0, str(PROJECT / "examples" / "train_gpt"))

from data import Corpus as Corpus, Sampler as Sampler, read_text as read_text
from make_corpus import (
    halves_of as halves_of,
    is_made_from as is_made_from,
    state_tensors as state_tensors,
    train_through as train_through,
    write as write,
)
from model import Gpt as Gpt, ModelConfig as ModelConfig, fast_compute_dtype as fast_compute_dtype
from trainer import TrainConfig as TrainConfig, Trainer as Trainer
