"""Arguments of a Store that are wrong: named, and refused before anything is done."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bitsnap
from python.run_states import files_of


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "zip"}, "zip"),
        ({"objective": "best"}, "unknown objective 'best'"),
        ({"store_speed": 5}, "store speed must be 1000000 to 1000000000000 bytes per second, got 5"),
        ({"store_speed": 10**12 + 1}, "store speed must be 1000000 to 1000000000000 bytes per second, got"),
        ({"store_speed": -1}, "store_speed"),
        ({"codec": "gzip"}, "unknown codec 'gzip'; expected one of raw, "),
        ({"base": "next"}, "next"),
        ({"max_depth": 33}, "32"),
        ({"max_depth": -1}, "max_depth"),
        ({"keep_last": 0}, "keep_last"),
        ({"keep_every": 0}, "keep_every"),
        ({"keep_base": -1}, "keep_base"),
        ({"wait": -1}, "wait"),
        ({"wait": -1e-9}, "wait is a number of seconds from 0 on"),
        ({"wait": -(10**400)}, "wait is a number of seconds from 0 on"),
        ({"wait": math.nan}, "wait"),
        ({"threads": -1}, "threads is an integer from 0 to"),
        ({"read_only": True, "shared": True}, "not both"),
        ({"read_only": True, "keep_last": 3}, "keep_last"),
    ],
)
def test_a_wrong_argument_of_a_store_is_named_and_makes_nothing(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(bitsnap.InvalidArgumentError, match=message):
        bitsnap.Store(tmp_path / "run", **options)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(bitsnap.InvalidArgumentError, match="empty"):
        bitsnap.Store("")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wait": "x"}, "wait is a number of seconds, not 'x'"),
        ({"wait": "5"}, "wait is a number of seconds, not '5'"),
        ({"wait": None}, "wait is a number of seconds, not None"),
        ({"wait": [1]}, "wait is a number of seconds"),
        ({"keep_every": 2.5}, "keep_every is an integer, not 2.5"),
        ({"keep_last": "5"}, "keep_last is an integer, not '5'"),
        ({"keep_base": "all"}, "keep_base is an integer, not 'all'"),
        ({"max_depth": 1.0}, "max_depth is an integer, not 1.0"),
        ({"threads": "x"}, "threads is an integer, not 'x'"),
        ({"policy": 5}, "policy is a str, not 5"),
        ({"objective": 5}, "objective is a str, not 5"),
        ({"store_speed": "2G"}, "store_speed is an integer, not '2G'"),
        ({"codec": None}, "codec is a str, not None"),
        ({"base": 10}, "base is a str, not 10"),
    ],
)
def test_an_argument_of_another_type_is_named_and_makes_nothing(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        bitsnap.Store(tmp_path / "run", **options)
    with pytest.raises(TypeError, match="not int"):
        bitsnap.Store(5)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wait", [0, 0.5, 1e-9, 10**400, math.inf, np.float32(0.5), True, Fraction(1, 3)])
def test_a_wait_is_any_number(tmp_path: Path, wait: Any) -> None:
    bitsnap.Store(tmp_path / "run", wait=wait).close()


def test_an_argument_of_another_type_is_named_by_each_call(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(1, {})
        before = files_of(tmp_path / "run")
        wrong: Any = 5
        calls: dict[str, Callable[[], Any]] = {
            "step is an integer, not '5'": lambda: store.save("5", {}),  # type: ignore[arg-type]
            "step is an integer, not 5.0": lambda: store.load(5.0),  # type: ignore[arg-type]
            "shard is an integer, not 'a'": lambda: store.load(1, shard="a"),  # type: ignore[arg-type]
            "keep_last is an integer, not 1.5": lambda: store.prune(keep_last=1.5),  # type: ignore[arg-type]
            "reencode is a str, not 5": lambda: store.prune(1, reencode=wrong),
            "attempt is a str, not 5": lambda: store.save_shard(2, {}, shard=0, shards=1, attempt=wrong),
            "attempt is a str, not None": lambda: store.commit(2, 1, None),  # type: ignore[arg-type]
            "shards is an integer, not '1'": lambda: store.commit(2, "1", "a"),  # type: ignore[arg-type]
            "metadata is a dict of str to str, not 5": lambda: store.save(2, {}, metadata=wrong),
            "roles is a dict of names to roles, not 5": lambda: store.save(2, {}, roles=wrong),
            "progress is a function": lambda: store.save(2, {}, progress=wrong),
            "progress is a function or None": lambda: store.verify(progress=wrong),
            "progress is a function or None, not 5": lambda: store.load(progress=wrong),
            "threads is an integer": lambda: bitsnap.Store.repair(tmp_path / "run", threads=wrong / 2),
        }
        for message, call in calls.items():
            with pytest.raises(TypeError, match=message):
                call()
        assert files_of(tmp_path / "run") == before


def test_a_wrong_argument_of_a_call_is_named(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(1, {})
        calls: dict[str, Callable[[], Any]] = {
            "step is an integer from 0 to .*, not -1": lambda: store.save(-1, {}),
            "not 18446744073709551616": lambda: store.save(1 << 64, {}),
            "not a number of 100001 bits": lambda: store.save(1 << 100_000, {}),
            "say what to keep": lambda: store.prune(),
            "keep_last": lambda: store.prune(keep_last=0),
            "sometimes": lambda: store.prune(keep_last=1, reencode="sometimes"),  # type: ignore[arg-type]
            "attempt": lambda: store.save_shard(2, {}, shard=0, shards=1, attempt="No Name"),
            "shard": lambda: store.save_shard(2, {}, shard=2, shards=2, attempt="a"),
        }
        for message, call in calls.items():
            with pytest.raises(bitsnap.InvalidArgumentError, match=message):
                call()
        assert store.steps() == [1]
        for copying in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="store"):
                copying(store)


def test_the_directory_of_a_run_is_no_snapshot(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(1, {"a": 1})
    path = tmp_path / "run"
    before = files_of(path)
    calls: list[Callable[[], Any]] = [
        lambda: bitsnap.load(path),
        lambda: bitsnap.load_file(path),
        lambda: bitsnap.safe_open(path, "np"),
        lambda: bitsnap.inspect(path),
        lambda: bitsnap.verify(path),
        lambda: bitsnap.snapshot_id(path),
        lambda: bitsnap.decompress(path, tmp_path / "out"),
        lambda: bitsnap.save(tmp_path / "out", {}, base=path),
    ]
    for call in calls:
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"run: is the directory of a run.*bitsnap\.Store\('"):
            call()
    assert files_of(path) == before
    assert list(tmp_path.iterdir()) == [path]
