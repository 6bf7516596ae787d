"""Measures methods on one sample: in rounds, each of which runs every method in random order; reports medians.

So other load on the machine slows all methods alike. Fast methods run several times per round, because a few
milliseconds are too short to measure. Every decoded result is compared with the sample.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.baselines.method import Bytes, Method, Sample

_MOST_TURNS = 5


class WrongBytesError(Exception):
    """Decoding gave other bytes than were encoded."""


@dataclass(frozen=True)
class Timing:
    """One method with one number of threads: sizes in bytes, medians over the rounds in seconds."""

    raw_bytes: int
    encoded_bytes: int
    encode_s: float
    decode_s: float
    runs: int


def turns_in(share_s: float, once_s: float) -> int:
    """How often a method that takes `once_s` runs in a round."""
    return max(1, min(_MOST_TURNS, int(share_s / max(once_s, 1e-9))))


def same_bytes(one: Bytes, other: Bytes) -> bool:
    whole = one.size // 8 * 8  # eight bytes at a time, because this runs after each decoding
    return np.array_equal(one[:whole].view(np.uint64), other[:whole].view(np.uint64)) and np.array_equal(
        one[whole:], other[whole:]
    )


def run_once(method: Method, sample: Sample, threads: int, out: Bytes) -> tuple[int, float, float]:
    """Returns payload size, seconds of encoding and of decoding; WrongBytesError if `out` differs from the sample."""
    out[::64] = ~sample.data[::64]  # earlier results must not pass for this one
    method.prepare(sample)
    start = time.perf_counter()
    payload = method.encode(sample, threads)
    encoded = time.perf_counter()
    method.decode(sample, payload, threads, out)
    decoded = time.perf_counter()
    if not same_bytes(out, sample.data):
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
    share_s: float = 0.05,
    failures: dict[str, str] | None = None,
) -> dict[tuple[str, int], Timing]:
    """Returns timings by method and number of threads.

    The first round warms up memory and caches, and counts for slow methods only. In each further round a method runs
    as often as fits in `share_s`, at least once. An exception in a baseline is noted in `failures` and leaves the
    baseline out; an exception in one of bitsnap's methods is raised.
    """
    order = random.Random(seed)
    kept = [(method, count) for method in methods if method.accepts(fast) for count in threads]
    tasks = list(kept)
    sizes: dict[tuple[str, int], int] = {}
    times: dict[tuple[str, int], list[tuple[float, float]]] = {}
    turns: dict[tuple[str, int], int] = {}
    failed: dict[str, str] = {}
    out_of = {id(sample): np.zeros_like(sample.data) for sample in (fast, slow)}
    for number in range(rounds + 1):
        order.shuffle(tasks)
        for method, count in tasks:
            if method.name in failed:
                continue
            sample = slow if method.is_slow else fast
            key = (method.name, count)
            try:
                size, encode_s, decode_s = run_once(method, sample, count, out_of[id(sample)])
                if sizes.setdefault(key, size) != size:
                    raise WrongBytesError(f"{method.name} on {sample.role}: {size} bytes, and {sizes[key]} before")
            except Exception as error:
                if failures is None or method.kind in {"ours", "paper", "ceiling"}:
                    raise
                failed[method.name] = str(error) or type(error).__name__
                continue
            if number > 0 or method.is_slow:
                times.setdefault(key, []).append((encode_s, decode_s))
            else:
                turns[key] = turns_in(share_s, encode_s + decode_s)
        if number == 0:
            tasks = [
                (method, count)
                for method, count in kept
                if not method.is_slow and method.name not in failed
                for _ in range(turns[method.name, count])
            ]
    for method in methods:
        method.release()
    if failures is not None:
        failures |= failed
    return {
        (method.name, count): Timing(
            raw_bytes=(slow if method.is_slow else fast).data.size,
            encoded_bytes=sizes[method.name, count],
            encode_s=statistics.median(encode for encode, _ in times[method.name, count]),
            decode_s=statistics.median(decode for _, decode in times[method.name, count]),
            runs=len(times[method.name, count]),
        )
        for method, count in kept
        if method.name not in failed
    }
