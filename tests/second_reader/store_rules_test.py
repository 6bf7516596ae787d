"""Tests the second reader with ../store_rules.json; tests/store_rules_test.cpp tests bitsnap.

Each case there is a golden store with `edits`, under what a reader has to say to it. A fault shows when the store is
opened, or, with `step`, when that checkpoint is read, or, with `labels`, when these are read, or, with `commits`, when
the attempt that waits in `sharded` is committed; an allowed store can be read whole, and has the `steps` that are
named, if any are. An edit is of one file:

    patch, body                what changes in the body of a record: RFC 6902, or a text and another for it. The hash is
                               made right
    text, append, cut          a text in the file and another for it; what is added; how many bytes are lost at the end
    remove, rename, copy
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from second_reader.reader_errors import Corrupt, Missing, ReaderError, Truncated, Unsupported
from second_reader.store_reader import Store
from second_reader.store_records import commit_of, seal, shard_record_name

TESTS = Path(__file__).resolve().parents[1]
FAULTS: dict[str, type[ReaderError]] = {
    "not_found": Missing,
    "unsupported": Unsupported,
    "truncated": Truncated,
    "corrupt": Corrupt,
}
WAITING_STEP = 12_345_678_902


def cases() -> list[Any]:
    kinds = json.loads((TESTS / "store_rules.json").read_text(encoding="utf-8"))
    return [pytest.param(kind, rule, id=rule["name"]) for kind, rules in kinds.items() for rule in rules]


def replaced(text: bytes, pair: list[str]) -> bytes:
    old, new = (part.encode() for part in pair)
    assert old in text
    return text.replace(old, new, 1)


def patched(body: bytes, changes: list[dict[str, Any]]) -> bytes:
    value = json.loads(body)
    for change in changes:
        if change["path"] == "":
            value = change["value"]
            continue
        *way, last = change["path"].split("/")[1:]
        place = value
        for key in way:
            place = place[int(key)] if isinstance(place, list) else place[key]
        if isinstance(place, list) and change["op"] == "add":
            place.insert(int(last), change["value"])
        elif change["op"] == "remove":
            del place[int(last) if isinstance(place, list) else last]
        else:
            place[last] = change["value"]
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def edit(store: Path, change: dict[str, Any]) -> None:
    path = store / change["file"]
    if "remove" in change:
        path.unlink()
        return
    if "rename" in change or "copy" in change:
        target = store / (change.get("rename") or change["copy"])
        target.parent.mkdir(parents=True, exist_ok=True)
        (Path.rename if "rename" in change else shutil.copyfile)(path, target)
        return
    text = path.read_bytes()
    text = text[: max(0, len(text) - change.get("cut", 0))] + change.get("append", "").encode()
    if "text" in change:
        text = replaced(text, change["text"])
    if "body" in change or "patch" in change:
        key, body = text[2 : text.index(b'":')].decode(), text[text.index(b":") + 1 : text.rindex(b',"hash"')]
        text = seal(key, replaced(body, change["body"]) if "body" in change else patched(body, change["patch"]))
    path.write_bytes(text)


def read(path: Path, rule: dict[str, Any]) -> None:
    store = Store(path)
    if "commits" in rule:
        record = commit_of(store.shard_records(WAITING_STEP))
        directory = path / "checkpoints" / str(WAITING_STEP)
        assert [(directory / file.file).stat().st_size for file in record.shards] == [
            file.size for file in record.shards
        ]
        assert shard_record_name(0, 2, "a1") in {place.name for place in directory.iterdir()}
    elif "labels" in rule:
        assert store.labels() == rule["labels"]
    elif "step" in rule:
        store.check(rule["step"])
    else:
        assert store.steps() == rule.get("steps", store.steps())
        for step in store.steps():
            store.check(step)


@pytest.mark.parametrize(("kind", "rule"), cases())
def test_the_second_reader_returns_the_required_result(kind: str, rule: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(TESTS / "golden" / "store" / rule["store"], path)
    for change in rule["edits"]:
        edit(path, change)
    if kind == "allowed":
        read(path, rule)
        return
    with pytest.raises(ReaderError) as caught:
        read(path, rule)
    assert type(caught.value) is FAULTS[kind], caught.value
