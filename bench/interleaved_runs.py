"""Measures methods on one sample: in rounds, each of which runs every method once, in random order; medians.

Whatever else the machine does meanwhile so meets all of them alike. Every decoding is compared with the sample.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.peers.peer import Bytes, Method, Sample


class WrongBytesError(Exception):
    """Decoding what was encoded gave other bytes."""


@dataclass(frozen=True)
class Timing:
    """Of one method on some threads: sizes in bytes, medians in seconds over the rounds."""

    raw_bytes: int
    encoded_bytes: int
    encode_s: float
    decode_s: float
    rounds: int


def run_once(method: Method, sample: Sample, threads: int, out: Bytes) -> tuple[int, float, float]:
    """The payload's size and the seconds of encoding and decoding; WrongBytesError unless `out` is the sample then."""
    out[::64] = ~sample.data[::64]  # what was decoded before must not pass for this decoding's work
    method.prepare(sample)
    start = time.perf_counter()
    payload = method.encode(sample, threads)
    encoded = time.perf_counter()
    method.decode(sample, payload, threads, out)
    decoded = time.perf_counter()
    if not np.array_equal(out, sample.data):
        differing = int((out != sample.data).argmax())
        raise WrongBytesError(f"{method.name} on {sample.role}: decoding gives other bytes, first at {differing}")
    return payload.size_bytes, encoded - start, decoded - encoded


def measure(
    methods: Sequence[Method],
    fast: Sample,
    slow: Sample,
    *,
    threads: Sequence[int],
    rounds: int,
    seed: int,
    on_start: Callable[[Method], None] = lambda _: None,
) -> dict[tuple[str, int], Timing]:
    """By method and threads. A first round, which warms memory and caches up, counts for slow methods only."""
    order = random.Random(seed)
    tasks = [(method, count) for method in methods if method.accepts(fast) for count in threads]
    sizes: dict[tuple[str, int], int] = {}
    times: dict[tuple[str, int], list[tuple[float, float]]] = {}
    out_of = {id(sample): np.zeros_like(sample.data) for sample in (fast, slow)}
    for number in range(rounds + 1):
        order.shuffle(tasks)
        for method, count in tasks:
            if number > 0 and method.is_slow:
                continue
            on_start(method)
            sample = slow if method.is_slow else fast
            key = (method.name, count)
            size, encode_s, decode_s = run_once(method, sample, count, out_of[id(sample)])
            if sizes.setdefault(key, size) != size:
                raise WrongBytesError(f"{method.name} on {sample.role}: {size} bytes, and {sizes[key]} before")
            if number > 0 or method.is_slow:
                times.setdefault(key, []).append((encode_s, decode_s))
    for method in methods:
        method.release()
    return {
        (method.name, count): Timing(
            raw_bytes=(slow if method.is_slow else fast).data.size,
            encoded_bytes=sizes[method.name, count],
            encode_s=statistics.median(encode for encode, _ in times[method.name, count]),
            decode_s=statistics.median(decode for _, decode in times[method.name, count]),
            rounds=len(times[method.name, count]),
        )
        for method, count in tasks
    }
