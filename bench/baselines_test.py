"""Every method that this machine has, on samples of an odd size; and methods that are missing."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

from bench.baselines import find_methods
from bench.baselines.method import Method, Sample
from bench.interleaved_runs import run_once

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # from third-party packages
    METHODS, LEFT_OUT = find_methods()

ELEMENTS = (1 << 18) + 12_345


def sample_of(dtype: str) -> Sample:
    """Normally distributed numbers, all 16-bit patterns among them, and a base that differs slightly."""
    random = np.random.default_rng(1)
    values = random.normal(0, 0.02, ELEMENTS).astype(np.float32)
    if dtype == "F32":
        bits = values.view(np.uint32)
    elif dtype == "F16":
        bits = values.astype(np.float16).view(np.uint16)
    else:
        bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    bits = bits.copy()
    bits[: 1 << 16] = np.arange(1 << 16) << (16 if dtype == "F32" else 0)
    base = bits.copy()
    base[::7] += 1
    base[3::11] ^= 5
    return Sample("weight" if dtype != "F32" else "master", dtype, bits.view(np.uint8), base.view(np.uint8))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_decoding_restores_the_sample_and_leaves_it_unchanged(method: Method, dtype: str) -> None:
    sample = sample_of(dtype)
    if not method.accepts(sample):
        pytest.skip(f"{method.name} does not take {dtype}")
    before = sample.data.copy()
    sizes = {run_once(method, sample, threads, np.zeros_like(sample.data))[0] for threads in (1, 2, 1)}
    method.release()
    assert len(sizes) == 1
    assert np.array_equal(sample.data, before)


def test_methods_with_a_base_reject_samples_without_one() -> None:
    alone = Sample("weight", "BF16", np.zeros(64, np.uint8))
    assert not any(method.accepts(alone) for method in METHODS if method.uses_base)


def test_names_are_unique_and_every_baseline_is_found_or_left_out_with_a_reason() -> None:
    names = [method.name for method in METHODS]
    assert len(set(names)) == len(names)
    assert all(LEFT_OUT.values())
    for baseline in ("zipnn", "openzl", "blosc2", "pcodec", "trl_sparse", "safetensors", "torch_save", "xz", "native"):
        word = {"trl_sparse": "trl-sparse", "torch_save": "torch.save", "native": "memcpy"}.get(baseline, baseline)
        assert baseline in LEFT_OUT or any(name.startswith(word) for name in names)


def test_a_baseline_that_fails_to_import_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pcodec", None)
    monkeypatch.delitem(sys.modules, "bench.baselines.pcodec_baseline", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        methods, left_out = find_methods()
    assert "pcodec" in left_out["pcodec"]
    assert not any(method.name.startswith("pcodec") for method in methods)
