"""The measured methods of bitsnap and its baselines: one optional module each, behind one interface (method.py)."""

from __future__ import annotations

import importlib

from bench.baselines.method import Method

_MODULES = (
    "native_baselines",
    "xz_baseline",
    "zipnn_baseline",
    "openzl_baseline",
    "blosc2_baseline",
    "pcodec_baseline",
    "trl_sparse_baseline",
    "reference_baselines",
)


def find_methods() -> tuple[list[Method], dict[str, str]]:
    """Returns all methods that this machine has, and the reasons why others are left out."""
    methods: list[Method] = []
    left_out: dict[str, str] = {}
    for module in _MODULES:
        try:
            found, missing = importlib.import_module(f"bench.baselines.{module}").methods()
        except Exception as error:  # importing a third-party package can fail in any way
            left_out[module.removesuffix("_baseline").removesuffix("_baselines")] = str(error) or type(error).__name__
            continue
        methods += found
        left_out |= missing
    return methods, left_out
