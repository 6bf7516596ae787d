"""How near float_split comes to its bound: the order-0 entropy of the exponents of each block, and all other bits raw.

    .venv/bin/python bench/float_split_bound.py FILE.safetensors...

Compresses each file and sums up, per role and dtype, the tensors that float_split took for all their chunks. A block is
65,536 elements, as in docs/spec/codecs.md.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

import bitsnap

# Bits of the mantissa and of the exponent.
FORMATS = {"BF16": (7, 8), "F16": (10, 5), "F32": (23, 8)}
BLOCK_ELEMENTS = 65_536


def bound_bits(elements: np.ndarray, mantissa_bits: int, exponent_bits: int) -> float:
    """The bound of one tensor, given its elements as unsigned integers. A sign that is always 0 costs nothing."""
    total = 0.0
    bits = elements.itemsize * 8
    for begin in range(0, elements.size, BLOCK_ELEMENTS):
        block = elements[begin : begin + BLOCK_ELEMENTS]
        exponents = (block >> mantissa_bits) & ((1 << exponent_bits) - 1)
        counts = np.unique(exponents, return_counts=True)[1]
        entropy = float(-(counts * np.log2(counts / block.size)).sum())
        signs = block.size if (block >> (bits - 1)).any() else 0
        total += entropy + block.size * mantissa_bits + signs
    return total


def main() -> None:
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:]:
            stored = Path(folder) / "snapshot.bsnap"
            bitsnap.compress(name, stored, overwrite=True)
            snapshot = bitsnap.Snapshot(stored)
            with bitsnap.safe_open(stored, framework="pt") as file:
                for tensor in bitsnap.inspect(snapshot).tensors:
                    if tensor.dtype not in FORMATS or set(tensor.codecs) != {"float_split"}:
                        continue
                    mantissa_bits, exponent_bits = FORMATS[tensor.dtype]
                    values = file.get_tensor(tensor.name).reshape(-1)
                    two_bytes = values.itemsize == 2
                    integers = values.view(torch.int16 if two_bytes else torch.int32).numpy()
                    elements = integers.view(np.uint16 if two_bytes else np.uint32)
                    row = sums[tensor.role, tensor.dtype]
                    row[0] += elements.nbytes
                    row[1] += tensor.stored_bytes or 0
                    row[2] += bound_bits(elements, mantissa_bits, exponent_bits) / 8
    print(f"{'role':12}{'dtype':8}{'raw MB':>9}{'ratio':>8}{'bound':>8}{'above the bound':>17}")
    for (role, dtype), (raw, size, bound) in sorted(sums.items()):
        print(f"{role:12}{dtype:8}{raw / 1e6:9.1f}{raw / size:8.4f}{raw / bound:8.4f}{(size / bound - 1) * 100:16.2f}%")


if __name__ == "__main__":
    main()
