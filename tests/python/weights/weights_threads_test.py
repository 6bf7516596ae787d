"""Patches and threads: their number changes no byte, one patch is for many, and other threads of Python go on."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import bitsnap
from python.weights.moving_weights import all_bits, copy_of, versions


def test_the_number_of_threads_changes_no_byte() -> None:
    old, new = versions(2)
    made = {bitsnap.make_patch(new, old, hash_unchanged=True, threads=threads) for threads in (0, 1, 2, 7)}
    assert len(made) == 1
    (patch,) = made
    third = versions(3)[2]
    following = bitsnap.make_patch(third, new)
    assert len({bitsnap.fold_patches([patch, following], old, threads=threads) for threads in (1, 2)}) == 1
    for threads in (1, 2, 7):
        engine = copy_of(old)
        bitsnap.apply_patch(engine, patch, threads=threads)
        assert all_bits(engine) == all_bits(new)
        staged = bitsnap.Patch(bitsnap.make_patch(old, new)).stage(engine, threads=threads)
        staged.apply(threads=threads)
        assert all_bits(engine) == all_bits(old)


def test_one_patch_is_used_by_many_threads_at_a_time() -> None:
    old, new = versions(2)
    patch = bitsnap.Patch(bitsnap.make_patch(new, old))
    other = copy_of(old)
    other["norm"].zero_()
    expected, result = all_bits(old), all_bits(new)

    def use(number: int) -> None:
        engine = copy_of(old)
        assert patch.state_of(engine) == "applicable"
        if number % 3 == 0:
            with pytest.raises(bitsnap.InvalidArgumentError):
                patch.stage(other)
        staged = patch.stage(engine, threads=1 + number % 2)
        assert all_bits(engine) == expected
        assert staged.changes("norm")[0].size > 0
        staged.apply()
        assert all_bits(engine) == result
        assert patch.state_of(engine) == "applied"
        assert patch.tensors["norm"] == ("F32", (300,))

    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(use, range(24)):
            pass


def test_what_is_staged_keeps_the_memory_of_the_weights() -> None:
    old, new = versions(2)
    patch = bitsnap.Patch(bitsnap.make_patch(new, old))
    staged = patch.stage(copy_of(old))
    del patch
    gc.collect()
    others = [torch.ones_like(each) for each in old.values()]
    staged.apply()
    assert all(bool((each == 1).all()) for each in others)


def longest_pause(work: Callable[[], object]) -> tuple[float, float]:
    """The longest time in which this thread got no turn while another did the work; and the time of the work."""
    done = threading.Event()

    def run() -> None:
        work()
        done.set()

    worker = threading.Thread(target=run)
    start = last = time.perf_counter()
    worker.start()
    longest = 0.0
    while not done.is_set():
        time.sleep(0.0005)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    worker.join()
    return longest, last - start


@pytest.mark.slow
def test_other_threads_go_on_meanwhile() -> None:
    rng = np.random.default_rng(1)
    old = {f"w{i}": torch.from_numpy(rng.integers(0, 1 << 15, 30_000_000, np.int16)) for i in range(4)}
    new = {name: each ^ (torch.rand(each.shape) < 0.02).to(torch.int16) for name, each in old.items()}
    made: list[bytes] = []
    works: list[Callable[[], object]] = [
        lambda: made.append(bitsnap.make_patch(new, old, threads=1)),
        lambda: bitsnap.Patch(made[0]).state_of(old, threads=1),
        lambda: bitsnap.apply_patch(old, made[0], threads=1),
    ]
    for work in works:
        pauses = longest_pause(work)
        assert pauses[0] < 0.5 * pauses[1], pauses
    assert all_bits(old) == all_bits(new)
