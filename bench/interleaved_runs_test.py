"""Interleaved measurements of fake methods: detected mistakes and counted runs."""

from __future__ import annotations

import numpy as np
import pytest

from bench.baselines.method import Bytes, Method, Payload, Sample
from bench.interleaved_runs import WrongBytesError, measure, run_once, turns_in


class Copying(Method):
    name = "copying"

    def __init__(self) -> None:
        self.log: list[tuple[str, int, int]] = []

    def encode(self, sample: Sample, threads: int) -> Payload:
        self.log.append((self.name, threads, sample.data.size))
        return Payload(sample.data.size // 2, sample.data.copy())

    def decode(self, sample: Sample, payload: Payload, threads: int, out: Bytes) -> None:
        out[:] = payload.body


class DoingNothing(Copying):
    name = "doing nothing"

    def decode(self, sample: Sample, payload: Payload, threads: int, out: Bytes) -> None:
        pass


class LosingOneBit(Copying):
    name = "losing one bit"

    def decode(self, sample: Sample, payload: Payload, threads: int, out: Bytes) -> None:
        out[:] = payload.body
        out[-1] ^= 1


class Growing(Copying):
    name = "growing"

    def encode(self, sample: Sample, threads: int) -> Payload:
        made = super().encode(sample, threads)
        return Payload(made.size_bytes + len(self.log), made.body)


class Slow(Copying):
    name = "slow"
    is_slow = True


class NeedingABase(Copying):
    name = "needing a base"
    uses_base = True


def sample_of(size: int) -> Sample:
    return Sample("weight", "BF16", np.arange(size, dtype=np.uint32).astype(np.uint8))


def test_a_decoder_that_writes_nothing_is_detected() -> None:
    sample = sample_of(1000)
    out = sample.data.copy()
    with pytest.raises(WrongBytesError, match="doing nothing on weight"):
        run_once(DoingNothing(), sample, 1, out)


def test_one_wrong_bit_is_detected() -> None:
    sample = sample_of(1000)
    with pytest.raises(WrongBytesError, match="first at 999"):
        run_once(LosingOneBit(), sample, 1, np.zeros_like(sample.data))


def test_sizes_that_differ_between_rounds_are_detected() -> None:
    with pytest.raises(WrongBytesError, match="bytes, and"):
        measure([Growing()], sample_of(100), sample_of(10), threads=[1], rounds=2, seed=1, share_s=0)


def test_a_failing_baseline_is_left_out_and_a_failure_of_bitsnap_ends_the_run() -> None:
    failures: dict[str, str] = {}
    timings = measure(
        [LosingOneBit(), Copying()],
        sample_of(100),
        sample_of(10),
        threads=[1, 2],
        rounds=2,
        seed=1,
        share_s=0,
        failures=failures,
    )
    assert set(timings) == {("copying", 1), ("copying", 2)}
    assert list(failures) == ["losing one bit"]
    assert "first at 99" in failures["losing one bit"]
    own = LosingOneBit()
    own.kind = "ours"
    with pytest.raises(WrongBytesError):
        measure([own], sample_of(100), sample_of(10), threads=[1], rounds=1, seed=1, failures={})


def test_fast_methods_run_once_per_round_and_once_to_warm_up() -> None:
    method = Copying()
    timings = measure([method], sample_of(100), sample_of(10), threads=[1, 2], rounds=3, seed=1, share_s=0)
    assert sorted(method.log) == [("copying", 1, 100)] * 4 + [("copying", 2, 100)] * 4
    assert timings["copying", 2].runs == 3
    assert timings["copying", 2].encoded_bytes == 50


def test_faster_methods_run_more_often_within_limits() -> None:
    assert [turns_in(0.05, once_s) for once_s in (1.0, 0.05, 0.02, 1e-9, 0.0)] == [1, 1, 2, 5, 5]
    method = Copying()
    timings = measure([method], sample_of(100), sample_of(10), threads=[1], rounds=2, seed=1, share_s=10)
    assert timings["copying", 1].runs == 10


def test_slow_methods_run_once_on_their_smaller_sample() -> None:
    method = Slow()
    timings = measure([method], sample_of(100), sample_of(10), threads=[1], rounds=3, seed=1, share_s=0)
    assert method.log == [("slow", 1, 10)]
    assert (timings["slow", 1].raw_bytes, timings["slow", 1].runs) == (10, 1)


def test_methods_with_a_base_are_left_out_without_one() -> None:
    timings = measure(
        [NeedingABase(), Copying()], sample_of(100), sample_of(10), threads=[1], rounds=1, seed=1, share_s=0
    )
    assert list(timings) == [("copying", 1)]


def test_the_order_differs_between_rounds() -> None:
    log: list[tuple[str, int, int]] = []
    methods: list[Method] = []
    for number in range(6):
        method = Copying()
        method.name = f"method {number}"
        method.log = log
        methods.append(method)
    measure(methods, sample_of(100), sample_of(10), threads=[1], rounds=4, seed=1, share_s=0)
    names = [name for name, _, _ in log]
    rounds = [tuple(names[begin : begin + 6]) for begin in range(0, len(names), 6)]
    assert {tuple(sorted(one)) for one in rounds} == {tuple(f"method {number}" for number in range(6))}
    assert len(set(rounds)) > 1
