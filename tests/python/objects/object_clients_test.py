"""What the library in C++ demands of a client, with each real service, and how a service that lies is refused."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

import bitsnap
from bitsnap import _objects
from python.objects.object_proxy import Proxy
from python.objects.object_servers import Server, start


@pytest.fixture
def client(server: Proxy) -> _objects.Client:
    return _objects.Client(server.bucket)


def read(client: _objects.Client, key: str, version: str, offset: int, size: int) -> bytes:
    out = bytearray(size)
    client.read(key, version, offset, memoryview(out))
    return bytes(out)


def test_conditions_versions_and_ranges(client: _objects.Client) -> None:
    key = f"{secrets.token_hex(4)}/a b/ä+%41.json"
    assert client.find(key) is None
    with pytest.raises(_objects.RefusedError):
        client.put_if_version(key, b"x", '"0123456789abcdef0123456789abcdef"\n17')
    client.put_if_absent(key, b"hello world")
    with pytest.raises(_objects.RefusedError):
        client.put_if_absent(key, b"hello world")
    found = client.find(key)
    assert found is not None
    first = found[1]
    second = client.put_if_version(key, b"hello again", first)
    assert second != first
    with pytest.raises(_objects.RefusedError):
        client.put_if_version(key, b"stale", first)
    found = client.find(key)
    assert found is not None
    assert found[:2] == (11, second)
    assert client.read_tail(key, 5) == (found, b"again")
    assert client.read_tail(key, 500)[1] == b"hello again"
    assert read(client, key, second, 2, 4) == b"llo "
    with pytest.raises(bitsnap.NotFoundError, match="replaced"):
        read(client, key, first, 2, 4)
    with pytest.raises(bitsnap.IoError, match="expected 50 bytes at 2"):
        read(client, key, second, 2, 50)
    client.remove(key)
    client.remove(key)
    assert client.find(key) is None


def test_lists_and_copies(client: _objects.Client) -> None:
    run = secrets.token_hex(4)
    for name in ("b", "a/x.json", "a/y/z", "empty"):
        client.put(f"{run}/{name}", b"" if name == "empty" else name.encode())
    client.put(f"{run}-2/c", b"")
    assert client.read_tail(f"{run}/empty", 10)[1] == b""
    client.copy(f"{run}/a/x.json", f"{run}/a/copy +.json")
    assert client.read_tail(f"{run}/a/copy +.json", 99)[1] == b"a/x.json"
    with pytest.raises(bitsnap.NotFoundError, match=f"copy .*/{run}/nothing"):
        client.copy(f"{run}/nothing", f"{run}/more")
    objects, prefixes = client.list(run, False)
    assert [(key, found[0]) for key, found in objects] == [(f"{run}/b", 1), (f"{run}/empty", 0)]
    assert prefixes == [f"{run}/a"]
    names = ["a/copy +.json", "a/x.json", "a/y/z", "b", "empty"]
    assert [key for key, _ in client.list(run, True)[0]] == [f"{run}/{name}" for name in names]
    assert client.list(f"{run}/nothing", True) == ([], [])
    assert run in client.list("", False)[1]


def test_parts_make_an_object_when_the_last_one_is_there(client: _objects.Client) -> None:
    key = secrets.token_hex(4)
    upload = client.upload(key)
    for i in range(5):
        upload.append(bytes([i]) * (8 << 20))
    assert client.find(key) is None
    upload.finish()
    found = client.find(key)
    assert found is not None
    assert found[0] == 40 << 20
    assert read(client, key, found[1], (32 << 20) - 2, 4) == b"\3\3\4\4"


def test_a_bucket_that_is_not_there_is_named(server: Proxy) -> None:
    client = _objects.Client(f"{server.bucket}-2")
    for call in (lambda: client.put("x", b""), lambda: client.put_if_absent("x", b"")):
        with pytest.raises(bitsnap.BitsnapError, match=f"write {server.bucket}-2/x: .*(no such bucket|credentials)"):
            call()


def test_a_service_that_ignores_conditions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of rclone says that it has written what it should not have, and has."""
    for name in ("ENDPOINT_URL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION"):
        monkeypatch.setenv(f"AWS_{name}", "")  # so that they are put back
    with bitsnap.Store(tmp_path / "run") as store:
        store.save(1, {"step": 1})
    (tmp_path / "server").mkdir()
    with start("rclone", tmp_path / "server") as server:
        _check_refusal(server, tmp_path / "run")


def _check_refusal(server: Server, run: Path) -> None:
    server.use(server.address)
    client = _objects.Client(server.bucket)
    for file in run.rglob("*.*"):
        client.put(f"copy/{file.relative_to(run)}", file.read_bytes())
    client.put("other/lock", b"of another program")
    before = client.list("", True)
    where = server.bucket
    assert bitsnap.load(f"{where}/copy@1") == {"step": 1}
    advice = "lock: the service overwrote .* condition If-None-Match: .* use a service with conditional writes"
    for address in (f"{where}/new", f"{where}/copy"):
        for shared in (False, True):
            with pytest.raises(bitsnap.UnsupportedError, match=f"{address}/{advice}"):
                bitsnap.Store(address, shared=shared).save_shard(2, {}, shard=0, shards=1, attempt="a")
        with pytest.raises(bitsnap.UnsupportedError, match=advice):
            bitsnap.Store.repair(f"{where}/copy")
    with pytest.raises(bitsnap.UnsupportedError, match="other/lock: this object of 18 bytes is no lease of bitsnap"):
        bitsnap.Store(f"{where}/other")
    assert client.list("", True) == before
