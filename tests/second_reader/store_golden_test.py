"""Reads the golden stores with the second reader; tests/store_golden_test.cpp does so with bitsnap."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from golden.state_description import digest
from second_reader.container_format import hash64
from second_reader.reader_errors import Corrupt, Missing
from second_reader.store_reader import Store, step_name
from second_reader.store_records import CommitRecord, ShardFile, commit_of, seal

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "store"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def expectation(name: str) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return expected


def test_the_golden_stores_have_one_of_everything() -> None:
    stores = {name: Store(FOLDER / name) for name in NAMES}
    records = [store.commit(step) for store in stores.values() for step in store.steps()]
    files = [file for record in records for file in record.shards]
    assert {store.settings.base_rule for store in stores.values()} == {"previous", "keyframe"}
    assert 0 in {store.settings.max_depth for store in stores.values()}
    assert any(store.retired_steps() for store in stores.values())
    assert any(".r1." in file.file for file in files)
    assert {len(record.shards) for record in records} == {1, 2}
    assert {record.attempt for record in records} >= {None, "a1"}
    assert {reference.standalone for file in files for reference in file.references} == {True, False}
    assert any(record.base is None and file.references for record in records for file in record.shards)


@pytest.mark.parametrize("name", NAMES)
def test_the_second_reader_finds_what_was_stored(name: str) -> None:
    expected = expectation(name)
    store = Store(FOLDER / name)
    assert store.settings.run_id == expected["run_id"]
    assert store.steps() == [checkpoint["step"] for checkpoint in expected["checkpoints"]]
    for checkpoint in expected["checkpoints"]:
        step = checkpoint["step"]
        store.check(step)
        record = store.commit(step)
        assert (record.time_unix_ms, record.base, record.links) == tuple(
            checkpoint[key] for key in ("time_unix_ms", "base", "links")
        )
        assert sum(file.raw_size for file in record.shards) == checkpoint["raw_bytes"]
        assert max(file.depth for file in record.shards) == checkpoint["depth"]
        found = []
        for number in range(len(record.shards)):
            snapshot = store.shard(step, number)
            tensors = {tensor: digest(data) for tensor, data in snapshot.read_state().items()}
            found.append({"id": snapshot.snapshot_id, "tensors": tensors})
        assert found == checkpoint["shards"]
        assert {name: digest(data) for name, data in store.files(step).items()} == checkpoint.get("files", {})
        assert [list(item) for item in record.metadata.items()] == checkpoint.get("metadata", [])
    labels = {step["step"]: step["labels"] for step in expected["checkpoints"] if "labels" in step}
    assert store.labels() == {label: step for step, names in labels.items() for label in names}


@pytest.mark.parametrize("name", NAMES)
def test_records_describe_their_files(name: str) -> None:
    store = Store(FOLDER / name)
    for step in store.steps():
        record = store.commit(step)
        for number, file in enumerate(record.shards):
            snapshot = store.shard(step, number)
            stated = [reference.snapshot_id for reference in file.references]
            assert stated == [base_id for base_id, _ in snapshot.encoding.bases]
            assert file.depth == max(row.depth for row in snapshot.rows)
            assert file.raw_size == sum(tensor.size for tensor in snapshot.tensors if tensor.alias is None)
            if record.base is None:
                assert all(reference.standalone for reference in file.references)


def test_the_records_of_shards_make_the_record_of_the_checkpoint() -> None:
    store = Store(FOLDER / "sharded")
    step = 12_345_678_902
    assert step not in store.steps()
    record = commit_of(store.shard_records(step))
    assert (record.step, record.base, record.links, record.attempt) == (step, 12_345_678_901, 2, "a1")
    assert [file.file for file in record.shards] == [f"shard-0000{number}-of-00002.a1.bsnap" for number in range(2)]


def described(file: ShardFile) -> dict[str, Any]:
    references = [
        {"id": reference.snapshot_id, "step": reference.step, "shard": reference.shard}
        | ({"standalone": True} if reference.standalone else {})
        for reference in file.references
    ]
    named = {"file": file.file, "id": file.snapshot_id, "bytes": file.size, "raw_bytes": file.raw_size}
    return named | {"depth": file.depth, "references": references}


def written(record: CommitRecord) -> bytes:
    """The bytes of a commit record, which the document fixes because any rank may write it."""
    body: dict[str, Any] = {"format": 0, "step": record.step, "time_unix_ms": record.time_unix_ms}
    body["policy"] = record.policy
    body |= {} if record.attempt is None else {"attempt": record.attempt}
    body |= {} if record.base is None else {"base": record.base}
    body |= {"links": record.links, "directory_sync": record.directory_sync}
    body["shards"] = [described(file) for file in record.shards]
    body |= {"metadata": record.metadata} if record.metadata else {}
    body |= {} if record.files is None else {"files": described(record.files)}
    return seal("commit", json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode())


@pytest.mark.parametrize("name", NAMES)
def test_everybody_would_write_the_same_commit_record(name: str) -> None:
    store = Store(FOLDER / name)
    for step in store.steps():
        assert (
            written(store.commit(step)) == (store.path / "checkpoints" / step_name(step) / "commit.json").read_bytes()
        )


def test_a_catalog_entry_matches_its_record_and_that_file_only(tmp_path: Path) -> None:
    expected = {checkpoint["step"]: checkpoint for checkpoint in expectation("chain")["checkpoints"]}
    path = tmp_path / "chain"
    shutil.copytree(FOLDER / "chain", path)
    entries = Store(path).catalog()
    assert [entry.step for entry in entries] == list(expected)
    for entry in entries:
        checkpoint = expected[entry.step]
        assert (entry.raw_size, entry.stored_size) == (checkpoint["raw_bytes"], checkpoint["stored_bytes"])
        assert (entry.time_unix_ms, entry.base) == (checkpoint["time_unix_ms"], checkpoint["base"])
        assert (entry.shards, entry.links, entry.depth) == (1, checkpoint["links"], checkpoint["depth"])
        assert entry.size == (path / "checkpoints" / f"{entry.step:010}" / "commit.json").stat().st_size

    # A copy is another file: its entries do not hold, unless they are told of it.
    assert not any(Store(path).holds(entry) for entry in entries)
    record = path / "checkpoints" / f"{entries[0].step:010}" / "commit.json"
    catalog = bytearray((path / "catalog").read_bytes())
    now = record.stat()
    catalog[24:40] = now.st_mtime_ns.to_bytes(8, "little", signed=True) + now.st_ino.to_bytes(8, "little")
    catalog[-8:] = hash64(bytes(catalog[:-8])).to_bytes(8, "little")
    (path / "catalog").write_bytes(catalog)
    store = Store(path)
    assert [store.holds(entry) for entry in store.catalog()] == [True] + [False] * (len(entries) - 1)
    os.utime(record, ns=(now.st_atime_ns, now.st_mtime_ns + 1))
    assert not any(store.holds(entry) for entry in store.catalog())


def test_every_changed_byte_of_a_catalog_makes_it_as_good_as_none(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "chain", tmp_path / "chain")
    store = Store(tmp_path / "chain")
    whole = (tmp_path / "chain" / "catalog").read_bytes()
    for offset in range(len(whole)):
        changed = whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :]
        (tmp_path / "chain" / "catalog").write_bytes(changed)
        assert store.catalog() == []
        (tmp_path / "chain" / "catalog").write_bytes(whole[:offset])
        assert store.catalog() == []


@pytest.mark.parametrize("name", ["bitsnap.json", "checkpoints/0000000030/commit.json"])
def test_every_changed_byte_and_every_truncation_of_a_record_is_found(name: str, tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "chain", tmp_path / "chain")
    path = tmp_path / "chain" / name
    whole = path.read_bytes()
    for offset in range(len(whole)):
        for damaged in (whole[:offset], whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(Corrupt):
                Store(tmp_path / "chain").check(30)
    path.unlink()
    with pytest.raises(Missing):
        Store(tmp_path / "chain").check(30)


def test_sealing_gives_the_bytes_that_bitsnap_wrote() -> None:
    file = (FOLDER / "chain" / "bitsnap.json").read_bytes()
    assert seal("store", file[len(b'{"store":') : file.rindex(b',"hash"')]) == file
