"""Writes the elements of each role and dtype of a state as raw files for codec_benchmark, repeated up to a size.

    .venv/bin/python bench/role_elements.py FILE.safetensors FOLDER [--mib 128]

Writes FOLDER/<role>.<dtype>.raw with all tensors of at least 4 KiB, one after the other.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import torch
from safetensors import safe_open

ROLES = ("exp_avg_sq", "exp_avg", "master")  # prefixes of names; all other tensors are weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mib", type=int, default=128)
    options = parser.parse_args()
    elements: dict[str, bytearray] = defaultdict(bytearray)
    with safe_open(options.file, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 (it is no dict)
            tensor = file.get_tensor(name)
            if tensor.nbytes < 4096:
                continue
            role = next((role for role in ROLES if name.startswith(role + ".")), "weight")
            bare = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
            elements[f"{role}.{str(tensor.dtype).removeprefix('torch.')}"] += bare
    options.folder.mkdir(parents=True, exist_ok=True)
    size = options.mib << 20
    for name, once in elements.items():
        (options.folder / f"{name}.raw").write_bytes((once * (size // len(once) + 1))[:size])


if __name__ == "__main__":
    main()
