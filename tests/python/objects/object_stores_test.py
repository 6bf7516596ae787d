"""Runs in a bucket of a real server."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bitsnap
from bitsnap import _objects
from python.processes import run_script

SIZE = 300_000


def state(step: int) -> dict[str, Any]:
    random = np.random.default_rng(7)
    weights = random.standard_normal(SIZE).astype(np.float32)
    return {"w": weights + np.float32(step) * 1e-4, "step": step, "frozen": random.integers(0, 99, 50_000)}


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a["step"] == b["step"] and all(np.array_equal(a[key], b[key]) for key in ("w", "frozen"))


def keys(run: str) -> list[str]:
    prefix = run.split("/", 3)[3]
    return [key.removeprefix(prefix + "/") for key, _ in client(run).list(prefix, True)[0]]


def client(run: str) -> _objects.Client:
    return _objects.Client("/".join(run.split("/")[:3]))


def test_a_bucket_is_a_home_of_a_run(run: str) -> None:
    with bitsnap.Store(run) as store:
        assert store.path == run
        for step in (1, 2, 3):
            store.save(step, state(step), labels=["best"] if step == 2 else [], metrics={"loss": 1 / step})
        assert store.steps() == [1, 2, 3]
        assert store.labels() == {"best": 2}
    with bitsnap.Store(run, read_only=True) as store:
        assert all(same(store.load(step), state(step)) for step in (1, 2, 3))
        assert store.checkpoints()[1].base == 1
        assert not store.verify().damages
        assert store.best("loss") == 3
    assert same(bitsnap.load(f"{run}@best"), state(2))
    assert same(bitsnap.load(f"{run}@latest"), state(3))
    with pytest.raises(bitsnap.InvalidArgumentError, match=f"as in {run}@latest"):
        bitsnap.load(run)
    with pytest.raises(bitsnap.NotFoundError, match="no store found"):
        bitsnap.load(f"{run}-none@2")
    with bitsnap.Store(run, keep_last=1) as store:
        store.save(4, state(4))
        assert store.steps() == [4]
        assert same(store.load(), state(4))
        store.rollback(4)
    assert not any(".tmp" in key for key in keys(run))
    bitsnap.Store.repair(run)


def test_copies_in_both_directions_are_runs(run: str, tmp_path: Path) -> None:
    with bitsnap.Store(run) as store:
        store.save(1, state(1))
        store.save(2, state(2))
    local = tmp_path / "run"
    prefix = run.split("/", 3)[3]
    for key in keys(run):
        (local / key).parent.mkdir(parents=True, exist_ok=True)
        (local / key).write_bytes(client(run).read_tail(f"{prefix}/{key}", 1 << 40)[1])
    with bitsnap.Store(local) as store:
        assert same(store.load(2), state(2))
        store.save(3, state(3))
    for file in local.rglob("*"):
        if file.is_file():
            client(run).put(f"{prefix}-2/{file.relative_to(local)}", file.read_bytes())
    with bitsnap.Store(f"{run}-2") as store:
        assert same(store.load(3), state(3))
        store.save(4, state(4))
        assert store.checkpoint(4).base == 3


def test_a_large_file_is_sent_in_parts(run: str) -> None:
    values = np.random.default_rng(1).integers(0, 256, 70 << 20, dtype=np.uint8)
    with bitsnap.Store(run) as store:
        store.save(1, {"w": values})
        assert np.array_equal(store.load(1)["w"], values)


def test_ranks_save_together(run: str) -> None:
    stores = [bitsnap.Store(run, shared=True, timeout=60) for _ in range(2)]
    for step in (1, 2):
        for rank, store in enumerate(stores):
            store.save_shard(step, {f"rank{rank}": state(step)}, shard=rank, shards=2, attempt=f"a{step}")
        assert all(store.commit(step, 2, f"a{step}") for store in stores)
    whole = stores[0].load(2)
    assert same(whole["rank0"], state(2))
    assert same(whole["rank1"], state(2))


HOLD = """
import sys, bitsnap
store = bitsnap.Store(sys.argv[1])
store.save(1, {"step": 1})
print("holds", flush=True)
sys.stdin.read()
"""


def test_one_writer_at_a_time_and_a_killed_one_is_followed_at_once(run: str) -> None:
    command = [sys.executable, "-c", HOLD, run]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
        # Until the holder has changed the lease while it is watched, nobody knows whether it lives.
        with pytest.raises(bitsnap.BusyError, match=f"lock: process {holder.pid} on .* holds it"):
            bitsnap.Store(run)
        assert bitsnap.Store(run, read_only=True).steps() == [1]
        holder.kill()
    with bitsnap.Store(run) as store:
        store.save(2, {"step": 2})


def test_nothing_waits_for_the_lock_of_python(run: str) -> None:
    """Threads of the library call the client, also when the last reference to a store goes away."""
    store = bitsnap.Store(run)
    store.save(1, state(1))
    thread = threading.Thread(target=bitsnap.Store(run, read_only=True).load)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    del store
    bitsnap.Store(run).close()


def test_errors_name_the_object_and_what_to_do(run: str) -> None:
    with pytest.raises(bitsnap.NotFoundError, match=f"{run}: no store found"):
        bitsnap.Store(run, read_only=True)
    with pytest.raises(bitsnap.NotFoundError, match="no store found"):
        bitsnap.Store(run, create=False)
    with pytest.raises(bitsnap.UnsupportedError, match="a run in an object store has no branches"):
        bitsnap.Store(f"{run}:lr2")
    with bitsnap.Store(run) as store:
        store.save(1, state(1))
        with pytest.raises(bitsnap.UnsupportedError, match="has no branches"):
            store.branch("lr2", 1)
    with pytest.raises(bitsnap.NotFoundError, match="step 7 not found; nearby is 1"):
        bitsnap.load(f"{run}@7")


NO_CLIENT = """
import sys
sys.modules["obstore"] = None
import bitsnap
from bitsnap import _objects
try:
    bitsnap.Store("s3://bucket/run")
