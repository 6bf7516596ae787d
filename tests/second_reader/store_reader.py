"""A second reader of stores, written from docs/spec/store.md alone, to test that document.

`Store` opens the directory of a run, lists checkpoints, opens their shards with their bases, and checks the entries of
the catalog. Like all readers, it takes no lock. It does not retry if a file disappears, because the stores of tests do
not change. It shares no code with bitsnap. One thread at a time.
"""

from __future__ import annotations

import re
from pathlib import Path

from second_reader.bsnap_reader import FindBase, Snapshot
from second_reader.reader_errors import Corrupt, Missing, ReaderError, Truncated, require
from second_reader.store_records import (
    CatalogEntry,
    CommitRecord,
    Reference,
    ShardFile,
    ShardRecord,
    is_file_name,
    is_shard_record_name,
    parse_catalog,
    parse_commit,
    parse_labels,
    parse_settings,
    parse_shard_record,
)

_STEP_DIGITS = 10
_MAX_STEP = 2**64 - 1
_MAX_FILES = 10_000
_MAX_FILES_BYTES = 2**26


def step_name(step: int) -> str:
    return f"{step:0{_STEP_DIGITS}}"


def step_of_name(name: str) -> int | None:
    """The step whose directory has this name; None if there is none."""
    if re.fullmatch(r"[0-9]{10,20}", name) is None:
        return None
    step = int(name)
    return step if step <= _MAX_STEP and step_name(step) == name else None


