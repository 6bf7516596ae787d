"""Writes the files in interop/npy/fixtures with numpy: python write_npy_fixtures.py"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

FOLDER = Path(__file__).parent / "fixtures"

# Arrays of every type that a snapshot knows: 2 x 3 elements, whose bytes count from 0 on.
KNOWN = ["|b1", "|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8", "<c8"]
OTHERS = [">f4", ">i8", "<c16", "<U3", "|S5", "|V3", "<M8[25ns]"]


def counting(dtype: np.dtype, shape: tuple[int, ...] = (2, 3)) -> np.ndarray:
    count = int(np.prod(shape)) * dtype.itemsize
    return np.arange(count, dtype=np.uint8).view(dtype).reshape(shape)


def file_name(dtype: str) -> str:
    names = {"<": "little_", ">": "big_", "|": ""}
    return names[dtype[0]] + dtype[1:].replace("[", "_").replace("]", "").lower() + ".npy"


def write_with_version(name: str, array: np.ndarray, version: tuple[int, int]) -> None:
    with (FOLDER / name).open("wb") as file:
        np.lib.format.write_array(file, array, version=version)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for dtype in KNOWN:
        array = counting(np.dtype(dtype)) if dtype != "|b1" else np.array([[0, 1, 0], [1, 1, 0]], dtype=bool)
        np.save(FOLDER / file_name(dtype), array)
    for dtype in OTHERS:
        array = counting(np.dtype(dtype)) if dtype != "<U3" else np.array([["abc", "d", ""], ["ef", "", "ghi"]])
        np.save(FOLDER / file_name(dtype), array)
    np.save(FOLDER / "bfloat16.npy", counting(np.dtype(ml_dtypes.bfloat16)))
    np.save(FOLDER / "scalar.npy", np.float32(1.5))
    np.save(FOLDER / "empty.npy", np.zeros((3, 0, 5), dtype=np.float32))
    np.save(FOLDER / "fortran.npy", np.asfortranarray(counting(np.dtype("<f4"), (2, 3, 4))))
    np.save(FOLDER / "objects.npy", np.array([None, "x"], dtype=object), allow_pickle=True)
    nested = np.dtype([("a", "<i4"), (("title", "b"), "<f8", (2, 3)), ("c\\'", [("x", "|b1"), ("y", "<U3")])])
    np.save(FOLDER / "structured.npy", np.zeros(2, dtype=nested))
    np.save(FOLDER / "structured_utf8.npy", np.zeros(2, dtype=[("é中", "<i4")]))
    write_with_version("version2.npy", counting(np.dtype("<f4")), (2, 0))
    write_with_version("version3.npy", counting(np.dtype("<f4")), (3, 0))

    arrays: dict[str, Any] = {
        "weight": counting(np.dtype("<f4")),
        "layer/bias": counting(np.dtype("<f2"), (5,)),
        "fortran": np.asfortranarray(counting(np.dtype("<i4"))),
        "none": np.zeros(0),
        "step": np.int64(7),
    }
    np.savez(FOLDER / "stored.npz", objects=np.array([None], dtype=object), **arrays)
    np.savez_compressed(FOLDER / "compressed.npz", **arrays)


if __name__ == "__main__":
    main()
