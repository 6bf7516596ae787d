"""Payloads of factored_split: each breaks one rule of its specification, or only seems to.

No payload is longer than its chunk, so that a snapshot can hold it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from second_reader.bsnap_builder import ChunkPart, Parts, build
from second_reader.factored_elements import FACTORED_WIDTHS
from second_reader.factored_split_encoder import Scales, encode_factored


@dataclass(frozen=True)
class FactoredCase:
    dtype: str
    elements: Sequence[int]
    payload: bytes

    def file(self) -> bytes:
        """A snapshot of one chunk."""
        shape = [len(self.elements)]
        content = {"tensors": [{"name": "a", "dtype": self.dtype, "shape": shape, "role": "exp_avg_sq"}]}
        return build(Parts(content, chunks=[ChunkPart(8, self.payload, words_to_bytes(self.elements, self.dtype))]))


def words_to_bytes(words: Sequence[int], dtype: str) -> bytes:
    return np.array(words, f"<u{FACTORED_WIDTHS[dtype]}").tobytes()


# A piece of a matrix of rows of 67 from the fifth column on, of 23 rows, of which two are zero.
_ROW, _FIRST, _COUNT = 67, 5, 1500
_ROWS = [0 if row in (0, 9) else 1 + row * 7 % 40 for row in range(23)]
_SCALES = Scales(
    _ROW,
    _FIRST,
    base=0x3000,
    rows=_ROWS,
    row_shift=4,
    columns=[column * 5 % 16 for column in range(_ROW)],
    column_bits=4,
    column_shift=3,
    classes=[row % 3 for row in range(23)],
)
_PLANS = [(4, 0), (5, 1), (3, 2), *[(0, 0)] * 29]


def _elements(scales: Scales) -> list[int]:
    """Elements of classes a little above their scales, and some anywhere."""
    words = []
    for index in range(_COUNT):
        left = index * 37 % 200 if index % 83 else 40_000
        upper = (scales.of(index) + left) % 65_536
        words.append(0 if scales.rows[scales.row_of(index)] == 0 else upper << 16 | index * 0x9E37 % 65_536)
    return words


_WORDS = _elements(_SCALES)
_GOOD = encode_factored(_WORDS, "F32", _SCALES, _PLANS)
_ZEROS = encode_factored([0] * 300, "BF16", Scales(100, 0, 0, [0, 0, 0]))


def _changed(**wrong: object) -> FactoredCase:
    return FactoredCase("F32", _WORDS, replace(_GOOD, **wrong).build())  # type: ignore[arg-type]


def _zeros(**wrong: object) -> FactoredCase:
    return FactoredCase("BF16", [0] * 300, replace(_ZEROS, **wrong).build())  # type: ignore[arg-type]


def _cut(size: int) -> FactoredCase:
    return FactoredCase("F32", _WORDS, _GOOD.build()[:size])


def _or(data: bytes, place: int, bits: int) -> bytes:
    changed = bytearray(data)
    changed[place] |= bits
    return bytes(changed)


_EIGHT = replace(_SCALES, columns=[column * 3 % 256 for column in range(_ROW)], column_bits=8, classes=())
_PLAIN = replace(_SCALES, columns=(), classes=())

FACTORED_ALLOWED = {
    "columns of four bits": FactoredCase("F32", _WORDS, _GOOD.build()),
    "columns of eight bits": FactoredCase(
        "F32", _elements(_EIGHT), encode_factored(_elements(_EIGHT), "F32", _EIGHT, _PLANS).build()
    ),
    "neither columns nor classes": FactoredCase(
        "F32", _elements(_PLAIN), encode_factored(_elements(_PLAIN), "F32", _PLAIN, _PLANS).build()
    ),
    "a class that no row has": _changed(),
    "nothing but rows that are left out": _zeros(),
    "shifts and a base that nothing uses": _zeros(shifts=0xFF, base=0xFFFF),
    "classes of rows that are left out": _zeros(flags=2, classes=b"\x3f"),
    "a row that is longer than the chunk": _zeros(row_length=262_144, first_column=262_143, rows=bytes(2)),
}

_CLASSES_END = 12 + 23 + 6
REJECTED_FACTORED: dict[str, dict[str, FactoredCase]] = {
    "truncated": {
        "an empty payload": _cut(0),
        "half a header": _cut(11),
        "rows that are not there": _cut(12 + 22),
        "classes that are not there": _cut(_CLASSES_END - 1),
        "columns that are not there": _cut(_CLASSES_END + 33),
        "low bytes that are not there": _cut(_CLASSES_END + 34 + len(_GOOD.low) - 1),
        "values that are not there": _cut(_CLASSES_END + 34 + len(_GOOD.low)),
        "no last byte": _cut(-1),
        "rows of zeros without the last": _zeros(rows=bytes(2)),
    },
    "corrupt": {
        "a flag that is none": _changed(flags=_GOOD.flags | 16),
        "the topmost flag": _changed(flags=_GOOD.flags | 128),
        "columns of four and of eight bits": _changed(flags=_GOOD.flags | 8),
        "rows of 63": _zeros(row_length=63, rows=bytes(5)),
        "rows of none": _zeros(row_length=0),
        "rows that no chunk has": _zeros(row_length=262_145, rows=bytes(1)),
        "a first column behind the last": _changed(first_column=_ROW),
        "bits behind the last class": _changed(classes=_or(_GOOD.classes, -1, 0x40)),
        "bits behind the last column": _changed(columns=_or(_GOOD.columns, -1, 0x10)),
        "bytes behind rows of zeros": _zeros(behind=b"\0"),
        "bytes behind the values": _changed(behind=b"\0"),
        "values of a class that is not there": _changed(
            values=replace(_GOOD.values, plans=[*_PLANS[:-1], (0, 3)]) if _GOOD.values else None
        ),
    },
}


def rejected_factored() -> Iterator[tuple[str, str, FactoredCase]]:
    for fault, cases in REJECTED_FACTORED.items():
        for name, case in cases.items():
            yield fault, name, case
