"""The states of the golden snapshots, which make_snapshot_golden.py writes. A golden file takes less than 20 KB."""

from __future__ import annotations

import argparse
import json
import math
import re
import signal
import ssl
import struct
from collections import Counter, OrderedDict, defaultdict
from datetime import UTC, date, datetime, time, timedelta, timezone
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import torch

# All known dtypes, then opaque ones.
_DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64),
    *(torch.int64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32),
    *(torch.float64, torch.complex64),
    *(torch.complex32, torch.complex128, torch.float8_e4m3fnuz, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2),
]
_STREAM_BYTES = 4096  # smaller tensors are in the pool


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _of_bytes(data: np.ndarray[Any, Any], dtype: torch.dtype, shape: list[int] | None = None) -> torch.Tensor:
    flat = torch.frombuffer(bytearray(data.tobytes()), dtype=torch.uint8)
    return flat.view(dtype).reshape(shape or [-1])


def _few_patterns(dtype: torch.dtype, elements: int, seed: int) -> torch.Tensor:
    """Random elements with four bit patterns."""
    generator = _generator(seed)
    patterns = generator.integers(0, 2 if dtype == torch.bool else 256, (4, dtype.itemsize), np.uint8)
    return _of_bytes(patterns[generator.integers(0, 4, elements)], dtype)


def empty() -> dict[str, Any]:
    return {}


def scalars() -> dict[str, Any]:
    """Tensors that share the pool, tensors of no elements, and numbers of numpy."""
    state: dict[str, Any] = {
        str(dtype).removeprefix("torch."): _few_patterns(dtype, 1 if i % 2 else 5, i) for i, dtype in enumerate(_DTYPES)
    }
    state["step"] = torch.tensor(120.0)
    state["no_elements"] = torch.empty(3, 0, 2, dtype=torch.bfloat16)
    state["array"] = np.arange(12, dtype=np.int16).reshape(3, 4)
    state["no_dimensions"] = np.array(7, np.uint64)
    state["numpy"] = [np.float32(0.1), np.float64(-0.0), np.int64(-(2**63)), np.bool_(True), np.complex64(1 - 2j)]
    return state


