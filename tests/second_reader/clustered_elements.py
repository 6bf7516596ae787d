"""src/codec/clustered/spec.md: numbers of clusters as labels and codes."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from second_reader.reader_errors import Truncated, require

_HEADER = struct.Struct("<BBI")
_MOST_WITH_FOUR_BITS = 16
_LAST_CODE = 255


def read_clustered(payload: bytes, elements: int) -> bytes:
    if len(payload) < _HEADER.size:
        raise Truncated(f"clustered payload of {len(payload)} bytes")
    bits, last_cluster, exception_count = _HEADER.unpack_from(payload)
    clusters = last_cluster + 1
    require(bits in (4, 8), f"clustered: labels of {bits} bits")
    require(bits == 8 or clusters <= _MOST_WITH_FOUR_BITS, f"clustered: {clusters} clusters with labels of 4 bits")
    require(exception_count <= elements, f"clustered: {exception_count} exceptions among {elements} elements")
    sizes = (8 * clusters, 4 * exception_count, 4 * exception_count, (elements * bits + 7) // 8, elements)
    size = _HEADER.size + sum(sizes)
    if len(payload) < size:
        raise Truncated(f"clustered payload of {len(payload)} bytes, expected {size}")
    require(len(payload) == size, f"clustered payload of {len(payload)} bytes, expected {size}")
    parts = []
    offset = _HEADER.size
    for part in sizes:
        parts.append(payload[offset : offset + part])
        offset += part
    table, places, exceptions, labels, codes = parts
    words = _numbers(table, _labels(labels, bits, elements), np.frombuffer(codes, np.uint8))
    where = np.frombuffer(places, "<u4").astype(np.int64)
    require(bool((np.diff(where, prepend=-1) > 0).all()), "clustered: exceptions out of order")
    require(not len(where) or int(where[-1]) < elements, "clustered: an exception behind the last element")
    words[where] = np.frombuffer(exceptions, "<u4")
    return words.tobytes()


def _labels(labels: bytes, bits: int, elements: int) -> npt.NDArray[np.uint8]:
    found = np.frombuffer(labels, np.uint8)
    if bits == 8:
        return found
    found = np.stack((found & 15, found >> 4), axis=1).reshape(-1)
    require(not found[elements:].any(), "clustered: bits behind the last label")
    return found[:elements]


def _numbers(table: bytes, labels: npt.NDArray[np.uint8], codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    ends = np.frombuffer(table, "<f4")
    require(bool(np.isfinite(ends).all()), "clustered: a cluster without an end")
    bits = ends.view("<u4").astype(np.int64)
    steps = np.diff(np.where(bits >> 31, 0x7FFF_FFFF - bits, bits))
    require(bool((steps[::2] >= 0).all() and (steps[1::2] > 0).all()), "clustered: clusters out of order")
    require(int(labels.max()) < len(ends) // 2, f"clustered: a label of {int(labels.max())}")
    least, greatest = ends.reshape(-1, 2).T[:, labels]
    ranges = greatest.astype(np.float64) - least.astype(np.float64)
    scales = np.where(ranges > 0, ranges / 255, 1.0)
    with np.errstate(all="ignore"):
        inner = (least.astype(np.float64) + scales * codes).astype("<f4")
    numbers = np.where(codes == 0, least, np.where(codes == _LAST_CODE, greatest, inner))
    words: npt.NDArray[np.uint32] = numbers.astype("<f4").view("<u4").copy()
    return words
