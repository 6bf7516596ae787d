"""Pcodec at levels 4 and 8; against a base, of the differences of the bits as integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from pcodec import ChunkConfig, standalone

from bench.baselines.method import Bytes, Found, PieceMethod

# Pcodec has no bfloat16: these elements are taken as integers.
_NUMBERS: dict[str, Any] = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32}
_DIFFERENCES: dict[str, Any] = {"BF16": np.int16, "F16": np.int16, "F32": np.int32}


class Pcodec(PieceMethod):
    def __init__(self, level: int, uses_base: bool) -> None:
        self._config = ChunkConfig(compression_level=level)
        self._types = _DIFFERENCES if uses_base else _NUMBERS
        self.uses_base = uses_base
        self.name = f"pcodec-{level}" + ("+difference" if uses_base else "")

    def difference(self, piece: Bytes, base: Bytes, dtype: str) -> Bytes:
        numbers: Bytes = (piece.view(self._types[dtype]) - base.view(self._types[dtype])).view(np.uint8)
        return numbers

    def add_base(self, out: Bytes, base: Bytes, dtype: str) -> None:
        np.add(out.view(self._types[dtype]), base.view(self._types[dtype]), out=out.view(self._types[dtype]))

    def encode_piece(self, piece: Bytes, dtype: str) -> bytes:
        made: bytes = standalone.simple_compress(piece.view(self._types[dtype]), self._config)
        return made

    def decode_piece(self, payload: bytes, dtype: str, out: Bytes) -> None:
        standalone.simple_decompress_into(payload, out.view(self._types[dtype]))


def methods() -> Found:
    return [Pcodec(level, uses_base) for uses_base in (False, True) for level in (4, 8)], {}