def dtypes() -> dict[str, Any]:
    """One stream for each dtype."""
    return {
        str(dtype).removeprefix("torch."): _few_patterns(dtype, _STREAM_BYTES // dtype.itemsize, 100 + i)
        for i, dtype in enumerate(_DTYPES)
    }


def tied() -> dict[str, Any]:
    """Tied tensors, in a stream and in the pool."""
    weight = _few_patterns(torch.bfloat16, 4096, 7).reshape(64, 64)
    bias = torch.arange(16, dtype=torch.float32)
    return {"wte": weight, "lm_head": weight, "bias": bias, "again": bias, "array": np.arange(3)}


def _other_nans() -> tuple[float, ...]:
    return struct.unpack("<2d", bytes.fromhex("010000000000f87f0f0000000000f8ff"))


def tree() -> dict[str, Any]:
    """Each kind of value of a typed tree, at the ends of its range."""
    return {
        "none": None,
        "booleans": [True, False],
        "strings": ["", "plain", 'quotes " \\ and \x00\x1f\x7f', "ä€𝄞", "\u2028\ufeff\uffff"],
        "integers": [0, -1, 2**53 - 1, -(2**53) + 1, 2**53, -(2**53), 2**64, -(2**127), 10**300],
        "doubles": [0.0, -0.0, 0.1, 1.0, 1e22, 1e-08, 5e-324, 1.7976931348623157e308, -math.pi, 2.0**53],
        "not finite": [math.inf, -math.inf, math.nan, *_other_nans()],
        "complex": [1 + 2j, complex(-0.0, 0.1), complex(math.inf, math.nan)],
        "bytes": [b"", b"\x00", b"\xff\xfe", bytes(range(256))],
        "nested": [[], [[]], (), ((), []), {}, {"a": {"b": [{}]}}, (1, "two", 3.0)],
        "keys": {
            None: 1, True: 2, 7: 3, -0.5: 4, "": 5, "7": 6, b"7": 7, (): 8, (1, ("a", None), b"x"): 9, 2**70: 10,
            math.inf: 11,
        },
        "order": {"z": 1, "a": 2, "m": 3},
        "rng": (3, tuple(range(20)), None),
    }  # fmt: skip


def typed() -> dict[str, Any]:
    """Each type that a typed value can have, as docs/spec/typed_tree.md lists them."""
    ordered = OrderedDict(b=torch.arange(3), a=[OrderedDict()])
    ordered._metadata = OrderedDict({"": {"version": 2}})  # type: ignore[attr-defined]
    offset = timezone(timedelta(hours=-3, minutes=-30))
    return {
        "ordered": OrderedDict({2: 1, 1: None}),
        "state dict": ordered,
        "defaults": [defaultdict(None), defaultdict(list, a=[1]), defaultdict(int, {(1, "x"): 2})],
        "counter": Counter({"a": 2, 7: -1}),
        "namespace": argparse.Namespace(lr=0.1, nested=argparse.Namespace(names=["a"]), weight=torch.ones(2)),
        "sets": [set(), {"b", "a", "c"}, {3, 1, 2}, frozenset({(2, "x"), (1, "y")}), {frozenset({1})}],
        "sizes": [torch.Size([]), torch.Size([3, 0, 2**40])],
        "dtypes": [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.complex64],
        "devices": [torch.device("cpu"), torch.device("cuda", 1), torch.device("meta")],
        "paths": [PurePosixPath("/a/ä"), PurePosixPath(), PureWindowsPath("c:\\x"), Path("run/step-1")],
        "times": [
            date(1, 1, 1), time(23, 59, 59, 999999), time(1, tzinfo=UTC, fold=1), datetime(2026, 2, 28, 12),
            datetime(9999, 12, 31, 23, 59, 59, 999999, offset, fold=1), timedelta(-1, 5, 7), UTC, offset,
            timezone(timedelta(hours=1), "CET"), timezone(timedelta(0), "GMT"),
        ],
        "members": [signal.SIGTERM, ssl.TLSVersion.TLSv1_3, re.IGNORECASE],
        "keys": {torch.float16: 1, PurePosixPath("k"): 2, signal.SIGINT: 3, frozenset({1, 2}): 4},
        "tuples as keys": {(date(2026, 1, 2), torch.device("cpu")): 5},
    }  # fmt: skip


def long_constant() -> dict[str, Any]:
    """Streams of several chunks that take a few bytes each; the base of `long_changed`."""
    return {
        "ones": torch.ones(600_001, dtype=torch.bfloat16),
        "kept": torch.full((262_144, 2), 0.5, dtype=torch.float32),
        "exp_avg_sq": torch.zeros(262_145, dtype=torch.float32),
    }


def long_changed() -> dict[str, Any]:
    state = long_constant()
    state["ones"][[5, 300_000, 300_001, 600_000]] = torch.tensor([2.0, -1.0, math.nan, 0.0], dtype=torch.bfloat16)
    state["exp_avg_sq"][262_144] = 1e-9
    return state


def training(step: int) -> dict[str, Any]:
    """A small training's state; from one step to the next few bf16 weights and all moments change."""
    generator = _generator(500)
    masters = (generator.standard_normal(2048) * 0.02).astype(np.float32)
    moments = (generator.standard_normal(1024) * 1e-4).astype(np.float32)
    for i in range(step):
        masters += (_generator(600 + i).standard_normal(2048) * 3e-6).astype(np.float32)
        moments[:128] *= np.float32(0.9)
    exponents = np.repeat(np.arange(2.0**-10, 2.0**-9, 2.0**-18, dtype=np.float32), 4)[:1024]
    return {
        "model": {"weight": torch.from_numpy(masters).to(torch.bfloat16).reshape(32, 64)},
        "optimizer": {
            "state": {0: {"exp_avg": torch.from_numpy(moments), "exp_avg_sq": torch.from_numpy(exponents * (1 + step))}}
        },
        "ids": torch.arange(1024, dtype=torch.int32),
        "step": step,
    }


def moved(step: int) -> dict[str, Any]:
    """Floats whose elements move by some ULPs: all of the first two tensors, few of the others, and some very far.

    In the second step the smallest weights are replaced by others of their size, which their bases do not predict.
    """
    weight = (_generator(700).standard_normal(4096) * 0.02).astype(np.float32)
    master = (_generator(701).standard_normal(3072) * 0.02).astype(np.float32)
    pattern = (_generator(702).standard_normal(64) * 0.02).astype(np.float32)
    f32, f16, f8 = np.tile(pattern, 32), np.tile(pattern, 64), np.tile(pattern * 64, 128)
    for i in range(step):
        generator = _generator(710 + i)
        weight *= 1 + (generator.standard_normal(4096) * 0.01).astype(np.float32)
        if i == 1:
            small = np.abs(weight) < 0.008
            weight[small] = (generator.standard_normal(int(small.sum())) * 0.004).astype(np.float32)
        master *= 1 + (generator.standard_normal(3072) * 0.001).astype(np.float32)
        master[77 * (i + 1)] = 2.0 + i
        for few in (f32, f16, f8):
            few[generator.integers(0, len(few), len(few) // 100)] *= np.float32(1.01)
    return {
        "weight": torch.from_numpy(weight).to(torch.bfloat16),
        "master": torch.from_numpy(master),
        "f32": torch.from_numpy(f32),
        "f16": torch.from_numpy(f16).to(torch.float16),
        "f8": torch.from_numpy(f8).to(torch.float8_e4m3fn),
    }


def moments() -> dict[str, Any]:
    """Matrices whose rows and columns have scales of their own, with and without signs; some rows are 0."""
    generator = _generator(800)
    scales = np.exp2(generator.normal(0, 2, (24, 1)) + generator.normal(0, 2, 96)) * 1e-3
    scales[[0, 7]] = 0
    normal = generator.standard_normal((24, 96))
    return {
        "exp_avg": torch.from_numpy(scales * normal).to(torch.float32),
        "exp_avg_sq": torch.from_numpy(scales * normal**2).to(torch.float32),
        "flat": {"exp_avg_sq": torch.from_numpy((scales * normal**2).reshape(-1)[200:]).to(torch.bfloat16)},
    }


def decayed(step: int) -> dict[str, Any]:
    """Second moments with two decays. Squares of gradients are added to most elements."""
    sizes = np.exp(_generator(720).standard_normal(2048)).astype(np.float32) * np.float32(1e-4)
    state = {}
    for name, beta in (("fast", np.float32(0.95)), ("slow", np.float32(0.999))):
        moments = sizes * sizes
        for i in range(step):
            gradients = sizes * _generator(730 + i).standard_normal(2048).astype(np.float32)
            gradients[::40] = 0
            moments = moments * beta + (np.float32(1) - beta) * gradients * gradients
        state[name] = torch.from_numpy(moments)
    return {"optimizer": {"state": {0: {"exp_avg_sq": state["fast"]}, 1: {"exp_avg_sq": state["slow"]}}}}


def short_gradients(step: int) -> dict[str, Any]:
    """A first moment and a momentum to which gradients of bf16, clipped by one factor, are added as torch does."""
    moments = _generator(760).standard_normal((2, 2048)).astype(np.float32) * np.float32(1e-3)
    first, momentum = torch.from_numpy(moments).unbind()
    for i in range(step):
        drawn = _generator(770 + i).standard_normal((2, 2048)).astype(np.float32) * np.float32(1e-3)
        gradients = torch.from_numpy(drawn).to(torch.bfloat16).float() * 0.3556
        first = first.lerp(gradients[0], 0.1)
        momentum = momentum * 0.9 + gradients[1]
    return {"optimizer": {"state": {0: {"exp_avg": first}, 1: {"momentum_buffer": momentum}}}}


def rounded(step: int) -> dict[str, Any]:
    """Weights before and after their masters, with NaNs, and with some that were not rounded to nearest."""
    generator = _generator(900)
    masters = {name: generator.standard_normal(2050).astype(np.float32) * np.float32(0.02) for name in ("a", "b")}
    for values in masters.values():
        values += np.float32(step * 1e-6) * generator.standard_normal(2050).astype(np.float32)
    masters["b"][::700] = np.nan
    masters["b"][1::700] = np.inf
    tensors = {name: torch.from_numpy(values) for name, values in masters.items()}
    odd = tensors["a"].to(torch.bfloat16)
    odd[7::500] *= 1.01
    return {
        "model": {"a": tensors["a"].to(torch.bfloat16), "b": tensors["b"].to(torch.float16)},
        "master": tensors,
        "late": {"a": odd},
    }


def stepped(step: int) -> dict[str, Any]:
    """A tensor after one step of AdamW, with numbers in the middle that no step makes."""
    generator = _generator(950)
    single = np.float32
    master, moment, gradient = (generator.standard_normal(1100).astype(single) for _ in range(3))
    master, moment = master * single(0.02), moment * single(1e-4)
    square = moment * moment * single(3)
    if step:
        gradient *= single(3e-4)
        moment += single(0.1) * (gradient - moment)
        square = square * single(0.95) + single(0.05) * gradient * gradient
        master = master * single(0.99999) - single(1e-4) * moment / (np.sqrt(square) + single(1e-8))
        square[500:503] = [0, np.inf, np.nan]
        master[500:503] = [-0.0, -np.inf, 1]
    tensors = {"master": master, "exp_avg": moment, "exp_avg_sq": square}
    return {name: {"w": torch.from_numpy(values)} for name, values in tensors.items()}


def safetensors_file() -> bytes:
    """A layout that bitsnap never writes: padding, metadata, data in another order than the names."""
    values = _generator(9).integers(0, 4, 6000, np.uint8).tobytes()
    header = {
        "__metadata__": {"format": "pt", "ü": "\u0001"},
        "b.weight": {"dtype": "BF16", "shape": [50, 50], "data_offsets": [1000, 6000]},
        "empty": {"dtype": "F32", "shape": [0, 4], "data_offsets": [1000, 1000]},
        "a.bias": {"dtype": "F8_E8M0", "shape": [1000], "data_offsets": [0, 1000]},
    }
    text = json.dumps(header, indent=1).encode()
    text += b" " * (-len(text) % 8 + 16)
    return struct.pack("<Q", len(text)) + text + values