class Store:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = parse_settings(_read(path / "bitsnap.json"), "bitsnap.json")

    def steps(self) -> list[int]:
        """The checkpoints: the steps with a commit record, readable or not."""
        return sorted(step for step in self._directories() if (self._directory(step) / "commit.json").exists())

    def retired_steps(self) -> list[int]:
        """The steps that are no longer checkpoints, but whose files others need."""
        return sorted(
            step
            for step in self._directories()
            if (self._directory(step) / "retired.json").exists() and step not in self.steps()
        )

    def commit(self, step: int) -> CommitRecord:
        return self._record(step, "commit.json")

    def shard(self, step: int, shard: int = 0) -> Snapshot:
        """One shard, open; what it is coded against is opened when it is needed."""
        record = self.commit(step)
        if shard >= len(record.shards):
            raise Missing(f"step {step} has {len(record.shards)} shards, no shard {shard}")
        return self._open(record, shard, standalone=False)

    def check(self, step: int) -> None:
        """Checks everything that the record states about other files, and every chunk."""
        record = self.commit(step)
        for number, file in enumerate(record.shards):
            self._check_references(file)
            self._open(record, number, standalone=False).verify()
        self.files(step)

    def files(self, step: int) -> dict[str, bytes]:
        """The caller's files."""
        record = self.commit(step)
        if record.files is None:
            return {}
        path = self._directory(step) / record.files.file
        _check_size(path.parent, record.files)
        snapshot = Snapshot(path.read_bytes(), _find_nothing, path)
        require(snapshot.snapshot_id == record.files.snapshot_id, f"{path}: id {snapshot.snapshot_id}")
        snapshot.verify()
        for tensor in snapshot.tensors:
            is_file = is_file_name(tensor.name) and tensor.dtype == "U8" and len(tensor.shape) == 1
            require(is_file, f"{path}: {tensor.name!r} is no file")
        files = {name: bytes(data) for name, data in snapshot.read_state().items()}
        require(len(files) <= _MAX_FILES and sum(map(len, files.values())) <= _MAX_FILES_BYTES, f"{path}: too much")
        return files

    def labels(self) -> dict[str, int]:
        """The labels that name a checkpoint, with its step."""
        path = self.path / "labels.json"
        if not path.exists():
            return {}
        steps = self.steps()
        found = {}
        for label in parse_labels(path.read_bytes(), "labels.json"):
            named: int | None = label.step
            if label.pending_id is not None and not self._has_first_shard(label.step, label.pending_id):
                named = label.before
            if named in steps:
                found[label.label] = named
        return found

    def _has_first_shard(self, step: int, snapshot_id: str) -> bool:
        if step not in self.steps():
            return False
        try:
            return self.commit(step).shards[0].snapshot_id == snapshot_id
        except ReaderError:
            return True

    def shard_records(self, step: int) -> list[ShardRecord]:
        """The records of shards that wait for the checkpoint to be committed, by name."""
        directory = self._directory(step)
        names = sorted(path.name for path in directory.iterdir() if is_shard_record_name(path.name))
        return [parse_shard_record((directory / name).read_bytes(), name, step, name) for name in names]

    def catalog(self) -> list[CatalogEntry]:
        """The entries of the catalog; none if it is missing or damaged."""
        path = self.path / "catalog"
        return (parse_catalog(path.read_bytes()) if path.exists() else None) or []

    def holds(self, entry: CatalogEntry) -> bool:
        """Whether the entry is about the commit record as it is now."""
        path = self._directory(entry.step) / "commit.json"
        if not path.exists():
            return False
        found = path.stat()
        return (entry.modified_ns, entry.file_id, entry.size) == (found.st_mtime_ns, found.st_ino, found.st_size)

    def _directories(self) -> list[int]:
        places = self.path / "checkpoints"
        names = [path.name for path in places.iterdir() if path.is_dir()] if places.exists() else []
        return [step for name in names if (step := step_of_name(name)) is not None]

    def _directory(self, step: int) -> Path:
        return self.path / "checkpoints" / step_name(step)

    def _record(self, step: int, name: str) -> CommitRecord:
        where = f"checkpoints/{step_name(step)}/{name}"
        return parse_commit(_read(self.path / where), step, where)

    def _resolve(self, reference: Reference) -> tuple[CommitRecord, int]:
        """The record and the number of the shard that a reference leads to."""
        directory = self._directory(reference.step)
        found = f"a reference to shard {reference.shard} of step {reference.step}, {reference.snapshot_id}"
        names = [name for name in ("commit.json", "retired.json") if (directory / name).exists()]
        require(bool(names), f"{found}: the step is not there")
        record = self._record(reference.step, names[0])
        require(reference.shard < len(record.shards), f"{found}: there are {len(record.shards)} shards")
        there = record.shards[reference.shard]
        require(there.snapshot_id == reference.snapshot_id, f"{found}: that is {there.snapshot_id}")
        _check_size(directory, there)
        return record, reference.shard

    def _check_references(self, file: ShardFile, outer: tuple[str, ...] = ()) -> None:
        """Follows all references that are not standalone to their ends."""
        require(file.snapshot_id not in outer, f"{file.file}: refers to itself")
        for reference in file.references:
            record, shard = self._resolve(reference)
            self._open(record, shard, standalone=reference.standalone)
            if not reference.standalone:
                self._check_references(record.shards[shard], (*outer, file.snapshot_id))

    def _open(self, record: CommitRecord, shard: int, *, standalone: bool) -> Snapshot:
        file = record.shards[shard]
        directory = self._directory(record.step)
        _check_size(directory, file)
        path = directory / file.file
        find = _find_nothing if standalone else self._find_base(file)
        snapshot = Snapshot(path.read_bytes(), find, path)
        where = f"{step_name(record.step)}/{file.file}"
        require(snapshot.snapshot_id == file.snapshot_id, f"{where}: id {snapshot.snapshot_id}")
        return snapshot

    def _find_base(self, file: ShardFile) -> FindBase:
        references = {reference.snapshot_id: reference for reference in file.references}

        def find(_asking: Snapshot, base_id: str, _name: str) -> Snapshot | None:
            reference = references.get(base_id)
            if reference is None:
                raise Corrupt(f"{file.file}: base {base_id} is not among the references in its record")
            record, shard = self._resolve(reference)
            return self._open(record, shard, standalone=reference.standalone)

        return find


def _find_nothing(asking: Snapshot, base_id: str, _name: str) -> Snapshot | None:
    raise Corrupt(f"{asking.path}: referred to as standalone, and needs {base_id}")


def _check_size(directory: Path, file: ShardFile) -> None:
    path = directory / file.file
    require(path.is_file(), f"{path} is missing")
    size = path.stat().st_size
    if size < file.size:
        raise Truncated(f"{path}: {size} bytes, the record says {file.size}")
    require(size == file.size, f"{path}: {size} bytes, the record says {file.size}")


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise Missing(f"{path} is missing")
    return path.read_bytes()
