"""Reads the golden payloads of the codecs with the second reader. golden/README.md describes the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from second_reader.chunk_codecs import CODEC_IDS, ELEMENT_SIZES, Chunk, Input, decode

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "codec"
PAYLOADS = sorted(GOLDEN.rglob("*.payload"))


def test_there_are_golden_payloads_of_every_codec() -> None:
    assert {path.parent.name for path in PAYLOADS} == set(CODEC_IDS)


@pytest.mark.parametrize("path", PAYLOADS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_reads_a_golden_payload(path: Path) -> None:
    dtype = path.stem.split("-")[0]
    raw = path.with_suffix(".raw").read_bytes()
    inputs = tuple(
        Input(from_base="base" in suffix, dtype=suffix if suffix in ("F32", "BF16") else dtype, data=file.read_bytes())
        for suffix in ("base", "F32", "BF16", "2-base", "2-peer", "3-peer")
        if (file := path.with_suffix(f".{suffix}")).exists()
    )
    chunk = Chunk(path.read_bytes(), dtype, len(raw) // ELEMENT_SIZES[dtype], inputs)
    assert decode(CODEC_IDS[path.parent.name], chunk) == raw
