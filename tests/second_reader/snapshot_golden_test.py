"""Reads the golden snapshots with both readers, and damages some of them. golden/README.md describes the files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import bitsnap
from golden.state_description import describe, digest
from second_reader.bsnap_reader import Snapshot, open_file, search_folder
from second_reader.chunk_codecs import CODEC_IDS
from second_reader.described_state import describe_state
from second_reader.ordinal_delta_cases import coarsenesses
from second_reader.reader_errors import ReaderError

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "snapshot"
NAMES = sorted(path.stem for path in FOLDER.glob("*.bsnap"))
# With bases, and small enough to damage each byte.
DAMAGED = ["empty", "by-hand", "long-constant", "long-unchanged"]


def expectation(name: str) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return expected


def test_the_golden_snapshots_cover_every_codec_and_role() -> None:
    snapshots = [open_file(FOLDER / f"{name}.bsnap") for name in NAMES]
    assert set().union(*(snapshot.codec_names() for snapshot in snapshots)) == set(CODEC_IDS)
    assert len({tensor.role for snapshot in snapshots for tensor in snapshot.tensors}) == 5
    assert {row.depth for snapshot in snapshots for row in snapshot.rows} == {0, 1, 2}


def test_the_golden_snapshots_cover_what_ordinal_delta_can_store() -> None:
    payloads = []
    for name in NAMES:
        file = (FOLDER / f"{name}.bsnap").read_bytes()
        rows = [row for row in Snapshot(file).rows if row.codec == CODEC_IDS["ordinal_delta"]]
        payloads += [file[row.offset : row.offset + row.size] for row in rows]
    dense = [payload for payload in payloads if payload[0] == 0]
    assert {payload[0] for payload in payloads} == {0, 1, 2}
    assert len({payload[2] < 32 for payload in dense}) == 2  # with direct measures, and without
    assert {payload[3] for payload in dense} == {0, 1}  # low bytes
    assert any(payload[4:8] != bytes(4) for payload in dense)  # far elements
    assert any(coarsenesses(payload, 2048) - {0} for payload in payloads if payload[0] == 2)  # octaves


@pytest.mark.parametrize("name", NAMES)
def test_the_second_reader_finds_what_was_stored(name: str) -> None:
    expected = expectation(name)
    snapshot = open_file(FOLDER / f"{name}.bsnap")
    snapshot.verify()
    assert snapshot.snapshot_id == expected["id"]
    assert snapshot.metadata == expected["metadata"]
    names = [tensor.name for tensor in snapshot.tensors]
    found = [
        {"name": tensor.name, "role": tensor.role, "alias_of": None if tensor.alias is None else names[tensor.alias]}
        for tensor in snapshot.tensors
    ]
    assert found == expected["tensors"]
    if "state" in expected:
        assert describe_state(snapshot) == expected["state"]
    if "bytes" in expected:
        assert {name: digest(data) for name, data in snapshot.read_state().items()} == expected["bytes"]
    if "safetensors" in expected:
        assert digest(snapshot.safetensors_file()) == expected["safetensors"]


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("name", NAMES)
def test_bitsnap_finds_what_was_stored(name: str, tmp_path: Path) -> None:
    expected = expectation(name)
    path = FOLDER / f"{name}.bsnap"
    bitsnap.verify(path)
    inspection = bitsnap.inspect(path)
    assert (inspection.id, inspection.metadata) == (expected["id"], expected["metadata"])
    found = [{"name": t.name, "role": t.role, "alias_of": t.alias_of} for t in inspection.tensors]
    assert found == expected["tensors"]
    if "state" in expected:
        assert describe(bitsnap.load(path)) == expected["state"]

    made = tmp_path / "made.safetensors"
    bitsnap.decompress(path, made)
    if "safetensors" in expected:
        assert digest(made.read_bytes()) == expected["safetensors"]
    # The tensors of the file that it made are those that the second reader finds in the snapshot.
    bitsnap.compress(made, tmp_path / "again.bsnap", settings="raw")
    assert open_file(tmp_path / "again.bsnap").read_state() == open_file(path).read_state()


@pytest.mark.parametrize("name", DAMAGED)
def test_every_truncation_is_rejected(name: str) -> None:
    file = (FOLDER / f"{name}.bsnap").read_bytes()
    for size in range(len(file)):
        with pytest.raises(ReaderError):
            Snapshot(file[:size])


@pytest.mark.parametrize("name", DAMAGED)
def test_every_changed_byte_is_found(name: str) -> None:
    path = FOLDER / f"{name}.bsnap"
    file = path.read_bytes()
    find = search_folder(FOLDER)
    known: dict[str, Snapshot | None] = {}

    def find_once(asking: Snapshot, base_id: str, hint: str) -> Snapshot | None:
        if base_id not in known:
            known[base_id] = find(asking, base_id, hint)
        return known[base_id]

    Snapshot(file, find_once, path).verify()
    for offset in range(len(file)):
        for mask in (1 << offset % 8, 0xFF):
            changed = file[:offset] + bytes([file[offset] ^ mask]) + file[offset + 1 :]
            with pytest.raises(ReaderError):
                Snapshot(changed, find_once, path).verify()


def test_a_base_is_found_by_its_id_and_not_by_its_name(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "lossless-2.bsnap", tmp_path / "lossless-1.bsnap")
    shutil.copy(FOLDER / "lossless-1.bsnap", tmp_path / "lossless-0.bsnap")
    shutil.copy(FOLDER / "raw.bsnap", tmp_path / "lossless-2.bsnap")
    path = tmp_path / "lossless-1.bsnap"
    open_file(path).verify()
    bitsnap.verify(path)
    assert describe_state(open_file(path)) == expectation("lossless-2")["state"]