except bitsnap.UnsupportedError as error:
    print(error)
"""


def test_what_to_install_is_said() -> None:
    assert run_script(NO_CLIENT) == 's3://bucket: needs the package obstore: pip install "bitsnap[remote]"\n'


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            "Error performing PUT http://169.254.169.254/latest",
            "GenericError",
            "set AWS_ACCESS_KEY_ID and AWS_SECRET",
        ),
        (
            "403",
            "PermissionDeniedError",
            "S3 refused the credentials, or they do not allow this request (403)",
        ),
    ],
)
def test_credentials_that_are_missing_or_wrong_are_explained(server: str, text: str, kind: str, said: str) -> None:
    client = _objects.Client("s3://bucket")
    error = client._failed("find", "run", getattr(client._obstore.exceptions, kind)(text))
    assert isinstance(error, bitsnap.IoError)
    assert said in str(error)


def test_credentials_are_not_named(server: str) -> None:
    script = """
import os, bitsnap
os.environ.update(AWS_ENDPOINT_URL="http://u:hush@127.0.0.1:9", AWS_SECRET_ACCESS_KEY="hush", AWS_ACCESS_KEY_ID="me")
import bitsnap._objects
bitsnap._objects._RETRY["max_retries"] = 0
try:
    bitsnap.Store("s3://bucket/run", read_only=True)
except bitsnap.IoError as error:
    print(error)
"""
    printed = run_script(script)
    assert printed.startswith("find s3://bucket/run/bitsnap.json: http://127.0.0.1:9 cannot be reached: Conn")
    assert "Check AWS_ENDPOINT_URL" in printed
    assert "hush" not in printed
    assert "me" not in printed.split()


def test_a_rank_that_is_late(run: str) -> None:
    """Its shard makes the checkpoint complete. If the others have gone on, it is told so, and changes nothing."""
    with bitsnap.Store(run, shared=True) as store:
        store.save_shard(1, {"a": 1}, shard=0, shards=2, attempt="first")
        outcome = store.commit(1, 2, "first")
        assert not outcome
        assert outcome.missing == [1]
        assert store.steps() == []
        with bitsnap.Store(run, shared=True) as late:  # another process, later
            late.save_shard(1, {"b": 2}, shard=1, shards=2, attempt="first")
            assert late.commit(1, 2, "first")
        assert store.steps() == [1]
        # Of the next step, the others try again without it, and go on.
        store.save_shard(2, {"a": 1}, shard=0, shards=2, attempt="second")
        assert not store.commit(2, 2, "second")
        for shard in range(2):
            store.save_shard(3, {f"s{shard}": 3}, shard=shard, shards=2, attempt="third")
        assert store.commit(3, 2, "third")
        with bitsnap.Store(run, shared=True) as late:
            with pytest.raises(bitsnap.InvalidArgumentError, match="must be greater than 3, the newest step"):
                late.save_shard(2, {"b": 2}, shard=1, shards=2, attempt="second")
            with pytest.raises(bitsnap.InvalidArgumentError, match="3"):
                late.commit(2, 2, "second")
        assert store.steps() == [1, 3]
        assert not store.verify().damages
