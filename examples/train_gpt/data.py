"""Training text as tokens, and a batch sampler that can be stopped and resumed bit for bit.

The text is the source code of Python's standard library in a fixed order. The vocabulary is made from it: the 256
bytes, then the most frequent words, runs of blanks and punctuation. Nothing is downloaded or cached.
"""

from __future__ import annotations

import hashlib
import random
import re
import sysconfig
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_PIECE = re.compile(rb" ?[A-Za-z]+|[0-9]|[ \t]+|\n[ ]*|.", re.DOTALL)
_SKIPPED_FOLDERS = {"__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tests"}


def read_text(limit_bytes: int) -> bytes:
    """The first `limit_bytes` of the standard library's sources, joined in the order of their paths."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [path for path in root.rglob("*.py") if not _SKIPPED_FOLDERS.intersection(path.relative_to(root).parts)]
    files.sort(key=lambda path: path.relative_to(root).parts)
    text = bytearray()
    for path in files:
        if len(text) >= limit_bytes:
            break
        text += path.read_bytes()
    if not text:
        raise FileNotFoundError(f"no Python sources under {root}: the training text cannot be made")
    return bytes(text[:limit_bytes])


class Corpus:
    """Tokens of the text, as one array; immutable."""

    def __init__(self, text: bytes, vocab: int) -> None:
        if vocab < 256:
            raise ValueError(f"vocab {vocab}: at least the 256 single bytes are needed")
        pieces = _PIECE.findall(text)
        counts = Counter(piece for piece in pieces if len(piece) > 1)
        frequent = sorted(counts, key=lambda piece: (-counts[piece], piece))[: vocab - 256]
        self._ids = {piece: 256 + index for index, piece in enumerate(frequent)}
        self.vocab = vocab
        self.text_bytes = len(text)
        self.tokens = self._encode(pieces)
        # Stored in the checkpoint: a resumed run must use the same text.
        self.digest = hashlib.sha256(self.tokens.tobytes()).hexdigest()

    def encode(self, text: bytes) -> NDArray[np.int64]:
        """The tokens of another text in this vocabulary."""
        return self._encode(_PIECE.findall(text))

    def _encode(self, pieces: list[bytes]) -> NDArray[np.int64]:
        tokens: list[int] = []
        for piece in pieces:
            known = self._ids.get(piece)
            if known is None:
                tokens.extend(piece)
            else:
                tokens.append(known)
        return np.array(tokens, dtype=np.int64)


class Sampler:
    """Batches of windows in a shuffled order.

    The sampler uses two random generators, like real trainers: numpy's shuffles each epoch and drops words from the
    inputs, and Python's `random` shifts the windows. `state()` holds both, and the place in the epoch.
    """

    def __init__(self, corpus: Corpus, block: int, batch: int, seed: int, word_dropout: float = 0.02) -> None:
        self._corpus = corpus
        self._block = block
        self._batch = batch
        self._word_dropout = word_dropout
        self._numpy = np.random.default_rng(seed)
        self._python = random.Random(seed)
        self._windows = (len(corpus.tokens) - 1) // block - 1  # one less, because the shift moves windows to the right
        if self._windows < batch:
            raise ValueError(f"{len(corpus.tokens)} tokens of text: too few for batches of {batch} x {block}")
        self._epoch = 0
        self._cursor = 0
        self._order = self._shuffle()

    def _shuffle(self) -> Tensor:
        return torch.from_numpy(self._numpy.permutation(self._windows).astype(np.int32))

    def next(self) -> tuple[Tensor, Tensor]:
        """The next batch: inputs and targets, each batch x block."""
        if self._cursor + self._batch > self._windows:
            self._epoch += 1
            self._cursor = 0
            self._order = self._shuffle()
        shift = self._python.randrange(self._block)
        chosen = self._order[self._cursor : self._cursor + self._batch].numpy().astype(np.int64)
        self._cursor += self._batch
        places = chosen[:, None] * self._block + shift + np.arange(self._block + 1)[None, :]
        tokens = self._corpus.tokens[places]
        inputs, targets = tokens[:, :-1].copy(), tokens[:, 1:].copy()
        inputs[self._numpy.random(inputs.shape) < self._word_dropout] = 0
        return torch.from_numpy(inputs), torch.from_numpy(targets)

    def state(self) -> dict[str, Any]:
        return {
            "text": self._corpus.digest,
            "epoch": self._epoch,
            "cursor": self._cursor,
            "order": self._order,
            "numpy": self._numpy.bit_generator.state,
            "python": self._python.getstate(),
        }

    def load(self, state: dict[str, Any]) -> None:
        if state["text"] != self._corpus.digest:
            raise ValueError(f"the checkpoint was trained on another text: {state['text']}, not {self._corpus.digest}")
        self._epoch = state["epoch"]
        self._cursor = state["cursor"]
        self._order = state["order"].clone()
        self._numpy.bit_generator.state = state["numpy"]
        self._python.setstate(state["python"])
