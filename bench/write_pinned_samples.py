"""Cuts the real samples of tests/pinned out of the corpus: python -m bench.write_pinned_samples.

Each sample has a few kilobytes of one matrix, small enough for the repository. The samples were written once: other
samples would have other sizes (tests/pinned/README.md).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from bench.corpus_runs import DEFAULT_FOLDER, PROJECT, halves_path, state_path

_MATRIX = "blocks.3.up.weight"
_LIMIT_BYTES = 1_000_000  # of all samples together


@dataclass(frozen=True)
class PinnedSample:
    """The first elements of one tensor, at the step of a base and `later` steps after it."""

    name: str
    run: str
    tensor: str
    elements: int
    base_step: int
    later: tuple[int, ...]
    halves: bool = False


SAMPLES = (
    PinnedSample("weight-bf16", "beta95", f"model.{_MATRIX}", 65_536, 550, (1, 10)),
    PinnedSample("finetune-bf16", "finetune", f"model.{_MATRIX}", 32_768, 50, (1,)),
    PinnedSample("weight-f16", "beta95", f"model.{_MATRIX}", 16_384, 550, (1,), halves=True),
    PinnedSample("master-f32", "beta95", f"master.{_MATRIX}", 16_384, 550, (1,)),
    PinnedSample("exp_avg-f32", "beta95", f"exp_avg.{_MATRIX}", 16_384, 550, (1,)),
    PinnedSample("exp_avg_sq-f32", "beta95", f"exp_avg_sq.{_MATRIX}", 16_384, 550, (1,)),
)


def elements_at(folder: Path, sample: PinnedSample, step: int) -> bytes:
    path = (halves_path if sample.halves else state_path)(folder, sample.run, step)
    with safe_open(str(path), framework="pt") as file:
        tensor: torch.Tensor = file.get_tensor(sample.tensor)
    bare: bytes = tensor.reshape(-1)[: sample.elements].contiguous().view(torch.uint8).numpy().tobytes()
    return bare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--folder", type=Path, default=PROJECT / "tests" / "pinned")
    options = parser.parse_args()
    files: dict[str, bytes] = {}
    for sample in SAMPLES:
        for distance in (0, *sample.later):
            name = f"{sample.name}.{f'{distance}-later' if distance else 'base'}.raw"
            files[name] = elements_at(options.corpus, sample, sample.base_step + distance)
    total = sum(len(bare) for bare in files.values())
    if total >= _LIMIT_BYTES:
        print(f"{total} bytes: the samples are to be below {_LIMIT_BYTES} together", file=sys.stderr)
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, bare in files.items():
        (options.folder / name).write_bytes(bare)
    print(f"{options.folder}: {len(files)} files, {total} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
