"""Blosc2 with its filters and threads: zstd -1 on byte planes, lz4 on bit planes; of the bytes and of the XOR."""

from __future__ import annotations

from typing import Any

import blosc2
import numpy as np

from bench.baselines.method import Bytes, Found, Method, Payload, Sample

_WAYS: dict[str, dict[str, Any]] = {
    "zstd-shuffle": {"codec": blosc2.Codec.ZSTD, "clevel": 1, "filters": [blosc2.Filter.SHUFFLE]},
    "lz4-bitshuffle": {"codec": blosc2.Codec.LZ4, "clevel": 5, "filters": [blosc2.Filter.BITSHUFFLE]},
}


class Blosc2(Method):
    def __init__(self, way: str, uses_base: bool) -> None:
        self._parameters = _WAYS[way]
        self.uses_base = uses_base
        self.name = f"blosc2-{way}" + ("+xor" if uses_base else "")

    def encode(self, sample: Sample, threads: int) -> Payload:
        data = sample.data if sample.base is None or not self.uses_base else sample.data ^ sample.base
        made = blosc2.compress2(data, typesize=sample.element_bytes, nthreads=threads, **self._parameters)
        return Payload(len(made), made)

    def decode(self, sample: Sample, payload: Payload, threads: int, out: Bytes) -> None:
        blosc2.decompress2(payload.body, dst=out, nthreads=threads)
        if self.uses_base and sample.base is not None:
            np.bitwise_xor(out, sample.base, out=out)


def methods() -> Found:
    return [Blosc2(way, uses_base) for uses_base in (False, True) for way in _WAYS], {}
