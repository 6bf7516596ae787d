"""xz -6 from the standard library: on the bytes, on byte planes, and on byte planes of the XOR."""

from __future__ import annotations

import lzma

from bench.baselines.method import ELEMENT_BYTES, Bytes, Found, PieceMethod, fill, from_planes, to_planes


class Xz(PieceMethod):
    is_slow = True

    def __init__(self, planes: bool, uses_base: bool) -> None:
        self._planes = planes
        self.uses_base = uses_base
        self.name = "xz-6" + ("+xor" if uses_base else "") + ("+planes" if planes else "")

    def encode_piece(self, piece: Bytes, dtype: str) -> bytes:
        whole = to_planes(piece, ELEMENT_BYTES[dtype]) if self._planes else piece
        return lzma.compress(whole.data, preset=6)

    def decode_piece(self, payload: bytes, dtype: str, out: Bytes) -> None:
        decoded = lzma.decompress(payload)
        if not self._planes:
            fill(out, decoded)
            return
        planes = out.copy()
        fill(planes, decoded)
        from_planes(planes, ELEMENT_BYTES[dtype], out)


def methods() -> Found:
    return [Xz(False, False), Xz(True, False), Xz(True, True)], {}
