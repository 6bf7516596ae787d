"""Measures methods on one sample: in rounds, each of which runs every method, in random order; medians.

Whatever else the machine does meanwhile so meets all of them alike. Fast methods get several turns a round: a few
milliseconds by themselves say little. Every decoding is compared with the sample.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.peers.peer import Bytes, Method, Sample

_MOST_TURNS = 5


class WrongBytesError(Exception):
    """Decoding what was encoded gave other bytes."""


@dataclass(frozen=True)
class Timing:
    """Of one method on some threads: sizes in bytes, medians in seconds over the rounds."""

    raw_bytes: int
    encoded_bytes: int
    encode_s: float
    decode_s: float
    runs: int


def turns_in(share_s: float, once_s: float) -> int:
    """How often a method of that speed runs in a round."""
    return max(1, min(_MOST_TURNS, int(share_s / max(once_s, 1e-9))))


def same_bytes(one: Bytes, other: Bytes) -> bool:
    whole = one.size // 8 * 8  # eight at a time, as this is done after each decoding
    return np.array_equal(one[:whole].view(np.uint64), other[:whole].view(np.uint64)) and np.array_equal(
        one[whole:], other[whole:]
    )


def run_once(method: Method, sample: Sample, threads: int, out: Bytes) -> tuple[int, float, float]:
    """The payload's size and the seconds of encoding and decoding; WrongBytesError unless `out` is the sample then."""
    out[::64] = ~sample.data[::64]  # what was decoded before must not pass for this decoding's work
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
    """By method and threads. A first round, which warms memory and caches up, counts for slow methods only.

    In each further round a method gets as many turns as `share_s` has room for, at least one. What goes wrong in a
    method of others is put down in `failures`, and the method left out; in bitsnap's own it is raised.
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
