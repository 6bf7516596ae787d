"""Pcodec at levels 4 and 8; against a base, of the differences of the bits as integers."""

from __future__ import annotations

import numpy as np
from pcodec import ChunkConfig, standalone

from bench.baselines.method import ELEMENT_BYTES, Bytes, Found, Method, Payload, Sample, cut, run_pieces

_SIGNED = {2: np.int16, 4: np.int32}


def _numbers(piece: Bytes, dtype: str) -> np.ndarray:
    # It has no bfloat16: those are taken as integers.
    kinds = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32}
    return piece.view(kinds[dtype])


class Pcodec(Method):
    def __init__(self, level: int, uses_base: bool) -> None:
        self._config = ChunkConfig(compression_level=level)
        self.uses_base = uses_base
        self.name = f"pcodec-{level}" + ("+difference" if uses_base else "")

    def encode(self, sample: Sample, threads: int) -> Payload:
        signed = _SIGNED[ELEMENT_BYTES[sample.dtype]]
        pieces = cut(sample.data)
        bases = cut(sample.base) if self.uses_base and sample.base is not None else []

        def work(number: int) -> bytes:
            if self.uses_base:
                numbers: np.ndarray = pieces[number].view(signed) - bases[number].view(signed)
            else:
                numbers = _numbers(pieces[number], sample.dtype)
            made: bytes = standalone.simple_compress(numbers, self._config)
            return made

        made = run_pieces(work, range(len(pieces)), threads)
        return Payload(sum(len(payload) for payload in made), made)

    def decode(self, sample: Sample, payload: Payload, threads: int, out: Bytes) -> None:
        signed = _SIGNED[ELEMENT_BYTES[sample.dtype]]
        outs = cut(out)
        bases = cut(sample.base) if self.uses_base and sample.base is not None else []

        def work(number: int) -> None:
            if self.uses_base:
                differences = outs[number].view(signed)
                standalone.simple_decompress_into(payload.body[number], differences)
                np.add(differences, bases[number].view(signed), out=differences)
            else:
                standalone.simple_decompress_into(payload.body[number], _numbers(outs[number], sample.dtype))

        run_pieces(work, range(len(outs)), threads)


def methods() -> Found:
    return [Pcodec(level, uses_base) for uses_base in (False, True) for level in (4, 8)], {}
