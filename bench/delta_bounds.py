"""A bound for the ratio of a delta: the order-0 entropy of the ULP distances, alone and given the exponent of the base.

For 16-bit floats the symbol is the distance itself. For fp32 that would give more symbols than elements, so the symbol
is the sign and the bit length of the distance, and the bits below the leading one count as raw. Tables cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.baselines.method import Sample

_MANTISSA_BITS = {"BF16": 7, "F16": 10, "F32": 23}


@dataclass(frozen=True)
class Bounds:
    unchanged: float  # share of the elements
    ratio: float  # the element's bits over the entropy of the difference
    ratio_by_exponent: float  # the same, the entropy given the exponent of the base


def ordinals(bits: NDArray[np.unsignedinteger]) -> NDArray[np.signedinteger]:
    """Signed integers of the same width in the order of the floats; -0 lies just below +0."""
    signed_type: type[np.signedinteger] = np.int16 if bits.itemsize == 2 else np.int32
    width = bits.itemsize * 8
    signed = bits.view(signed_type)
    flipped: NDArray[np.signedinteger] = signed ^ ((signed >> (width - 1)) & signed_type((1 << (width - 1)) - 1))
    return flipped


def entropy_bits(counts: NDArray[np.integer]) -> float:
    """Entropy of all elements together, in bits."""
    present = counts[counts > 0].astype(np.float64)
    return float(present.sum() * np.log2(present.sum()) - (present * np.log2(present)).sum()) if present.size else 0.0


def conditional_entropy_bits(symbols: NDArray[np.integer], contexts: NDArray[np.integer], symbol_count: int) -> float:
    return sum(
        entropy_bits(np.bincount(symbols[contexts == context], minlength=symbol_count))
        for context in np.unique(contexts)
    )


def delta_bounds(sample: Sample) -> Bounds:
    if sample.base is None:
        raise ValueError(f"{sample.role}: a delta needs a base")
    unsigned_type: type[np.unsignedinteger] = np.uint16 if sample.element_bytes == 2 else np.uint32
    new, old = sample.data.view(unsigned_type), sample.base.view(unsigned_type)
    mantissa_bits = _MANTISSA_BITS[sample.dtype]
    exponents = (old >> mantissa_bits) & ((1 << (8 * sample.element_bytes - 1 - mantissa_bits)) - 1)
    with np.errstate(over="ignore"):
        difference = ordinals(new) - ordinals(old)  # modulo 2^width
    raw_bits = 0.0
    symbols: NDArray[np.integer]
    if sample.element_bytes == 2:
        symbols, symbol_count = difference.view(np.uint16), 1 << 16
    else:
        magnitudes = np.abs(difference.astype(np.int64))
        lengths = np.where(magnitudes > 0, np.floor(np.log2(np.maximum(magnitudes, 1))) + 1, 0).astype(np.int64)
        symbols, symbol_count = 2 * lengths + (difference < 0), 2 * 33 + 2
        raw_bits = float(np.maximum(lengths - 1, 0).sum())
    total = 8.0 * sample.data.size
    # An entropy of 0 (nothing changed) would give no ratio: at least one bit.
    alone = max(entropy_bits(np.bincount(symbols, minlength=symbol_count)) + raw_bits, 1.0)
    given = max(conditional_entropy_bits(symbols, exponents, symbol_count) + raw_bits, 1.0)
    return Bounds(float((new == old).mean()), total / alone, total / given)
