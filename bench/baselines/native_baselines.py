"""The coders of bench/native: bitsnap's codecs and policy, the papers' methods as built here, and baselines in C."""

from __future__ import annotations

from bench.baselines.method import Bytes, Found, Kind, Method, Payload, Sample, UnavailableError
from bench.native_library import DEFAULT_LIBRARY, NativeLibrary

_PAPERS = {"byte_group": "LMC", "bitmask": "BitSnap"}
_CEILINGS = {"memcpy", "memcpy-nt"}
_SLOW = ("zstd-19", "bzip2")
# Coders that a build may lack, with the reason.
_EXPECTED = {
    "ordinal_delta+base": "the codec ordinal_delta is not in this build",
    "huff0": "no libzstd.a of 1.5.4 to 1.5.7 was found when building, and libzstd.so hides Huff0",
    "huff0+xor": "see huff0",
}
_BASELINES = ("zstd-", "lz4", "bzip2", "huff0", "bitx")


class NativeMethod(Method):
    def __init__(self, library: NativeLibrary, coder: str, uses_base: bool) -> None:
        self._library = library
        self._coder = coder
        paper = _PAPERS.get(coder.removesuffix("+base"))
        self.name = f"{coder} ({paper})" if paper else coder
        self.kind = self._kind(paper is not None)
        self.uses_base = uses_base
        self.is_slow = coder.startswith(_SLOW)

    def _kind(self, is_paper: bool) -> Kind:
        if self._coder in _CEILINGS:
            return "ceiling"
        if is_paper:
            return "paper"
        return "baseline" if self._coder.startswith(_BASELINES) else "ours"

    def accepts(self, sample: Sample) -> bool:
        return super().accepts(sample) and self._library.accepts(self._coder, sample.dtype)

    def encode(self, sample: Sample, threads: int) -> Payload:
        base = sample.base if self.uses_base else None
        return Payload(
            self._library.encode(self._coder, sample.dtype, sample.role, threads, sample.data, base),
        )

    def decode(self, sample: Sample, payload: Payload, threads: int, out: Bytes) -> None:
        base = sample.base if self.uses_base else None
        self._library.decode(self._coder, sample.dtype, sample.role, threads, base, out)

    def release(self) -> None:
        self._library.close_sessions()


def methods() -> Found:
    if not DEFAULT_LIBRARY.exists():
        raise UnavailableError(f"{DEFAULT_LIBRARY.name} is not built; `make bench` builds it")
    library = NativeLibrary()
    coders = library.coders()
    found: list[Method] = [NativeMethod(library, name, uses_base) for name, uses_base in coders.items()]
    return found, {name: reason for name, reason in _EXPECTED.items() if name not in coders}
