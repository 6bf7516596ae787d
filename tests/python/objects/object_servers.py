"""A real S3 server on a free port of this machine, and a proxy before it that fails on request."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

_START_SECONDS = 120


def free_port() -> int:
    # The gRPC ports of the server are 10,000 above those of HTTP.
    while True:
        with socket.socket() as probe, socket.socket() as above:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                above.bind(("127.0.0.1", port + 10_000))
                return port


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[str]:
    """The address of a SeaweedFS server with its data in the folder."""
    ports = {name: free_port() for name in ("s3", "master", "volume", "filer")}
    weed = Path(sys.executable).with_name("weed")
    command = [str(weed), "server", f"-dir={folder}", "-ip=127.0.0.1", "-s3", "-master.volumeSizeLimitMB=64"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false", "-volume.max=50"]
    command += [*(f"-{name}.port={port}" for name, port in ports.items())]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        address = f"http://127.0.0.1:{ports['s3']}"
        deadline = time.monotonic() + _START_SECONDS
        while not _makes_bucket(address):
            assert server.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, (folder / "log").read_text()[-2000:]
            time.sleep(0.1)
        yield address
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _makes_bucket(address: str) -> bool:
    """Whether an object could be written, in a bucket that was made before."""
    try:
        for path in ("/bucket", "/bucket/probe"):
            request = urllib.request.Request(address + path, data=b"", method="PUT")
            with urllib.request.urlopen(request, timeout=5):
                pass
    except OSError:
        return False
    return True


def use_server(address: str) -> None:
    """The clients of this process, and of those that it starts, use the server."""
    os.environ.update(
        AWS_ENDPOINT_URL=address, AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_REGION="us-east-1"
    )


# What a proxy does with a request: hands it on; answers with a status; answers after the server has done it, with a
# status instead of its answer; cuts the connection before or after; cuts the body of the answer.
Fault = Callable[[str, str], "str | int | None"]  # by method and path; the words are those of _Handler


class Proxy(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, server: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = server.removeprefix("http://")
        self.fault: Fault = lambda method, path: None
        self.requests: list[tuple[str, str]] = []
        self.sent = 0  # bytes of answers
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.lock:
            self.server.requests.append((self.command, self.path))
            fault = self.server.fault(self.command, self.path)
        if isinstance(fault, int):
            self._answer(fault, [], b"")
            return
        if fault == "cut before":
            self._cut()
            return
        connection = http.client.HTTPConnection(self.server.target, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            data = answer.read()
            headers = [(k, v) for k, v in answer.getheaders() if k.lower() not in ("transfer-encoding", "connection")]
        finally:
            connection.close()
        if fault == "lost answer":
            self._cut()
        elif fault == "500 after":
            self._answer(500, [], b"")
        else:
            self._answer(answer.status, headers, data, is_cut=fault == "cut body")

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, is_cut: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            with self.server.lock:
                self.server.sent += len(data)
            self.wfile.write(data[: len(data) // 2] if is_cut else data)
        if is_cut:
            self._cut()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815
