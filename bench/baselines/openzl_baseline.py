"""OpenZL: exponents deconstructed and entropy coded, fractions stored; of the XOR, every byte plane entropy coded."""

from __future__ import annotations

from typing import Any

import numpy as np
import openzl.ext as zl

from bench.baselines.method import ELEMENT_BYTES, Bytes, Found, PieceMethod, fill

_DECONSTRUCT = {
    "BF16": zl.nodes.BFloat16Deconstruct,
    "F16": zl.nodes.Float16Deconstruct,
    "F32": zl.nodes.Float32Deconstruct,
}
_UNSIGNED = {2: np.uint16, 4: np.uint32}


class OpenZl(PieceMethod):
    def __init__(self, coder: str, uses_base: bool) -> None:
        self._coder = coder
        self.uses_base = uses_base
        self.name = f"openzl-{coder.lower()}" + ("+xor" if uses_base else "")
        self._compressors: dict[str, Any] = {}

    def _compressor(self, dtype: str) -> Any:
        if dtype not in self._compressors:
            compressor = zl.Compressor()
            entropy = getattr(zl.graphs, self._coder)()(compressor)
            if self.uses_base:
                to_struct = zl.nodes.ConvertNumToStructLE()
                graph = to_struct(compressor, zl.nodes.TransposeSplit()(compressor, entropy))
            else:
                graph = _DECONSTRUCT[dtype]()(compressor, zl.graphs.Store()(compressor), entropy)
            compressor.select_starting_graph(graph)
            self._compressors[dtype] = compressor
        return self._compressors[dtype]

    def release(self) -> None:
        self._compressors.clear()

    def encode_piece(self, piece: Bytes, dtype: str) -> bytes:
        context = zl.CCtx()
        context.ref_compressor(self._compressor(dtype))
        context.set_parameter(zl.CParam.FormatVersion, zl.MAX_FORMAT_VERSION)
        numbers = piece.view(_UNSIGNED[ELEMENT_BYTES[dtype]])
        made: bytes = context.compress([zl.Input(zl.Type.Numeric, numbers)])
        return made

    def decode_piece(self, payload: bytes, dtype: str, out: Bytes) -> None:
        content = zl.DCtx().decompress(payload)[0].content
        fill(out, np.asarray(content.as_nparray()).view(np.uint8))


def methods() -> Found:
    return [OpenZl(coder, uses_base) for uses_base in (False, True) for coder in ("Huffman", "Fse")], {}
