"""`bitsnap report RUN --serve`: the page of a run, served to browsers on this machine, which shows new checkpoints.

The server listens on 127.0.0.1 only. Another site in the same browser gets nothing out of it: a request must name
127.0.0.1 or localhost as its host, which a site whose name leads to 127.0.0.1 (DNS rebinding) does not, and no answer
allows other origins. All methods but GET and HEAD are refused. The path of a request never names a file, and what a
request asks for must be on the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bitsnap._common import Home
from bitsnap.errors import BitsnapError, NotFoundError
from bitsnap.report.report_data import finite
from bitsnap.report.report_live import LiveRun
from bitsnap.report.report_page import render

if TYPE_CHECKING:
    from starlette.applications import Starlette

_HOST = "127.0.0.1"
_NAMES = [_HOST, "localhost"]
_SECONDS_TO_END = 5
# More are closed if they are idle, and are refused from twice this number on if they are not.
_MOST_CONNECTIONS = 32
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


def check_packages() -> None:
    for name in ("plotly", "jinja2", "starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise NotFoundError(
                f"to serve a report needs the package {name}, which is not installed: pip install 'bitsnap[serve]'"
            )


class _Pages:
    """The newest page as HTML, made when it is asked for."""

    def __init__(self, live: LiveRun, title: str | None) -> None:
        self._live = live
        self._title = title
        self._lock = threading.Lock()
        self._made: dict[bool, tuple[str, str]] = {}

    def get(self, with_scripts: bool) -> str:
        with self._lock:
            found = self._live.found()
            version, text = self._made.get(with_scripts, ("", ""))
            if version != found.version:
                text = render(found.data, self._title, live=found, with_scripts=with_scripts)
                self._made[with_scripts] = found.version, text
            return text


def application(live: LiveRun, title: str | None = None) -> Starlette:
    """The pages of a run that is watched: /, /update?version=V and /tensors?step=S&role=R&row=L."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, Response
    from starlette.routing import Route

    pages = _Pages(live, title)

    def page(_: Request) -> Response:
        return HTMLResponse(pages.get(with_scripts=True), headers=_HEADERS)

    def update(request: Request) -> Response:
        if _is_foreign(request.headers.get("sec-fetch-site")):
            return Response(status_code=403, headers=_HEADERS)
        if request.query_params.get("version") == live.found().version:
            return Response(status_code=204, headers=_HEADERS)
        return HTMLResponse(pages.get(with_scripts=False), headers=_HEADERS)

    def tensors(request: Request) -> Response:
        if _is_foreign(request.headers.get("sec-fetch-site")):
            return Response(status_code=403, headers=_HEADERS)
        values = request.query_params
        step = values.get("step", "")
        try:
            if not (step.isascii() and step.isdigit() and len(step) <= 20):
                raise NotFoundError("the step is not a number")
            answer: Any = live.tensors(int(step), values.get("role", ""), values.get("row", ""))
            status = 200
        except (BitsnapError, OSError, ValueError) as error:
            answer = {"error": str(error)}
            status = 404 if isinstance(error, NotFoundError) else 503
        text = json.dumps(finite(answer), allow_nan=False)
        return Response(text, status, headers=_HEADERS, media_type="application/json")

    routes = [Route("/", page), Route("/update", update), Route("/tensors", tensors)]
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=_NAMES, www_redirect=False)
    return Starlette(routes=routes, middleware=[hosts])


def _protocol() -> type[asyncio.Protocol]:
    """HTTP of uvicorn, for which connections without a request take no place of others.

    Browsers open connections ahead and keep them. uvicorn closes those that had a request, after some seconds, but
    never one that had none, and answers nobody any more once its limit is reached.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        used = 0.0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.used = time.monotonic()
            others: list[Any] = [each for each in self.connections if each is not self]
            idle = [each for each in others if _is_idle(each)]
            idle.sort(key=lambda each: each.used)
            for each in idle[: max(0, len(self.connections) - _MOST_CONNECTIONS)]:
                each.transport.close()

        def data_received(self, data: bytes) -> None:
            self.used = time.monotonic()
            super().data_received(data)

    return Protocol


def _is_idle(connection: Any) -> bool:
    """Nothing is being answered: no whole request has come, or the answer is complete."""
    return connection.cycle is None or connection.cycle.response_complete


def _is_foreign(site: str | None) -> bool:
    """What browsers say of requests from pages of other sites."""
    return site not in {None, "same-origin", "none"}


@contextlib.contextmanager
def _numbers_of_signals() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A pair of sockets: the first one receives the numbers of signals, and what else is sent with the second one.

    The signal itself sends. What a handler in Python would do comes too late for a signal right before the main thread
    begins to wait, because handlers run only when that thread goes on.
    """
    received, sent = socket.socketpair()
    sent.setblocking(False)
    with received, sent:
        signal.set_wakeup_fd(sent.fileno())
        try:
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(each, lambda *_: None)
            yield received, sent
        finally:
            signal.set_wakeup_fd(-1)


def serve(run: Home, *, port: int = 0, title: str | None = None, **options: Any) -> int:
    """Serves the page until a signal ends it, and prints its URL. The options are those of LiveRun.

    Returns:
        the exit status: 0 after Ctrl-C, which is the way to end it.

    Raises:
        NotFoundError: a package is not installed.
        OSError: the port is in use.
    """
    check_packages()
    import uvicorn

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener, _numbers_of_signals() as (received, ended):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
        except OSError as error:
            raise type(error)(error.errno, f"port {port}: {error.strerror}") from None
        listener.listen()
        live = LiveRun(run, **options)
        settings = uvicorn.Config(
            application(live, title),
            http=_protocol(),
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            limit_concurrency=2 * _MOST_CONNECTIONS,
        )
        server = uvicorn.Server(settings)

        def answer() -> None:
            try:
                server.run(sockets=[listener])
            finally:
                with contextlib.suppress(OSError):
                    ended.send(b"\0")

        threads = [threading.Thread(target=work, daemon=True) for work in (answer, live.watch, live.study)]
        for thread in threads:
            thread.start()
        print(f"http://{_HOST}:{listener.getsockname()[1]}/", flush=True)
        number = received.recv(1)[0]
        server.should_exit = True
        live.stop()
        for thread in threads:
            thread.join(_SECONDS_TO_END)
    return 0 if number in {0, signal.SIGINT} else 128 + number
