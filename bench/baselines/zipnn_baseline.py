"""ZipNN as its users call it: on bytes of a given dtype, alone and with its own delta (the XOR) against a base."""

from __future__ import annotations

from typing import Any

from zipnn import ZipNN

from bench.baselines.method import Bytes, Found, Method, Payload, Sample, fill

_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


class ZipNNMethod(Method):
    def __init__(self, uses_base: bool) -> None:
        self.uses_base = uses_base
        self.name = "zipnn+delta" if uses_base else "zipnn"
        self._coders: dict[tuple[str, int], Any] = {}

    def _coder(self, dtype: str, threads: int) -> Any:
        key = (dtype, threads)
        if key not in self._coders:
            delta = {"delta_compressed_type": "byte"} if self.uses_base else {}
            self._coders[key] = ZipNN(
                method="HUFFMAN", input_format="byte", bytearray_dtype=_DTYPES[dtype], threads=threads, **delta
            )
        return self._coders[key]

    def _delta(self, sample: Sample) -> dict[str, Any]:
        return {"delta_second_data": self._base} if self.uses_base else {}

    def prepare(self, sample: Sample) -> None:
        # ZipNN takes bytes objects and reorders their bits in place, so that each encoding needs new ones.
        self._data = sample.data.tobytes()
        self._base = sample.base.tobytes() if self.uses_base and sample.base is not None else b""

    def encode(self, sample: Sample, threads: int) -> Payload:
        made = self._coder(sample.dtype, threads).compress(self._data, **self._delta(sample))
        return Payload(len(made), made)

    def decode(self, sample: Sample, payload: Payload, threads: int, out: Bytes) -> None:
        fill(out, self._coder(sample.dtype, threads).decompress(payload.body, **self._delta(sample)))

    def release(self) -> None:
        self._data = self._base = b""


def methods() -> Found:
    return [ZipNNMethod(False), ZipNNMethod(True)], {}
