"""Writes the golden snapshots tests/golden/snapshot/*.bsnap, and a description of each as .json.

    PYTHONPATH=tests .venv/bin/python -m golden.make_snapshot_golden

Golden files are written once and must stay readable forever. Existing files are kept; missing ones are added. While the
format is 0, which is not stable, --again rewrites all after a change of the format.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bitsnap
from golden import golden_states
from golden.state_description import describe, digest
from second_reader.bsnap_builder import ChunkPart, Parts, build

FOLDER = Path(__file__).resolve().with_name("snapshot")
LARGEST_BYTES = 20_000

# The states with bounded loss, and Adam's values of each.
ADAM = {f"bounded-{i}": bitsnap.Adam((0.9, 0.95), 1e-8, step) for i, step in enumerate((9, 10))}
# Name, state, base, policy, metadata.
SAVED: list[tuple[str, Callable[[], dict[str, Any]], str | None, str, dict[str, str]]] = [
    ("empty", golden_states.empty, None, "lossless", {}),
    ("scalars", golden_states.scalars, None, "lossless", {"framework": "torch", "": "", "ü": "\u0000\U0001f600"}),
    ("dtypes", golden_states.dtypes, None, "lossless", {}),
    ("tied", golden_states.tied, None, "lossless", {}),
    ("tree", golden_states.tree, None, "lossless", {}),
    ("typed", golden_states.typed, None, "lossless", {}),
    ("raw", lambda: golden_states.training(0), None, "raw", {}),
    ("long-constant", golden_states.long_constant, None, "lossless", {}),
    ("long-changed", golden_states.long_changed, "long-constant", "lossless", {}),
    ("long-unchanged", golden_states.long_changed, "long-changed", "lossless", {}),
    ("lossless-0", lambda: golden_states.training(0), None, "lossless", {}),
    ("lossless-1", lambda: golden_states.training(1), "lossless-0", "lossless", {}),
    ("lossless-2", lambda: golden_states.training(2), "lossless-1", "lossless", {}),
    ("lmc-0", lambda: golden_states.training(0), None, "lmc", {}),
    ("lmc-1", lambda: golden_states.training(1), "lmc-0", "lmc", {}),
    ("bitsnap-0", lambda: golden_states.training(0), None, "bitsnap", {}),
    ("bitsnap-1", lambda: golden_states.training(1), "bitsnap-0", "bitsnap", {}),
    ("moved-0", lambda: golden_states.moved(0), None, "lossless", {}),
    ("moved-1", lambda: golden_states.moved(1), "moved-0", "lossless", {}),
    ("moved-2", lambda: golden_states.moved(2), "moved-1", "lossless", {}),
    ("moments", golden_states.moments, None, "lossless", {}),
    ("decayed-0", lambda: golden_states.decayed(0), None, "lossless", {}),
    ("decayed-1", lambda: golden_states.decayed(1), "decayed-0", "lossless", {}),
    ("short-0", lambda: golden_states.short_gradients(0), None, "lossless", {}),
    ("short-1", lambda: golden_states.short_gradients(1), "short-0", "lossless", {}),
    ("rounded-0", lambda: golden_states.rounded(0), None, "lossless", {}),
    ("rounded-1", lambda: golden_states.rounded(1), "rounded-0", "lossless", {}),
    ("stepped-0", lambda: golden_states.stepped(0), None, "lossless", {}),
    ("stepped-1", lambda: golden_states.stepped(1), "stepped-0", "lossless", {}),
    ("bounded-0", lambda: golden_states.stepped(0), None, "bounded", {}),
    ("bounded-1", lambda: golden_states.stepped(1), "bounded-0", "bounded", {}),
    ("clusters", lambda: golden_states.stepped(1), None, "bitsnap", {}),
]


def by_hand() -> tuple[bytes, dict[str, bytes]]:
    """A valid file that bitsnap does not write, and its tensors: a box, an input in the same file at another offset,
    payloads in another order, overlapping tensors of the pool, an empty parameter set, keys of a later version."""
    elements = struct.pack("<6H", 1, 2, 3, 4, 5, 6)
    weight = {"dtype": "BF16", "role": "weight"}
    box = {"shape": [2, 3], "global_shape": [8, 3], "offset": [4, 0]}
    content = {
        "metadata": {},
        "tensors": [
            weight | box | {"name": "box"},
            weight | {"name": "rows", "shape": [3]},
            {"name": "packed", "dtype": "F4", "shape": [5], "bytes": 3, "role": "master"},
            {"name": "last", "dtype": "U8", "shape": [2], "role": "other", "pool": 3},
            {"name": "first", "dtype": "U16", "shape": [2], "role": "exp_avg", "pool": 0},
            {"name": "alias", "dtype": "I8", "shape": [1, 2], "role": "exp_avg_sq", "alias": 3},
        ],
        "pool": 5,
    }
    encoding = {
        "streams": [
            {"parameters": [0], "later": [{"version": None}]},
            {"inputs": [{"stream": 0, "element": 2}], "reason": "the same rows"},
            {},
            {"later": 1e3},
        ],
        "parameters": [0],
        "later": {"a": [True]},
    }
    pool = b"\x01\x02\x03\x04\x05"
    chunks = [
        ChunkPart(0, elements, elements, parameters=0, wrong={"offset": 72}),
        ChunkPart(2, b"", elements[4:10], (0,)),
        ChunkPart(0, b"\xaa\xbb\x0c", b"\xaa\xbb\x0c", wrong={"offset": 69}),
        ChunkPart(0, pool, pool, wrong={"offset": 64}),
    ]
    file = build(Parts(content, encoding, chunks, compressed={3}))
    # The payloads of this file are in the reverse order of the chunks.
    payloads = pool + b"\xaa\xbb\x0c" + elements
    assert len(payloads) == 20
    tensors = {
        "box": elements,
        "rows": elements[4:10],
        "packed": b"\xaa\xbb\x0c",
        "last": pool[3:],
        "first": pool[:4],
        "alias": pool[3:],
    }
    return file[:64] + payloads + file[64 + len(payloads) :], tensors


def write_expectation(name: str, **expected: Any) -> None:
    path = FOLDER / f"{name}.bsnap"
    inspection = bitsnap.inspect(path)
    tensors = [{"name": t.name, "role": t.role, "alias_of": t.alias_of} for t in inspection.tensors]
    text = json.dumps({"id": inspection.id, "tensors": tensors} | expected, indent=1, ensure_ascii=False)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


def is_there(name: str) -> bool:
    return (FOLDER / f"{name}.bsnap").exists()


def make_missing() -> None:
    for name, make_state, base, policy, metadata in SAVED:
        if is_there(name):
            continue
        base_path = None if base is None else FOLDER / f"{base}.bsnap"
        bitsnap.save(
            FOLDER / f"{name}.bsnap",
            make_state(),
            base=base_path,
            settings=bitsnap.bounded() if policy == "bounded" else policy,
            adam=ADAM.get(name),
            metadata=metadata,
            threads=1,
        )
        # The stored state, which equals the saved state without loss.
        stored = bitsnap.load(FOLDER / f"{name}.bsnap")
        lossy = any(tensor.quantizer for tensor in bitsnap.inspect(FOLDER / f"{name}.bsnap").tensors)
        assert lossy or describe(stored) == describe(make_state()), name
        write_expectation(name, metadata=metadata, state=describe(stored))

    if not is_there("safetensors"):
        original = golden_states.safetensors_file()
        source = FOLDER / "original.safetensors"
        source.write_bytes(original)
        bitsnap.compress(source, FOLDER / "safetensors.bsnap", threads=1)
        source.unlink()
        write_expectation("safetensors", metadata={"format": "pt", "ü": "\u0001"}, safetensors=digest(original))

    if not is_there("by-hand"):
        hand_made, tensors = by_hand()
        (FOLDER / "by-hand.bsnap").write_bytes(hand_made)
        write_expectation("by-hand", metadata={}, bytes={tensor: digest(data) for tensor, data in tensors.items()})

    for path in sorted(FOLDER.glob("*.bsnap")):
        size = path.stat().st_size
        print(f"{size:6} {path.name}")
        if size > LARGEST_BYTES:
            sys.exit(f"{path.name} is too large")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--again", action="store_true", help="rewrite all files; only for a change of format 0")
    again = parser.parse_args().again
    FOLDER.mkdir(exist_ok=True)
    if again:
        for path in [*FOLDER.glob("*.bsnap"), *FOLDER.glob("*.json")]:
            path.unlink()
    make_missing()


if __name__ == "__main__":
    main()
