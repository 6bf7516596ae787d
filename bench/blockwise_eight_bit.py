"""Moments of 8 bits in blocks, the format of bitsandbytes' optimizers, made from its published description.

Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (ICLR 2022), and bitsandbytes' documentation: elements
are divided by the largest magnitude of their block of 256, which is kept in float32, and the nearest of the 256 numbers
of the dynamic map is stored as a byte; exp_avg has the signed map, exp_avg_sq the unsigned one. Tensors of less than
4,096 elements stay as they are. As in its optimizers, no element of exp_avg changes its sign: what is below 0 and
nearest to 0 goes to the number below 0. Of two equally near numbers the lower one is taken.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK_ELEMENTS = 256
LEAST_ELEMENTS = 4096  # of a tensor that is quantized
_EXPONENT_BITS = 7


def dynamic_map(signed: bool) -> NDArray[np.float32]:
    """The 256 numbers in ascending order: in each decade from 10^-7 to 1 twice as many as in the one below; 0; and 1.

    A decade is cut into equal parts, and the numbers are the middles of those: of the lowest decade 1 with either sign,
    or 2 without one; of the highest 64 or 128.
    """
    numbers = [0.0, 1.0]
    for decade in range(_EXPONENT_BITS):
        edges = np.linspace(0.1, 1.0, 2 ** (decade if signed else decade + 1) + 1)
        middles = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (decade - _EXPONENT_BITS + 1)
        numbers += middles.tolist()
        if signed:
            numbers += (-middles).tolist()
    return np.array(sorted(numbers), dtype=np.float32)


def quantize(elements: NDArray[np.float32], signed: bool) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """The codes, as many as elements, and the largest magnitude of each block; the last block may be shorter."""
    flat = elements.reshape(-1)
    numbers = dynamic_map(signed)
    padded = np.zeros(-(-flat.size // BLOCK_ELEMENTS) * BLOCK_ELEMENTS, dtype=np.float32)
    padded[: flat.size] = flat
    blocks = padded.reshape(-1, BLOCK_ELEMENTS)
    largest = np.abs(blocks).max(axis=1)
    # A block of zeros has no unit; whatever stands for it, its codes are those of 0.
    shares = blocks / np.where(largest > 0, largest, np.float32(1))[:, None]
    middles = (numbers[:-1] + numbers[1:]) / np.float32(2)
    codes = np.searchsorted(middles, shares.reshape(-1), side="left")[: flat.size]
    if signed:
        zero = int(np.searchsorted(numbers, 0.0))
        codes -= (codes == zero) & (flat < 0)
        codes += (codes < zero) & (flat > 0)
    return codes.astype(np.uint8), largest


def dequantize(codes: NDArray[np.uint8], largest: NDArray[np.float32], signed: bool) -> NDArray[np.float32]:
    restored: NDArray[np.float32] = dynamic_map(signed)[codes] * np.repeat(largest, BLOCK_ELEMENTS)[: codes.size]
    return restored


def round_trip(elements: NDArray[np.float32], signed: bool) -> NDArray[np.float32]:
    """What is left of a tensor, in its shape."""
    if elements.size < LEAST_ELEMENTS:
        return elements
    return dequantize(*quantize(elements, signed), signed).reshape(elements.shape)


def stored_bytes(elements: int) -> int:
    if elements < LEAST_ELEMENTS:
        return 4 * elements
    return elements + 4 * -(-elements // BLOCK_ELEMENTS)
