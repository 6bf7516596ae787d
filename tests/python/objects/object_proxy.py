"""A proxy before a server of objects. It counts requests, and fails on request."""

from __future__ import annotations

import http.client
import http.server
import socket
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable

from python.objects.gcs_interface import Answer, GcsInterface
from python.objects.object_servers import Server

# What the proxy does with a request: answers with a status and hands nothing on; or a word:
#   "500 after"    lets the server do it, and answers with an error
#   "cut before"   closes the connection; "lost answer": after the server has done it
#   "cut body"     sends half of the answer's body
#   "late"         lets the server do it, and answers when the client waits no more; "hang": the same, undone
#   "slow"         answers after a while
#   "kill before"  kills the process that asks, and hands nothing on; "kill after": after the server has done it
Fault = Callable[[str, str], "str | int | None"]  # by method and path


class Proxy(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, server: Server) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.name = server.name
        self.bucket = server.bucket
        self.target = server.address.removeprefix("http://")
        self.interface = GcsInterface() if server.scheme == "gs" else None
        self.lock = threading.Lock()
        self.kill: Callable[[], None] = lambda: None
        self.late_seconds = 1.0
        self.slow_seconds = 0.1
        self.reset()
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        server.use(self.address)

    def reset(self) -> None:
        self.fault: Fault = lambda method, path: None
        self.change: Callable[[Answer], Answer] = lambda answer: answer
        self.requests: list[tuple[str, str]] = []
        self.sent = 0  # bytes of answers

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that was killed, or waits no more
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Does the request, without faults."""
        if self.interface:
            return self.interface.send(self.send, method, path, headers, body)
        return self.send(method, path, headers, body)

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Hands the request to the server."""
        if self.interface:
            headers = headers | {"host": self.target}  # it lists for its own name only
        connection = http.client.HTTPConnection(self.target, timeout=60)
        try:
            connection.putrequest(method, path, skip_host="host" in headers, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            data = answer.read()
            dropped = ("transfer-encoding", "connection", "content-length" if method != "HEAD" else "")
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in dropped]
            return Answer(answer.status, kept, data)
        finally:
            connection.close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise each request takes 40 ms
    wbufsize = -1
    server: Proxy

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def _handle(self) -> None:
        proxy = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urllib.parse.unquote(self.path)  # clients of Google Cloud Storage quote dots, too
        with proxy.lock:
            proxy.requests.append((self.command, path))
            fault = proxy.fault(self.command, path)
        if fault == "kill before":
            proxy.kill()
        if fault in ("cut before", "kill before"):
            self._cut()
        elif fault == "hang":
            time.sleep(proxy.late_seconds)
            self._cut()
        elif isinstance(fault, int):
            self._answer(Answer(fault, [], b""))
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._answer_with(fault, proxy.change(proxy.handle(self.command, self.path, headers, body)))

    def _answer_with(self, fault: str | None, answer: Answer) -> None:
        if fault in ("late", "slow"):
            time.sleep(self.server.late_seconds if fault == "late" else self.server.slow_seconds)
        if fault == "kill after":
            self.server.kill()
        if fault in ("lost answer", "late", "kill after"):
            self._cut()
        elif fault == "500 after":
            self._answer(Answer(500, [], b""))
        else:
            self._answer(answer, is_cut=fault == "cut body")

    def _cut(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, answer: Answer, is_cut: bool = False) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in answer.headers):
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            with self.server.lock:
                self.server.sent += len(answer.body)
            self.wfile.write(answer.body[: len(answer.body) // 2] if is_cut else answer.body)
        if is_cut:
            self._cut()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815
