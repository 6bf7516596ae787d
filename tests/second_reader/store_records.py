"""docs/spec/store.md, the records: their common form, the contents of each, and the catalog.

Parsing takes bytes and opens no file; store_reader.py checks what a record states about other files.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field, replace
from typing import Any

from second_reader.container_format import hash64
from second_reader.reader_errors import ReaderError, Unsupported, require
from second_reader.strict_json import check_type, count, members, parse

MAX_RECORD_BYTES = 256 << 20
MAX_CHAIN = 32
MAX_SHARDS = 99_999
_MAX_U32 = 2**32 - 1
_MAX_SIZES = 2**62  # of one checkpoint, all together
BASE_RULES = {"previous", "keyframe"}
OBJECTIVES = {"ratio", "balanced", "speed"}
SLOWEST_STORE, FASTEST_STORE = 10**6, 10**12
POLICIES = {"lossless", "bounded", "lmc", "bitsnap", "raw"}
_RULE = re.compile(
    r"(\*|weight|master|exp_avg|exp_avg_sq|other)(:.*)?="
    r"(exact|(mantissa_bits|master_bits|clusters):\d+|update_step:[0-9.e-]+)",
    re.DOTALL,
)

_EVERY_RECORD = {"time_unix_ms", "policy", "links"}

_ID = re.compile(r"[0-9a-f]{32}")
_FILE = re.compile(r"[A-Za-z0-9-][A-Za-z0-9.-]{0,193}\.bsnap")
_FILES_FILE = re.compile(r"files-[0-9a-f]{16}(\.(?!r[0-9]+\.)[a-z0-9-]{1,64})?\.bsnap")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MAX_LABELS = 100_000
_ATTEMPT = re.compile(r"(?!r[0-9]+\Z)[a-z0-9-]{1,64}")
_SHARD_RECORD = re.compile(r"shard-(\d{5})-of-(\d{5})\.([a-z0-9-]{1,64})\.json")

CATALOG_MAGIC = bytes.fromhex("8942534341540d0a")
_CATALOG_HEAD = struct.Struct("<8sQ")
_CATALOG_ENTRY = struct.Struct("<QqQQqQQQIIII16x")
_HAS_BASE = 1


@dataclass(frozen=True)
class StoreSettings:
    run_id: str
    policy: str
    base_rule: str
    max_depth: int


@dataclass(frozen=True)
class Reference:
    snapshot_id: str
    step: int
    shard: int
    standalone: bool


@dataclass(frozen=True)
class ShardFile:
    file: str
    snapshot_id: str
    size: int
    raw_size: int
    depth: int
    references: list[Reference]
    is_link: bool


@dataclass(frozen=True)
class CommitRecord:
    step: int
    time_unix_ms: int
    policy: str
    base: int | None
    links: int
    attempt: str | None
    directory_sync: bool
    shards: list[ShardFile]
    metadata: dict[str, str] = field(default_factory=dict)
    files: ShardFile | None = None


@dataclass(frozen=True)
class Label:
    label: str
    step: int
    pending_id: str | None = None  # of the first shard of the commit that it was given with
    before: int | None = None


@dataclass(frozen=True)
class ShardRecord:
    step: int
    shard: int
    shards: int
    attempt: str
    time_unix_ms: int
    policy: str
    base: int | None
    links: int
    directory_sync: bool
    file: ShardFile


@dataclass(frozen=True)
class CatalogEntry:
    step: int
    modified_ns: int
    file_id: int
    size: int
    time_unix_ms: int
    raw_size: int
    stored_size: int
    base: int | None
    shards: int
    links: int
    depth: int


def seal(key: str, body: bytes) -> bytes:
    """The file of a record with this body."""
    return b'{"%s":%s,"hash":"%016x"}\n' % (key.encode(), body, hash64(body))


def unseal(data: bytes, key: str, where: str) -> dict[str, Any]:
    """The body of the record, after checks of its form, hash and format."""
    require(len(data) <= MAX_RECORD_BYTES, f"{where}: a record of {len(data)} bytes")
    start, end = b'{"%s":' % key.encode(), b',"hash":"0123456789abcdef"}\n'
    require(len(data) >= len(start) + len(end) and data.startswith(start), f"{where}: not the record of a {key}")
    body, tail = data[len(start) : -len(end)], data[-len(end) :]
    digits = re.fullmatch(rb',"hash":"([0-9a-f]{16})"\}\n', tail)
    require(digits is not None, f"{where}: does not end with a hash")
    assert digits is not None
    require(int(digits[1], 16) == hash64(body), f"{where}: wrong hash")
    require(body[:1] == b"{" and body[-1:] == b"}", f"{where}: white space around the record, or no object")
    found = check_type(parse(body, where), dict, where)
    require("format" in found, f"{where}: no format")
    version = count(found["format"], f"{where}: format")
    if version != 0:
        raise Unsupported(f"{where}: format {version}")
    return found


def parse_settings(data: bytes, where: str) -> StoreSettings:
    needed, optional = {"id", "policy", "base", "max_depth"}, {"objective", "store_speed", "loss"}
    body = members(unseal(data, "store", where), where, needed, optional, closed=False)
    _name(body.get("objective", "ratio"), OBJECTIVES, f"{where}: objective")
    speed = count(body.get("store_speed", SLOWEST_STORE), f"{where}: store_speed", FASTEST_STORE)
    require(speed >= SLOWEST_STORE, f"{where}: store_speed {speed}")
    for text in check_type(body.get("loss", []), list, f"{where}: loss"):
        if not _RULE.fullmatch(check_type(text, str, f"{where}: loss")):
            raise Unsupported(f"{where}: rule {text!r}")
    rule = _name(body["base"], BASE_RULES, f"{where}: base")
    policy = _name(body["policy"], POLICIES, f"{where}: policy")
    return StoreSettings(_id(body["id"], where), policy, rule, count(body["max_depth"], where, MAX_CHAIN))


def parse_commit(data: bytes, step: int, where: str) -> CommitRecord:
    """The record in the directory of `step`."""
    body = members(unseal(data, "commit", where), where, {"step", "shards"} | _EVERY_RECORD, set(), closed=False)
    stated, base, links = _place(body, where)
    require(stated == step, f"{where}: of step {stated}")
    shards = check_type(body["shards"], list, where)
    require(1 <= len(shards) <= MAX_SHARDS, f"{where}: {len(shards)} shards")
    files = [_shard_file(shard, step, f"{where}: shard {number}") for number, shard in enumerate(shards)]
    given = _shard_file(body["files"], step, f"{where}: files") if "files" in body else None
    if given is not None:
        require(_FILES_FILE.fullmatch(given.file) is not None, f"{where}: files: {given.file!r}")
        require(not given.references, f"{where}: files: refers to others")
    together = files + ([] if given is None else [given])
    require(sum(file.size + file.raw_size for file in together) <= _MAX_SIZES, f"{where}: sizes beyond 2^62 bytes")
    metadata = check_type(body.get("metadata", {}), dict, f"{where}: metadata")
    for key, value in metadata.items():
        check_type(value, str, f"{where}: metadata {key!r}")
    return CommitRecord(
        step,
        _time(body, where),
        check_type(body["policy"], str, where),
        base,
        links,
        _attempt(body["attempt"], where) if "attempt" in body else None,
        check_type(body.get("directory_sync", True), bool, where),
        files,
        metadata,
        given,
    )


def is_label(text: str) -> bool:
    return 1 <= len(text.encode()) <= 255 and _CONTROLS.search(text) is None


def is_file_name(text: str) -> bool:
    return is_label(text) and text not in {".", ".."} and not {"/", "\\"} & set(text)


def parse_labels(data: bytes, where: str) -> list[Label]:
    body = members(unseal(data, "labels", where), where, {"labels"}, set(), closed=False)
    items = check_type(body["labels"], list, where)
    require(len(items) <= _MAX_LABELS, f"{where}: {len(items)} labels")
    labels = [_label(item, f"{where}: label {number}") for number, item in enumerate(items)]
    names = [label.label.encode() for label in labels]
    require(names == sorted(set(names)), f"{where}: labels are repeated or not in order")
    return labels


def _label(value: Any, where: str) -> Label:
    body = members(value, where, {"label", "step"}, {"pending"}, closed=False)
    name = check_type(body["label"], str, where)
    require(is_label(name), f"{where}: {name!r}")
    step = count(body["step"], where)
    if "pending" not in body:
        return Label(name, step)
    pending = members(body["pending"], where, {"id"}, {"before"}, closed=False)
    before = count(pending["before"], where) if "before" in pending else None
    return Label(name, step, _id(pending["id"], where), before)


def parse_shard_record(data: bytes, name: str, step: int, where: str) -> ShardRecord:
    """The record of that file name in the directory of `step`."""
    required = {"step", "shard", "shards", "attempt", "file"} | _EVERY_RECORD
    body = members(unseal(data, "shard", where), where, required, set(), closed=False)
    stated, base, links = _place(body, where)
    require(base is None or base < stated, f"{where}: base {base} is not before {stated}")
    shards = count(body["shards"], where, MAX_SHARDS)
    shard = count(body["shard"], where)
    attempt = _attempt(body["attempt"], where)
    require(shard < shards, f"{where}: shard {shard} of {shards}")
    require((stated, shard_record_name(shard, shards, attempt)) == (step, name), f"{where}: of another place")
    return ShardRecord(
        step,
        shard,
        shards,
        attempt,
        _time(body, where),
        check_type(body["policy"], str, where),
        base,
        links,
        check_type(body.get("directory_sync", True), bool, where),
        _shard_file(body["file"], step, where, is_committed=False),
    )


def shard_record_name(shard: int, shards: int, attempt: str) -> str:
    return f"shard-{shard:05}-of-{shards:05}.{attempt}.json"


def is_shard_record_name(name: str) -> bool:
    return _SHARD_RECORD.fullmatch(name) is not None


def commit_of(records: list[ShardRecord]) -> CommitRecord:
    """The commit record for the records of all shards of one attempt."""
    first = records[0]
    require([record.shard for record in records] == list(range(first.shards)), "not all shards of the attempt")
    bases = [record.base for record in records if record.base is not None]
    return CommitRecord(
        first.step,
        max(record.time_unix_ms for record in records),
        records[-1].policy,
        max(bases, default=None),
        max(record.links for record in records),
        first.attempt,
        all(record.directory_sync for record in records),
        _settled([record.file for record in records]),
    )


def _settled(files: list[ShardFile]) -> list[ShardFile]:
    """Of equal shards that are all links, the first counts the bytes."""
    counted = {(file.snapshot_id, file.size) for file in files if not file.is_link}
    settled = []
    for file in files:
        is_link = file.is_link and (file.snapshot_id, file.size) in counted
        counted.add((file.snapshot_id, file.size))
        settled.append(replace(file, is_link=is_link))
    return settled


def parse_catalog(data: bytes) -> list[CatalogEntry] | None:
    """The entries; None if the catalog is damaged, which counts as missing."""
    try:
        return _parse_catalog(data)
    except ReaderError:
        return None


def _parse_catalog(data: bytes) -> list[CatalogEntry]:
    require(len(data) >= _CATALOG_HEAD.size + 8, "catalog: too short")
    magic, entries = _CATALOG_HEAD.unpack_from(data)
    require(magic == CATALOG_MAGIC, "catalog: another magic")
    rest = len(data) - _CATALOG_HEAD.size - 8
    require(entries == rest // _CATALOG_ENTRY.size and rest % _CATALOG_ENTRY.size == 0, "catalog: another size")
    require(hash64(data[:-8]) == int.from_bytes(data[-8:], "little"), "catalog: wrong hash")
    found = []
    for *fields, base, shards, links, depth, flags in _CATALOG_ENTRY.iter_unpack(data[_CATALOG_HEAD.size : -8]):
        step, modified_ns, file_id, size, time, raw, stored = fields
        its_base = base if flags & _HAS_BASE else None
        found.append(CatalogEntry(step, modified_ns, file_id, size, time, raw, stored, its_base, shards, links, depth))
    return found


def _shard_file(value: Any, step: int, where: str, *, is_committed: bool = True) -> ShardFile:
    required = {"file", "id", "bytes", "raw_bytes", "depth", "references"}
    body = members(value, where, required, {"link"}, closed=False)
    file = check_type(body["file"], str, where)
    require(_FILE.fullmatch(file) is not None, f"{where}: file {file!r}")
    references = [
        _reference(item, step, f"{where}: reference {number}", is_committed=is_committed)
        for number, item in enumerate(check_type(body["references"], list, where))
    ]
    return ShardFile(
        file,
        _id(body["id"], where),
        count(body["bytes"], where),
        count(body["raw_bytes"], where),
        count(body["depth"], where, _MAX_U32),
        references,
        check_type(body.get("link", False), bool, where),
    )


def _reference(value: Any, step: int, where: str, *, is_committed: bool) -> Reference:
    body = members(value, where, {"id", "step", "shard"}, {"standalone"}, closed=False)
    to = count(body["step"], where)
    require(to < step or (is_committed and to > step), f"{where}: step {step} refers to step {to}")
    standalone = check_type(body.get("standalone", False), bool, where)
    return Reference(_id(body["id"], where), to, count(body["shard"], where, _MAX_U32), standalone)


def _place(body: dict[str, Any], where: str) -> tuple[int, int | None, int]:
    """Step, base and links."""
    step = count(body["step"], where)
    base = count(body["base"], where) if "base" in body else None
    require(base != step, f"{where}: base {base} is the step itself")
    return step, base, count(body["links"], where, _MAX_U32)


def _time(body: dict[str, Any], where: str) -> int:
    time = check_type(body["time_unix_ms"], int, where)
    require(-(2**63) <= time < 2**63, f"{where}: time {time}")
    return time


def _id(value: Any, where: str) -> str:
    digits = check_type(value, str, where)
    require(_ID.fullmatch(digits) is not None, f"{where}: id {digits!r}")
    return digits


def _attempt(value: Any, where: str) -> str:
    name = check_type(value, str, where)
    require(_ATTEMPT.fullmatch(name) is not None, f"{where}: attempt {name!r}")
    return name


def _name(value: Any, known: set[str], where: str) -> str:
    name = check_type(value, str, where)
    if name not in known:
        raise Unsupported(f"{where}: {name!r}")
    return name
