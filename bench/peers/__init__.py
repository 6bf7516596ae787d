"""What is measured, bitsnap's methods and the peers': one file each behind one interface (peer.py), each optional."""

from __future__ import annotations

import importlib

from bench.peers.peer import Method

_MODULES = (
    "native_peers",
    "xz_peer",
    "zipnn_peer",
    "openzl_peer",
    "blosc2_peer",
    "pcodec_peer",
    "trl_sparse_peer",
    "safetensors_peer",
    "torch_save_peer",
)


def find_methods() -> tuple[list[Method], dict[str, str]]:
    """All methods that this machine has, and what is left out with the reason."""
    methods: list[Method] = []
    left_out: dict[str, str] = {}
    for module in _MODULES:
        try:
            found, missing = importlib.import_module(f"bench.peers.{module}").methods()
        except Exception as error:  # importing other people's packages can fail in any way
            left_out[module.removesuffix("_peer").removesuffix("_peers")] = str(error) or type(error).__name__
            continue
        methods += found
        left_out |= missing
    return methods, left_out
