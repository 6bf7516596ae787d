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
        ({"settings": "zip"}, "settings must be bitsnap.Settings or one of lossless"),
        ({"keep_last": 0}, "keep_last must be at least 1, got 0"),
        ({"keep_every": 0}, "keep_every must be at least 1, got 0"),
        ({"keep_base": -1}, "keep_base must be 0 to"),
        ({"timeout": -1}, "timeout must be a number of seconds that is not negative, got -1"),
        ({"timeout": -1e-9}, "timeout must be a number of seconds that is not negative"),
        ({"timeout": -(10**400)}, "timeout must be a number of seconds that is not negative"),
        ({"timeout": math.nan}, "timeout"),
        ({"threads": -1}, "threads must be 0 to"),
        ({"read_only": True, "shared": True}, "cannot be both"),
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
        ({"timeout": "x"}, "timeout must be a number of seconds, got 'x'"),
        ({"timeout": "5"}, "timeout must be a number of seconds, got '5'"),
        ({"timeout": None}, "timeout must be a number of seconds, got None"),
        ({"timeout": [1]}, "timeout must be a number of seconds"),
        ({"keep_every": 2.5}, "keep_every must be an integer, got 2.5"),
        ({"keep_last": "5"}, "keep_last must be an integer, got '5'"),
        ({"keep_base": "all"}, "keep_base must be an integer, got 'all'"),
        ({"threads": "x"}, "threads must be an integer, got 'x'"),
        ({"settings": 5}, "settings must be bitsnap.Settings, the name of a policy, or None, got 5"),
        ({"settings": {"max_depth": 3}}, "settings must be bitsnap.Settings"),
        ({"adam": (0.9, 0.95)}, "adam must be bitsnap.Adam, a dict or function of names that gives it, or None"),
    ],
)
def test_an_argument_of_the_wrong_type_is_named_and_makes_nothing(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        bitsnap.Store(tmp_path / "run", **options)
    with pytest.raises(TypeError, match="not int"):
        bitsnap.Store(5)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("timeout", [0, 0.5, 1e-9, 10**400, math.inf, np.float32(0.5), True, Fraction(1, 3)])
def test_a_timeout_is_any_number(tmp_path: Path, timeout: Any) -> None:
    bitsnap.Store(tmp_path / "run", timeout=timeout).close()


def test_an_argument_of_the_wrong_type_is_named_by_each_call(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(1, {})
        before = files_of(tmp_path / "run")
        wrong: Any = 5
        calls: dict[str, Callable[[], Any]] = {
            "step must be an integer, got '5'": lambda: store.save("5", {}),  # type: ignore[arg-type]
            "step must be an integer, got 5.0": lambda: store.load(5.0),  # type: ignore[arg-type]
            "shard must be an integer, got 'a'": lambda: store.load(1, shard="a"),  # type: ignore[arg-type]
            "keep_last must be an integer, got 1.5": lambda: store.prune(keep_last=1.5),  # type: ignore[arg-type]
            "reencode must be a str, got 5": lambda: store.prune(1, reencode=wrong),
            "attempt must be a str, got 5": lambda: store.save_shard(2, {}, shard=0, shards=1, attempt=wrong),
            "attempt must be a str, got None": lambda: store.commit(2, 1, None),  # type: ignore[arg-type]
            "shards must be an integer, got '1'": lambda: store.commit(2, "1", "a"),  # type: ignore[arg-type]
            "metadata must be a dict of str to str, got 5": lambda: store.save(2, {}, metadata=wrong),
            "roles must be a dict of names to roles, got 5": lambda: store.save(2, {}, roles=wrong),
            "progress must be a function": lambda: store.save(2, {}, progress=wrong),
            "progress must be a function or None": lambda: store.verify(progress=wrong),
            "progress must be a function or None, got 5": lambda: store.load(progress=wrong),
            "threads must be an integer": lambda: bitsnap.Store.repair(tmp_path / "run", threads=wrong / 2),
        }
        for message, call in calls.items():
            with pytest.raises(TypeError, match=message):
                call()
        assert files_of(tmp_path / "run") == before


def test_a_wrong_argument_of_a_call_is_named(tmp_path: Path) -> None:
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(1, {})
        calls: dict[str, Callable[[], Any]] = {
            "step must be 0 to .*, got -1": lambda: store.save(-1, {}),
            "got 18446744073709551616": lambda: store.save(1 << 64, {}),
            "got a number of 100001 bits": lambda: store.save(1 << 100_000, {}),
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


def test_the_directory_of_a_store_is_not_a_snapshot(tmp_path: Path) -> None:
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
        with pytest.raises(bitsnap.InvalidArgumentError, match=r"run: is the directory of a store.*bitsnap\.Store\('"):
            call()
    assert files_of(path) == before
    assert list(tmp_path.iterdir()) == [path]


def test_asking_a_run_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    for step in (None, 3):
        with bitsnap.Store(tmp_path / "run") as store, pytest.raises(bitsnap.NotFoundError):
            store.load(step)
        assert not (tmp_path / "run").exists()
    with bitsnap.Store(tmp_path / "run") as store:
        with pytest.raises(bitsnap.NotFoundError):
            store.load()
        store.save(1, {})
    assert bitsnap.Store(tmp_path / "run", read_only=True).steps() == [1]
